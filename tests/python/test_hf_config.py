"""hf/config.json: what transformers makes of it is the configuration that the model had.

For each architecture a small configuration is made by its own class of transformers, taken
to GGUF keys and tensors as converters do it (written here from the format's description,
not from the code under test), mounted, and loaded again: every field that bears on the
result must be back.
"""

import copy
import json
import math
import os
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pytest

from gguf_file import Gguf
from hf_golden import architectures

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
from transformers import AutoConfig  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

VOCAB, HIDDEN, FEED, LAYERS, HEADS, KV, HEAD = 96, 64, 160, 6, 4, 2, 32
EPS = 1e-5
# Fields of training and of output, which no weights depend on.
IGNORED = {
    "initializer_range", "initializer_factor", "use_cache", "output_router_logits", "router_aux_loss_coef",
    "router_jitter_noise", "input_jitter_noise", "dtype", "architectures", "transformers_version", "id2label",
    "label2id", "return_dict", "output_hidden_states", "problem_type", "chunk_size_feed_forward",
    "pretraining_tp", "rescale_prenorm_residual", "time_step_min", "time_step_max", "time_step_floor",
    "time_step_scale", "time_step_init_scheme", "use_mambapy", "use_associative_scan", "init_device",
    "block_multiple_of", "block_ffn_dim_multiplier", "block_auto_adjust_ff_dim", "learned_pos_emb", "attn_config",
}


@dataclass
class Case:
    """An architecture: its configuration, and how a converter writes it."""

    arch: str
    model_type: str
    model_class: str
    config: dict
    write: object  # write(model, key, c): the keys and tensors beside the common ones
    expected: dict = field(default_factory=dict)  # what must stand in the JSON
    ignored: tuple = ()
    common: object = None  # instead of std

    def original(self):
        ids = {"bos_token_id": 3, "eos_token_id": 4, "pad_token_id": None} | self.config
        return CONFIG_MAPPING[self.model_type](vocab_size=VOCAB, **copy.deepcopy(ids))  # a class writes into what it is given

    def gguf(self, c):
        model = Gguf().key("general.architecture", "str", self.arch)

        def key(name, kind, value):
            model.key(f"{self.arch}.{name}", kind, value)

        (self.common or std)(model, key, c)
        self.write(model, key, c)
        for name in ("bos", "eos"):
            model.key(f"tokenizer.ggml.{name}_token_id", "u32", getattr(c, f"{name}_token_id"))
        if c.pad_token_id is not None:
            model.key("tokenizer.ggml.padding_token_id", "u32", c.pad_token_id)
        return model


CASES = {}


def case(name, arch, model_type, model_class, config, **more):
    def add(write):
        CASES[name] = Case(arch, model_type, model_class, config, write, **more)
        return write

    return add


def sizes(**more):
    return {
        "hidden_size": HIDDEN, "intermediate_size": FEED, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "max_position_embeddings": 512,
    } | more


def head_of(c):
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def theta(c):
    return c.rope_parameters.get("full_attention", c.rope_parameters)["rope_theta"]


def std(model, key, c, separate=True, feed=None):
    """What every decoder has. separate: q, k and v are tensors of their own."""
    key("block_count", "u32", c.num_hidden_layers)
    key("context_length", "u32", c.max_position_embeddings)
    key("embedding_length", "u32", c.hidden_size)
    key("feed_forward_length", "u32", c.intermediate_size if feed is None else feed)
    heads, kv = c.num_attention_heads, getattr(c, "num_key_value_heads", c.num_attention_heads)
    key("attention.head_count", "u32", heads)
    key("attention.head_count_kv", "u32", kv)
    if getattr(c, "rms_norm_eps", None):
        key("attention.layer_norm_rms_epsilon", "f32", c.rms_norm_eps)
    for name in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"):
        if getattr(c, name, None):
            key("attention.layer_norm_epsilon", "f32", getattr(c, name))
    if getattr(c, "rope_parameters", None):
        key("rope.freq_base", "f32", theta(c))
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.hidden_size))
    model.tensor("output_norm.weight", "F32", (c.hidden_size,))
    if not c.tie_word_embeddings:
        model.tensor("output.weight", "F32", (c.vocab_size, c.hidden_size))
    head = head_of(c)
    for i in range(c.num_hidden_layers):
        if separate:
            model.tensor(f"blk.{i}.attn_q.weight", "F32", (heads * head, c.hidden_size))
            model.tensor(f"blk.{i}.attn_k.weight", "F32", (kv * head, c.hidden_size))
            model.tensor(f"blk.{i}.attn_v.weight", "F32", (kv * head, c.hidden_size))
        else:
            model.tensor(f"blk.{i}.attn_qkv.weight", "F32", ((heads + 2 * kv) * head, c.hidden_size))
        model.tensor(f"blk.{i}.attn_output.weight", "F32", (c.hidden_size, heads * head))


def dense(model, c, gate=True, norm=True, feed=None):
    feed = feed or c.intermediate_size
    for i in range(c.num_hidden_layers):
        for name in ("gate", "up") if gate else ("up",):
            model.tensor(f"blk.{i}.ffn_{name}.weight", "F32", (feed, c.hidden_size))
        model.tensor(f"blk.{i}.ffn_down.weight", "F32", (c.hidden_size, feed))
        if norm:
            model.tensor(f"blk.{i}.ffn_norm.weight", "F32", (c.hidden_size,))


def experts(model, c, count, rows, dtype="F32", layers=None):
    for i in layers or range(c.num_hidden_layers):
        model.tensor(f"blk.{i}.ffn_gate_inp.weight", "F32", (count, c.hidden_size))
        model.tensor(f"blk.{i}.ffn_gate_exps.weight", dtype, (count, rows, c.hidden_size))
        model.tensor(f"blk.{i}.ffn_up_exps.weight", dtype, (count, rows, c.hidden_size))
        model.tensor(f"blk.{i}.ffn_down_exps.weight", dtype, (count, c.hidden_size, rows))


