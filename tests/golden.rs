//! The readers against the reference packages: what `gguf` and `safetensors` say about the
//! files in `tests/golden`, which `scripts/make-golden` wrote with them.

#![allow(clippy::unwrap_used)]

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use weightfs::bytes::{ReadAt, read_vec};
use weightfs::dtype::DType;
use weightfs::format::gguf::array::{ArrayReader, Item};
use weightfs::load::{Loaded, open};
use weightfs::model::{Array, ByteOrder, Tensor, Text, Value};
use weightfs::source::{IoMode, Source};

fn golden(format: &str) -> (PathBuf, serde_json::Map<String, Json>) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format);
    let path = dir.join("golden.json");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}, which scripts/make-golden writes: {e}", path.display()));
    let mut document: Json = serde_json::from_str(&text).unwrap();
    let Json::Object(files) = document["files"].take() else { panic!("files is an object") };
    (dir, files)
}

fn loaded(path: &Path) -> Loaded {
    open(path, IoMode::Auto).unwrap_or_else(|e| panic!("{e}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut s, b| {
        write!(s, "{b:02x}").unwrap();
        s
    })
}

/// Multi-byte fields of a block, from and to, for types whose big-endian layout somebody has
/// defined.
fn fields(dtype: DType) -> &'static [(usize, usize)] {
    match dtype {
        DType::F32 | DType::I32 => &[(0, 4)],
        DType::F16 | DType::BF16 | DType::I16 | DType::Q4_0 | DType::Q8_0 => &[(0, 2)],
        DType::F64 | DType::I64 => &[(0, 8)],
        DType::Q4_K => &[(0, 2), (2, 4)],
        DType::Q6_K => &[(208, 210)],
        DType::I8 | DType::MXFP4 | DType::NVFP4 => &[],
        other => panic!("{other} has no big-endian layout"),
    }
}

fn little_endian_bytes(model: &Loaded, tensor: &Tensor) -> Vec<u8> {
    let source = &model.sources[tensor.extent.shard as usize];
    let mut bytes = read_vec(source, tensor.extent.offset, tensor.extent.len as usize).unwrap();
    if model.model.byte_order == ByteOrder::Big {
        for block in bytes.chunks_mut(tensor.dtype.block().bytes as usize) {
            for &(from, to) in fields(tensor.dtype) {
                block[from..to].reverse();
            }
        }
    }
    bytes
}

/// The tensors of a model as golden.json has them, by name.
fn tensors(model: &Loaded) -> BTreeMap<String, Json> {
    let row = |t: &Tensor| {
        let name = String::from_utf8(t.name.to_vec()).unwrap();
        let sha256 = hex(&Sha256::digest(little_endian_bytes(model, t)));
        let shape = t.shape.to_vec();
        let json = serde_json::json!({
            "name": name, "dtype": t.dtype.name(), "shape": shape, "sha256": sha256,
        });
        (name, json)
    };
    model.model.tensors.iter().map(row).collect()
}

fn expected_tensors(file: &Json) -> BTreeMap<String, Json> {
    let list = file["tensors"].as_array().unwrap();
    list.iter().map(|t| (t["name"].as_str().unwrap().to_owned(), t.clone())).collect()
}

/// A metadata value as golden.json has it.
fn told(value: &Value, sources: &[Source]) -> Json {
    let name = value.value_type().name();
    let number = |n: Json| serde_json::json!({"type": name, "value": n});
    match value {
        Value::U8(n) => number((*n).into()),
        Value::I8(n) => number((*n).into()),
        Value::U16(n) => number((*n).into()),
        Value::I16(n) => number((*n).into()),
        Value::U32(n) => number((*n).into()),
        Value::I32(n) => number((*n).into()),
        Value::U64(n) => number((*n).into()),
        Value::I64(n) => number((*n).into()),
        Value::Bool(b) => number((*b).into()),
        Value::F32(x) => serde_json::json!({"type": name, "bits": x.to_bits()}),
        Value::F64(x) => serde_json::json!({"type": name, "bits": x.to_bits()}),
        Value::Str(Text::Span(e)) => {
            let bytes = read_vec(&sources[e.shard as usize], e.offset, e.len as usize).unwrap();
            serde_json::json!({"type": name, "hex": hex(&bytes)})
        }
        Value::Str(Text::Inline(bytes)) => serde_json::json!({"type": name, "hex": hex(bytes)}),
        Value::Array(array) => told_array(array, sources),
    }
}

