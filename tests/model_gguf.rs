//! `model.gguf` against its law: whatever version, order of bytes or split the source has, the
//! file is byte for byte what a plain writer of little-endian version 3 makes of the same model.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightfs::fs::{FsError, Handle, Parts, WeightFs};
use weightfs::layout::{Ino, Node};
use weightfs::load::open;
use weightfs::naming::Catalog;
use weightfs::overrides::{Setting, set};
use weightfs::scale::Scales;
use weightfs::source::IoMode;
use weightfs::store::{Store, StoreOptions, Verify};

/// How a file is written.
#[derive(Clone, Copy, Debug)]
struct Form {
    version: u32,
    big: bool,
    /// Version 1 only: strings with a NUL that their length counts.
    nul: bool,
}

const CANONICAL: Form = Form { version: 3, big: false, nul: false };
const BIG: Form = Form { big: true, ..CANONICAL };
const OLD: Form = Form { version: 1, ..CANONICAL };

impl Form {
    fn number(self, little: &[u8], out: &mut Vec<u8>) {
        let at = out.len();
        out.extend(little);
        if self.big {
            out[at..].reverse();
        }
    }

    fn size(self, n: u64, out: &mut Vec<u8>) {
        if self.version == 1 {
            self.number(&(n as u32).to_le_bytes(), out);
        } else {
            self.number(&n.to_le_bytes(), out);
        }
    }

    fn string(self, text: &[u8], out: &mut Vec<u8>) {
        self.size(text.len() as u64 + u64::from(self.nul), out);
        out.extend(text);
        out.extend(self.nul.then_some(0));
    }
}

#[derive(Clone, Debug)]
enum Val {
    /// Type and little-endian bytes.
    Number(u32, Vec<u8>),
    Str(Vec<u8>),
    /// Element type, elements.
    Array(u32, Vec<Val>),
}

fn u32v(n: u32) -> Val {
    Val::Number(4, n.to_le_bytes().into())
}

fn text(s: &str) -> Val {
    Val::Str(s.as_bytes().into())
}

impl Val {
    fn kind(&self) -> u32 {
        match self {
            Val::Number(kind, _) => *kind,
            Val::Str(_) => 8,
            Val::Array(..) => 9,
        }
    }

    fn write(&self, form: Form, out: &mut Vec<u8>) {
        match self {
            Val::Number(_, bytes) => form.number(bytes, out),
            Val::Str(bytes) => form.string(bytes, out),
            Val::Array(elem, items) => {
                form.number(&elem.to_le_bytes(), out);
                form.size(items.len() as u64, out);
                items.iter().for_each(|item| item.write(form, out));
            }
        }
    }
}

/// Type id, bytes of a block, fields that are turned in big-endian files.
type Kind = (u32, usize, &'static [(usize, usize)]);
const KINDS: [Kind; 6] = [
    (0, 4, &[(0, 4)]),            // F32
    (1, 2, &[(0, 2)]),            // F16
    (24, 1, &[]),                 // I8
    (28, 8, &[(0, 8)]),           // F64
    (8, 34, &[(0, 2)]),           // Q8_0
    (12, 144, &[(0, 2), (2, 2)]), // Q4_K
];
const BLOCK_ELEMENTS: [u64; 6] = [1, 1, 1, 1, 32, 256];

#[derive(Clone, Debug)]
struct TensorOf {
    name: Vec<u8>,
    kind: usize,
    /// As the file has them: the fastest-varying first.
    dims: Vec<u64>,
    /// Little-endian.
    data: Vec<u8>,
}

fn tensor(name: &str, kind: usize, dims: &[u64], seed: u8) -> TensorOf {
    let elements: u64 = dims.iter().product();
    let len = (elements / BLOCK_ELEMENTS[kind]) as usize * KINDS[kind].1;
    let data = (0..len).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed)).collect();
    TensorOf { name: name.into(), kind, dims: dims.into(), data }
}

#[derive(Clone, Debug, Default)]
struct Logical {
    keys: Vec<(Vec<u8>, Val)>,
    tensors: Vec<TensorOf>,
}

impl Logical {
    fn key(mut self, name: &str, value: Val) -> Logical {
        self.keys.push((name.into(), value));
        self
    }

    fn tensor(mut self, tensor: TensorOf) -> Logical {
        self.tensors.push(tensor);
        self
    }

    fn alignment(&self) -> usize {
        let found = self.keys.iter().find(|(k, _)| k == b"general.alignment");
        found.map_or(32, |(_, value)| match value {
            Val::Number(4, bytes) => u32::from_le_bytes(bytes[..].try_into().unwrap()) as usize,
            _ => panic!("alignment is u32"),
        })
    }

