//! Every input that the fuzzer was given or has found, through the same functions, in plain
//! `cargo test`. A file in `tests/corpus/inputs/TARGET` is enough to be run.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "corpus/targets/mod.rs"]
mod targets;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/inputs").join(target);
    let paths = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    all.sort();
    assert!(!all.is_empty(), "{}", dir.display());
    all
}

/// Memory is counted for the whole process, and tests are threads of one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs all inputs, and says which of them fail.
fn replay(target: &str, run: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let _alone = alone();
    let failed: Vec<PathBuf> = inputs(target)
        .into_iter()
        .filter(|(_, data)| std::panic::catch_unwind(|| run(data)).is_err())
        .map(|(path, _)| path)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn gguf() {
    replay("gguf", |data| {
        targets::gguf::run(data);
        targets::gguf::served(data);
    });
}

#[test]
fn safetensors() {
    replay("safetensors", targets::safetensors::run);
}

#[test]
fn seal() {
    replay("seal", |data| {
        targets::seal::run(data);
    });
}

#[test]
fn map() {
    replay("map", |data| {
        targets::map::run(data);
    });
}

/// Otherwise these targets would not get past the front door.
#[test]
fn seeds_that_should_be_accepted_are() {
    let _alone = alone();
    for (path, data) in inputs("seal") {
        let sound = path.to_str().unwrap().contains("sound-");
        assert!(!sound || targets::seal::run(&data), "{}", path.display());
    }
    for (path, data) in inputs("map") {
        let sound = path.to_str().unwrap().contains("sound-");
        assert!(!sound || targets::map::run(&data), "{}", path.display());
    }
}

#[test]
fn views() {
    replay("views", |data| {
        targets::views::run(data);
        targets::views::run_all(data);
    });
}

#[test]
fn hf() {
    replay("hf", |data| targets::hf::written(data, 2));
}

/// A target stands in six places; which of them one has forgotten.
#[test]
fn every_target_is_fuzzed_and_replayed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let text = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let bins = std::fs::read_dir(root.join("fuzz/targets")).unwrap();
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut targets: Vec<String> = bins.map(|entry| stem(entry.unwrap().path())).collect();
    let inputs = std::fs::read_dir(root.join("corpus/inputs")).unwrap();
    targets.extend(inputs.map(|entry| stem(entry.unwrap().path())));
    targets.extend(weightfs::model::Format::ALL.map(|format| format.name().to_owned()));
    let script = text("../scripts/fuzz");
    let list = script.lines().find_map(|line| line.strip_prefix("all=\"")).unwrap();
    for target in &targets {
        for file in ["corpus/inputs", "corpus/targets", "fuzz/targets"] {
            let path = root.join(file).join(target);
            let there = path.exists() || path.with_extension("rs").exists();
            assert!(there, "tests/{file} has no {target}");
        }
        let manifest = text("fuzz/Cargo.toml").contains(&format!("name = \"{target}\""));
        assert!(manifest, "tests/fuzz/Cargo.toml has no {target}");
        let listed = list.trim_end_matches('"').split(' ').any(|word| word == target);
        assert!(listed, "scripts/fuzz does not know {target}");
        let replayed = text("corpus.rs").contains(&format!("replay(\"{target}\""));
        assert!(replayed, "tests/corpus.rs does not replay {target}");
    }
}

/// The seeds that follow from code are what the code makes today: otherwise they would test
/// yesterday's format. `WEIGHTFS_WRITE_SEEDS=1` writes them.
#[test]
fn seeds_are_current() {
    let _alone = alone();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/inputs");
    for (name, bytes) in seeds() {
        let path = dir.join(&name);
        if std::env::var_os("WEIGHTFS_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}: WEIGHTFS_WRITE_SEEDS=1 renews it");
    }
    // A seal holds a time, so these are not the same again.
    if std::env::var_os("WEIGHTFS_WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(dir.join("seal")).unwrap();
        std::fs::write(dir.join("seal/sound-whole"), targets::seal::sample()).unwrap();
        std::fs::write(dir.join("seal/sound-body"), targets::seal::sample_body()).unwrap();
    }
    assert!(dir_size(&dir) < 300 << 10, "the corpus is for a few kilobytes each");
}

fn dir_size(dir: &Path) -> u64 {
    let size = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => dir_size(&entry.path()),
        false => entry.metadata().unwrap().len(),
    };
    std::fs::read_dir(dir).unwrap().map(|entry| size(entry.unwrap())).sum()
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    // Any bytes are a model to `views`; these differ in what they choose.
    for i in 0..16u32 {
        let mut dice = 0x9E37_79B9 ^ (i * 0x0101_0101);
        let bytes: Vec<u8> = (0..120)
            .map(|_| {
                dice ^= dice << 13;
                dice ^= dice >> 17;
                dice ^= dice << 5;
                (dice >> 11) as u8
            })
            .collect();
        let bytes = [&[i as u8][..], &bytes].concat();
        let file = targets::views::sample(&bytes);
        let format = if file.starts_with(b"GGUF") { "gguf" } else { "safetensors" };
        if file.len() < 2500 {
            seeds.push((format!("{format}/model-{i}"), file));
        }
        seeds.push((format!("views/model-{i}"), bytes));
    }
    let samples = targets::hf::samples().into_iter();
    seeds.extend(samples.map(|(name, bytes)| (format!("hf/{name}"), bytes)));
    seeds
}
