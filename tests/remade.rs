//! What `map=hf` undoes, against the formulas of llama.cpp's converter written out plainly:
//! every value by its index, from values that were decoded whole.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::io::Write;
use std::sync::Arc;
use weightfs::dtype::DType;
use weightfs::model::{ByteOrder, Extent, Format, Model, Shard, Tensor, elements};
use weightfs::naming::{ArchFacts, Catalog, MapSpec, Mounted};
use weightfs::quant::{self, Target};
use weightfs::scale::{Hints, Scales};
use weightfs::source::{IoMode, Source};
use weightfs::store::{Store, StoreOptions};
use weightfs::view::{self, Repr, Stock};

#[path = "remade/damage.rs"]
mod damage;

const DATA: u64 = 64;

/// A GGUF's tensors without the GGUF, with noise in them that has no NaN.
struct Case {
    model: Arc<Model>,
    bytes: Vec<u8>,
    catalog: Catalog,
    scales: Scales,
    store: Store,
    _file: tempfile::NamedTempFile,
}

type Entry<'a> = (&'a str, DType, &'a [u64]);

fn noise(dtype: DType, len: usize, seed: u64) -> Vec<u8> {
    let mut dice = seed | 1;
    let mut next = || {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice >> 32) as u8
    };
    let mut bytes: Vec<u8> = (0..len).map(|_| next()).collect();
    let block = dtype.block().bytes as usize;
    for (i, byte) in bytes.iter_mut().enumerate() {
        // The upper bytes of numbers: no infinities, no NaN.
        let high = match dtype.numbers() {
            Some(numbers) => numbers.iter().any(|&(at, width)| i % block == at + width - 1),
            None => false,
        };
        if high {
            *byte = *byte & 0x80 | 0x30 | *byte & 7;
        }
    }
    bytes
}

impl Case {
    fn new(
        arch: &str,
        (heads, kv_heads): (u64, u64),
        order: ByteOrder,
        tensors: &[Entry<'_>],
    ) -> Case {
        let mut bytes = vec![0; DATA as usize];
        let mut all = Vec::new();
        for (i, &(name, dtype, shape)) in tensors.iter().enumerate() {
            let len = dtype.nbytes(elements(shape)).unwrap();
            let extent = Extent { shard: 0, offset: bytes.len() as u64, len };
            let mut data = noise(dtype, len as usize, 0x9E37_79B9_7F4A_7C15 + i as u64);
            if name.ends_with("ssm_a") {
                data.chunks_exact_mut(4).for_each(|value| value[3] |= 0x80);
            }
            if order == ByteOrder::Big {
                turn(dtype, &mut data);
            }
            bytes.extend(data);
            // As a GGUF is aligned, and then some.
            bytes.resize(bytes.len().next_multiple_of(32), 0xEE);
            all.push(Tensor { name: name.as_bytes().into(), dtype, shape: shape.into(), extent });
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let model = Arc::new(Model {
            format: Format::Gguf,
            format_version: 3,
            byte_order: order,
            architecture: Some(arch.into()),
            name: None,
            metadata: Vec::new(),
            shards: vec![Shard {
                file: (*b"m.gguf").into(),
                len: bytes.len() as u64,
                data_start: DATA,
                tensor_infos: 24,
            }],
            tensors: all,
            warnings: Vec::new(),
        });
        let facts = ArchFacts {
            architecture: Some(arch.into()),
            head_count: vec![heads],
            head_count_kv: vec![kv_heads],
            ..ArchFacts::default()
        };
        let catalog = Catalog::build(&model, &facts, &[MapSpec::Hf]).unwrap();
        let source = Source::open(file.path(), IoMode::Pread).unwrap();
        let store = Store::new(Arc::clone(&model), vec![source], None, StoreOptions::default());
        let read = |t: &Tensor, out: &mut [u8]| store.read(t.extent, 0, out).is_ok();
        let scales = Scales::build(&model, &Hints::new(None, None), &read);
        Case { model, bytes, catalog, scales, store, _file: file }
    }

    fn stock(&self) -> Stock<'_> {
        Stock { model: &self.model, scales: &self.scales }
    }

    fn mounted(&self, name: &str) -> Mounted<'_> {
        let all = || (0..self.catalog.len(&self.model)).map(|i| self.catalog.get(&self.model, i));
        let named: Vec<String> =
            all().map(|m| String::from_utf8_lossy(m.name).into_owned()).collect();
        all()
            .find(|m| m.name == name.as_bytes())
            .unwrap_or_else(|| panic!("{name} not in {named:?}; {:?}", self.catalog.warnings()))
    }

