//! Decoding against the reference: golden blocks made by PyPI `gguf`, `ml_dtypes` and numpy
//! (`scripts/make-golden-quant`), and a plain decoder written element by element from the
//! format's formulas, in F64 with one rounding at the end.
//!
//! `WEIGHTFS_QUANT_BLOCKS=1000000 cargo test --release --test quant` checks that many random
//! blocks of each type.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use weightfs::dtype::{DType, Kind};
use weightfs::quant::{self, Target};

fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quant").join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn decode(dtype: DType, blocks: &[u8], target: Target) -> Vec<u8> {
    let elements = blocks.len() / dtype.block().bytes as usize * dtype.block().elements as usize;
    let mut out = vec![0xAA; elements * target.size()];
    quant::decode(dtype, blocks, target, &mut out).unwrap();
    out
}

/// SHA-256 of the codes, any NaN as the quiet one without sign and payload for F32, without
/// payload for the others: the form in which the golden digests were made.
fn digest(mut bytes: Vec<u8>, target: Target) -> String {
    match target {
        Target::F32 => {
            for value in bytes.as_chunks_mut::<4>().0 {
                if f32::from_le_bytes(*value).is_nan() {
                    *value = 0x7FC0_0000u32.to_le_bytes();
                }
            }
        }
        Target::F16 | Target::BF16 => {
            let (infinite, nan) =
                if target == Target::F16 { (0x7C00, 0x7E00u16) } else { (0x7F80, 0x7FC0) };
            for value in bytes.as_chunks_mut::<2>().0 {
                if u16::from_le_bytes(*value) & 0x7FFF > infinite {
                    *value = nan.to_le_bytes();
                }
            }
        }
    }
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn every_type_decodes_as_the_reference_does() {
    let cases = String::from_utf8(golden("cases.txt")).unwrap();
    let mut seen = Vec::new();
    for line in cases.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, source, elements, f32, f16, bf16] = words[..] else { panic!("{line}") };
        let dtype = DType::from_name(name).unwrap();
        let blocks = match source {
            "all8" => (0..=u8::MAX).collect(),
            "all16" => (0..=u16::MAX).flat_map(u16::to_le_bytes).collect(),
            file => golden(file),
        };
        for (target, expected) in [(Target::F32, f32), (Target::F16, f16), (Target::BF16, bf16)] {
            let out = decode(dtype, &blocks, target);
            assert_eq!(out.len(), elements.parse::<usize>().unwrap() * target.size(), "{name}");
            assert_eq!(digest(out, target), expected, "{name} to {target:?}");
        }
        seen.push(dtype);
    }
    for &dtype in DType::ALL.iter().filter(|d| quant::can_decode(**d)) {
        assert!(seen.contains(&dtype), "{dtype} has no golden blocks");
    }
}

/// Deterministic noise (SplitMix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The grids, as the reference package spreads them: rows of small integers.
struct Grids(Vec<u8>);

impl Grids {
    const G2XXS: usize = 0;
    const G2XS: usize = Self::G2XXS + 256 * 8;
    const G2S: usize = Self::G2XS + 512 * 8;
    const G3XXS: usize = Self::G2S + 1024 * 8;
    const G3S: usize = Self::G3XXS + 256 * 4;
    const G1: usize = Self::G3S + 512 * 4;

    fn at(&self, grid: usize, row: usize, width: usize, column: usize) -> f64 {
        f64::from(self.0[grid + row * width + column] as i8)
    }
}

/// An IEEE-like number of `e` exponent and `m` mantissa bits under a sign, never special.
fn small(code: u32, e: u32, m: u32, bias: i32) -> f64 {
    let exponent = ((code >> m) & ((1 << e) - 1)) as i32;
    let mantissa = f64::from(code & ((1 << m) - 1)) / f64::from(1 << m);
    let value = if exponent == 0 {
        mantissa * 2f64.powi(1 - bias)
    } else {
        (1.0 + mantissa) * 2f64.powi(exponent - bias)
    };
    if code >> (e + m) & 1 == 1 { -value } else { value }
}

fn half(bits: u16) -> f64 {
    match (bits & 0x7FFF, bits & 0x8000 != 0) {
        (0x7C00, false) => f64::INFINITY,
        (0x7C00, true) => f64::NEG_INFINITY,
        (0x7C01.., _) => f64::NAN,
        _ => small(u32::from(bits), 5, 10, 15),
    }
}

/// Twice the E2M1 values, where -0 is 0.
const FP4: [f64; 16] = [0., 1., 2., 3., 4., 6., 8., 12., 0., -1., -2., -3., -4., -6., -8., -12.];
const IQ4: [f64; 16] =
    [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];

