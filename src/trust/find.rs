//! Looking for anchors: in the names of a model's files, and beside them.

use super::{Found, List, name_of, store_name};
use crate::model::{ByteOrder, Format, Model, Shard};
use crate::source::{IoMode, Source};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Lists of a whole directory.
const OF_DIRECTORY: [&str; 20] = [
    "SHA256SUMS",
    "SHA256SUM",
    "SHA256SUMS.txt",
    "sha256sums",
    "sha256sums.txt",
    "sha256sum",
    "sha256sum.txt",
    "CHECKSUMS",
    "CHECKSUMS.txt",
    "checksums.txt",
    "checksum.txt",
    "checksums.sha256",
    // Their digests are not computed here, which is said instead of passing them over.
    "B3SUMS",
    "B3SUMS.txt",
    "b3sums",
    "b3sums.txt",
    "BLAKE3SUMS",
    "checksums.b3",
    "model.sig",
    "model.manifest",
];
/// Lists of one file: what is put behind its name.
const OF_FILE: [&str; 9] = [
    ".sha256",
    ".sha256sum",
    ".sha256.txt",
    ".b3",
    ".b3sum",
    ".b3sums",
    ".blake3",
    ".manifest",
    ".sig",
];
/// Signatures of other names that are looked at.
const MAX_SIGNATURES: usize = 16;
/// Entries of the model's directory that are looked through for them.
const MAX_ENTRIES: usize = 10_000;

/// Everything that says what the files of `model` should be, beside them or in their names.
/// A list that cannot be used is a warning: it does not say anything about the bytes.
pub fn find(model: &Model, sources: &[Source]) -> Found {
    let mut found = Found::default();
    for (shard, source) in sources.iter().enumerate() {
        found.anchors.extend(store_name::anchors(shard, source));
    }
    let mut lists: Vec<PathBuf> = Vec::new();
    let mut directories: Vec<&Path> = Vec::new();
    for source in sources {
        let path = source.path();
        for suffix in OF_FILE {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            lists.push(name.into());
        }
        if sources.len() == 1 && is_only_of_stem(path) {
            lists.push(list_of_stem(path));
        }
        let Some(dir) = path.parent().filter(|dir| !directories.contains(dir)) else {
            continue;
        };
        directories.push(dir);
        lists.extend(OF_DIRECTORY.iter().map(|name| dir.join(name)));
        lists.extend(signatures(dir));
    }
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in lists {
        // The candidates of many shards of one directory would be opened again and again.
        if seen.contains(&path) || path.symlink_metadata().is_err() {
            continue;
        }
        match List::beside(&path, model) {
            Ok(Some(mut list)) => {
                found.warnings.append(&mut list.warnings);
                found.anchors.extend(list.into_anchors());
            }
            Ok(None) => {}
            Err(error) => found.warnings.push(format!("{error}; it is not used as an anchor")),
        }
        seen.push(path);
    }
    found.anchors.sort_by_key(|anchor| anchor.shard);
    found
}

/// Files (name and place) that are no model, or a damaged one, as a model without tensors: what
/// is known about their bytes can still be compared with them.
pub fn unopened(files: &[(Box<[u8]>, PathBuf)]) -> Option<(Model, Vec<Source>)> {
    let open = |(_, path): &(_, PathBuf)| {
        path.metadata().ok().filter(|about| about.is_file())?;
        Source::open(path, IoMode::Auto).ok()
    };
    let sources: Vec<Source> = files.iter().map(open).collect::<Option<_>>()?;
    let shards = files.iter().zip(&sources).map(|((name, _), source)| Shard {
        file: name.clone(),
        len: source.len(),
        data_start: source.len(),
        tensor_infos: 0,
    });
    let model = Model {
        format: Format::Gguf,
        format_version: 0,
        byte_order: ByteOrder::Little,
        architecture: None,
        name: None,
        metadata: Vec::new(),
        shards: shards.collect(),
        tensors: Vec::new(),
        warnings: Vec::new(),
    };
    (!sources.is_empty()).then_some((model, sources))
}

/// `m.sha256` beside `m.gguf`.
pub(super) fn list_of_stem(file: &Path) -> PathBuf {
    file.with_extension("sha256")
}

/// Whether no other file of the directory could be meant by a list that is called as `file` is
/// without its extension.
fn is_only_of_stem(file: &Path) -> bool {
    let Some(dir) = file.parent().filter(|_| list_of_stem(file).symlink_metadata().is_ok()) else {
        return false;
    };
    let entries = std::fs::read_dir(dir).ok().into_iter().flatten().flatten().take(MAX_ENTRIES);
    let same = |name: &OsString| {
        let other = Path::new(name);
        let of_model = [&b".gguf"[..], b".safetensors", b".bin", b".pt", b".pth", b".onnx"]
            .iter()
            .any(|ending| name.as_bytes().ends_with(ending));
        of_model && other.file_stem() == file.file_stem() || other.file_name() == file.file_stem()
    };
    entries.map(|entry| entry.file_name()).filter(same).take(2).count() == 1
}

/// Files called `*.sig`, in order of their names.
fn signatures(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).ok().into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.retain(|name| name.as_bytes().ends_with(b".sig"));
    names.sort();
    names.truncate(MAX_SIGNATURES);
    names.into_iter().map(|name| dir.join(OsString::from_vec(name.into_vec()))).collect()
}

/// Whether a file of this name has lines of digests, and nothing else: a `.sig` or a `.manifest`
/// may be anybody's.
pub(super) fn is_named_as_sums(list: &Path) -> bool {
    let name = name_of(list);
    let other: [&[u8]; 2] = [b".sig", b".manifest"];
    !other.iter().any(|suffix| name.ends_with(suffix))
}

/// Whether the name of a list says that its digests are of BLAKE3, which has as many digits as
/// SHA-256: lines of b3sum do not tell.
pub(super) fn is_named_as_blake3(list: &Path) -> bool {
    let name = name_of(list).to_ascii_lowercase();
    let mut words = name.split(|b| !b.is_ascii_alphanumeric());
    words.any(|word| {
        let kind = word.strip_suffix(b"s").unwrap_or(word);
        matches!(kind.strip_suffix(b"sum").unwrap_or(kind), b"b3" | b"blake3")
    })
}

/// Whether the name of a list says that it is about one file, and which.
pub(super) fn file_of_list(list: &Path) -> Option<&[u8]> {
    let name = name_of(list);
    OF_FILE.iter().find_map(|suffix| name.strip_suffix(suffix.as_bytes()))
}
