//! Maps that keep values: printed and read back, and files with `"values": "hf"`.

use super::*;

/// deepseek's halves of kv_b, and gpt-oss' experts in MXFP4.
fn joined() -> [(Model, ArchFacts); 2] {
    let arch = |name: &str| ArchFacts { architecture: Some(name.into()), ..facts() };
    let deepseek = floats(&[
        ("blk.0.attn_k_b.weight", &[2, 4, 8]),
        ("blk.0.attn_v_b.weight", &[2, 6, 4]),
        ("output_norm.weight", &[4]),
    ]);
    let experts = |name: &'static str| (name.as_bytes(), DType::MXFP4, [2u64, 32, 64].as_slice());
    let gpt_oss = model(
        Format::Gguf,
        &[
            experts("blk.0.ffn_gate_exps.weight"),
            experts("blk.0.ffn_up_exps.weight"),
            (b"output_norm.weight", DType::F32, &[4]),
        ],
    );
    [(deepseek, arch("deepseek2")), (gpt_oss, arch("gpt-oss"))]
}

#[test]
fn a_printed_map_of_map_hf_has_its_values() {
    let source = floats(LLAMA);
    let catalog = Catalog::build(&source, &facts(), &[MapSpec::Hf]).unwrap();
    let (json, read) = again(&source, &catalog, &Likeness::default());
    assert_eq!(json["values"], "hf");
    assert_same(&source, &catalog, &read);
    // Where nothing but names changes nothing needs to be said.
    let mut qwen = facts();
    qwen.architecture = Some("qwen2".into());
    let catalog = Catalog::build(&source, &qwen, &[MapSpec::Hf]).unwrap();
    let mut text = Vec::new();
    MapDocument::new(&source, &catalog, None).unwrap().write(&mut text).unwrap();
    assert!(!String::from_utf8(text).unwrap().contains("values"));
}

#[test]
fn values_that_come_late_cannot_be_printed() {
    let source = floats(LLAMA);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let swap = br#"{"weightfs_map":1,"pairs":{"blk.0.ffn_up.weight":"blk.0.ffn_gate.weight","blk.0.ffn_gate.weight":"blk.0.ffn_up.weight"}}"#;
    std::io::Write::write_all(&mut file, swap).unwrap();
    let stages = [MapSpec::File(file.path().into()), MapSpec::Hf];
    let catalog = Catalog::build(&source, &facts(), &stages).unwrap();
    let error = MapDocument::new(&source, &catalog, None).unwrap_err().to_string();
    assert!(error.contains("not the first stage"), "{error}");
}

