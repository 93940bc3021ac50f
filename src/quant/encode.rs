//! F32 values to little-endian bytes of F16 or BF16, rounded to nearest even.
//!
//! Without branches, so that loops over them become vector code on any machine.

/// Writes `values` rounded to F16.
#[inline(always)]
pub(super) fn f16(values: &[f32], out: &mut [[u8; 2]]) {
    for (to, value) in out.iter_mut().zip(values) {
        *to = narrow_f16(*value).to_le_bytes();
    }
}

/// Writes `values` rounded to BF16.
#[inline(always)]
pub(super) fn bf16(values: &[f32], out: &mut [[u8; 2]]) {
    for (to, value) in out.iter_mut().zip(values) {
        *to = narrow_bf16(*value).to_le_bytes();
    }
}

/// The bits of the F16 nearest to `value`, ties to even; from 65520 on infinite. A NaN is
/// quiet and keeps the top of its payload, as F16C does it.
#[inline(always)]
pub(super) fn narrow_f16(value: f32) -> u16 {
    /// 2^-14, the smallest normal F16.
    const NORMAL: u32 = 0x3880_0000;
    /// 65520, half a step past the largest F16.
    const OVERFLOW: u32 = 0x477F_F000;
    let bits = value.to_bits();
    let magnitude = bits & 0x7FFF_FFFF;
    // The step of F32 at 0.5 is 2^-24, that of subnormal F16: the addition rounds for us.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let even = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_add(0xFFF + even).wrapping_sub(112 << 23) >> 13;
    let narrow = if magnitude < NORMAL { subnormal } else { normal };
    let narrow = if magnitude < OVERFLOW { narrow } else { 0x7C00 };
    let narrow = if magnitude <= 0x7F80_0000 { narrow } else { 0x7E00 | (magnitude >> 13) & 0x3FF };
    ((bits >> 16) & 0x8000 | narrow) as u16
}

/// The bits of the BF16 nearest to `value`, ties to even; NaN is `sign | 0x7FC0`.
#[inline(always)]
pub(super) fn narrow_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let even = (bits >> 16) & 1;
    let narrow = bits.wrapping_add(0x7FFF + even) >> 16;
    let nan = (bits >> 16) & 0x8000 | 0x7FC0;
    (if bits & 0x7FFF_FFFF <= 0x7F80_0000 { narrow } else { nan }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_rounds_to_nearest_even_at_every_edge() {
        for (from, to) in [
            (65504f32.to_bits(), 0x7BFF),
            (0x477F_EFFF, 0x7BFF),
            (0x477F_F000, 0x7C00),
            (0x7F7F_FFFF, 0x7C00),
            (0x7F80_0000, 0x7C00),
            (0xFF80_0000, 0xFC00),
            (0x3300_0000, 0x0000),
            (0x3300_0001, 0x0001),
            (0x3380_0000, 0x0001),
            (0x33C0_0000, 0x0002),
            (0x387F_C000, 0x03FF),
            (0x387F_E000, 0x0400),
            (0x3880_0000, 0x0400),
            (0x3F80_1000, 0x3C00),
            (0x3F80_3000, 0x3C02),
            (0xB300_0000, 0x8000),
            (0x8000_0000, 0x8000),
            (0x0000_0001, 0x0000),
            (0x7F80_0001, 0x7E00),
            (0xFFC1_2345, 0xFE09),
        ] {
            assert_eq!(narrow_f16(f32::from_bits(from)), to, "{from:08X}");
        }
    }

    #[test]
    fn bf16_rounds_to_nearest_even_at_every_edge() {
        for (from, to) in [
            (0x3F80_8000, 0x3F80),
            (0x3F81_8000, 0x3F82),
            (0x3F80_8001, 0x3F81),
            (0x3F80_7FFF, 0x3F80),
            (0x7F7F_7FFF, 0x7F7F),
            (0x7F7F_8000, 0x7F80),
            (0x7F7F_FFFF, 0x7F80),
            (0x7F80_0000, 0x7F80),
            (0xFF80_0000, 0xFF80),
            (0x0000_8000, 0x0000),
            (0x0001_8000, 0x0002),
            (0x8000_0001, 0x8000),
            (0x007F_FFFF, 0x0080),
            (0x7F80_0001, 0x7FC0),
            (0xFFFF_FFFF, 0xFFC0),
        ] {
            assert_eq!(narrow_bf16(f32::from_bits(from)), to, "{from:08X}");
        }
    }

    #[test]
    fn every_f16_survives_widening_and_narrowing() {
        for bits in 0..=u16::MAX {
            let back = narrow_f16(super::super::float::widen_f16(bits));
            if bits & 0x7FFF <= 0x7C00 {
                assert_eq!(back, bits);
            } else {
                assert_eq!(back, bits | 0x0200);
            }
        }
    }
}