    fn encode(&self, form: Form) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        form.number(&form.version.to_le_bytes(), &mut out);
        form.size(self.tensors.len() as u64, &mut out);
        form.size(self.keys.len() as u64, &mut out);
        for (key, value) in &self.keys {
            form.string(key, &mut out);
            form.number(&value.kind().to_le_bytes(), &mut out);
            value.write(form, &mut out);
        }
        let align = self.alignment();
        let mut data = Vec::new();
        for t in &self.tensors {
            let (id, block, fields) = KINDS[t.kind];
            form.string(&t.name, &mut out);
            form.number(&(t.dims.len() as u32).to_le_bytes(), &mut out);
            t.dims.iter().for_each(|&d| form.size(d, &mut out));
            form.number(&id.to_le_bytes(), &mut out);
            form.number(&(data.len() as u64).to_le_bytes(), &mut out);
            for block in t.data.chunks(block) {
                let at = data.len();
                data.extend(block);
                for &(offset, width) in fields.iter().filter(|_| form.big) {
                    data[at + offset..][..width].reverse();
                }
            }
            data.resize(data.len().next_multiple_of(align), 0);
        }
        out.resize(out.len().next_multiple_of(align), 0);
        out.extend(data);
        out
    }
}

struct Mounted {
    fs: WeightFs,
    _dir: tempfile::TempDir,
}

fn plan(path: &Path, settings: &[(&str, &str)]) -> WeightFs {
    let mut loaded = open(path, IoMode::Auto).unwrap_or_else(|e| panic!("{e}"));
    for (key, json) in settings {
        set(&mut loaded.model, key, &Setting::Json(serde_json::from_str(json).unwrap())).unwrap();
    }
    let model = Arc::new(loaded.model);
    let options = StoreOptions { verify: Verify::Always, ..StoreOptions::default() };
    let store = Store::new(Arc::clone(&model), loaded.sources, None, options);
    let parts = Parts {
        model,
        catalog: Catalog::identity(),
        store,
        verify: Verify::Always,
        warnings: Vec::new(),
        log: None,
        scales: Scales::default(),
        hf: None,
    };
    WeightFs::new(parts).unwrap()
}

impl Mounted {
    fn of(files: &[(&str, Vec<u8>)], settings: &[(&str, &str)]) -> Mounted {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        let path: PathBuf = dir.path().join(files[0].0);
        Mounted { fs: plan(&path, settings), _dir: dir }
    }

    fn one(bytes: Vec<u8>) -> Mounted {
        Mounted::of(&[("m.gguf", bytes)], &[])
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0xAA; len];
        let n = self.fs.read(Node::Gguf.ino(), Handle(0), offset, &mut out).unwrap();
        out.truncate(n);
        out
    }

    fn whole(&self) -> Vec<u8> {
        let node = self.fs.lookup(Ino::ROOT, b"model.gguf").unwrap();
        let attr = self.fs.attr(node).unwrap();
        let bytes = self.read(0, attr.size as usize + 100);
        assert_eq!(bytes.len() as u64, attr.size);
        bytes
    }

    fn warnings(&self) -> Vec<String> {
        let ino = self.fs.lookup(Ino::ROOT, b"model.json").unwrap().ino();
        let mut out = vec![0; 1 << 16];
        let n = self.fs.read(ino, Handle(0), 0, &mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out[..n]).unwrap();
        serde_json::from_value(json["warnings"].clone()).unwrap()
    }
}

fn same(found: &[u8], expected: &[u8], what: &str) {
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(at.is_none(), "{what}: first difference at {at:?}");
    assert_eq!(found.len(), expected.len(), "{what}");
}

