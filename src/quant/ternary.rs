//! Ternary types: 256 elements of -1, 0 or 1 under one scale.
//!
//! Fields stand as offset, bytes, meaning; the names are those of the structs in ggml's
//! `ggml-common.h`.

use super::kernel::{Kernel, Value, f16_at, field};

/// TQ1_0 (`block_tq1_0`, 54 bytes): `(digit - 1) * d`
///
/// A byte is a fraction in base 3, rounded up: multiplied by 3^n modulo 256, its n-th
/// digit is the integer part of three times what is left.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 48 | qs: bytes 0..32 hold digit e / 32 of elements 0..160, bytes 32..48 digit (e - 160) / 16 of elements 160..240 |
/// | 48 | 4 | qh: digit (e - 240) / 4 of elements 240..256 |
/// | 52 | 2 | d: F16 scale |
pub(super) struct Tq1_0;

const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

impl Kernel<54, 256> for Tq1_0 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 54], values: &mut [V; 256]) {
        let d = f16_at(block, 52);
        let (first, rest) = values.split_at_mut(160);
        let (second, third) = rest.split_at_mut(80);
        digits(field::<32>(block, 0), d, first);
        digits(field::<16>(block, 32), d, second);
        digits(field::<4>(block, 48), d, third);
    }
}

/// Digit n of each of the `N` bytes becomes the n-th run of `N` values.
#[inline(always)]
fn digits<V: Value, const N: usize>(bytes: &[u8; N], d: f32, values: &mut [V]) {
    for (values, power) in values.as_chunks_mut::<N>().0.iter_mut().zip(POWERS) {
        for (value, byte) in values.iter_mut().zip(bytes) {
            let fraction = byte.wrapping_mul(power);
            let digit = (u16::from(fraction) * 3) >> 8;
            *value = V::of((i32::from(digit) - 1) as f32 * d);
        }
    }
}

/// TQ2_0 (`block_tq2_0`, 66 bytes): `(code - 1) * d`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 64 | qs: 2-bit codes, bits 2 * (e / 32 % 4) of byte 32 * (e / 128) + e % 32 |
/// | 64 | 2 | d: F16 scale |
pub(super) struct Tq2_0;

impl Kernel<66, 256> for Tq2_0 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 66], values: &mut [V; 256]) {
        let d = f16_at(block, 64);
        for (i, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let codes: &[u8; 32] = field(block, 32 * (i / 4));
            let shift = 2 * (i % 4);
            for (value, byte) in values.iter_mut().zip(codes) {
                *value = V::of((i32::from((byte >> shift) & 3) - 1) as f32 * d);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_tq1_holds_five_digits() {
        let mut block = [0; 54];
        block[52..].copy_from_slice(&[0x00, 0x3C]);
        // Digits 2, 0, 1, 2, 1 as a fraction of 3^5, rounded up to 256ths.
        let number = ((2 * 3 * 3 + 1) * 3 + 2) * 3 + 1u32;
        block[0] = (number * 256).div_ceil(243) as u8;
        let mut values = [9.0; 256];
        Tq1_0::decode(&block, &mut values);
        let found = [0, 32, 64, 96, 128].map(|e| values[e]);
        assert_eq!(found, [1.0, -1.0, 0.0, 1.0, 0.0]);
    }
}
