//! The built-in tables on small models; the names themselves are checked against the
//! reference package in tests/naming.rs.

use super::super::testing::{DATA_START, floats, model, named, names};
use crate::dtype::DType;
use crate::model::{Format, Model};
use crate::naming::{ArchFacts, Catalog, MapDocument, MapSpec, Transform};

fn facts(architecture: &str, heads: u64, kv_heads: u64) -> ArchFacts {
    ArchFacts {
        architecture: Some(architecture.into()),
        head_count: vec![heads],
        head_count_kv: vec![kv_heads],
        ..ArchFacts::default()
    }
}

fn hf(model: &Model, facts: &ArchFacts) -> Catalog {
    Catalog::build(model, facts, &[MapSpec::Hf]).unwrap()
}

fn transforms(model: &Model, catalog: &Catalog) -> Vec<Transform> {
    (0..catalog.len(model)).map(|i| catalog.get(model, i).transform).collect()
}

/// One warning that has all these words.
fn has_warning(catalog: &Catalog, words: &[&str]) -> bool {
    catalog.warnings().iter().any(|w| words.iter().all(|word| w.contains(word)))
}

#[test]
fn llama_names_values_and_what_is_not_shown() {
    let model = floats(&[
        ("rope_freqs.weight", &[4]),
        ("token_embd.weight", &[32, 64]),
        ("blk.0.attn_q.weight", &[64, 64]),
        ("blk.0.attn_k.weight", &[32, 64]),
        ("blk.0.attn_k.bias", &[32]),
        ("blk.0.attn_v.weight", &[32, 64]),
        ("blk.0.mystery.weight", &[4]),
        ("output_norm.weight", &[64]),
    ]);
    let catalog = hf(&model, &facts("llama", 4, 2));
    assert_eq!(
        names(&model, &catalog),
        [
            "model.embed_tokens.weight",
            "model.layers.0.self_attn.q_proj.weight",
            "model.layers.0.self_attn.k_proj.weight",
            "model.layers.0.self_attn.k_proj.bias",
            "model.layers.0.self_attn.v_proj.weight",
            "blk.0.mystery.weight",
            "model.norm.weight",
        ]
    );
    let (q, k) = (Transform::RopeRows { heads: 4 }, Transform::RopeRows { heads: 2 });
    let none = Transform::None;
    assert_eq!(transforms(&model, &catalog), [none, q, k, k, none, none, none]);
    assert_eq!(catalog.targets(&model, 0), 0..0);
    assert_eq!(catalog.targets(&model, 7), 6..7);
    assert!(has_warning(&catalog, &["not shown: rope_freqs.weight"]));
    assert!(has_warning(&catalog, &["1 tensor of architecture llama", "blk.0.mystery.weight"]));
    assert_eq!(catalog.warnings().len(), 2, "{:?}", catalog.warnings());
    assert!(!names(&model, &catalog).contains(&"lm_head.weight".into()), "tied stays tied");
    assert_eq!((catalog.label(), catalog.in_force(), catalog.is_identity()), ("hf", true, false));
}

#[test]
fn a_name_is_not_given_where_the_values_cannot_be() {
    let model = floats(&[
        ("blk.0.attn_q.weight", &[60, 64]),
        ("blk.1.attn_q.weight", &[64, 64]),
        ("blk.2.attn_q.weight", &[]),
    ]);
    let kept = |facts: &ArchFacts| {
        let catalog = hf(&model, facts);
        let kept: Vec<bool> =
            names(&model, &catalog).iter().map(|name| name.starts_with("blk.")).collect();
        (kept, transforms(&model, &catalog), catalog.warnings().join("\n"))
    };
    let (names, transforms, warnings) = kept(&facts("llama", 32, 32));
    assert_eq!(names, [true, false, true]);
    let rope = |heads| Transform::RopeRows { heads };
    assert_eq!(transforms, [Transform::None, rope(32), Transform::None]);
    assert!(warnings.contains("blk.0.attn_q.weight has 60 rows, which are not pairs for 32 heads"));
    assert!(warnings.contains("blk.2.attn_q.weight has no rows"), "{warnings}");
    let (names, transforms, _) =
        kept(&ArchFacts { head_count: vec![2, 8, 8], ..facts("llama", 0, 0) });
    assert_eq!(names, [false, false, true]);
    assert_eq!(transforms, [rope(2), rope(8), Transform::None]);
    let (names, _, warnings) = kept(&ArchFacts { head_count: vec![], ..facts("llama", 0, 0) });
    assert_eq!(names, [true; 3]);
    assert!(warnings.contains("no head_count says how"), "{warnings}");
}