fn told_array(array: &Array, sources: &[Source]) -> Json {
    let &Array::Span { elem, count, extent, encoding } = array else {
        panic!("arrays of a file stay there")
    };
    let source = &sources[extent.shard as usize];
    let mut reader = ArrayReader::new(source, elem, count, extent, encoding);
    let mut items = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        items.push(match item {
            Item::Value(value) => told(&value, sources),
            Item::Str(bytes) => serde_json::json!({"type": "str", "hex": hex(bytes)}),
            Item::Array(inner) => told_array(&inner, sources),
        });
    }
    assert_eq!(items.len() as u64, count);
    assert_eq!(reader.position().offset, extent.offset + extent.len);
    serde_json::json!({"type": "arr", "elem": elem.name(), "items": items})
}

#[test]
fn gguf_files_say_what_the_package_says() {
    let (dir, files) = golden("gguf");
    assert_eq!(files.len(), 15);
    for (name, expected) in &files {
        let model = loaded(&dir.join(name));
        assert_eq!(model.model.format.name(), "gguf");
        assert_eq!(Json::from(model.model.format_version), expected["version"], "{name}");
        assert_eq!(Json::from(model.model.byte_order.name()), expected["byte_order"], "{name}");
        assert_eq!(tensors(&model), expected_tensors(expected), "{name}");
        let metadata = &model.model.metadata;
        let pairs: Vec<Json> = metadata
            .iter()
            .map(|m| {
                let key = String::from_utf8(m.key.to_vec()).unwrap();
                serde_json::json!([key, told(&m.value, &model.sources)])
            })
            .collect();
        assert_eq!(Json::from(pairs), expected["metadata"], "{name}");
        let architecture = model.model.meta("general.architecture").map(|_| "golden");
        assert_eq!(model.model.architecture.as_deref(), architecture, "{name}");
        let unusual = usize::from(name == "five-dimensions.gguf");
        assert_eq!(model.model.warnings.len(), unusual, "{name}: {:?}", model.model.warnings);
    }
}

#[test]
fn every_gguf_type_has_a_golden_tensor_in_both_orders_where_defined() {
    let (dir, _) = golden("gguf");
    let types = |file: &str| {
        let mut types: Vec<DType> =
            loaded(&dir.join(file)).model.tensors.iter().map(|t| t.dtype).collect();
        types.sort_unstable();
        types
    };
    let mut every: Vec<DType> = DType::ALL
        .iter()
        .copied()
        .filter(|&d| weightfs::format::gguf::types::tensor_type_id(d).is_some())
        .collect();
    every.sort_unstable();
    assert_eq!(types("hand-types-le.gguf"), every);
    // As its ODD_FOR_PACKAGE has them.
    let package_lacks = [DType::Q8_1, DType::Q2_0];
    every.retain(|dtype| !package_lacks.contains(dtype));
    assert_eq!(types("types-le.gguf"), every);
    every.retain(|dtype| dtype.numbers().is_some());
    assert_eq!(types("hand-types-be.gguf"), every);
    assert_eq!(types("types-be.gguf"), every);
}

#[test]
fn split_parts_lead_to_the_whole() {
    let (dir, files) = golden("gguf");
    let parts: Vec<&String> = files.keys().filter(|name| name.starts_with("split-")).collect();
    assert_eq!(parts.len(), 3);
    for part in parts {
        let model = loaded(&dir.join(part));
        assert_eq!(model.model.tensors.len(), 5);
        assert_eq!(model.model.shards.len(), 3);
        assert_eq!(model.entry, dir.join("split-00001-of-00003.gguf"));
        assert_eq!(model.model.name.as_deref(), Some("Split"));
    }
}