def biases(model, c, *stems):
    for i in range(c.num_hidden_layers):
        for stem in stems:
            model.tensor(f"blk.{i}.{stem}.bias", "F32", (8,))


def lengths(key, c):
    key("attention.key_length", "u32", head_of(c))
    key("attention.value_length", "u32", head_of(c))


# --- llama and its like -----------------------------------------------------------------


def llama3_factors(dim, base, factor, low, high, original):
    out = []
    for i in range(dim // 2):
        wavelen = 2 * math.pi * base ** (2 * i / dim)
        smooth = (original / wavelen - low) / (high - low)
        if wavelen < original / high:
            out.append(1.0)
        elif wavelen > original / low:
            out.append(factor)
        else:
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


@case("llama", "llama", "llama", "LlamaForCausalLM", sizes(head_dim=HEAD, rms_norm_eps=EPS, rope_theta=500000.0),
      expected={"rms_norm_eps": EPS, "head_dim": 32, "rope_scaling": None, "attention_bias": False, "hidden_act": "silu"})
def llama(model, key, c):
    lengths(key, c)
    key("rope.dimension_count", "u32", c.head_dim)
    dense(model, c)


@case("llama-biased-tied", "llama", "llama", "LlamaForCausalLM",
      sizes(head_dim=HEAD, rms_norm_eps=EPS, attention_bias=True, mlp_bias=True, tie_word_embeddings=True))
def llama_biased(model, key, c):
    key("rope.dimension_count", "u32", c.head_dim)  # old files: the only word on it
    dense(model, c)
    biases(model, c, "attn_q", "attn_k", "attn_v", "ffn_up", "ffn_gate", "ffn_down")


@case("llama3", "llama", "llama", "LlamaForCausalLM",
      sizes(head_dim=64, rope_theta=500000.0, max_position_embeddings=131072,
            rope_scaling={"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
      expected={"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})
def llama3(model, key, c):
    lengths(key, c)
    key("rope.dimension_count", "u32", c.head_dim)
    model.tensor("rope_freqs.weight", "F32", (32,), llama3_factors(64, 5e5, 32.0, 1.0, 4.0, 8192))
    dense(model, c)


@case("llama-linear", "llama", "llama", "LlamaForCausalLM", sizes(head_dim=HEAD, rope_scaling={"rope_type": "linear", "factor": 2.5}))
def llama_linear(model, key, c):
    lengths(key, c)
    key("rope.scaling.type", "str", "linear")
    key("rope.scaling.factor", "f32", 2.5)
    dense(model, c)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "attention_factor": 0.9, "beta_fast": 30.0, "beta_slow": 2.0}


@case("qwen2-yarn", "qwen2", "qwen2", "Qwen2ForCausalLM", sizes(head_dim=HEAD, rope_scaling=YARN, use_sliding_window=False, max_window_layers=LAYERS), ignored=("layer_types",))
def qwen2_yarn(model, key, c):
    lengths(key, c)
    key("rope.scaling.type", "str", "yarn")
    key("rope.scaling.factor", "f32", 4.0)
    key("rope.scaling.original_context_length", "u32", 128)
    key("rope.scaling.yarn_attn_factor", "f32", 0.9)
    key("rope.scaling.yarn_beta_fast", "f32", 30.0)
    key("rope.scaling.yarn_beta_slow", "f32", 2.0)
    dense(model, c)


@case("mixtral", "llama", "mixtral", "MixtralForCausalLM", sizes(head_dim=HEAD, num_local_experts=4, num_experts_per_tok=3, rope_theta=1e6))
def mixtral(model, key, c):
    lengths(key, c)
    key("expert_count", "u32", 4)
    key("expert_used_count", "u32", 3)
    experts(model, c, 4, c.intermediate_size)


@case("granite", "granite", "granite", "GraniteForCausalLM",
      sizes(embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.015625, logits_scaling=8.0))
def granite(model, key, c):
    key("embedding_scale", "f32", 12.0)
    key("residual_scale", "f32", 0.22)
    key("attention.scale", "f32", 0.015625)
    key("logit_scale", "f32", 8.0)
    dense(model, c)


@case("smollm3", "smollm3", "smollm3", "SmolLM3ForCausalLM", sizes(rope_theta=5e6), expected={"no_rope_layers": [1, 1, 1, 0, 1, 1]})
def smollm3(model, key, c):
    dense(model, c)


@case("arcee", "arcee", "arcee", "ArceeForCausalLM", sizes(head_dim=HEAD), expected={"hidden_act": "relu2"})
def arcee(model, key, c):
    lengths(key, c)
    dense(model, c, gate=False)


# --- qwen, olmo -------------------------------------------------------------------------

QWEN = {"use_sliding_window": False, "max_window_layers": LAYERS}


@case("qwen2", "qwen2", "qwen2", "Qwen2ForCausalLM", sizes(**QWEN, rms_norm_eps=EPS, tie_word_embeddings=True), expected={"head_dim": 16, "tie_word_embeddings": True})
def qwen2(model, key, c):
    dense(model, c)
    biases(model, c, "attn_q", "attn_k", "attn_v")


@case("qwen3", "qwen3", "qwen3", "Qwen3ForCausalLM", sizes(**QWEN, head_dim=HEAD, rope_theta=1e6), expected={"attention_bias": False, "use_sliding_window": False})
def qwen3(model, key, c):
    lengths(key, c)
    dense(model, c)


@case("qwen2moe", "qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM",
      sizes(**QWEN, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=80))
def qwen2moe(model, key, c):
    key("expert_count", "u32", 4)
    key("expert_used_count", "u32", 2)
    key("expert_feed_forward_length", "u32", 48)
    experts(model, c, 4, 48)
    for i in range(LAYERS):  # no key: the rows tell
        model.tensor(f"blk.{i}.ffn_gate_shexp.weight", "F32", (80, HIDDEN))


@case("qwen3moe", "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM",
      sizes(use_sliding_window=False, head_dim=HEAD, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, norm_topk_prob=True),
      expected={"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []})
def qwen3moe(model, key, c):
    lengths(key, c)
    key("expert_count", "u32", 4)
    key("expert_used_count", "u32", 2)
    key("expert_feed_forward_length", "u32", 48)
    experts(model, c, 4, 48)


@case("olmoe", "olmoe", "olmoe", "OlmoeForCausalLM", sizes(num_experts=4, num_experts_per_tok=2, clip_qkv=8.0))
def olmoe(model, key, c):
    key("expert_count", "u32", 4)
    key("expert_used_count", "u32", 2)
    key("attention.clamp_kqv", "f32", 8.0)
    experts(model, c, 4, c.intermediate_size)


@case("olmo2", "olmo2", "olmo2", "Olmo2ForCausalLM", sizes(rope_theta=500000.0))
def olmo2(model, key, c):
    dense(model, c, norm=False)


@case("olmo3", "olmo2", "olmo3", "Olmo3ForCausalLM", sizes(sliding_window=128, rope_theta=500000.0),
      expected={"layer_types": ["sliding_attention"] * 3 + ["full_attention"] + ["sliding_attention"] * 2})
def olmo3(model, key, c):
    key("attention.sliding_window", "u32", 128)
    key("attention.sliding_window_pattern", "arr:bool", [t == "sliding_attention" for t in c.layer_types])
    dense(model, c, norm=False)


@case("olmo3-own-base", "olmo2", "olmo3", "Olmo3ForCausalLM",
      sizes(sliding_window=128, rope_parameters={kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("full_attention", "sliding_attention")}))
def olmo3_own_base(model, key, c):
    key("attention.sliding_window", "u32", 128)
    dense(model, c, norm=False)


# --- gemma ------------------------------------------------------------------------------


@case("gemma", "gemma", "gemma", "GemmaForCausalLM", sizes(head_dim=HEAD), expected={"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True})
def gemma(model, key, c):
    lengths(key, c)
    dense(model, c)


@case("gemma2", "gemma2", "gemma2", "Gemma2ForCausalLM",
      sizes(head_dim=HEAD, query_pre_attn_scalar=HEAD, sliding_window=256, final_logit_softcapping=25.0, attn_logit_softcapping=45.0),
      expected={"layer_types": ["sliding_attention", "full_attention"] * 3, "query_pre_attn_scalar": 32})
def gemma2(model, key, c):
    lengths(key, c)
    key("attention.sliding_window", "u32", 256)
    key("final_logit_softcapping", "f32", 25.0)
    key("attn_logit_softcapping", "f32", 45.0)
    dense(model, c)


@case("gemma2-27b", "gemma2", "gemma2", "Gemma2ForCausalLM", sizes(num_hidden_layers=46, head_dim=HEAD, query_pre_attn_scalar=16),
      expected={"query_pre_attn_scalar": 16, "sliding_window": 4096, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0})
def gemma2_27b(model, key, c):
    lengths(key, c)
    dense(model, c)


@case("gemma3", "gemma3", "gemma3_text", "Gemma3ForCausalLM",
      sizes(num_hidden_layers=8, head_dim=HEAD, query_pre_attn_scalar=HEAD, sliding_window=256, rope_scaling={"rope_type": "linear", "factor": 8.0}),
      expected={"layer_types": ["sliding_attention"] * 5 + ["full_attention"] + ["sliding_attention"] * 2, "sliding_window_pattern": 6,
                "rope_theta": 1e6, "rope_local_base_freq": 1e4, "tie_word_embeddings": True})
def gemma3(model, key, c):
    lengths(key, c)
    key("attention.sliding_window", "u32", 256)
    key("rope.scaling.type", "str", "linear")
    key("rope.scaling.factor", "f32", 8.0)
    dense(model, c)


@case("gemma3-27b", "gemma3", "gemma3_text", "Gemma3ForCausalLM",
      sizes(num_hidden_layers=62, head_dim=HEAD, query_pre_attn_scalar=16, sliding_window=256, tie_word_embeddings=False, sliding_window_pattern=4),
      expected={"query_pre_attn_scalar": 16, "tie_word_embeddings": False})
def gemma3_27b(model, key, c):
    lengths(key, c)
    key("attention.sliding_window", "u32", 256)
    key("attention.sliding_window_pattern", "u32", 4)
    dense(model, c)


# --- phi --------------------------------------------------------------------------------


def fused(model, key, c):
    std(model, key, c, separate=False)


LONG = [float(str(x)) for x in np.linspace(1.25, 40.5, 12).astype(np.float32)]
SHORT = [float(str(x)) for x in np.linspace(1.0, 2.5, 12).astype(np.float32)]


@case("phi3", "phi3", "phi3", "Phi3ForCausalLM",
      sizes(sliding_window=2047, original_max_position_embeddings=512),
      common=fused, expected={"partial_rotary_factor": 1.0, "sliding_window": 2047, "rope_scaling": None})
def phi3(model, key, c):
    key("rope.dimension_count", "u32", 16)
    key("rope.scaling.original_context_length", "u32", 512)
    key("attention.sliding_window", "u32", 2047)
    for i in range(LAYERS):
        model.tensor(f"blk.{i}.ffn_up.weight", "F32", (2 * FEED, HIDDEN))


@case("phi3-longrope", "phi3", "phi3", "Phi3ForCausalLM",
      sizes(hidden_size=128, max_position_embeddings=131072, original_max_position_embeddings=4096, partial_rotary_factor=0.75, sliding_window=None,
            rope_scaling={"rope_type": "longrope", "type": "longrope", "long_factor": LONG, "short_factor": SHORT}),
      common=fused, expected={"original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75, "sliding_window": None})
def phi3_longrope(model, key, c):
    key("rope.dimension_count", "u32", 24)
    key("rope.scaling.original_context_length", "u32", 4096)
    key("rope.scaling.attn_factor", "f32", 1.19)
    key("attention.sliding_window", "u32", 0)
    model.tensor("rope_factors_long.weight", "F32", (12,), np.array(LONG, np.float32))
    model.tensor("rope_factors_short.weight", "F32", (12,), np.array(SHORT, np.float32))
    for i in range(LAYERS):
        model.tensor(f"blk.{i}.ffn_up.weight", "F32", (2 * FEED, HIDDEN))


@case("phi2", "phi2", "phi", "PhiForCausalLM",
      sizes(hidden_size=320, partial_rotary_factor=0.4, layer_norm_eps=EPS), expected={"partial_rotary_factor": 0.4, "hidden_act": "gelu_new"})
def phi2(model, key, c):
    key("rope.dimension_count", "u32", 32)
    dense(model, c, gate=False, norm=False)


@case("phimoe", "phimoe", "phimoe", "PhimoeForCausalLM", sizes(num_local_experts=4, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True))
def phimoe(model, key, c):
    key("expert_count", "u32", 4)
    key("expert_used_count", "u32", 2)
    experts(model, c, 4, FEED)
    biases(model, c, "attn_q", "attn_k", "attn_v", "attn_output")
    model.tensor("output.bias", "F32", (VOCAB,))


# --- the older ones ---------------------------------------------------------------------

GPT2 = {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 128}


def gpt2_keys(model, key, c, kv=HEADS):
    inner = c.n_inner or 4 * c.n_embd
    key("block_count", "u32", c.n_layer)
    key("context_length", "u32", c.n_positions)
    key("embedding_length", "u32", c.n_embd)
    key("feed_forward_length", "u32", 4 * c.n_embd)  # the converter's word; the tensors know better
    key("attention.head_count", "u32", c.n_head)
    key("attention.head_count_kv", "u32", kv)
    key("attention.layer_norm_epsilon", "f32", c.layer_norm_epsilon)
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.n_embd))
    model.tensor("position_embd.weight", "F32", (c.n_positions, c.n_embd))
    for i in range(c.n_layer):
        model.tensor(f"blk.{i}.ffn_up.weight", "F32", (inner, c.n_embd))


@case("gpt2", "gpt2", "gpt2", "GPT2LMHeadModel", GPT2, common=gpt2_keys, expected={"n_inner": None, "n_ctx": 128, "activation_function": "gelu_new", "tie_word_embeddings": True})
def gpt2(model, key, c):
    model.tensor("output.weight", "F32", (VOCAB, HIDDEN))  # a copy


@case("gpt2-inner", "gpt2", "gpt2", "GPT2LMHeadModel", GPT2 | {"n_inner": 96}, common=gpt2_keys, expected={"n_inner": 96})
def gpt2_inner(model, key, c):
    pass


@case("starcoder", "starcoder", "gpt_bigcode", "GPTBigCodeForCausalLM", GPT2, common=lambda m, k, c: gpt2_keys(m, k, c, kv=1), ignored=("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"))
def starcoder(model, key, c):
    pass


@case("starcoder2", "starcoder2", "starcoder2", "Starcoder2ForCausalLM", sizes(norm_epsilon=EPS), expected={"sliding_window": None, "use_bias": True})
def starcoder2(model, key, c):
    dense(model, c, gate=False)
    biases(model, c, "attn_q", "attn_k", "attn_v")


def falcon_keys(model, key, c):
    key("block_count", "u32", c.num_hidden_layers)
    key("context_length", "u32", 2048)
    key("embedding_length", "u32", c.hidden_size)
    key("feed_forward_length", "u32", c.ffn_hidden_size)
    key("attention.head_count", "u32", c.num_attention_heads)
    key("attention.head_count_kv", "u32", c.num_kv_heads)
    key("attention.layer_norm_epsilon", "f32", c.layer_norm_epsilon)
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.hidden_size))
    head = c.hidden_size // c.num_attention_heads
    rows = (c.num_attention_heads + 2 * c.num_kv_heads) * head
    for i in range(c.num_hidden_layers):
        model.tensor(f"blk.{i}.attn_qkv.weight", "F32", (rows, c.hidden_size))


FALCON = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "ffn_hidden_size": 256}


@case("falcon-7b", "falcon", "falcon", "FalconForCausalLM", FALCON | {"num_kv_heads": 1}, common=falcon_keys)
def falcon_7b(model, key, c):
    model.tensor("output.weight", "F32", (VOCAB, HIDDEN))  # a copy


@case("falcon-40b", "falcon", "falcon", "FalconForCausalLM", FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 2}, common=falcon_keys)
def falcon_40b(model, key, c):
    model.tensor("blk.0.attn_norm_2.weight", "F32", (HIDDEN,))


@case("falcon-11b", "falcon", "falcon", "FalconForCausalLM", FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1}, common=falcon_keys)
def falcon_11b(model, key, c):
    pass


@case("bloom", "bloom", "bloom", "BloomForCausalLM", {"hidden_size": HIDDEN, "n_layer": LAYERS, "n_head": HEADS}, common=lambda m, k, c: bloom_keys(m, k, c))
def bloom(model, key, c):
    pass


def bloom_keys(model, key, c):
    key("block_count", "u32", c.n_layer)
    key("context_length", "u32", 2048)
    key("embedding_length", "u32", c.hidden_size)
    key("feed_forward_length", "u32", 4 * c.hidden_size)
    key("attention.head_count", "u32", c.n_head)
    key("attention.head_count_kv", "u32", c.n_head)
    key("attention.layer_norm_epsilon", "f32", c.layer_norm_epsilon)
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.hidden_size))


@case("gptneox", "gptneox", "gpt_neox", "GPTNeoXForCausalLM",
      {k: v for k, v in sizes(rotary_pct=0.25, use_parallel_residual=False).items() if k != "num_key_value_heads"},
      common=fused, expected={"rotary_pct": 0.25, "rotary_emb_base": 10000.0}, ignored=("is_decoder",))
def gptneox(model, key, c):
    key("rope.dimension_count", "u32", 4)
    key("use_parallel_residual", "bool", False)
    dense(model, c, gate=False)


@case("stablelm", "stablelm", "stablelm", "StableLmForCausalLM", sizes(partial_rotary_factor=0.25, use_qkv_bias=True, layer_norm_eps=EPS), expected={"partial_rotary_factor": 0.25, "use_parallel_residual": False})
def stablelm(model, key, c):
    key("rope.dimension_count", "u32", 4)
    key("use_parallel_residual", "bool", True)  # what converters write by default; the norm tells
    dense(model, c)
    biases(model, c, "attn_q", "attn_k", "attn_v")


@case("stablelm-12b", "stablelm", "stablelm", "StableLmForCausalLM", sizes(partial_rotary_factor=0.25, qk_layernorm=True, use_parallel_residual=True))
def stablelm_12b(model, key, c):
    key("rope.dimension_count", "u32", 4)
    dense(model, c, norm=False)
    for i in range(LAYERS):
        model.tensor(f"blk.{i}.attn_q_norm.weight", "F32", (HEADS, 16))


@case("cohere", "command-r", "cohere", "CohereForCausalLM", sizes(logit_scale=0.0625, use_qk_norm=True, layer_norm_eps=EPS, rope_theta=8e6), expected={"tie_word_embeddings": True})
def cohere(model, key, c):
    key("logit_scale", "f32", 0.0625)
    key("rope.scaling.type", "str", "none")
    dense(model, c, norm=False)
    model.tensor("blk.0.attn_q_norm.weight", "F32", (HEADS, 16))


@case("cohere2", "cohere2", "cohere2", "Cohere2ForCausalLM", sizes(logit_scale=0.25, sliding_window=256, rope_theta=50000.0), ignored=("head_dim",))
def cohere2(model, key, c):
    key("logit_scale", "f32", 0.25)
    key("attention.sliding_window", "u32", 256)
    key("rope.dimension_count", "u32", 16)
    dense(model, c, norm=False)


@case("nemotron", "nemotron", "nemotron", "NemotronForCausalLM", sizes(norm_eps=EPS, partial_rotary_factor=0.5, head_dim=HEAD), expected={"hidden_act": "relu2"})
def nemotron(model, key, c):
    key("attention.layer_norm_epsilon", "f32", c.norm_eps)
    key("rope.dimension_count", "u32", 16)
    dense(model, c, gate=False)


@case("mpt", "mpt", "mpt", "MptForCausalLM", {"d_model": HIDDEN, "n_heads": HEADS, "n_layers": LAYERS, "expansion_ratio": 4, "max_seq_len": 256, "bos_token_id": 0, "eos_token_id": 0}, common=lambda m, k, c: mpt_keys(m, k, c))
def mpt(model, key, c):
    key("attention.max_alibi_bias", "f32", 8.0)


def mpt_keys(model, key, c):
    key("block_count", "u32", c.n_layers)
    key("context_length", "u32", c.max_seq_len)
    key("embedding_length", "u32", c.d_model)
    key("feed_forward_length", "u32", 4 * c.d_model)
    key("attention.head_count", "u32", c.n_heads)
    key("attention.layer_norm_epsilon", "f32", 1e-5)
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.d_model))