#[test]
fn values_that_no_type_or_byte_order_lets_be_computed_keep_their_names() {
    let entries: &[(&[u8], DType, &[u64])] = &[
        (b"output_norm.weight", DType::I32, &[8]),
        (b"blk.0.attn_norm.weight", DType::F16, &[8]),
        (b"blk.0.ffn_norm.weight", DType::Q5_0, &[32]),
        (b"blk.0.attn_k.weight", DType::Q8_0, &[32]),
    ];
    let mut model = model(Format::Gguf, entries);
    let catalog = hf(&model, &facts("gemma", 2, 2));
    let got = names(&model, &catalog);
    assert_eq!(got[0], "output_norm.weight");
    assert_eq!(got[2], "model.layers.0.post_attention_layernorm.weight");
    let norm = catalog.get(&model, 1);
    assert_eq!((norm.dtype, norm.stored, norm.nbytes), (DType::F32, DType::F16, 32));
    assert_eq!(norm.extent.len, 16);
    assert!(has_warning(&catalog, &["output_norm.weight is I32", "kept as stored"]));
    model.byte_order = crate::model::ByteOrder::Big;
    let catalog = hf(&model, &facts("gemma", 2, 2));
    assert_eq!(names(&model, &catalog)[2], "blk.0.ffn_norm.weight");
    assert!(has_warning(&catalog, &["Q5_0 of a big-endian file"]));
    // Half a block is no row.
    let catalog = hf(&model, &facts("llama", 2, 2));
    assert_eq!(names(&model, &catalog)[3], "blk.0.attn_k.weight");
    assert!(has_warning(&catalog, &["a row is no whole number of blocks"]));
}

#[test]
fn matrices_of_gpt2_are_transposed_and_nothing_else_is() {
    let entries: &[(&[u8], DType, &[u64])] = &[
        (b"blk.0.attn_qkv.weight", DType::F16, &[96, 32]),
        (b"blk.0.attn_qkv.bias", DType::F32, &[96]),
        (b"blk.0.ffn_up.weight", DType::Q8_0, &[64, 32]),
        (b"blk.1.ffn_up.weight", DType::F32, &[64]),
    ];
    let model = model(Format::Gguf, entries);
    let catalog = hf(&model, &facts("gpt2", 2, 2));
    let none = Transform::None;
    let wanted = [Transform::Transpose, none, Transform::Transpose, none];
    assert_eq!(transforms(&model, &catalog), wanted);
    let parts: Vec<_> = (0..4).map(|i| catalog.get(&model, i)).collect();
    assert_eq!((parts[0].dtype, parts[0].shape), (DType::F16, &[32, 96][..]));
    assert_eq!((parts[2].dtype, parts[2].shape), (DType::F32, &[32, 64][..]));
    assert_eq!((parts[2].nbytes, parts[2].extent.len), (32 * 64 * 4, 64 * 34));
    assert_eq!(parts[3].name, b"blk.1.ffn_up.weight");
}