/// Every kind of value, short and long, and every kind of tensor.
fn sound() -> Logical {
    let number = |kind, bytes: &[u8]| Val::Number(kind, bytes.into());
    let words = (0..40_000).map(|i| text(&format!("word {i}"))).collect();
    let scores: Vec<Val> =
        (0..40_000).map(|i| number(6, &(i as f32 * 0.25).to_le_bytes())).collect();
    let nested = (0..3000)
        .map(|i: u32| match i % 3 {
            0 => Val::Array(4, vec![u32v(i), u32v(i + 1)]),
            1 => Val::Array(8, vec![text("inner"), text("")]),
            _ => Val::Array(9, vec![Val::Array(3, vec![number(3, &(-7i16).to_le_bytes())])]),
        })
        .collect();
    Logical::default()
        .key("general.architecture", text("llama"))
        .key("u8", number(0, &[200]))
        .key("i8", number(1, &[200]))
        .key("u16", number(2, &[1, 2]))
        .key("i16", number(3, &[1, 200]))
        .key("i32", number(5, &[1, 2, 3, 200]))
        .key("f32", number(6, &f32::NAN.to_le_bytes()))
        .key("yes", number(7, &[1]))
        .key("no", number(7, &[0]))
        .key("u64", number(10, &[1, 2, 3, 4, 5, 6, 7, 200]))
        .key("i64", number(11, &[1, 2, 3, 4, 5, 6, 7, 200]))
        .key("f64", number(12, &[1, 2, 3, 4, 5, 6, 7, 64]))
        .key("tokenizer.ggml.tokens", Val::Array(8, words))
        .key("tokenizer.ggml.scores", Val::Array(6, scores))
        .key("short", Val::Array(8, vec![text("a"), text(""), text("\u{1f600}")]))
        .key("few", Val::Array(10, vec![number(10, &[1, 2, 3, 4, 5, 6, 7, 8])]))
        .key("none", Val::Array(8, vec![]))
        .key("nested", Val::Array(9, nested))
        .key("template", Val::Str(vec![b'{'; 50_000]))
        .key("general.alignment", u32v(64))
        .tensor(tensor("a", 0, &[5, 3], 1))
        .tensor(tensor("empty", 0, &[0, 4], 0))
        .tensor(tensor("five", 1, &[2, 2, 1, 3, 4], 2))
        .tensor(tensor("bytes", 2, &[7], 3))
        .tensor(tensor("double", 3, &[], 4))
        .tensor(tensor("q8", 4, &[64, 9], 5))
        .tensor(tensor("q4", 5, &[512, 300], 6))
        .tensor(tensor("last", 2, &[1], 7))
}

#[test]
fn a_canonical_file_is_itself() {
    let bytes = sound().encode(CANONICAL);
    same(&Mounted::one(bytes.clone()).whole(), &bytes, "version 3");
    let two = sound().encode(Form { version: 2, ..CANONICAL });
    same(&Mounted::one(two).whole(), &bytes, "version 2");
}

#[test]
fn a_big_endian_file_is_turned() {
    let mounted = Mounted::one(sound().encode(BIG));
    same(&mounted.whole(), &sound().encode(CANONICAL), "big-endian");
}

#[test]
fn version_1_is_written_anew() {
    let expected = sound().encode(CANONICAL);
    same(&Mounted::one(sound().encode(OLD)).whole(), &expected, "version 1");
    let nul = sound().encode(Form { nul: true, ..OLD });
    same(&Mounted::one(nul).whole(), &expected, "version 1 with NUL");
}

#[test]
fn any_range_is_that_slice_of_the_whole() {
    let expected = sound().encode(CANONICAL);
    for form in [CANONICAL, BIG, OLD] {
        let mounted = Mounted::one(sound().encode(form));
        let len = expected.len();
        for offset in (0..len).step_by(len / 97).chain(len - 300..len + 2) {
            for n in [1, 63, 4096, 131_072] {
                let slice = &expected[offset.min(len)..(offset + n).min(len)];
                same(&mounted.read(offset as u64, n), slice, &format!("{form:?} {offset}+{n}"));
            }
        }
    }
}

#[test]
fn nothing_at_all_is_a_file_too() {
    let empty = Logical::default();
    for form in [CANONICAL, BIG, OLD] {
        same(&Mounted::one(empty.encode(form)).whole(), &empty.encode(CANONICAL), "empty");
    }
    let keys = Logical::default().key("a", u32v(1));
    same(&Mounted::one(keys.encode(BIG)).whole(), &keys.encode(CANONICAL), "no tensors");
    let tensors = Logical::default().tensor(tensor("t", 0, &[1], 0));
    same(&Mounted::one(tensors.encode(BIG)).whole(), &tensors.encode(CANONICAL), "no keys");
}

#[test]
fn gaps_and_other_orders_are_packed() {
    let (a, b) = (tensor("a", 0, &[8], 1), tensor("b", 0, &[8], 2));
    let declared = Logical::default().tensor(a.clone()).tensor(b.clone());
    let mut bytes = declared.encode(CANONICAL);
    let (first, second) = (24 + 8 + 1 + 4 + 8 + 4, 24 + 2 * (8 + 1 + 4 + 8 + 4) + 8);
    // The data is that of b, a gap, that of a.
    bytes[first..first + 8].copy_from_slice(&64u64.to_le_bytes());
    bytes[second..second + 8].copy_from_slice(&0u64.to_le_bytes());
    let data = bytes.len() - 64;
    bytes.truncate(data);
    bytes.extend([&*b.data, &[0xEE; 32], &*a.data].concat());
    let packed = Logical::default().tensor(b).tensor(a).encode(CANONICAL);
    same(&Mounted::one(bytes).whole(), &packed, "gap and order");

    let model = sound();
    let mut bytes = model.encode(CANONICAL);
    bytes.extend(vec![7; 1000]);
    same(&Mounted::one(bytes).whole(), &model.encode(CANONICAL), "bytes behind the end");
    // The padding of the source may hold anything and may be missing at the end.
    let mut bytes = model.encode(CANONICAL);
    let end = bytes.len() - 63;
    bytes.truncate(end);
    same(&Mounted::one(bytes).whole(), &model.encode(CANONICAL), "no last padding");
}

