//! The steps of `like=` as wholes, and the way back through a map file.

mod values;

use super::super::testing::{assert_not_quadratic, by_files, floats, model, names};
use super::*;
use crate::dtype::DType;
use crate::naming::{Catalog, MapDocument, MapSpec};

/// A llama of one layer as converters write it: stored names and shapes.
const LLAMA: &[(&str, &[u64])] = &[
    ("token_embd.weight", &[32, 16]),
    ("output_norm.weight", &[16]),
    ("blk.0.attn_norm.weight", &[16]),
    ("blk.0.attn_q.weight", &[16, 16]),
    ("blk.0.attn_k.weight", &[8, 16]),
    ("blk.0.attn_v.weight", &[8, 16]),
    ("blk.0.attn_output.weight", &[16, 16]),
    ("blk.0.ffn_norm.weight", &[16]),
    ("blk.0.ffn_gate.weight", &[24, 16]),
    ("blk.0.ffn_up.weight", &[24, 16]),
    ("blk.0.ffn_down.weight", &[16, 24]),
    ("rope_freqs.weight", &[4]),
];

/// The same as a checkpoint, without `model.`.
const CHECKPOINT: &[(&str, &[u64])] = &[
    ("embed_tokens.weight", &[32, 16]),
    ("layers.0.input_layernorm.weight", &[16]),
    ("layers.0.mlp.down_proj.weight", &[16, 24]),
    ("layers.0.mlp.gate_proj.weight", &[24, 16]),
    ("layers.0.mlp.up_proj.weight", &[24, 16]),
    ("layers.0.post_attention_layernorm.weight", &[16]),
    ("layers.0.self_attn.k_proj.weight", &[8, 16]),
    ("layers.0.self_attn.o_proj.weight", &[16, 16]),
    ("layers.0.self_attn.q_proj.weight", &[16, 16]),
    ("layers.0.self_attn.v_proj.weight", &[8, 16]),
    ("norm.weight", &[16]),
];

fn facts() -> ArchFacts {
    ArchFacts {
        architecture: Some("llama".into()),
        head_count: vec![4],
        head_count_kv: vec![2],
        ..ArchFacts::default()
    }
}

fn checkpoint(prefix: &str, more: &[(&str, &[u64])]) -> Model {
    let named = CHECKPOINT.iter().map(|(name, shape)| (format!("{prefix}{name}"), *shape));
    let more = more.iter().map(|(name, shape)| ((*name).to_owned(), *shape));
    let all: Vec<(String, &[u64])> = named.chain(more).collect();
    safetensors(&all.iter().map(|(n, s)| (n.as_str(), *s)).collect::<Vec<_>>())
}

fn safetensors(tensors: &[(&str, &[u64])]) -> Model {
    let tensors: Vec<_> = tensors.iter().map(|(n, s)| (n.as_bytes(), DType::F32, *s)).collect();
    model(Format::Safetensors, &tensors)
}

fn like(model: &Model, stages: &[MapSpec], reference: &Model) -> (Catalog, Likeness) {
    let reference = Reference { label: "r", model: reference };
    let (catalog, likeness) =
        Catalog::build_like(model, &facts(), stages, Some(reference)).unwrap();
    (catalog, likeness.unwrap())
}

fn texts(names: &[Box<[u8]>]) -> Vec<String> {
    names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect()
}

/// The map as a document, and the catalog that it gives when it is read.
fn again(model: &Model, catalog: &Catalog, likeness: &Likeness) -> (serde_json::Value, Catalog) {
    let mut text = Vec::new();
    MapDocument::new(model, catalog, Some(likeness)).unwrap().write(&mut text).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let read = Catalog::build(model, &facts(), &[MapSpec::File(file.path().into())]).unwrap();
    (serde_json::from_slice(&text).unwrap(), read)
}

/// Everything that a reader of the mount sees of two catalogs.
fn assert_same(model: &Model, a: &Catalog, b: &Catalog) {
    assert_eq!(names(model, a), names(model, b));
    for i in 0..a.len(model) {
        let (a, b) = (a.get(model, i), b.get(model, i));
        assert_eq!((a.source, a.shape, a.extent), (b.source, b.shape, b.extent));
        assert_eq!(a.transform, b.transform, "{}", String::from_utf8_lossy(a.name));
    }
    for source in 0..index_u32(model.tensors.len()) {
        assert_eq!(a.targets(model, source), b.targets(model, source));
    }
}