    fn shown(&self, name: &str, repr: Repr) -> Vec<u8> {
        let content = view::bin(self.stock(), &self.mounted(name), repr).unwrap();
        let mut out = vec![0; content.len() as usize];
        assert_eq!(content.read(&self.store, 0, &mut out).unwrap(), out.len());
        out
    }

    /// Bytes of a stored tensor, little-endian.
    fn stored(&self, index: usize) -> Vec<u8> {
        let Tensor { dtype, extent, .. } = &self.model.tensors[index];
        let mut data = self.bytes[extent.offset as usize..extent.end() as usize].to_vec();
        if self.model.byte_order == ByteOrder::Big {
            turn(*dtype, &mut data);
        }
        data
    }

    fn values(&self, index: usize) -> Vec<f32> {
        let data = self.stored(index);
        let tensor = &self.model.tensors[index];
        let mut out = vec![0; tensor.elements() as usize * 4];
        quant::decode(tensor.dtype, &data, Target::F32, &mut out).unwrap();
        floats(&out)
    }

    /// In every float type, and where it is F32 in `tensors/` too, the values are these.
    fn check_values(&self, name: &str, wanted: &[f32]) {
        let bytes: Vec<u8> = wanted.iter().flat_map(|v| v.to_le_bytes()).collect();
        for target in Target::ALL {
            let mut narrow = vec![0; wanted.len() * target.size()];
            quant::decode(DType::F32, &bytes, target, &mut narrow).unwrap();
            assert!(self.shown(name, Repr::Float(target)) == narrow, "{name} {target:?}");
        }
        let mounted = self.mounted(name);
        let stored = self.shown(name, Repr::Stored);
        assert_eq!(stored.len() as u64, mounted.nbytes);
        let mut decoded = vec![0; wanted.len() * 4];
        quant::decode(mounted.dtype, &stored, Target::F32, &mut decoded).unwrap();
        assert!(decoded == bytes, "{name} as {}", mounted.dtype);
    }

    /// Any range is that slice of the whole, in every type.
    fn check_ranges(&self, name: &str, seed: u64) {
        let mounted = self.mounted(name);
        for repr in Repr::ALL {
            let Some(content) = view::bin(self.stock(), &mounted, repr) else { continue };
            let whole = self.shown(name, repr);
            let mut dice = seed | 1;
            for i in 0..16 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let from = (dice >> 33) as usize % whole.len();
                let most = [5, 300, 5000, usize::MAX][i % 4].min(whole.len() - from);
                let len = (dice >> 13) as usize % (most + 1);
                let mut out = vec![0xAA; len];
                assert_eq!(content.read(&self.store, from as u64, &mut out).unwrap(), len);
                assert!(out == whole[from..from + len], "{name} {repr:?} {from}+{len}");
            }
        }
    }
}

