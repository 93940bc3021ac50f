//! Where models live: names in the stores of other programs, and the paths they stand for.
//!
//! `hf:ORG/NAME[@REV]` is a snapshot in the Hugging Face cache, `ollama:NAME[:TAG]` a blob in
//! Ollama's store. Read is what those programs wrote (refs, manifests); nothing is downloaded
//! and nothing is written. Names, refs and manifests are texts of strangers: none of them leads
//! out of its store. Must not know formats or what is a model: a path comes out, and `load` does
//! with it what it does with one that was typed.

mod error;
mod hugging_face;
mod manifest;
mod ollama;
mod places;
mod repository;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use error::DepotError;
pub use ollama::{asked_of_ollama, is_blob, models_of_ollama};
pub use repository::{Repository, blobs_of, repository};

use error::shown;
use places::Places;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub struct Located {
    /// The file or the directory, absolute, symlinks not resolved.
    pub path: PathBuf,
    /// What the store says beyond that, and the user should know.
    pub warnings: Vec<String>,
    /// Of a directory: what stands before the name of one file in it, to name that as a MODEL.
    pub prefix: Option<String>,
}

/// A model of a store that was come upon by its path.
#[derive(Debug)]
pub struct StoreModel {
    /// What the store calls it, as names of directories.
    pub name: Vec<String>,
    /// Where it is, or why it is not there.
    pub located: Result<Located, DepotError>,
}

/// The path that a name in a store stands for; `None` for what is no such name. A file that is
/// called so is named with `./` in front.
pub fn locate(spec: &Path) -> Result<Option<Located>, DepotError> {
    locate_in(spec, &Places::of_this_process())
}

fn locate_in(spec: &Path, places: &Places) -> Result<Option<Located>, DepotError> {
    let bytes = spec.as_os_str().as_bytes();
    let (name, find): (_, Finder) = match bytes.split_at_checked(HF.len()) {
        Some((HF, name)) => (name, hugging_face::find),
        _ => match bytes.strip_prefix(OLLAMA) {
            Some(name) => (name, ollama::find),
            None => return Ok(None),
        },
    };
    match std::str::from_utf8(name) {
        Ok(name) => find(name, places).map(Some),
        Err(_) => Err(DepotError::Name { spec: shown(bytes), what: "it is not UTF-8".into() }),
    }
}

const HF: &[u8] = b"hf:";
const OLLAMA: &[u8] = b"ollama:";

type Finder = fn(&str, &Places) -> Result<Located, DepotError>;

impl Located {
    /// The directories in a directory that hold something called like a model, as MODEL.
    pub fn below(&self) -> Vec<String> {
        let Some(prefix) = &self.prefix else { return Vec::new() };
        let named_as_model =
            |name: &[u8]| name.ends_with(b".gguf") || name.ends_with(b".safetensors");
        let mut found = Vec::new();
        for dir in entries(&self.path) {
            let inside = entries_within(&self.path.join(&dir));
            if inside.iter().any(|name| named_as_model(name.as_bytes())) {
                found.push(format!("{prefix}{}", shown(dir.as_bytes())));
            }
        }
        found
    }
}

/// Entries of a directory that are looked through.
const MAX_ENTRIES: usize = 10_000;

/// Names in a directory, sorted, hidden ones left out; none where it cannot be read.
fn entries(dir: &Path) -> Vec<std::ffi::OsString> {
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut names: Vec<_> = all.map(|entry| entry.file_name()).collect();
    names.retain(|name| !name.as_bytes().starts_with(b"."));
    names.sort();
    names
}

/// As [`entries`], of a directory that is no link to another place.
fn entries_within(dir: &Path) -> Vec<std::ffi::OsString> {
    match dir.symlink_metadata() {
        Ok(about) if about.is_dir() => entries(dir),
        _ => Vec::new(),
    }
}

/// Whether `name` is one file name and no way to another place.
fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= 255
        && !name.contains('/')
        && !name.contains(char::is_control)
}

/// Whether `path` exists and leads to a place below `home`, wherever that is itself.
fn is_inside(path: &Path, home: &Path) -> bool {
    path.canonicalize()
        .ok()
        .zip(home.canonicalize().ok())
        .is_some_and(|(path, home)| path.starts_with(home))
}
