//! Decoding to F32, in bytes of F32: every type that has values, on one thread, in the cache.
//!
//! The floor is a copy of as many bytes. `cargo bench --bench decode` compares larger
//! pieces, the other targets and the reference.

use crate::files;
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use weightfs::dtype::DType;
use weightfs::quant::{self, Target};

const ELEMENTS: usize = 64 << 10;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Bytes(4 * ELEMENTS as u64));
    let mut out = vec![0; 4 * ELEMENTS];
    group.bench_function("copy", |bencher| {
        let from = vec![1; 4 * ELEMENTS];
        bencher.iter(|| black_box(&mut out).copy_from_slice(black_box(&from)));
    });
    for &dtype in DType::ALL.iter().filter(|dtype| quant::can_decode(**dtype)) {
        group.bench_function(BenchmarkId::from_parameter(dtype.name()), |bencher| {
            let bytes = dtype.nbytes(ELEMENTS as u64).expect("whole blocks");
            let blocks = files::noise(bytes as usize);
            bencher.iter(|| {
                quant::decode(dtype, black_box(&blocks), Target::F32, black_box(&mut out))
                    .expect("whole blocks");
            });
        });
    }
    group.finish();
}
