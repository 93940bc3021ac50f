//! The walls of the house: which room may use which. Fails on a `use crate::` that breaks them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Room -> rooms it may use. The reasons stand at the top of each room's file.
const MAY_USE: &[(&str, &[&str])] = &[
    ("bytes", &[]),
    ("dtype", &[]),
    ("model", &["dtype"]),
    ("quant", &["dtype"]),
    ("source", &["bytes"]),
    ("format", &["bytes", "dtype", "model"]),
    ("ordered", &[]),
    ("overrides", &["model"]),
    ("naming", &["bytes", "dtype", "model"]),
    ("trust", &["bytes", "dtype", "model", "naming", "source"]),
    ("seal", &["bytes", "dtype", "model", "ordered", "source", "trust"]),
    ("store", &["bytes", "model", "seal", "source", "trust"]),
    ("depot", &["bytes", "source"]),
    ("load", &["bytes", "depot", "dtype", "format", "model", "source"]),
    ("scale", &["dtype", "model", "quant"]),
    ("content", &["dtype", "model", "quant", "scale", "store", "view"]),
    (
        "view",
        &["bytes", "content", "dtype", "format", "model", "naming", "quant", "scale", "store"],
    ),
    (
        "survey",
        &["content", "dtype", "model", "naming", "ordered", "quant", "scale", "store", "view"],
    ),
    ("hf", &["content", "dtype", "format", "model", "quant", "store", "view"]),
    ("layout", &["hf", "model", "naming", "quant", "scale", "view"]),
    (
        "fs",
        &[
            "bytes", "content", "dtype", "hf", "layout", "model", "naming", "quant", "scale",
            "source", "store", "view",
        ],
    ),
    ("grove", &["bytes", "fs", "layout", "naming", "store", "view"]),
    ("fuse", &["bytes", "fs", "grove", "layout", "store"]),
];

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The room a file belongs to: `src/format/gguf.rs` is of `format`.
fn room(src: &Path, file: &Path) -> String {
    let first = file.strip_prefix(src).unwrap().components().next().unwrap();
    first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// Names that follow `crate::` in code (comments and strings with it do not count).
fn used_rooms(text: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
        let mut rest = line;
        while let Some(at) = rest.find("crate::") {
            rest = &rest[at + "crate::".len()..];
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                rooms.push(name);
            } else if let Some(list) = rest.strip_prefix('{') {
                panic!("one room a line, please: crate::{{{list}");
            }
        }
    }
    rooms
}

#[test]
fn no_room_uses_one_that_it_must_not_know() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rules: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut broken = Vec::new();
    for file in files {
        let own = room(&src, &file);
        if matches!(&*own, "lib" | "main" | "cli") {
            continue;
        }
        let allowed = rules.get(&*own).unwrap_or_else(|| panic!("the room {own} has no rule"));
        for used in used_rooms(&fs::read_to_string(&file).unwrap()) {
            if used != own && !allowed.contains(&&*used) {
                broken.push(format!("{}: uses {used}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn only_the_fuse_room_knows_fuser() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    for file in files {
        if room(&src, &file) == "fuse" {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
        for line in code {
            assert!(!line.contains("fuser::"), "{}: {line}", file.display());
        }
    }
}

/// Names between backquotes or commas of one cell.
fn words(cell: &str) -> Vec<&str> {
    cell.split(',').map(|word| word.trim().trim_matches('`')).filter(|w| !w.is_empty()).collect()
}

#[test]
fn the_readme_has_the_same_walls() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, table) =
        readme.split_once("| room | what it is for | may use |\n|---|---|---|\n").unwrap();
    let told: Vec<(&str, Vec<&str>)> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').collect();
            (words(cells[1])[0], words(cells[3]))
        })
        .collect();
    let here: Vec<(&str, Vec<&str>)> =
        MAY_USE.iter().map(|(room, others)| (*room, others.to_vec())).collect();
    assert_eq!(told, here);
    // Every room of the library, also one that uses nothing and that nobody uses yet.
    let lib = fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let modules = lib.lines().filter_map(|line| line.trim_end_matches(';').split_once("mod "));
    let mut rooms: Vec<&str> = modules.map(|(_, room)| room).collect();
    let mut ruled: Vec<&str> = MAY_USE.iter().map(|(room, _)| *room).collect();
    rooms.sort_unstable();
    ruled.sort_unstable();
    assert_eq!(rooms, ruled);
}

#[test]
fn every_path_in_a_message_is_a_piece_of_one_line() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let is_test = |file: &PathBuf| {
        file.components().any(|part| part.as_os_str() == "tests") || file.ends_with("tests.rs")
    };
    for file in files.into_iter().filter(|file| !is_test(file)) {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            // A file may be called "x\nweightfs: all is well": bytes::line has in_line() for that.
            assert!(!line.contains(".display()"), "{}:{}: {line}", file.display(), number + 1);
        }
    }
}

#[test]
fn comments_fit_the_width_and_point_to_what_is_here() {
    const WIDTH: usize = 100;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    rust_files(&root.join("tests"), &mut files);
    let mut bad = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let comments = text.lines().zip(1..).filter(|(line, _)| line.trim().starts_with("//"));
        for (line, number) in comments {
            // rustfmt sees to code; a row of a table is one line.
            let is_long = line.chars().count() > WIDTH && !line.trim().starts_with("/// |");
            if is_long || line.contains(concat!("facts", "/")) {
                bad.push(format!("{}:{number}: {line}", file.display()));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
