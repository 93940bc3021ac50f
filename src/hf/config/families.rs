//! The tables: the fields of each family and where they come from, as transformers' configuration
//! classes name them and llama.cpp's converter writes them. Data only.
//!
//! Constants are what a GGUF does not carry: they hold for every model of the architecture,
//! or the family's notes say what does not.

mod experts;
mod others;

pub(super) use experts::*;
pub(super) use others::*;

use super::field::Source::*;
use super::field::{Family, Field};
use super::finish;
use super::layers::{WINDOW, Window};
use super::rope::Rope;

const NONE: Family = Family {
    model_type: "",
    class: "",
    fields: &[],
    rope: Rope::Whole,
    always_tied: false,
    notes: &[],
    finish: None,
};

/// Where the eps of layer and RMS norms stands.
const LAYER_NORM: &str = "attention.layer_norm_epsilon";

const RMS_NORM: &str = "attention.layer_norm_rms_epsilon";

const EVERY_2ND: Window = Window { period: 2 };

const EVERY_4TH: Window = Window { period: 4 };

/// Sizes that nearly every decoder names so.
const SIZES: &[Field] = &[
    ("hidden_size", Hidden),
    ("intermediate_size", FeedForward),
    ("num_hidden_layers", Layers),
    ("num_attention_heads", Heads),
    ("max_position_embeddings", Context),
];

const GROUPED: &[Field] = &[("num_key_value_heads", KvHeads), ("head_dim", HeadDim)];

const GROUPED_BY_ROPE: &[Field] = &[("num_key_value_heads", KvHeads), ("head_dim", RopeHeadDim)];

const RMS: &[Field] = &[("rms_norm_eps", RealElse(RMS_NORM, 1e-6))];

const SILU: &[Field] = &[("hidden_act", Word("silu"))];

const GELU_TANH: &[Field] = &[("hidden_activation", Word("gelu_pytorch_tanh"))];

const BIASES: &[Field] =
    &[("attention_bias", Has("blk.0.attn_q.bias")), ("mlp_bias", Has("blk.0.ffn_up.bias"))];

const ATTENTION_BIAS: &[Field] = &[("attention_bias", Has("blk.0.attn_q.bias"))];

const NO_ATTENTION_BIAS: &[Field] = &[("attention_bias", Flag(false))];

const NO_WINDOW: &[Field] = &[("use_sliding_window", Flag(false)), ("sliding_window", Null)];

const LLAMA_FIELDS: &[&[Field]] = &[SIZES, GROUPED_BY_ROPE, RMS, SILU, BIASES];

pub(super) const LLAMA: Family =
    Family { model_type: "llama", class: "LlamaForCausalLM", fields: LLAMA_FIELDS, ..NONE };

pub(super) const GRANITE: Family = Family {
    model_type: "granite",
    class: "GraniteForCausalLM",
    fields: &[
        SIZES,
        GROUPED_BY_ROPE,
        RMS,
        SILU,
        BIASES,
        &[
            ("embedding_multiplier", RealOr("embedding_scale", 1.0)),
            ("residual_multiplier", RealOr("residual_scale", 1.0)),
            ("attention_multiplier", Made(finish::attention_multiplier)),
            ("logits_scaling", RealOr("logit_scale", 1.0)),
        ],
    ],
    ..NONE
};

pub(super) const SMOLLM3: Family = Family {
    model_type: "smollm3",
    class: "SmolLM3ForCausalLM",
    fields: &[
        SIZES,
        GROUPED_BY_ROPE,
        RMS,
        SILU,
        BIASES,
        NO_WINDOW,
        &[
            ("no_rope_layers", Made(finish::no_rope_layers)),
            ("no_rope_layer_interval", Number(finish::NO_ROPE_INTERVAL)),
        ],
    ],
    ..NONE
};

pub(super) const ARCEE: Family = Family {
    model_type: "arcee",
    class: "ArceeForCausalLM",
    fields: &[SIZES, GROUPED_BY_ROPE, RMS, &[("hidden_act", Word("relu2"))], BIASES],
    ..NONE
};

const QWEN2_WINDOW: &[Field] = &[("max_window_layers", Layers)];

pub(super) const QWEN2: Family = Family {
    model_type: "qwen2",
    class: "Qwen2ForCausalLM",
    fields: &[SIZES, GROUPED, RMS, SILU, NO_WINDOW, QWEN2_WINDOW],
    ..NONE
};

pub(super) const QWEN3: Family = Family {
    model_type: "qwen3",
    class: "Qwen3ForCausalLM",
    fields: &[SIZES, GROUPED, RMS, SILU, ATTENTION_BIAS, NO_WINDOW, QWEN2_WINDOW],
    ..NONE
};

pub(super) const GEMMA: Family = Family {
    model_type: "gemma",
    class: "GemmaForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        RMS,
        &[("hidden_act", Word("gelu_pytorch_tanh"))],
        GELU_TANH,
        NO_ATTENTION_BIAS,
    ],
    always_tied: true,
    ..NONE
};

pub(super) const GEMMA2: Family = Family {
    model_type: "gemma2",
    class: "Gemma2ForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        RMS,
        GELU_TANH,
        &[("hidden_act", Word("gelu_pytorch_tanh"))],
        NO_ATTENTION_BIAS,
        &[
            ("query_pre_attn_scalar", Made(finish::gemma2_scalar)),
            ("sliding_window", CountOr(WINDOW, 4096)),
            ("layer_types", LayerTypes(EVERY_2ND)),
            ("final_logit_softcapping", RealOr("final_logit_softcapping", 30.0)),
            ("attn_logit_softcapping", RealOr("attn_logit_softcapping", 50.0)),
        ],
    ],
    always_tied: true,
    ..NONE
};

