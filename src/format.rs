//! From bytes to a [`crate::model::Model`]: one reader per format.
//!
//! The readers know nothing of files: they are given [`ReadAt`] and return what one
//! file says. Putting the files of a set together is `load`'s work.

use crate::bytes::ReadAt;

pub mod gguf;
pub mod safetensors;

/// What the first bytes of a file look like. Decided by content, never by extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// `GGUF` magic.
    Gguf,
    /// A plausible header length and `{` (white space allowed in front).
    Safetensors,
    /// Something else; the text says what it looks like ("a Git LFS pointer", "a zip archive", ...).
    Other(&'static str),
}

/// Looks at the first bytes of `file`.
pub fn detect(_file: &dyn ReadAt) -> std::io::Result<Detected> {
    unimplemented!()
}