#[test]
fn experts_are_slices_in_every_type() {
    let model = model(
        Format::Gguf,
        &[
            (b"blk.1.ffn_gate_inp.weight", DType::F32, &[4, 32]),
            (b"blk.1.ffn_up_exps.weight", DType::Q8_0, &[4, 8, 32]),
        ],
    );
    let facts = ArchFacts { expert_count: Some(4), ..facts("qwen3moe", 4, 4) };
    let catalog = hf(&model, &facts);
    assert_eq!(names(&model, &catalog)[0], "model.layers.1.mlp.gate.weight");
    for e in 0..4 {
        let part = catalog.get(&model, 1 + e);
        assert_eq!(
            std::str::from_utf8(part.name).unwrap(),
            format!("model.layers.1.mlp.experts.{e}.up_proj.weight")
        );
        assert_eq!((part.shape, part.dtype), ([8, 32].as_slice(), DType::Q8_0));
        let bytes = 8 * 34;
        assert_eq!(part.extent.offset, DATA_START + 4 * 32 * 4 + e as u64 * bytes);
        assert_eq!(part.extent.len, bytes);
    }
    let other = ArchFacts { expert_count: Some(8), ..facts };
    let catalog = hf(&model, &other);
    assert_eq!(names(&model, &catalog)[1], "blk.1.ffn_up_exps.weight");
    assert!(has_warning(&catalog, &["has 4 experts, the metadata says 8"]));
}

#[test]
fn mixtral_stacked_and_legacy_experts() {
    let model = floats(&[
        ("blk.0.ffn_gate_inp.weight", &[2, 8]),
        ("blk.0.ffn_gate_exps.weight", &[2, 4, 8]),
        ("blk.1.ffn_down.1.weight", &[8, 4]),
    ]);
    let catalog = hf(&model, &facts("llama", 2, 2));
    assert_eq!(
        names(&model, &catalog),
        [
            "model.layers.0.block_sparse_moe.gate.weight",
            "model.layers.0.block_sparse_moe.experts.0.w1.weight",
            "model.layers.0.block_sparse_moe.experts.1.w1.weight",
            "model.layers.1.block_sparse_moe.experts.1.w2.weight",
        ]
    );
}

#[test]
fn fused_gate_and_up_come_apart_per_expert() {
    let model = floats(&[("blk.0.ffn_gate_up_exps.weight", &[2, 6, 8])]);
    let catalog = hf(&model, &facts("qwen3moe", 4, 4));
    let prefix = "model.layers.0.mlp.experts";
    assert_eq!(
        names(&model, &catalog),
        [
            format!("{prefix}.0.gate_proj.weight"),
            format!("{prefix}.0.up_proj.weight"),
            format!("{prefix}.1.gate_proj.weight"),
            format!("{prefix}.1.up_proj.weight"),
        ]
    );
    for i in 0..4 {
        let part = catalog.get(&model, i);
        assert_eq!(part.shape, [3, 8]);
        assert_eq!(part.extent.offset, DATA_START + i as u64 * 96);
    }
    let odd = floats(&[("blk.0.ffn_gate_up_exps.weight", &[2, 5, 8])]);
    let catalog = hf(&odd, &facts("qwen3moe", 4, 4));
    assert_eq!(names(&odd, &catalog), ["blk.0.ffn_gate_up_exps.weight"]);
}

#[test]
fn fused_qkv_comes_apart_where_a_family_has_three() {
    let model = floats(&[("blk.2.attn_qkv.weight", &[64, 8]), ("blk.2.attn_qkv.bias", &[64])]);
    let catalog = hf(&model, &facts("llama", 4, 2));
    let parts: Vec<_> = (0..6).map(|i| catalog.get(&model, i)).collect();
    let shapes: Vec<&[u64]> = parts.iter().map(|p| p.shape).collect();
    assert_eq!(shapes, [&[32, 8][..], &[16, 8], &[16, 8], &[32], &[16], &[16]]);
    assert_eq!(parts[4].name, b"model.layers.2.self_attn.k_proj.bias");
    assert_eq!(parts[4].extent.offset, DATA_START + 64 * 8 * 4 + 32 * 4);
    let (q, k) = (Transform::RopeRows { heads: 4 }, Transform::RopeRows { heads: 2 });
    assert_eq!(transforms(&model, &catalog), [q, k, Transform::None, q, k, Transform::None]);
    // Heads that do not divide the rows, or none known: kept.
    for facts in [facts("llama", 5, 2), facts("llama", 0, 0)] {
        let catalog = hf(&model, &facts);
        assert_eq!(names(&model, &catalog), ["blk.2.attn_qkv.weight", "blk.2.attn_qkv.bias"]);
        assert!(has_warning(&catalog, &["blk.2.attn_qkv.weight", "kept as stored"]));
    }
    // A family that has it fused keeps it fused.
    let catalog = hf(&model, &facts("phi3", 4, 2));
    assert_eq!(names(&model, &catalog)[0], "model.layers.2.self_attn.qkv_proj.weight");
}

