//! K-quants: 256 elements in sub-blocks of 16 or 32 with scales of their own.
//!
//! Fields stand as offset, bytes, meaning; the names are those of the structs in ggml's
//! `ggml-common.h`. In each, `e` is the element and `l = e % 32`.

use super::kernel::{Kernel, Value, f16_at, field, one_nan, u32_at};

/// The halves of a block, numbered, each as four groups of 32 values.
#[inline(always)]
fn half_blocks<V>(values: &mut [V; 256]) -> impl Iterator<Item = (usize, &mut [[V; 32]; 4])> {
    values.as_chunks_mut::<32>().0.as_chunks_mut::<4>().0.iter_mut().enumerate()
}

/// The factors of the two sub-blocks of a group, one for each element: a loop over all 32
/// becomes better vector code than two over 16.
#[inline(always)]
fn spread(first: f32, second: f32) -> [f32; 32] {
    let mut all = [first; 32];
    all[16..].fill(second);
    all
}

/// Q2_K (`block_q2_K`, 84 bytes): `(d * scale) * code - dmin * min`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 16 | scales: per 16 elements, scale in the low half, min in the high one |
/// | 16 | 64 | qs: 2-bit codes, bits 2 * (e / 32 % 4) of byte 32 * (e / 128) + l |
/// | 80 | 2 | d: F16 scale of the scales |
/// | 82 | 2 | dmin: F16 scale of the mins |
pub(super) struct Q2K;

impl Kernel<84, 256> for Q2K {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 84], values: &mut [V; 256]) {
        let d = [f16_at(block, 80), -f16_at(block, 82)];
        for (n, [g0, g1, g2, g3]) in half_blocks(values) {
            let (scales, codes) = (field(block, 8 * n), field(block, 16 + 32 * n));
            q2_group::<0, V>(codes, scales, d, g0);
            q2_group::<1, V>(codes, scales, d, g1);
            q2_group::<2, V>(codes, scales, d, g2);
            q2_group::<3, V>(codes, scales, d, g3);
        }
        one_nan(d, values);
    }
}

/// The 32 elements whose codes are at bits `2 * K`.
#[inline(always)]
fn q2_group<const K: usize, V: Value>(
    codes: &[u8; 32],
    scales: &[u8; 8],
    [d, minus_dmin]: [f32; 2],
    values: &mut [V; 32],
) {
    let [first, second] = [scales[2 * K], scales[2 * K + 1]];
    let scales = spread(d * f32::from(first & 15), d * f32::from(second & 15));
    let least = spread(minus_dmin * f32::from(first >> 4), minus_dmin * f32::from(second >> 4));
    for (i, value) in values.iter_mut().enumerate() {
        let code = (codes[i] >> (2 * K)) & 3;
        *value = V::of(scales[i] * f32::from(code) + least[i]);
    }
}

/// Q3_K (`block_q3_K`, 110 bytes): `(d * (scale - 32)) * (code - 4)`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 32 | hmask: bit e / 32 of byte l is bit 2 of the code |
/// | 32 | 64 | qs: low 2 bits, bits 2 * (e / 32 % 4) of byte 32 * (e / 128) + l |
/// | 96 | 12 | scales: 16 of 6 bits; scale k has its low half in byte k % 8 (low nibble for k < 8, else high), its upper 2 bits at 2 * (k / 4) of byte 8 + k % 4 |
/// | 108 | 2 | d: F16 scale of the scales |
pub(super) struct Q3K;

impl Kernel<110, 256> for Q3K {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 110], values: &mut [V; 256]) {
        let d = f16_at(block, 108);
        let scales = q3_scales(field(block, 96)).map(|scale| d * f32::from(scale));
        let high = field(block, 0);
        for (n, [g0, g1, g2, g3]) in half_blocks(values) {
            let (scales, low) = (scales.as_chunks::<8>().0[n], field(block, 32 + 32 * n));
            let mask = 1 << (4 * n);
            q3_group::<0, V>(low, high, mask, &scales, g0);
            q3_group::<1, V>(low, high, mask << 1, &scales, g1);
            q3_group::<2, V>(low, high, mask << 2, &scales, g2);
            q3_group::<3, V>(low, high, mask << 3, &scales, g3);
        }
    }
}

/// The 32 elements whose low bits are at `2 * K` and whose high one is under `mask`.
#[inline(always)]
fn q3_group<const K: usize, V: Value>(
    low: &[u8; 32],
    high: &[u8; 32],
    mask: u8,
    scales: &[f32; 8],
    values: &mut [V; 32],
) {
    let scales = spread(scales[2 * K], scales[2 * K + 1]);
    for (i, value) in values.iter_mut().enumerate() {
        let minus = if high[i] & mask == 0 { 4 } else { 0 };
        let code = i32::from((low[i] >> (2 * K)) & 3) - minus;
        *value = V::of(scales[i] * code as f32);
    }
}

