//! safetensors: a length, a JSON header, the data.
//!
//! Checks all that the reference implementation checks, in its order, and refuses what it
//! lets pass by accident: a key given twice, however spelled; tensors written as arrays.

use crate::bytes::{ReadAt, read_vec};
use crate::dtype::DType;
use crate::format::{Budget, Limits, duplicate};
use crate::model::{Meta, Tensor};

mod error;
mod header;
pub mod index;
mod json;
mod placement;
#[cfg(test)]
mod tests;

pub use error::SafetensorsError;

/// The longest header, in bytes: the reference's own limit, which it also keeps when writing.
pub const MAX_HEADER: u64 = 100_000_000;

/// The length in front of the header, in bytes.
const LENGTH: u64 = 8;

/// The types a header may name, in the order of the reference's enum. Its writer puts data in
/// descending order of these.
pub const DTYPES: [DType; 22] = [
    DType::BOOL,
    DType::F4,
    DType::F6_E2M3,
    DType::F6_E3M2,
    DType::U8,
    DType::I8,
    DType::F8_E5M2,
    DType::F8_E4M3,
    DType::F8_E8M0,
    DType::F8_E4M3FNUZ,
    DType::F8_E5M2FNUZ,
    DType::I16,
    DType::U16,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::U32,
    DType::F32,
    DType::C64,
    DType::F64,
    DType::I64,
    DType::U64,
];

/// What one safetensors file says. Extents have shard 0; [`SafetensorsFile::set_shard`]
/// changes that.
#[derive(Clone, Debug, PartialEq)]
pub struct SafetensorsFile {
    /// `__metadata__` in file order: strings, held here.
    pub metadata: Vec<Meta>,
    /// Tensors in the order of their data, extents absolute and inside the file.
    pub tensors: Vec<Tensor>,
    /// Where the data begins.
    pub data_start: u64,
    /// What is unusual, in the words a user sees.
    pub warnings: Vec<String>,
    /// Memory this took, as [`Limits::reserved_bytes`] counts it.
    pub reserved_bytes: u64,
}

impl SafetensorsFile {
    /// Says which file of a set this is.
    pub fn set_shard(&mut self, shard: u32) {
        for tensor in &mut self.tensors {
            tensor.extent.shard = shard;
        }
    }
}

/// Reads and checks the header of `file`.
pub fn parse(file: &dyn ReadAt, limits: &Limits) -> Result<SafetensorsFile, SafetensorsError> {
    let len = file.len();
    let data_start = data_start(file)?;
    let header_len = data_start.saturating_sub(LENGTH);
    let header = read_vec(file, LENGTH, usize::try_from(header_len).unwrap_or(usize::MAX))
        .map_err(|source| SafetensorsError::Io { offset: LENGTH, len: header_len, source })?;
    let text = str::from_utf8(&header).map_err(|e| SafetensorsError::Utf8 {
        offset: LENGTH.saturating_add(e.valid_up_to() as u64),
    })?;

    let mut budget = Budget::new(limits);
    let read = header::read(text, limits, &mut budget)?;
    // It may be large, and nothing refers to it any more.
    drop(header);
    let (metadata, mut tensors) = (read.metadata, read.tensors);
    tensors.shrink_to_fit();
    no_name_twice(&tensors, &metadata)?;
    placement::place(&mut tensors, data_start, len)?;
    let mut warnings = Vec::new();
    if data_start % 2 == 1 {
        warnings.push(format!("the data starts at an odd address, byte {data_start}"));
    }
    Ok(SafetensorsFile { metadata, tensors, data_start, warnings, reserved_bytes: budget.spent() })
}

/// Reads the length and says where the data begins, once the header is known to fit.
fn data_start(file: &dyn ReadAt) -> Result<u64, SafetensorsError> {
    let len = file.len();
    if len < LENGTH {
        return Err(SafetensorsError::TooSmall { len });
    }
    let mut length = [0; 8];
    file.read_at(0, &mut length).map_err(|source| SafetensorsError::Io {
        offset: 0,
        len: LENGTH,
        source,
    })?;
    let header = u64::from_le_bytes(length);
    if header > MAX_HEADER {
        return Err(SafetensorsError::TooLarge { header });
    }
    match header.checked_add(LENGTH) {
        Some(end) if end <= len => Ok(end),
        _ => Err(SafetensorsError::HeaderPastEnd { header, len }),
    }
}

fn no_name_twice(tensors: &[Tensor], metadata: &[Meta]) -> Result<(), SafetensorsError> {
    let name = |i: usize| tensors.get(i).map(|t| &*t.name).unwrap_or_default();
    if let Some((first, _)) = duplicate(tensors.len(), name) {
        return Err(SafetensorsError::DuplicateTensor { name: name(first).into() });
    }
    let key = |i: usize| metadata.get(i).map(|m| &*m.key).unwrap_or_default();
    if let Some((first, _)) = duplicate(metadata.len(), key) {
        return Err(SafetensorsError::DuplicateKey { key: key(first).into() });
    }
    Ok(())
}
