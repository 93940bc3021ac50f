//! The rows of the tables, in groups that families share.

use super::{Op, Role, Row, When};

const fn row(gguf: &'static str, hf: &'static str) -> Row {
    Row { gguf, hf, op: Op::Same, when: When::Always }
}

const fn op(gguf: &'static str, hf: &'static str, op: Op) -> Row {
    Row { gguf, hf, op, when: When::Always }
}

const fn when(gguf: &'static str, hf: &'static str, when: When) -> Row {
    Row { gguf, hf, op: Op::Same, when }
}

pub(super) const EMBED: &[Row] =
    &[row("token_embd", "model.embed_tokens"), row("output_norm", "model.norm")];
pub(super) const HEAD: &[Row] = &[row("output", "lm_head")];
pub(super) const QKVO: &[Row] = &[
    row("@attn_q", "@self_attn.q_proj"),
    row("@attn_k", "@self_attn.k_proj"),
    row("@attn_v", "@self_attn.v_proj"),
    row("@attn_output", "@self_attn.o_proj"),
];
pub(super) const QKVO_ROPE: &[Row] = &[
    op("@attn_q", "@self_attn.q_proj", Op::RopeQ),
    op("@attn_k", "@self_attn.k_proj", Op::RopeK),
    row("@attn_v", "@self_attn.v_proj"),
    row("@attn_output", "@self_attn.o_proj"),
];
pub(super) const QK_NORM: &[Row] =
    &[row("@attn_q_norm", "@self_attn.q_norm"), row("@attn_k_norm", "@self_attn.k_norm")];
pub(super) const ATTN_NORM: &[Row] = &[row("@attn_norm", "@input_layernorm")];
pub(super) const FFN_NORM: &[Row] = &[row("@ffn_norm", "@post_attention_layernorm")];
pub(super) const GATE: &[Row] = &[row("@ffn_gate", "@mlp.gate_proj")];
pub(super) const UP_DOWN: &[Row] =
    &[row("@ffn_up", "@mlp.up_proj"), row("@ffn_down", "@mlp.down_proj")];