/// Turns every number of a big-endian tensor.
fn turn(dtype: DType, data: &mut [u8]) {
    for block in data.chunks_exact_mut(dtype.block().bytes as usize) {
        for &(at, width) in dtype.numbers().unwrap() {
            block[at..at + width].reverse();
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

const TYPES: [DType; 8] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_K,
    DType::Q6_K,
    DType::F64,
];

/// Rows out of `values`, of `columns` each: row `r` of the result is row `of(r)`.
fn permuted(values: &[f32], columns: usize, of: impl Fn(usize) -> usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..rows).flat_map(|r| values[of(r) * columns..(of(r) + 1) * columns].to_vec()).collect()
}

fn permuted_bytes(bytes: &[u8], rows: usize, of: impl Fn(usize) -> usize) -> Vec<u8> {
    let width = bytes.len() / rows;
    (0..rows).flat_map(|r| bytes[of(r) * width..(of(r) + 1) * width].to_vec()).collect()
}

fn rope(heads: usize, rows: usize) -> impl Fn(usize) -> usize {
    move |r| {
        let d = rows / heads;
        let (h, t) = (r / d, r % d);
        h * d + 2 * (t % (d / 2)) + t / (d / 2)
    }
}

const Q: &str = "model.layers.0.self_attn.q_proj.weight";
const K: &str = "model.layers.0.self_attn.k_proj.weight";

fn orders(dtype: DType) -> &'static [ByteOrder] {
    if dtype.numbers().is_some() && dtype.block().elements <= 256 {
        &[ByteOrder::Little, ByteOrder::Big]
    } else {
        &[ByteOrder::Little]
    }
}

#[test]
fn rows_in_rope_order_are_put_back_in_every_type() {
    for dtype in TYPES {
        for &order in orders(dtype) {
            let case = Case::new(
                "llama",
                (4, 2),
                order,
                &[
                    ("blk.0.attn_q.weight", dtype, &[48, 512]),
                    ("blk.0.attn_k.weight", dtype, &[24, 512]),
                    ("blk.0.attn_q.bias", DType::F32, &[48]),
                ],
            );
            for (index, name, heads, rows) in [(0, Q, 4, 48), (1, K, 2, 24)] {
                let of = rope(heads, rows);
                assert_eq!(case.mounted(name).dtype, dtype);
                let bytes = permuted_bytes(&case.stored(index), rows, &of);
                assert!(case.shown(name, Repr::Stored) == bytes, "{dtype} {name}");
                if dtype != DType::F64 {
                    case.check_values(name, &permuted(&case.values(index), 512, &of));
                }
                case.check_ranges(name, rows as u64);
            }
            let bias = "model.layers.0.self_attn.q_proj.bias";
            case.check_values(bias, &permuted(&case.values(2), 1, rope(4, 48)));
            case.check_ranges(bias, 7);
        }
    }
}

#[test]
fn heads_of_every_size_and_rows_of_every_length() {
    // Rows of a few bytes to half a megabyte; heads larger than what is read at once.
    for (rows, heads, columns) in
        [(8192, 1, 32), (4096, 64, 32), (96, 3, 4096), (64, 1, 65_536), (4, 2, 131_072), (2, 1, 96)]
    {
        for dtype in [DType::Q8_0, DType::F16] {
            let shape = [rows as u64, columns as u64];
            let case = Case::new(
                "llama",
                (heads as u64, heads as u64),
                ByteOrder::Little,
                &[("blk.0.attn_q.weight", dtype, &shape)],
            );
            let bytes = permuted_bytes(&case.stored(0), rows, rope(heads, rows));
            assert!(case.shown(Q, Repr::Stored) == bytes, "{rows} {heads} {columns} {dtype}");
            case.check_ranges(Q, 99);
        }
    }
}

