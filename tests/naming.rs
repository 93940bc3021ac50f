//! The built-in name tables against the reference: tests/golden/names holds what the Python
//! package `gguf` calls the tensors of a checkpoint (scripts/make-golden-names).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use weightfs::dtype::DType;
use weightfs::model::{ByteOrder, Extent, Format, Model, Tensor, elements};
use weightfs::naming::{ArchFacts, Catalog, MapSpec, StemIndex, file_stem};

/// One file: architecture, model_type, pairs of Hugging Face and GGUF name.
struct Golden {
    file: String,
    architecture: String,
    model_type: String,
    pairs: Vec<(String, String)>,
}

fn golden() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/names");
    let mut all: Vec<Golden> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "tsv"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut lines = text.lines();
            let head: Vec<&str> = lines.next().unwrap().split(' ').collect();
            Golden {
                file: path.file_stem().unwrap().to_string_lossy().into_owned(),
                architecture: head[1].into(),
                model_type: head[2].into(),
                pairs: lines
                    .map(|line| line.split_once('\t').unwrap())
                    .map(|(hf, gguf)| (hf.into(), gguf.into()))
                    .collect(),
            }
        })
        .collect();
    all.sort_by(|a, b| a.file.cmp(&b.file));
    assert!(all.len() >= 41, "{} files of tests/golden/names", all.len());
    all
}

fn model(format: Format, tensors: &[(&str, &[u64])]) -> Model {
    let mut offset = 0;
    let tensors = tensors
        .iter()
        .map(|(name, shape)| {
            let len = DType::F32.nbytes(elements(shape)).unwrap();
            let extent = Extent { shard: 0, offset, len };
            offset += len;
            Tensor {
                name: name.as_bytes().into(),
                dtype: DType::F32,
                shape: (*shape).into(),
                extent,
            }
        })
        .collect();
    Model {
        format,
        format_version: 3,
        byte_order: ByteOrder::Little,
        architecture: None,
        name: None,
        metadata: Vec::new(),
        shards: Vec::new(),
        tensors,
        warnings: Vec::new(),
    }
}

fn names(model: &Model, catalog: &Catalog) -> Vec<String> {
    (0..catalog.len(model))
        .map(|i| String::from_utf8(catalog.get(model, i).name.to_vec()).unwrap())
        .collect()
}

/// Which GGUF name every Hugging Face name of a stack goes to, and how often.
fn stack_size(golden: &Golden, gguf: &str) -> usize {
    golden.pairs.iter().filter(|(_, g)| g == gguf).count()
}

#[test]
fn gguf_names_become_the_checkpoint_names_of_the_reference() {
    for golden in golden() {
        let mut seen = BTreeSet::new();
        let tensors: Vec<(&str, &[u64])> = golden
            .pairs
            .iter()
            .filter(|(_, gguf)| seen.insert(gguf.as_str()))
            .map(|(_, gguf)| {
                let shape: &[u64] = match stack_size(&golden, gguf) {
                    1 => &[96, 32],
                    2 => &[2, 32, 32],
                    n => panic!("{n} names for {gguf}"),
                };
                (gguf.as_str(), shape)
            })
            .collect();
        let model = model(Format::Gguf, &tensors);
        let facts = ArchFacts {
            architecture: Some(golden.architecture.clone()),
            head_count: vec![4],
            head_count_kv: vec![2],
            ..ArchFacts::default()
        };
        let catalog = Catalog::build(&model, &facts, &[MapSpec::Hf]).unwrap();
        let got: BTreeSet<String> = names(&model, &catalog).into_iter().collect();
        let want: BTreeSet<String> = golden.pairs.iter().map(|(hf, _)| hf.clone()).collect();
        let missing: Vec<_> = want.difference(&got).collect();
        let extra: Vec<_> = got.difference(&want).collect();
        assert!(missing.is_empty() && extra.is_empty(), "{}: {missing:?} {extra:?}", golden.file);
        // Each under its own source, slices in order.
        for (hf, gguf) in &golden.pairs {
            let source = tensors.iter().position(|(name, _)| name == gguf).unwrap();
            let targets = catalog.targets(&model, u32::try_from(source).unwrap());
            let own: Vec<&str> = targets
                .map(|i| std::str::from_utf8(catalog.get(&model, i).name).unwrap())
                .collect();
            let wanted: Vec<&str> =
                golden.pairs.iter().filter(|(_, g)| g == gguf).map(|(h, _)| h.as_str()).collect();
            assert_eq!(own, wanted, "{}: {hf}", golden.file);
        }
        assert!(
            !catalog.warnings().iter().any(|w| w.contains("kept as stored")),
            "{}: {:?}",
            golden.file,
            catalog.warnings()
        );
    }
}

#[test]
fn checkpoint_names_become_the_gguf_names_of_the_reference() {
    for golden in golden() {
        let tensors: Vec<(&str, &[u64])> =
            golden.pairs.iter().map(|(hf, _)| (hf.as_str(), [4].as_slice())).collect();
        let model = model(Format::Safetensors, &tensors);
        let config = serde_json::json!({ "model_type": golden.model_type });
        for config in [Some(config), None] {
            let given = config.is_some();
            let facts = ArchFacts::default().with_config(config);
            let catalog = Catalog::build(&model, &facts, &[MapSpec::Gguf]).unwrap();
            for ((hf, gguf), got) in golden.pairs.iter().zip(names(&model, &catalog)) {
                // What a GGUF stacks keeps its name: one tensor cannot be half of another.
                let stacked = stack_size(&golden, gguf) > 1;
                let wanted = if stacked { hf } else { gguf };
                // Without config.json a name may be left alone, but never be wrong.
                let open = !given && got == *hf;
                assert!(got == *wanted || open, "{}: {hf} became {got}, not {wanted}", golden.file);
            }
            if !given {
                let renamed = !catalog.is_identity();
                assert!(renamed, "{}: names alone should have told", golden.file);
            }
        }
    }
}

#[test]
fn a_million_names_are_indexed_and_found() {
    let count = 1_000_000u32;
    let names: Vec<String> =
        (0..count).map(|i| format!("model.layers.{}.mlp.experts.{i}.up", i / 128)).collect();
    let stem = |i: u32| file_stem(names[i as usize].as_bytes(), 5);
    let index = StemIndex::build(count, stem).unwrap();
    for i in (0..count).step_by(997) {
        assert_eq!(index.find(names[i as usize].as_bytes(), stem), Some(i));
    }
}
