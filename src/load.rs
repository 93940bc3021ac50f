//! From what the user named to an open model: where files and formats meet.
//!
//! Resolves names in stores, directories, indexes, splits and shards; refuses what is not a model,
//! and says what it is instead. Must not know names in the mount, views or FUSE.
//!
//! Paths found inside files (an index names its shards) are untrusted and never lead out of
//! the model's directory; names are looked for beside the name the user gave, not beside
//! what a symlink resolves to.

use crate::depot::{self, Located};
use crate::format::gguf::Known;
use crate::format::{Detected, UNKNOWN};
use crate::model::Model;
use crate::source::{IoMode, Source};
use error::List;
use file::{Opened, name_of};
use std::path::{Path, PathBuf};

mod assemble;
mod directory;
mod error;
mod file;
mod gguf;
mod members;
mod names;
mod part;
mod safetensors;
#[cfg(test)]
mod tests;
mod walk;

pub use error::LoadError;
pub use members::{Member, members};
pub use part::open_part;
pub use walk::{Found, Walk, seems_to_hold_some, walk};

/// An open model: what it is, and its files in the order of `model.shards`.
#[derive(Debug)]
pub struct Loaded {
    /// The description.
    pub model: Model,
    /// One source per shard.
    pub sources: Vec<Source>,
    /// The file the seal is named after, absolute, symlinks not resolved: the file itself, the
    /// first part of a split, or the index.
    pub entry: PathBuf,
}

impl Loaded {
    /// The number of the file that `spec` names, when that is one of the model's files and not
    /// its index, its directory or another name of it.
    pub fn file_named(&self, spec: &Path) -> Option<u32> {
        let located = depot::locate(spec).ok()?;
        let name = located.as_ref().map_or(spec, |located| &located.path).file_name()?;
        let same = |source: &Source| source.path().file_name() == Some(name);
        (0..).zip(&self.sources).find_map(|(number, source)| same(source).then_some(number))
    }
}

/// What is known from before about the GGUF files of the model with a given entry file, by
/// their names beside their siblings; nothing, where nothing is. It saves time and is not
/// believed: see [`crate::format::gguf::parse_known`].
pub type Recall<'a> = dyn Fn(&Path) -> Vec<(Box<[u8]>, Known)> + 'a;

/// Opens the model that `spec` names (contract section 1, MODEL).
pub fn open(spec: &Path, io: IoMode) -> Result<Loaded, LoadError> {
    open_known(spec, io, &|_| Vec::new())
}

/// As [`open`], for a caller that may know something about the files from before.
pub fn open_known(spec: &Path, io: IoMode, recall: &Recall<'_>) -> Result<Loaded, LoadError> {
    let Some(located) = depot::locate(spec)? else {
        return open_path(spec, io, recall);
    };
    let mut loaded =
        open_path(&located.path, io, recall).map_err(|error| with_way_on(error, &located))?;
    loaded.model.warnings.extend(located.warnings);
    Ok(loaded)
}

/// Opens the model in a file or a directory.
fn open_path(path: &Path, io: IoMode, recall: &Recall<'_>) -> Result<Loaded, LoadError> {
    let failed = |op| move |source| LoadError::Io { file: path.into(), op, source };
    let kind = std::fs::metadata(path).map_err(failed("open it"))?.file_type();
    let path = std::path::absolute(path).map_err(failed("find it"))?;
    if !kind.is_dir() {
        return open_file(&path, io, recall);
    }
    let found = directory::find(&path)?;
    let mut loaded = open_file(&found.entry, io, recall)?;
    loaded.model.warnings.extend(directory::ignored(&found.models, &loaded));
    Ok(loaded)
}

/// Adds to the error of a directory in a store how one of its models is named, or that nothing
/// is fetched.
fn with_way_on(error: LoadError, located: &Located) -> LoadError {
    let Some(prefix) = &located.prefix else { return error };
    let hint = match &error {
        LoadError::SeveralModels { models, .. } => {
            format!("for example {prefix}{}", models.first().map_or("", |name| name))
        }
        LoadError::NoModel { .. } => match &*located.below() {
            [] => "what is not in the cache is not fetched".into(),
            below => format!("directories of it with models: {}", List(below)),
        },
        LoadError::Missing { .. } => "what is not in the cache is not fetched".into(),
        _ => return error,
    };
    LoadError::InDepot { source: Box::new(error), hint }
}

/// Opens the model that `path`, which is no directory, leads to.
fn open_file(path: &Path, io: IoMode, recall: &Recall<'_>) -> Result<Loaded, LoadError> {
    let opened = file::open(path, io)?;
    open_content(path, opened, io, recall).map_err(|e| file::with_piece_hint(path, e))
}

fn open_content(
    path: &Path,
    opened: Opened,
    io: IoMode,
    recall: &Recall<'_>,
) -> Result<Loaded, LoadError> {
    match opened.detected {
        Detected::Gguf => gguf::open(path, opened.source, io, recall),
        Detected::Safetensors => safetensors::open(path, opened.source, io),
        Detected::Json => safetensors::open_index(path, &opened.source, io),
        // Nothing is recognised: let the reader whose file this claims to be say what is wrong.
        Detected::Other(UNKNOWN) if name_of(path).ends_with(b".safetensors") => {
            safetensors::open(path, opened.source, io)
        }
        Detected::Other(UNKNOWN) if name_of(path).ends_with(b".gguf") => {
            gguf::open(path, opened.source, io, recall)
        }
        Detected::Other(what) => Err(file::not_a_model(path, what)),
    }
}