#[test]
fn files_with_values_start_from_the_table() {
    let source = floats(LLAMA);
    let file = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        file
    };
    let build = |text: &str| {
        let file = file(text);
        Catalog::build(&source, &facts(), &[MapSpec::File(file.path().into())])
    };
    // Pairs rename, hide, and leave alone; what has no pair is called as the table has it.
    let catalog = build(
        r#"{"weightfs_map": 1, "values": "hf", "pairs": {"blk.0.attn_q.weight": "q", "blk.0.attn_k.weight": "blk.0.attn_k.weight", "blk.0.attn_v.weight": null, "rope_freqs.weight": "rope_freqs.weight"}}"#,
    )
    .unwrap();
    let got = names(&source, &catalog);
    assert_eq!(
        (&*got[0], &*got[3], &*got[4], &*got[5], &*got[10]),
        (
            "model.embed_tokens.weight",
            "q",
            "blk.0.attn_k.weight",
            "model.layers.0.self_attn.o_proj.weight",
            "rope_freqs.weight"
        )
    );
    assert_eq!(catalog.get(&source, 3).transform, Transform::RopeRows { heads: 4 });
    assert_eq!(catalog.get(&source, 4).transform, Transform::None);
    for (text, words) in [
        (r#""rules": [], "values": "hf""#, "goes with pairs alone"),
        (r#""values": "gguf""#, "expected \"hf\" for values"),
        (r#""values": "hf", "pairs": {"blk.0.attn_q.weight": ["a", "b"]}"#, "a slice would mix"),
        (
            r#""values": "hf", "pairs": {"rope_freqs.weight": "x"}"#,
            "makes 0 of it, the pair names 1",
        ),
        (
            r#""values": "hf", "pairs": {"blk.0.ffn_up.weight": "q", "blk.0.ffn_gate.weight": "q"}"#,
            "E_COLLISION q <-",
        ),
        (r#""values": "hf", "unmapped": "error""#, "E_UNMAPPED"),
    ] {
        let error = build(&format!(r#"{{"weightfs_map": 1, {text}}}"#)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let text = file(r#"{"weightfs_map": 1, "values": "hf"}"#);
    let stage = || MapSpec::File(text.path().into());
    let error = Catalog::build(&source, &facts(), &[MapSpec::Hf, stage()]).unwrap_err();
    assert!(error.to_string().contains("must be the first map="), "{error}");
    let error = Catalog::build(&checkpoint("", &[]), &facts(), &[stage()]).unwrap_err();
    assert!(error.to_string().contains("is for a GGUF"), "{error}");
    let error = Catalog::build(&source, &ArchFacts::default(), &[stage()]).unwrap_err();
    assert!(error.to_string().contains("does not name its architecture"), "{error}");
}

#[test]
fn what_a_table_joins_survives_the_way_through_a_file() {
    for (source, facts) in joined() {
        let plain = Catalog::build(&source, &facts, &[MapSpec::Hf]).unwrap();
        let named: Vec<(String, Vec<u64>)> = (0..plain.len(&source))
            .map(|i| plain.get(&source, i))
            .map(|item| (format!("x.{}", String::from_utf8_lossy(item.name)), item.shape.to_vec()))
            .collect();
        let reference =
            safetensors(&named.iter().map(|(n, s)| (n.as_str(), s.as_slice())).collect::<Vec<_>>());
        let like = Some(Reference { label: "r", model: &reference });
        let (catalog, likeness) = Catalog::build_like(&source, &facts, &[], like).unwrap();
        assert!(likeness.unwrap().check().is_ok());
        for catalog in [plain, catalog] {
            let mut text = Vec::new();
            MapDocument::new(&source, &catalog, None).unwrap().write(&mut text).unwrap();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &text).unwrap();
            let stage = MapSpec::File(file.path().into());
            let read = Catalog::build(&source, &facts, &[stage]).unwrap();
            assert_same(&source, &catalog, &read);
            let shares = |c: &Catalog| (0..3).map(|i| c.shares(i).to_vec()).collect::<Vec<_>>();
            assert_eq!(shares(&catalog), shares(&read));
        }
    }
}

#[test]
fn halves_of_what_a_table_joins_go_back_together() {
    for (source, facts) in joined() {
        let reference = safetensors(&[("model.norm.weight", &[4]), ("other", &[3])]);
        let like = Some(Reference { label: "r", model: &reference });
        let (catalog, likeness) = Catalog::build_like(&source, &facts, &[], like).unwrap();
        let likeness = likeness.unwrap();
        let stored = |i: usize| String::from_utf8_lossy(&source.tensors[i].name).into_owned();
        let want = [stored(0), stored(1), "model.norm.weight".into()];
        assert_eq!(names(&source, &catalog), want);
        assert_eq!(texts(&likeness.unmatched_source), want[..2]);
        assert_eq!(catalog.get(&source, 1).transform, Transform::None);
        // By a file: the second half follows the first, and may not have another name.
        let (first, second) = (stored(0), stored(1));
        let build = |pairs: String| {
            let file = tempfile::NamedTempFile::new().unwrap();
            let text = format!(r#"{{"weightfs_map":1,"values":"hf","pairs":{{{pairs}}}}}"#);
            std::fs::write(file.path(), text).unwrap();
            Catalog::build(&source, &facts, &[MapSpec::File(file.path().into())])
        };
        let catalog = build(format!(r#""{first}":"{first}""#)).unwrap();
        assert_eq!(names(&source, &catalog), want);
        let error = build(format!(r#""{first}":"{first}","{second}":"x""#)).unwrap_err();
        assert!(error.to_string().contains("which is left as stored"), "{error}");
        let error = build(format!(r#""{second}":"x""#)).unwrap_err();
        assert!(error.to_string().contains("makes 0 of it"), "{error}");
    }
}

#[test]
fn a_map_with_values_says_what_is_not_shown() {
    let source = floats(LLAMA);
    let catalog = Catalog::build(&source, &facts(), &[MapSpec::Hf]).unwrap();
    let (_, read) = again(&source, &catalog, &Likeness::default());
    assert!(
        read.warnings().iter().any(|w| w.ends_with("not shown: rope_freqs.weight")),
        "{:?}",
        read.warnings()
    );
}

#[test]
fn cuts_behind_the_table_are_printed_or_refused() {
    let file = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        file
    };
    let split = file(
        r#"{"weightfs_map":1,"rules":[{"from":"model.layers.0.mlp.up_proj.weight","to":"up.{e}","split":"e"}]}"#,
    );
    let rename = file(r#"{"weightfs_map":1,"rules":[{"from":"up.{i}","to":"u.{i}"}]}"#);
    let stage = |file: &tempfile::NamedTempFile| MapSpec::File(file.path().into());
    let source = floats(LLAMA);
    let stages = [MapSpec::Hf, stage(&split), stage(&rename)];
    let catalog = Catalog::build(&source, &facts(), &stages).unwrap();
    let (json, read) = again(&source, &catalog, &Likeness::default());
    assert_eq!(json["pairs"]["blk.0.ffn_up.weight"][23], "u.23");
    assert_same(&source, &catalog, &read);
    // Slices of what the table had cut already.
    let source =
        floats(&[("blk.0.ffn_up_exps.weight", &[2, 8, 4]), ("blk.0.attn_q.weight", &[8, 4])]);
    let twice = file(
        r#"{"weightfs_map":1,"rules":[{"from":"model.layers.0.block_sparse_moe.experts.{i}.w3.weight","to":"{i}.{e}","split":"e"}]}"#,
    );
    let catalog = Catalog::build(&source, &facts(), &[MapSpec::Hf, stage(&twice)]).unwrap();
    let error = MapDocument::new(&source, &catalog, None).unwrap_err().to_string();
    assert!(error.contains("ffn_up_exps") && error.contains("cut again"), "{error}");
}

/// A name alone stands for the shape that the table gives, a list of names for that of each
/// index: anything else is written with its shape.
#[test]
fn a_pair_that_gives_another_shape_is_printed_with_it() {
    let mamba = ArchFacts { architecture: Some("mamba2".into()), ..ArchFacts::default() };
    let source =
        floats(&[("blk.0.ssm_norm.weight", &[2, 4]), ("blk.0.ssm_conv1d.weight", &[2, 4])]);
    for (values, pairs) in [
        ("none", r#""blk.0.ssm_norm.weight":[{"name":"a","shape":[4,2]}]"#),
        ("hf", r#""blk.0.ssm_norm.weight":[{"name":"a","shape":[4,2]}]"#),
        // As it is stored, but the table gives [8] and [2, 1, 4].
        ("hf", r#""blk.0.ssm_norm.weight":[{"name":"a","shape":[2,4]}]"#),
        ("hf", r#""blk.0.ssm_norm.weight":[{"name":"a","shape":[4]},{"name":"b","shape":[4]}]"#),
        ("hf", r#""blk.0.ssm_conv1d.weight":[{"name":"a","shape":[4]},{"name":"b","shape":[4]}]"#),
        ("hf", r#""blk.0.ssm_conv1d.weight":["a","b"]"#),
        ("hf", r#""blk.0.ssm_conv1d.weight":["a",null]"#),
        (
            "hf",
            r#""blk.0.ssm_conv1d.weight":[{"name":null,"shape":[2,2]},{"name":"b","shape":[4]}]"#,
        ),
    ] {
        let values = if values == "hf" { r#""values":"hf","# } else { "" };
        let text = format!(r#"{{"weightfs_map":1,{values}"pairs":{{{pairs}}}}}"#);
        let read = |text: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file, text).unwrap();
            Catalog::build(&source, &mamba, &[MapSpec::File(file.path().into())]).unwrap()
        };
        let catalog = read(text.as_bytes());
        let mut printed = Vec::new();
        MapDocument::new(&source, &catalog, None).unwrap().write(&mut printed).unwrap();
        assert_same(&source, &catalog, &read(&printed));
    }
}
