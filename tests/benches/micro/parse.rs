//! Reading headers: time per tensor, in both formats, and what a vocabulary adds.

use crate::files;
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use weightfs::format::{Limits, gguf, safetensors};

const COUNTS: [usize; 3] = [1_000, 10_000, 100_000];

pub(crate) fn bench(criterion: &mut Criterion) {
    let limits = Limits::default();
    let mut group = criterion.benchmark_group("parse");
    for count in COUNTS {
        group.throughput(Throughput::Elements(count as u64));
        group.bench_with_input(BenchmarkId::new("gguf", count), &count, |bencher, &count| {
            let file = files::gguf(count, 0);
            bencher.iter(|| gguf::parse(black_box(&file), &limits).expect("a sound file"));
        });
        group.bench_with_input(
            BenchmarkId::new("safetensors", count),
            &count,
            |bencher, &count| {
                let file = files::safetensors(count);
                bencher
                    .iter(|| safetensors::parse(black_box(&file), &limits).expect("a sound file"));
            },
        );
    }
    let tokens = 262_144;
    group.throughput(Throughput::Elements(tokens as u64));
    group.bench_function("gguf, 262144 tokens", |bencher| {
        let file = files::gguf(1, tokens);
        bencher.iter(|| gguf::parse(black_box(&file), &limits).expect("a sound file"));
    });
    group.finish();
}
