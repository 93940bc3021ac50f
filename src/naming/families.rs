//! The tables: what each architecture's tensors are called in a GGUF and in a Hugging Face
//! checkpoint, and what the converter did to them: gguf-py's `tensor_mapping.py` and
//! llama.cpp's `convert_hf_to_gguf.py` read backwards. Data only.
//!
//! How a row is read: `@` stands for `blk.{i}.` on the GGUF side and for the family's layer
//! prefix on the other. Both sides lack `.weight` and `.bias`: a row speaks for both. With
//! `=` before the GGUF side the row speaks for that one name. `{i}` is the layer, `{e}` an
//! expert (or, in split rows, the index of the slice).

mod rows;

use rows::*;

/// What has to be done besides renaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Nothing.
    Same,
    /// Rows of q in rope order.
    RopeQ,
    /// Rows of k in rope order.
    RopeK,
    /// Rows of a fused q, k, v stored as [3, heads].
    Qkv3,
    /// Rows of falcon's fused q, k, v.
    Falcon,
    /// Weight only: stored is w + 1.
    MinusOne,
    /// Stored is -exp(w).
    LogNegated,
    /// Weight only: stored transposed.
    Transpose,
    /// One tensor per index of the first dimension.
    Split,
    /// Weight only: [d, k] is [d, 1, k] in the checkpoint.
    InsertOne,
    /// [n] is [1, n] in the checkpoint (newer files have it so).
    LeadingOne,
    /// [n, 1] is [n] in the checkpoint, and stored is -exp(w).
    FlatLogNegated,
    /// All dimensions are one in the checkpoint.
    Flat,
    /// Part of something that the checkpoint has joined or laid out otherwise.
    Join(Role),
}

/// Which part of what a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// deepseek: keys, `[H, L, N]`, joined with values.
    Keys,
    /// deepseek: values, `[H, V, L]`.
    Values,
    /// gpt-oss: gates of all experts, `[E, ff, hid]`; their rows alternate with those of up.
    Gate,
    /// gpt-oss: the other half.
    Up,
    /// gpt-oss: `[E, hid, ff]`.
    Down,
}

impl Role {
    /// The part that comes first in the checkpoint's tensor, and the part behind or between;
    /// as GGUF calls them in a layer.
    pub(super) const fn pair(self) -> Option<(&'static str, &'static str)> {
        match self {
            Role::Keys | Role::Values => Some(("attn_k_b", "attn_v_b")),
            Role::Gate | Role::Up => Some(("ffn_gate_exps", "ffn_up_exps")),
            Role::Down => None,
        }
    }

    /// Whether it stands in the checkpoint's tensor behind or between the other's values.
    pub(super) const fn is_second(self) -> bool {
        matches!(self, Role::Values | Role::Up)
    }
}

/// When a row holds, by whether the model has a tensor with this GGUF stem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Has(&'static str),
    HasNot(&'static str),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) gguf: &'static str,
    pub(super) hf: &'static str,
    pub(super) op: Op,
    pub(super) when: When,
}

/// A family of architectures with one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// `general.architecture` values.
    pub(super) archs: &'static [&'static str],
    /// `model_type` values of config.json.
    pub(super) model_types: &'static [&'static str],
    /// What `@` stands for on the Hugging Face side.
    pub(super) layer: &'static str,
    /// Prefixes that some checkpoints have and some lack.
    pub(super) bases: &'static [&'static str],
    /// Hugging Face stems (with `.weight`) that every checkpoint of the family has and that
    /// tell it from others; only asked when there is no config.json.
    pub(super) marks: &'static [&'static str],
    pub(super) tables: &'static [&'static [Row]],
    /// What a checkpoint has and a converter throws away.
    pub(super) gone: Option<&'static str>,
}

/// Tensors that only a GGUF has: whole names, whatever the architecture of a table.
pub(super) const GGUF_ONLY: &[&str] = &[
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    "blk.{}.attn_rot_embd.weight",
];

/// Suffixes of scales that belong to the quantisation of the weight of the same stem.
pub(super) const SCALES: &[&str] = &["scale", "input_scale"];

/// A llama-style family: `model.layers.{i}.`, base prefix `model.`.
const fn llama_style(
    archs: &'static [&'static str],
    model_types: &'static [&'static str],
    marks: &'static [&'static str],
    tables: &'static [&'static [Row]],
) -> Family {
    let layer = "model.layers.{i}.";
    Family { archs, model_types, layer, bases: &["model."], marks, tables, gone: None }
}

