//! IQ types: rows of 8 (or 2 x 4) values picked from a grid, with signs; and the two types
//! with a 16-value table.
//!
//! Fields stand as offset, bytes, meaning; the names are those of the structs in ggml's
//! `ggml-common.h`. In each, g = e / 32 is the group, l = e / 8 % 4 the octet in it and
//! j = e % 8 the element in that. A set sign bit j negates, also a zero.

use super::grids::{G1, G2S, G2XS, G2XXS, G3S, G3XXS};
use super::kernel::{BITS, Kernel, Value, f16_at, field, u16_at, u32_at};

/// Signs of 7 bits: the eighth makes their number even (`ksigns_iq2xs`).
static EVEN_SIGNS: [u8; 128] = {
    let mut signs = [0; 128];
    let mut i = 0;
    while i < 128 {
        signs[i] = i as u8 | ((i.count_ones() as u8 & 1) << 7);
        i += 1;
    }
    signs
};

#[inline(always)]
fn even_signs(bits: u32) -> u8 {
    EVEN_SIGNS[bits as usize & 127]
}

/// The signs of four octets, 7 bits each from the lowest up.
#[inline(always)]
fn four_even_signs(word: u32) -> [u8; 4] {
    [0, 7, 14, 21].map(|shift| even_signs(word >> shift))
}

/// `scales * rows`, negated where bit j of the octet's `signs` is set; 32 of `rows`.
///
/// Everything is put in a line first: a loop over all 32 becomes better vector code than
/// four over 8.
#[inline(always)]
fn signed<V: Value>(scales: [f32; 4], rows: &[u8], signs: [u8; 4], values: &mut [[V; 8]; 4]) {
    let (scales, signs) = (scales.map(|s| [s; 8]), signs.map(|s| [s; 8]));
    let (scales, signs) = (scales.as_flattened(), signs.as_flattened());
    let bits = BITS.as_flattened();
    for (i, value) in values.as_flattened_mut().iter_mut().enumerate() {
        let sign = if signs[i] & bits[i] == 0 { 0 } else { 0x8000_0000 };
        let magnitude = scales[i] * f32::from(rows[i]);
        *value = V::of(f32::from_bits(magnitude.to_bits() ^ sign));
    }
}

/// `scales * (rows + deltas)`, each for one octet. The rows are put in a line first: a loop
/// over all 32 becomes better vector code than four over 8.
#[inline(always)]
fn shifted<V: Value>(
    scales: [f32; 4],
    rows: [[i8; 8]; 4],
    deltas: [f32; 4],
    values: &mut [[V; 8]; 4],
) {
    let (scales, deltas) = (scales.map(|s| [s; 8]), deltas.map(|d| [d; 8]));
    let (scales, deltas) = (scales.as_flattened(), deltas.as_flattened());
    let rows = rows.as_flattened();
    for (i, value) in values.as_flattened_mut().iter_mut().enumerate() {
        *value = V::of(scales[i] * (f32::from(rows[i]) + deltas[i]));
    }
}

/// What IQ1 types add to a row: 1/8, below zero where `minus` is 1. A choice between the two
/// would become a branch that guesses wrong half of the time.
#[inline(always)]
fn delta(minus: usize) -> f32 {
    f32::from_bits(0.125f32.to_bits() | (minus as u32) << 31)
}

const OCTETS: [usize; 4] = [0, 1, 2, 3];

/// The groups of a block, numbered, as octets.
#[inline(always)]
fn groups<V>(values: &mut [V; 256]) -> impl Iterator<Item = (usize, &mut [[V; 8]; 4])> {
    values.as_chunks_mut::<8>().0.as_chunks_mut::<4>().0.iter_mut().enumerate()
}

/// IQ2_XXS (`block_iq2_xxs`, 66 bytes): `db * grid * sign`, `db = d * (0.5 + s) * 0.25`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 + 8g | 4 | qs: grid row per octet |
/// | 6 + 8g | 4 | qs: u32, 4 x 7 bits of signs, lowest first; s in the top 4 |
pub(super) struct Iq2Xxs;

impl Kernel<66, 256> for Iq2Xxs {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 66], values: &mut [V; 256]) {
        let d = f16_at(block, 0);
        for (g, group) in groups(values) {
            let rows: &[u8; 4] = field(block, 2 + 8 * g);
            let word = u32_at(block, 6 + 8 * g);
            let db = d * (0.5 + (word >> 28) as f32) * 0.25;
            let rows = rows.map(|row| G2XXS[usize::from(row)]);
            signed([db; 4], rows.as_flattened(), four_even_signs(word), group);
        }
    }
}

