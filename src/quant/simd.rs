//! The decode loop compiled for the baseline and for AVX2, chosen when it runs.
//!
//! Both are the same source and plain F32 arithmetic, but for the rounding to F16, which has
//! an instruction; so they give the same bits, and a test compares them. The only unsafe
//! code of `quant` is here: the call into the AVX2 copy, and two vector moves.
#![allow(unsafe_code)]

use super::kernel::{Kernel, each};
use super::{Target, encode};

/// Decodes `blocks` with `K` on the best instruction set there is.
#[inline]
pub(super) fn run<K, const BYTES: usize, const ELEMENTS: usize>(
    blocks: &[u8],
    target: Target,
    out: &mut [u8],
) where
    K: Kernel<BYTES, ELEMENTS>,
{
    #[cfg(target_arch = "x86_64")]
    if x86::detected() {
        // SAFETY: the processor has the features that the function is compiled for, as the
        // line above has asked.
        unsafe { x86::run::<K, BYTES, ELEMENTS>(blocks, target, out) };
        return;
    }
    baseline::<K, BYTES, ELEMENTS>(blocks, target, out);
}

/// The loop for every processor of the architecture.
pub(super) fn baseline<K, const BYTES: usize, const ELEMENTS: usize>(
    blocks: &[u8],
    target: Target,
    out: &mut [u8],
) where
    K: Kernel<BYTES, ELEMENTS>,
{
    each::<K, BYTES, ELEMENTS>(blocks, target, out, encode::f16);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::is_x86_feature_detected as has;
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps,
    };

    use super::{Kernel, Target, each, encode};

    /// Whether the processor has what [`run`] is compiled for; std caches the answers.
    #[inline]
    pub(super) fn detected() -> bool {
        has!("avx2") && has!("f16c")
    }

    /// The same loop, where the compiler may use AVX2.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn run<K, const BYTES: usize, const ELEMENTS: usize>(
        blocks: &[u8],
        target: Target,
        out: &mut [u8],
    ) where
        K: Kernel<BYTES, ELEMENTS>,
    {
        each::<K, BYTES, ELEMENTS>(blocks, target, out, |values, place| f16(values, place));
    }

    /// [`encode::f16`] by the instruction for it, eight values at a time.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn f16(values: &[f32], out: &mut [[u8; 2]]) {
        let (runs, rest) = values.as_chunks::<8>();
        let (places, last) = out.as_chunks_mut::<8>();
        for (run, place) in runs.iter().zip(places) {
            // SAFETY: both are references to 32 and 16 bytes, and neither needs alignment.
            unsafe {
                let wide = _mm256_loadu_ps(run.as_ptr());
                let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                _mm_storeu_si128(place.as_mut_ptr().cast(), narrow);
            }
        }
        encode::f16(rest, last);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{can_decode, decode, float, iq, k, legacy, mx, ternary};
    use super::*;
    use crate::dtype::DType;

    /// Compares [`run`] with [`baseline`] on noise, ends that fill no vector included.
    fn compare<K, const B: usize, const E: usize>(dtype: DType)
    where
        K: Kernel<B, E>,
    {
        let block = dtype.block();
        let mut x = 0x2545_F491_4F6C_DD1D_u64 + dtype as u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 24) as u8
        })
        .take(block.bytes as usize * 517)
        .collect();
        for target in Target::ALL {
            let mut plain = vec![0; block.elements as usize * 517 * target.size()];
            let mut best = plain.clone();
            baseline::<K, B, E>(&bytes, target, &mut plain);
            run::<K, B, E>(&bytes, target, &mut best);
            let size = target.size();
            for (i, (a, b)) in plain.chunks(size).zip(best.chunks(size)).enumerate() {
                let same = a == b || is_nan(a, target) && is_nan(b, target);
                assert!(same, "{dtype} to {target:?}, element {i}: {a:02X?} and {b:02X?}");
            }
            if dtype != target.dtype() && dtype != DType::F64 {
                let mut public = vec![0; best.len()];
                assert_eq!(decode(dtype, &bytes, target, &mut public), Ok(()));
                assert!(public == best, "{dtype} is decoded by another kernel");
            }
        }
    }

    fn is_nan(value: &[u8], target: Target) -> bool {
        match *value {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).is_nan(),
            [a, b] => {
                let infinite = if target == Target::F16 { 0x7C00 } else { 0x7F80 };
                u16::from_le_bytes([a, b]) & 0x7FFF > infinite
            }
            _ => false,
        }
    }

    macro_rules! kernels {
        ($($test:ident: $($dtype:ident $kernel:path,)*;)*) => {
            $(#[test]
            fn $test() {
                $(compare::<$kernel, _, _>(DType::$dtype);)*
            })*

            const COMPARED: &[DType] = &[$($(DType::$dtype,)*)*];
        };
    }

    kernels! {
        floats_agree: F32 float::F32, F16 float::F16, BF16 float::Bf16, F64 float::F64,
            F64 float::F64ToOdd, F8_E4M3 float::E4m3, F8_E5M2 float::E5m2,
            F8_E8M0 float::E8m0, F8_E4M3FNUZ float::E4m3Fnuz, F8_E5M2FNUZ float::E5m2Fnuz,
            F6_E2M3 float::E2m3, F6_E3M2 float::E3m2, F4 float::E2m1,;
        legacy_types_agree: Q4_0 legacy::Q4_0, Q4_1 legacy::Q4_1, Q5_0 legacy::Q5_0,
            Q5_1 legacy::Q5_1, Q8_0 legacy::Q8_0, Q8_1 legacy::Q8_1, Q1_0 legacy::Q1_0,
            Q2_0 legacy::Q2_0,;
        k_types_agree: Q2_K k::Q2K, Q3_K k::Q3K, Q4_K k::Q4K, Q5_K k::Q5K, Q6_K k::Q6K,
            Q8_K k::Q8K,;
        iq_types_agree: IQ1_S iq::Iq1S, IQ1_M iq::Iq1M, IQ2_XXS iq::Iq2Xxs, IQ2_XS iq::Iq2Xs,
            IQ2_S iq::Iq2S, IQ3_XXS iq::Iq3Xxs, IQ3_S iq::Iq3S, IQ4_NL iq::Iq4Nl,
            IQ4_XS iq::Iq4Xs,;
        other_types_agree: TQ1_0 ternary::Tq1_0, TQ2_0 ternary::Tq2_0, MXFP4 mx::Mxfp4,
            NVFP4 mx::Nvfp4,;
    }

    #[test]
    fn every_type_is_compared() {
        for &dtype in DType::ALL.iter().filter(|d| can_decode(**d)) {
            assert!(COMPARED.contains(&dtype), "{dtype} stands in none of the lists above");
        }
    }
}