#[test]
fn shapes_that_no_converter_writes_are_kept_or_renamed_but_never_panic() {
    let model = floats(&[
        ("blk.0.attn_qkv.weight", &[]),
        ("blk.1.attn_qkv.weight", &[0, 8]),
        ("blk.0.attn_q.weight", &[]),
        ("blk.0.ffn_up_exps.weight", &[0, 4, 8]),
        ("blk.1.ffn_up_exps.weight", &[]),
        ("blk.0.ffn_gate_up_exps.weight", &[2, 4]),
        ("blk.1.ffn_gate_up_exps.weight", &[4]),
    ]);
    let catalog = hf(&model, &facts("llama", 4, 2));
    assert_eq!(
        names(&model, &catalog),
        [
            "blk.0.attn_qkv.weight",
            "blk.1.attn_qkv.weight",
            "blk.0.attn_q.weight",
            "blk.1.ffn_up_exps.weight",
            "model.layers.0.block_sparse_moe.experts.0.w1.weight",
            "model.layers.0.block_sparse_moe.experts.0.w3.weight",
            "model.layers.0.block_sparse_moe.experts.1.w1.weight",
            "model.layers.0.block_sparse_moe.experts.1.w3.weight",
            "blk.1.ffn_gate_up_exps.weight",
        ]
    );
    assert!(has_warning(&catalog, &["not shown: blk.0.ffn_up_exps.weight"]));
    let mamba = floats(&[("blk.0.ssm_conv1d.weight", &[]), ("blk.0.ssm_a", &[])]);
    assert_eq!(hf(&mamba, &facts("mamba2", 0, 0)).get(&mamba, 0).shape, [0u64; 0]);
}

#[test]
fn shapes_change_where_only_the_header_differs() {
    let model = floats(&[("blk.0.ffn_gate_inp_shexp.weight", &[8])]);
    assert_eq!(hf(&model, &facts("qwen2moe", 4, 4)).get(&model, 0).shape, [1, 8]);
    let model = floats(&[
        ("blk.0.ssm_conv1d.weight", &[8, 4]),
        ("blk.0.ssm_conv1d.bias", &[8]),
        ("blk.0.ssm_a", &[6, 1]),
        ("blk.0.ssm_norm.weight", &[2, 4]),
        ("blk.0.ssm_dt.bias", &[6]),
    ]);
    let catalog = hf(&model, &facts("mamba2", 0, 0));
    let shapes: Vec<&[u64]> = (0..5).map(|i| catalog.get(&model, i).shape).collect();
    assert_eq!(shapes, [&[8, 1, 4][..], &[8], &[6], &[8], &[6]]);
    assert_eq!(catalog.get(&model, 2).name, b"backbone.layers.0.mixer.A_log");
    assert_eq!(catalog.get(&model, 2).transform, Transform::LogNegated);
    assert_eq!(catalog.get(&model, 4).name, b"backbone.layers.0.mixer.dt_bias");
}

