//! Worked examples of each kind of rule, and the ways in which a file can be wrong.

use super::super::testing::{DATA_START, by_files, floats, model, names};
use super::*;
use crate::dtype::DType;
use crate::model::{Format, Model};
use crate::naming::{Catalog, StemIndex};

const V: &str = r#"{"weightfs_map": 1, "rules": [
    {"from": "blk.{i}.attn_v.weight", "to": "model.layers.{i}.self_attn.v_proj.weight"}]}"#;

/// Vectors with these names.
fn vectors(names: &[&str]) -> Model {
    floats(&names.iter().map(|n| (*n, [4u64].as_slice())).collect::<Vec<_>>())
}

fn mapped(map: &str, source: &[&str]) -> Vec<String> {
    let model = vectors(source);
    names(&model, &by_files(&model, &[map]).unwrap())
}

/// Code, place and text.
type Found = (Code, Option<(usize, usize)>, String);

/// Each problem.
fn problems(map: &str, model: &Model) -> Vec<Found> {
    let error = by_files(model, &[map]).unwrap_err();
    error.problems().iter().map(|p| (p.code, p.place, p.text.clone())).collect()
}

/// The only problem.
fn problem(map: &str, source: &[&str]) -> Found {
    let mut all = problems(map, &vectors(source));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn pairs(pairs: &str) -> String {
    format!(r#"{{"weightfs_map":1,"pairs":{{{pairs}}}}}"#)
}

fn rules(rules: &str) -> String {
    format!(r#"{{"weightfs_map":1,"rules":[{rules}]}}"#)
}

#[test]
fn example_1_a_template_renames() {
    let got = mapped(V, &["blk.12.attn_v.weight"]);
    assert_eq!(got, ["model.layers.12.self_attn.v_proj.weight"]);
}

#[test]
fn example_2_a_leading_zero_is_no_number() {
    assert_eq!(mapped(V, &["blk.012.attn_v.weight"]), ["blk.012.attn_v.weight"]);
}

#[test]
fn example_3_experts_are_slices_without_a_copy() {
    let map = rules(
        r#"{"from": "blk.{i}.ffn_up_exps.weight", "to": "model.layers.{i}.mlp.experts.{e}.up_proj.weight", "split": "e"}"#,
    );
    let model = floats(&[("a", &[3]), ("blk.3.ffn_up_exps.weight", &[8, 14336, 4096])]);
    let catalog = by_files(&model, &[&map]).unwrap();
    assert_eq!(catalog.len(&model), 9);
    assert_eq!(catalog.targets(&model, 0), 0..1);
    assert_eq!(catalog.targets(&model, 1), 1..9);
    let bytes = 14336 * 4096 * 4;
    for e in 0..8 {
        let part = catalog.get(&model, 1 + e);
        let name = format!("model.layers.3.mlp.experts.{e}.up_proj.weight");
        assert_eq!(part.name, name.as_bytes());
        assert_eq!(part.shape, [14336, 4096]);
        assert_eq!(part.extent.offset, DATA_START + 12 + e as u64 * bytes);
        assert_eq!(part.extent.len, bytes);
        assert_eq!(part.source, 1);
    }
}

#[test]
fn example_4_one_rule_fires_and_stages_chain() {
    let strip = rules(r#"{"regex": "_orig_mod\\.(.+)", "to": "${1}"}"#);
    let source = "_orig_mod.module.x.weight";
    assert_eq!(mapped(&strip, &[source]), ["module.x.weight"]);
    let module = rules(r#"{"from": "module.{rest}", "to": "{rest}"}"#);
    let model = vectors(&[source]);
    let catalog = by_files(&model, &[&strip, &module]).unwrap();
    assert_eq!(names(&model, &catalog), ["x.weight"]);
    assert_eq!(catalog.label().split(',').count(), 2);
}

#[test]
fn example_5_the_first_match_wins_and_a_shadowed_rule_is_said() {
    let map = rules(r#"{"from": "a.{rest}", "to": "b.{rest}"}, {"from": "a.x", "to": "c.x"}"#);
    let model = vectors(&["a.x"]);
    let catalog = by_files(&model, &[&map]).unwrap();
    assert_eq!(names(&model, &catalog), ["b.x"]);
    let [warning] = catalog.warnings() else { panic!("{:?}", catalog.warnings()) };
    assert!(warning.ends_with("rule 2 is shadowed: rule 1 took a.x before it"), "{warning}");
}

#[test]
fn example_6_a_swap_is_legal() {
    assert_eq!(mapped(&pairs(r#""a": "b", "b": "a""#), &["a", "b"]), ["b", "a"]);
}

#[test]
fn example_7_two_sources_for_one_target() {
    let (code, _, text) = problem(&pairs(r#""a": "t", "b": "t""#), &["a", "b"]);
    assert_eq!((code, text.as_str()), (Code::Collision, "t <- a (pairs), b (pairs)"));
}

#[test]
fn example_8_a_kept_name_collides_too() {
    let (code, _, text) = problem(&pairs(r#""a": "b""#), &["b", "a"]);
    assert_eq!((code, text.as_str()), (Code::Collision, "b <- a (pairs), b (kept)"));
}

#[test]
fn example_9_unsafe_targets() {
    for bad in
        ["../x", "x/y", "", ".", "..", "__metadata__", "a\\\\b", "a\\u0000", "a\\n", "\\u007f"]
    {
        let (code, place, text) = problem(&pairs(&format!(r#""a": "{bad}""#)), &["a"]);
        assert_eq!((code, place), (Code::Target, Some((1, 33))), "{bad}");
        assert!(text.starts_with("a -> ") && text.contains("(pairs): the target "), "{text}");
        let (code, _, text) = problem(&rules(&format!(r#"{{"from":"a","to":"{bad}"}}"#)), &["a"]);
        assert_eq!(code, Code::Target);
        assert!(text.starts_with("rule 1: a -> "), "{text}");
    }
}

#[test]
fn example_10_an_unbound_placeholder_is_found_at_load() {
    let map = rules(r#"{"from": "blk.{i}.x", "to": "l.{k}.x"}"#);
    let (code, place, text) = problem(&map, &["other"]);
    assert_eq!((code, place), (Code::Placeholder, Some((1, 28))));
    assert!(text.starts_with("rule 1: k unbound"), "{text}");
}

#[test]
fn example_11_look_around_is_refused_with_a_hint() {
    let (code, _, text) = problem(&rules(r#"{"regex": "^model(?!\\.visual)", "to": "x"}"#), &["a"]);
    assert_eq!(code, Code::Regex);
    assert!(text.contains("look-around") && text.contains("earlier rule"), "{text}");
}

#[test]
fn example_12_split_needs_two_dimensions() {
    let map = rules(r#"{"from": "a", "to": "a.{e}", "split": "e"}"#);
    let (code, _, text) = problem(&map, &["a"]);
    assert_eq!(code, Code::Split);
    assert!(text.contains("needs >= 2 dims"), "{text}");
    let scalar = floats(&[("a", &[])]);
    assert_eq!(problems(&map, &scalar)[0].0, Code::Split);
}

#[test]
fn example_13_unmapped_error_lists_all_names() {
    let map = r#"{"weightfs_map":1,"unmapped":"error","pairs":{"a":"b"}}"#;
    let (code, _, text) = problem(map, &["a", "rope_freqs.weight", "x"]);
    assert_eq!((code, text.as_str()), (Code::Unmapped, "no pair or rule for rope_freqs.weight, x"));
}

#[test]
fn unmapped_names_are_dropped_on_request_and_named() {
    let model = vectors(&["a", "x", "y"]);
    let map = r#"{"weightfs_map":1,"unmapped":"drop","pairs":{"a":"b"}}"#;
    let catalog = by_files(&model, &[map]).unwrap();
    assert_eq!(names(&model, &catalog), ["b"]);
    assert_eq!(catalog.targets(&model, 1), 1..1);
    assert_eq!(catalog.targets(&model, 2), 1..1);
    assert!(catalog.warnings()[0].ends_with("not shown: x, y"), "{:?}", catalog.warnings());
}

#[test]
fn drop_rules_and_null_pairs_hide() {
    let map = r#"{"weightfs_map":1,"pairs":{"p":null},"rules":[{"from":"r.{i}","drop":true}]}"#;
    assert_eq!(mapped(map, &["p", "r.1", "r.x", "q"]), ["r.x", "q"]);
}

#[test]
fn pairs_go_before_rules() {
    let map = r#"{"weightfs_map":1,"rules":[{"from":"{rest}","to":"r.{rest}"}],"pairs":{"a":"p"}}"#;
    assert_eq!(mapped(map, &["a", "b"]), ["p", "r.b"]);
}

#[test]
fn a_list_splits_along_the_first_dimension() {
    let model = model(
        Format::Gguf,
        &[
            (b"x", DType::Q8_0, &[2, 3, 32]),
            (b"y", DType::F4, &[2, 3]),
            (b"z", DType::F32, &[0, 2]),
        ],
    );
    let catalog = by_files(&model, &[&pairs(r#""x": ["x", "b"], "z": []"#)]).unwrap();
    assert_eq!(names(&model, &catalog), ["x", "b", "y"]);
    let b = catalog.get(&model, 1);
    assert_eq!(
        (b.shape, b.extent.offset, b.extent.len),
        ([3, 32].as_slice(), DATA_START + 102, 102)
    );
    for (list, word) in [
        (r#""x": ["a"]"#, "1 names, but the first dimension is 2"),
        (r#""x": ["a", "b", "c"]"#, "3 names"),
        (r#""x": []"#, "0 names"),
        (r#""y": ["a", "b"]"#, "not whole bytes"),
    ] {
        let all = problems(&pairs(list), &model);
        assert_eq!((all.len(), all[0].0, all[0].1.is_some()), (1, Code::Split, true));
        assert!(all[0].2.contains(word), "{all:?}");
    }
}

#[test]
fn a_list_with_shapes_must_fill_the_tensor() {
    let model = floats(&[("x", &[4, 3])]);
    let ok = pairs(r#""x": [{"name": "a", "shape": [3, 3]}, {"shape": [1, 3], "name": "b"}]"#);
    let catalog = by_files(&model, &[&ok]).unwrap();
    assert_eq!(names(&model, &catalog), ["a", "b"]);
    assert_eq!(catalog.get(&model, 1).shape, [1, 3]);
    assert_eq!(catalog.get(&model, 1).extent.offset, DATA_START + 36);
    for bad in [
        r#"[{"name": "a", "shape": [3, 3]}]"#,
        r#"[{"name": "a", "shape": [4, 3]}, {"name": "b", "shape": [1]}]"#,
        r#"[{"name": "a", "shape": [4294967296, 4294967296, 3]}]"#,
        r#"[{"name": "a", "shape": [12]}, "b"]"#,
        r#"[{"name": "a"}]"#,
        r#"[{"name": "a", "shape": [-1]}]"#,
        r#"[{"name": "a", "shape": [12], "x": 1}]"#,
    ] {
        assert!(by_files(&model, &[&pairs(&format!("\"x\": {bad}"))]).is_err(), "{bad}");
    }
}

#[test]
fn a_target_equal_to_its_source_is_always_valid() {
    let model = model(
        Format::Safetensors,
        &[
            (b"../a/b", DType::F32, &[4]),
            (b"__metadata__", DType::F32, &[4]),
            (b"", DType::F32, &[4]),
        ],
    );
    let same = pairs(r#""../a/b": "../a/b", "__metadata__": "__metadata__", "": """#);
    let catalog = by_files(&model, &[&same]).unwrap();
    assert_eq!(names(&model, &catalog), ["../a/b", "__metadata__", ""]);
    let rule = rules(r#"{"from": "../a/{w}", "to": "../a/{w}"}"#);
    assert!(by_files(&model, &[&rule]).is_ok());
}

#[test]
fn targets_must_fit_a_file_name_with_json() {
    let fits = "x".repeat(250);
    assert_eq!(mapped(&pairs(&format!(r#""a": "{fits}""#)), &["a"]), [fits]);
    let (code, _, text) = problem(&pairs(&format!(r#""a": "{}""#, "x".repeat(251))), &["a"]);
    assert_eq!(code, Code::Target);
    assert!(text.contains("256 bytes"), "{text}");
    // % takes three bytes in the directory.
    let (_, _, text) = problem(&pairs(&format!(r#""a": "%{}""#, "x".repeat(248))), &["a"]);
    assert!(text.contains("256 bytes"), "{text}");
}

#[test]
fn names_that_are_not_utf8_can_be_kept_but_not_made_targets() {
    let model = model(Format::Gguf, &[(b"a.\xff", DType::F32, &[4])]);
    let all = problems(&rules(r#"{"from": "a.{rest}", "to": "b.{rest}"}"#), &model);
    assert_eq!(all[0].0, Code::Target);
    assert!(all[0].2.contains("b.\\xff: the target is not UTF-8"), "{all:?}");
    let kept = by_files(&model, &[&rules(r#"{"regex": "b.*", "to": "c"}"#)]).unwrap();
    assert_eq!(kept.get(&model, 0).name, b"a.\xff");
}

#[test]
fn everything_wrong_is_reported_together_with_places() {
    let map = r#"{
  "weightfs_map": 2,
  "wieghts": {},
  "unmapped": "kepe",
  "pairs": { "a": "x", "a": "y",
             "b": 7 },
  "pairs": {},
  "rules": [ { "from": "a", "to": "{q}" },
             { "from": "a", "too": "b" },
             17,
             { "regex": "(", "to": "b" } ]
}"#;
    let got: Vec<_> =
        problems(map, &vectors(&["a"])).into_iter().map(|(c, p, _)| (c, p.unwrap())).collect();
    assert_eq!(
        got,
        [
            (Code::Version, (2, 19)),
            (Code::Member, (3, 3)),
            (Code::Member, (4, 15)),
            (Code::Member, (5, 24)),
            (Code::Member, (6, 19)),
            (Code::Member, (7, 3)),
            (Code::Member, (9, 29)),
            (Code::Member, (10, 14)),
            (Code::Placeholder, (8, 14)),
            (Code::Regex, (11, 14)),
        ]
    );
}

#[test]
fn what_is_no_map_file_is_refused() {
    for (text, code) in [
        ("", Code::Json),
        ("{", Code::Json),
        ("{\"weightfs_map\": 1,}", Code::Json),
        ("{} x", Code::Json),
        ("[]", Code::Member),
        ("{}", Code::Version),
        ("{\"weightfs_map\": \"1\"}", Code::Version),
        ("{\"weightfs_map\": 1.0}", Code::Version),
        ("{\"weightfs_map\": 1, \"weightfs_map\": 1}", Code::Member),
        ("{\"weightfs_map\": 1, \"pairs\": []}", Code::Member),
        ("{\"weightfs_map\": 1, \"rules\": {}}", Code::Member),
        ("{\"weightfs_map\": 1, \"rules\": [{\"from\": 1, \"to\": \"a\"}]}", Code::Member),
        ("{\"weightfs_map\": 1, \"rules\": [{\"from\": \"a\", \"drop\": 1}]}", Code::Member),
        (
            "{\"weightfs_map\": 1, \"rules\": [{\"from\": \"a\", \"from\": \"b\", \"drop\": true}]}",
            Code::Member,
        ),
        ("{\"weightfs_map\": 1, \"pairs\": {\"a\": \"\\ud800\"}}", Code::Member),
    ] {
        assert_eq!(problem(text, &["a"]).0, code, "{text}");
    }
    let error = by_files(&vectors(&["a"]), &["{\n 1}"]).unwrap_err().to_string();
    assert!(error.contains("E_JSON at line 2 column 2: "), "{error}");
}

#[test]
fn a_missing_map_file_is_named() {
    let error = read(Path::new("/nonexistent/map.json")).unwrap_err().to_string();
    assert!(error.starts_with("map /nonexistent/map.json: E_READ cannot read"), "{error}");
}

#[test]
fn idle_rules_and_pairs_are_said() {
    let map = r#"{"weightfs_map":1,"pairs":{"nope":"x","a":"b"},"rules":[{"from":"zz","to":"y"},{"from":"a","to":"c"}]}"#;
    let model = vectors(&["a"]);
    let catalog = by_files(&model, &[map]).unwrap();
    let ends = [
        "rule 1 matched nothing",
        "rule 2 is shadowed: pairs took a before it",
        "pairs name no tensor: nope",
    ];
    assert_eq!(catalog.warnings().len(), 3);
    for (warning, end) in catalog.warnings().iter().zip(ends) {
        assert!(warning.ends_with(end), "{warning}");
    }
}

#[test]
fn names_that_differ_only_in_case_are_a_warning() {
    let model = vectors(&["a", "b"]);
    let catalog = by_files(&model, &[&pairs(r#""a": "B""#)]).unwrap();
    assert_eq!(catalog.warnings(), ["map: B and b differ only in case"]);
}

#[test]
fn a_second_stage_checks_the_names_of_the_first() {
    let model = vectors(&["a", "b"]);
    let error = by_files(&model, &[&pairs(r#""a": "c""#), &pairs(r#""c": "b""#)]).unwrap_err();
    assert_eq!(error.problems()[0].text, "b <- c (pairs), b (kept)");
}

#[test]
fn splitting_a_split_and_a_second_drop() {
    let model = floats(&[("x", &[2, 3, 5])]);
    let first = rules(r#"{"from": "x", "to": "x.{i}", "split": "i"}"#);
    let second = rules(r#"{"from": "x.{i}", "to": "y.{i}.{e}", "split": "e"}"#);
    let third = rules(r#"{"from": "y.{i}.1", "drop": true}"#);
    let catalog = by_files(&model, &[&first, &second, &third]).unwrap();
    assert_eq!(names(&model, &catalog), ["y.0.0", "y.0.2", "y.1.0", "y.1.2"]);
    let offsets: Vec<u64> =
        (0..4).map(|i| catalog.get(&model, i).extent.offset - DATA_START).collect();
    assert_eq!(offsets, [0, 40, 60, 100]);
    assert_eq!(catalog.get(&model, 3).extent.len, 20);
}

#[test]
fn any_map_written_out_reads_back_to_the_same() {
    let model = floats(&[
        ("x", &[3, 4, 2]),
        ("y", &[3, 4, 2]),
        ("one", &[1, 4]),
        ("gone", &[2, 2]),
        ("nothing", &[0, 2]),
        ("last", &[]),
    ]);
    let map = r#"{"weightfs_map":1,"pairs":{
        "x": ["x.0", null, "x.2"],
        "y": [{"name": null, "shape": [2]}, {"name": "y.a", "shape": [6, 3]}, {"name": "y.b", "shape": [4]}],
        "one": ["one.0"], "gone": null, "last": "first"}}"#;
    let catalog = by_files(&model, &[map]).unwrap();
    assert_eq!(names(&model, &catalog), ["x.0", "x.2", "y.a", "y.b", "one.0", "nothing", "first"]);
    // A stage that hides one slice more.
    let hide = rules(r#"{"from": "x.2", "drop": true}, {"from": "y.b", "drop": true}"#);
    for catalog in [catalog, by_files(&model, &[map, &hide]).unwrap(), Catalog::identity()] {
        let mut text = Vec::new();
        crate::naming::MapDocument::new(&model, &catalog, None).unwrap().write(&mut text).unwrap();
        let again = by_files(&model, &[std::str::from_utf8(&text).unwrap()]).unwrap();
        assert_eq!(names(&model, &again), names(&model, &catalog));
        for i in 0..catalog.len(&model) {
            let (a, b) = (catalog.get(&model, i), again.get(&model, i));
            assert_eq!((a.shape, a.extent, a.source), (b.shape, b.extent, b.source));
        }
        for source in 0..6 {
            assert_eq!(catalog.targets(&model, source), again.targets(&model, source));
        }
    }
}

proptest::proptest! {
    #[test]
    fn damaged_map_files_never_panic(at in 0usize..400, byte: u8, cut in 0usize..400) {
        let map = r#"{"weightfs_map": 1, "unmapped": "keep", "pairs": {"a": ["b", null], "c": null,
            "d": [{"name": "e", "shape": [2, 1]}], "f": "g"}, "rules": [{"from": "x.{i}.{w}", "to":
            "y.{i}.{w}.{e}", "split": "e"}, {"regex": "(a+)(?P<n>.)", "to": "${1}${n}$$"},
            {"from": "{rest}", "drop": true}]}"#;
        let mut text = map.as_bytes().to_vec();
        let at = at % text.len();
        text[at] = byte;
        let whole = String::from_utf8_lossy(&text).into_owned();
        text.truncate(cut);
        let model = floats(&[("a", &[2, 2]), ("d", &[2]), ("x.1.q", &[2, 2]), ("aab", &[1])]);
        for text in [whole, String::from_utf8_lossy(&text).into_owned()] {
            match by_files(&model, &[&text]) {
                Ok(catalog) => assert!(catalog.len(&model) < 10),
                Err(error) => assert!(error.to_string().lines().count() <= 4, "{error}"),
            }
        }
    }
}

#[test]
fn a_split_into_too_many_is_refused() {
    let model = floats(&[("x", &[1 << 40, 0])]);
    let map = rules(r#"{"from": "x", "to": "x.{e}", "split": "e"}"#);
    let all = problems(&map, &model);
    assert!(all[0].2.contains("would give"), "{all:?}");
    // Each alone is within the limit, all together are not.
    let many: Vec<(String, [u64; 2])> = (0..3).map(|i| (format!("x.{i}"), [1 << 20, 0])).collect();
    let many: Vec<(&str, &[u64])> = many.iter().map(|(n, s)| (n.as_str(), s.as_slice())).collect();
    let map = rules(r#"{"from": "x.{i}", "to": "y.{i}.{e}", "split": "e"}"#);
    assert_eq!(problems(&map, &floats(&many))[0].0, Code::Limit);
}

#[test]
fn hostile_patterns_end_at_a_limit() {
    let long = "1".repeat(60_000);
    let model = vectors(&[&long]);
    let (code, ..) =
        problems(&rules(r#"{"from": "{i}{j}{e}{w}x{rest}", "drop": true}"#), &model)[0].clone();
    assert_eq!(code, Code::Limit);
    let deep = rules(&format!(r#"{{"regex": "{}", "drop": true}}"#, "(".repeat(100_000)));
    assert_eq!(problem(&deep, &["a"]).0, Code::Regex);
    let many = vec![r#"{"from": "a", "drop": true}"#; 5000].join(",");
    assert_eq!(problem(&rules(&many), &["a"]).0, Code::Limit);
    let slow = vec![r#"{"regex": "(.*)*(.*)*(.*)*x", "drop": true}"#; 500].join(",");
    assert!(by_files(&model, &[&rules(&slow)]).is_ok());
}

#[test]
fn a_hundred_thousand_pairs_are_quick() {
    let count = 100_000u32;
    let source: Vec<String> = (0..count).map(|i| format!("blk.{i}.w")).collect();
    let source: Vec<&str> = source.iter().map(String::as_str).collect();
    let body: Vec<String> = (0..count).map(|i| format!("\"blk.{i}.w\": \"layer.{i}.w\"")).collect();
    let model = vectors(&source);
    let catalog: Catalog = by_files(&model, &[&pairs(&body.join(","))]).unwrap();
    assert!(catalog.warnings().is_empty());
    let stem = |i: u32| std::borrow::Cow::Borrowed(catalog.get(&model, i as usize).name);
    let index = StemIndex::build(count, stem).unwrap();
    assert_eq!(index.find(b"layer.77777.w", stem), Some(77_777));
}

#[test]
fn a_target_that_repeats_what_it_took_ends_at_the_length_of_a_file_name() {
    let map = rules(&format!(r#"{{"regex": "(.*)", "to": "{}"}}"#, "${1}".repeat(1000)));
    let (code, _, text) = problem(&map, &["blk.0.attn_v.weight"]);
    assert_eq!(code, Code::Target);
    assert!(text.contains("more than 255 bytes") && text.len() < 400, "{text}");
    // A name that is longer may be given to itself.
    let long = "x".repeat(3000);
    let map = rules(r#"{"regex": "(x)(.*)", "to": "${1}${2}"}"#);
    assert_eq!(mapped(&map, &[&long]), [&*long]);
}
