//! FP4 codes (E2M1) under a small scale: MXFP4 with a power of two, NVFP4 with an E4M3.
//!
//! Fields stand as offset, bytes, meaning; the names are those of the structs in ggml's
//! `ggml-common.h`. Codes stand for twice their E2M1 value and the scale for half of its
//! own, so that codes are integers; code 8 is plain 0, there is no -0.

use super::kernel::{Kernel, Value, field, halves, scale};

/// Twice the E2M1 value of each nibble: 0 1 2 3 4 6 8 12, then the same below zero.
#[inline(always)]
fn doubled<const N: usize>(nibbles: [u8; N]) -> [i8; N] {
    nibbles.map(|nibble| {
        let m = (nibble & 7) as i8;
        // The three slopes of the format; each holds where it is the greatest.
        let value = m.max(2 * m - 4).max(4 * m - 16);
        if nibble & 8 == 0 { value } else { -value }
    })
}

/// MXFP4 (`block_mxfp4`, 17 bytes): `code * 2^(E - 128)`
///
/// E = 255 is 2^127 here, as in the reference, not the NaN of the OCP text.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 1 | e: E8M0 scale |
/// | 1 | 16 | qs: E2M1 codes in halves |
pub(super) struct Mxfp4;

impl Kernel<17, 32> for Mxfp4 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 17], values: &mut [V; 32]) {
        let e = u32::from(block[0]);
        // 2^-128 and 2^-127 are subnormal.
        let bits = if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 };
        scale(&doubled(halves(field(block, 1))), f32::from_bits(bits), values);
    }
}

/// NVFP4 (`block_nvfp4`, 36 bytes, 64 elements): `code * scale`
///
/// The F32 companion tensor of real models is not applied: it is not in the block.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 4 | d: unsigned E4M3 scale per 16 elements |
/// | 4 | 32 | qs: E2M1 codes, 8 bytes per 16 elements in halves |
pub(super) struct Nvfp4;

impl Kernel<36, 64> for Nvfp4 {
    #[inline(always)]
    fn decode<V: Value>(block: &[u8; 36], values: &mut [V; 64]) {
        let scales: &[u8; 4] = field(block, 0);
        let groups = block[4..].as_chunks::<8>().0;
        let values = values.as_chunks_mut::<16>().0;
        for ((values, bytes), code) in values.iter_mut().zip(groups).zip(scales) {
            let mut nibbles = [0; 16];
            for (j, byte) in bytes.iter().enumerate() {
                nibbles[j] = byte & 15;
                nibbles[j + 8] = byte >> 4;
            }
            scale(&doubled(nibbles), SCALES[usize::from(*code)], values);
        }
    }
}

/// Half the value of each unsigned E4M3: the top bit says nothing, 7F is 0.
static SCALES: [f32; 256] = {
    let mut scales = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let (e, m) = (code as u32 >> 3 & 15, code as u32 & 7);
        scales[code] = if code == 0x7F {
            0.0
        } else if e == 0 {
            m as f32 / 1024.0
        } else {
            f32::from_bits((e + 119) << 23 | m << 20)
        };
        code += 1;
    }
    scales
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_doubled_e2m1() {
        let codes: [u8; 16] = std::array::from_fn(|i| i as u8);
        let expected = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
        assert_eq!(doubled(codes), expected);
    }

    #[test]
    fn nvfp4_scales() {
        assert_eq!([0x00, 0x7F, 0x80].map(|c: usize| SCALES[c]), [0.0; 3]);
        assert_eq!([0x01, 0x07].map(|c: usize| SCALES[c]), [1.0 / 1024.0, 7.0 / 1024.0]);
        assert_eq!(
            [0x08, 0x38, 0x7E, 0xFF].map(|c: usize| SCALES[c]),
            [1.0 / 128.0, 0.5, 224.0, 240.0]
        );
    }

    #[test]
    fn mxfp4_scales_reach_from_subnormal_to_infinite() {
        let first = |e| {
            let mut block = [0x17; 17];
            block[0] = e;
            let mut values = [9.0; 32];
            Mxfp4::decode(&block, &mut values);
            [values[0], values[16]]
        };
        let least = f32::from_bits(0x0020_0000);
        assert_eq!(first(0), [12.0 * least, least]);
        assert_eq!(first(1)[1].to_bits(), 0x0040_0000);
        assert_eq!(first(128), [12.0, 1.0]);
        assert_eq!(first(255), [f32::INFINITY, f32::from_bits(0x7F00_0000)]);
    }
}