/// The 16 scales of Q3_K, less 32.
#[inline(always)]
fn q3_scales(packed: &[u8; 12]) -> [i8; 16] {
    const LOW: u32 = 0x0F0F_0F0F;
    const TWO: u32 = 0x0303_0303;
    let (first, second, upper) = (u32_at(packed, 0), u32_at(packed, 4), u32_at(packed, 8));
    let words = [
        first & LOW | (upper & TWO) << 4,
        second & LOW | (upper >> 2 & TWO) << 4,
        first >> 4 & LOW | (upper >> 4 & TWO) << 4,
        second >> 4 & LOW | (upper >> 6 & TWO) << 4,
    ];
    let mut scales = [0; 16];
    for (scales, word) in scales.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *scales = word.to_le_bytes().map(|scale| scale.wrapping_sub(32) as i8);
    }
    scales
}

/// The 8 scales and 8 mins of 6 bits in the 12 bytes that Q4_K and Q5_K share.
///
/// For b < 4 they are the low 6 bits of bytes b and b + 4; the later ones have their low
/// half in byte b + 4 (scale in the low nibble, min in the high one) and their upper 2 bits
/// in the top of bytes b - 4 and b.
#[inline(always)]
fn scales_and_mins(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    const SIX: u32 = 0x3F3F_3F3F;
    const LOW: u32 = 0x0F0F_0F0F;
    const TWO: u32 = 0x0303_0303;
    let (first, second, third) = (u32_at(packed, 0), u32_at(packed, 4), u32_at(packed, 8));
    let join = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
    let scales = join(first & SIX, third & LOW | (first >> 6 & TWO) << 4);
    let mins = join(second & SIX, third >> 4 & LOW | (second >> 6 & TWO) << 4);
    (scales, mins)
}

/// Q4_K (`block_q4_K`, 144 bytes): `(d * scale) * code - dmin * min`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale of the scales |
/// | 2 | 2 | dmin: F16 scale of the mins |
/// | 4 | 12 | scales: see [`scales_and_mins`], one pair per 32 elements |
/// | 16 | 128 | qs: byte 32 * (e / 64) + l, low half for even e / 32, else high |
pub(super) struct Q4K;

impl Kernel<144, 256> for Q4K {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 144], values: &mut [V; 256]) {
        let d = [f16_at(block, 0), -f16_at(block, 2)];
        let (scales, mins) = scales_and_mins(field(block, 4));
        let pairs = values.as_chunks_mut::<32>().0.as_chunks_mut::<2>().0;
        for (n, [even, odd]) in pairs.iter_mut().enumerate() {
            let codes = field(block, 16 + 32 * n);
            q4_group::<0, V>(codes, d, [scales[2 * n], mins[2 * n]], even);
            q4_group::<4, V>(codes, d, [scales[2 * n + 1], mins[2 * n + 1]], odd);
        }
        one_nan(d, values);
    }
}

/// The 32 elements in the low (`SHIFT` 0) or high (4) halves.
#[inline(always)]
fn q4_group<const SHIFT: u32, V: Value>(
    codes: &[u8; 32],
    [d, minus_dmin]: [f32; 2],
    [scale, least]: [u8; 2],
    values: &mut [V; 32],
) {
    let (scale, offset) = (d * f32::from(scale), minus_dmin * f32::from(least));
    for (value, byte) in values.iter_mut().zip(codes) {
        *value = V::of(scale * f32::from((byte >> SHIFT) & 15) + offset);
    }
}

/// Q5_K (`block_q5_K`, 176 bytes): `(d * scale) * code - dmin * min`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale of the scales |
/// | 2 | 2 | dmin: F16 scale of the mins |
/// | 4 | 12 | scales: see [`scales_and_mins`], one pair per 32 elements |
/// | 16 | 32 | qh: bit e / 32 of byte l is bit 4 of the code |
/// | 48 | 128 | qs: byte 32 * (e / 64) + l, low half for even e / 32, else high |
pub(super) struct Q5K;

impl Kernel<176, 256> for Q5K {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 176], values: &mut [V; 256]) {
        let d = [f16_at(block, 0), -f16_at(block, 2)];
        let (scales, mins) = scales_and_mins(field(block, 4));
        let high = field(block, 16);
        let pairs = values.as_chunks_mut::<32>().0.as_chunks_mut::<2>().0;
        for (n, [even, odd]) in pairs.iter_mut().enumerate() {
            let low = field(block, 48 + 32 * n);
            let mask = 1 << (2 * n);
            let pair = |b: usize| [scales[b], mins[b]];
            q5_group::<0, V>(low, high, mask, d, pair(2 * n), even);
            q5_group::<4, V>(low, high, mask << 1, d, pair(2 * n + 1), odd);
        }
        one_nan(d, values);
    }
}

