//! GGUF, versions 1 to 3, of either byte order.
//!
//! ```text
//! header | metadata | tensor infos | padding | data
//! ```
//!
//! Stricter than the Python package, and served where ggml's own reader would refuse only
//! out of habit: arrays may nest a little, up to eight dimensions, gaps and other orders of
//! data, names that are any bytes. Sizes are computed without wrapping.

use crate::bytes::ReadAt;
use crate::format::cursor::Cursor;
use crate::format::limits::within;
use crate::format::{Budget, Limits};
use crate::model::{ByteOrder, Encoding, Meta, Tensor, Value};

pub mod array;
mod error;
mod metadata;
mod placement;
mod tensors;
#[cfg(test)]
mod tests;
pub mod types;
pub mod write;

pub(crate) use error::Dims;
pub use error::GgufError;

/// Alignment of the data section and of each tensor, unless `general.alignment` says other.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// What one GGUF file says. Extents have shard 0; [`GgufFile::set_shard`] changes that.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufFile {
    /// 1, 2 or 3.
    pub version: u32,
    /// How numbers and lengths are written, in header and data.
    pub encoding: Encoding,
    /// Alignment of data, a power of two.
    pub alignment: u64,
    /// Keys in file order. Strings and arrays are extents of the file.
    pub metadata: Vec<Meta>,
    /// Tensors in the order of their data, extents absolute and inside the file.
    pub tensors: Vec<Tensor>,
    /// Where the tensor infos begin (and the metadata ends).
    pub tensor_infos: u64,
    /// Where the data section begins; the end of the file when there is none.
    pub data_start: u64,
    /// What is unusual, in the words a user sees.
    pub warnings: Vec<String>,
    /// Memory this took, as [`Limits::reserved_bytes`] counts it.
    pub reserved_bytes: u64,
}

impl GgufFile {
    /// The value of a metadata key.
    pub fn meta(&self, key: &str) -> Option<&Value> {
        self.metadata.iter().find(|m| *m.key == *key.as_bytes()).map(|m| &m.value)
    }

    /// Says which file of a set this is.
    pub fn set_shard(&mut self, shard: u32) {
        use crate::model::{Array, Text};
        for tensor in &mut self.tensors {
            tensor.extent.shard = shard;
        }
        for meta in &mut self.metadata {
            match &mut meta.value {
                Value::Str(Text::Span(extent)) | Value::Array(Array::Span { extent, .. }) => {
                    extent.shard = shard;
                }
                _ => {}
            }
        }
    }
}

/// What the first 24 bytes (16 in version 1) say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    version: u32,
    tensors: u64,
    keys: u64,
}

/// Reads the header, the metadata and the tensor infos of `file`, and checks where the data lies.
pub fn parse(file: &dyn ReadAt, limits: &Limits) -> Result<GgufFile, GgufError> {
    parse_with(file, limits, &[])
}

/// What an earlier parse of the same bytes has found, kept by somebody else (a seal). It saves
/// walking long arrays element by element and is never believed: see [`parse_known`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Where the tensor infos begin.
    pub tensor_infos: u64,
    /// Begin and end of arrays whose elements vary in size, by begin.
    pub arrays: Vec<(u64, u64)>,
}

/// As [`parse`], jumping over the arrays that `known` knows the end of. Everything else is read
/// from the file and checked as ever: behind each jump the next key has to stand, the keys have
/// to be as many as the header says, and the tensor infos where `known` has them. Where
/// anything at all does not fit, the file is parsed without it.
pub fn parse_known(
    file: &dyn ReadAt,
    limits: &Limits,
    known: &Known,
) -> Result<GgufFile, GgufError> {
    if known.arrays.is_empty() {
        return parse(file, limits);
    }
    match parse_with(file, limits, &known.arrays) {
        Ok(found) if found.tensor_infos == known.tensor_infos => Ok(found),
        _ => parse(file, limits),
    }
}

