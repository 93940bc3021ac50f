//! Values from stored blocks: every float and quantised element type to F32, F16 or BF16.
//!
//! [`decode`] takes whole blocks and gives the little-endian bytes of the target type.
//! Blocks do not depend on each other, so any range of a tensor costs only the blocks that
//! cover it: [`Cover`] does that arithmetic and [`decode_part`] cuts the ends.
//!
//! Guarantees: no allocation, no alignment needed on either side, and no input bytes can
//! make it panic. Values are bit for bit those of the reference (ggml's `dequantize_row_*`
//! and PyPI `gguf`), where any NaN equals any other; F16 and BF16 are the F32 value rounded
//! to nearest even, and F64 is rounded once, directly. A NaN becomes a quiet one when it is
//! narrowed; widening keeps its payload.
//!
//! One decoder per type, by family: `float` (IEEE and small floats), `legacy` (32 elements
//! and one scale, the 1 and 2 bit types), `k`, `iq` (its grids in `grids`), `mx`, `ternary`.
//! `kernel` drives them block by block, `encode` narrows what they give, and `simd` compiles
//! all that a second time for AVX2. Must not know tensors, names or files.

use std::ops::Range;

use thiserror::Error;

use crate::dtype::{DType, Kind};

mod encode;
mod float;
mod grids;
mod iq;
mod k;
mod kernel;
mod legacy;
mod mx;
mod simd;
mod ternary;

/// Bytes of the largest decoded block: 256 elements of F32.
pub const MAX_DECODED_BLOCK: usize = 256 * 4;

const _: () = {
    let mut i = 0;
    while i < DType::ALL.len() {
        let elements = DType::ALL[i].block().elements as usize;
        assert!(elements * 4 <= MAX_DECODED_BLOCK, "a block is larger than MAX_DECODED_BLOCK");
        i += 1;
    }
};

/// The types that values can be decoded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of binary32.
    BF16,
}

impl Target {
    /// All targets.
    pub const ALL: [Target; 3] = [Target::F32, Target::F16, Target::BF16];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Target::F32 => 4,
            Target::F16 | Target::BF16 => 2,
        }
    }

    /// The element type that the decoded bytes have.
    pub const fn dtype(self) -> DType {
        match self {
            Target::F32 => DType::F32,
            Target::F16 => DType::F16,
            Target::BF16 => DType::BF16,
        }
    }
}

/// What a caller asked for that cannot be; damaged bytes are never an error here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuantError {
    /// The type holds no floating-point values.
    #[error("{0} has no floating-point values to decode")]
    NoValues(DType),
    /// The input does not end with a block.
    #[error("{dtype}: {found} bytes are no whole number of blocks of {block} bytes")]
    PartialBlock {
        /// Type of the blocks.
        dtype: DType,
        /// Bytes of one block.
        block: u64,
        /// Bytes given.
        found: usize,
    },
    /// The output is not as long as the values of the blocks (for a part: longer than what
    /// is left of them).
    #[error("{dtype} to {target:?}: room for {found} bytes, the blocks give {expected}")]
    OutputSize {
        /// Type of the blocks.
        dtype: DType,
        /// Type asked for.
        target: Target,
        /// Bytes that the blocks decode to (for a part: after those skipped).
        expected: u64,
        /// Bytes of the output given.
        found: usize,
    },
}

/// Whether `dtype` holds values that [`decode`] can give: the float and quantised types,
/// but no integers, truth values or complex numbers.
pub const fn can_decode(dtype: DType) -> bool {
    matches!(dtype.kind(), Kind::Float | Kind::Quantised)
}

/// Decodes the whole blocks `blocks` of type `dtype` into `out`, as little-endian `target`.
///
/// `out` must have exactly `elements * target.size()` bytes. On an error nothing is written.
pub fn decode(
    dtype: DType,
    blocks: &[u8],
    target: Target,
    out: &mut [u8],
) -> Result<(), QuantError> {
    let expected = decoded_len(dtype, blocks.len(), target)?;
    if expected != out.len() as u64 {
        return Err(QuantError::OutputSize { dtype, target, expected, found: out.len() });
    }
    decode_blocks(dtype, blocks, target, out);
    Ok(())
}

