//! What stands in config.json for small models of all kinds, and what stands in none.

mod families;
mod rotation;

use super::testing::Small;
use super::*;
use crate::dtype::DType;
use crate::model::Value;
use serde_json::json;

/// A decoder whose heads are not `hidden / heads` wide, with fewer heads of keys.
fn decoder(arch: &str) -> Small {
    Small::new(arch)
        .count("block_count", 3)
        .count("context_length", 512)
        .count("embedding_length", 64)
        .count("feed_forward_length", 160)
        .count("attention.head_count", 4)
        .count("attention.head_count_kv", 2)
        .count("attention.key_length", 32)
        .count("attention.value_length", 32)
        .real("attention.layer_norm_rms_epsilon", 1e-5)
        .real("attention.layer_norm_epsilon", 1e-5)
        .tensor("token_embd.weight", &[96, 64])
}

fn experts(arch: &str) -> Small {
    decoder(arch)
        .count("expert_count", 4)
        .count("expert_used_count", 2)
        .tensor("blk.0.ffn_up_exps.weight", &[4, 48, 64])
        .tensor("blk.0.ffn_gate_shexp.weight", &[80, 64])
}

/// The fields of `expected` stand in the config of `small`, as they are there.
fn assert_fields(small: &Small, expected: Json) {
    let found = small.config();
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(found.get(name), Some(value), "{name} in {found}");
    }
}

#[test]
fn every_decoder_says_its_sizes() {
    for arch in [
        "llama",
        "granite",
        "smollm3",
        "arcee",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3",
        "phi2",
        "phi3",
        "starcoder2",
        "stablelm",
        "olmo2",
        "command-r",
        "cohere2",
        "nemotron",
    ] {
        assert_fields(
            &decoder(arch),
            json!({
                "vocab_size": 96,
                "hidden_size": 64,
                "intermediate_size": 160,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 32,
                "max_position_embeddings": 512,
                "rope_theta": if arch == "gemma3" { 1e6 } else { 1e4 },
                "rope_scaling": null,
                "bos_token_id": null,
                "eos_token_id": null,
                "pad_token_id": null,
                "torch_dtype": "float16",
            }),
        );
    }
}

#[test]
fn eps_is_the_shortest_decimal_of_its_f32() {
    for (arch, name) in [
        ("llama", "rms_norm_eps"),
        ("gemma3", "rms_norm_eps"),
        ("phi2", "layer_norm_eps"),
        ("starcoder2", "norm_epsilon"),
        ("nemotron", "norm_eps"),
        ("command-r", "layer_norm_eps"),
    ] {
        let text = decoder(arch).text();
        assert!(text.contains(&format!("\"{name}\":0.00001,")), "{text}");
    }
}

#[test]
fn a_missing_eps_is_written_and_told() {
    let small = Small::new("llama")
        .count("block_count", 1)
        .count("context_length", 8)
        .count("embedding_length", 64)
        .count("feed_forward_length", 8)
        .count("attention.head_count", 4)
        .tensor("token_embd.weight", &[96, 64]);
    assert_fields(&small, json!({"rms_norm_eps": 1e-6}));
    let key = "llama.attention.layer_norm_rms_epsilon";
    assert!(small.warnings().iter().any(|w| w.contains(key)), "{:?}", small.warnings());
}

#[test]
fn the_head_is_tied_where_none_is_stored_and_where_it_is_a_copy() {
    let tied = |small: &Small| small.config()["tie_word_embeddings"].as_bool().unwrap();
    for (arch, copy) in [("llama", false), ("gemma3", false), ("phi3", false), ("gemma2", true)] {
        assert!(tied(&decoder(arch)), "{arch}");
        assert_eq!(tied(&decoder(arch).tensor("output.weight", &[96, 64])), copy, "{arch}");
    }
}

#[test]
fn vocabulary_is_the_rows_whatever_the_keys_say() {
    let small = decoder("llama").count("vocab_size", 100);
    assert_fields(&small, json!({"vocab_size": 96}));
    let bare = Small::new("llama").count("block_count", 1).count("attention.head_count", 1);
    assert_eq!(bare.refusal(), "tensor \"token_embd.weight\" is missing");
    let flat = decoder("llama").without("token_embd.weight").tensor("token_embd.weight", &[96]);
    assert!(flat.refusal().contains("has shape [96]"), "{}", flat.refusal());
}

#[test]
fn ids_outside_of_the_vocabulary_are_null() {
    let small = decoder("llama")
        .whole("tokenizer.ggml.bos_token_id", Value::U32(95))
        .whole("tokenizer.ggml.eos_token_id", Value::U32(96))
        .whole("tokenizer.ggml.padding_token_id", Value::F32(1.0));
    assert_fields(&small, json!({"bos_token_id": 95, "eos_token_id": null, "pad_token_id": null}));
    let warnings = small.warnings();
    assert!(warnings[0].contains("eos_token_id is 96"), "{warnings:?}");
    assert!(warnings[1].contains("padding_token_id is 1.0"), "{warnings:?}");
}

