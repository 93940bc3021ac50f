//! Plain floats: IEEE widths, the 8-bit formats of OCP and AMD, the 6- and 4-bit ones of MX.
//!
//! Sub-byte elements are a little-endian bit stream: element 0 in the lowest bits of the
//! first byte. For F4 that is torch's order; for F6 nobody defines one, and no writer is
//! known, so the same rule holds.

use super::kernel::{Kernel, Value};

/// Elements that one call takes: enough to fill vectors, few enough for the last run.
const RUN: usize = 64;

/// The bits of the F32 with the value of a finite code of one sign, some exponent and
/// `mantissa` bits; `top` is the place of the sign, `bias` that of the exponent.
///
/// Without branches, so that loops over it become vector code.
#[inline(always)]
fn widen(code: u32, top: u32, mantissa: u32, bias: u32) -> u32 {
    let sign = (code >> top) << 31;
    let shifted = (code & ((1 << top) - 1)) << (23 - mantissa);
    let normal = shifted.wrapping_add((127 - bias) << 23);
    // The smallest normal number: above it steps are those of the subnormal ones, so the
    // mantissa is put there and it is taken away again.
    let least = (128 - bias) << 23;
    let subnormal = f32::from_bits(shifted.wrapping_add(least)) - f32::from_bits(least);
    sign | if shifted < 1 << 23 { subnormal.to_bits() } else { normal }
}

/// The value of the F16 `bits`; exact, a NaN keeps its payload.
#[inline(always)]
pub(super) fn widen_f16(bits: u16) -> f32 {
    let bits = u32::from(bits);
    // The exponent of Inf and NaN has to become 255.
    let special = if bits & 0x7C00 == 0x7C00 { 112 << 23 } else { 0 };
    f32::from_bits(widen(bits, 15, 10, 15).wrapping_add(special))
}

/// F32 | value @0, 4 bytes
pub(super) struct F32;

impl Kernel<{ RUN * 4 }, RUN> for F32 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN * 4], values: &mut [V; RUN]) {
        for (value, bytes) in values.iter_mut().zip(block.as_chunks::<4>().0) {
            *value = V::of(f32::from_le_bytes(*bytes));
        }
    }
}

/// F16 | IEEE binary16 @0, 2 bytes
pub(super) struct F16;

impl Kernel<{ RUN * 2 }, RUN> for F16 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN * 2], values: &mut [V; RUN]) {
        for (value, bytes) in values.iter_mut().zip(block.as_chunks::<2>().0) {
            *value = V::of(widen_f16(u16::from_le_bytes(*bytes)));
        }
    }
}

/// BF16 | upper half of binary32 @0, 2 bytes
pub(super) struct Bf16;

impl Kernel<{ RUN * 2 }, RUN> for Bf16 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN * 2], values: &mut [V; RUN]) {
        for (value, bytes) in values.iter_mut().zip(block.as_chunks::<2>().0) {
            *value = V::of(f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16));
        }
    }
}

/// F64 to F32 | IEEE binary64 @0, 8 bytes; rounded to nearest even
pub(super) struct F64;

impl Kernel<{ RUN * 8 }, RUN> for F64 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN * 8], values: &mut [V; RUN]) {
        for (value, bytes) in values.iter_mut().zip(block.as_chunks::<8>().0) {
            *value = V::of(f64::from_le_bytes(*bytes) as f32);
        }
    }
}

/// F64 on its way to F16 or BF16 | IEEE binary64 @0, 8 bytes; rounded to odd
///
/// Truncated, with the last bit set where something was lost. F32 has more than two bits
/// to spare over both targets, so rounding that to nearest even gives what one direct
/// rounding of the F64 gives (Boldo and Melquiond, "When double rounding is odd").
pub(super) struct F64ToOdd;