#[test]
fn norms_of_gemma_and_nemotron_are_off_by_one_but_not_their_biases() {
    let model = floats(&[
        ("output_norm.weight", &[8]),
        ("blk.0.attn_norm.weight", &[8]),
        ("blk.0.attn_norm.bias", &[8]),
        ("blk.0.attn_v.weight", &[8, 8]),
    ]);
    let (one, none) = (Transform::SubtractOne, Transform::None);
    for arch in ["gemma", "gemma2", "gemma3", "nemotron"] {
        let catalog = hf(&model, &facts(arch, 2, 2));
        assert_eq!(transforms(&model, &catalog), [one, one, none, none], "{arch}");
    }
    assert_eq!(transforms(&model, &hf(&model, &facts("llama", 2, 2))), [none; 4]);
}

#[test]
fn falcon_norms_and_rows_depend_on_its_kind() {
    let small = floats(&[("blk.0.attn_norm.weight", &[8]), ("blk.0.attn_qkv.weight", &[48, 8])]);
    let catalog = hf(&small, &facts("falcon", 4, 1));
    assert_eq!(names(&small, &catalog)[0], "transformer.h.0.input_layernorm.weight");
    assert_eq!(catalog.get(&small, 1).transform, Transform::None);
    let large = floats(&[
        ("blk.0.attn_norm.weight", &[8]),
        ("blk.0.attn_norm_2.weight", &[8]),
        ("blk.0.attn_qkv.weight", &[64, 8]),
    ]);
    let catalog = hf(&large, &facts("falcon", 4, 2));
    assert_eq!(
        names(&large, &catalog)[..2],
        ["transformer.h.0.ln_mlp.weight", "transformer.h.0.ln_attn.weight"]
    );
    assert_eq!(catalog.get(&large, 2).transform, Transform::Falcon { heads: 4, kv_heads: 2 });
}

#[test]
fn keys_and_values_of_deepseek_are_one_again() {
    let model = floats(&[
        ("blk.0.attn_k_b.weight", &[2, 4, 8]),
        ("blk.0.attn_v_b.weight", &[2, 6, 4]),
        ("blk.0.exp_probs_b.bias", &[4]),
        ("blk.1.attn_v_b.weight", &[2, 6, 4]),
        ("blk.2.attn_k_b.weight", &[2, 4, 8]),
        ("blk.2.attn_v_b.weight", &[2, 6, 5]),
        ("blk.3.attn_k_b.weight", &[2, 4, 8]),
        ("blk.3.attn_kv_b.weight", &[28, 4]),
        ("blk.3.attn_v_b.weight", &[2, 6, 4]),
    ]);
    let catalog = hf(&model, &facts("deepseek2", 2, 2));
    assert_eq!(
        names(&model, &catalog),
        [
            "model.layers.0.self_attn.kv_b_proj.weight",
            "model.layers.0.mlp.gate.e_score_correction_bias",
            "blk.1.attn_v_b.weight",
            "blk.2.attn_k_b.weight",
            "blk.2.attn_v_b.weight",
            "blk.3.attn_k_b.weight",
            "model.layers.3.self_attn.kv_b_proj.weight",
            "blk.3.attn_v_b.weight",
        ]
    );
    let whole = catalog.get(&model, 0);
    assert_eq!((whole.shape, whole.nbytes), (&[28, 4][..], 28 * 4 * 4));
    assert_eq!(whole.transform, Transform::HeadsJoined { other: 1 });
    assert_eq!((catalog.targets(&model, 1), catalog.shares(1)), (1..1, &[(1, 0)][..]));
    for why in ["there is no blk.1.attn_k_b", "do not fit", "has that whole"] {
        assert!(has_warning(&catalog, &["self_attn.kv_b_proj", why]), "{:?}", catalog.warnings());
    }
    assert!(!catalog.warnings().iter().any(|w| w.contains("not shown")));
}