/// Element `e` of block `b`, exactly or with the last step rounded in F64.
fn plain(dtype: DType, b: &[u8], e: usize, grids: &Grids) -> f64 {
    let f16 = |k: usize| half(u16::from_le_bytes([b[k], b[k + 1]]));
    let u16 = |k: usize| usize::from(u16::from_le_bytes([b[k], b[k + 1]]));
    let u32 = |k: usize| u32::from_le_bytes([b[k], b[k + 1], b[k + 2], b[k + 3]]) as usize;
    let u = |k: usize| usize::from(b[k]);
    let n = |value: usize| value as f64;
    let nib = |o: usize| {
        if e < 16 { u(o + e) & 15 } else { u(o + e - 16) >> 4 }
    };
    let l = e % 32;
    let q2 = |o: usize| (u(o + 32 * (e / 128) + l) >> (2 * (e / 32 % 4))) & 3;
    let pair = |o: usize| {
        let (s, b) = (|k: usize| u(o + k), e / 32);
        if b < 4 {
            (n(s(b) & 63), n(s(b + 4) & 63))
        } else {
            (n(s(b + 4) & 15 | s(b - 4) >> 6 << 4), n(s(b + 4) >> 4 | s(b) >> 6 << 4))
        }
    };
    let (g, o, j) = (e / 32, e / 8 % 4, e % 8);
    let sign = |bits: usize| if bits >> j & 1 == 1 { -1.0 } else { 1.0 };
    let even = |bits: usize| {
        let bits = bits & 127;
        sign(bits | (bits.count_ones() as usize & 1) << 7)
    };
    match dtype {
        DType::F32 => f64::from(f32::from_le_bytes(b[..4].try_into().unwrap())),
        DType::F64 => f64::from_le_bytes(b[..8].try_into().unwrap()),
        DType::F16 => f16(0),
        DType::BF16 => f64::from(f32::from_bits((u16(0) as u32) << 16)),
        DType::F8_E4M3 if b[0] & 0x7F == 0x7F => f64::NAN,
        DType::F8_E4M3 => small(b[0].into(), 4, 3, 7),
        DType::F8_E5M2 => half(u16::from(b[0]) << 8),
        DType::F8_E4M3FNUZ | DType::F8_E5M2FNUZ if b[0] == 0x80 => f64::NAN,
        DType::F8_E4M3FNUZ => small(b[0].into(), 4, 3, 8),
        DType::F8_E5M2FNUZ => small(b[0].into(), 5, 2, 16),
        DType::F8_E8M0 if b[0] == 0xFF => f64::NAN,
        DType::F8_E8M0 => 2f64.powi(i32::from(b[0]) - 127),
        DType::F6_E2M3 | DType::F6_E3M2 => {
            let code = u32::from_le_bytes([b[0], b[1], b[2], 0]) >> (6 * e) & 63;
            if dtype == DType::F6_E2M3 { small(code, 2, 3, 1) } else { small(code, 3, 2, 3) }
        }
        DType::F4 => small(u32::from(b[0]) >> (4 * e) & 15, 2, 1, 1),
        DType::Q4_0 => (n(nib(2)) - 8.0) * f16(0),
        DType::Q4_1 => n(nib(4)) * f16(0) + f16(2),
        DType::Q5_0 => (n(nib(6) | (u32(2) >> e & 1) << 4) - 16.0) * f16(0),
        DType::Q5_1 => n(nib(8) | (u32(4) >> e & 1) << 4) * f16(0) + f16(2),
        DType::Q8_0 => f64::from(b[2 + e] as i8) * f16(0),
        DType::Q8_1 => f64::from(b[4 + e] as i8) * f16(0),
        DType::IQ4_NL => f16(0) * IQ4[nib(2)],
        DType::MXFP4 => FP4[nib(1)] * 2f64.powi(i32::from(b[0]) - 128),
        DType::Q1_0 if u(2 + e / 8) >> (e % 8) & 1 == 1 => f16(0),
        DType::Q1_0 => -f16(0),
        DType::Q2_0 => (n(u(2 + e / 4) >> (2 * (e % 4)) & 3) - 1.0) * f16(0),
        DType::Q2_K => f16(80) * n(u(e / 16) & 15) * n(q2(16)) - f16(82) * n(u(e / 16) >> 4),
        DType::Q3_K => {
            let k = e / 16;
            let low = if k < 8 { u(96 + k) & 15 } else { u(96 + k - 8) >> 4 };
            let high = u(104 + k % 4) >> (2 * (k / 4)) & 3;
            let clear = u(l) >> (e / 32) & 1 == 0;
            f16(108) * (n(low | high << 4) - 32.0) * (n(q2(32)) - if clear { 4.0 } else { 0.0 })
        }
        DType::Q4_K | DType::Q5_K => {
            let (scale, least) = pair(4);
            let from = if dtype == DType::Q4_K { 16 } else { 48 };
            let byte = u(from + 32 * (e / 64) + l);
            let mut code = if e & 32 == 0 { byte & 15 } else { byte >> 4 };
            if dtype == DType::Q5_K {
                code += 16 * (u(16 + l) >> (e / 32) & 1);
            }
            f16(0) * scale * n(code) - f16(2) * least
        }
        DType::Q6_K => {
            let (half, k) = (e / 128, e / 32 % 4);
            let byte = u(64 * half + l + 32 * (k % 2));
            let low = if k < 2 { byte & 15 } else { byte >> 4 };
            let high = u(128 + 32 * half + l) >> (2 * k) & 3;
            f16(208) * f64::from(b[192 + e / 16] as i8) * (n(low | high << 4) - 32.0)
        }
        DType::Q8_K => {
            f64::from(f32::from_le_bytes(b[..4].try_into().unwrap())) * f64::from(b[4 + e] as i8)
        }
        DType::TQ1_0 => {
            let (digit, byte) = match e {
                ..160 => (e / 32, e % 32),
                160..240 => ((e - 160) / 16, 32 + (e - 160) % 16),
                _ => ((e - 240) / 4, 48 + (e - 240) % 4),
            };
            let left = u(byte) * 3usize.pow(digit as u32) % 256;
            (n(left * 3 / 256) - 1.0) * f16(52)
        }
        DType::TQ2_0 => (n(q2(0)) - 1.0) * f16(64),
        DType::IQ2_XXS => {
            let w = u32(6 + 8 * g);
            let db = f16(0) * (0.5 + n(w >> 28)) * 0.25;
            db * grids.at(Grids::G2XXS, u(2 + 8 * g + o), 8, j) * even(w >> (7 * o))
        }
        DType::IQ2_XS => {
            let q = u16(2 + 2 * (4 * g + o));
            let s = u(66 + g) >> (4 * (o / 2)) & 15;
            let db = f16(0) * (0.5 + n(s)) * 0.25;
            db * grids.at(Grids::G2XS, q & 511, 8, j) * even(q >> 9)
        }
        DType::IQ2_S => {
            let row = u(2 + 4 * g + o) | (u(66 + g) >> (2 * o) & 3) << 8;
            let s = u(74 + g) >> (4 * (o / 2)) & 15;
            let db = f16(0) * (0.5 + n(s)) * 0.25;
            db * grids.at(Grids::G2S, row, 8, j) * sign(u(34 + 4 * g + o))
        }
        DType::IQ3_XXS => {
            let w = u32(66 + 4 * g);
            let db = f16(0) * (0.5 + n(w >> 28)) * 0.5;
            let row = u(2 + 8 * g + 2 * o + j / 4);
            db * grids.at(Grids::G3XXS, row, 4, j % 4) * even(w >> (7 * o))
        }
        DType::IQ3_S => {
            let h = j / 4;
            let row = u(2 + 8 * g + 2 * o + h) | (u(66 + g) >> (2 * o + h) & 1) << 8;
            let s = u(106 + g / 2) >> (4 * (g % 2)) & 15;
            let db = f16(0) * (1.0 + 2.0 * n(s));
            db * grids.at(Grids::G3S, row, 4, j % 4) * sign(u(74 + 4 * g + o))
        }
        DType::IQ1_S => {
            let high = u16(34 + 2 * g);
            let dl = f16(0) * n(2 * (high >> 12 & 7) + 1);
            let row = u(2 + 4 * g + o) | (high >> (3 * o) & 7) << 8;
            let delta = if high & 0x8000 != 0 { -0.125 } else { 0.125 };
            dl * (grids.at(Grids::G1, row, 8, j) + delta)
        }
        DType::IQ1_M => {
            let s = [48, 50, 52, 54].map(u16);
            let d = s[0] >> 12 | s[1] >> 8 & 0xF0 | s[2] >> 4 & 0xF00 | s[3] & 0xF000;
            let scale = s[g / 2] >> (6 * (g % 2) + 3 * (o / 2)) & 7;
            let nibble = u(32 + 2 * g + o / 2) >> (4 * (o % 2)) & 15;
            let row = u(4 * g + o) | (nibble & 7) << 8;
            let delta = if nibble & 8 != 0 { -0.125 } else { 0.125 };
            half(d as u16) * n(2 * scale + 1) * (grids.at(Grids::G1, row, 8, j) + delta)
        }
        DType::IQ4_XS => {
            let byte = u(8 + 16 * g + e % 16);
            let code = if e % 32 < 16 { byte & 15 } else { byte >> 4 };
            let scale = u(4 + g / 2) >> (4 * (g % 2)) & 15 | (u16(2) >> (2 * g) & 3) << 4;
            f16(0) * (n(scale) - 32.0) * IQ4[code]
        }
        DType::NVFP4 => {
            let (s, r) = (e / 16, e % 16);
            let byte = u(4 + 8 * s + r % 8);
            let code = if r < 8 { byte & 15 } else { byte >> 4 };
            let x = u32::from(b[s]);
            let scale = if x == 0x7F { 0.0 } else { small(x & 0x7F, 4, 3, 7) / 2.0 };
            FP4[code] * scale
        }
        _ => unreachable!("{dtype} has no values"),
    }
}

