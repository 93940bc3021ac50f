//! The tables: the fields of each family and where they come from; facts/hf.md 1.3. Data only.
//!
//! Constants are what a GGUF does not carry: they hold for every model of the architecture,
//! or the family's notes say what does not.

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

pub(super) const MIXTRAL: Family = Family {
    model_type: "mixtral",
    class: "MixtralForCausalLM",
    fields: &[SIZES, GROUPED_BY_ROPE, RMS, SILU, LOCAL_EXPERTS, &[("sliding_window", Null)]],
    ..NONE
};

const LOCAL_EXPERTS: &[Field] = &[
    ("num_local_experts", Count("expert_count")),
    ("num_experts_per_tok", Count("expert_used_count")),
];

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

const EXPERTS: &[Field] = &[
    ("num_experts", Count("expert_count")),
    ("num_experts_per_tok", Count("expert_used_count")),
    ("moe_intermediate_size", Made(finish::expert_feed_forward)),
    ("decoder_sparse_step", Number(1)),
    ("mlp_only_layers", Empty),
];

pub(super) const QWEN2_MOE: Family = Family {
    model_type: "qwen2_moe",
    class: "Qwen2MoeForCausalLM",
    fields: &[
        MOE_SIZES,
        GROUPED,
        RMS,
        SILU,
        NO_WINDOW,
        QWEN2_WINDOW,
        EXPERTS,
        &[
            ("shared_expert_intermediate_size", Made(finish::shared_expert_feed_forward)),
            ("norm_topk_prob", Flag(false)),
            ("qkv_bias", Flag(true)),
        ],
    ],
    notes: &["norm_topk_prob is not in the file: false, as llama.cpp computes"],
    ..NONE
};

/// [`SIZES`] where no layer need be dense: then no tensor tells its size.
const MOE_SIZES: &[Field] = &[
    ("hidden_size", Hidden),
    ("intermediate_size", Made(finish::dense_feed_forward)),
    ("num_hidden_layers", Layers),
    ("num_attention_heads", Heads),
    ("max_position_embeddings", Context),
];

pub(super) const QWEN3: Family = Family {
    model_type: "qwen3",
    class: "Qwen3ForCausalLM",
    fields: &[SIZES, GROUPED, RMS, SILU, ATTENTION_BIAS, NO_WINDOW, QWEN2_WINDOW],
    ..NONE
};

pub(super) const QWEN3_MOE: Family = Family {
    model_type: "qwen3_moe",
    class: "Qwen3MoeForCausalLM",
    fields: &[
        MOE_SIZES,
        GROUPED,
        RMS,
        SILU,
        ATTENTION_BIAS,
        NO_WINDOW,
        QWEN2_WINDOW,
        EXPERTS,
        &[("norm_topk_prob", Flag(true))],
    ],
    ..NONE
};

