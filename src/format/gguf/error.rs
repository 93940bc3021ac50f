//! Why a GGUF file is refused. Each message names its subject, the place and both values.

use crate::dtype::DType;
use crate::format::Quoted;
use crate::format::cursor::ReadError;
use crate::format::limits::OverLimit;
use std::fmt::{self, Display, Formatter};
use std::io;

/// Why a GGUF file was refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message beside each variant says what its fields are")]
pub enum GgufError {
    #[error("not GGUF: begins with {} instead of \"GGUF\"", Quoted(found))]
    Magic { found: Vec<u8> },
    #[error("{order}GGUF version {version} is not supported; versions 1, 2 and 3 are")]
    Version { order: &'static str, version: u32 },

    #[error("{what} needs {need} bytes at byte {offset}, but the file ends after {left} more")]
    PastEnd { what: String, offset: u64, need: u64, left: u64 },
    #[error("{what} cannot be read at byte {offset}: {source}")]
    Io { what: String, offset: u64, source: io::Error },
    #[error("{what}: not supported: {source}")]
    Limit { what: String, source: OverLimit },
    #[error(
        "{count} {what} (the count at byte {offset}) take at least {need} bytes, \
         but the file ends after {left} more"
    )]
    Count { what: String, count: u64, offset: u64, need: u128, left: u64 },

    #[error("metadata key {number} at byte {offset} is empty")]
    EmptyKey { number: u64, offset: u64 },
    #[error("metadata key {} occurs twice (numbers {first} and {second})", Quoted(key))]
    DuplicateKey { key: Box<[u8]>, first: usize, second: usize },
    #[error("{what}: {role} type {id} at byte {offset} is unknown (0 to 12 are known)")]
    ValueType { what: String, role: &'static str, id: u32, offset: u64 },
    #[error("{what}: arrays nested more than {limit} deep are not supported (byte {offset})")]
    Depth { what: String, limit: u32, offset: u64 },
    #[error(
        "metadata key \"general.alignment\" must be a u32 that is a power of two, found {found}"
    )]
    Alignment { found: String },

    #[error("tensor {} occurs twice (numbers {first} and {second})", Quoted(name))]
    DuplicateTensor { name: Box<[u8]>, first: usize, second: usize },
    #[error(
        "tensor {}: {found} dimensions (at byte {offset}) are not supported; at most 8 are",
        Quoted(name)
    )]
    Dimensions { name: Box<[u8]>, found: u32, offset: u64 },
    #[error("tensor {}: dimension {found} at byte {offset} is over 2^63 - 1", Quoted(name))]
    Dimension { name: Box<[u8]>, found: u64, offset: u64 },
    #[error("tensor {}: element type {found} (at byte {offset}) is {why}", Quoted(name))]
    Type { name: Box<[u8]>, found: u32, offset: u64, why: String },
    #[error(
        "tensor {}: rows of {row} elements do not fill whole {dtype} blocks of {block}",
        Quoted(name)
    )]
    Row { name: Box<[u8]>, dtype: DType, row: u64, block: u64 },
    #[error("tensor {}: {dtype} {} has more bytes than a file can", Quoted(name), Dims(shape))]
    Size { name: Box<[u8]>, dtype: DType, shape: Box<[u64]> },

    #[error(
        "tensor {}: offset {offset} is not a multiple of the alignment {alignment}",
        Quoted(name)
    )]
    Unaligned { name: Box<[u8]>, offset: u64, alignment: u64 },
    #[error(
        "the data section starts at byte {data_start} (alignment {alignment}), \
         but the file ends at byte {len}"
    )]
    NoData { data_start: u128, alignment: u64, len: u64 },
    #[error(
        "tensors {} and {} overlap: bytes {}..{} and {}..{}",
        Quoted(first), Quoted(second), first_at.0, first_at.1, second_at.0, second_at.1
    )]
    Overlap { first: Box<[u8]>, first_at: (u128, u128), second: Box<[u8]>, second_at: (u128, u128) },
    #[error(
        "truncated: the tensors end at byte {need}, the file at byte {len}, so {} bytes are \
         missing, from tensor {} on",
        need.saturating_sub(u128::from(*len)), Quoted(name)
    )]
    Truncated { name: Box<[u8]>, need: u128, len: u64 },
    #[error(
        "tensor {}: bytes {start}..{end} lie past the end of the file at byte {len}",
        Quoted(name)
    )]
    OutOfFile { name: Box<[u8]>, start: u128, end: u128, len: u64 },
}

impl GgufError {
    /// Adds what was being read.
    #[cold]
    pub(super) fn reading(what: impl Display, error: ReadError) -> GgufError {
        let what = what.to_string();
        match error {
            ReadError::PastEnd { offset, need, left } => {
                GgufError::PastEnd { what, offset, need, left }
            }
            ReadError::Io { offset, source } => GgufError::Io { what, offset, source },
            ReadError::Limit(source) => GgufError::Limit { what, source },
        }
    }

    /// Adds what grew too large.
    #[cold]
    pub(super) fn limit(what: impl Display, source: OverLimit) -> GgufError {
        GgufError::Limit { what: what.to_string(), source }
    }
}

/// A shape, as messages show it; long ones are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims<'a>(pub(crate) &'a [u64]);

impl Display for Dims<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, dim) in self.0.iter().take(16).enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str(if self.0.len() > 16 { ", ...]" } else { "]" })
    }
}
