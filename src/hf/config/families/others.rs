//! What came before llama, and what is no decoder with rotation: states, T5, BERT.

use super::*;

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

pub(in super::super) const GPT2: Family = Family {
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

pub(in super::super) const STARCODER: Family = Family {
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

pub(in super::super) const FALCON: Family = Family {
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

pub(in super::super) const BLOOM: Family = Family {
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

pub(in super::super) const GPT_NEOX: Family = Family {
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    fields: &[
        SIZES,
        &[
            ("layer_norm_eps", RealElse(LAYER_NORM, 1e-5)),
            ("use_parallel_residual", FlagElse("use_parallel_residual", true)),
            ("attention_bias", Flag(true)),
            ("hidden_act", Word("gelu")),
        ],
    ],
    rope: Rope::Neox,
    finish: Some(finish::undivided_heads),
    ..NONE
};

pub(in super::super) const MPT: Family = Family {
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

pub(in super::super) const MAMBA: Family = Family {
    model_type: "mamba",
    class: "MambaForCausalLM",
    fields: &[MAMBA_FIELDS, TIME_STEP],
    rope: Rope::None,
    ..NONE
};

pub(in super::super) const FALCON_MAMBA: Family = Family {
    model_type: "falcon_mamba",
    class: "FalconMambaForCausalLM",
    fields: &[MAMBA_FIELDS, TIME_STEP, &[("mixer_rms_eps", Real(1e-6))]],
    rope: Rope::None,
    ..NONE
};

pub(in super::super) const MAMBA2: Family = Family {
    model_type: "mamba2",
    class: "Mamba2ForCausalLM",
    fields: &[
        MAMBA_FIELDS,
        &[
            // The converter keeps the number of heads under this key.
            ("num_heads", Count("ssm.time_step_rank")),
            ("head_dim", Made(finish::mamba2_head_dim)),
            ("n_groups", Count("ssm.group_count")),
            ("chunk_size", Number(256)),
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

pub(in super::super) const T5: Family = Family {
    model_type: "t5",
    class: "T5ForConditionalGeneration",
    fields: &[T5_FIELDS, ENCODER_DECODER],
    rope: Rope::None,
    ..NONE
};

pub(in super::super) const T5_ENCODER: Family = Family {
    class: "T5EncoderModel",
    fields: &[T5_FIELDS, &[("is_encoder_decoder", Flag(false))]],
    ..T5
};

pub(in super::super) const UMT5: Family = Family {
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

pub(in super::super) const BERT: Family = Family {
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

pub(in super::super) const BERT_CLASSIFIER: Family = Family {
    class: "BertForSequenceClassification",
    notes: &["the pooler is not in the file unless the classifier keeps it as its first layer"],
    finish: Some(finish::labels),
    ..BERT
};

pub(in super::super) const NOMIC_BERT: Family = Family {
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
