//! Codes times scales: the arithmetic, on bytes that were read already.
//!
//! Everything is F32 and rounded step by step; nothing is fused. Values stand as the
//! little-endian bytes of F32, as `quant` gives and takes them.

use super::Second;
use crate::dtype::{DType, Kind};
use crate::quant::{self, Target};

/// What codes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// Elements or blocks of this type. F4 is two in a byte, low half first.
    Float(DType),
    /// Signed bytes.
    Int8,
    /// A little-endian stream of codes of so many bits, minus half their range.
    Signed(u8),
    /// The same, as they are.
    Unsigned(u8),
}

/// How a second scale is combined with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The product.
    Multiply,
    /// The quotient: compressed-tensors keeps the inverse.
    Divide,
    /// The product with a 2688th: MLX keeps the greatest magnitude, 6 * 448 of the rest.
    MultiplyMaximum,
}

impl Operation {
    /// The one scale to multiply with.
    #[inline]
    pub fn combine(self, scale: f32, global: f32) -> f32 {
        match self {
            Operation::Multiply => scale * global,
            Operation::Divide => scale / global,
            Operation::MultiplyMaximum => scale * (global / 2688.0),
        }
    }
}

impl Codes {
    /// Codes that are one element of a tensor of type `dtype` each.
    pub fn of(dtype: DType) -> Option<Codes> {
        match dtype {
            DType::I8 => Some(Codes::Int8),
            _ if dtype.kind() == Kind::Float => Some(Codes::Float(dtype)),
            _ => None,
        }
    }

    /// Bytes of the smallest run of codes that fills bytes, and how many codes that is.
    pub fn unit(self) -> (u64, u64) {
        match self {
            Codes::Float(dtype) => (dtype.block().bytes, dtype.block().elements),
            Codes::Int8 => (1, 1),
            Codes::Signed(bits) | Codes::Unsigned(bits) => (u64::from(bits), 8),
        }
    }

    /// Decodes whole units to as many values.
    pub fn decode(self, units: &[u8], values: &mut [u8]) {
        match self {
            Codes::Float(dtype) => quant::decode(dtype, units, Target::F32, values)
                .expect("whole units of a type with values, and room for what they hold"),
            Codes::Int8 => {
                for (value, code) in values.as_chunks_mut::<4>().0.iter_mut().zip(units) {
                    *value = f32::from(code.cast_signed()).to_le_bytes();
                }
            }
            Codes::Signed(bits) => unpack(bits, 1 << (bits - 1), units, values),
            Codes::Unsigned(bits) => unpack(bits, 0, units, values),
        }
    }
}

/// Eight codes from every `bits` bytes.
fn unpack(bits: u8, offset: i32, units: &[u8], values: &mut [u8]) {
    let mask = (1u64 << bits) - 1;
    let eights = values.as_chunks_mut::<4>().0.as_chunks_mut::<8>().0;
    for (eight, unit) in eights.iter_mut().zip(units.chunks_exact(usize::from(bits))) {
        let mut word = [0; 8];
        word[..unit.len()].copy_from_slice(unit);
        let word = u64::from_le_bytes(word);
        for (i, value) in eight.iter_mut().enumerate() {
            let code = (word >> (i * usize::from(bits)) & mask) as i32 - offset;
            // At most 8 bits: exact.
            *value = (code as f32).to_le_bytes();
        }
    }
}

/// What a run of values with the same scale is to be turned with.
#[derive(Clone, Copy, Debug)]
pub struct Factors {
    /// Taken from the code: an integer.
    pub zero: f32,
    /// Multiplied.
    pub scale: f32,
    /// Added.
    pub offset: f32,
}

/// What becomes of everything that meets a factor that is no number. Where the value is none
/// either, the processor keeps the first of the two, and the compiler orders them as it likes:
/// the bytes would depend on how much is read at a time.
const NAN: [u8; 4] = f32::NAN.to_le_bytes();

