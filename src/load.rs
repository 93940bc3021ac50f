//! From what the user named to an open model: where files and formats meet.
//!
//! Resolves directories, indexes, splits and shards; refuses what is not a model,
//! and says what it is instead. Must not know names in the mount, views or FUSE.

use crate::model::Model;
use crate::source::{IoMode, Source};
use std::path::{Path, PathBuf};

/// An open model: what it is, and its files in the order of `model.shards`.
#[derive(Debug)]
pub struct Loaded {
    /// The description.
    pub model: Model,
    /// One source per shard.
    pub sources: Vec<Source>,
    /// The file the seal is named after, symlinks not resolved: the file itself, the first
    /// part of a split, or the index.
    pub entry: PathBuf,
}

/// Opens the model that `spec` names (contract section 1, MODEL).
pub fn open(_spec: &Path, _io: IoMode) -> Result<Loaded, LoadError> {
    unimplemented!()
}

/// Why a model could not be opened. The message names file, tensor or key, offset, expected, found.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// See `source`.
    #[error(transparent)]
    Source(#[from] crate::source::SourceError),
}