#[test]
fn a_gguf_gets_the_names_and_values_of_the_checkpoint() {
    let source = floats(LLAMA);
    for prefix in ["model.", "model.language_model.", "", "_orig_mod.module.model."] {
        let reference = checkpoint(prefix, &[]);
        let (catalog, likeness) = like(&source, &[], &reference);
        let mut got = names(&source, &catalog);
        got.sort_unstable();
        let mut want: Vec<String> =
            CHECKPOINT.iter().map(|(name, _)| format!("{prefix}{name}")).collect();
        want.sort_unstable();
        assert_eq!(got, want);
        let q = catalog.get(&source, 3);
        assert_eq!(q.name, format!("{prefix}layers.0.self_attn.q_proj.weight").as_bytes());
        assert_eq!(q.transform, Transform::RopeRows { heads: 4 });
        assert!(likeness.check().is_ok());
        assert_eq!(likeness.matched.len(), 11);
        let rest = [&likeness.unmatched_source, &likeness.unmatched_reference];
        assert!(rest.iter().all(|list| list.is_empty()), "{rest:?}");
        let (json, read) = again(&source, &catalog, &likeness);
        assert_eq!(json["values"], "hf");
        assert_eq!(json["pairs"]["rope_freqs.weight"], serde_json::Value::Null);
        assert_eq!(json["unmatched_reference"], serde_json::json!([]));
        assert_eq!(json["matched"].as_array().unwrap().len(), 11);
        assert_same(&source, &catalog, &read);
    }
}

#[test]
fn a_tied_head_is_not_missing_and_one_more_here_is_kept() {
    let source = floats(LLAMA);
    let with_head = checkpoint("model.", &[("lm_head.weight", &[32, 16])]);
    let (catalog, likeness) = like(&source, &[], &with_head);
    assert!(likeness.check().is_ok());
    assert_eq!(texts(&likeness.tied), ["lm_head.weight"]);
    assert!(!names(&source, &catalog).contains(&"lm_head.weight".into()));
    // The head is here, and the reference has none.
    let mut own = LLAMA.to_vec();
    own.push(("output.weight", &[32, 16]));
    let source = floats(&own);
    let (catalog, likeness) = like(&source, &[], &with_head);
    assert!(likeness.check().is_ok() && likeness.tied.is_empty());
    assert!(names(&source, &catalog).contains(&"lm_head.weight".into()));
    let (catalog, likeness) = like(&source, &[], &checkpoint("model.", &[]));
    assert!(likeness.check().is_ok());
    assert_eq!(texts(&likeness.unmatched_source), ["output.weight"]);
    assert!(names(&source, &catalog).contains(&"output.weight".into()));
    assert!(catalog.warnings().iter().any(|w| w.contains("names kept: output.weight")));
    let (json, read) = again(&source, &catalog, &likeness);
    assert_eq!(json["pairs"]["output.weight"], "output.weight");
    assert_same(&source, &catalog, &read);
}

#[test]
fn what_the_reference_alone_has_fails_the_mount_unless_nothing_can_give_it() {
    let source = floats(LLAMA);
    let reference = checkpoint(
        "model.",
        &[
            ("model.layers.0.self_attn.rotary_emb.inv_freq", &[2]),
            ("model.layers.1.eh_proj.weight", &[16, 32]),
            ("model.layers.1.mlp.up_proj.weight", &[24, 16]),
            ("pooler.dense.weight", &[16, 16]),
        ],
    );
    let (catalog, likeness) = like(&source, &[], &reference);
    assert!(likeness.check().is_ok());
    assert_eq!(likeness.not_restorable.len(), 4);
    assert!(catalog.warnings().iter().any(|w| w.contains("cannot give: ") && w.contains("pooler")));
    let reference = checkpoint("model.", &[("model.layers.1.mlp.up_proj.weight", &[24, 16])]);
    let (_, likeness) = like(&source, &[], &reference);
    assert_eq!(texts(&likeness.unmatched_reference), ["model.layers.1.mlp.up_proj.weight"]);
    let error = likeness.check().unwrap_err().to_string();
    assert!(error.contains("E_UNMATCHED 1 name of the reference"), "{error}");
}

