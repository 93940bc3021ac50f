//! The loop that all decoders share: block by block through a buffer of F32 values.
//!
//! Everything here and in the decoders is inlined into one function per type and
//! instruction set, so the same source is compiled for the baseline and for AVX2.

use super::Target;
use super::encode;

/// Blocks that are decoded before their values are narrowed.
const BATCH: usize = 8;

/// Where a decoder puts its values: F32 to be narrowed, or right away the bytes of F32.
pub(super) trait Value: Copy {
    /// `value` in this form.
    fn of(value: f32) -> Self;

    /// The value again.
    fn get(self) -> f32;
}

impl Value for f32 {
    #[inline(always)]
    fn of(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn get(self) -> f32 {
        self
    }
}

impl Value for [u8; 4] {
    #[inline(always)]
    fn of(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }

    #[inline(always)]
    fn get(self) -> f32 {
        f32::from_le_bytes(self)
    }
}

/// How the blocks of one type become values. `BYTES` hold `ELEMENTS`.
///
/// Float types, whose real block is an element or a few, take a run of them as one block;
/// the last, shorter run is padded with zeros.
pub(super) trait Kernel<const BYTES: usize, const ELEMENTS: usize> {
    /// Overwrites all of `values`. Never panics.
    fn decode<V: Value>(block: &[u8; BYTES], values: &mut [V; ELEMENTS]);
}

/// Decodes `blocks` with `K` into `out`; the lengths fit, as [`super::decode`] has checked.
///
/// `f16` rounds values to F16, as [`encode::f16`] does.
#[inline(always)]
pub(super) fn each<K, const BYTES: usize, const ELEMENTS: usize>(
    blocks: &[u8],
    target: Target,
    out: &mut [u8],
    f16: impl Fn(&[f32], &mut [[u8; 2]]),
) where
    K: Kernel<BYTES, ELEMENTS>,
{
    let (whole, rest) = blocks.as_chunks::<BYTES>();
    let (body, tail) = out.split_at_mut(whole.len() * ELEMENTS * target.size());
    let mut last = [0u8; BYTES];
    last[..rest.len()].copy_from_slice(rest);
    match target {
        Target::F32 => {
            let places = body.as_chunks_mut::<4>().0.as_chunks_mut::<ELEMENTS>().0;
            for (block, place) in whole.iter().zip(places) {
                K::decode(block, place);
            }
            if !rest.is_empty() {
                let mut values = [[0; 4]; ELEMENTS];
                K::decode(&last, &mut values);
                tail.copy_from_slice(&values.as_flattened()[..tail.len()]);
            }
        }
        Target::F16 | Target::BF16 => {
            // Some blocks at a time: long runs are narrowed best.
            let mut values = [[0f32; ELEMENTS]; BATCH];
            let narrow = |values: &[[f32; ELEMENTS]], place: &mut [u8]| {
                let places = place.as_chunks_mut::<2>().0;
                let values = &values.as_flattened()[..places.len()];
                match target {
                    Target::F16 => f16(values, places),
                    _ => encode::bf16(values, places),
                }
            };
            let places = body.chunks_mut(BATCH * ELEMENTS * 2);
            for (blocks, place) in whole.chunks(BATCH).zip(places) {
                for (block, values) in blocks.iter().zip(&mut values) {
                    K::decode(block, values);
                }
                narrow(&values, place);
            }
            if !rest.is_empty() {
                K::decode(&last, &mut values[0]);
                narrow(&values, tail);
            }
        }
    }
}

/// The `N` bytes of `block` from `at` on; the field tables prove that they are inside.
#[inline(always)]
pub(super) fn field<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a field lies inside its block")
}

/// The little-endian u16 at `at`.
#[inline(always)]
pub(super) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*field(block, at))
}

/// The little-endian u32 at `at`.
#[inline(always)]
pub(super) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*field(block, at))
}

/// The F16 at `at`, as F32.
#[inline(always)]
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    super::float::widen_f16(u16_at(block, at))
}

/// The bit of its byte that belongs to each element of 32, where there is one bit for each.
pub(super) const BITS: [[u8; 8]; 4] = [[1, 2, 4, 8, 16, 32, 64, 128]; 4];

/// `codes[i] * scale`.
#[inline(always)]
pub(super) fn scale<V: Value, const N: usize>(codes: &[i8; N], scale: f32, values: &mut [V; N]) {
    for (value, code) in values.iter_mut().zip(codes) {
        *value = V::of(f32::from(*code) * scale);
    }
}

/// `codes[i] * scale + offset`; the addition is the one step that rounds.
#[inline(always)]
pub(super) fn scale_from<V: Value, const N: usize>(
    codes: &[i8; N],
    scale: f32,
    offset: f32,
    values: &mut [V; N],
) {
    for (value, code) in values.iter_mut().zip(codes) {
        *value = V::of(f32::from(*code) * scale + offset);
    }
    one_nan([scale, offset], values);
}

/// Gives every NaN of a block with these two scales one form. Where two NaN meet the
/// processor keeps the first, and the compiler may order them in one way at one place and in
/// another at the next: the same block would be read as different bytes.
#[inline(always)]
pub(super) fn one_nan<V: Value, const N: usize>(scales: [f32; 2], values: &mut [V; N]) {
    if scales.iter().all(|scale| scale.is_finite()) {
        return;
    }
    for value in values {
        if value.get().is_nan() {
            *value = V::of(f32::NAN);
        }
    }
}

/// The nibbles of `bytes`: first all low halves, then all high ones.
#[inline(always)]
pub(super) fn halves(bytes: &[u8; 16]) -> [u8; 32] {
    let mut nibbles = [0; 32];
    let (low, high) = nibbles.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = byte & 15;
        *high = byte >> 4;
    }
    nibbles
}