/// The 32 elements whose low bits start at `SHIFT` and whose high one is under `mask`.
#[inline(always)]
fn q5_group<const SHIFT: u32, V: Value>(
    low: &[u8; 32],
    high: &[u8; 32],
    mask: u8,
    [d, minus_dmin]: [f32; 2],
    [scale, least]: [u8; 2],
    values: &mut [V; 32],
) {
    let (scale, offset) = (d * f32::from(scale), minus_dmin * f32::from(least));
    for ((value, low), high) in values.iter_mut().zip(low).zip(high) {
        let plus = if high & mask == 0 { 0 } else { 16 };
        *value = V::of(scale * f32::from((low >> SHIFT) & 15 | plus) + offset);
    }
}

/// Q6_K (`block_q6_K`, 210 bytes): `(d * scale) * (code - 32)`
///
/// With n = e / 128 and k = e / 32 % 4:
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 128 | ql: low 4 bits, byte 64 * n + 32 * (k % 2) + l, low half for k < 2, else high |
/// | 128 | 64 | qh: upper 2 bits, bits 2 * k of byte 32 * n + l |
/// | 192 | 16 | scales: i8 per 16 elements |
/// | 208 | 2 | d: F16 scale of the scales |
pub(super) struct Q6K;

impl Kernel<210, 256> for Q6K {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 210], values: &mut [V; 256]) {
        let d = f16_at(block, 208);
        for (n, [g0, g1, g2, g3]) in half_blocks(values) {
            let (low, low_too) = (field(block, 64 * n), field(block, 64 * n + 32));
            let (high, scales) = (field(block, 128 + 32 * n), field(block, 192 + 8 * n));
            q6_group::<0, V>(low, high, scales, d, g0);
            q6_group::<1, V>(low_too, high, scales, d, g1);
            q6_group::<2, V>(low, high, scales, d, g2);
            q6_group::<3, V>(low_too, high, scales, d, g3);
        }
    }
}

/// The 32 elements of group `K` of 4 in a half block.
#[inline(always)]
fn q6_group<const K: usize, V: Value>(
    low: &[u8; 32],
    high: &[u8; 32],
    scales: &[u8; 8],
    d: f32,
    values: &mut [V; 32],
) {
    let [first, second] = [scales[2 * K], scales[2 * K + 1]].map(|s| d * f32::from(s as i8));
    let scales = spread(first, second);
    for (i, value) in values.iter_mut().enumerate() {
        let code = (low[i] >> (4 * (K / 2))) & 15 | ((high[i] >> (2 * K)) & 3) << 4;
        *value = V::of(scales[i] * (i32::from(code) - 32) as f32);
    }
}

/// Q8_K (`block_q8_K`, 292 bytes): `d * code`; an intermediate type of ggml
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 4 | d: F32 scale |
/// | 4 | 256 | qs: i8 codes |
/// | 260 | 32 | bsums: i16 sums of 16 codes; says nothing new |
pub(super) struct Q8K;

impl Kernel<292, 256> for Q8K {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 292], values: &mut [V; 256]) {
        let d = f32::from_le_bytes(*field(block, 0));
        let codes: &[u8; 256] = field(block, 4);
        for (value, code) in values.iter_mut().zip(codes) {
            *value = V::of(d * f32::from(*code as i8));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_bit_pairs_meet_their_upper_bits() {
        // Scale 5 is byte 9's low nibble with the top of byte 1; min 5 is its high nibble
        // with the top of byte 5.
        let mut packed = [0; 12];
        packed[1] = 0b10_000001;
        packed[5] = 0b11_000010;
        packed[9] = 0x74;
        let (scales, mins) = scales_and_mins(&packed);
        assert_eq!(scales, [0, 1, 0, 0, 0, 0x24, 0, 0]);
        assert_eq!(mins, [0, 2, 0, 0, 0, 0x37, 0, 0]);
    }

    #[test]
    fn q3_scales_meet_their_upper_bits() {
        let mut packed = [0; 12];
        packed[5] = 0xA3;
        packed[9] = 0b11_01_10_00;
        // Bytes 5 and 9 serve scales 5 (low nibble, bits 2..4) and 13 (high, bits 6..8).
        let scales = q3_scales(&packed);
        assert_eq!(scales[5], (0x03 | 2 << 4) - 32);
        assert_eq!(scales[13], (0x0A | 3 << 4) - 32);
        assert_eq!((scales[1], scales[9]), (-32, (1 << 4) - 32));
    }

    #[test]
    fn a_clear_mask_bit_of_q3_subtracts_four() {
        let mut block = [0; 110];
        block[108..].copy_from_slice(&[0x00, 0x3C]);
        // Scale 0 is 33, so 1 after the offset.
        block[96] = 1;
        block[104] = 2;
        block[1] = 1;
        block[33] = 3;
        let mut values = [9.0; 256];
        Q3K::decode(&block, &mut values);
        assert_eq!(values[..3], [-4.0, 3.0, -4.0]);
    }
}
