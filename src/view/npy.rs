//! The header of a numpy `.npy` file, byte for byte as numpy writes it.
//!
//! Source: numpy's `lib.format`, version 1.0 (2.0 when the dictionary is long).

use crate::dtype::DType;
use std::fmt::Write as _;

/// numpy's own limit on dimensions.
pub const MAX_DIMENSIONS: usize = 64;

/// numpy's spelling of a type, or `None` where numpy has no such type.
pub fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::BOOL => "|b1",
        DType::C64 => "<c8",
        _ => return None,
    })
}

/// The bytes before the data of an array of `shape` (outermost first, C order);
/// `None` above 64 dimensions, which numpy cannot load.
pub fn header(descr: &str, shape: &[u64]) -> Option<Vec<u8>> {
    if shape.len() > MAX_DIMENSIONS {
        return None;
    }
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (");
    for (i, dim) in shape.iter().enumerate() {
        if i > 0 {
            dict.push_str(", ");
        }
        let _ = write!(dict, "{dim}");
    }
    dict.push_str(if shape.len() == 1 { ",), }" } else { "), }" });
    if let Some(first) = shape.first() {
        // Room for the first dimension to grow in place, as numpy leaves it.
        let digits = first.to_string().len();
        dict.extend(std::iter::repeat_n(' ', 21 - digits));
    }
    let prefix = if dict.len() + 64 < usize::from(u16::MAX) { 10 } else { 12 };
    let pad = 64 - (prefix + dict.len() + 1) % 64;
    dict.extend(std::iter::repeat_n(' ', pad));
    dict.push('\n');
    let mut bytes = b"\x93NUMPY".to_vec();
    if prefix == 10 {
        bytes.extend([1, 0]);
        bytes.extend((dict.len() as u16).to_le_bytes());
    } else {
        bytes.extend([2, 0]);
        bytes.extend((dict.len() as u32).to_le_bytes());
    }
    bytes.extend(dict.as_bytes());
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_header_is_numpys_own() {
        let expected =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let header = header("<f4", &[2, 3]).unwrap();
        assert!(header.starts_with(expected));
        assert_eq!(header.len(), 128);
        assert_eq!(header.last(), Some(&b'\n'));
    }

    #[test]
    fn scalars_vectors_and_long_shapes() {
        let scalar = header("|b1", &[]).unwrap();
        assert!(String::from_utf8_lossy(&scalar).contains("'shape': (), }"));
        let vector = header("<i8", &[7]).unwrap();
        assert!(String::from_utf8_lossy(&vector).contains("'shape': (7,), }"));
        let long = header("<f4", &[u64::MAX; 64]).unwrap();
        assert_eq!(long.len() % 64, 0);
        assert_eq!(header("<f4", &[1; 65]), None);
    }
}