/// Decodes the blocks `blocks` and writes the result's bytes `skip..skip + out.len()`.
///
/// `skip` and the length of `out` are in bytes of the decoded form and may lie anywhere, also
/// inside an element. With the ranges of [`Cover`] this is a read of any range of a view.
pub fn decode_part(
    dtype: DType,
    blocks: &[u8],
    target: Target,
    skip: u64,
    out: &mut [u8],
) -> Result<(), QuantError> {
    let all = decoded_len(dtype, blocks.len(), target)?;
    let expected = all.saturating_sub(skip);
    if out.len() as u64 > expected {
        return Err(QuantError::OutputSize { dtype, target, expected, found: out.len() });
    }
    let per_block = dtype.block().elements as usize * target.size();
    let block_bytes = dtype.block().bytes as usize;
    // Below `all`, which counts bytes of a slice at most eight times over.
    let (first, inside) = ((skip / per_block as u64) as usize, (skip % per_block as u64) as usize);
    let mut blocks = &blocks[(first * block_bytes).min(blocks.len())..];
    let mut out = out;
    let mut spare = [0u8; MAX_DECODED_BLOCK];
    let spare = &mut spare[..per_block];

    if inside != 0 && !out.is_empty() {
        let (block, after) = blocks.split_at(block_bytes);
        decode_blocks(dtype, block, target, spare);
        let (head, tail) = out.split_at_mut(out.len().min(per_block - inside));
        head.copy_from_slice(&spare[inside..inside + head.len()]);
        (blocks, out) = (after, tail);
    }
    let whole = out.len() / per_block;
    let (middle, last) = out.split_at_mut(whole * per_block);
    let (now, after) = blocks.split_at(whole * block_bytes);
    decode_blocks(dtype, now, target, middle);
    if !last.is_empty() {
        decode_blocks(dtype, &after[..block_bytes], target, spare);
        last.copy_from_slice(&spare[..last.len()]);
    }
    Ok(())
}

/// Which stored bytes a range of a decoded view needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// Blocks, counted from the start of the tensor.
    pub blocks: Range<u64>,
    /// Their bytes, counted from the start of the tensor's stored data.
    pub source: Range<u64>,
    /// Bytes of the decoded blocks that come before the range: what [`decode_part`] skips.
    pub skip: u64,
}

impl Cover {
    /// The blocks of `dtype` that hold the bytes `view` of its decoded form.
    ///
    /// `None` when the stored offsets leave 64 bits. An empty range needs no blocks. The
    /// tensor's length is the caller's to know: nothing is cut at its end.
    pub fn new(dtype: DType, target: Target, view: Range<u64>) -> Option<Cover> {
        let block = dtype.block();
        let per_block = block.elements * target.size() as u64;
        let first = view.start / per_block;
        let end = if view.is_empty() { first } else { view.end.div_ceil(per_block) };
        Some(Cover {
            blocks: first..end,
            source: first.checked_mul(block.bytes)?..end.checked_mul(block.bytes)?,
            skip: view.start % per_block,
        })
    }
}

/// Bytes that `bytes` bytes of `dtype` decode to.
fn decoded_len(dtype: DType, bytes: usize, target: Target) -> Result<u64, QuantError> {
    if !can_decode(dtype) {
        return Err(QuantError::NoValues(dtype));
    }
    let block = dtype.block();
    if !(bytes as u64).is_multiple_of(block.bytes) {
        return Err(QuantError::PartialBlock { dtype, block: block.bytes, found: bytes });
    }
    // A slice has at most 2^63 bytes, so at most 2^63 / 18 blocks of the type that grows
    // most; saturating keeps the comparison with a real length false.
    let elements = (bytes as u64 / block.bytes).saturating_mul(block.elements);
    Ok(elements.saturating_mul(target.size() as u64))
}