#[test]
fn shapes_of_matched_names_must_agree() {
    let mut reference = checkpoint("model.", &[]);
    reference.tensors[2].shape = [16, 25].into();
    let source = floats(LLAMA);
    let (_, likeness) = like(&source, &[], &reference);
    let [wrong] = &*likeness.shape_mismatch else { panic!("{likeness:?}") };
    assert_eq!(*wrong.source, *b"blk.0.ffn_down.weight");
    assert_eq!(*wrong.reference, *b"model.layers.0.mlp.down_proj.weight");
    assert_eq!(
        (&*wrong.source_shape, &*wrong.reference_shape),
        ([16, 24].as_slice(), [16, 25].as_slice())
    );
    assert!(likeness.unmatched_reference.is_empty());
    let error = likeness.check().unwrap_err().to_string();
    assert!(error.contains("E_SHAPE") && error.contains("[16, 24]"), "{error}");
    // Behind a change of prefix one shape refuses the change.
    let source = safetensors(&[("m.a.w", &[4]), ("m.b.w", &[4])]);
    let reference = safetensors(&[("a.w", &[4]), ("b.w", &[5])]);
    let (catalog, likeness) = like(&source, &[], &reference);
    assert_eq!(names(&source, &catalog), ["m.a.w", "m.b.w"]);
    assert_eq!(likeness.shape_mismatch.len(), 1);
    assert!(likeness.check().is_err());
}

#[test]
fn square_matrices_stay_unmatched_and_are_named() {
    let layer = |names: [&str; 4]| -> Model {
        let all: Vec<String> = names.iter().map(|n| format!("h.0.{n}")).collect();
        safetensors(&all.iter().map(|n| (n.as_str(), [16, 16].as_slice())).collect::<Vec<_>>())
    };
    let source = layer(["q", "k", "v", "o"]);
    let reference = layer(["query", "key", "value", "dense"]);
    let (catalog, likeness) = like(&source, &[], &reference);
    assert!(catalog.is_identity() && catalog.in_force());
    assert_eq!(texts(&likeness.unmatched_source), ["h.0.q", "h.0.k", "h.0.v", "h.0.o"]);
    assert_eq!(likeness.unmatched_reference.len(), 4);
    assert!(
        likeness.notes[0].contains("h.{}.k, h.{}.o, h.{}.q, h.{}.v | h.{}.dense"),
        "{likeness:?}"
    );
}

#[test]
fn renamed_layers_of_a_fine_tune() {
    let source = safetensors(&[
        ("net.blocks.0.up", &[8, 4]),
        ("net.blocks.0.down", &[4, 8]),
        ("net.blocks.1.up", &[8, 4]),
        ("net.blocks.1.down", &[4, 8]),
        ("net.table", &[9, 4]),
    ]);
    let reference = safetensors(&[
        ("model.layers.0.fc1", &[8, 4]),
        ("model.layers.0.fc2", &[4, 8]),
        ("model.layers.1.fc1", &[8, 4]),
        ("model.layers.1.fc2", &[4, 8]),
        ("model.embed", &[9, 4]),
    ]);
    let (catalog, likeness) = like(&source, &[], &reference);
    assert!(likeness.check().is_ok(), "{likeness:?}");
    assert_eq!(
        names(&source, &catalog),
        [
            "model.layers.0.fc1",
            "model.layers.0.fc2",
            "model.layers.1.fc1",
            "model.layers.1.fc2",
            "model.embed"
        ]
    );
    let (json, read) = again(&source, &catalog, &likeness);
    assert_eq!(json.get("values"), None);
    assert_same(&source, &catalog, &read);
}

#[test]
fn two_changes_of_prefix_and_no_third() {
    let source = safetensors(&[
        ("language_model.model.a.w", &[4]),
        ("language_model.model.b.w", &[4]),
        ("vision_tower.c.w", &[4]),
    ]);
    let reference = safetensors(&[
        ("model.language_model.a.w", &[4]),
        ("model.language_model.b.w", &[4]),
        ("model.vision_tower.c.w", &[4]),
    ]);
    let (catalog, likeness) = like(&source, &[], &reference);
    assert!(likeness.check().is_ok(), "{likeness:?}");
    let want: Vec<String> =
        reference.tensors.iter().map(|t| String::from_utf8_lossy(&t.name).into_owned()).collect();
    assert_eq!(names(&source, &catalog), want);
}