#[test]
fn fused_rows_are_regrouped() {
    for dtype in TYPES {
        let (heads, d) = (4usize, 6usize);
        let rows = 3 * heads * d;
        let case = Case::new(
            "bloom",
            (heads as u64, heads as u64),
            ByteOrder::Little,
            &[
                ("blk.0.attn_qkv.weight", dtype, &[rows as u64, 512]),
                ("blk.0.attn_qkv.bias", DType::F32, &[rows as u64]),
            ],
        );
        let of = |r: usize| {
            let (h, c, x) = (r / (3 * d), r / d % 3, r % d);
            (c * heads + h) * d + x
        };
        let name = "transformer.h.0.self_attention.query_key_value.weight";
        assert!(case.shown(name, Repr::Stored) == permuted_bytes(&case.stored(0), rows, of));
        case.check_ranges(name, 3);
        let bias = "transformer.h.0.self_attention.query_key_value.bias";
        case.check_values(bias, &permuted(&case.values(1), 1, of));

        let (n, k, d) = (8usize, 2usize, 5usize);
        let m = n / k;
        let rows = (n + 2 * k) * d;
        let case = Case::new(
            "falcon",
            (n as u64, k as u64),
            ByteOrder::Little,
            &[("blk.0.attn_qkv.weight", dtype, &[rows as u64, 512])],
        );
        let of = |r: usize| {
            let (g, s, x) = (r / ((m + 2) * d), r / d % (m + 2), r % d);
            let head = match s {
                s if s < m => g * m + s,
                s if s == m => n + g,
                _ => n + k + g,
            };
            head * d + x
        };
        assert!(case.shown(name, Repr::Stored) == permuted_bytes(&case.stored(0), rows, of));
        if dtype != DType::F64 {
            case.check_values(name, &permuted(&case.values(0), 512, of));
        }
        case.check_ranges(name, 5);
    }
}

#[test]
fn arithmetic_is_undone_in_f32_whatever_the_type() {
    for dtype in TYPES.into_iter().filter(|&d| d != DType::F64) {
        for &order in orders(dtype) {
            let case =
                Case::new("gemma2", (2, 2), order, &[("output_norm.weight", dtype, &[1536])]);
            let wanted: Vec<f32> = case.values(0).iter().map(|w| w - 1.0).collect();
            assert_eq!(case.mounted("model.norm.weight").dtype, DType::F32);
            case.check_values("model.norm.weight", &wanted);
            case.check_ranges("model.norm.weight", 11);
        }
    }
    let case = Case::new(
        "mamba2",
        (2, 2),
        ByteOrder::Little,
        &[("blk.0.ssm_a", DType::F32, &[300, 1]), ("blk.0.ssm_conv1d.weight", DType::F32, &[8, 4])],
    );
    let wanted: Vec<f32> = case.values(0).iter().map(|&a| (-f64::from(a)).ln() as f32).collect();
    assert!(wanted.iter().all(|w| !w.is_nan()));
    let name = "backbone.layers.0.mixer.A_log";
    assert_eq!(case.mounted(name).shape, [300]);
    case.check_values(name, &wanted);
    case.check_ranges(name, 1);
}

