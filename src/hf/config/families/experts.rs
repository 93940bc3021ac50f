//! Mixtures of experts.

use super::*;

pub(in super::super) const MIXTRAL: Family = Family {
    model_type: "mixtral",
    class: "MixtralForCausalLM",
    fields: &[SIZES, GROUPED_BY_ROPE, RMS, SILU, LOCAL_EXPERTS, &[("sliding_window", Null)]],
    ..NONE
};

const LOCAL_EXPERTS: &[Field] = &[
    ("num_local_experts", Count("expert_count")),
    ("num_experts_per_tok", Count("expert_used_count")),
];

const EXPERTS: &[Field] = &[
    ("num_experts", Count("expert_count")),
    ("num_experts_per_tok", Count("expert_used_count")),
    ("moe_intermediate_size", Made(finish::expert_feed_forward)),
    ("decoder_sparse_step", Number(1)),
    ("mlp_only_layers", Empty),
];

pub(in super::super) const QWEN2_MOE: Family = Family {
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

pub(in super::super) const QWEN3_MOE: Family = Family {
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

pub(in super::super) const OLMOE: Family = Family {
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

pub(in super::super) const PHIMOE: Family = Family {
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

pub(in super::super) const GPT_OSS: Family = Family {
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
    // What the class makes of it: the part that turns.
    ("head_dim", Count("rope.dimension_count")),
    ("n_routed_experts", Count("expert_count")),
    ("num_experts_per_tok", Count("expert_used_count")),
    ("n_shared_experts", CountOrNull("expert_shared_count")),
    ("moe_intermediate_size", Made(finish::expert_feed_forward)),
    ("moe_layer_freq", Number(1)),
    ("first_k_dense_replace", CountOr("leading_dense_block_count", 0)),
    ("routed_scaling_factor", RealOr("expert_weights_scale", 1.0)),
    ("norm_topk_prob", FlagOr("expert_weights_norm", false)),
];

pub(in super::super) const DEEPSEEK_V2: Family = Family {
    model_type: "deepseek_v2",
    class: "DeepseekV2ForCausalLM",
    fields: &[DEEPSEEK_FIELDS, RMS, SILU, &[("scoring_func", Word("softmax"))]],
    rope: Rope::DeepSeek,
    finish: Some(finish::deepseek_v2),
    ..NONE
};

pub(in super::super) const DEEPSEEK_V3: Family = Family {
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