/// [`decode`] once type and lengths are known to fit.
fn decode_blocks(dtype: DType, blocks: &[u8], target: Target, out: &mut [u8]) {
    use simd::run;
    if dtype == target.dtype() {
        out.copy_from_slice(blocks);
        return;
    }
    match dtype {
        DType::F32 => run::<float::F32, _, _>(blocks, target, out),
        DType::F16 => run::<float::F16, _, _>(blocks, target, out),
        DType::BF16 => run::<float::Bf16, _, _>(blocks, target, out),
        DType::F64 if target == Target::F32 => run::<float::F64, _, _>(blocks, target, out),
        DType::F64 => run::<float::F64ToOdd, _, _>(blocks, target, out),
        DType::F8_E4M3 => run::<float::E4m3, _, _>(blocks, target, out),
        DType::F8_E5M2 => run::<float::E5m2, _, _>(blocks, target, out),
        DType::F8_E8M0 => run::<float::E8m0, _, _>(blocks, target, out),
        DType::F8_E4M3FNUZ => run::<float::E4m3Fnuz, _, _>(blocks, target, out),
        DType::F8_E5M2FNUZ => run::<float::E5m2Fnuz, _, _>(blocks, target, out),
        DType::F6_E2M3 => run::<float::E2m3, _, _>(blocks, target, out),
        DType::F6_E3M2 => run::<float::E3m2, _, _>(blocks, target, out),
        DType::F4 => run::<float::E2m1, _, _>(blocks, target, out),
        DType::Q4_0 => run::<legacy::Q4_0, _, _>(blocks, target, out),
        DType::Q4_1 => run::<legacy::Q4_1, _, _>(blocks, target, out),
        DType::Q5_0 => run::<legacy::Q5_0, _, _>(blocks, target, out),
        DType::Q5_1 => run::<legacy::Q5_1, _, _>(blocks, target, out),
        DType::Q8_0 => run::<legacy::Q8_0, _, _>(blocks, target, out),
        DType::Q8_1 => run::<legacy::Q8_1, _, _>(blocks, target, out),
        DType::Q1_0 => run::<legacy::Q1_0, _, _>(blocks, target, out),
        DType::Q2_0 => run::<legacy::Q2_0, _, _>(blocks, target, out),
        DType::Q2_K => run::<k::Q2K, _, _>(blocks, target, out),
        DType::Q3_K => run::<k::Q3K, _, _>(blocks, target, out),
        DType::Q4_K => run::<k::Q4K, _, _>(blocks, target, out),
        DType::Q5_K => run::<k::Q5K, _, _>(blocks, target, out),
        DType::Q6_K => run::<k::Q6K, _, _>(blocks, target, out),
        DType::Q8_K => run::<k::Q8K, _, _>(blocks, target, out),
        DType::IQ1_S => run::<iq::Iq1S, _, _>(blocks, target, out),
        DType::IQ1_M => run::<iq::Iq1M, _, _>(blocks, target, out),
        DType::IQ2_XXS => run::<iq::Iq2Xxs, _, _>(blocks, target, out),
        DType::IQ2_XS => run::<iq::Iq2Xs, _, _>(blocks, target, out),
        DType::IQ2_S => run::<iq::Iq2S, _, _>(blocks, target, out),
        DType::IQ3_XXS => run::<iq::Iq3Xxs, _, _>(blocks, target, out),
        DType::IQ3_S => run::<iq::Iq3S, _, _>(blocks, target, out),
        DType::IQ4_NL => run::<iq::Iq4Nl, _, _>(blocks, target, out),
        DType::IQ4_XS => run::<iq::Iq4Xs, _, _>(blocks, target, out),
        DType::TQ1_0 => run::<ternary::Tq1_0, _, _>(blocks, target, out),
        DType::TQ2_0 => run::<ternary::Tq2_0, _, _>(blocks, target, out),
        DType::MXFP4 => run::<mx::Mxfp4, _, _>(blocks, target, out),
        DType::NVFP4 => run::<mx::Nvfp4, _, _>(blocks, target, out),
        // Refused by `decoded_len`, which every caller has asked.
        DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::BOOL
        | DType::C64 => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut x = 0x9E37_79B9_7F4A_7C15_u64;
        (0..len)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn integers_booleans_and_complex_numbers_are_refused() {
        for dtype in [DType::I8, DType::U64, DType::BOOL, DType::C64] {
            assert!(!can_decode(dtype));
            let result = decode(dtype, &[0; 8], Target::F32, &mut [0; 8]);
            assert_eq!(result, Err(QuantError::NoValues(dtype)));
        }
    }

    #[test]
    fn a_cut_block_is_refused() {
        let result = decode(DType::Q4_0, &[0; 17], Target::F32, &mut [0; 128]);
        let error = result.unwrap_err();
        assert_eq!(error, QuantError::PartialBlock { dtype: DType::Q4_0, block: 18, found: 17 });
        assert_eq!(error.to_string(), "Q4_0: 17 bytes are no whole number of blocks of 18 bytes");
    }

    #[test]
    fn an_output_of_another_size_is_refused_and_left_alone() {
        let mut out = [7u8; 130];
        let result = decode(DType::Q4_0, &[0; 18], Target::F32, &mut out);
        let (dtype, target) = (DType::Q4_0, Target::F32);
        assert_eq!(
            result,
            Err(QuantError::OutputSize { dtype, target, expected: 128, found: 130 })
        );
        assert_eq!(out, [7; 130]);
        assert!(decode(DType::Q4_0, &[0; 18], Target::F32, &mut out[..126]).is_err());
    }

    #[test]
    fn no_blocks_are_no_values() {
        for &dtype in DType::ALL.iter().filter(|d| can_decode(**d)) {
            for target in Target::ALL {
                assert_eq!(decode(dtype, &[], target, &mut []), Ok(()));
                assert_eq!(decode_part(dtype, &[], target, 0, &mut []), Ok(()));
            }
        }
    }

    #[test]
    fn the_same_type_is_a_copy_with_signalling_nans_and_all() {
        let bytes = [0x01, 0x7C, 0x81, 0x7F];
        let mut out = [0; 4];
        for target in Target::ALL {
            decode(target.dtype(), &bytes, target, &mut out).unwrap();
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn input_and_output_may_start_anywhere() {
        for &dtype in DType::ALL.iter().filter(|d| can_decode(**d)) {
            let n = dtype.block().bytes as usize * 3;
            let bytes = noise(n + 7);
            for target in Target::ALL {
                let len = dtype.block().elements as usize * 3 * target.size();
                let mut plain = vec![0; len];
                for shift in [1, 3, 7] {
                    let aligned = bytes[shift..shift + n].to_vec();
                    decode(dtype, &aligned, target, &mut plain).unwrap();
                    let mut shifted = vec![0; len + shift];
                    let result =
                        decode(dtype, &bytes[shift..shift + n], target, &mut shifted[shift..]);
                    result.unwrap();
                    assert_eq!(shifted[shift..], plain, "{dtype} {target:?}");
                }
            }
        }
    }

    #[test]
    fn any_part_is_that_slice_of_the_whole() {
        for dtype in [DType::F64, DType::F4, DType::F6_E3M2, DType::Q8_0, DType::MXFP4, DType::Q6_K]
        {
            let blocks = 3;
            let bytes = noise(dtype.block().bytes as usize * blocks);
            for target in Target::ALL {
                let len = dtype.block().elements as usize * blocks * target.size();
                let mut whole = vec![0; len];
                decode(dtype, &bytes, target, &mut whole).unwrap();
                let step = if len > 100 { 37 } else { 1 };
                for from in (0..=len).step_by(step) {
                    for to in (from..=len).step_by(step).chain([len]) {
                        let cover = Cover::new(dtype, target, from as u64..to as u64).unwrap();
                        let source = &bytes[cover.source.start as usize..cover.source.end as usize];
                        let mut part = vec![0; to - from];
                        decode_part(dtype, source, target, cover.skip, &mut part)
                            .unwrap_or_else(|e| panic!("{dtype} {from}..{to}: {e}"));
                        assert_eq!(part, whole[from..to], "{dtype} {target:?} {from}..{to}");
                    }
                }
            }
        }
    }

    /// Two scales that are no numbers: which of them a sum keeps is the compiler's choice, and
    /// not the same at every place where a decoder is used.
    #[test]
    fn where_two_nans_meet_there_is_one_form() {
        let special = [0x7E01u16, 0xFE02, 0x7C00, 0xFC00, 0x3C00, 0x0000];
        for (dtype, scales) in [
            (DType::Q4_1, [0, 2]),
            (DType::Q5_1, [0, 2]),
            (DType::Q2_K, [80, 82]),
            (DType::Q4_K, [0, 2]),
            (DType::Q5_K, [0, 2]),
        ] {
            let mut block = noise(dtype.block().bytes as usize);
            for (first, second) in special.iter().flat_map(|a| special.map(|b| (*a, b))) {
                for (at, scale) in scales.into_iter().zip([first, second]) {
                    block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                }
                let mut values = vec![0; dtype.block().elements as usize * 4];
                decode(dtype, &block, Target::F32, &mut values).unwrap();
                let values = values.as_chunks::<4>().0;
                let nans = values.iter().filter(|v| f32::from_le_bytes(**v).is_nan());
                assert!(
                    nans.clone().all(|v| *v == f32::NAN.to_le_bytes()),
                    "{dtype} {first:04X} {second:04X}"
                );
                let nan = |scale: u16| scale & 0x7FFF > 0x7C00;
                assert!(!(nan(first) || nan(second)) || nans.count() == values.len());
            }
        }
    }

    #[test]
    fn a_part_past_the_blocks_is_refused() {
        let mut out = [0; 8];
        let result = decode_part(DType::Q4_0, &[0; 18], Target::F32, 124, &mut out);
        let (dtype, target) = (DType::Q4_0, Target::F32);
        assert_eq!(result, Err(QuantError::OutputSize { dtype, target, expected: 4, found: 8 }));
        assert!(decode_part(DType::Q4_0, &[0; 18], Target::F32, u64::MAX, &mut out).is_err());
        assert_eq!(decode_part(DType::Q4_0, &[0; 18], Target::F32, u64::MAX, &mut []), Ok(()));
    }

    #[test]
    fn cover_counts_blocks_and_their_bytes() {
        let cover = Cover::new(DType::Q4_K, Target::F32, 1023..1025).unwrap();
        assert_eq!(cover, Cover { blocks: 0..2, source: 0..288, skip: 1023 });
        let cover = Cover::new(DType::Q4_K, Target::BF16, 1024..1536).unwrap();
        assert_eq!(cover, Cover { blocks: 2..3, source: 288..432, skip: 0 });
        let cover = Cover::new(DType::F64, Target::F16, 3..3).unwrap();
        assert_eq!(cover.source, 8..8);
        assert_eq!(Cover::new(DType::F64, Target::F16, 0..u64::MAX), None);
    }
}
