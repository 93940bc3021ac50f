//! A map file, put on one of two small models (the length of the input picks it). No panic;
//! bounded time; a catalog that is accepted gives each tensor bytes that its shape asks for,
//! inside the stored ones, under a name of its own; written as a map file it is read back to
//! the same names and bytes.

use super::memory::within;
use super::writers::{self, Tensor, Value};
use super::{Scratch, tree, with_scratch};
use std::sync::OnceLock;
use weightfs::dtype::DType;
use weightfs::load;
use weightfs::model::{Extent, Model, elements};
use weightfs::naming::{ArchFacts, Catalog, MapDocument, MapSpec};
use weightfs::source::IoMode;

/// Longer inputs say nothing that shorter ones do not.
const LONGEST: usize = 8 << 10;

/// Bytes that an input may take: patterns have 64 MiB together, more while they are compiled.
const MOST: usize = 96 << 20;

struct Known {
    model: Model,
    facts: ArchFacts,
}

fn models() -> &'static [Known; 2] {
    static MODELS: OnceLock<[Known; 2]> = OnceLock::new();
    MODELS.get_or_init(|| [known(gguf()), known(safetensors())])
}

fn known(file: Vec<u8>) -> Known {
    let scratch = Scratch::new();
    let model = load::open(scratch.fill(&file), IoMode::Pread).unwrap().model;
    let facts = ArchFacts::of(&model);
    Known { model, facts }
}

fn tensors(all: &[(&str, DType, &[u64])]) -> Vec<Tensor> {
    let tensor = |&(name, dtype, shape): &(&str, DType, &[u64])| {
        let len = dtype.nbytes(elements(shape)).unwrap() as usize;
        Tensor { name: name.into(), dtype, shape: shape.into(), data: vec![0; len] }
    };
    all.iter().map(tensor).collect()
}

fn gguf() -> Vec<u8> {
    let metadata = [
        ("general.architecture", Value::text("llama")),
        ("llama.attention.head_count", Value::u32(4)),
        ("llama.attention.head_count_kv", Value::u32(2)),
        ("llama.expert_count", Value::u32(2)),
    ];
    let metadata = metadata.map(|(key, value)| (key.as_bytes().to_vec(), value));
    let tensors = tensors(&[
        ("token_embd.weight", DType::Q8_0, &[8, 32]),
        ("blk.0.attn_q.weight", DType::F32, &[32, 32]),
        ("blk.0.attn_k.weight", DType::F16, &[16, 32]),
        ("blk.0.attn_norm.weight", DType::F32, &[32]),
        ("blk.0.ffn_gate_exps.weight", DType::Q4_0, &[2, 8, 32]),
        ("blk.1.attn_q.weight", DType::Q4_K, &[4, 256]),
        ("output.weight", DType::BF16, &[8, 32]),
        ("rope_freqs.weight", DType::F32, &[4]),
    ]);
    writers::gguf(false, &metadata, &tensors)
}

fn safetensors() -> Vec<u8> {
    writers::safetensors(&tensors(&[
        ("model.embed_tokens.weight", DType::BF16, &[8, 16]),
        ("model.layers.0.self_attn.q_proj.weight", DType::F16, &[16, 16]),
        ("model.layers.0.mlp.experts.0.up_proj.weight", DType::F32, &[4, 16]),
        ("model.layers.0.mlp.experts.1.up_proj.weight", DType::F32, &[4, 16]),
        ("model.layers.11.input_layernorm.weight", DType::F32, &[16]),
        ("b\u{e9}ta / gamma", DType::I64, &[2, 1, 3]),
        ("scalar", DType::F32, &[]),
        ("lm_head.weight", DType::U8, &[6, 4]),
    ]))
}

/// One input. Whether it is accepted.
pub(crate) fn run(data: &[u8]) -> bool {
    if data.len() > LONGEST {
        return false;
    }
    let known = &models()[data.len() % 2];
    within(MOST, || with_scratch(|scratch| accepted(known, scratch, data)))
}

fn accepted(Known { model, facts }: &Known, scratch: &Scratch, data: &[u8]) -> bool {
    let spec = MapSpec::File(scratch.fill(data).into());
    let catalog = match Catalog::build(model, facts, &[spec]) {
        Ok(catalog) => catalog,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    tree::check_catalog(model, &catalog);
    let mut text = Vec::new();
    MapDocument::new(model, &catalog, None).unwrap().write(&mut text).unwrap();
    let spec = MapSpec::File(scratch.fill(&text).into());
    let again = Catalog::build(model, facts, &[spec]).unwrap_or_else(|e| {
        panic!("{e}\n{}", String::from_utf8_lossy(&text));
    });
    assert_eq!(listed(model, &catalog), listed(model, &again));
    true
}

type Row = (Vec<u8>, Vec<u64>, Extent);

fn listed(model: &Model, catalog: &Catalog) -> Vec<Row> {
    let row = |index| {
        let mounted = catalog.get(model, index);
        (mounted.name.to_vec(), mounted.shape.to_vec(), mounted.extent)
    };
    (0..catalog.len(model)).map(row).collect()
}