#[test]
fn head_dim_by_key_by_rope_by_rows_by_division() {
    let bare = |arch: &str| {
        decoder(arch).without("attention.key_length").without("attention.value_length")
    };
    assert_fields(&bare("llama"), json!({"head_dim": 16}));
    assert_fields(&bare("llama").count("rope.dimension_count", 8), json!({"head_dim": 8}));
    let rows = |small: Small| small.tensor("blk.1.attn_q.weight", &[96, 64]);
    assert_fields(&rows(bare("qwen2")).count("rope.dimension_count", 24), json!({"head_dim": 24}));
    let fused = bare("phi3").tensor("blk.0.attn_qkv.weight", &[8 * 24, 64]);
    assert_fields(&fused, json!({"head_dim": 24}));
    let uneven = bare("qwen3").count("attention.head_count", 6);
    assert_eq!(uneven.refusal(), "qwen3.attention.key_length is missing");
}

#[test]
fn counts_for_each_layer_must_agree() {
    let heads = |list: &[u32]| decoder("llama").counts("attention.head_count", list);
    assert_fields(&heads(&[4, 4, 4]), json!({"num_attention_heads": 4}));
    assert_eq!(
        heads(&[4, 4, 2]).refusal(),
        "llama.attention.head_count is 4 in one layer and 2 in layer 2: config.json has one for all"
    );
    assert!(heads(&[]).refusal().contains("expected a count"));
    assert!(heads(&[4; 5000]).refusal().contains("expected at most 4096 layers"));
}

#[test]
fn layers_without_those_that_guess() {
    let small = decoder("llama").count("nextn_predict_layers", 1);
    assert_fields(&small, json!({"num_hidden_layers": 2}));
    let small = decoder("llama").without("block_count").tensor("blk.6.attn_norm.weight", &[64]);
    assert_fields(&small, json!({"num_hidden_layers": 7}));
    assert!(decoder("llama").count("nextn_predict_layers", 3).refusal().contains("block_count"));
}

#[test]
fn hostile_numbers_are_refused_by_name() {
    for (key, value, found) in [
        ("attention.head_count", Value::U32(0), "is 0, expected at least 1"),
        ("attention.head_count", Value::U64(u64::MAX), "is 18446744073709551615, expected a count"),
        ("attention.head_count", Value::I32(-4), "is -4, expected a count"),
        ("attention.head_count", Value::F32(4.0), "is 4.0, expected a count"),
        ("attention.head_count_kv", Value::U32(3), "is 3, expected a divisor of 4 heads"),
        ("embedding_length", Value::U32(0), "is 0, expected at least 1"),
        ("block_count", Value::U32(0), "is 0, expected 1 to 4096 layers"),
        ("block_count", Value::U64(1 << 31), "is 2147483648, expected a count"),
        ("block_count", Value::U32(1_000_000), "is 1000000, expected 1 to 4096 layers"),
        ("attention.layer_norm_rms_epsilon", Value::F32(f32::NAN), "expected a finite number"),
        ("attention.layer_norm_rms_epsilon", Value::Bool(true), "is true, expected a finite"),
        ("attention.layer_norm_rms_epsilon", Value::F32(-1.0), "expected a positive number"),
        ("rope.freq_base", Value::F64(f64::INFINITY), "is \"Infinity\", expected a finite number"),
        ("rope.dimension_count", Value::U32(64), "is 64, expected at most 32, a head"),
        ("attention.value_length", Value::U32(16), "is 16, expected 32 like the keys"),
    ] {
        let refusal = decoder("llama").value(key, value).refusal();
        assert!(refusal.contains(&format!("llama.{key} ")), "{refusal}");
        assert!(refusal.contains(found), "{refusal}");
    }
}

#[test]
fn no_value_of_any_key_panics_in_any_family() {
    let keys = [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.max_alibi_bias",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "ssm.inner_size",
        "ssm.state_size",
        "ssm.conv_kernel",
        "ssm.time_step_rank",
        "ssm.group_count",
        "shortconv.l_cache",
        "attention.kv_lora_rank",
        "decoder_block_count",
        "attention.scale",
        "classifier.output_labels",
        "leading_dense_block_count",
        "expert_group_count",
    ];
    let values = [
        Value::U32(0),
        Value::U32(1),
        Value::U32(7),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::U32(i32::MAX as u32),
        Value::F32(f32::NAN),
        Value::F32(f32::MIN_POSITIVE),
        Value::F64(f64::MAX),
        Value::Bool(true),
        Value::F32(-0.0),
    ];
    let archs = [
        "llama",
        "granite",
        "smollm3",
        "qwen2moe",
        "gemma2",
        "gemma3",
        "phi3",
        "phimoe",
        "gpt2",
        "starcoder",
        "falcon",
        "bloom",
        "gptneox",
        "mpt",
        "olmo2",
        "cohere2",
        "lfm2",
        "gpt-oss",
        "deepseek2",
        "mamba",
        "mamba2",
        "t5",
        "bert",
        "nomic-bert",
    ];
    for arch in archs {
        for key in keys {
            for value in &values {
                for list in [false, true] {
                    let small = experts(arch).tensor("rope_freqs.weight", &[16]);
                    let small = if list {
                        small.list(key, vec![value.clone(); 3])
                    } else {
                        small.value(key, value.clone())
                    };
                    // Either way, with a reason where there is none.
                    let checked = small.check();
                    assert!(checked.is_ok() || !checked.unwrap_err().is_empty());
                }
            }
        }
    }
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    let small = experts("qwen3moe");
    assert_eq!(small.text(), small.text());
    assert!(small.text().starts_with(
        "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\
         \"torch_dtype\":\"float16\",\"vocab_size\":96,"
    ));
}