/// Mixtral's experts: stacked, or one by one in files from before spring 2024.
pub(super) const BLOCK_SPARSE: &[Row] = &[
    row("@ffn_gate_inp", "@block_sparse_moe.gate"),
    op("@ffn_gate_exps", "@block_sparse_moe.experts.{e}.w1", Op::Split),
    op("@ffn_down_exps", "@block_sparse_moe.experts.{e}.w2", Op::Split),
    op("@ffn_up_exps", "@block_sparse_moe.experts.{e}.w3", Op::Split),
];
pub(super) const BLOCK_SPARSE_LEGACY: &[Row] = &[
    row("@ffn_gate.{e}", "@block_sparse_moe.experts.{e}.w1"),
    row("@ffn_down.{e}", "@block_sparse_moe.experts.{e}.w2"),
    row("@ffn_up.{e}", "@block_sparse_moe.experts.{e}.w3"),
];
pub(super) const MLP_EXPERTS: &[Row] = &[
    row("@ffn_gate_inp", "@mlp.gate"),
    op("@ffn_gate_exps", "@mlp.experts.{e}.gate_proj", Op::Split),
    op("@ffn_up_exps", "@mlp.experts.{e}.up_proj", Op::Split),
    op("@ffn_down_exps", "@mlp.experts.{e}.down_proj", Op::Split),
];
pub(super) const SHARED_EXPERT: &[Row] = &[
    row("@ffn_gate_shexp", "@mlp.shared_expert.gate_proj"),
    row("@ffn_up_shexp", "@mlp.shared_expert.up_proj"),
    row("@ffn_down_shexp", "@mlp.shared_expert.down_proj"),
    op("@ffn_gate_inp_shexp", "@mlp.shared_expert_gate", Op::LeadingOne),
];
pub(super) const SHARED_EXPERTS: &[Row] = &[
    row("@ffn_gate_shexp", "@mlp.shared_experts.gate_proj"),
    row("@ffn_up_shexp", "@mlp.shared_experts.up_proj"),
    row("@ffn_down_shexp", "@mlp.shared_experts.down_proj"),
];
pub(super) const DEEPSEEK2: &[Row] = &[
    row("@attn_q", "@self_attn.q_proj"),
    row("@attn_q_a", "@self_attn.q_a_proj"),
    row("@attn_q_a_norm", "@self_attn.q_a_layernorm"),
    row("@attn_q_b", "@self_attn.q_b_proj"),
    row("@attn_kv_a_mqa", "@self_attn.kv_a_proj_with_mqa"),
    row("@attn_kv_a_norm", "@self_attn.kv_a_layernorm"),
    row("@attn_kv_b", "@self_attn.kv_b_proj"),
    op("@attn_k_b", "@self_attn.kv_b_proj", Op::Join(Role::Keys)),
    op("@attn_v_b", "@self_attn.kv_b_proj", Op::Join(Role::Values)),
    row("@attn_output", "@self_attn.o_proj"),
    row("=@exp_probs_b.bias", "@mlp.gate.e_score_correction_bias"),
];
pub(super) const GPT_OSS: &[Row] = &[
    row("@post_attention_norm", "@post_attention_layernorm"),
    row("=@attn_sinks.weight", "@self_attn.sinks"),
    row("@ffn_gate_inp", "@mlp.router"),
    op("@ffn_gate_exps", "@mlp.experts.gate_up_proj", Op::Join(Role::Gate)),
    op("@ffn_up_exps", "@mlp.experts.gate_up_proj", Op::Join(Role::Up)),
    op("@ffn_down_exps", "@mlp.experts.down_proj", Op::Join(Role::Down)),
];
pub(super) const GEMMA: &[Row] = &[
    row("token_embd", "model.embed_tokens"),
    op("output_norm", "model.norm", Op::MinusOne),
    op("@attn_norm", "@input_layernorm", Op::MinusOne),
];
pub(super) const GEMMA1: &[Row] = &[op("@ffn_norm", "@post_attention_layernorm", Op::MinusOne)];
pub(super) const GEMMA2: &[Row] = &[
    op("@post_attention_norm", "@post_attention_layernorm", Op::MinusOne),
    op("@ffn_norm", "@pre_feedforward_layernorm", Op::MinusOne),
    op("@post_ffw_norm", "@post_feedforward_layernorm", Op::MinusOne),
];
pub(super) const GEMMA3: &[Row] = &[
    op("@attn_q_norm", "@self_attn.q_norm", Op::MinusOne),
    op("@attn_k_norm", "@self_attn.k_norm", Op::MinusOne),
];
pub(super) const PHI2: &[Row] = &[
    row("token_embd", "model.embed_tokens"),
    row("output_norm", "model.final_layernorm"),
    row("@attn_q", "@self_attn.q_proj"),
    row("@attn_k", "@self_attn.k_proj"),
    row("@attn_v", "@self_attn.v_proj"),
    row("@attn_output", "@self_attn.dense"),
    row("@ffn_up", "@mlp.fc1"),
    row("@ffn_down", "@mlp.fc2"),
];
pub(super) const PHI3: &[Row] = &[
    row("@attn_qkv", "@self_attn.qkv_proj"),
    row("@attn_output", "@self_attn.o_proj"),
    row("@ffn_up", "@mlp.gate_up_proj"),
    row("@ffn_down", "@mlp.down_proj"),
];
pub(super) const STARCODER2: &[Row] =
    &[row("@ffn_up", "@mlp.c_fc"), row("@ffn_down", "@mlp.c_proj")];