/// The scales of the octets of a group of IQ2_XS and IQ2_S: `d * (0.5 + s) * 0.25`, low half first.
#[inline(always)]
fn half_group_scales(d: f32, byte: u8) -> [f32; 4] {
    let [first, second] = [byte & 15, byte >> 4].map(|s| d * (0.5 + f32::from(s)) * 0.25);
    [first, first, second, second]
}

/// IQ2_XS (`block_iq2_xs`, 74 bytes): `db * grid * sign`, `db = d * (0.5 + s) * 0.25`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 64 | qs: u16 per octet, grid row in the low 9 bits, 7 bits of signs above |
/// | 66 | 8 | scales: s per two octets, low half first |
pub(super) struct Iq2Xs;

impl Kernel<74, 256> for Iq2Xs {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 74], values: &mut [V; 256]) {
        let d = f16_at(block, 0);
        for (g, group) in groups(values) {
            let scales = half_group_scales(d, block[66 + g]);
            let codes = OCTETS.map(|l| u16_at(block, 2 + 8 * g + 2 * l));
            let rows = codes.map(|code| G2XS[usize::from(code & 511)]);
            let signs = codes.map(|code| even_signs(u32::from(code >> 9)));
            signed(scales, rows.as_flattened(), signs, group);
        }
    }
}

/// IQ2_S (`block_iq2_s`, 82 bytes): `db * grid * sign`, `db = d * (0.5 + s) * 0.25`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 32 | qs: low 8 bits of the grid row per octet |
/// | 34 | 32 | qs: signs per octet |
/// | 66 | 8 | qh: upper 2 bits of the rows, bits 2l of byte g |
/// | 74 | 8 | scales: s per two octets, low half first |
pub(super) struct Iq2S;

impl Kernel<82, 256> for Iq2S {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 82], values: &mut [V; 256]) {
        let d = f16_at(block, 0);
        for (g, group) in groups(values) {
            let scales = half_group_scales(d, block[74 + g]);
            let rows: &[u8; 4] = field(block, 2 + 4 * g);
            let signs: &[u8; 4] = field(block, 34 + 4 * g);
            let high = usize::from(block[66 + g]);
            let rows = OCTETS.map(|l| G2S[usize::from(rows[l]) | ((high >> (2 * l)) & 3) << 8]);
            signed(scales, rows.as_flattened(), *signs, group);
        }
    }
}

/// IQ3_XXS (`block_iq3_xxs`, 98 bytes): `db * grid * sign`, `db = d * (0.5 + s) * 0.5`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 64 | qs: grid row per 4 elements |
/// | 66 | 32 | u32 per group: 4 x 7 bits of signs, lowest first; s in the top 4 |
pub(super) struct Iq3Xxs;

impl Kernel<98, 256> for Iq3Xxs {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 98], values: &mut [V; 256]) {
        let d = f16_at(block, 0);
        for (g, group) in groups(values) {
            let rows: &[u8; 8] = field(block, 2 + 8 * g);
            let word = u32_at(block, 66 + 4 * g);
            let db = d * (0.5 + (word >> 28) as f32) * 0.5;
            let rows = rows.map(|row| G3XXS[usize::from(row)]);
            signed([db; 4], rows.as_flattened(), four_even_signs(word), group);
        }
    }
}

/// IQ3_S (`block_iq3_s`, 110 bytes): `db * grid * sign`, `db = d * (1 + 2 s)`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 64 | qs: low 8 bits of the grid row per 4 elements |
/// | 66 | 8 | qh: ninth bit of the rows, bit 2l + j / 4 of byte g |
/// | 74 | 32 | signs per octet |
/// | 106 | 4 | scales: s per group, low half first |
pub(super) struct Iq3S;

impl Kernel<110, 256> for Iq3S {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 110], values: &mut [V; 256]) {
        let d = f16_at(block, 0);
        for (g, group) in groups(values) {
            let rows: &[u8; 8] = field(block, 2 + 8 * g);
            let signs: &[u8; 4] = field(block, 74 + 4 * g);
            let high = usize::from(block[66 + g]);
            let s = (block[106 + g / 2] >> (4 * (g % 2))) & 15;
            let db = d * f32::from(1 + 2 * s);
            let mut spread = [[0; 4]; 8];
            for (i, spread) in spread.iter_mut().enumerate() {
                *spread = G3S[usize::from(rows[i]) | ((high >> i) & 1) << 8];
            }
            signed([db; 4], spread.as_flattened(), *signs, group);
        }
    }
}

/// IQ1_S (`block_iq1_s`, 50 bytes): `dl * (grid + delta)`, `dl = d * (2 s + 1)`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 32 | qs: low 8 bits of the grid row per octet |
/// | 34 | 16 | qh: u16 per group, upper 3 bits of row l at 3l, s in bits 12..15, top bit: delta is -0.125, else 0.125 |
pub(super) struct Iq1S;