#[test]
fn matrices_are_transposed() {
    for dtype in TYPES {
        for &order in orders(dtype) {
            // The last is too large for one panel.
            for (rows, columns) in [(37u64, 512u64), (1, 256), (2500, 256), (13_000, 256)] {
                if rows > 1000 && !matches!(dtype, DType::F16 | DType::Q4_K)
                    || rows > 10_000 && dtype == DType::F16
                {
                    continue;
                }
                let shape = [rows, columns];
                let entries: &[Entry<'_>] = &[("blk.0.ffn_up.weight", dtype, &shape)];
                let case = Case::new("gpt2", (2, 2), order, entries);
                let name = "transformer.h.0.mlp.c_fc.weight";
                let mounted = case.mounted(name);
                let plain = dtype.block().elements == 1;
                assert_eq!(mounted.dtype, if plain { dtype } else { DType::F32 });
                assert_eq!(mounted.shape, [columns, rows]);
                let (rows, columns) = (rows as usize, columns as usize);
                if plain {
                    let stored = case.stored(0);
                    let size = dtype.block().bytes as usize;
                    let wanted: Vec<u8> = (0..rows * columns)
                        .flat_map(|i| {
                            let at = (i % rows * columns + i / rows) * size;
                            stored[at..at + size].to_vec()
                        })
                        .collect();
                    assert!(case.shown(name, Repr::Stored) == wanted);
                }
                if dtype != DType::F64 {
                    let values = case.values(0);
                    let wanted: Vec<f32> = (0..rows * columns)
                        .map(|i| values[i % rows * columns + i / rows])
                        .collect();
                    case.check_values(name, &wanted);
                }
                case.check_ranges(name, 21);
            }
        }
    }
}

#[test]
fn keys_and_values_are_joined() {
    let (heads, rank, n, v) = (3usize, 256usize, 256usize, 40usize);
    for (keys, values) in [
        (DType::F32, DType::F32),
        (DType::F16, DType::F16),
        (DType::Q8_0, DType::Q8_0),
        (DType::Q4_K, DType::Q6_K),
        (DType::BF16, DType::F32),
    ] {
        let k = [heads as u64, rank as u64, n as u64];
        let w = [heads as u64, v as u64, rank as u64];
        let case = Case::new(
            "deepseek2",
            (3, 3),
            ByteOrder::Little,
            &[("blk.0.attn_v_b.weight", values, &w), ("blk.0.attn_k_b.weight", keys, &k)],
        );
        let name = "model.layers.0.self_attn.kv_b_proj.weight";
        let (v_b, k_b) = (case.values(0), case.values(1));
        let wanted: Vec<f32> = (0..heads * (n + v) * rank)
            .map(|i| {
                let (r, l) = (i / rank, i % rank);
                let (h, s) = (r / (n + v), r % (n + v));
                if s < n { k_b[(h * rank + l) * n + s] } else { v_b[(h * v + s - n) * rank + l] }
            })
            .collect();
        let same = keys == values && keys.block().elements == 1;
        assert_eq!(case.mounted(name).dtype, if same { keys } else { DType::F32 });
        case.check_values(name, &wanted);
        case.check_ranges(name, 17);
    }
}

#[test]
fn experts_of_gpt_oss() {
    let (experts, ff, hid) = (2usize, 64usize, 96usize);
    let wide = [experts as u64, ff as u64, hid as u64];
    let down = [experts as u64, hid as u64, ff as u64];
    let bias = [experts as u64, ff as u64];
    let prefix = "model.layers.0.mlp.experts";
    for dtype in [DType::MXFP4, DType::F16, DType::BF16, DType::Q8_0] {
        for &order in orders(dtype) {
            let case = Case::new(
                "gpt-oss",
                (2, 2),
                order,
                &[
                    ("blk.0.ffn_up_exps.weight", dtype, &wide),
                    ("blk.0.ffn_gate_exps.weight", dtype, &wide),
                    ("blk.0.ffn_down_exps.weight", dtype, &down),
                    ("blk.0.ffn_up_exps.bias", DType::F32, &bias),
                    ("blk.0.ffn_gate_exps.bias", DType::F32, &bias),
                ],
            );
            let (up, gate) = (case.values(3), case.values(4));
            let wanted: Vec<f32> = (0..experts * 2 * ff)
                .map(|i| if i % 2 == 0 { gate[i / 2] } else { up[i / 2] })
                .collect();
            case.check_values(&format!("{prefix}.gate_up_proj_bias"), &wanted);
            case.check_ranges(&format!("{prefix}.gate_up_proj_bias"), 5);
            if dtype == DType::MXFP4 {
                let code = |data: &[u8], row: usize, element: usize, columns: usize| {
                    let block = (row * columns + element) / 32 * 17;
                    let byte = data[block + 1 + element % 16];
                    if element % 32 < 16 { byte & 15 } else { byte >> 4 }
                };
                let blocks =
                    |rows: usize, columns: usize, pick: &dyn Fn(usize) -> (Vec<u8>, usize)| {
                        let (mut codes, mut scales) = (Vec::new(), Vec::new());
                        for r in 0..rows {
                            let (data, row) = pick(r);
                            for b in 0..columns / 32 {
                                scales.push(data[(row * columns / 32 + b) * 17]);
                                for k in 0..16 {
                                    let at = |e| code(&data, row, b * 32 + e, columns);
                                    codes.push(at(2 * k) | at(2 * k + 1) << 4);
                                }
                            }
                        }
                        (codes, scales)
                    };
                let (codes, scales) = blocks(experts * 2 * ff, hid, &|r| {
                    (case.stored(if r % 2 == 0 { 1 } else { 0 }), r / 2)
                });
                assert!(
                    case.shown(&format!("{prefix}.gate_up_proj_blocks"), Repr::Stored) == codes
                );
                assert!(
                    case.shown(&format!("{prefix}.gate_up_proj_scales"), Repr::Stored) == scales
                );
                let (codes, scales) = blocks(experts * hid, ff, &|r| (case.stored(2), r));
                assert!(case.shown(&format!("{prefix}.down_proj_blocks"), Repr::Stored) == codes);
                assert!(case.shown(&format!("{prefix}.down_proj_scales"), Repr::Stored) == scales);
                for end in ["gate_up_proj_blocks", "gate_up_proj_scales", "down_proj_blocks"] {
                    let name = format!("{prefix}.{end}");
                    case.check_ranges(&name, 31);
                    let float = Repr::Float(Target::F32);
                    assert!(view::bin(case.stock(), &case.mounted(&name), float).is_none());
                }
                continue;
            }
            let (up, gate, down) = (case.values(0), case.values(1), case.values(2));
            let wanted: Vec<f32> = (0..experts * hid * 2 * ff)
                .map(|i| {
                    let (e, h, c) = (i / (hid * 2 * ff), i / (2 * ff) % hid, i % (2 * ff));
                    let from = if c % 2 == 0 { &gate } else { &up };
                    from[(e * ff + c / 2) * hid + h]
                })
                .collect();
            case.check_values(&format!("{prefix}.gate_up_proj"), &wanted);
            case.check_ranges(&format!("{prefix}.gate_up_proj"), 41);
            let wanted: Vec<f32> = (0..experts * ff * hid)
                .map(|i| {
                    let (e, f, h) = (i / (ff * hid), i / hid % ff, i % hid);
                    down[(e * hid + h) * ff + f]
                })
                .collect();
            case.check_values(&format!("{prefix}.down_proj"), &wanted);
            case.check_ranges(&format!("{prefix}.down_proj"), 43);
        }
    }
}

#[test]
fn scaled_weights_are_scaled_and_put_in_order() {
    let case = Case::new(
        "llama",
        (2, 2),
        ByteOrder::Little,
        &[
            ("blk.0.attn_q.weight", DType::NVFP4, &[16, 128]),
            ("blk.0.attn_q.scale", DType::F32, &[1]),
        ],
    );
    let scale = case.values(1)[0];
    let scaled: Vec<f32> = case.values(0).iter().map(|v| v * scale).collect();
    let wanted = permuted(&scaled, 128, rope(2, 16));
    let wanted: Vec<u8> = wanted.iter().flat_map(|v| v.to_le_bytes()).collect();
    assert!(case.shown(Q, Repr::Float(Target::F32)) == wanted);
    let bytes = permuted_bytes(&case.stored(0), 16, rope(2, 16));
    assert!(case.shown(Q, Repr::Stored) == bytes);
    case.check_ranges(Q, 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// Shapes, heads and types at random.
    #[test]
    fn any_shape(heads in 1u64..6, half in 1u64..40, blocks in 1u64..5, kind in 0usize..7, seed: u64) {
        let dtype = TYPES[kind];
        let rows = heads * half * 2;
        let columns = blocks * dtype.block().elements.max(8);
        let shape = [rows, columns];
        let case = Case::new("llama", (heads, heads), ByteOrder::Little, &[("blk.0.attn_q.weight", dtype, &shape)]);
        let of = rope(heads as usize, rows as usize);
        prop_assert!(case.shown(Q, Repr::Stored) == permuted_bytes(&case.stored(0), rows as usize, of));
        case.check_ranges(Q, seed);
        let case = Case::new("gpt2", (heads, heads), ByteOrder::Little, &[("blk.0.ffn_up.weight", dtype, &shape)]);
        case.check_ranges("transformer.h.0.mlp.c_fc.weight", seed);
    }
}