#[test]
fn like_comes_behind_the_stages_of_map() {
    let source = floats(LLAMA);
    let reference = checkpoint("model.language_model.", &[]);
    let (catalog, likeness) = like(&source, &[MapSpec::Hf], &reference);
    assert!(likeness.check().is_ok(), "{likeness:?}");
    let q = catalog.get(&source, 3);
    assert_eq!(q.name, b"model.language_model.layers.0.self_attn.q_proj.weight");
    assert_eq!(q.transform, Transform::RopeRows { heads: 4 });
    assert_eq!(catalog.label(), "hf,like=r");
    let (json, read) = again(&source, &catalog, &likeness);
    assert_eq!(json["values"], "hf");
    assert_same(&source, &catalog, &read);
}

#[test]
fn gguf_names_from_a_gguf() {
    let reference = floats(&LLAMA[..11]);
    let mut source = checkpoint("model.", &[]);
    let (catalog, likeness) = like(&source, &[], &reference);
    assert!(likeness.check().is_ok(), "{likeness:?}");
    let mut got = names(&source, &catalog);
    got.sort_unstable();
    let mut want: Vec<String> = LLAMA[..11].iter().map(|(n, _)| (*n).to_owned()).collect();
    want.sort_unstable();
    assert_eq!(got, want);
    assert!((0..11).all(|i| catalog.get(&source, i).transform == Transform::None));
    // rope_freqs is nothing that a checkpoint could give.
    let (_, likeness) = like(&source, &[], &floats(LLAMA));
    assert_eq!(texts(&likeness.not_restorable), ["rope_freqs.weight"]);
    assert!(likeness.check().is_ok());
    source.tensors.truncate(5);
    let (_, likeness) = like(&source, &[], &reference);
    assert_eq!(likeness.unmatched_reference.len(), 6);
}

#[test]
fn a_gguf_like_a_gguf_needs_no_table() {
    let source = floats(LLAMA);
    let (catalog, likeness) = like(&source, &[], &source);
    assert!(catalog.is_identity());
    assert_eq!(likeness.matched.len(), 12);
    assert!(likeness.check().is_ok());
}

#[test]
fn all_experts_are_found_or_the_stack_stays() {
    let source =
        floats(&[("blk.0.ffn_up_exps.weight", &[2, 8, 4]), ("token_embd.weight", &[9, 4])]);
    let both = [
        ("m.layers.0.block_sparse_moe.experts.0.w3.weight", [8u64, 4].as_slice()),
        ("m.layers.0.block_sparse_moe.experts.1.w3.weight", &[8, 4]),
        ("m.embed_tokens.weight", &[9, 4]),
    ];
    let (catalog, likeness) = like(&source, &[], &safetensors(&both));
    assert!(likeness.check().is_ok(), "{likeness:?}");
    assert_eq!(
        names(&source, &catalog),
        [
            "m.layers.0.block_sparse_moe.experts.0.w3.weight",
            "m.layers.0.block_sparse_moe.experts.1.w3.weight",
            "m.embed_tokens.weight"
        ]
    );
    let (json, read) = again(&source, &catalog, &likeness);
    assert_eq!(json["pairs"]["blk.0.ffn_up_exps.weight"].as_array().unwrap().len(), 2);
    assert_same(&source, &catalog, &read);
    let (catalog, likeness) = like(&source, &[], &safetensors(&both[1..]));
    assert_eq!(names(&source, &catalog), ["blk.0.ffn_up_exps.weight", "m.embed_tokens.weight"]);
    assert_eq!(texts(&likeness.unmatched_source), ["blk.0.ffn_up_exps.weight"]);
    assert_eq!(likeness.unmatched_reference.len(), 1);
}

