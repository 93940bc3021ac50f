//! What is worked out for a read before any byte is touched: contents, blocks, chunks.

use crate::files;
use criterion::{BenchmarkId, Criterion};
use std::hint::black_box;
use weightfs::dtype::DType;
use weightfs::load;
use weightfs::naming::Catalog;
use weightfs::quant::{Cover, Target};
use weightfs::scale::{Hints, Scales};
use weightfs::seal::{DEFAULT_CHUNK, Grid};
use weightfs::source::IoMode;
use weightfs::view::{self, Repr, Stock};

const TENSORS: usize = 100_000;

pub(crate) fn bench(criterion: &mut Criterion) {
    let file = files::on_disk(&files::gguf(TENSORS, 0));
    let loaded = load::open(file.path(), IoMode::Mmap).expect("a sound file");
    let model = loaded.model;
    let scales = Scales::build(&model, &Hints::new(None, None), &|_, _| false);
    let stock = Stock { model: &model, scales: &scales };
    let catalog = Catalog::identity();
    let mounted = catalog.get(&model, TENSORS / 2);

    let mut group = criterion.benchmark_group("planning");
    for (name, repr) in [("stored", Repr::Stored), ("bf16", Repr::Float(Target::BF16))] {
        group.bench_function(BenchmarkId::new("a .bin", name), |bencher| {
            bencher.iter(|| view::bin(stock, black_box(&mounted), repr).map(|c| c.len()));
        });
        group.bench_function(BenchmarkId::new("a .npy", name), |bencher| {
            bencher.iter(|| view::npy(stock, black_box(&mounted), repr).map(|c| c.len()));
        });
    }
    group.bench_function("blocks of a range", |bencher| {
        bencher.iter(|| Cover::new(DType::Q4_K, Target::F32, black_box(1_000_003..2_000_007)));
    });
    let grid = Grid::new(&model, DEFAULT_CHUNK);
    let place = model.tensors[TENSORS / 2].extent.offset;
    group.bench_function("the piece of an offset among 100000", |bencher| {
        bencher.iter(|| grid.pieces_from(0, black_box(place)).next());
    });
    group.bench_function("chunks of 100000 tensors", |bencher| {
        bencher.iter(|| Grid::new(black_box(&model), DEFAULT_CHUNK).chunks());
    });
    group.finish();
}
