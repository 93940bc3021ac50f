//! Where tensor data lies: the tensors tile the data, without a hole, to the last byte.

use super::SafetensorsError;
use crate::model::Tensor;

/// Checks `data_offsets` (begin in the extent's offset, end in its length), makes extents of
/// them and sorts by place. The order of checks is the reference's.
pub(super) fn place(
    tensors: &mut [Tensor],
    data_start: u64,
    len: u64,
) -> Result<(), SafetensorsError> {
    tensors.sort_by_key(|t| (t.extent.offset, t.extent.len));
    let mut previous: Option<&Tensor> = None;
    let mut running = 0;
    for t in &*tensors {
        let (begin, end) = (t.extent.offset, t.extent.len);
        let name = || t.name.clone();
        if end < begin {
            return Err(SafetensorsError::Backwards { name: name(), begin, end });
        }
        if begin > running {
            return Err(SafetensorsError::Hole { name: name(), begin, expected: running });
        }
        if begin < running {
            let first = previous.expect("something ends where the running end is");
            return Err(SafetensorsError::Overlap {
                first: first.name.clone(),
                first_at: (first.extent.offset, first.extent.len),
                second: name(),
                second_at: (begin, end),
            });
        }
        let expected = nbytes(t)?;
        if end.saturating_sub(begin) != expected {
            let (dtype, shape) = (t.dtype, t.shape.clone());
            return Err(SafetensorsError::Length {
                name: name(),
                dtype,
                shape,
                expected,
                begin,
                end,
            });
        }
        running = end;
        previous = Some(t);
    }
    let end = u128::from(data_start).saturating_add(running.into());
    if end > u128::from(len) {
        let cut =
            |t: &&Tensor| u128::from(data_start).saturating_add(t.extent.len.into()) > len.into();
        let name = tensors.iter().find(cut).map(|t| t.name.clone()).unwrap_or_default();
        return Err(SafetensorsError::Truncated { name, end, len });
    }
    let end = data_start.saturating_add(running);
    if end < len {
        return Err(SafetensorsError::Trailing { end, len });
    }
    for t in tensors {
        let (begin, end) = (t.extent.offset, t.extent.len);
        t.extent.offset = data_start.saturating_add(begin);
        t.extent.len = end.saturating_sub(begin);
    }
    Ok(())
}

/// Bytes a tensor's shape and type ask for. It is the total that has to fill whole bytes, not
/// each row. Dimensions are multiplied from the left, so only a zero in front saves a product
/// that overflows: the same files pass as with the reference.
fn nbytes(t: &Tensor) -> Result<u64, SafetensorsError> {
    let (dtype, shape) = (t.dtype, &t.shape);
    let block = dtype.block();
    let bits_each = block.bytes.saturating_mul(8).checked_div(block.elements).unwrap_or(0);
    let elements = shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim));
    let Some(bits) = elements.and_then(|n| n.checked_mul(bits_each)) else {
        return Err(SafetensorsError::Size { name: t.name.clone(), dtype, shape: shape.clone() });
    };
    if !bits.is_multiple_of(8) {
        let (name, shape) = (t.name.clone(), shape.clone());
        return Err(SafetensorsError::PartOfByte { name, dtype, shape, bits });
    }
    Ok(bits.wrapping_div(8))
}