impl Kernel<{ RUN * 8 }, RUN> for F64ToOdd {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN * 8], values: &mut [V; RUN]) {
        for (value, bytes) in values.iter_mut().zip(block.as_chunks::<8>().0) {
            let exact = f64::from_le_bytes(*bytes);
            let near = exact as f32;
            let away = f64::from(near).abs() > exact.abs();
            // NaN differs from itself, but a quiet NaN has its last bit to spare.
            let lost = f64::from(near) != exact;
            let toward_zero = near.to_bits().wrapping_sub(u32::from(away));
            *value = V::of(f32::from_bits(toward_zero | u32::from(lost)));
        }
    }
}

/// F8_E4M3 (the "fn" variant) | sign 1, exponent 4 (bias 7), mantissa 3; no Inf, NaN 7F FF
pub(super) struct E4m3;

impl Kernel<RUN, RUN> for E4m3 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN], values: &mut [V; RUN]) {
        for (value, code) in values.iter_mut().zip(block) {
            let code = u32::from(*code);
            let nan = if code & 0x7F == 0x7F { 0x7FC0_0000 } else { 0 };
            *value = V::of(f32::from_bits(widen(code, 7, 3, 7) | nan));
        }
    }
}

/// F8_E5M2 | sign 1, exponent 5 (bias 15), mantissa 2: the upper byte of an F16
pub(super) struct E5m2;

impl Kernel<RUN, RUN> for E5m2 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN], values: &mut [V; RUN]) {
        for (value, code) in values.iter_mut().zip(block) {
            *value = V::of(widen_f16(u16::from(*code) << 8));
        }
    }
}

/// F8_E4M3FNUZ | as E4M3 with bias 8; NaN is 80, there are neither -0 nor Inf
pub(super) struct E4m3Fnuz;

impl Kernel<RUN, RUN> for E4m3Fnuz {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN], values: &mut [V; RUN]) {
        for (value, code) in values.iter_mut().zip(block) {
            *value = V::of(fnuz(u32::from(*code), 3, 8));
        }
    }
}

/// F8_E5M2FNUZ | as E5M2 with bias 16; NaN is 80, there are neither -0 nor Inf
pub(super) struct E5m2Fnuz;

impl Kernel<RUN, RUN> for E5m2Fnuz {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN], values: &mut [V; RUN]) {
        for (value, code) in values.iter_mut().zip(block) {
            *value = V::of(fnuz(u32::from(*code), 2, 16));
        }
    }
}

/// A code of 8 bits where all are finite, but for what would be -0.
#[inline(always)]
fn fnuz(code: u32, mantissa: u32, bias: u32) -> f32 {
    let nan = if code == 0x80 { 0x7FC0_0000 } else { 0 };
    f32::from_bits(widen(code, 7, mantissa, bias) | nan)
}

/// F8_E8M0 | exponent 8 (bias 127), neither sign nor zero; NaN is FF
pub(super) struct E8m0;

impl Kernel<RUN, RUN> for E8m0 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN], values: &mut [V; RUN]) {
        for (value, code) in values.iter_mut().zip(block) {
            let code = u32::from(*code);
            // 2^-127 is subnormal; the exponent field of FF is there, a NaN needs a mantissa.
            let mantissa = if code == 0 || code == 0xFF { 0x0040_0000 } else { 0 };
            *value = V::of(f32::from_bits(code << 23 | mantissa));
        }
    }
}

/// F6_E2M3 | 4 elements in 3 bytes: sign 1, exponent 2 (bias 1), mantissa 3; all finite
pub(super) struct E2m3;

impl Kernel<{ RUN / 4 * 3 }, RUN> for E2m3 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN / 4 * 3], values: &mut [V; RUN]) {
        for (value, code) in values.iter_mut().zip(six_bits(block)) {
            *value = V::of(f32::from_bits(widen(u32::from(code), 5, 3, 1)));
        }
    }
}

/// F6_E3M2 | 4 elements in 3 bytes: sign 1, exponent 3 (bias 3), mantissa 2; all finite
pub(super) struct E3m2;

