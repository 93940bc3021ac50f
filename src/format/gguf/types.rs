//! GGUF's numbers for element types and value types. They appear nowhere else.

use crate::dtype::DType;
use crate::model::ValueType;

/// What a tensor's type number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorType {
    /// A type whose block size is known.
    Known(DType),
    /// A type that ggml once had, with what it was. Its block size is gone with it.
    Removed(&'static str),
    /// A number that ggml never gave out (forks use some privately).
    Unknown,
}

/// The highest type number of the newest ggml.
const NEWEST: u32 = 42;

/// The type numbers of the newest ggml, `enum ggml_type`.
pub const fn tensor_type(id: u32) -> TensorType {
    use TensorType::{Known, Removed, Unknown};
    match id {
        0 => Known(DType::F32),
        1 => Known(DType::F16),
        2 => Known(DType::Q4_0),
        3 => Known(DType::Q4_1),
        4 => Removed("Q4_2"),
        5 => Removed("Q4_3"),
        6 => Known(DType::Q5_0),
        7 => Known(DType::Q5_1),
        8 => Known(DType::Q8_0),
        9 => Known(DType::Q8_1),
        10 => Known(DType::Q2_K),
        11 => Known(DType::Q3_K),
        12 => Known(DType::Q4_K),
        13 => Known(DType::Q5_K),
        14 => Known(DType::Q6_K),
        15 => Known(DType::Q8_K),
        16 => Known(DType::IQ2_XXS),
        17 => Known(DType::IQ2_XS),
        18 => Known(DType::IQ3_XXS),
        19 => Known(DType::IQ1_S),
        20 => Known(DType::IQ4_NL),
        21 => Known(DType::IQ3_S),
        22 => Known(DType::IQ2_S),
        23 => Known(DType::IQ4_XS),
        24 => Known(DType::I8),
        25 => Known(DType::I16),
        26 => Known(DType::I32),
        27 => Known(DType::I64),
        28 => Known(DType::F64),
        29 => Known(DType::IQ1_M),
        30 => Known(DType::BF16),
        31 => Removed("Q4_0_4_4"),
        32 => Removed("Q4_0_4_8"),
        33 => Removed("Q4_0_8_8"),
        34 => Known(DType::TQ1_0),
        35 => Known(DType::TQ2_0),
        36 => Removed("IQ4_NL_4_4"),
        37 => Removed("IQ4_NL_4_8"),
        38 => Removed("IQ4_NL_8_8"),
        39 => Known(DType::MXFP4),
        40 => Known(DType::NVFP4),
        41 => Known(DType::Q1_0),
        42 => Known(DType::Q2_0),
        _ => Unknown,
    }
}

/// GGUF's number of an element type; `None` for those only safetensors has.
pub fn tensor_type_id(dtype: DType) -> Option<u32> {
    (0..=NEWEST).find(|&id| tensor_type(id) == TensorType::Known(dtype))
}

/// The value type with this number, `enum gguf_type`.
pub const fn value_type(id: u32) -> Option<ValueType> {
    Some(match id {
        0 => ValueType::U8,
        1 => ValueType::I8,
        2 => ValueType::U16,
        3 => ValueType::I16,
        4 => ValueType::U32,
        5 => ValueType::I32,
        6 => ValueType::F32,
        7 => ValueType::Bool,
        8 => ValueType::Str,
        9 => ValueType::Array,
        10 => ValueType::U64,
        11 => ValueType::I64,
        12 => ValueType::F64,
        _ => return None,
    })
}

/// Bytes of a value of a type that has the same size always; `None` for strings and arrays.
pub const fn fixed_size(of: ValueType) -> Option<u64> {
    match of {
        ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
        ValueType::U16 | ValueType::I16 => Some(2),
        ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
        ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
        ValueType::Str | ValueType::Array => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_decided() {
        let removed: Vec<u32> =
            (0..=NEWEST).filter(|&id| matches!(tensor_type(id), TensorType::Removed(_))).collect();
        assert_eq!(removed, [4, 5, 31, 32, 33, 36, 37, 38]);
        assert_ne!(tensor_type(NEWEST), TensorType::Unknown);
        for id in (NEWEST + 1..200).chain([u32::MAX]) {
            assert_eq!(tensor_type(id), TensorType::Unknown, "{id} is newer than NEWEST");
        }
    }

    #[test]
    fn numbers_and_types_pair_one_to_one() {
        let known =
            (0..=NEWEST).filter(|&id| matches!(tensor_type(id), TensorType::Known(_))).count();
        let with_id = DType::ALL.iter().filter(|&&d| tensor_type_id(d).is_some()).count();
        assert_eq!(with_id, known);
        assert_eq!(tensor_type_id(DType::IQ1_M), Some(29));
        assert_eq!(tensor_type_id(DType::F8_E4M3), None);
    }

    #[test]
    fn value_types_keep_their_number() {
        for id in 0..=12 {
            assert_eq!(value_type(id).map(|t| t as u32), Some(id));
        }
        assert_eq!(value_type(13), None);
        assert_eq!(value_type(u32::MAX), None);
    }
}