/// Rounds once to nearest even, by comparing with both neighbours: the bits of a float with
/// `m` mantissa bits whose infinity is `infinite`, found through `value_of`.
fn nearest(value: f64, infinite: u16, value_of: impl Fn(u16) -> f64, step_past: f64) -> u16 {
    let (sign, size) = (if value.is_sign_negative() { 0x8000 } else { 0 }, value.abs());
    let (mut below, mut above) = (0u16, infinite);
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if value_of(middle) <= size { below = middle } else { above = middle }
    }
    let top = if above == infinite { step_past } else { value_of(above) };
    // Exact: neighbours share an exponent or are a factor of two apart.
    let (down, up) = (size - value_of(below), top - size);
    let code = if down < up || (down == up && below % 2 == 0) { below } else { above };
    sign | code
}

fn check(dtype: DType, block: &[u8], grids: &Grids) {
    let elements = dtype.block().elements as usize;
    let size = dtype.block().bytes as usize;
    let all = decode(dtype, block, Target::F32);
    let found = all.as_chunks::<4>().0;
    let f16 = decode(dtype, block, Target::F16);
    let bf16 = decode(dtype, block, Target::BF16);
    let (f16, bf16) = (f16.as_chunks::<2>().0, bf16.as_chunks::<2>().0);
    for (i, found) in found.iter().enumerate() {
        let bytes = &block[i / elements * size..][..size];
        let exact = plain(dtype, bytes, i % elements, grids);
        let (expected, found) = (exact as f32, f32::from_le_bytes(*found));
        let same = expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
        assert!(same, "{dtype}, element {i} of {bytes:02X?}: {expected:e}, decoded {found:e}");
        // The narrow forms are of the F32 value, but for F64.
        let value = if dtype == DType::F64 { exact } else { f64::from(found) };
        let (f16, bf16) = (u16::from_le_bytes(f16[i]), u16::from_le_bytes(bf16[i]));
        if value.is_nan() {
            assert!(f16 & 0x7FFF > 0x7C00 && bf16 & 0x7FFF > 0x7F80, "{dtype} NaN");
        } else if i % 8 == 0 {
            let brain = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
            assert_eq!(f16, nearest(value, 0x7C00, half, 65536.0), "{dtype} {value:e} to F16");
            let step_past = 2f64.powi(128);
            assert_eq!(bf16, nearest(value, 0x7F80, brain, step_past), "{dtype} {value:e} to BF16");
        }
    }
}