impl Kernel<{ RUN / 4 * 3 }, RUN> for E3m2 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN / 4 * 3], values: &mut [V; RUN]) {
        for (value, code) in values.iter_mut().zip(six_bits(block)) {
            *value = V::of(f32::from_bits(widen(u32::from(code), 5, 2, 3)));
        }
    }
}

/// The stream of 6 bits, each code in a byte of its own.
#[inline(always)]
fn six_bits(block: &[u8; RUN / 4 * 3]) -> [u8; RUN] {
    let mut codes = [0; RUN];
    for (four, bytes) in codes.as_chunks_mut::<4>().0.iter_mut().zip(block.as_chunks::<3>().0) {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        *four = [0, 6, 12, 18].map(|shift| (word >> shift) as u8 & 63);
    }
    codes
}

/// F4 | 2 elements in a byte, low half first: sign 1, exponent 2 (bias 1), mantissa 1
pub(super) struct E2m1;

impl Kernel<{ RUN / 2 }, RUN> for E2m1 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; RUN / 2], values: &mut [V; RUN]) {
        for (pair, byte) in values.as_chunks_mut::<2>().0.iter_mut().zip(block) {
            let codes = [byte & 15, byte >> 4].map(u32::from);
            *pair = codes.map(|code| V::of(f32::from_bits(widen(code, 3, 1, 1))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_one<K: Kernel<B, RUN>, const B: usize>(bytes: &[u8]) -> f32 {
        let mut block = [0; B];
        block[..bytes.len()].copy_from_slice(bytes);
        let mut values = [0.0; RUN];
        K::decode(&block, &mut values);
        values[0]
    }

    #[test]
    fn eight_bit_spot_values() {
        let e4m3 = |c| decode_one::<E4m3, _>(&[c]);
        let spots = [(0x01, 1.0 / 512.0), (0x07, 0.013671875), (0x08, 1.0 / 64.0)];
        for (code, value) in spots.into_iter().chain([(0x38, 1.0), (0x40, 2.0), (0x7E, 448.0)]) {
            assert_eq!(e4m3(code), value);
            assert_eq!(e4m3(code | 0x80), -value);
        }
        assert!(e4m3(0x7F).is_nan() && e4m3(0xFF).is_nan());
        assert_eq!(e4m3(0x80).to_bits(), 0x8000_0000);

        let fnuz = |c| decode_one::<E4m3Fnuz, _>(&[c]);
        assert_eq!(
            [0x01, 0x40, 0x38, 0x7E, 0x7F].map(fnuz),
            [1.0 / 1024.0, 1.0, 0.5, 224.0, 240.0]
        );
        assert!(fnuz(0x80).is_nan());
        assert_eq!(fnuz(0xFF), -240.0);

        let fnuz = |c| decode_one::<E5m2Fnuz, _>(&[c]);
        assert_eq!(
            [0x01, 0x40, 0x38, 0x7E, 0x7F].map(fnuz),
            [1.0 / 131072.0, 1.0, 0.25, 49152.0, 57344.0]
        );
        assert!(fnuz(0x80).is_nan());

        let e5m2 = |c| decode_one::<E5m2, _>(&[c]);
        assert_eq!(
            [0x7B, 0x7C, 0xFC, 0x01].map(e5m2)[..3],
            [57344.0, f32::INFINITY, -f32::INFINITY]
        );
        assert_eq!(e5m2(0x01), 1.0 / 65536.0);
        assert!([0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF].map(e5m2).iter().all(|v| v.is_nan()));
    }

    #[test]
    fn e8m0_is_a_power_of_two_down_to_a_subnormal() {
        let e8m0 = |c| decode_one::<E8m0, _>(&[c]);
        assert_eq!([0x7F, 0x80, 0x7E].map(e8m0), [1.0, 2.0, 0.5]);
        assert_eq!(e8m0(0x00).to_bits(), 0x0040_0000);
        assert_eq!(e8m0(0x01).to_bits(), 0x0080_0000);
        assert_eq!(e8m0(0xFE).to_bits(), 0x7F00_0000);
        assert!(e8m0(0xFF).is_nan());
    }

    #[test]
    fn six_and_four_bit_codes_in_order() {
        let e2m1 = |c| decode_one::<E2m1, _>(&[c]);
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(e2m1), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(e2m1(8).to_bits(), 0x8000_0000);
        assert_eq!(e2m1(15), -6.0);
        let e2m3 = |c| decode_one::<E2m3, _>(&[c]);
        assert_eq!([1, 15, 16, 23].map(e2m3), [0.125, 1.875, 2.0, 3.75]);
        assert_eq!([24, 31, 63].map(e2m3), [4.0, 7.5, -7.5]);
        let e3m2 = |c| decode_one::<E3m2, _>(&[c]);
        assert_eq!([1, 4, 12, 31, 33].map(e3m2), [0.0625, 0.25, 1.0, 28.0, -0.0625]);
        assert_eq!(e3m2(32).to_bits(), 0x8000_0000);
    }

    #[test]
    fn sub_byte_elements_start_in_the_lowest_bits() {
        let mut values = [0.0; RUN];
        E2m1::decode(&[0x21; RUN / 2], &mut values);
        assert_eq!(values[..4], [0.5, 1.0, 0.5, 1.0]);
        // Codes 1, 2, 3, 4 as a stream of six bits each.
        let word = (1u32 | 2 << 6 | 3 << 12 | 4 << 18).to_le_bytes();
        let mut block = [0; RUN / 4 * 3];
        block[3..6].copy_from_slice(&word[..3]);
        E2m3::decode(&block, &mut values);
        assert_eq!(values[4..8], [0.125, 0.25, 0.375, 0.5]);
    }

    #[test]
    fn f64_is_rounded_once() {
        use super::super::encode::{narrow_bf16, narrow_f16};
        let odd = |v: f64| decode_one::<F64ToOdd, _>(&v.to_le_bytes());
        let tiny = 2f64.powi(-40);
        assert_eq!(narrow_f16(odd(1.0 + 2f64.powi(-11) + tiny)), 0x3C01);
        assert_eq!(narrow_f16(odd(1.0 + 2f64.powi(-11))), 0x3C00);
        assert_eq!(narrow_f16(odd(1.0 + 2f64.powi(-11) - tiny)), 0x3C00);
        assert_eq!(narrow_bf16(odd(1.0 + 2f64.powi(-8) + tiny)), 0x3F81);
        assert_eq!(narrow_bf16(odd(-1.0 - 2f64.powi(-8) - tiny)), 0xBF81);
        assert_eq!(narrow_bf16(odd(-1.0 - 2f64.powi(-8))), 0xBF80);
        assert_eq!(narrow_f16(odd(65519.999999)), 0x7BFF);
        assert_eq!(narrow_f16(odd(65520.0)), 0x7C00);
        assert_eq!(narrow_f16(odd(1e300)), 0x7C00);
        assert_eq!(narrow_bf16(odd(-1e300)), 0xFF80);
        assert_eq!(narrow_bf16(odd(f64::NEG_INFINITY)), 0xFF80);
        assert_eq!(narrow_f16(odd(-1e-300)), 0x8000);
        assert_eq!(narrow_f16(odd(2f64.powi(-25))), 0x0000);
        assert_eq!(narrow_f16(odd(2f64.powi(-25) * (1.0 + 1e-12))), 0x0001);
        assert_eq!(narrow_bf16(odd(f64::NAN)) & 0x7FFF, 0x7FC0);
        assert_eq!(decode_one::<F64, _>(&1e300f64.to_le_bytes()), f32::INFINITY);
    }

    #[test]
    fn widening_keeps_the_payload_of_a_nan() {
        assert_eq!(widen_f16(0x7C01).to_bits(), 0x7F80_2000);
        assert_eq!(widen_f16(0xFE09).to_bits(), 0xFFC1_2000);
        assert_eq!(decode_one::<Bf16, _>(&[0x81, 0x7F]).to_bits(), 0x7F81_0000);
    }
}
