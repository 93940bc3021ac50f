//! Why a safetensors file is refused. Each message names its subject, the place and both values.

use super::json::JsonError;
use crate::dtype::DType;
use crate::format::gguf::Dims;
use crate::format::limits::OverLimit;
use crate::format::{Quoted, safetensors::MAX_HEADER};
use std::io;

/// Why a safetensors file was refused. Offsets of data count from the start of the data, as
/// in the header, unless a message says "of the file".
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message beside each variant says what its fields are")]
pub enum SafetensorsError {
    #[error("too small: {len} bytes, but the length of the header alone takes 8")]
    TooSmall { len: u64 },
    #[error("the header's length is {header} bytes; at most {MAX_HEADER} are allowed")]
    TooLarge { header: u64 },
    #[error("a header of {header} bytes would end at byte {}, but the file ends at byte {len}", u128::from(*header) + 8)]
    HeaderPastEnd { header: u64, len: u64 },
    #[error("cannot read {len} bytes at byte {offset}: {source}")]
    Io { offset: u64, len: u64, source: io::Error },
    #[error("the header is not UTF-8 at byte {offset} of the file")]
    Utf8 { offset: u64 },
    #[error("the JSON header is not valid: {0}")]
    Json(#[from] JsonError),
    #[error("not supported: {0}")]
    Limit(#[from] OverLimit),

    #[error("tensor {} occurs twice", Quoted(name))]
    DuplicateTensor { name: Box<[u8]> },
    #[error("__metadata__ occurs twice")]
    DuplicateMetadata,
    #[error("__metadata__ has the key {} twice", Quoted(key))]
    DuplicateKey { key: Box<[u8]> },
    #[error("tensor {}: {field} occurs twice", Quoted(name))]
    DuplicateField { name: Box<[u8]>, field: &'static str },
    #[error("tensor {}: {field} is missing", Quoted(name))]
    MissingField { name: Box<[u8]>, field: &'static str },
    #[error("tensor {}: unsupported dtype {}", Quoted(name), Quoted(dtype))]
    UnknownDType { name: Box<[u8]>, dtype: Box<[u8]> },

    #[error("tensor {}: data_offsets [{begin}, {end}] run backwards", Quoted(name))]
    Backwards { name: Box<[u8]>, begin: u64, end: u64 },
    #[error(
        "tensor {} begins at byte {begin} of the data, but what is before it ends at {expected}: \
         a hole of {} bytes",
        Quoted(name), begin.saturating_sub(*expected)
    )]
    Hole { name: Box<[u8]>, begin: u64, expected: u64 },
    #[error(
        "tensors {} and {} overlap: bytes {}..{} and {}..{} of the data",
        Quoted(first), Quoted(second), first_at.0, first_at.1, second_at.0, second_at.1
    )]
    Overlap { first: Box<[u8]>, first_at: (u64, u64), second: Box<[u8]>, second_at: (u64, u64) },
    #[error(
        "tensor {}: {dtype} {} has more bits than 64 bits can count",
        Quoted(name),
        Dims(shape)
    )]
    Size { name: Box<[u8]>, dtype: DType, shape: Box<[u64]> },
    #[error(
        "tensor {}: {dtype} {} takes {bits} bits, which do not fill whole bytes",
        Quoted(name),
        Dims(shape)
    )]
    PartOfByte { name: Box<[u8]>, dtype: DType, shape: Box<[u64]>, bits: u64 },
    #[error(
        "tensor {}: {dtype} {} takes {expected} bytes, but data_offsets [{begin}, {end}] hold {}",
        Quoted(name), Dims(shape), end.saturating_sub(*begin)
    )]
    Length { name: Box<[u8]>, dtype: DType, shape: Box<[u64]>, expected: u64, begin: u64, end: u64 },
    #[error(
        "{} {} after the last tensor: the tensors end at byte {end} of the file, the file at \
         byte {len}",
        len.saturating_sub(*end), if len.saturating_sub(*end) == 1 { "byte" } else { "bytes" }
    )]
    Trailing { end: u64, len: u64 },
    #[error(
        "truncated: the tensors end at byte {end} of the file, but it has only {len} bytes: {} \
         are missing; tensor {} ends behind that",
        end.saturating_sub(u128::from(*len)),
        Quoted(name)
    )]
    Truncated { name: Box<[u8]>, end: u128, len: u64 },
}