/// Applies `factors` to `values`.
#[inline]
pub fn apply(second: Second, factors: Factors, values: &mut [[u8; 4]]) {
    let Factors { zero, scale, offset } = factors;
    if scale.is_nan() || matches!(second, Second::Offset(_)) && offset.is_nan() {
        return values.fill(NAN);
    }
    match second {
        Second::None | Second::Global(..) => {
            for value in values {
                *value = (f32::from_le_bytes(*value) * scale).to_le_bytes();
            }
        }
        Second::ZeroBytes | Second::ZeroBits(_) => {
            for value in values {
                *value = ((f32::from_le_bytes(*value) - zero) * scale).to_le_bytes();
            }
        }
        Second::Over127 => {
            for value in values {
                let product = f32::from_le_bytes(*value) * scale;
                *value = (product * (1.0 / 127.0)).to_le_bytes();
            }
        }
        Second::Offset(_) => {
            for value in values {
                let product = f32::from_le_bytes(*value) * scale;
                *value = (product + offset).to_le_bytes();
            }
        }
    }
}

/// Multiplies each whole group of `N` values with its scale; returns how many values that were.
pub fn apply_groups<const N: usize>(scales: &[[u8; 4]], values: &mut [[u8; 4]]) -> usize {
    let groups = values.as_chunks_mut::<N>().0;
    for (group, scale) in groups.iter_mut().zip(scales) {
        let scale = f32::from_le_bytes(*scale);
        if scale.is_nan() {
            group.fill(NAN);
            continue;
        }
        for value in group {
            *value = (f32::from_le_bytes(*value) * scale).to_le_bytes();
        }
    }
    groups.len() * N
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(codes: Codes, units: &[u8], count: usize) -> Vec<f32> {
        let mut bytes = vec![0; count * 4];
        codes.decode(units, &mut bytes);
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    #[test]
    fn packed_words_hold_the_lowest_code_first() {
        let word = 0x5BA9_F870_u32.to_le_bytes();
        let wanted = [-8.0, -1.0, 0.0, 7.0, 1.0, 2.0, 3.0, -3.0];
        assert_eq!(decoded(Codes::Signed(4), &word, 8), wanted);
        let word = 0x7654_3210_u32.to_le_bytes();
        assert_eq!(decoded(Codes::Unsigned(4), &word, 8), [0., 1., 2., 3., 4., 5., 6., 7.]);
        // 3 bits: 0 to 7 are the octal digits of a word.
        let word = 0o76543210_u32.to_le_bytes();
        assert_eq!(decoded(Codes::Unsigned(3), &word[..3], 8), [0., 1., 2., 3., 4., 5., 6., 7.]);
        assert_eq!(decoded(Codes::Int8, &[0x80, 0xFF, 0x7F], 3), [-128.0, -1.0, 127.0]);
    }

    #[test]
    fn scales_are_combined_first_and_rounded_once() {
        let block = 1.5f32;
        let divided = Operation::Divide.combine(block, 3000.0);
        let multiplied = Operation::Multiply.combine(block, 1.0 / 3000.0);
        assert_eq!((divided * 0.5).to_bits(), 0x3983_126F);
        assert_eq!((multiplied * 0.5).to_bits(), 0x3983_126E);
    }

    #[test]
    fn where_two_nans_meet_there_is_one_form() {
        let nan = f32::from_bits(0xFFC1_2345);
        let mut values = [nan.to_le_bytes(), 7.0f32.to_le_bytes(), f32::INFINITY.to_le_bytes()];
        let [scaled, offset] = [(nan, 1.0), (1.0, nan)];
        for (second, (scale, offset)) in [
            (Second::None, scaled),
            (Second::ZeroBytes, scaled),
            (Second::Over127, scaled),
            (Second::Offset(DType::F32), scaled),
            (Second::Offset(DType::F32), offset),
        ] {
            let mut values = values;
            apply(second, Factors { zero: 1.0, scale, offset }, &mut values);
            assert_eq!(values, [NAN; 3], "{second:?}");
        }
        assert_eq!(apply_groups::<3>(&[nan.to_le_bytes()], &mut values), 3);
        assert_eq!(values, [NAN; 3]);
    }

    #[test]
    fn an_offset_is_added_after_the_product_was_rounded() {
        let mut values = [0.1f32.to_le_bytes(), 7.0f32.to_le_bytes()];
        let factors = Factors { zero: 0.0, scale: 0.3, offset: -0.03 };
        apply(Second::Offset(DType::F32), factors, &mut values);
        let plain = |x: f32| {
            let product = x * 0.3;
            product - 0.03
        };
        assert_eq!(values.map(f32::from_le_bytes), [plain(0.1), plain(7.0)]);
    }
}
