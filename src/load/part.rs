//! One source file of a model by itself: what a part of a seal is made from.
//!
//! The other files need not be there: a worker seals the shard that it has. Only which
//! tensors of a shard an index gives to others must be known, so that the file is cut as it
//! is within the whole model.

use super::file;
use super::{LoadError, Loaded, gguf, safetensors};
use crate::depot;
use crate::format::{Detected, UNKNOWN};
use crate::source::IoMode;
use std::path::Path;

/// Opens the file at `path` alone, as a model of one file, whatever set it is a part of.
pub fn open_part(path: &Path, io: IoMode) -> Result<Loaded, LoadError> {
    let located = depot::locate(path)?;
    let path = located.as_ref().map_or(path, |located| &located.path);
    let path = std::path::absolute(path).map_err(|source| LoadError::Io {
        file: path.into(),
        op: "find it",
        source,
    })?;
    let opened = file::open(&path, io)?;
    match opened.detected {
        Detected::Gguf => gguf::alone(&path, opened.source),
        Detected::Safetensors => safetensors::alone(&path, opened.source),
        Detected::Other(UNKNOWN) if file::name_of(&path).ends_with(b".safetensors") => {
            safetensors::alone(&path, opened.source)
        }
        Detected::Json => {
            Err(file::not_a_model(&path, "JSON text, which holds no tensors: name a shard of it"))
        }
        Detected::Other(what) => Err(file::not_a_model(&path, what)),
    }
}