pub(super) const STABLELM: &[Row] = &[
    op("@attn_q_norm", "@self_attn.q_layernorm.norms.{e}", Op::Split),
    op("@attn_k_norm", "@self_attn.k_layernorm.norms.{e}", Op::Split),
];
pub(super) const OLMO2: &[Row] = &[
    row("@post_attention_norm", "@post_attention_layernorm"),
    row("@post_ffw_norm", "@post_feedforward_layernorm"),
];
pub(super) const NEMOTRON: &[Row] = &[
    row("token_embd", "model.embed_tokens"),
    op("output_norm", "model.norm", Op::MinusOne),
    op("@attn_norm", "@input_layernorm", Op::MinusOne),
    op("@ffn_norm", "@post_attention_layernorm", Op::MinusOne),
];
pub(super) const LFM2: &[Row] = &[
    row("token_embd", "model.embed_tokens"),
    row("token_embd_norm", "model.embedding_norm"),
    row("@attn_norm", "@operator_norm"),
    row("@ffn_norm", "@ffn_norm"),
    row("@ffn_gate", "@feed_forward.w1"),
    row("@ffn_down", "@feed_forward.w2"),
    row("@ffn_up", "@feed_forward.w3"),
    row("@attn_q", "@self_attn.q_proj"),
    row("@attn_k", "@self_attn.k_proj"),
    row("@attn_v", "@self_attn.v_proj"),
    row("@attn_output", "@self_attn.out_proj"),
    row("@attn_q_norm", "@self_attn.q_layernorm"),
    row("@attn_k_norm", "@self_attn.k_layernorm"),
    op("@shortconv.conv", "@conv.conv", Op::InsertOne),
    row("@shortconv.in_proj", "@conv.in_proj"),
    row("@shortconv.out_proj", "@conv.out_proj"),
];
pub(super) const GPT2_FRAME: &[Row] = &[
    row("token_embd", "transformer.wte"),
    row("position_embd", "transformer.wpe"),
    row("output_norm", "transformer.ln_f"),
    row("@attn_norm", "@ln_1"),
    row("@ffn_norm", "@ln_2"),
];
pub(super) const GPT2: &[Row] = &[
    op("@attn_qkv", "@attn.c_attn", Op::Transpose),
    op("@attn_output", "@attn.c_proj", Op::Transpose),
    op("@ffn_up", "@mlp.c_fc", Op::Transpose),
    op("@ffn_down", "@mlp.c_proj", Op::Transpose),
];
pub(super) const STARCODER: &[Row] = &[
    row("@attn_qkv", "@attn.c_attn"),
    row("@attn_output", "@attn.c_proj"),
    row("@ffn_up", "@mlp.c_fc"),
    row("@ffn_down", "@mlp.c_proj"),
];
pub(super) const GPTNEOX: &[Row] = &[
    row("token_embd", "gpt_neox.embed_in"),
    row("output", "embed_out"),
    row("output_norm", "gpt_neox.final_layer_norm"),
    row("@attn_norm", "@input_layernorm"),
    op("@attn_qkv", "@attention.query_key_value", Op::Qkv3),
    row("@attn_output", "@attention.dense"),
    row("@ffn_norm", "@post_attention_layernorm"),
    row("@ffn_up", "@mlp.dense_h_to_4h"),
    row("@ffn_down", "@mlp.dense_4h_to_h"),
];
pub(super) const FALCON: &[Row] = &[
    row("token_embd", "transformer.word_embeddings"),
    row("output_norm", "transformer.ln_f"),
    op("@attn_qkv", "@self_attention.query_key_value", Op::Falcon),
    row("@attn_output", "@self_attention.dense"),
    row("@ffn_up", "@mlp.dense_h_to_4h"),
    row("@ffn_down", "@mlp.dense_4h_to_h"),
    when("@attn_norm", "@input_layernorm", When::HasNot("@attn_norm_2")),
    when("@attn_norm", "@ln_mlp", When::Has("@attn_norm_2")),
    row("@attn_norm_2", "@ln_attn"),
];
pub(super) const BLOOM: &[Row] = &[
    row("token_embd", "transformer.word_embeddings"),
    row("token_embd_norm", "transformer.word_embeddings_layernorm"),
    row("output_norm", "transformer.ln_f"),
    row("@attn_norm", "@input_layernorm"),
    op("@attn_qkv", "@self_attention.query_key_value", Op::Qkv3),
    row("@attn_output", "@self_attention.dense"),
    row("@ffn_norm", "@post_attention_layernorm"),
    row("@ffn_up", "@mlp.dense_h_to_4h"),
    row("@ffn_down", "@mlp.dense_4h_to_h"),
];
pub(super) const MPT: &[Row] = &[
    row("token_embd", "transformer.wte"),
    row("output_norm", "transformer.norm_f"),
    row("@attn_norm", "@norm_1"),
    row("@attn_qkv", "@attn.Wqkv"),
    row("@attn_output", "@attn.out_proj"),
    row("@ffn_norm", "@norm_2"),
    row("@ffn_up", "@ffn.up_proj"),
    row("@ffn_down", "@ffn.down_proj"),
];
pub(super) const BERT: &[Row] = &[
    row("token_embd", "embeddings.word_embeddings"),
    row("token_types", "embeddings.token_type_embeddings"),
    row("position_embd", "embeddings.position_embeddings"),
    row("token_embd_norm", "embeddings.LayerNorm"),
    row("@attn_q", "@attention.self.query"),
    row("@attn_k", "@attention.self.key"),
    row("@attn_v", "@attention.self.value"),
    row("@attn_output", "@attention.output.dense"),
    row("@attn_output_norm", "@attention.output.LayerNorm"),
    row("@ffn_up", "@intermediate.dense"),
    row("@ffn_down", "@output.dense"),
    row("@layer_output_norm", "@output.LayerNorm"),
    when("cls", "classifier.dense", When::Has("cls.output")),
    when("cls.output", "classifier.out_proj", When::Has("cls")),
    when("cls.output", "classifier", When::HasNot("cls")),
];
pub(super) const NOMIC_BERT: &[Row] = &[
    row("token_embd", "embeddings.word_embeddings"),
    row("token_types", "embeddings.token_type_embeddings"),
    row("token_embd_norm", "emb_ln"),
    row("@attn_qkv", "@attn.Wqkv"),
    row("@attn_output", "@attn.out_proj"),
    row("@ffn_up", "@mlp.fc11"),
    row("@ffn_gate", "@mlp.fc12"),
    row("@ffn_down", "@mlp.fc2"),
    row("@attn_output_norm", "@norm1"),
    row("@layer_output_norm", "@norm2"),
];
pub(super) const MAMBA_FRAME: &[Row] = &[
    row("token_embd", "backbone.embeddings"),
    row("output_norm", "backbone.norm_f"),
    row("@attn_norm", "@norm"),
    row("@ssm_in", "@mixer.in_proj"),
    op("@ssm_conv1d", "@mixer.conv1d", Op::InsertOne),
    row("@ssm_out", "@mixer.out_proj"),
];
pub(super) const MAMBA: &[Row] = &[
    row("@ssm_x", "@mixer.x_proj"),
    row("@ssm_dt", "@mixer.dt_proj"),
    op("=@ssm_a", "@mixer.A_log", Op::LogNegated),
    row("=@ssm_d", "@mixer.D"),
];
pub(super) const MAMBA2: &[Row] = &[
    row("=@ssm_dt.bias", "@mixer.dt_bias"),
    op("=@ssm_a", "@mixer.A_log", Op::FlatLogNegated),
    op("=@ssm_d", "@mixer.D", Op::Flat),
    op("@ssm_norm", "@mixer.norm", Op::Flat),
];
pub(super) const T5: &[Row] = &[
    row("token_embd", "shared"),
    row("enc.output_norm", "encoder.final_layer_norm"),
    row("dec.output_norm", "decoder.final_layer_norm"),
    row("enc.@attn_norm", "encoder.@layer.0.layer_norm"),
    row("enc.@attn_q", "encoder.@layer.0.SelfAttention.q"),
    row("enc.@attn_k", "encoder.@layer.0.SelfAttention.k"),
    row("enc.@attn_v", "encoder.@layer.0.SelfAttention.v"),
    row("enc.@attn_o", "encoder.@layer.0.SelfAttention.o"),
    row("enc.@attn_rel_b", "encoder.@layer.0.SelfAttention.relative_attention_bias"),
    row("enc.@ffn_norm", "encoder.@layer.1.layer_norm"),
    row("enc.@ffn_gate", "encoder.@layer.1.DenseReluDense.wi_0"),
    when("enc.@ffn_up", "encoder.@layer.1.DenseReluDense.wi_1", When::Has("enc.@ffn_gate")),
    when("enc.@ffn_up", "encoder.@layer.1.DenseReluDense.wi", When::HasNot("enc.@ffn_gate")),
    row("enc.@ffn_down", "encoder.@layer.1.DenseReluDense.wo"),
    row("dec.@attn_norm", "decoder.@layer.0.layer_norm"),
    row("dec.@attn_q", "decoder.@layer.0.SelfAttention.q"),
    row("dec.@attn_k", "decoder.@layer.0.SelfAttention.k"),
    row("dec.@attn_v", "decoder.@layer.0.SelfAttention.v"),
    row("dec.@attn_o", "decoder.@layer.0.SelfAttention.o"),
    row("dec.@attn_rel_b", "decoder.@layer.0.SelfAttention.relative_attention_bias"),
    row("dec.@cross_attn_norm", "decoder.@layer.1.layer_norm"),
    row("dec.@cross_attn_q", "decoder.@layer.1.EncDecAttention.q"),
    row("dec.@cross_attn_k", "decoder.@layer.1.EncDecAttention.k"),
    row("dec.@cross_attn_v", "decoder.@layer.1.EncDecAttention.v"),
    row("dec.@cross_attn_o", "decoder.@layer.1.EncDecAttention.o"),
    row("dec.@ffn_norm", "decoder.@layer.2.layer_norm"),
    row("dec.@ffn_gate", "decoder.@layer.2.DenseReluDense.wi_0"),
    when("dec.@ffn_up", "decoder.@layer.2.DenseReluDense.wi_1", When::Has("dec.@ffn_gate")),
    when("dec.@ffn_up", "decoder.@layer.2.DenseReluDense.wi", When::HasNot("dec.@ffn_gate")),
    row("dec.@ffn_down", "decoder.@layer.2.DenseReluDense.wo"),
];
