//! What single families do.

use super::*;

#[test]
fn queries_are_scaled_by_the_published_exception() {
    let scalar = |arch: &str, layers: u32| {
        decoder(arch).count("block_count", layers).config()["query_pre_attn_scalar"].clone()
    };
    assert_eq!((scalar("gemma2", 45), scalar("gemma2", 46)), (json!(32), json!(16)));
    assert_eq!((scalar("gemma3", 46), scalar("gemma3", 62)), (json!(32), json!(16)));
}

#[test]
fn experts_have_their_own_sizes() {
    assert_fields(
        &experts("qwen2moe"),
        json!({
            "model_type": "qwen2_moe",
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 80,
            "norm_topk_prob": false,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }),
    );
    let told = experts("qwen3moe").count("expert_feed_forward_length", 40);
    assert_fields(&told, json!({"moe_intermediate_size": 40, "norm_topk_prob": true}));
    assert_fields(
        &experts("llama").count("expert_feed_forward_length", 9),
        json!({"model_type": "mixtral", "num_local_experts": 4, "intermediate_size": 160}),
    );
    assert_eq!(
        experts("qwen3moe").without("expert_count").refusal(),
        "qwen3moe.expert_count is missing"
    );
}

#[test]
fn mxfp4_is_said_only_of_experts_that_are_all_stored_so() {
    let packed = |dtypes: [DType; 3]| {
        let small = experts("gpt-oss").without("blk.0.ffn_up_exps.weight");
        let stems = ["gate", "up", "down"].map(|n| format!("blk.0.ffn_{n}_exps.weight"));
        let mut small = small.count("expert_feed_forward_length", 64);
        for (stem, dtype) in stems.iter().zip(dtypes) {
            small = small.typed(stem, dtype, &[4, 64, 64]);
        }
        let mixed = small.warnings().iter().any(|w| w.contains("some experts are MXFP4"));
        (small.config().get("quantization_config").is_some(), mixed)
    };
    assert_eq!(packed([DType::MXFP4; 3]), (true, false));
    assert_eq!(packed([DType::MXFP4, DType::MXFP4, DType::Q8_0]), (false, true));
    assert_eq!(packed([DType::F32; 3]), (false, false));
    assert!(experts("gpt-oss").config().get("quantization_config").is_none());
}

#[test]
fn deepseek_by_generation_and_age_of_the_file() {
    let latent = |small: Small| {
        small
            .count("attention.head_count_kv", 1)
            .count("attention.kv_lora_rank", 24)
            .count("rope.dimension_count", 8)
            .count("attention.key_length_mla", 24)
            .count("attention.value_length_mla", 12)
    };
    let expected = json!({
        "num_key_value_heads": 4,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "q_lora_rank": null,
        "kv_lora_rank": 24,
        "n_group": 1,
        "topk_method": "greedy",
        "model_type": "deepseek_v2",
    });
    assert_fields(&latent(experts("deepseek2")), expected.clone());
    let old = latent(experts("deepseek2"))
        .without("attention.key_length_mla")
        .count("attention.key_length", 24)
        .count("attention.value_length", 12);
    assert_fields(&old, expected);
    for v3 in [
        latent(experts("deepseek2")).count("expert_gating_func", 2),
        latent(experts("deepseek2")).tensor("blk.1.exp_probs_b.bias", &[4]),
    ] {
        assert_fields(&v3, json!({"model_type": "deepseek_v3", "topk_method": "noaux_tc"}));
    }
    let published = latent(experts("deepseek2"))
        .count("expert_gating_func", 2)
        .count("expert_count", 256)
        .count("block_count", 62)
        .count("nextn_predict_layers", 1);
    assert_fields(&published, json!({"n_group": 8, "topk_group": 4, "num_hidden_layers": 61}));
    let yarn = latent(experts("deepseek2"))
        .word("rope.scaling.type", "yarn")
        .real("rope.scaling.factor", 40.0)
        .real("rope.scaling.yarn_log_multiplier", 0.0707);
    let scaling = &yarn.config()["rope_scaling"];
    assert_eq!((&scaling["mscale"], &scaling["mscale_all_dim"]), (&json!(0.707), &json!(0.707)));
    let short = latent(experts("deepseek2")).count("attention.key_length_mla", 8);
    assert!(short.refusal().contains("more than the 8 that turn"), "{}", short.refusal());
}

#[test]
fn classes_without_heads_of_their_own_size_refuse_them() {
    let square = |arch: &str| {
        decoder(arch)
            .without("attention.value_length")
            .count("attention.head_count_kv", 4)
            .count("attention.key_length", 16)
            .real("attention.max_alibi_bias", 8.0)
            .tensor("token_types.weight", &[2, 64])
            .count("feed_forward_length", 256)
    };
    for arch in ["gpt2", "bloom", "gptneox", "mpt", "bert"] {
        assert!(square(arch).check().is_ok(), "{arch}: {:?}", square(arch).check());
        let wide = square(arch).count("attention.key_length", 32).refusal();
        assert!(wide.contains("key_length is 32, expected 16"), "{arch}: {wide}");
        let grouped = square(arch).count("attention.head_count_kv", 2).refusal();
        assert!(grouped.contains("head_count_kv is 2, expected 4"), "{arch}: {grouped}");
    }
    let many = square("starcoder").refusal();
    assert!(many.contains("head_count_kv is 4, expected 1"), "{many}");
}

