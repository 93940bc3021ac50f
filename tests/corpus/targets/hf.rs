//! Metadata made of the input, written as the files of `hf/`. No panic; every file that is
//! planned is written or refused with words; what is JSON by name is JSON; the same twice;
//! no file is longer than a multiple of the input.

use super::memory::within;
use super::take::Take;
use weightfs::dtype::DType;
use weightfs::hf::{self, File, Weights, meta::Meta};
use weightfs::model::{
    Array, ByteOrder, Extent, Format, Meta as Pair, Model, Tensor, Text, Value, ValueType, elements,
};
use weightfs::store::{Store, StoreOptions};

/// Longer inputs say nothing that shorter ones do not.
const LONGEST: usize = 8 << 10;
/// Bytes of one file, at most, beside a multiple of the input.
const CONSTANT: usize = 256 << 10;
/// Bytes written for each of the input.
const MULTIPLE: usize = 512;
/// Bytes of memory, at most, beside some for each of what is written.
const MEMORY: usize = 1 << 20;

const ARCHITECTURES: [&str; 40] = [
    "llama",
    "gemma",
    "gemma2",
    "gemma3",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "phi2",
    "phi3",
    "gpt2",
    "gptneox",
    "bloom",
    "falcon",
    "mamba",
    "mamba2",
    "deepseek",
    "deepseek2",
    "starcoder2",
    "stablelm",
    "mpt",
    "olmo",
    "olmo2",
    "olmoe",
    "command-r",
    "cohere2",
    "bert",
    "nomic-bert",
    "t5",
    "granite",
    "granitemoe",
    "glm4",
    "gpt-oss",
    "lfm2",
    "nemotron",
    "internlm2",
    "minicpm",
    "jais",
    "rwkv6",
    "nothing",
];

/// Keys behind the architecture's name.
const OWN: [&str; 48] = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.causal",
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.q_lora_rank",
    "attention.kv_lora_rank",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_log_multiplier",
    "vocab_size",
    "expert_count",
    "expert_used_count",
    "expert_shared_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "expert_group_count",
    "expert_group_used_count",
    "expert_gating_func",
    "expert_weights_norm",
    "expert_weights_scale",
    "leading_dense_block_count",
    "nextn_predict_layers",
    "logit_scale",
    "final_logit_softcapping",
    "attn_logit_softcapping",
    "embedding_scale",
    "residual_scale",
    "ssm.state_size",
    "decoder_start_token_id",
];

/// Keys as they are.
const WHOLE: [&str; 32] = [
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.seperator_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.cls_token_id",
    "tokenizer.ggml.mask_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.remove_extra_whitespaces",
    "tokenizer.ggml.precompiled_charsmap",
    "tokenizer.ggml.normalizer.lowercase",
    "tokenizer.ggml.normalizer.strip_accents",
    "tokenizer.ggml.token_type_count",
    "tokenizer.huggingface.json",
    "tokenizer.chat_template",
    "tokenizer.chat_template.tool_use",
    "general.name",
    "general.sampling.temp",
    "general.sampling.top_k",
    "general.sampling.top_p",
    "general.file_type",
    "general.size_label",
];

/// Words that some key understands.
const WORDS: [&str; 24] = [
    "llama",
    "gpt2",
    "bert",
    "t5",
    "rwkv",
    "none",
    "plamo2",
    "default",
    "llama-bpe",
    "qwen2",
    "deepseek-llm",
    "gpt-4o",
    "tekken",
    "falcon",
    "smaug-bpe",
    "linear",
    "yarn",
    "longrope",
    "llama3",
    "<s>",
    "</s>",
    "\u{2581}a b",
    "\u{120}the",
    "##ing",
];

/// Tensors whose presence or shape is asked about.
const TENSORS: [&str; 16] = [
    "token_embd.weight",
    "output.weight",
    "output.bias",
    "rope_freqs.weight",
    "blk.0.attn_q.weight",
    "blk.0.attn_q.bias",
    "blk.0.attn_k.weight",
    "blk.0.attn_qkv.weight",
    "blk.0.attn_q_norm.weight",
    "blk.0.attn_norm.weight",
    "blk.0.ffn_gate.weight",
    "blk.0.ffn_up.weight",
    "blk.0.ffn_gate_exps.weight",
    "blk.1.ffn_gate_inp.weight",
    "blk.0.ssm_a",
    "blk.6.attn_norm.weight",
];