# --- mixtures, states, encoders ---------------------------------------------------------

OSS_YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
OSS = sizes(head_dim=HEAD, num_local_experts=4, num_experts_per_tok=2, sliding_window=64, rope_theta=150000.0, rope_scaling=OSS_YARN)


def oss(dtype):
    def write(model, key, c):
        lengths(key, c)
        key("expert_count", "u32", 4)
        key("expert_used_count", "u32", 2)
        key("expert_feed_forward_length", "u32", FEED)
        key("attention.sliding_window", "u32", 64)
        key("rope.scaling.type", "str", "yarn")
        key("rope.scaling.factor", "f32", 32.0)
        key("rope.scaling.original_context_length", "u32", 16)
        experts(model, c, 4, FEED, dtype)

    return write


MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
case("gpt-oss", "gpt-oss", "gpt_oss", "GptOssForCausalLM", OSS, expected={"quantization_config": MXFP4, "layer_types": ["sliding_attention", "full_attention"] * 3, "swiglu_limit": 7.0})(oss("MXFP4"))
case("gpt-oss-plain", "gpt-oss", "gpt_oss", "GptOssForCausalLM", OSS, expected={"attention_bias": True})(oss("F32"))
case("gpt-oss-requantised", "gpt-oss", "gpt_oss", "GptOssForCausalLM", OSS)(oss("Q8_0"))