fn part(model: &Logical, no: u16, count: u16) -> Vec<u8> {
    let u16v = |n: u16| Val::Number(2, n.to_le_bytes().into());
    let mut part = model.clone();
    part.keys.insert(part.keys.len().min(1), ("split.no".into(), u16v(no)));
    part.key("split.count", u16v(count)).encode(CANONICAL)
}

#[test]
fn parts_are_joined_under_the_first_alignment() {
    let first = sound();
    let second = Logical::default()
        .key("general.alignment", u32v(8))
        .key("only.here", text("yes"))
        .tensor(tensor("b", 0, &[3], 9))
        .tensor(tensor("c", 1, &[5, 7], 10));
    let third = Logical::default().tensor(tensor("d", 5, &[256], 11));
    let joined = Logical {
        keys: [first.keys.clone(), vec![("only.here".into(), text("yes"))]].concat(),
        tensors: [first.tensors.clone(), second.tensors.clone(), third.tensors.clone()].concat(),
    };
    let files = [
        ("m-00001-of-00003.gguf", part(&first, 0, 3)),
        ("m-00002-of-00003.gguf", part(&second, 1, 3)),
        ("m-00003-of-00003.gguf", part(&third, 2, 3)),
    ];
    same(&Mounted::of(&files, &[]).whole(), &joined.encode(CANONICAL), "joined");
    // Only a later part says an alignment: it is not the model's.
    let files = [
        ("m-00001-of-00002.gguf", part(&third, 0, 2)),
        ("m-00002-of-00002.gguf", part(&second, 1, 2)),
    ];
    let joined = Logical {
        keys: vec![("only.here".into(), text("yes"))],
        tensors: [third.tensors, second.tensors].concat(),
    };
    same(&Mounted::of(&files, &[]).whole(), &joined.encode(CANONICAL), "default alignment");
}

#[test]
fn overrides_are_in_it() {
    let long = "x".repeat(100_000);
    let mut wanted = sound();
    let settings = [
        ("u16", "7".to_owned()),
        ("template", serde_json::Value::from(&*long).to_string()),
        ("short", r#"["new", "words"]"#.to_owned()),
        ("few", format!("[{}]", vec!["9"; 5000].join(","))),
        ("fresh", "[true, false]".to_owned()),
    ];
    let nine = Val::Number(10, 9u64.to_le_bytes().into());
    for (key, value) in &mut wanted.keys {
        *value = match &**key {
            b"u16" => Val::Number(2, vec![7, 0]),
            b"template" => text(&long),
            b"short" => Val::Array(8, vec![text("new"), text("words")]),
            b"few" => Val::Array(10, vec![nine.clone(); 5000]),
            _ => continue,
        };
    }
    let bools = vec![Val::Number(7, vec![1]), Val::Number(7, vec![0])];
    let wanted = wanted.key("fresh", Val::Array(7, bools)).encode(CANONICAL);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(k, v)| (*k, &**v)).collect();
    for form in [CANONICAL, BIG, OLD] {
        let mounted = Mounted::of(&[("m.gguf", sound().encode(form))], &settings);
        same(&mounted.whole(), &wanted, &format!("{form:?}"));
    }
}

#[test]
fn there_is_none_where_the_layout_is_undefined() {
    let model = Logical::default().tensor(tensor("t", 0, &[8], 0));
    let mut bytes = model.encode(BIG);
    // Q4_1: 20 bytes for 32 elements; its big-endian layout nobody defines.
    let info = 24 + 8 + 1 + 4;
    bytes[info..info + 8].copy_from_slice(&32u64.to_be_bytes());
    bytes[info + 8..info + 12].copy_from_slice(&3u32.to_be_bytes());
    let mounted = Mounted::one(bytes);
    let none = mounted.fs.lookup(Ino::ROOT, b"model.gguf");
    assert!(matches!(none, Err(FsError::NotFound)));
    assert!(mounted.fs.node(Node::Gguf.ino()).is_err());
    let found = mounted.warnings();
    assert!(found.iter().any(|w| w.contains("no model.gguf") && w.contains("Q4_1")), "{found:?}");
}