#[test]
fn names_that_no_map_may_give_are_taken_from_nobody() {
    let reference = model(
        Format::Safetensors,
        &[(b"x/y".as_slice(), DType::F32, &[4]), (b"p/q", DType::F32, &[7])],
    );
    let source = safetensors(&[("a", &[4]), ("p/q", &[7])]);
    let (catalog, likeness) = like(&source, &[], &reference);
    assert!(catalog.is_identity());
    assert_eq!(texts(&likeness.matched), ["p/q"]);
    assert_eq!(texts(&likeness.unmatched_reference), ["x/y"]);
}

#[test]
fn an_unknown_architecture_is_matched_by_names_alone() {
    let source = floats(&[("m.blk.0.a", &[4]), ("m.blk.1.a", &[4])]);
    let reference = safetensors(&[("blk.0.a", &[4]), ("blk.1.a", &[4])]);
    let unknown = ArchFacts { architecture: Some("martian".into()), ..ArchFacts::default() };
    let like = Reference { label: "r", model: &reference };
    let (catalog, likeness) = Catalog::build_like(&source, &unknown, &[], Some(like)).unwrap();
    assert!(likeness.unwrap().check().is_ok());
    assert_eq!(names(&source, &catalog), ["blk.0.a", "blk.1.a"]);
}

#[test]
fn rows_that_converters_cut_are_told() {
    let facts = ArchFacts { architecture: Some("gemma3".into()), ..ArchFacts::default() };
    let source = floats(&[("token_embd.weight", &[32, 16]), ("output_norm.weight", &[16])]);
    let reference =
        safetensors(&[("model.embed_tokens.weight", &[40, 16]), ("model.norm.weight", &[16])]);
    let like = Reference { label: "r", model: &reference };
    let (catalog, likeness) = Catalog::build_like(&source, &facts, &[], Some(like)).unwrap();
    assert!(likeness.unwrap().check().is_ok());
    assert_eq!(names(&source, &catalog), ["model.embed_tokens.weight", "model.norm.weight"]);
    assert!(catalog.warnings().iter().any(|w| w.contains("fewer rows")));
}

#[test]
fn what_a_printed_map_tells_beside_its_pairs_is_read_over() {
    let source = floats(&[("a", &[4])]);
    let map = r#"{"weightfs_map":1,"pairs":{"a":"b"},"matched":["b"],"unmatched_source":[],
        "unmatched_reference":["x"],"shape_mismatch":[{"source":"q"}],"tied":[],"not_restorable":7,"cut":null}"#;
    assert_eq!(names(&source, &by_files(&source, &[map]).unwrap()), ["b"]);
}

#[test]
fn many_names_are_matched_in_no_quadratic_time() {
    let names = |prefix: &str, count: usize| -> Vec<String> {
        (0..count)
            .map(|i| format!("{prefix}layers.{}.experts.{}.w1.weight", i / 100, i % 100))
            .collect()
    };
    let model = |names: &[String]| {
        safetensors(&names.iter().map(|n| (n.as_str(), [4].as_slice())).collect::<Vec<_>>())
    };
    assert_not_quadratic(5000, |count| {
        let (source, reference) =
            (model(&names("_orig_mod.", count)), model(&names("model.", count)));
        let (_, likeness) = like(&source, &[], &reference);
        assert_eq!(likeness.matched.len(), count);
    });
}

#[test]
fn cut_rows_hinder_no_change_of_prefix() {
    let facts = ArchFacts { architecture: Some("gemma3".into()), ..ArchFacts::default() };
    let source = floats(&[("token_embd.weight", &[32, 16]), ("output_norm.weight", &[16])]);
    let reference = safetensors(&[
        ("model.language_model.embed_tokens.weight", &[40, 16]),
        ("model.language_model.norm.weight", &[16]),
    ]);
    let like = Reference { label: "r", model: &reference };
    for stages in [vec![], vec![MapSpec::Hf]] {
        let (catalog, likeness) =
            Catalog::build_like(&source, &facts, &stages, Some(like)).unwrap();
        let likeness = likeness.unwrap();
        assert!(likeness.check().is_ok(), "{likeness:?}");
        assert_eq!(texts(&likeness.cut), ["model.language_model.embed_tokens.weight"]);
        assert!(catalog.get(&source, 0).name.ends_with(b"language_model.embed_tokens.weight"));
    }
}