pub(super) const GEMMA3: Family = Family {
    model_type: "gemma3_text",
    class: "Gemma3ForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        RMS,
        GELU_TANH,
        NO_ATTENTION_BIAS,
        &[
            ("query_pre_attn_scalar", Made(finish::gemma3_scalar)),
            ("final_logit_softcapping", RealOrNull("final_logit_softcapping")),
            ("attn_logit_softcapping", RealOrNull("attn_logit_softcapping")),
            ("use_bidirectional_attention", Flag(false)),
        ],
    ],
    rope: Rope::Gemma3,
    finish: Some(finish::gemma3_window),
    ..NONE
};

pub(super) const PHI3: Family = Family {
    model_type: "phi3",
    class: "Phi3ForCausalLM",
    fields: &[
        PHI3_SIZES,
        GROUPED,
        RMS,
        SILU,
        NO_ATTENTION_BIAS,
        &[("sliding_window", CountOrNull(WINDOW))],
    ],
    rope: Rope::Phi3,
    ..NONE
};

/// [`SIZES`] where the projection up is two in one tensor.
const PHI3_SIZES: &[Field] = &[
    ("hidden_size", Hidden),
    ("intermediate_size", Count("feed_forward_length")),
    ("num_hidden_layers", Layers),
    ("num_attention_heads", Heads),
    ("max_position_embeddings", Context),
];

pub(super) const PHI2: Family = Family {
    model_type: "phi",
    class: "PhiForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        &[
            ("layer_norm_eps", RealElse(LAYER_NORM, 1e-5)),
            ("hidden_act", Word("gelu_new")),
            ("qk_layernorm", Flag(false)),
        ],
    ],
    rope: Rope::Part,
    ..NONE
};

pub(super) const STARCODER2: Family = Family {
    model_type: "starcoder2",
    class: "Starcoder2ForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        &[
            ("norm_epsilon", RealElse(LAYER_NORM, 1e-5)),
            ("use_bias", Flag(true)),
            ("hidden_act", Word("gelu_pytorch_tanh")),
            ("sliding_window", CountOrNull(WINDOW)),
        ],
    ],
    notes: &["the sliding window is not in the file: beyond 4096 tokens results may differ"],
    ..NONE
};

pub(super) const STABLELM: Family = Family {
    model_type: "stablelm",
    class: "StableLmForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        SILU,
        &[
            ("layer_norm_eps", RealElse(LAYER_NORM, 1e-5)),
            ("use_qkv_bias", Has("blk.0.attn_q.bias")),
            ("use_parallel_residual", HasNot("blk.0.ffn_norm.weight")),
            ("qk_layernorm", Has("blk.0.attn_q_norm.weight")),
        ],
    ],
    rope: Rope::Part,
    ..NONE
};

pub(super) const OLMO2: Family = Family {
    model_type: "olmo2",
    class: "Olmo2ForCausalLM",
    fields: &[SIZES, GROUPED, RMS, SILU, NO_ATTENTION_BIAS],
    ..NONE
};

pub(super) const OLMO3: Family = Family {
    model_type: "olmo3",
    class: "Olmo3ForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        RMS,
        SILU,
        NO_ATTENTION_BIAS,
        &[("sliding_window", Count(WINDOW)), ("layer_types", LayerTypes(EVERY_4TH))],
    ],
    rope: Rope::Olmo3,
    ..NONE
};

pub(super) const COHERE: Family = Family {
    model_type: "cohere",
    class: "CohereForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        SILU,
        ATTENTION_BIAS,
        COHERE_NORMS,
        &[("use_qk_norm", Has("blk.0.attn_q_norm.weight"))],
    ],
    always_tied: true,
    ..NONE
};

const COHERE_NORMS: &[Field] = &[
    ("layer_norm_eps", RealElse(LAYER_NORM, 1e-5)),
    ("logit_scale", RealElse("logit_scale", 0.0625)),
];

pub(super) const COHERE2: Family = Family {
    model_type: "cohere2",
    class: "Cohere2ForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        SILU,
        ATTENTION_BIAS,
        COHERE_NORMS,
        &[("sliding_window", CountElse(WINDOW, 4096)), ("layer_types", LayerTypes(EVERY_4TH))],
    ],
    always_tied: true,
    ..NONE
};

pub(super) const NEMOTRON: Family = Family {
    model_type: "nemotron",
    class: "NemotronForCausalLM",
    fields: &[
        SIZES,
        GROUPED,
        BIASES,
        &[("norm_eps", RealElse(LAYER_NORM, 1e-5)), ("hidden_act", Word("relu2"))],
    ],
    rope: Rope::Part,
    ..NONE
};

pub(super) const LFM2: Family = Family {
    model_type: "lfm2",
    class: "Lfm2ForCausalLM",
    fields: &[&[
        ("hidden_size", Hidden),
        ("intermediate_size", Count("feed_forward_length")),
        ("block_ff_dim", Count("feed_forward_length")),
        ("block_auto_adjust_ff_dim", Flag(false)),
        ("num_hidden_layers", Layers),
        ("num_attention_heads", Heads),
        ("max_position_embeddings", Context),
        ("norm_eps", RealElse(RMS_NORM, 1e-5)),
        ("conv_bias", Made(finish::conv_bias)),
        ("conv_L_cache", Count("shortconv.l_cache")),
        ("head_dim", HeadDim),
    ]],
    rope: Rope::Whole,
    finish: Some(finish::lfm2),
    ..NONE
};
