//! 32 elements under one scale, and the 1 and 2 bit types that share their plainness.
//!
//! Fields stand as offset, bytes, meaning; the names are those of the structs in ggml's
//! `ggml-common.h`. Nibbles come in halves: elements 0..16 low, 16..32 high.

use super::kernel::{BITS, Kernel, Value, f16_at, field, halves, scale, scale_from};

/// Four low bits in halves, with bit `e` of `high` as bit 4 of element `e`.
#[inline(always)]
fn five_bits(low: &[u8; 16], high: &[u8; 4]) -> [u8; 32] {
    let mut codes = halves(low);
    let (high, bits) = (high.map(|byte| [byte; 8]), BITS.as_flattened());
    let high = high.as_flattened();
    for (e, code) in codes.iter_mut().enumerate() {
        *code |= if high[e] & bits[e] == 0 { 0 } else { 16 };
    }
    codes
}

/// Q4_0 (`block_q4_0`, 18 bytes): `(code - 8) * d`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 16 | qs: 4-bit codes in halves |
pub(super) struct Q4_0;

impl Kernel<18, 32> for Q4_0 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 18], values: &mut [V; 32]) {
        let codes = halves(field(block, 2)).map(|code| code.wrapping_sub(8) as i8);
        scale(&codes, f16_at(block, 0), values);
    }
}

/// Q4_1 (`block_q4_1`, 20 bytes): `code * d + m`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 2 | m: F16 minimum |
/// | 4 | 16 | qs: 4-bit codes in halves |
pub(super) struct Q4_1;

impl Kernel<20, 32> for Q4_1 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 20], values: &mut [V; 32]) {
        let codes = halves(field(block, 4)).map(|code| code as i8);
        scale_from(&codes, f16_at(block, 0), f16_at(block, 2), values);
    }
}

/// Q5_0 (`block_q5_0`, 22 bytes): `(code - 16) * d`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 4 | qh: u32, bit e is bit 4 of element e |
/// | 6 | 16 | qs: low 4 bits in halves |
pub(super) struct Q5_0;

impl Kernel<22, 32> for Q5_0 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 22], values: &mut [V; 32]) {
        let codes = five_bits(field(block, 6), field(block, 2));
        let codes = codes.map(|code| code.wrapping_sub(16) as i8);
        scale(&codes, f16_at(block, 0), values);
    }
}

/// Q5_1 (`block_q5_1`, 24 bytes): `code * d + m`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 2 | m: F16 minimum |
/// | 4 | 4 | qh: u32, bit e is bit 4 of element e |
/// | 8 | 16 | qs: low 4 bits in halves |
pub(super) struct Q5_1;

impl Kernel<24, 32> for Q5_1 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 24], values: &mut [V; 32]) {
        let codes = five_bits(field(block, 8), field(block, 4)).map(|code| code as i8);
        scale_from(&codes, f16_at(block, 0), f16_at(block, 2), values);
    }
}

/// Q8_0 (`block_q8_0`, 34 bytes): `code * d`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 32 | qs: i8 codes |
pub(super) struct Q8_0;

impl Kernel<34, 32> for Q8_0 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 34], values: &mut [V; 32]) {
        let codes: &[u8; 32] = field(block, 2);
        scale(&codes.map(|code| code as i8), f16_at(block, 0), values);
    }
}

/// Q8_1 (`block_q8_1`, 36 bytes): `code * d`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 2 | s: F16, d times the sum of the codes; says nothing new |
/// | 4 | 32 | qs: i8 codes |
pub(super) struct Q8_1;

impl Kernel<36, 32> for Q8_1 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 36], values: &mut [V; 32]) {
        let codes: &[u8; 32] = field(block, 4);
        scale(&codes.map(|code| code as i8), f16_at(block, 0), values);
    }
}

/// Q1_0 (`block_q1_0`, 18 bytes, 128 elements): `d` where the bit is set, else `-d`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 16 | qs: bit e % 8 of byte e / 8 is element e |
pub(super) struct Q1_0;

impl Kernel<18, 128> for Q1_0 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 18], values: &mut [V; 128]) {
        let minus = (-f16_at(block, 0)).to_bits();
        let bits: &[u8; 16] = field(block, 2);
        for (values, byte) in values.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
            for (j, value) in values.iter_mut().enumerate() {
                let sign = (u32::from(*byte) << (31 - j)) & 0x8000_0000;
                *value = V::of(f32::from_bits(minus ^ sign));
            }
        }
    }
}

/// Q2_0 (`block_q2_0`, 18 bytes, 64 elements): `(code - 1) * d`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 16 | qs: 2-bit codes, element e at bit 2 * (e % 4) of byte e / 4 |
pub(super) struct Q2_0;

impl Kernel<18, 64> for Q2_0 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 18], values: &mut [V; 64]) {
        let d = f16_at(block, 0);
        let codes: &[u8; 16] = field(block, 2);
        let groups = codes.as_chunks::<2>().0;
        for (values, pair) in values.as_chunks_mut::<8>().0.iter_mut().zip(groups) {
            let word = i32::from(u16::from_le_bytes(*pair));
            for (j, value) in values.iter_mut().enumerate() {
                *value = V::of((((word >> (2 * j)) & 3) - 1) as f32 * d);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.5 as F16.
    const HALF: [u8; 2] = [0x00, 0x38];

    #[test]
    fn nibbles_come_in_halves() {
        let mut block = [0x88; 18];
        block[..2].copy_from_slice(&HALF);
        block[2] = 0xF0;
        let mut values = [9.0; 32];
        Q4_0::decode(&block, &mut values);
        assert_eq!((values[0], values[16], values[1]), (-4.0, 3.5, 0.0));
    }

    #[test]
    fn a_zero_code_under_a_negative_scale_is_minus_zero() {
        let mut block = [0x88; 18];
        block[..2].copy_from_slice(&[0x00, 0xB8]);
        let mut values = [9.0; 32];
        Q4_0::decode(&block, &mut values);
        assert_eq!(values[5].to_bits(), 0x8000_0000);
    }

    #[test]
    fn high_bit_e_belongs_to_element_e() {
        let mut block = [0; 22];
        block[..2].copy_from_slice(&HALF);
        block[2..6].copy_from_slice(&(1u32 << 3 | 1 << 20).to_le_bytes());
        let mut values = [9.0; 32];
        Q5_0::decode(&block, &mut values);
        for (e, value) in values.iter().enumerate() {
            assert_eq!(*value, if e == 3 || e == 20 { 0.0 } else { -8.0 });
        }
    }

    #[test]
    fn one_and_two_bits_start_low() {
        let mut block = [0; 18];
        block[..2].copy_from_slice(&HALF);
        block[2] = 0b0000_0001;
        let mut values = [9.0; 128];
        Q1_0::decode(&block, &mut values);
        assert_eq!(values[..3], [0.5, -0.5, -0.5]);
        block[2] = 0b1110_0100;
        let mut values = [9.0; 64];
        Q2_0::decode(&block, &mut values);
        assert_eq!(values[..5], [-0.5, 0.0, 0.5, 1.0, -0.5]);
    }
}
