//! Rotation and windows.

use super::*;

#[test]
fn rope_scalings_of_the_keys() {
    let scaled = |kind: &str| decoder("qwen2").word("rope.scaling.type", kind);
    let scaling = |small: Small| small.config()["rope_scaling"].clone();
    let linear = json!({"rope_type": "linear", "factor": 2.5});
    assert_eq!(scaling(scaled("linear").real("rope.scaling.factor", 2.5)), linear);
    assert_eq!(scaling(decoder("qwen2").real("rope.scaling.factor", 2.5)), linear);
    assert_eq!(scaling(decoder("qwen2").real("rope.scale_linear", 2.5)), linear);
    assert_eq!(scaling(decoder("qwen2").real("rope.scale_linear", 1.0)), Json::Null);
    assert_eq!(scaling(scaled("none").real("rope.scaling.factor", 2.5)), Json::Null);
    let yarn = scaled("yarn")
        .real("rope.scaling.factor", 4.0)
        .count("rope.scaling.original_context_length", 128)
        .real("rope.scaling.yarn_beta_fast", 30.0);
    assert_eq!(
        scaling(yarn),
        json!({
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
            "beta_fast": 30.0,
            "beta_slow": 1.0,
        })
    );
    assert_eq!(scaled("yarn").refusal(), "qwen2.rope.scaling.factor is missing");
    assert!(scaled("spiral").refusal().contains("\"spiral\", expected none, linear"));
    assert!(scaled("longrope").refusal().contains("rope_factors_long.weight"));
    let twice =
        scaled("linear").real("rope.scaling.factor", 2.0).tensor("rope_freqs.weight", &[16]);
    assert!(twice.refusal().contains("both scale"));
    let uneven = decoder("phi3")
        .tensor("rope_factors_long.weight", &[16])
        .tensor("rope_factors_short.weight", &[8])
        .count("rope.scaling.original_context_length", 128);
    assert!(uneven.refusal().contains("rope_factors_short.weight\" has shape [8]"));
}

#[test]
fn factors_of_another_length_are_told_and_not_used() {
    let small = decoder("llama").tensor("rope_freqs.weight", &[4]);
    assert_fields(&small, json!({"rope_scaling": null}));
    assert!(small.warnings()[0].contains("rope_freqs.weight"), "{:?}", small.warnings());
}

#[test]
fn factors_that_cannot_be_read_fail_the_file_and_not_the_mount() {
    let small = decoder("llama").tensor("rope_freqs.weight", &[16]);
    assert!(small.check().is_ok());
    assert!(small.write().is_err());
}

#[test]
fn part_of_a_head_turns() {
    let part = |arch: &str| decoder(arch).count("rope.dimension_count", 8);
    for arch in ["phi2", "stablelm", "nemotron", "phi3"] {
        assert_fields(&part(arch), json!({"partial_rotary_factor": 0.25}));
        assert_fields(&decoder(arch), json!({"partial_rotary_factor": 1.0}));
    }
    let neox = decoder("gptneox")
        .count("attention.key_length", 16)
        .count("attention.value_length", 16)
        .count("attention.head_count_kv", 4)
        .count("rope.dimension_count", 4);
    assert_fields(&neox, json!({"rotary_pct": 0.25, "rotary_emb_base": 10000.0}));
}

#[test]
fn windows_layer_by_layer() {
    const S: &str = "sliding_attention";
    const F: &str = "full_attention";
    let windowed =
        |arch: &str| decoder(arch).count("attention.sliding_window", 64).count("block_count", 7);
    for (arch, expected) in [
        ("gemma2", [S, F, S, F, S, F, S]),
        ("gemma3", [S, S, S, S, S, F, S]),
        ("olmo2", [S, S, S, F, S, S, S]),
        ("cohere2", [S, S, S, F, S, S, S]),
    ] {
        assert_fields(&windowed(arch), json!({"layer_types": expected, "sliding_window": 64}));
        let pattern = windowed(arch).count("attention.sliding_window_pattern", 3);
        assert_fields(&pattern, json!({"layer_types": [S, S, F, S, S, F, S]}));
        let flags = [true, false, false, true, true, false, true].map(Value::Bool);
        let listed = windowed(arch).list("attention.sliding_window_pattern", flags.to_vec());
        assert_fields(&listed, json!({"layer_types": [S, F, F, S, S, F, S]}));
        let short =
            windowed(arch).list("attention.sliding_window_pattern", vec![Value::Bool(true)]);
        assert!(short.refusal().contains("expected 7 layers"), "{}", short.refusal());
    }
    let full = decoder("gemma3");
    assert_fields(&full, json!({"layer_types": [F, F, F], "sliding_window": 4096}));
    assert_fields(&decoder("gemma2"), json!({"sliding_window": 4096}));
    assert_eq!(decoder("olmo2").config()["model_type"], "olmo2");
    assert_eq!(windowed("olmo2").config()["model_type"], "olmo3");
    let zero = decoder("phi3").count("attention.sliding_window", 0);
    assert_fields(&zero, json!({"sliding_window": null}));
}
