//! What `MODEL` may be, and what is said about everything else.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::model::Format;
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

mod shards;
mod split;
mod walk;

use shards::{INDEX, ONE, sharded_in};
use split::split_in;

/// A GGUF with these keys (u16) and tensors (I8 of the given length), packed.
fn gguf(keys: &[(&str, u16)], tensors: &[(&str, u64)]) -> Vec<u8> {
    gguf_of_version(3, keys, tensors)
}

fn gguf_of_version(version: u32, keys: &[(&str, u16)], tensors: &[(&str, u64)]) -> Vec<u8> {
    let string = |s: &str| [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat();
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        bytes.extend(string(key));
        bytes.extend(2u32.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    let mut offset = 0u64;
    for (name, len) in tensors {
        bytes.extend(string(name));
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(24u32.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        offset += len.next_multiple_of(32);
    }
    let data = bytes.len().next_multiple_of(32);
    bytes.resize(data + offset as usize, 0);
    bytes
}

fn part(no: u16, count: u16, total: u16, tensors: &[(&str, u64)]) -> Vec<u8> {
    let keys = [("split.no", no), ("split.count", count), ("split.tensors.count", total)];
    gguf(&keys, tensors)
}

/// A safetensors file with these tensors (U8 of the given length) and metadata.
fn safetensors(metadata: &[(&str, &str)], tensors: &[(&str, u64)]) -> Vec<u8> {
    let pairs: Vec<String> = metadata.iter().map(|(k, v)| format!("\"{k}\":\"{v}\"")).collect();
    let mut header = format!("{{\"__metadata__\":{{{}}}", pairs.join(","));
    let mut at = 0;
    for (name, len) in tensors {
        let end = at + len;
        header += &format!(
            ",\"{name}\":{{\"dtype\":\"U8\",\"shape\":[{len}],\"data_offsets\":[{at},{end}]}}"
        );
        at = end;
    }
    header += "}";
    if header.len() % 2 == 1 {
        header += " ";
    }
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.resize(bytes.len() + at as usize, 7);
    bytes
}

fn index(map: &[(&str, &str)]) -> Vec<u8> {
    let pairs: Vec<String> = map.iter().map(|(t, s)| format!("\"{t}\": \"{s}\"")).collect();
    format!("{{\"metadata\": {{}}, \"weight_map\": {{{}}}}}", pairs.join(", ")).into_bytes()
}

struct Dir(TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(TempDir::new().unwrap())
    }
    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Dir {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }
    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.0.path().into() } else { self.0.path().join(name) }
    }
    fn open(&self, name: &str) -> Result<Loaded, LoadError> {
        super::open(&self.path(name), IoMode::Pread)
    }
    #[track_caller]
    fn served(&self, name: &str) -> Loaded {
        let loaded = self.open(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        check(&loaded);
        loaded
    }
    /// The message, with the directory taken out.
    #[track_caller]
    fn refused(&self, name: &str) -> String {
        let e = self.open(name).map(|l| l.model.tensors.len()).expect_err(name).to_string();
        assert!(e.lines().count() <= 4, "{e}");
        let home = self.0.path().to_str().unwrap();
        assert!(e.contains(home), "{e}");
        e.replace(&format!("{home}/"), "").replace(home, "DIR")
    }
}

/// What every loaded model has in common.
fn check(loaded: &Loaded) {
    let model = &loaded.model;
    assert_eq!(model.shards.len(), loaded.sources.len());
    assert!(model.tensors.is_sorted_by_key(|t| (t.extent.shard, t.extent.offset)));
    for t in &model.tensors {
        let shard = &model.shards[t.extent.shard as usize];
        assert!(t.extent.offset >= shard.data_start && t.extent.end() <= shard.len);
        assert_eq!(t.dtype.nbytes(t.elements()), Some(t.extent.len));
    }
    for (shard, source) in model.shards.iter().zip(&loaded.sources) {
        assert_eq!(shard.len, source.len());
        assert!(shard.data_start <= shard.len);
    }
    let mut names: Vec<_> = model.tensors.iter().map(|t| &t.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), model.tensors.len());
    assert!(loaded.entry.is_absolute());
}

