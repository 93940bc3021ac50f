//! The tensor infos: name, shape, type and offset of each tensor, as declared.

use super::GgufError;
use super::metadata::string;
use super::types::{TensorType, tensor_type};
use crate::dtype::DType;
use crate::format::cursor::{Cursor, ReadError};
use crate::format::{Budget, Limits, Quoted, duplicate};
use crate::model::{Extent, Tensor};

/// Dimensions that are served. ggml has 4; converters of video models write 5.
const MOST_DIMENSIONS: u32 = 8;

/// The smallest record: a length, an empty name, a count of 0, a type, an offset.
const SMALLEST_RECORD: [u64; 2] = [4 + 4 + 4 + 8, 8 + 4 + 4 + 8];

/// Reads `count` records and leaves the cursor behind the last. Offsets are as declared:
/// from the start of the data section, unchecked.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    count: u64,
    limits: &Limits,
    budget: &mut Budget,
) -> Result<Vec<Tensor>, GgufError> {
    let [narrow, wide] = SMALLEST_RECORD;
    let least = if cursor.encoding().wide { wide } else { narrow };
    let count = super::counted(cursor, "tensors", count, least, limits.tensors)?;
    budget.items::<Tensor>(count as u64).map_err(|e| GgufError::limit("tensor infos", e))?;
    let mut tensors: Vec<Tensor> = Vec::with_capacity(count);
    let mut name = Vec::new();
    for number in 0..count {
        string(cursor, "length of the name", limits.name_bytes, &mut name)
            .map_err(|e| GgufError::reading(format_args!("the name of tensor {number}"), e))?;
        let tensor = record(cursor, &name)?;
        budget
            .allocation(name.len() as u64)
            .and_then(|()| budget.allocation((tensor.shape.len() as u64).saturating_mul(8)))
            .map_err(|e| GgufError::limit(format_args!("tensor {}", Quoted(&name)), e))?;
        tensors.push(tensor);
    }
    if let Some((first, second)) = duplicate(tensors.len(), |i| name_of(&tensors, i)) {
        let name = name_of(&tensors, first).into();
        return Err(GgufError::DuplicateTensor { name, first, second });
    }
    Ok(tensors)
}

fn name_of(tensors: &[Tensor], i: usize) -> &[u8] {
    tensors.get(i).map(|t| &*t.name).unwrap_or_default()
}

/// What follows the name.
fn record(cursor: &mut Cursor<'_>, name: &[u8]) -> Result<Tensor, GgufError> {
    let reading = |e: ReadError| GgufError::reading(format_args!("tensor {}", Quoted(name)), e);

    let offset = cursor.position();
    let found = cursor.u32().map_err(reading)?;
    if found > MOST_DIMENSIONS {
        return Err(GgufError::Dimensions { name: name.into(), found, offset });
    }
    let mut shape = Vec::with_capacity(found as usize);
    for _ in 0..found {
        let offset = cursor.position();
        let found = cursor.size().map_err(reading)?;
        if i64::try_from(found).is_err() {
            return Err(GgufError::Dimension { name: name.into(), found, offset });
        }
        shape.push(found);
    }
    // A scalar has one element.
    let row = shape.first().copied().unwrap_or(1);
    // The file has the fastest-varying dimension first; from here on it is the last.
    shape.reverse();

    let offset = cursor.position();
    let found = cursor.u32().map_err(reading)?;
    let dtype = match tensor_type(found) {
        TensorType::Known(dtype) => dtype,
        TensorType::Removed(was) => {
            let why = format!("{was}, which was removed from ggml; it is not supported");
            return Err(GgufError::Type { name: name.into(), found, offset, why });
        }
        TensorType::Unknown => {
            let why = "unknown, and with it the size of the tensor; it is not supported".into();
            return Err(GgufError::Type { name: name.into(), found, offset, why });
        }
    };
    let block = dtype.block().elements;
    if !row.is_multiple_of(block) {
        return Err(GgufError::Row { name: name.into(), dtype, row, block });
    }
    let offset = cursor.u64().map_err(reading)?;
    let shape = shape.into_boxed_slice();
    let Some(len) = nbytes(dtype, &shape) else {
        return Err(GgufError::Size { name: name.into(), dtype, shape });
    };
    Ok(Tensor { name: name.into(), dtype, shape, extent: Extent { shard: 0, offset, len } })
}

/// Bytes of a tensor, `None` when 63 bits do not hold them or its elements.
fn nbytes(dtype: DType, shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let elements = shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim))?;
    let bytes = dtype.nbytes(elements)?;
    i64::try_from(elements.max(bytes)).ok().map(|_| bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_without_wrapping() {
        assert_eq!(nbytes(DType::F32, &[]), Some(4));
        assert_eq!(nbytes(DType::F32, &[3, 5]), Some(60));
        assert_eq!(nbytes(DType::Q4_0, &[2, 64]), Some(72));
        assert_eq!(nbytes(DType::F32, &[1 << 32, 1 << 32]), None);
        assert_eq!(nbytes(DType::F32, &[1 << 22, 1 << 21, 1 << 21]), None);
        assert_eq!(nbytes(DType::F32, &[(1 << 30) + 1, (1 << 30) - 1, 4]), None);
        assert_eq!(nbytes(DType::I8, &[1 << 62, 2]), None);
        assert_eq!(nbytes(DType::I8, &[(1 << 62) - 1, 2]), Some(i64::MAX as u64 - 1));
        assert_eq!(nbytes(DType::F32, &[1 << 62, 0, 1 << 62]), Some(0));
    }
}