impl Kernel<50, 256> for Iq1S {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 50], values: &mut [V; 256]) {
        let d = f16_at(block, 0);
        for (g, group) in groups(values) {
            let rows: &[u8; 4] = field(block, 2 + 4 * g);
            let high = u16_at(block, 34 + 2 * g);
            let dl = d * f32::from(2 * ((high >> 12) & 7) + 1);
            let row = |l: usize| G1[usize::from(rows[l]) | (usize::from(high >> (3 * l)) & 7) << 8];
            shifted([dl; 4], OCTETS.map(row), [delta(usize::from(high >> 15)); 4], group);
        }
    }
}

/// IQ1_M (`block_iq1_m`, 56 bytes): `dl * (grid + delta)`, `dl = d * (2 s + 1)`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 32 | qs: low 8 bits of the grid row per octet |
/// | 32 | 16 | qh: a nibble per octet, low half first: upper 3 bits of the row, top bit as in IQ1_S |
/// | 48 | 8 | scales: u16 per two groups, s of 3 bits per two octets; the top nibbles, lowest first, are d: F16 scale |
pub(super) struct Iq1M;

impl Kernel<56, 256> for Iq1M {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 56], values: &mut [V; 256]) {
        let words = [48, 50, 52, 54].map(|at| u16_at(block, at));
        let d = (words[0] >> 12)
            | ((words[1] >> 8) & 0x00F0)
            | ((words[2] >> 4) & 0x0F00)
            | (words[3] & 0xF000);
        let d = super::float::widen_f16(d);
        for (g, group) in groups(values) {
            let rows: &[u8; 4] = field(block, 4 * g);
            let high = usize::from(u16_at(block, 32 + 2 * g));
            let scales = words[g / 2] >> (6 * (g % 2));
            let scales = [scales & 7, (scales >> 3) & 7].map(|s| d * f32::from(2 * s + 1));
            let mut picked = [[0; 8]; 4];
            let mut deltas = [0.0; 4];
            for l in 0..4 {
                let nibble = (high >> (4 * l)) & 15;
                picked[l] = G1[usize::from(rows[l]) | (nibble & 7) << 8];
                deltas[l] = delta(nibble >> 3);
            }
            let [first, second] = scales;
            shifted([first, first, second, second], picked, deltas, group);
        }
    }
}

/// The values of 4-bit codes, denser around zero (`kvalues_iq4nl`).
static NON_LINEAR: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

#[inline(always)]
fn non_linear<V: Value>(bytes: &[u8; 16], d: f32, values: &mut [V; 32]) {
    let (low, high) = values.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = V::of(d * NON_LINEAR[usize::from(byte & 15)]);
        *high = V::of(d * NON_LINEAR[usize::from(byte >> 4)]);
    }
}

/// IQ4_NL (`block_iq4_nl`, 18 bytes, 32 elements): `d * table[code]`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 16 | qs: 4-bit codes in halves |
pub(super) struct Iq4Nl;

impl Kernel<18, 32> for Iq4Nl {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 18], values: &mut [V; 32]) {
        non_linear(field(block, 2), f16_at(block, 0), values);
    }
}

/// IQ4_XS (`block_iq4_xs`, 136 bytes): `(d * (scale - 32)) * table[code]`
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | d: F16 scale |
/// | 2 | 2 | scales_h: upper 2 bits of the scale of group g at 2g |
/// | 4 | 4 | scales_l: low 4 bits, low half for even g, else high, of byte g / 2 |
/// | 8 | 128 | qs: 16 bytes per group, 4-bit codes in halves |
pub(super) struct Iq4Xs;

impl Kernel<136, 256> for Iq4Xs {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 136], values: &mut [V; 256]) {
        let d = f16_at(block, 0);
        let high = u16_at(block, 2);
        for (g, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low = (block[4 + g / 2] >> (4 * (g % 2))) & 15;
            let scale = i32::from(low) | i32::from((high >> (2 * g)) & 3) << 4;
            non_linear(field(block, 8 + 16 * g), d * (scale - 32) as f32, values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_signs_are_made_even() {
        assert!(EVEN_SIGNS.iter().all(|s| s.count_ones() % 2 == 0));
        assert_eq!(
            [EVEN_SIGNS[0], EVEN_SIGNS[1], EVEN_SIGNS[3], EVEN_SIGNS[127]],
            [0, 0x81, 3, 0xFF]
        );
    }

    #[test]
    fn a_zero_scale_keeps_the_sign() {
        let mut values = [[9.0; 8]; 4];
        signed([0.0; 4], &[8; 32], [0, 0b1000_0001, 0, 0], &mut values);
        let bits = values[1].map(f32::to_bits);
        assert_eq!((bits[0], bits[1], bits[7]), (0x8000_0000, 0, 0x8000_0000));
        assert_eq!(values[2].map(f32::to_bits), [0; 8]);
    }
}