pub(super) const OLMOE: Family = Family {
    model_type: "olmoe",
    class: "OlmoeForCausalLM",
    fields: &[
        &[
            ("hidden_size", Hidden),
            ("intermediate_size", Made(finish::expert_feed_forward)),
            ("num_hidden_layers", Layers),
            ("num_attention_heads", Heads),
            ("max_position_embeddings", Context),
            ("num_experts", Count("expert_count")),
            ("num_experts_per_tok", Count("expert_used_count")),
            ("norm_topk_prob", Flag(false)),
            ("clip_qkv", RealOrNull("attention.clamp_kqv")),
        ],
        GROUPED,
        RMS,
        SILU,
        NO_ATTENTION_BIAS,
    ],
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

pub(super) const PHIMOE: Family = Family {
    model_type: "phimoe",
    class: "PhimoeForCausalLM",
    fields: &[
        &[
            ("hidden_size", Hidden),
            ("intermediate_size", Made(finish::expert_feed_forward)),
            ("num_hidden_layers", Layers),
            ("num_attention_heads", Heads),
            ("max_position_embeddings", Context),
        ],
        GROUPED,
        RMS,
        SILU,
        LOCAL_EXPERTS,
        &[
            ("sliding_window", CountOrNull(WINDOW)),
            ("attention_bias", Flag(true)),
            ("lm_head_bias", Flag(true)),
        ],
    ],
    rope: Rope::PhiMoe,
    ..NONE
};

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

const GPT2_SIZES: &[Field] = &[
    ("n_embd", Hidden),
    ("n_layer", Layers),
    ("n_head", Heads),
    ("n_positions", Made(finish::positions)),
    ("n_ctx", Made(finish::positions)),
    ("n_inner", Made(finish::gpt2_inner)),
    ("layer_norm_epsilon", RealElse(LAYER_NORM, 1e-5)),
    ("scale_attn_weights", Flag(true)),
];

pub(super) const GPT2: Family = Family {
    model_type: "gpt2",
    class: "GPT2LMHeadModel",
    fields: &[
        GPT2_SIZES,
        &[
            ("activation_function", Word("gelu_new")),
            ("scale_attn_by_inverse_layer_idx", Flag(false)),
            ("reorder_and_upcast_attn", Flag(false)),
        ],
    ],
    rope: Rope::None,
    always_tied: true,
    finish: Some(finish::undivided_heads),
    ..NONE
};

pub(super) const STARCODER: Family = Family {
    model_type: "gpt_bigcode",
    class: "GPTBigCodeForCausalLM",
    fields: &[
        GPT2_SIZES,
        &[("activation_function", Word("gelu_pytorch_tanh")), ("multi_query", Flag(true))],
    ],
    rope: Rope::None,
    finish: Some(finish::one_kv_head),
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

pub(super) const FALCON: Family = Family {
    model_type: "falcon",
    class: "FalconForCausalLM",
    fields: &[&[
        ("hidden_size", Hidden),
        ("ffn_hidden_size", FeedForward),
        ("num_hidden_layers", Layers),
        ("num_attention_heads", Heads),
        ("num_kv_heads", KvHeads),
        ("max_position_embeddings", Context),
        ("layer_norm_epsilon", RealElse(LAYER_NORM, 1e-5)),
        ("activation", Word("gelu")),
        ("alibi", Flag(false)),
        ("parallel_attn", Flag(true)),
        ("bias", Has("blk.0.attn_qkv.bias")),
    ]],
    always_tied: true,
    finish: Some(finish::falcon),
    ..NONE
};

pub(super) const BLOOM: Family = Family {
    model_type: "bloom",
    class: "BloomForCausalLM",
    fields: &[&[
        ("hidden_size", Hidden),
        ("n_layer", Layers),
        ("n_head", Heads),
        ("seq_length", Context),
        ("layer_norm_epsilon", RealElse(LAYER_NORM, 1e-5)),
        ("apply_residual_connection_post_layernorm", Flag(false)),
        ("pretraining_tp", Number(1)),
        ("slow_but_exact", Flag(false)),
    ]],
    rope: Rope::None,
    always_tied: true,
    finish: Some(finish::undivided_heads),
    ..NONE
};

pub(super) const GPT_NEOX: Family = Family {
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    fields: &[
        SIZES,
        &[
            ("layer_norm_eps", RealElse(LAYER_NORM, 1e-5)),
            ("use_parallel_residual", FlagOr("use_parallel_residual", true)),
            ("attention_bias", Flag(true)),
            ("hidden_act", Word("gelu")),
        ],
    ],
    rope: Rope::Neox,
    finish: Some(finish::undivided_heads),
    ..NONE
};

pub(super) const MPT: Family = Family {
    model_type: "mpt",
    class: "MptForCausalLM",
    fields: &[&[
        ("d_model", Hidden),
        ("n_layers", Layers),
        ("n_heads", Heads),
        ("max_seq_len", Context),
        ("layer_norm_epsilon", RealElse(LAYER_NORM, 1e-5)),
        ("no_bias", Flag(true)),
        ("expansion_ratio", Made(finish::mpt_expansion)),
        ("attn_config", Made(finish::mpt_attention)),
    ]],
    rope: Rope::None,
    finish: Some(finish::undivided_heads),
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

pub(super) const GPT_OSS: Family = Family {
    model_type: "gpt_oss",
    class: "GptOssForCausalLM",
    fields: &[
        &[
            ("hidden_size", Hidden),
            ("intermediate_size", Made(finish::expert_feed_forward)),
            ("num_hidden_layers", Layers),
            ("num_attention_heads", Heads),
            ("max_position_embeddings", Context),
        ],
        GROUPED,
        &[("rms_norm_eps", RealElse(RMS_NORM, 1e-5))],
        SILU,
        LOCAL_EXPERTS,
        &[
            ("attention_bias", Flag(true)),
            ("swiglu_limit", Real(7.0)),
            ("sliding_window", CountElse(WINDOW, 128)),
            ("layer_types", LayerTypes(EVERY_2ND)),
        ],
    ],
    rope: Rope::GptOss,
    finish: Some(finish::mxfp4),
    ..NONE
};

const DEEPSEEK_FIELDS: &[Field] = &[
    ("hidden_size", Hidden),
    ("intermediate_size", Made(finish::dense_feed_forward)),
    ("num_hidden_layers", Layers),
    ("num_attention_heads", Heads),
    // The file says 1, as its attention shares one latent.
    ("num_key_value_heads", Heads),
    ("max_position_embeddings", Context),
    ("attention_bias", Flag(false)),
    ("q_lora_rank", CountOrNull("attention.q_lora_rank")),
    ("kv_lora_rank", Count("attention.kv_lora_rank")),
    ("qk_rope_head_dim", Count("rope.dimension_count")),
    ("n_routed_experts", Count("expert_count")),
    ("num_experts_per_tok", Count("expert_used_count")),
    ("n_shared_experts", CountOrNull("expert_shared_count")),
    ("moe_intermediate_size", Made(finish::expert_feed_forward)),
    ("moe_layer_freq", Number(1)),
    ("first_k_dense_replace", CountOr("leading_dense_block_count", 0)),
    ("routed_scaling_factor", RealOr("expert_weights_scale", 1.0)),
    ("norm_topk_prob", FlagOr("expert_weights_norm", false)),
];

pub(super) const DEEPSEEK_V2: Family = Family {
    model_type: "deepseek_v2",
    class: "DeepseekV2ForCausalLM",
    fields: &[DEEPSEEK_FIELDS, RMS, SILU, &[("scoring_func", Word("softmax"))]],
    rope: Rope::DeepSeek,
    finish: Some(finish::deepseek_v2),
    ..NONE
};

pub(super) const DEEPSEEK_V3: Family = Family {
    model_type: "deepseek_v3",
    class: "DeepseekV3ForCausalLM",
    fields: &[
        DEEPSEEK_FIELDS,
        RMS,
        SILU,
        &[
            ("scoring_func", Word("sigmoid")),
            ("topk_method", Word("noaux_tc")),
            ("num_nextn_predict_layers", Number(0)),
            ("rope_interleave", Flag(true)),
        ],
    ],
    rope: Rope::DeepSeek,
    finish: Some(finish::deepseek_v3),
    ..NONE
};

const MAMBA_FIELDS: &[Field] = &[
    ("hidden_size", Hidden),
    ("intermediate_size", Count("ssm.inner_size")),
    ("num_hidden_layers", Layers),
    ("state_size", Count("ssm.state_size")),
    ("conv_kernel", Count("ssm.conv_kernel")),
    ("expand", Made(finish::expand)),
    ("layer_norm_epsilon", RealElse(RMS_NORM, 1e-5)),
    ("hidden_act", Word("silu")),
    ("use_bias", Has("blk.0.ssm_in.bias")),
    ("use_conv_bias", Flag(true)),
    ("residual_in_fp32", Flag(true)),
];
const TIME_STEP: &[Field] = &[("time_step_rank", Count("ssm.time_step_rank"))];

pub(super) const MAMBA: Family = Family {
    model_type: "mamba",
    class: "MambaForCausalLM",
    fields: &[MAMBA_FIELDS, TIME_STEP],
    rope: Rope::None,
    ..NONE
};

pub(super) const FALCON_MAMBA: Family = Family {
    model_type: "falcon_mamba",
    class: "FalconMambaForCausalLM",
    fields: &[MAMBA_FIELDS, TIME_STEP, &[("mixer_rms_eps", Real(1e-6))]],
    rope: Rope::None,
    ..NONE
};

pub(super) const MAMBA2: Family = Family {
    model_type: "mamba2",
    class: "Mamba2ForCausalLM",
    fields: &[
        MAMBA_FIELDS,
        &[
            // The converter keeps the number of heads under this key.
            ("num_heads", Count("ssm.time_step_rank")),
            ("head_dim", Made(finish::mamba2_head_dim)),
            ("n_groups", Count("ssm.group_count")),
        ],
    ],
    rope: Rope::None,
    ..NONE
};

const T5_FIELDS: &[Field] = &[
    ("d_model", Hidden),
    ("d_kv", Made(finish::t5_head_dim)),
    ("d_ff", Count("feed_forward_length")),
    ("num_layers", Layers),
    ("num_decoder_layers", Made(finish::decoder_layers)),
    ("num_heads", Heads),
    ("n_positions", Context),
    ("relative_attention_num_buckets", CountOr("attention.relative_buckets_count", 32)),
    ("relative_attention_max_distance", Number(128)),
    ("layer_norm_epsilon", RealElse(RMS_NORM, 1e-6)),
    ("feed_forward_proj", Made(finish::t5_feed_forward)),
    ("decoder_start_token_id", CountOr("decoder_start_token_id", 0)),
];
const ENCODER_DECODER: &[Field] = &[("is_encoder_decoder", Flag(true))];

pub(super) const T5: Family = Family {
    model_type: "t5",
    class: "T5ForConditionalGeneration",
    fields: &[T5_FIELDS, ENCODER_DECODER],
    rope: Rope::None,
    ..NONE
};

pub(super) const UMT5: Family = Family {
    model_type: "umt5",
    class: "UMT5ForConditionalGeneration",
    fields: &[T5_FIELDS, ENCODER_DECODER],
    rope: Rope::None,
    ..NONE
};

const BERT_FIELDS: &[Field] = &[
    ("hidden_size", Hidden),
    ("intermediate_size", FeedForward),
    ("num_hidden_layers", Layers),
    ("num_attention_heads", Heads),
    ("max_position_embeddings", Made(finish::positions)),
    ("type_vocab_size", Made(finish::token_types)),
    ("layer_norm_eps", RealElse(LAYER_NORM, 1e-12)),
    ("hidden_act", Word("gelu")),
    ("position_embedding_type", Word("absolute")),
    ("is_decoder", Flag(false)),
];

pub(super) const BERT: Family = Family {
    model_type: "bert",
    class: "BertModel",
    fields: &[BERT_FIELDS],
    rope: Rope::None,
    always_tied: true,
    notes: &[
        "the pooler is not in the file: BertModel makes up one (pooler_output is noise; mean \
         pooling does not use it)",
    ],
    finish: Some(finish::undivided_heads),
};

pub(super) const BERT_CLASSIFIER: Family = Family {
    class: "BertForSequenceClassification",
    notes: &["the pooler is not in the file unless the classifier keeps it as its first layer"],
    finish: Some(finish::labels),
    ..BERT
};

pub(super) const NOMIC_BERT: Family = Family {
    model_type: "nomic_bert",
    class: "NomicBertModel",
    fields: &[
        SIZES,
        &[
            ("head_dim", HeadDim),
            ("type_vocab_size", Made(finish::token_types)),
            ("layer_norm_eps", RealElse(LAYER_NORM, 1e-12)),
            ("hidden_act", Word("silu")),
        ],
    ],
    always_tied: true,
    finish: Some(finish::nomic_bert),
    ..NONE
};