DEEPSEEK = sizes(
    num_key_value_heads=HEADS, q_lora_rank=None, kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12,
    n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=40, first_k_dense_replace=1, routed_scaling_factor=2.5,
)


def deepseek(latent):
    def write(model, key, c):
        if latent:  # keys of the shared latent, and one head of it
            key("attention.key_length", "u32", c.kv_lora_rank + c.qk_rope_head_dim)
            key("attention.value_length", "u32", c.kv_lora_rank)
            key("attention.key_length_mla", "u32", c.qk_nope_head_dim + c.qk_rope_head_dim)
            key("attention.value_length_mla", "u32", c.v_head_dim)
        else:
            key("attention.key_length", "u32", c.qk_nope_head_dim + c.qk_rope_head_dim)
            key("attention.value_length", "u32", c.v_head_dim)
        key("attention.kv_lora_rank", "u32", c.kv_lora_rank)
        if c.q_lora_rank:
            key("attention.q_lora_rank", "u32", c.q_lora_rank)
        key("rope.dimension_count", "u32", c.qk_rope_head_dim)
        key("expert_count", "u32", c.n_routed_experts)
        key("expert_used_count", "u32", c.num_experts_per_tok)
        key("expert_shared_count", "u32", c.n_shared_experts)
        key("expert_feed_forward_length", "u32", c.moe_intermediate_size)
        key("leading_dense_block_count", "u32", c.first_k_dense_replace)
        key("expert_weights_scale", "f32", c.routed_scaling_factor)
        key("expert_weights_norm", "bool", c.norm_topk_prob)
        if c.n_group:
            key("expert_group_count", "u32", c.n_group)
            key("expert_group_used_count", "u32", c.topk_group)
        if c.model_type == "deepseek_v3":
            key("expert_gating_func", "u32", 2)
        scaling = c.rope_parameters
        if scaling["rope_type"] == "yarn":
            key("rope.scaling.type", "str", "yarn")
            key("rope.scaling.factor", "f32", scaling["factor"])
            key("rope.scaling.original_context_length", "u32", scaling["original_max_position_embeddings"])
            key("rope.scaling.yarn_log_multiplier", "f32", 0.1 * scaling["mscale_all_dim"])
        experts(model, c, c.n_routed_experts, c.moe_intermediate_size, layers=range(1, LAYERS))

    return write


