//! What a check costs: the CRC of a chunk alone, and reads of the store with and without it.
//!
//! The floor of a read is the copy that it makes: `verify=off` from the same mapping.

use crate::files;
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use std::sync::Arc;
use weightfs::load;
use weightfs::source::IoMode;
use weightfs::store::{Store, StoreOptions, Verify};

const BYTES: usize = 16 << 20;
const READS: [usize; 4] = [4 << 10, 64 << 10, 128 << 10, 1 << 20];

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crc32");
    for len in [4 << 10, 64 << 10, 1 << 20] {
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::from_parameter(len), &len, |bencher, &len| {
            let chunk = files::noise(len);
            bencher.iter(|| crc32fast::hash(black_box(&chunk)));
        });
    }
    group.finish();

    let file = files::on_disk(&files::one_tensor(BYTES));
    let mut group = criterion.benchmark_group("store");
    for verify in [Verify::Always, Verify::Once, Verify::Off] {
        let loaded = load::open(file.path(), IoMode::Mmap).expect("a sound file");
        let options = StoreOptions { verify, ..StoreOptions::default() };
        let store = Store::new(Arc::new(loaded.model), loaded.sources, None, options);
        let extent = store.model().tensors[0].extent;
        for len in READS {
            group.throughput(Throughput::Bytes(len as u64));
            let name = format!("read, verify={}", verify.name());
            group.bench_with_input(BenchmarkId::new(name, len), &len, |bencher, &len| {
                let mut out = vec![0; len];
                let mut at = 0;
                bencher.iter(|| {
                    store.read(extent, at as u64, black_box(&mut out)).expect("good bytes");
                    // Far steps: small reads that stay in a chunk would find it in the cache.
                    at = (at + (5 << 20) + len) % (BYTES - len);
                });
            });
        }
    }
    group.finish();
}