/// All families.
pub(super) const FAMILIES: &[Family] = &[
    llama_style(
        &["llama"],
        &["llama", "mistral", "mixtral"],
        &["@post_attention_layernorm"],
        &[
            EMBED,
            HEAD,
            ATTN_NORM,
            QKVO_ROPE,
            FFN_NORM,
            GATE,
            UP_DOWN,
            BLOCK_SPARSE,
            BLOCK_SPARSE_LEGACY,
        ],
    ),
    llama_style(
        &["granite", "smollm3", "arcee", "minicpm", "xverse", "olmo"],
        &["granite", "smollm3", "arcee", "minicpm", "xverse", "olmo"],
        &["@post_attention_layernorm"],
        &[EMBED, HEAD, ATTN_NORM, QKVO_ROPE, FFN_NORM, GATE, UP_DOWN],
    ),
    llama_style(
        &["qwen2"],
        &["qwen2"],
        &["@post_attention_layernorm"],
        &[EMBED, HEAD, ATTN_NORM, QKVO, FFN_NORM, GATE, UP_DOWN],
    ),
    llama_style(
        &["qwen3"],
        &["qwen3"],
        &["@self_attn.q_norm", "@post_attention_layernorm"],
        &[EMBED, HEAD, ATTN_NORM, QKVO, QK_NORM, FFN_NORM, GATE, UP_DOWN],
    ),
    llama_style(
        &["qwen2moe"],
        &["qwen2_moe"],
        &["@mlp.shared_expert_gate"],
        &[EMBED, HEAD, ATTN_NORM, QKVO, FFN_NORM, GATE, UP_DOWN, MLP_EXPERTS, SHARED_EXPERT],
    ),
    llama_style(
        &["qwen3moe", "olmoe"],
        &["qwen3_moe", "olmoe"],
        &["@self_attn.q_norm", "@mlp.gate"],
        &[EMBED, HEAD, ATTN_NORM, QKVO, QK_NORM, FFN_NORM, GATE, UP_DOWN, MLP_EXPERTS],
    ),
    llama_style(
        &["gemma"],
        &["gemma"],
        &["@post_attention_layernorm"],
        &[GEMMA, GEMMA1, QKVO, GATE, UP_DOWN],
    ),
    llama_style(
        &["gemma2"],
        &["gemma2"],
        &["@pre_feedforward_layernorm"],
        &[GEMMA, GEMMA2, QKVO, GATE, UP_DOWN],
    ),
    llama_style(
        &["gemma3"],
        &["gemma3_text"],
        &["@pre_feedforward_layernorm", "@self_attn.q_norm"],
        &[GEMMA, HEAD, GEMMA2, GEMMA3, QKVO, GATE, UP_DOWN],
    ),
    llama_style(&["phi2"], &["phi"], &["@mlp.fc1"], &[PHI2, HEAD, ATTN_NORM]),
    llama_style(
        &["phi3"],
        &["phi3"],
        &["@self_attn.qkv_proj"],
        &[EMBED, HEAD, ATTN_NORM, FFN_NORM, PHI3],
    ),
    llama_style(
        &["phimoe"],
        &["phimoe"],
        &["@block_sparse_moe.gate"],
        &[EMBED, HEAD, ATTN_NORM, QKVO, FFN_NORM, BLOCK_SPARSE],
    ),
    llama_style(
        &["starcoder2"],
        &["starcoder2"],
        &["@mlp.c_fc"],
        &[EMBED, HEAD, ATTN_NORM, QKVO, FFN_NORM, STARCODER2],
    ),
    llama_style(
        &["stablelm"],
        &["stablelm"],
        &["@post_attention_layernorm"],
        &[EMBED, HEAD, ATTN_NORM, QKVO, FFN_NORM, GATE, UP_DOWN, STABLELM],
    ),
    Family {
        gone: Some("biases of zeros"),
        ..llama_style(
            &["command-r", "cohere2"],
            &["cohere", "cohere2"],
            &["@input_layernorm"],
            &[EMBED, ATTN_NORM, QKVO, QK_NORM, GATE, UP_DOWN],
        )
    },
    llama_style(
        &["olmo2"],
        &["olmo2", "olmo3"],
        &["@post_feedforward_layernorm"],
        &[EMBED, HEAD, QKVO, QK_NORM, OLMO2, GATE, UP_DOWN],
    ),
    llama_style(
        &["nemotron"],
        &["nemotron"],
        &["@post_attention_layernorm"],
        &[NEMOTRON, HEAD, QKVO, UP_DOWN],
    ),
    llama_style(&["lfm2"], &["lfm2"], &["@operator_norm"], &[LFM2, HEAD]),
    Family {
        gone: Some("layers that predict several tokens (MTP)"),
        ..llama_style(
            &["deepseek2"],
            &["deepseek_v2", "deepseek_v3"],
            &["@self_attn.kv_a_proj_with_mqa"],
            &[
                EMBED,
                HEAD,
                ATTN_NORM,
                FFN_NORM,
                DEEPSEEK2,
                GATE,
                UP_DOWN,
                MLP_EXPERTS,
                SHARED_EXPERTS,
            ],
        )
    },
    llama_style(
        &["deepseek"],
        &["deepseek"],
        &["@mlp.shared_experts.gate_proj"],
        &[EMBED, HEAD, ATTN_NORM, QKVO_ROPE, FFN_NORM, GATE, UP_DOWN, MLP_EXPERTS, SHARED_EXPERTS],
    ),
    llama_style(
        &["gpt-oss"],
        &["gpt_oss"],
        &["@mlp.router"],
        &[EMBED, HEAD, ATTN_NORM, QKVO, GPT_OSS],
    ),
    Family {
        archs: &["gpt2"],
        model_types: &["gpt2"],
        layer: "transformer.h.{i}.",
        bases: &["transformer."],
        marks: &["@attn.c_attn"],
        tables: &[GPT2_FRAME, GPT2, HEAD],
        gone: None,
    },
    Family {
        archs: &["starcoder"],
        model_types: &["gpt_bigcode"],
        layer: "transformer.h.{i}.",
        bases: &["transformer."],
        marks: &["@attn.c_attn"],
        tables: &[GPT2_FRAME, STARCODER, HEAD],
        gone: None,
    },
    Family {
        archs: &["gptneox"],
        model_types: &["gpt_neox"],
        layer: "gpt_neox.layers.{i}.",
        bases: &["gpt_neox."],
        marks: &["@attention.query_key_value"],
        tables: &[GPTNEOX],
        gone: None,
    },
    Family {
        archs: &["falcon"],
        model_types: &["falcon"],
        layer: "transformer.h.{i}.",
        bases: &["transformer."],
        marks: &["@self_attention.query_key_value"],
        tables: &[FALCON, HEAD],
        gone: None,
    },
    Family {
        archs: &["bloom"],
        model_types: &["bloom"],
        layer: "transformer.h.{i}.",
        bases: &["transformer."],
        marks: &["@self_attention.query_key_value", "transformer.word_embeddings_layernorm"],
        tables: &[BLOOM, HEAD],
        gone: None,
    },
    Family {
        archs: &["mpt"],
        model_types: &["mpt"],
        layer: "transformer.blocks.{i}.",
        bases: &["transformer."],
        marks: &["@attn.Wqkv"],
        tables: &[MPT],
        gone: None,
    },
    Family {
        archs: &["bert"],
        model_types: &["bert", "roberta", "xlm-roberta"],
        layer: "encoder.layer.{i}.",
        bases: &["bert.", "roberta."],
        marks: &["@attention.self.query"],
        tables: &[BERT],
        gone: Some(
            "pooler, heads for masked words and next sentences, position_ids, the first rows of \
             roberta's position embeddings",
        ),
    },
    Family {
        archs: &["nomic-bert"],
        model_types: &["nomic_bert"],
        layer: "encoder.layers.{i}.",
        bases: &[],
        marks: &["@attn.Wqkv"],
        tables: &[NOMIC_BERT],
        gone: None,
    },
    Family {
        archs: &["mamba"],
        model_types: &["mamba"],
        layer: "backbone.layers.{i}.",
        bases: &["backbone."],
        marks: &["@mixer.x_proj"],
        tables: &[MAMBA_FRAME, MAMBA, HEAD],
        gone: None,
    },
    Family {
        archs: &["mamba2"],
        model_types: &["mamba2"],
        layer: "backbone.layers.{i}.",
        bases: &["backbone."],
        marks: &["@mixer.norm"],
        tables: &[MAMBA_FRAME, MAMBA2, HEAD],
        gone: None,
    },
    Family {
        archs: &["t5", "t5encoder"],
        model_types: &["t5", "mt5", "umt5"],
        layer: "block.{i}.",
        bases: &[],
        marks: &["encoder.@layer.0.SelfAttention.q"],
        tables: &[T5, HEAD],
        gone: None,
    },
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Of these tests/golden/names has no file: each shares its table with one that has, but
    /// `t5encoder`, which is half of `t5`.
    const WITHOUT: [&str; 4] = ["minicpm", "xverse", "olmo", "t5encoder"];

    #[test]
    fn every_architecture_has_golden_names() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/names");
        let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let told: Vec<String> = files
            .filter(|path| path.extension().is_some_and(|e| e == "tsv"))
            .map(|path| {
                let text = std::fs::read_to_string(path).unwrap();
                text.split(' ').nth(1).unwrap().to_owned()
            })
            .collect();
        for arch in FAMILIES.iter().flat_map(|family| family.archs) {
            let here = told.iter().any(|word| word == arch);
            assert!(here != WITHOUT.contains(arch), "{arch}: scripts/make-golden-names");
        }
    }
}