def deepseek_keys(kv):
    def write(model, key, c):
        key("block_count", "u32", c.num_hidden_layers)
        key("context_length", "u32", c.max_position_embeddings)
        key("embedding_length", "u32", c.hidden_size)
        key("feed_forward_length", "u32", c.intermediate_size)
        key("attention.head_count", "u32", c.num_attention_heads)
        key("attention.head_count_kv", "u32", kv)
        key("attention.layer_norm_rms_epsilon", "f32", c.rms_norm_eps)
        key("rope.freq_base", "f32", theta(c))
        model.tensor("token_embd.weight", "F32", (c.vocab_size, c.hidden_size))
        model.tensor("output.weight", "F32", (c.vocab_size, c.hidden_size))

    return write


MSCALE = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707}
case("deepseek-v2-lite", "deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM",
     DEEPSEEK | {"n_group": 1, "topk_group": 1, "topk_method": "greedy", "norm_topk_prob": False, "rope_scaling": MSCALE},
     common=deepseek_keys(HEADS), expected={"q_lora_rank": None, "rope_scaling": MSCALE})(deepseek(latent=False))
case("deepseek-v2", "deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM",
     DEEPSEEK | {"q_lora_rank": 20, "n_group": 2, "topk_group": 1, "topk_method": "group_limited_greedy"},
     common=deepseek_keys(1), expected={"num_key_value_heads": HEADS, "topk_method": "group_limited_greedy"})(deepseek(latent=True))
