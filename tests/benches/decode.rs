//! Output rate of decoding 4 Mi elements to F32 (and F16, BF16) on one thread, for every type.
//!
//! The floor is a `memcpy` of the same output, timed in the same round, so that a noisy
//! machine slows both. With `WEIGHTFS_BENCH_PYTHON` naming a Python that has `gguf`, the
//! reference's numpy decoder is timed next to each type:
//!
//! ```text
//! cargo bench --bench decode              all types
//! cargo bench --bench decode -- Q4_K Q6_K
//! ```

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use weightfs::dtype::DType;
use weightfs::quant::{self, Target};

const ELEMENTS: usize = 4 << 20;
const ROUNDS: usize = 9;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let python = std::env::var("WEIGHTFS_BENCH_PYTHON").ok();
    println!("type          f32 GB/s  of memcpy  f16 GB/s  bf16 GB/s  gguf GB/s  f32 to gguf");
    for &dtype in DType::ALL.iter().filter(|d| quant::can_decode(**d)) {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == dtype.name()) {
            continue;
        }
        let [f32, memcpy, f16, bf16] = rates(dtype);
        let (gguf, ratio) = match python.as_ref().and_then(|p| gguf_rate(p, dtype)) {
            Some(rate) => (format!("{rate:.2}"), format!("{:.1}", f32 / rate)),
            None => ("-".into(), "-".into()),
        };
        let share = f32 / memcpy;
        println!(
            "{:12} {f32:9.2} {share:10.2} {f16:9.2} {bf16:10.2} {gguf:>10} {ratio:>12}",
            dtype.name()
        );
    }
}

/// GB/s of output of the fastest round: to F32, a copy as long as that, to F16, to BF16.
fn rates(dtype: DType) -> [f64; 4] {
    let block = dtype.block();
    let blocks = noise(ELEMENTS / block.elements as usize * block.bytes as usize);
    let source = vec![1u8; ELEMENTS * 4];
    // From a cache line on, as a reply's buffer starts: 32-byte stores that cross lines cost a
    // tenth.
    let mut space = vec![1u8; ELEMENTS * 4 + 64];
    let start = space.as_ptr().align_offset(64);
    let out = &mut space[start..start + ELEMENTS * 4];
    let mut best = [f64::INFINITY; 4];
    for _ in 0..ROUNDS {
        best[0] = best[0].min(seconds(|| run(dtype, &blocks, Target::F32, out)));
        best[1] = best[1].min(seconds(|| out.copy_from_slice(black_box(&source))));
        let half = &mut out[..ELEMENTS * 2];
        best[2] = best[2].min(seconds(|| run(dtype, &blocks, Target::F16, half)));
        best[3] = best[3].min(seconds(|| run(dtype, &blocks, Target::BF16, half)));
    }
    let bytes = [4, 4, 2, 2].map(|size| (size * ELEMENTS) as f64 / 1e9);
    std::array::from_fn(|i| bytes[i] / best[i])
}

fn run(dtype: DType, blocks: &[u8], target: Target, out: &mut [u8]) {
    quant::decode(dtype, black_box(blocks), target, black_box(out)).expect("whole blocks");
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        chunk.copy_from_slice(&x.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// GB/s of F32 that `gguf.quants.dequantize` gives, where it knows the type. F32 it only
/// looks at.
fn gguf_rate(python: &str, dtype: DType) -> Option<f64> {
    if dtype == DType::F32 {
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/make-golden-quant");
    let output = Command::new(python)
        .args([script, "time", dtype.name(), &ELEMENTS.to_string()])
        .output()
        .ok()?;
    let seconds: f64 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    Some((ELEMENTS * 4) as f64 / 1e9 / seconds)
}