/// Names of tensors, with the file each lies in.
fn list(loaded: &Loaded) -> Vec<String> {
    let row = |t: &crate::model::Tensor| {
        let file = &loaded.model.shards[t.extent.shard as usize].file;
        format!("{} {}", t.name.escape_ascii(), file.escape_ascii())
    };
    loaded.model.tensors.iter().map(row).collect()
}

#[test]
fn one_file_is_known_by_content_whatever_its_name() {
    let d = Dir::new();
    d.put("x.bin", gguf(&[], &[("a", 4)])).put("y.gguf", safetensors(&[], &[("b", 4)]));
    let x = d.served("x.bin");
    assert_eq!((x.model.format, x.model.format_version), (Format::Gguf, 3));
    assert_eq!((list(&x), x.entry), (vec!["a x.bin".into()], d.path("x.bin")));
    let y = d.served("y.gguf");
    assert_eq!((y.model.format, list(&y)), (Format::Safetensors, vec!["b y.gguf".into()]));
    assert_eq!(y.model.warnings, [""; 0]);
}

#[test]
fn what_is_no_model_is_called_what_it_is() {
    let d = Dir::new();
    d.put("lfs.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
    d.put("empty.gguf", "").put("page.safetensors", "<html>no</html>");
    d.put("torch.bin", "PK\x03\x04....").put("note.json", "{\"error\": 1}");
    d.put("noise", [9u8, 1, 255, 3]).put("noise.gguf", [9u8, 1, 255, 3]);
    d.put("noise.safetensors", [9u8, 1, 255, 3]);
    fs::create_dir(d.path("sub")).unwrap();
    let want =
        "lfs.gguf: is a Git LFS pointer, not the model; run `git lfs pull` in its repository";
    assert_eq!(d.refused("lfs.gguf"), want);
    assert!(d.refused("empty.gguf").starts_with("empty.gguf: is an empty file, not the model"));
    assert!(d.refused("page.safetensors").starts_with("page.safetensors: is an HTML or XML page"));
    assert!(d.refused("torch.bin").starts_with("torch.bin: is a zip archive (a PyTorch"));
    let want = "note.json: is JSON text without the weight_map of an index, not the model";
    assert_eq!(d.refused("note.json"), want);
    assert_eq!(d.refused("noise"), "noise: is of no known format, not the model");
    assert!(d.refused("noise.gguf").starts_with("noise.gguf: not GGUF: begins with"));
    assert!(d.refused("noise.safetensors").starts_with("noise.safetensors: too small: 4 bytes"));
    assert!(d.refused("absent").starts_with("absent: cannot open it: No such file"));
    assert_eq!(d.refused("sub"), "sub: holds no model");
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let d = Dir::new();
    let status = std::process::Command::new("mkfifo").arg(d.path("pipe")).status().unwrap();
    assert!(status.success());
    assert_eq!(d.refused("pipe"), "pipe: is a named pipe, not a regular file");
    let e = super::open(Path::new("/dev/null"), IoMode::Pread).unwrap_err().to_string();
    assert_eq!(e, "/dev/null: is a character device, not a regular file");
    symlink("loop", d.path("loop")).unwrap();
    assert!(d.refused("loop").starts_with("loop: cannot open it: "));
    d.put("m.safetensors.index.json", index(&[("a", "pipe")]));
    assert_eq!(d.refused("m.safetensors.index.json"), "pipe: is a named pipe, not a regular file");
    fs::create_dir(d.path("dir")).unwrap();
    d.put("m.safetensors.index.json", index(&[("a", "dir")]));
    assert_eq!(d.refused("m.safetensors.index.json"), "dir: is a directory, not a regular file");
}

#[test]
fn pieces_and_unfinished_downloads_are_told_apart_from_models() {
    let d = Dir::new();
    let whole = gguf(&[], &[("a", 400)]);
    d.put("x.gguf.part1of2", &whole[..200]).put("x.gguf.part2of2", &whole[200..]);
    let e = d.refused("x.gguf.part1of2");
    let hint = "is a piece of a file that was cut up: join all pieces, in order, with `cat`";
    assert!(
        e.starts_with(&format!("x.gguf.part1of2: {hint}\nx.gguf.part1of2: truncated: ")),
        "{e}"
    );
    assert!(d.refused("x.gguf.part2of2").starts_with(&format!("x.gguf.part2of2: {hint}\n")));
    d.put("b.incomplete", &whole).put("sha256-00-partial", &whole);
    symlink(d.path("b.incomplete"), d.path("fine.gguf")).unwrap();
    for name in ["b.incomplete", "sha256-00-partial", "fine.gguf"] {
        let want = format!("{name}: is a download that did not finish; it is not opened");
        assert_eq!(d.refused(name), want);
    }
}

#[test]
fn a_directory_holds_one_model_or_says_which() {
    let d = Dir::new();
    d.put("b.gguf", gguf(&[], &[("b", 4)])).put("README.md", "text").put("tokenizer.json", "{}");
    d.put(".b.gguf.tmp", gguf(&[], &[("b", 4)]));
    assert_eq!(d.served("").entry, d.path("b.gguf"));
    d.put("a.gguf", gguf(&[], &[("a", 4)]));
    assert_eq!(d.refused(""), "DIR: holds 2 models; name one of them: a.gguf, b.gguf");
    split_in(&d);
    let want = "DIR: holds 3 models; name one of them: a.gguf, b.gguf, m-00001-of-00003.gguf";
    assert_eq!(d.refused(""), want);

    d.put("model.safetensors", safetensors(&[], &[("w", 4)]));
    let loaded = d.served("");
    assert_eq!(loaded.entry, d.path("model.safetensors"));
    assert!(loaded.model.warnings[0].contains("ignored: a.gguf, b.gguf, m-00001-of-00003.gguf"));
    d.put("model.safetensors", "");
    assert!(d.refused("").starts_with("model.safetensors: is an empty file"));

    sharded_in(&d);
    assert_eq!(d.served("").entry, d.path(INDEX));
    d.put("model.safetensors.index.fp16.json", index(&[("a", ONE)]));
    let want = "DIR: holds 2 models; name one of them: model.safetensors.index.fp16.json, \
                model.safetensors.index.json";
    assert_eq!(d.refused(""), want);
}

#[test]
fn a_directory_without_a_model_says_what_it_has_instead() {
    let d = Dir::new();
    d.put("m.gguf", "version https://git-lfs.github.com/spec/v1\n").put("x.incomplete", "GGUF");
    d.put("pytorch_model.bin", "PK\x03\x04").put("config.json", "{}");
    symlink("gone", d.path("gone.safetensors")).unwrap();
    let want = "DIR: holds no model, but gone.safetensors is a link to nothing or not readable, \
                m.gguf is a Git LFS pointer, pytorch_model.bin is a zip archive (a PyTorch .bin or \
                .pt file is one), x.incomplete is a download that did not finish";
    assert_eq!(d.refused(""), want);
}

#[test]
fn a_relative_name_is_remembered_whole() {
    let here = std::env::current_dir().unwrap();
    let d = TempDir::new_in(&here).unwrap();
    fs::write(d.path().join("m.gguf"), gguf(&[], &[("a", 1)])).unwrap();
    let relative = d.path().strip_prefix(&here).unwrap();
    for spec in [relative.to_path_buf(), relative.join("m.gguf"), relative.join("./m.gguf")] {
        let loaded = super::open(&spec, IoMode::Pread).unwrap();
        assert_eq!(loaded.entry, d.path().join("m.gguf"));
    }
}

#[test]
fn architecture_and_name_are_strings_of_the_file() {
    let string = |s: &str| [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat();
    let mut bytes = gguf(&[], &[]);
    bytes[16] = 2;
    bytes.truncate(24);
    for (key, value) in [("general.architecture", "llama"), ("general.name", "Tiny \u{e9}")] {
        bytes.extend(string(key));
        bytes.extend(8u32.to_le_bytes());
        bytes.extend(string(value));
    }
    let d = Dir::new();
    d.put("m.gguf", bytes);
    let model = d.served("m.gguf").model;
    assert_eq!(model.architecture.as_deref(), Some("llama"));
    assert_eq!(model.name.as_deref(), Some("Tiny \u{e9}"));
    d.put("n.gguf", gguf(&[("general.architecture", 3)], &[]));
    assert_eq!(d.served("n.gguf").model.architecture, None);
}