#[test]
fn falcons_by_norms_and_heads() {
    let falcon = |kv: u32| {
        decoder("falcon")
            .without("attention.value_length")
            .count("attention.head_count_kv", kv)
            .count("attention.key_length", 16)
    };
    let fields = |new: bool, multi: bool, norms: Json| {
        json!({
            "new_decoder_architecture": new,
            "multi_query": multi,
            "num_ln_in_parallel_attn": norms,
            "alibi": false,
            "parallel_attn": true,
            "tie_word_embeddings": true,
        })
    };
    assert_fields(&falcon(1), fields(false, true, Json::Null));
    let two = falcon(2).tensor("blk.0.attn_norm_2.weight", &[64]);
    assert_fields(&two, fields(true, true, json!(2)));
    assert_fields(&falcon(2), fields(true, true, json!(1)));
    assert_fields(&falcon(4), fields(false, false, Json::Null));
}

#[test]
fn gpt2_believes_its_tensors() {
    let gpt2 = decoder("gpt2")
        .count("attention.head_count_kv", 4)
        .count("attention.key_length", 16)
        .count("feed_forward_length", 256);
    assert_fields(&gpt2, json!({"n_inner": null, "n_positions": 512, "n_ctx": 512}));
    let told =
        gpt2.tensor("blk.0.ffn_up.weight", &[96, 64]).tensor("position_embd.weight", &[128, 64]);
    assert_fields(&told, json!({"n_inner": 96, "n_positions": 128, "n_ctx": 128}));
}

#[test]
fn states_have_no_heads() {
    let state = |arch: &str| {
        Small::new(arch)
            .count("block_count", 2)
            .count("embedding_length", 64)
            .count("attention.head_count", 0)
            .count("feed_forward_length", 0)
            .count("ssm.inner_size", 192)
            .count("ssm.state_size", 12)
            .count("ssm.conv_kernel", 3)
            .count("ssm.time_step_rank", 6)
            .count("ssm.group_count", 2)
            .real("attention.layer_norm_rms_epsilon", 1e-5)
            .tensor("token_embd.weight", &[96, 64])
    };
    let sizes = json!({"intermediate_size": 192, "expand": 3, "state_size": 12, "conv_kernel": 3});
    assert_fields(&state("mamba"), sizes);
    assert_fields(&state("mamba"), json!({"time_step_rank": 6, "model_type": "mamba"}));
    let normed = state("mamba").value("ssm.dt_b_c_rms", Value::Bool(true));
    assert_eq!(normed.config()["model_type"], "falcon_mamba");
    assert_fields(&state("mamba2"), json!({"num_heads": 6, "head_dim": 32, "n_groups": 2}));
    let uneven = state("mamba").count("ssm.inner_size", 100).refusal();
    assert!(uneven.contains("is 100, expected a multiple of 64"), "{uneven}");
    let uneven = state("mamba2").count("ssm.time_step_rank", 5).refusal();
    assert!(uneven.contains("is 5, expected a divisor of 192"), "{uneven}");
}

#[test]
fn lfm2_tells_its_layers_by_heads_of_keys() {
    let lfm2 = decoder("lfm2").count("shortconv.l_cache", 3);
    let mixed = lfm2.counts("attention.head_count_kv", &[0, 2, 0]);
    assert_fields(
        &mixed,
        json!({
            "num_key_value_heads": 2,
            "layer_types": ["conv", "full_attention", "conv"],
            "full_attn_idxs": [1],
            "tie_embedding": true,
            "block_auto_adjust_ff_dim": false,
        }),
    );
    let two = decoder("lfm2").count("shortconv.l_cache", 3);
    let two = two.counts("attention.head_count_kv", &[1, 2, 0]);
    assert!(two.refusal().contains("is 1 in one layer and 2 in layer 1"), "{}", two.refusal());
}

#[test]
fn a_roberta_is_no_bert() {
    let bert = |kind: &str| {
        decoder("bert")
            .count("attention.head_count_kv", 4)
            .count("attention.key_length", 16)
            .tensor("token_types.weight", &[2, 64])
            .tensor("position_embd.weight", &[100, 64])
            .whole("tokenizer.ggml.model", Small::text_value(kind))
    };
    assert_fields(
        &bert("bert"),
        json!({"architectures": ["BertModel"], "max_position_embeddings": 100, "type_vocab_size": 2}),
    );
    assert!(bert("bert").warnings()[0].contains("pooler"));
    for kind in ["gpt2", "t5"] {
        assert!(bert(kind).refusal().contains("RoBERTa"), "{kind}");
    }
    let plain = bert("bert").tensor("cls.output.weight", &[3, 64]);
    let names = json!({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"});
    assert_fields(&plain, json!({"id2label": names}));
    let labelled = bert("bert")
        .tensor("cls.weight", &[64, 64])
        .list("classifier.output_labels", vec![Small::text_value("no"), Small::text_value("yes")]);
    assert_fields(
        &labelled,
        json!({
            "architectures": ["BertForSequenceClassification"],
            "id2label": {"0": "no", "1": "yes"},
            "label2id": {"no": 0, "yes": 1},
        }),
    );
}

#[test]
fn other_architectures_have_none() {
    for arch in ["mystery", "deepseek", "Llama", ""] {
        let refusal = decoder(arch).refusal();
        assert_eq!(refusal, format!("the fields of architecture {arch:?} are not known"));
    }
}
