//! The files that a model is made of, when it cannot be opened: what its index or the names of
//! its parts say, without a look at what is in them.
//!
//! One damaged file keeps a whole set from being opened. What is written down about the files
//! can still be compared with them, whichever of them, or of their directory, was named.

use super::names::Part;
use super::{directory, file, gguf, safetensors};
use crate::depot;
use crate::format::Detected;
use crate::source::IoMode;
use std::path::{Path, PathBuf};

/// A file of a model: its name within the model, and where it is.
pub type Member = (Box<[u8]>, PathBuf);

/// The files of the model that `spec` names, in order. Empty where that cannot be told: files of
/// the set are missing, or the directory has several models.
pub fn members(spec: &Path) -> Vec<Member> {
    find(spec).unwrap_or_default()
}

fn find(spec: &Path) -> Option<Vec<Member>> {
    let located = depot::locate(spec).ok()?;
    let path = located.as_ref().map_or(spec, |located| &located.path);
    let path = std::path::absolute(path).ok()?;
    let path = if path.is_dir() { directory::likeliest(&path)? } else { path };
    if !path.is_file() {
        return None;
    }
    if let Some(set) = safetensors::members(&path) {
        return set;
    }
    // Text is no file with weights.
    if file::open(&path, IoMode::Pread).is_ok_and(|opened| opened.detected == Detected::Json) {
        return None;
    }
    match Part::parse(file::name_of(&path)).filter(Part::is_shard) {
        Some(part) => gguf::members(&path, &part),
        None => Some(vec![one(path)]),
    }
}

/// A file by its own name.
pub(super) fn one(path: PathBuf) -> Member {
    (file::name_of(&path).into(), path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(spec: &Path) -> Vec<String> {
        let members = members(spec).into_iter();
        members.map(|(name, _)| String::from_utf8(name.into_vec()).unwrap()).collect()
    }

    fn put(dir: &Path, name: &str, text: &[u8]) -> PathBuf {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name)
    }

    const INDEX: &str = "model.safetensors.index.json";
    const SHARDS: [&str; 2] =
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

    #[test]
    fn a_set_by_its_directory_its_index_and_each_shard() {
        let dir = tempfile::tempdir().unwrap();
        let map = format!(r#"{{"weight_map":{{"a":"{}","b":"{}"}}}}"#, SHARDS[0], SHARDS[1]);
        let index = put(dir.path(), INDEX, map.as_bytes());
        let shards = SHARDS.map(|name| put(dir.path(), name, b"no model at all"));
        put(dir.path(), "other.safetensors", b"");
        for spec in [dir.path(), &index, &shards[0], &shards[1]] {
            assert_eq!(names(spec), SHARDS, "{}", spec.display());
        }
        assert_eq!(names(&dir.path().join("other.safetensors")), ["other.safetensors"]);
        std::fs::remove_file(&shards[1]).unwrap();
        for spec in [dir.path(), &index, &shards[0]] {
            assert!(members(spec).is_empty(), "one is missing: {}", spec.display());
        }
    }

    #[test]
    fn an_index_that_leads_away_has_no_members() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "secret", b"x");
        let inner = dir.path().join("d");
        std::fs::create_dir(&inner).unwrap();
        let index = put(&inner, INDEX, br#"{"weight_map":{"a":"../secret"}}"#);
        assert!(members(&index).is_empty());
        assert!(members(&inner).is_empty());
    }

    #[test]
    fn a_split_by_its_directory_and_each_part_whatever_is_left_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let parts = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
        for first in [&b"GGUF"[..], b"", b"damaged"] {
            let paths = [put(dir.path(), parts[0], first), put(dir.path(), parts[1], b"GGUF")];
            for spec in [dir.path(), &paths[0], &paths[1]] {
                assert_eq!(names(spec), parts, "{}", spec.display());
            }
        }
        std::fs::remove_file(dir.path().join(parts[1])).unwrap();
        assert!(members(dir.path()).is_empty());
    }

    #[test]
    fn a_file_alone_and_what_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = put(dir.path(), "m.gguf", b"damaged");
        assert_eq!(
            (names(&path), names(dir.path())),
            (vec!["m.gguf".into()], vec!["m.gguf".into()])
        );
        put(dir.path(), "n.gguf", b"damaged");
        assert!(members(dir.path()).is_empty(), "two models");
        let json = put(dir.path(), "config.json", b"{}");
        assert!(members(&json).is_empty());
        assert!(members(&dir.path().join("none")).is_empty());
    }
}