#[test]
fn experts_of_gpt_oss_have_the_published_layout_or_that_of_values() {
    let build = |dtype: DType| {
        let entries: &[(&[u8], DType, &[u64])] = &[
            (b"blk.0.ffn_down_exps.bias", DType::F32, &[2, 64]),
            (b"blk.0.ffn_down_exps.weight", dtype, &[2, 64, 32]),
            (b"blk.0.ffn_gate_exps.bias", DType::F32, &[2, 32]),
            (b"blk.0.ffn_gate_exps.weight", dtype, &[2, 32, 64]),
            (b"blk.0.ffn_up_exps.bias", DType::F32, &[2, 32]),
            (b"blk.0.ffn_up_exps.weight", dtype, &[2, 32, 64]),
        ];
        model(Format::Gguf, entries)
    };
    let listed = |model: &Model| {
        let catalog = hf(model, &facts("gpt-oss", 2, 2));
        assert_eq!(catalog.warnings(), [""; 0]);
        let line = |i| {
            let m = catalog.get(model, i);
            let name = String::from_utf8_lossy(m.name).replace("model.layers.0.mlp.experts.", "");
            format!("{name} {} {:?} {}", m.dtype, m.shape, m.nbytes)
        };
        (0..catalog.len(model)).map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        listed(&build(DType::MXFP4)),
        [
            "down_proj_bias F32 [2, 64] 512",
            "down_proj_blocks U8 [2, 64, 1, 16] 2048",
            "down_proj_scales U8 [2, 64, 1] 128",
            "gate_up_proj_bias F32 [2, 64] 512",
            "gate_up_proj_blocks U8 [2, 64, 2, 16] 4096",
            "gate_up_proj_scales U8 [2, 64, 2] 256",
        ]
    );
    assert_eq!(
        listed(&build(DType::F16))[1..],
        [
            "down_proj F16 [2, 32, 64] 8192",
            "gate_up_proj_bias F32 [2, 64] 512",
            "gate_up_proj F16 [2, 64, 64] 16384",
        ]
    );
    assert_eq!(listed(&build(DType::Q8_0))[3], "gate_up_proj F32 [2, 64, 64] 32768");
}

#[test]
fn joined_tensors_stand_in_the_document_with_their_first_part() {
    let model = floats(&[
        ("blk.0.attn_k_b.weight", &[2, 4, 8]),
        ("blk.0.attn_v_b.weight", &[2, 6, 4]),
        ("output_norm.weight", &[4]),
    ]);
    let catalog = hf(&model, &facts("deepseek2", 2, 2));
    let mut text = Vec::new();
    MapDocument::new(&model, &catalog, None).unwrap().write(&mut text).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["values"], "hf");
    assert_eq!(
        json["pairs"],
        serde_json::json!({
            "blk.0.attn_k_b.weight": "model.layers.0.self_attn.kv_b_proj.weight",
            "blk.0.attn_v_b.weight": null,
            "output_norm.weight": "model.norm.weight",
        })
    );
    let rows: Vec<_> = crate::naming::map_rows(&model, &catalog)
        .map(|row| row.mounted.map(|m| m.name.to_vec()))
        .collect();
    assert_eq!(rows[0], rows[1]);
    assert_eq!(rows.len(), 3);
}

#[test]
fn scales_of_known_weights_are_not_shown() {
    let model = floats(&[("blk.0.attn_q.scale", &[1]), ("blk.0.other.scale", &[1])]);
    let catalog = hf(&model, &facts("qwen2", 2, 2));
    assert_eq!(names(&model, &catalog), ["blk.0.other.scale"]);
}

#[test]
fn an_architecture_without_a_table_keeps_all_names() {
    let model = floats(&[("token_embd.weight", &[8, 8]), ("rope_freqs.weight", &[4])]);
    for facts in [facts("martian", 2, 2), ArchFacts::default()] {
        let catalog = hf(&model, &facts);
        assert!(catalog.is_identity() && catalog.in_force());
        assert!(has_warning(&catalog, &["ALL names are kept"]));
        assert_eq!(catalog.len(&model), 2);
    }
}