#[test]
fn a_great_alignment_costs_no_memory() {
    let model = Logical::default()
        .key("general.alignment", u32v(1 << 30))
        .tensor(tensor("a", 0, &[1], 1))
        .tensor(tensor("b", 0, &[1], 2));
    // Its header, as if the alignment were small, then the two numbers that depend on it.
    let mut small = model;
    small.keys[0].1 = u32v(1);
    let mut bytes = small.encode(CANONICAL);
    bytes.truncate(bytes.len() - 8);
    let at = 24 + 8 + 17 + 4;
    bytes[at..at + 4].copy_from_slice(&(1u32 << 30).to_le_bytes());
    let second = bytes.len() - 8;
    bytes[second..].copy_from_slice(&(1u64 << 30).to_le_bytes());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    std::fs::write(&path, &bytes).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((2 << 30) + 4).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1, 2, 3, 4], 1 << 30).unwrap();
    let mounted = Mounted { fs: plan(&path, &[]), _dir: dir };
    assert_eq!(mounted.fs.attr(Node::Gguf).unwrap().size, 3 << 30);
    same(&mounted.read(0, bytes.len()), &bytes, "header");
    same(&mounted.read((1 << 30) - 2, 8), &[0, 0, 1, 2, 3, 4, 0, 0], "first tensor");
    same(&mounted.read((2 << 30) - 1, 6), &[0; 6], "between");
    same(&mounted.read((3 << 30) - 3, 6), &[0; 3], "end");
}

fn value() -> impl Strategy<Value = Val> {
    let number = prop_oneof![
        any::<u8>().prop_map(|n| Val::Number(0, vec![n])),
        any::<bool>().prop_map(|b| Val::Number(7, vec![b.into()])),
        any::<u16>().prop_map(|n| Val::Number(2, n.to_le_bytes().into())),
        any::<u32>().prop_map(u32v),
        any::<u32>().prop_map(|n| Val::Number(6, n.to_le_bytes().into())),
        any::<u64>().prop_map(|n| Val::Number(12, n.to_le_bytes().into())),
    ];
    let string = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        (16_300usize..16_500).prop_map(|n| vec![b'y'; n]),
    ]
    // Version 1 takes a last NUL for its own.
    .prop_filter("no NUL at the end", |s| s.last() != Some(&0));
    let leaf = prop_oneof![number, string.prop_map(Val::Str)];
    leaf.prop_recursive(3, 40, 6, |inner| {
        (inner, 0usize..6, any::<bool>()).prop_map(|(item, n, long)| {
            let n = if long && !matches!(item, Val::Array(..)) { n * 1000 } else { n };
            let n = if matches!(&item, Val::Str(s) if s.len() > 1000) { n.min(9) } else { n };
            Val::Array(item.kind(), vec![item; n])
        })
    })
}

fn logical() -> impl Strategy<Value = Logical> {
    let tensors = proptest::collection::vec(
        (0usize..6, proptest::collection::vec(0u64..5, 0..3), any::<u8>()),
        0..6,
    );
    let align = proptest::option::of(0u32..9);
    (proptest::collection::vec(value(), 0..6), tensors, align).prop_map(
        |(values, tensors, align)| {
            let mut model = Logical::default();
            for (i, value) in values.into_iter().enumerate() {
                model = model.key(&format!("key.{i}"), value);
            }
            if let Some(shift) = align {
                model = model.key("general.alignment", u32v(1 << shift));
            }
            for (i, (kind, mut dims, seed)) in tensors.into_iter().enumerate() {
                dims.insert(0, BLOCK_ELEMENTS[kind]);
                model = model.tensor(tensor(&format!("t{i}"), kind, &dims, seed));
            }
            model
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_form_of_a_model_is_shown_as_the_canonical_one(
        model in logical(),
        ranges in proptest::collection::vec((0.0..1.05f64, 0usize..40_000), 8),
    ) {
        let expected = model.encode(CANONICAL);
        for form in [CANONICAL, BIG, OLD, Form { nul: true, ..OLD }] {
            let mounted = Mounted::one(model.encode(form));
            same(&mounted.whole(), &expected, &format!("{form:?}"));
            for &(at, n) in &ranges {
                let offset = (expected.len() as f64 * at) as usize;
                let from = offset.min(expected.len());
                let slice = &expected[from..(from + n).min(expected.len())];
                same(&mounted.read(offset as u64, n), slice, &format!("{form:?} {offset}+{n}"));
            }
        }
    }
}