/// One input.
pub(crate) fn run(data: &[u8]) {
    written(data, 1);
}

/// One input, each file written so many times: the bytes are the same each time.
pub(crate) fn written(data: &[u8], times: u32) {
    if data.len() > LONGEST {
        return;
    }
    let model = model(&mut Take(data));
    within(MEMORY + 4 * MULTIPLE * data.len(), || files(data, &model, times));
}

fn files(data: &[u8], model: &Model, times: u32) {
    // The store has no files: all metadata is in memory, and a tensor that is read fails.
    let bare = Model { tensors: Vec::new(), shards: Vec::new(), ..model.clone() };
    let store = Store::new(bare, Vec::new(), None, StoreOptions::default());
    let meta = Meta::new(model, &store);
    let plan = hf::plan(meta);
    for file in plan.files {
        let Ok(text) = hf::write(meta, file, Weights::Bfloat16) else { continue };
        assert!(text.len() <= CONSTANT + MULTIPLE * data.len(), "{file:?}: {}", text.len());
        for _ in 1..times {
            assert_eq!(hf::write(meta, file, Weights::Bfloat16).ok().as_ref(), Some(&text));
        }
        if !matches!(file, File::ChatTemplate | File::NamedTemplate(_)) {
            let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&text);
            assert!(parsed.is_ok(), "{file:?}: {parsed:?}: {}", String::from_utf8_lossy(&text));
        }
    }
}

fn model(take: &mut Take<'_>) -> Model {
    let architecture = take.one_of(&ARCHITECTURES);
    let mut metadata: Vec<Pair> = Vec::new();
    let mut tensors: Vec<Tensor> = Vec::new();
    while !take.is_empty() && metadata.len() < 200 {
        match take.u8() {
            what @ 0..96 => {
                let key = format!("{architecture}.{}", OWN[what as usize % OWN.len()]);
                pair(&mut metadata, key, value(take));
            }
            what @ 96..224 => {
                let key = WHOLE[(what - 96) as usize % WHOLE.len()].to_owned();
                pair(&mut metadata, key, value(take));
            }
            _ => tensor(&mut tensors, take),
        }
    }
    Model {
        format: Format::Gguf,
        format_version: 3,
        byte_order: ByteOrder::Little,
        architecture: Some(architecture.into()),
        name: None,
        metadata,
        shards: Vec::new(),
        tensors,
        warnings: Vec::new(),
    }
}

/// Readers give no key twice.
fn pair(metadata: &mut Vec<Pair>, key: String, value: Value) {
    if metadata.iter().all(|pair| *pair.key != *key.as_bytes()) {
        metadata.push(Pair { key: key.into_bytes().into(), value });
    }
}

fn tensor(tensors: &mut Vec<Tensor>, take: &mut Take<'_>) {
    let name: Box<[u8]> = take.one_of(&TENSORS).as_bytes().into();
    let dtype = take.one_of(&[DType::F32, DType::F16, DType::BF16, DType::I32, DType::F64]);
    let shape: Box<[u64]> = (0..take.u8() % 4).map(|_| u64::from(take.u16())).collect();
    let Some(len) = dtype.nbytes(elements(&shape)) else { return };
    if tensors.iter().all(|tensor| tensor.name != name) {
        tensors.push(Tensor { name, dtype, shape, extent: Extent { shard: 0, offset: 0, len } });
    }
}

fn text(take: &mut Take<'_>) -> Value {
    let bytes: Box<[u8]> = match take.u8() {
        0 => take.string().into(),
        1 => {
            let len = take.u16().into();
            take.bytes(len).into()
        }
        which => WORDS[which as usize % WORDS.len()].as_bytes().into(),
    };
    Value::Str(Text::Inline(bytes))
}