#[test]
fn numbers_of_layers_are_canonical_and_unbounded() {
    let model = named(
        Format::Gguf,
        &["blk.007.attn_v.weight", "blk.99999999999999999999.attn_v.weight", "blk.a.attn_v.weight"],
    );
    let catalog = hf(&model, &facts("llama", 2, 2));
    assert_eq!(
        names(&model, &catalog),
        [
            "blk.007.attn_v.weight",
            "model.layers.99999999999999999999.self_attn.v_proj.weight",
            "blk.a.attn_v.weight"
        ]
    );
}

#[test]
fn a_stored_name_that_is_a_target_collides() {
    let model = named(Format::Gguf, &["model.norm.weight", "output_norm.weight"]);
    let error = Catalog::build(&model, &facts("llama", 2, 2), &[MapSpec::Hf]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "map hf: E_COLLISION model.norm.weight <- output_norm.weight (table of llama), \
         model.norm.weight (kept)"
    );
}

#[test]
fn the_document_reads_back_to_the_same_names_and_slices() {
    let model = floats(&[
        ("rope_freqs.weight", &[4]),
        ("token_embd.weight", &[8, 8]),
        ("blk.0.attn_qkv.weight", &[16, 8]),
        ("blk.0.ffn_gate_inp.weight", &[2, 8]),
        ("blk.0.ffn_up_exps.weight", &[2, 4, 8]),
        ("blk.1.ffn_gate_up_exps.weight", &[2, 4, 8]),
        ("strange/../name", &[4]),
    ]);
    let catalog = hf(&model, &facts("llama", 4, 2));
    let mut text = Vec::new();
    MapDocument::new(&model, &catalog, None).unwrap().write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.starts_with("{\n  \"weightfs_map\": 1,\n  \"unmapped\": \"keep\",\n  \"values\": \"hf\",\n  \"pairs\": {\n")
    );
    assert!(text.ends_with("}\n"));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["pairs"]["rope_freqs.weight"], serde_json::Value::Null);
    assert_eq!(json["pairs"]["token_embd.weight"], "model.embed_tokens.weight");
    assert_eq!(
        json["pairs"]["blk.0.ffn_up_exps.weight"],
        serde_json::json!([
            "model.layers.0.block_sparse_moe.experts.0.w3.weight",
            "model.layers.0.block_sparse_moe.experts.1.w3.weight"
        ])
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let stage = MapSpec::File(file.path().into());
    let again = Catalog::build(&model, &facts("llama", 4, 2), &[stage]).unwrap();
    assert_eq!(names(&model, &again), names(&model, &catalog));
    for i in 0..catalog.len(&model) {
        let (a, b) = (catalog.get(&model, i), again.get(&model, i));
        assert_eq!((a.shape, a.extent, a.source), (b.shape, b.extent, b.source));
        assert_eq!(a.transform, b.transform);
    }
}

#[test]
fn a_split_of_rows_still_out_of_order_is_refused() {
    let model = floats(&[("blk.0.attn_q.weight", &[8, 8])]);
    let map = r#"{"weightfs_map":1,"rules":[{"from":"{rest}","to":"r.{e}","split":"e"}]}"#;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), map).unwrap();
    let stages = [MapSpec::Hf, MapSpec::File(file.path().into())];
    let error = Catalog::build(&model, &facts("llama", 2, 2), &stages).unwrap_err();
    assert!(error.to_string().contains("unpermute_rope"), "{error}");
}

#[test]
fn the_format_that_has_the_names_already_is_left_alone() {
    let st = named(Format::Safetensors, &["model.norm.weight"]);
    let catalog = hf(&st, &ArchFacts::default());
    assert!(catalog.is_identity() && catalog.in_force());
    assert!(has_warning(&catalog, &["has Hugging Face names already"]));
    let none = Catalog::build(&st, &ArchFacts::default(), &[MapSpec::None]).unwrap();
    assert_eq!((none.label(), none.in_force(), none.warnings().len()), ("none", false, 0));
}