case("deepseek-v3", "deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM",
     DEEPSEEK | {"q_lora_rank": 20, "n_group": 2, "topk_group": 1, "norm_topk_prob": True, "num_nextn_predict_layers": 0},
     common=deepseek_keys(1), expected={"topk_method": "noaux_tc", "num_nextn_predict_layers": 0})(deepseek(latent=True))


def mamba_keys(model, key, c, rank=None):
    key("block_count", "u32", c.num_hidden_layers)
    key("context_length", "u32", 2**20)
    key("embedding_length", "u32", c.hidden_size)
    key("feed_forward_length", "u32", 0)
    key("attention.head_count", "u32", 0)
    key("ssm.conv_kernel", "u32", c.conv_kernel)
    key("ssm.inner_size", "u32", c.expand * c.hidden_size)
    key("ssm.state_size", "u32", c.state_size)
    key("ssm.time_step_rank", "u32", c.time_step_rank if rank is None else rank)
    key("attention.layer_norm_rms_epsilon", "f32", c.layer_norm_epsilon)
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.hidden_size))
    if not c.tie_word_embeddings:
        model.tensor("output.weight", "F32", (c.vocab_size, c.hidden_size))


MAMBA = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "state_size": 12, "conv_kernel": 3, "expand": 3, "layer_norm_epsilon": EPS}


@case("mamba", "mamba", "mamba", "MambaForCausalLM", MAMBA | {"time_step_rank": 7}, common=mamba_keys, expected={"intermediate_size": 192})
def mamba(model, key, c):
    key("ssm.dt_b_c_rms", "bool", False)


@case("falcon-mamba", "mamba", "falcon_mamba", "FalconMambaForCausalLM", MAMBA | {"time_step_rank": 7}, common=mamba_keys)
def falcon_mamba(model, key, c):
    key("ssm.dt_b_c_rms", "bool", True)


@case("mamba2", "mamba2", "mamba2", "Mamba2ForCausalLM", MAMBA | {"num_heads": 6, "head_dim": 32, "n_groups": 2},
      common=lambda m, k, c: mamba_keys(m, k, c, rank=c.num_heads), ignored=("time_step_rank", "time_step_limit"))
def mamba2(model, key, c):
    key("ssm.group_count", "u32", 2)


@case("lfm2", "lfm2", "lfm2", "Lfm2ForCausalLM",
      sizes(norm_eps=EPS, conv_L_cache=4, rope_theta=1e6, layer_types=["conv", "full_attention", "conv", "conv", "full_attention", "conv"], tie_word_embeddings=True),
      common=lambda m, k, c: lfm2_keys(m, k, c), ignored=("full_attn_idxs",), expected={"full_attn_idxs": [1, 4]})
def lfm2(model, key, c):
    pass


def lfm2_keys(model, key, c):
    key("block_count", "u32", c.num_hidden_layers)
    key("context_length", "u32", c.max_position_embeddings)
    key("embedding_length", "u32", c.hidden_size)
    key("feed_forward_length", "u32", c.intermediate_size)
    key("attention.head_count", "u32", c.num_attention_heads)
    key("attention.head_count_kv", "arr:i32", [c.num_key_value_heads if t != "conv" else 0 for t in c.layer_types])
    key("attention.layer_norm_rms_epsilon", "f32", c.norm_eps)
    key("rope.freq_base", "f32", theta(c))
    key("shortconv.l_cache", "u32", c.conv_L_cache)
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.hidden_size))


