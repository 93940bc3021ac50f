//! A tiny model, made of the input: random types, shapes, byte order, names and metadata,
//! with and without `map=hf`. No panic; any range of any file equals that slice of the
//! whole; no file is longer than a small multiple of the input allows.

use super::memory::within;
use super::take::Take;
use super::writers::{self, Tensor, Value};
use super::{tree, with_scratch};
use weightfs::dtype::DType;
use weightfs::format::gguf::types::tensor_type_id;
use weightfs::format::safetensors::DTYPES;
use weightfs::fs::WeightFs;
use weightfs::model::elements;
use weightfs::naming::MapSpec;
use weightfs::store::Verify;

/// Elements of one tensor, at most: two blocks of the largest types and more.
const MOST: u64 = 2048;
/// Bytes of memory, at most, beside a multiple of the model's file.
const CONSTANT: usize = 1 << 20;
/// Bytes of memory for each byte of the file.
const MULTIPLE: usize = 64;

/// Architectures whose tables do something to values, and one that has none.
const ARCHITECTURES: [&str; 14] = [
    "llama",
    "gemma",
    "gemma3",
    "gpt2",
    "bloom",
    "phi3",
    "qwen3moe",
    "deepseek2",
    "mamba",
    "falcon",
    "gpt-oss",
    "bert",
    "jais",
    "nothing",
];

/// Names that tables know, and companions of codes.
const NAMES: [&str; 32] = [
    "token_embd.weight",
    "output.weight",
    "output_norm.weight",
    "rope_freqs.weight",
    "blk.0.attn_q.weight",
    "blk.0.attn_k.weight",
    "blk.0.attn_v.weight",
    "blk.0.attn_qkv.weight",
    "blk.0.attn_qkv.bias",
    "blk.0.attn_q.bias",
    "blk.0.attn_norm.weight",
    "blk.0.ffn_norm.weight",
    "blk.0.ffn_gate.weight",
    "blk.0.ffn_up.weight",
    "blk.0.ffn_down.weight",
    "blk.0.ffn_gate_exps.weight",
    "blk.0.ffn_up_exps.weight",
    "blk.0.ffn_down_exps.weight",
    "blk.0.ssm_a",
    "blk.0.ssm_conv1d.weight",
    "blk.0.attn_kv_b.weight",
    "blk.0.attn_k_b.weight",
    "blk.0.attn_v_b.weight",
    "a.weight",
    "a.weight_scale",
    "a.weight_scale_inv",
    "a.weight_packed",
    "a.weight_shape",
    "a.qweight",
    "a.scales",
    "a.qzeros",
    "a.g_idx",
];

/// A model of the input.
struct Case {
    file: Vec<u8>,
    hf: bool,
    verify: Verify,
}

impl Case {
    /// Bytes that it may take: what a mount of anything takes, and some for each of the file,
    /// of which 1 bit of weight is read as 4 bytes.
    fn memory(&self) -> usize {
        CONSTANT + MULTIPLE * self.file.len()
    }
}

fn case(take: &mut Take<'_>) -> Case {
    let flags = take.u8();
    let safetensors = flags & 3 == 3;
    let architecture = take.one_of(&ARCHITECTURES);
    let heads = take.u8();
    let tensors: Vec<Tensor> =
        (0..1 + take.u8() % 4).map(|at| tensor(take, safetensors, at)).collect();
    let file = if safetensors {
        writers::safetensors(&tensors)
    } else {
        let mut metadata = vec![
            (b"general.architecture".to_vec(), Value::text(architecture)),
            (
                format!("{architecture}.attention.head_count").into_bytes(),
                Value::u32(u32::from(heads & 15)),
            ),
            (
                format!("{architecture}.attention.head_count_kv").into_bytes(),
                Value::u32(u32::from(heads >> 4)),
            ),
        ];
        for i in 0..take.u8() % 4 {
            let key = [take.string(), &[b'0' + i]].concat();
            metadata.push((key, value(take, 0)));
        }
        writers::gguf(flags & 4 != 0, &metadata, &tensors)
    };
    let verify =
        [Verify::Always, Verify::Once, Verify::Off, Verify::Always][(flags >> 5 & 3) as usize];
    Case { file, hf: flags & 8 != 0, verify }
}

fn tensor(take: &mut Take<'_>, safetensors: bool, at: u8) -> Tensor {
    let dtype = if safetensors {
        take.one_of(&DTYPES)
    } else {
        let mut dtype = take.one_of(DType::ALL);
        while tensor_type_id(dtype).is_none() {
            dtype = DType::ALL[(dtype as usize + 1) % DType::ALL.len()];
        }
        dtype
    };
    let name = match take.u8() {
        byte @ 0..128 => NAMES[byte as usize % NAMES.len()].as_bytes().to_vec(),
        _ => [take.string(), &[b'0' + at]].concat(),
    };
    let block = dtype.block().elements;
    let mut shape: Vec<u64> = (0..take.u8() % 5).map(|_| u64::from(take.u8() % 9)).collect();
    match shape.last_mut() {
        Some(last) => *last *= block,
        None if block > 1 => shape.push(block),
        None => {}
    }
    while elements(&shape) > MOST {
        shape.remove(0);
    }
    let len = dtype.nbytes(elements(&shape)).expect("whole blocks") as usize;
    let mut dice = u32::from(take.u16()) | 1;
    let data = (0..len)
        .map(|_| {
            dice ^= dice << 13;
            dice ^= dice >> 17;
            dice ^= dice << 5;
            (dice >> 9) as u8
        })
        .collect();
    Tensor { name, dtype, shape, data }
}

/// A value of any type; arrays nest a little.
pub(crate) fn value(take: &mut Take<'_>, depth: u32) -> Value {
    let kind = u32::from(take.u8() % 13);
    of_kind(take, kind, depth)
}

fn of_kind(take: &mut Take<'_>, kind: u32, depth: u32) -> Value {
    let padded = |bytes: &[u8], width: usize| {
        let mut bytes = bytes.to_vec();
        bytes.resize(width, 0);
        bytes
    };
    match kind {
        7 => Value::Number(7, vec![take.u8() & 1]),
        8 => Value::Str(take.string().into()),
        9 if depth < 3 => {
            let elem = u32::from(take.u8() % 13);
            let count = take.u8() % 80;
            // An array of arrays that is too deep is one without elements.
            let count = if elem == 9 && depth == 2 { 0 } else { count };
            let items = (0..count).map(|_| of_kind(take, elem, depth + 1)).collect();
            Value::Array(elem, items)
        }
        9 => Value::Array(4, Vec::new()),
        kind => {
            let width = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][kind as usize];
            Value::Number(kind, padded(take.bytes(width), width))
        }
    }
}

fn mounted(case: &Case) -> Option<WeightFs> {
    let maps: &[MapSpec] = if case.hf { &[MapSpec::Hf] } else { &[] };
    with_scratch(|scratch| tree::mount(scratch.fill(&case.file), maps, case.verify))
}

/// One input: the files and ranges that its end names.
pub(crate) fn run(data: &[u8]) {
    let mut take = Take(data);
    let case = case(&mut take);
    within(case.memory(), || {
        if let Some(fs) = mounted(&case) {
            tree::some(&fs, &mut take);
        }
    });
}

/// One input: every file.
pub(crate) fn run_all(data: &[u8]) {
    let case = case(&mut Take(data));
    within(case.memory(), || {
        if let Some(fs) = mounted(&case) {
            tree::all(&fs);
        }
    });
}

/// A small file by number: seeds for the readers' targets.
pub(crate) fn sample(data: &[u8]) -> Vec<u8> {
    case(&mut Take(data)).file
}
