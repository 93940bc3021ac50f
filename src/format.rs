//! From bytes to a [`crate::model::Model`]: one reader per format.
//!
//! The readers know nothing of files: they are given [`ReadAt`] and return what one
//! file says. Putting the files of a set together is `load`'s work.
//!
//! What holds for every input, however hostile: no panic; memory within
//! [`Limits::reserved_bytes`] plus a small constant (safetensors: plus its header, read
//! once); work linear in the bytes of the header, or n log n; no recursion that the input
//! can deepen.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::bytes::ReadAt;

mod cursor;
pub mod gguf;
mod limits;
mod quote;
pub mod safetensors;
mod sniff;
mod unique;

pub use limits::Limits;
pub use quote::Quoted;
pub use unique::duplicate;

pub(crate) use limits::Budget;

/// What the first bytes of a file look like. Decided by content, never by extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// `GGUF` magic.
    Gguf,
    /// A plausible header length and `{` (white space allowed in front).
    Safetensors,
    /// JSON text: perhaps the index of a sharded set, perhaps an error message.
    Json,
    /// Something else; the text says what it looks like ("a Git LFS pointer", "a zip archive",
    /// ...).
    Other(&'static str),
}

/// [`Detected::Other`] of a file without bytes.
pub const EMPTY: &str = "an empty file";
/// [`Detected::Other`] of a Git LFS pointer: the text that stands for a file not downloaded.
pub const LFS_POINTER: &str = "a Git LFS pointer";
/// [`Detected::Other`] when nothing known is recognised.
pub const UNKNOWN: &str = "of no known format";

/// Looks at the first bytes of `file`.
pub fn detect(file: &dyn ReadAt) -> std::io::Result<Detected> {
    let len = file.len();
    let mut head = [0u8; sniff::HEAD];
    let here = usize::try_from(len).unwrap_or(usize::MAX).min(sniff::HEAD);
    let head = head.get_mut(..here).unwrap_or_default();
    file.read_at(0, head)?;
    Ok(sniff::sniff(head, len))
}