T5 = {"d_model": HIDDEN, "d_kv": 24, "d_ff": FEED, "num_layers": 3, "num_decoder_layers": 2, "num_heads": HEADS, "relative_attention_num_buckets": 16, "decoder_start_token_id": 0, "pad_token_id": 0}


def t5_keys(model, key, c):
    key("block_count", "u32", c.num_layers)
    key("decoder_block_count", "u32", c.num_decoder_layers)
    key("context_length", "u32", 512)
    key("embedding_length", "u32", c.d_model)
    key("feed_forward_length", "u32", c.d_ff)
    key("attention.head_count", "u32", c.num_heads)
    key("attention.key_length", "u32", c.d_kv)
    key("attention.value_length", "u32", c.d_kv)
    key("attention.relative_buckets_count", "u32", c.relative_attention_num_buckets)
    key("attention.layer_norm_rms_epsilon", "f32", c.layer_norm_epsilon)
    key("attention.layer_norm_epsilon", "f32", c.layer_norm_epsilon)
    key("decoder_start_token_id", "u32", c.decoder_start_token_id)
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.d_model))
    model.tensor("enc.blk.0.attn_rel_b.weight", "F32", (16, HEADS))


@case("t5", "t5", "t5", "T5ForConditionalGeneration", T5, common=t5_keys, expected={"feed_forward_proj": "relu", "is_encoder_decoder": True, "tie_word_embeddings": True})
def t5(model, key, c):
    pass


