//! Names: from stored to mounted tensor names, and from names to file names.
//!
//! A [`Catalog`] is the list of mounted tensors, made from the model by the stages of
//! `map=`: the built-in tables for GGUF and Hugging Face names, and map files. [`file_stem`]
//! turns any name into a directory entry and [`StemIndex`] finds the tensor again.
//! Must not know FUSE, tensor bytes or directories other than as path parts.

mod builtin;
mod catalog;
mod document;
mod error;
mod facts;
mod families;
mod like;
mod map_file;
mod rules;
mod stage;
mod stem;
mod stem_index;
mod strict_json;
mod table_pass;
mod template;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod testing;
mod transform;

pub use catalog::{Catalog, Mounted};
pub use document::{DocumentError, MapDocument, MapRow, map_rows};
pub use error::{Code, MapError, Problem};
pub use facts::{ArchFacts, PerLayer};
pub use like::{Likeness, Mismatch, Reference};
pub use stem::{NAME_MAX, file_name, file_stem};
pub use stem_index::{Collision, StemIndex};
pub use transform::Transform;

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

/// One value of `map=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapSpec {
    /// Names as stored.
    None,
    /// Hugging Face names for a GGUF.
    Hf,
    /// GGUF names for a Hugging Face checkpoint.
    Gguf,
    /// A map file.
    File(PathBuf),
}

impl MapSpec {
    /// What the user wrote behind `map=`: one of the words, else a path (a file of that
    /// name is `./hf`).
    pub fn parse(value: &OsStr) -> MapSpec {
        match value.as_encoded_bytes() {
            b"none" => MapSpec::None,
            b"hf" => MapSpec::Hf,
            b"gguf" => MapSpec::Gguf,
            _ => MapSpec::File(value.into()),
        }
    }

    /// What is wrong with a map file for every model: it cannot be read, or is none.
    pub fn check(&self) -> Result<(), MapError> {
        let MapSpec::File(path) = self else { return Ok(()) };
        map_file::MapFile::parse(&self.to_string(), &map_file::read(path)?).map(drop)
    }
}

impl fmt::Display for MapSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapSpec::None => f.write_str("none"),
            MapSpec::Hf => f.write_str("hf"),
            MapSpec::Gguf => f.write_str("gguf"),
            MapSpec::File(path) => path.display().fmt(f),
        }
    }
}