#[test]
fn safetensors_files_say_what_the_package_says() {
    let (dir, files) = golden("safetensors");
    assert_eq!(files.len(), 5);
    for (name, expected) in &files {
        let model = loaded(&dir.join(name));
        assert_eq!(model.model.format.name(), "safetensors");
        assert_eq!(tensors(&model), expected_tensors(expected), "{name}");
        let metadata: BTreeMap<String, String> = model
            .model
            .metadata
            .iter()
            .map(|m| match &m.value {
                Value::Str(Text::Inline(bytes)) => {
                    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
                    (text(&m.key), text(bytes))
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(serde_json::to_value(metadata).unwrap(), expected["metadata"], "{name}");
        let unusual = usize::from(name == "odd.safetensors");
        assert_eq!(model.model.warnings.len(), unusual, "{name}: {:?}", model.model.warnings);
        // The package lists tensors in the order of their data, as the model does.
        let order: Vec<Json> = model
            .model
            .tensors
            .iter()
            .map(|t| String::from_utf8(t.name.to_vec()).unwrap().into())
            .collect();
        let listed: Vec<Json> =
            expected["tensors"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
        assert_eq!(order, listed, "{name}");
    }
}

#[test]
fn every_safetensors_type_has_a_golden_tensor() {
    let (dir, _) = golden("safetensors");
    let model = loaded(&dir.join("types.safetensors"));
    let types: Vec<DType> = model.model.tensors.iter().map(|t| t.dtype).collect();
    assert_eq!(types, weightfs::format::safetensors::DTYPES);
}

#[test]
fn a_golden_file_cut_anywhere_is_refused_or_known_to_lack_only_padding() {
    for (format, name) in
        [("gguf", "values-le.gguf"), ("gguf", "values-be.gguf"), ("safetensors", "odd.safetensors")]
    {
        let (dir, _) = golden(format);
        let bytes = std::fs::read(dir.join(name)).unwrap();
        let limits = weightfs::format::Limits::default();
        for cut in 0..bytes.len() {
            let part: &[u8] = &bytes[..cut];
            let part = part.to_vec();
            assert_eq!(part.len() as u64, ReadAt::len(&part));
            let warnings = match format {
                "gguf" => weightfs::format::gguf::parse(&part, &limits).map(|f| f.warnings).ok(),
                _ => weightfs::format::safetensors::parse(&part, &limits).map(|f| f.warnings).ok(),
            };
            if let Some(warnings) = warnings {
                let padding = "the padding after the last tensor is missing";
                assert!(warnings[0].starts_with(padding), "{name} cut at {cut}");
            }
        }
    }
}

#[test]
fn every_format_has_golden_files() {
    for format in weightfs::model::Format::ALL {
        let (_, files) = golden(format.name());
        assert!(!files.is_empty(), "{format:?}");
    }
}

/// What holds for every file that a reader accepts, whatever was done to it.
fn sound(tensors: &[Tensor], data_start: u64, len: u64) {
    assert!(data_start <= len);
    assert!(tensors.is_sorted_by_key(|t| t.extent.offset));
    let mut end = data_start;
    for t in tensors.iter().filter(|t| t.extent.len > 0) {
        assert!(t.extent.offset >= end, "{t:?} overlaps");
        end = t.extent.end();
    }
    for t in tensors {
        assert_eq!(t.dtype.nbytes(t.elements()), Some(t.extent.len));
        assert!(t.extent.offset >= data_start && t.extent.end() <= len);
    }
    let mut names: Vec<_> = tensors.iter().map(|t| &t.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), tensors.len());
}

/// Reads whatever `bytes` are with both readers, and all arrays of what they accept.
fn read_anything(bytes: &Vec<u8>) {
    let limits = weightfs::format::Limits::default();
    weightfs::format::detect(bytes).unwrap();
    let len = ReadAt::len(bytes);
    if let Ok(file) = weightfs::format::safetensors::parse(bytes, &limits) {
        sound(&file.tensors, file.data_start, len);
    }
    let Ok(file) = weightfs::format::gguf::parse(bytes, &limits) else {
        return;
    };
    sound(&file.tensors, file.data_start, len);
    for meta in &file.metadata {
        match &meta.value {
            Value::Str(Text::Span(e)) => assert!(e.end() <= len),
            Value::Array(array) => count_elements(bytes, array),
            _ => {}
        }
    }
    let arrays = file.metadata.iter().filter_map(|meta| match &meta.value {
        Value::Array(Array::Span { extent, .. }) => Some((extent.offset, extent.end())),
        _ => None,
    });
    let known =
        weightfs::format::gguf::Known { tensor_infos: file.tensor_infos, arrays: arrays.collect() };
    let again = weightfs::format::gguf::parse_known(bytes, &limits, &known);
    // As text, since NaN is not equal to itself.
    assert_eq!(format!("{:?}", again.unwrap()), format!("{file:?}"));
}

fn count_elements(bytes: &Vec<u8>, array: &Array) {
    let &Array::Span { elem, count, extent, encoding } = array else { panic!() };
    assert!(extent.end() <= ReadAt::len(bytes));
    let mut reader = ArrayReader::new(bytes, elem, count, extent, encoding);
    let mut found = 0;
    while let Some(item) = reader.next().unwrap() {
        found += 1;
        if let Item::Array(inner) = item {
            count_elements(bytes, &inner);
        }
    }
    assert_eq!((found, reader.position().offset), (count, extent.end()));
}

fn golden_files() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for format in weightfs::model::Format::ALL {
        let (dir, files) = golden(format.name());
        let paths = files.keys().map(|name| dir.join(name)).filter(|path| path.is_file());
        all.extend(paths.map(|path| std::fs::read(path).unwrap()));
    }
    assert!(all.len() >= 19, "{}", all.len());
    all
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4000))]

    #[test]
    fn golden_files_with_bytes_changed_are_read_or_refused(
        file in proptest::sample::select(golden_files()),
        changes in proptest::collection::vec((0usize..1200, proptest::num::u8::ANY), 1..5),
        cut in proptest::option::weighted(0.2, 0usize..4000),
    ) {
        let mut file = file;
        for (at, byte) in changes {
            let len = file.len();
            file[at % len] = byte;
        }
        file.truncate(cut.unwrap_or(usize::MAX));
        read_anything(&file);
    }
}