@case("t5-v1.1", "t5", "t5", "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, common=t5_keys, expected={"tie_word_embeddings": False})
def t5_gated(model, key, c):
    model.tensor("enc.blk.0.ffn_gate.weight", "F32", (FEED, HIDDEN))
    model.tensor("output.weight", "F32", (VOCAB, HIDDEN))


@case("t5encoder", "t5encoder", "t5", "T5EncoderModel", T5 | {"is_encoder_decoder": False, "num_decoder_layers": 3}, common=t5_keys, expected={"is_encoder_decoder": False})
def t5encoder(model, key, c):
    pass


@case("umt5", "t5", "umt5", "UMT5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, common=t5_keys)
def umt5(model, key, c):
    t5_gated(model, key, c)
    model.tensor("enc.blk.1.attn_rel_b.weight", "F32", (16, HEADS))


def bert_keys(model, key, c):
    key("block_count", "u32", c.num_hidden_layers)
    key("context_length", "u32", c.max_position_embeddings)
    key("embedding_length", "u32", c.hidden_size)
    key("feed_forward_length", "u32", c.intermediate_size)
    key("attention.head_count", "u32", c.num_attention_heads)
    key("attention.layer_norm_epsilon", "f32", c.layer_norm_eps)
    key("attention.causal", "bool", False)
    model.key("tokenizer.ggml.model", "str", "bert")
    model.tensor("token_embd.weight", "F32", (c.vocab_size, c.hidden_size))
    model.tensor("token_types.weight", "F32", (c.type_vocab_size, c.hidden_size))


BERT = {"hidden_size": HIDDEN, "intermediate_size": FEED, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": 128, "layer_norm_eps": 1e-12, "pad_token_id": 0}


@case("bert", "bert", "bert", "BertModel", BERT, common=bert_keys, expected={"layer_norm_eps": 1e-12, "type_vocab_size": 2})
def bert(model, key, c):
    model.tensor("position_embd.weight", "F32", (128, HIDDEN))


@case("bert-classifier", "bert", "bert", "BertForSequenceClassification", BERT, common=bert_keys, expected={"id2label": {"0": "no", "1": "yes", "2": "\N{LLAMA}"}})
def bert_classifier(model, key, c):
    model.tensor("position_embd.weight", "F32", (128, HIDDEN))
    model.tensor("cls.output.weight", "F32", (3, HIDDEN))
    key("classifier.output_labels", "arr:str", ["no", "yes", "\N{LLAMA}"])


@case("nomic-bert", "nomic-bert", "nomic_bert", "NomicBertModel", BERT | {"pad_token_id": 5, "rope_theta": 1000.0}, common=bert_keys)
def nomic_bert(model, key, c):
    key("rope.freq_base", "f32", 1000.0)
    model.tensor("blk.0.ffn_gate.weight", "F32", (FEED, HIDDEN))


# --- the tests --------------------------------------------------------------------------


def matter(config, ignored=()):
    """The fields that bear on what a model computes."""
    names = {f.name for f in fields(config)}
    skipped = IGNORED | set(ignored) | {n for n in names if "dropout" in n or "pdrop" in n or n.startswith("summary_")}
    values = {name: getattr(config, name, None) for name in sorted(names - skipped)}
    if hasattr(config, "num_attention_heads") and "head_dim" not in skipped:
        values["head_dim"] = head_of(config)  # also where the class computes it from what it finds
    return values


@pytest.mark.parametrize("name", CASES)
def test_the_class_reads_what_the_model_had(name, mount, tmp_path):
    this = CASES[name]
    original = this.original()
    mounted = mount(this.gguf(original).write(tmp_path / "m.gguf"), "map=hf")
    text = (mounted / "hf/config.json").read_text()
    found = json.loads(text)
    assert (found["model_type"], found["architectures"]) == (this.model_type, [this.model_class])
    assert (found["vocab_size"], found["torch_dtype"]) == (VOCAB, "bfloat16" if name in QUANTISED else "float32")
    assert (found["bos_token_id"], found["eos_token_id"]) == (original.bos_token_id, original.eos_token_id)
    assert {key: found.get(key, "missing") for key in this.expected} == this.expected
    assert ("quantization_config" in found) == (name == "gpt-oss")
    loaded = AutoConfig.from_pretrained(mounted / "hf")
    assert type(loaded) is type(original)
    assert matter(loaded, this.ignored) == matter(original, this.ignored)


QUANTISED = {"gpt-oss", "gpt-oss-requantised"}


def test_every_architecture_of_the_tables_has_a_case():
    assert {this.arch for this in CASES.values()} == architectures() | {"t5encoder"}


def no_config(mounted):
    """Why there is none."""
    assert "config.json" not in os.listdir(mounted / "hf")
    assert not (mounted / "hf/config.json").exists()
    (why,) = [w for w in mounted.model["warnings"] if "config.json" in w]
    return why


def tiny(**keys):
    model = Gguf().key("general.architecture", "str", "llama")
    numbers = {"block_count": 1, "embedding_length": 64, "feed_forward_length": 96, "attention.head_count": 4, "context_length": 128} | keys
    for name, value in numbers.items():
        kind, value = value if isinstance(value, tuple) else ("u32", value)
        model.key(f"llama.{name}", kind, value)
    model.key("llama.attention.layer_norm_rms_epsilon", "f32", 1e-6)
    return model.tensor("token_embd.weight", "F32", (32, 64))


@pytest.mark.parametrize("keys, word", [
    ({"attention.head_count": 0}, "llama.attention.head_count is 0"),
    ({"attention.head_count": ("u64", 2**64 - 1)}, "18446744073709551615"),
    ({"attention.head_count": ("str", "four")}, "llama.attention.head_count is a string"),
    ({"attention.head_count": ("arr:u32", [4, 2])}, "llama.attention.head_count is 4 in one layer and 2 in layer 1"),
    ({"attention.head_count": ("arr:u32", [4] * 1_000_000)}, "an array of 1000000 u32"),
    ({"block_count": ("u64", 2**40)}, "llama.block_count"),
    ({"rope.freq_base": ("f32", math.nan)}, "llama.rope.freq_base is"),
    ({"rope.freq_base": ("f32", -1.0)}, "llama.rope.freq_base is -1"),
    ({"rope.scaling.type": ("str", "spiral")}, '"spiral"'),
    ({"attention.value_length": 8}, "llama.attention.value_length is 8"),
])
def test_what_cannot_be_said_is_no_config_and_a_reason(keys, word, mount, tmp_path):
    assert word in no_config(mount(tiny(**keys).write(tmp_path / "m.gguf"), "map=hf"))


def test_an_unknown_architecture_has_none(mount, tmp_path):
    model = Gguf().key("general.architecture", "str", "mystery").tensor("token_embd.weight", "F32", (32, 64))
    assert '"mystery"' in no_config(mount(model.write(tmp_path / "m.gguf"), "map=hf"))


def test_a_roberta_has_none(mount, tmp_path):
    this = CASES["bert"]
    model = this.gguf(this.original())
    model.keys = [(name, body) for name, body in model.keys if name != b"tokenizer.ggml.model"]
    model.key("tokenizer.ggml.model", "str", "gpt2")
    assert "RoBERTa" in no_config(mount(model.write(tmp_path / "m.gguf"), "map=hf"))


def test_missing_and_impossible_token_ids_are_null(mount, tmp_path):
    model = tiny().key("tokenizer.ggml.bos_token_id", "u32", 31).key("tokenizer.ggml.padding_token_id", "u32", 32)
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    found = mounted.json("hf/config.json")
    assert [found[f"{name}_token_id"] for name in ("bos", "eos", "pad")] == [31, None, None]
    assert any("padding_token_id" in w for w in mounted.model["warnings"])


def test_an_override_reaches_it(mount, tmp_path):
    mounted = mount(tiny().write(tmp_path / "m.gguf"), "map=hf", "set=llama.context_length=4096", "dtype=f16")
    found = mounted.json("hf/config.json")
    assert (found["max_position_embeddings"], found["torch_dtype"]) == (4096, "float16")


def test_text_is_compact_and_numbers_are_short(mount, tmp_path):
    path = tiny().write(tmp_path / "m.gguf")
    raw = (mount(path, "map=hf") / "hf/config.json").read_bytes()
    assert raw == json.dumps(json.loads(raw), separators=(",", ":")).replace("1e-06", "1e-6").encode()
    assert b'"rms_norm_eps":1e-6' in raw and b'"rope_theta":10000.0' in raw


def test_factors_that_no_rule_gives_are_stated_one_by_one(mount, tmp_path):
    factors = np.linspace(1.5, 3.25, 8).astype(np.float32)
    model = tiny().tensor("rope_freqs.weight", "F32", (8,), factors)
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    scaling = mounted.json("hf/config.json")["rope_scaling"]
    assert (scaling["rope_type"], scaling["attention_factor"]) == ("longrope", 1.0)
    assert scaling["long_factor"] == scaling["short_factor"] == [float(str(x)) for x in factors]
    assert AutoConfig.from_pretrained(mounted / "hf").rope_parameters["rope_type"] == "longrope"


def test_a_factor_that_is_no_number_is_an_error_of_the_file(mount, tmp_path):
    model = tiny().tensor("rope_freqs.weight", "F32", (8,), np.full(8, np.nan, np.float32))
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    with pytest.raises(OSError):
        (mounted / "hf/config.json").read_bytes()


def test_gemma_3_270m_is_the_published_model(models, mount, tmp_path):
    link = tmp_path / "gemma.gguf"
    link.symlink_to(Path(models) / "gemma-3-270m-q4_k_m.gguf")
    mounted = mount(link, "map=hf")
    found = AutoConfig.from_pretrained(mounted / "hf")
    published = {
        "model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 512,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False,
        "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "final_logit_softcapping": None,
        "attn_logit_softcapping": None, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
    }
    assert {name: getattr(found, name) for name in published} == published
    assert found.rope_parameters["full_attention"] == {"rope_type": "default", "rope_theta": 1e6}
    assert found.rope_parameters["sliding_attention"] == {"rope_type": "default", "rope_theta": 1e4}
    assert mounted.json("hf/config.json")["torch_dtype"] == "bfloat16"