fn value(take: &mut Take<'_>) -> Value {
    match take.u8() % 16 {
        0 => Value::U32(take.u8().into()),
        1 => Value::U32(take.u32()),
        2 => Value::I32(take.u32() as i32),
        3 => Value::F32(f32::from_bits(take.u32())),
        4 => Value::F32(f32::from(take.u8()) / 16.0),
        5 => Value::Bool(take.u8() & 1 == 1),
        6 => Value::U64(take.u64()),
        7 => Value::F64(f64::from_bits(take.u64())),
        8 => Value::U16(take.u16()),
        9 => Value::I8(take.u8() as i8),
        10 => array(take, ValueType::I32, |take| Value::I32(take.u8().into())),
        11 => array(take, ValueType::F32, |take| Value::F32(-f32::from(take.u8()))),
        12 => array(take, ValueType::Bool, |take| Value::Bool(take.u8() & 1 == 1)),
        13 => array(take, ValueType::U32, |take| Value::U32(take.u16().into())),
        14 => array(take, ValueType::Str, |take| Value::Str(Text::Inline(take.string().into()))),
        _ => text(take),
    }
}

fn array(take: &mut Take<'_>, elem: ValueType, item: impl Fn(&mut Take<'_>) -> Value) -> Value {
    let count = take.u8();
    let mut items = Vec::new();
    while items.len() < count.into() && !take.is_empty() {
        items.push(item(take));
    }
    Value::Array(Array::Inline { elem, items })
}

/// Inputs that make what real files have, by architecture and kind of tokenizer.
pub(crate) fn samples() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (tokenizer, pre) in
        [("llama", "default"), ("gpt2", "llama-bpe"), ("bert", "default"), ("t5", "default")]
    {
        for architecture in ["llama", "gemma3", "qwen3moe", "deepseek2", "t5", "bert"] {
            let at =
                ARCHITECTURES.iter().position(|name| *name == architecture).expect("a known one");
            let mut out = vec![at as u8];
            for (key, number) in [
                ("block_count", 2),
                ("context_length", 128),
                ("embedding_length", 64),
                ("feed_forward_length", 96),
                ("attention.head_count", 4),
                ("attention.head_count_kv", 2),
                ("attention.layer_norm_rms_epsilon", 1),
                ("expert_count", 4),
                ("expert_used_count", 2),
                ("leading_dense_block_count", 1),
            ] {
                own(&mut out, key);
                out.extend([if key.ends_with("epsilon") { 4 } else { 0 }, number]);
            }
            whole(&mut out, "tokenizer.ggml.model");
            word(&mut out, tokenizer);
            whole(&mut out, "tokenizer.ggml.pre");
            word(&mut out, pre);
            let tokens = [
                "<unk>",
                "<s>",
                "</s>",
                "<0x41>",
                "a",
                "b",
                "ab",
                "\u{2581}",
                "\u{2581}ab",
                "##b",
                "[CLS]",
                "\u{120}a",
            ];
            whole(&mut out, "tokenizer.ggml.tokens");
            out.extend([14, tokens.len() as u8]);
            tokens.iter().for_each(|token| string(&mut out, token));
            whole(&mut out, "tokenizer.ggml.token_type");
            out.extend([10, tokens.len() as u8, 2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 4, 1]);
            whole(&mut out, "tokenizer.ggml.scores");
            out.extend([11, tokens.len() as u8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
            whole(&mut out, "tokenizer.ggml.merges");
            out.extend([14, 2]);
            string(&mut out, "a b");
            string(&mut out, "\u{120} a");
            for key in [
                "tokenizer.ggml.bos_token_id",
                "tokenizer.ggml.eos_token_id",
                "tokenizer.ggml.unknown_token_id",
            ] {
                whole(&mut out, key);
                out.extend([0, key.len() as u8 % 3]);
            }
            whole(&mut out, "tokenizer.chat_template");
            out.extend([15, 0]);
            string(&mut out, "{{ bos_token }}{% for m in messages %}{{ m }}{% endfor %}");
            out.extend([255, 0, 0, 2, 12, 0, 64, 0]);
            all.push((format!("{architecture}-{tokenizer}"), out));
        }
    }
    all
}

fn own(out: &mut Vec<u8>, key: &str) {
    out.push(OWN.iter().position(|name| *name == key).expect("a known key") as u8);
}

fn whole(out: &mut Vec<u8>, key: &str) {
    out.push(96 + WHOLE.iter().position(|name| *name == key).expect("a known key") as u8);
}

fn word(out: &mut Vec<u8>, word: &str) {
    let at = WORDS.iter().position(|name| *name == word).expect("a known word");
    // 0 and 1 are for text that is spelt out.
    out.extend([15, if at < 2 { at + WORDS.len() } else { at } as u8]);
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend(text.bytes());
}