fn parse_with(
    file: &dyn ReadAt,
    limits: &Limits,
    arrays: &[(u64, u64)],
) -> Result<GgufFile, GgufError> {
    let mut cursor = start(file, limits);
    let header = header(&mut cursor)?;
    let mut budget = Budget::new(limits);
    let metadata = metadata::read(&mut cursor, header.keys, arrays, limits, &mut budget)?;
    finish(cursor, header, metadata, file.len(), limits, budget)
}

fn start<'a>(file: &'a dyn ReadAt, limits: &Limits) -> Cursor<'a> {
    let encoding = Encoding { order: ByteOrder::Little, wide: true };
    Cursor::new(file, 0, file.len(), encoding, limits.header_bytes)
}

/// From the tensor infos on.
fn finish(
    mut cursor: Cursor<'_>,
    header: Header,
    metadata: Vec<Meta>,
    len: u64,
    limits: &Limits,
    mut budget: Budget,
) -> Result<GgufFile, GgufError> {
    let alignment = alignment(&metadata)?;
    let tensor_infos = cursor.position();
    let mut tensors = tensors::read(&mut cursor, header.tensors, limits, &mut budget)?;
    let placement = placement::place(&mut tensors, cursor.position(), alignment, len)?;
    Ok(GgufFile {
        version: header.version,
        encoding: cursor.encoding(),
        alignment,
        metadata,
        tensors,
        tensor_infos,
        data_start: placement.start,
        warnings: placement.warnings,
        reserved_bytes: budget.spent(),
    })
}

fn header(cursor: &mut Cursor<'_>) -> Result<Header, GgufError> {
    let reading = |e| GgufError::reading("the GGUF header", e);
    let magic: [u8; 4] = cursor.array().map_err(reading)?;
    if magic != *b"GGUF" {
        return Err(GgufError::Magic { found: magic.into() });
    }
    let version: [u8; 4] = cursor.array().map_err(reading)?;
    // Versions are small, so the half that is not zero tells the order of bytes.
    let little = u32::from_le_bytes(version);
    let (order, named, version) = match little {
        1.. if little.trailing_zeros() >= 16 => {
            (ByteOrder::Big, "big-endian ", u32::from_be_bytes(version))
        }
        _ => (ByteOrder::Little, "", little),
    };
    if !(1..=3).contains(&version) {
        return Err(GgufError::Version { order: named, version });
    }
    cursor.set_encoding(Encoding { order, wide: version > 1 });
    let tensors = cursor.size().map_err(reading)?;
    let keys = cursor.size().map_err(reading)?;
    Ok(Header { version, tensors, keys })
}

/// Believes a count once so many records of at least `least` bytes fit what is left.
fn counted(
    cursor: &Cursor<'_>,
    what: &'static str,
    count: u64,
    least: u64,
    most: u64,
) -> Result<usize, GgufError> {
    let left = cursor.left();
    let need = u128::from(count).saturating_mul(u128::from(least));
    if need > u128::from(left) {
        let wide = cursor.encoding().wide;
        let offset = match (what, wide) {
            ("tensors", _) => 8,
            (_, true) => 16,
            (_, false) => 12,
        };
        return Err(GgufError::Count { what: what.into(), count, offset, need, left });
    }
    within(what, count, most).map_err(|e| GgufError::limit("the GGUF header", e))?;
    Ok(usize::try_from(count).expect("within a limit that fits"))
}

/// `general.alignment`, checked.
fn alignment(metadata: &[Meta]) -> Result<u64, GgufError> {
    let Some(meta) = metadata.iter().find(|m| *m.key == *b"general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match meta.value {
        Value::U32(n) if n.is_power_of_two() => Ok(n.into()),
        Value::U32(n) => Err(GgufError::Alignment { found: n.to_string() }),
        ref other => {
            let number = other.as_u64().map(|n| format!(" {n}")).unwrap_or_default();
            let found = format!("{}{number}", other.value_type().name());
            Err(GgufError::Alignment { found })
        }
    }
}