/// Offsets of the F16 scales, to draw most of them finite: one in 32 would not be, and hide
/// what else may be wrong in its block.
fn scales(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::Q6_K => &[208],
        DType::TQ1_0 => &[52],
        DType::TQ2_0 => &[64],
        DType::IQ1_M => &[54],
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => &[0, 2],
        _ if dtype.kind() == Kind::Float => &[],
        DType::Q8_K | DType::MXFP4 | DType::NVFP4 => &[],
        _ => &[0],
    }
}

#[test]
fn random_blocks_decode_as_the_formulas_say() {
    let count = std::env::var("WEIGHTFS_QUANT_BLOCKS").map_or(400, |n| n.parse().unwrap());
    let grids = Grids(golden("grids.bin"));
    assert_eq!(grids.0.len(), Grids::G1 + 2048 * 8);
    let types: Vec<DType> = DType::ALL.iter().copied().filter(|d| quant::can_decode(*d)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        while let Some(&dtype) = types.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        {
            let mut noise = Noise(dtype as u64);
            let size = dtype.block().bytes as usize;
            // Eight at a time, so that loops over blocks are met as well.
            let mut blocks = vec![0; 8 * size];
            for _ in 0..usize::div_ceil(count, 8) {
                noise.fill(&mut blocks);
                for block in blocks.chunks_mut(size) {
                    if noise.next() & 15 != 0 {
                        scales(dtype).iter().for_each(|at| block[at + 1] &= 0xBF);
                    }
                }
                check(dtype, &blocks, &grids);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(work);
        }
    });
}
