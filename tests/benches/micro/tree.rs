//! Names and inodes of a mount: looking one up, missing one, its attributes, a listing.

use crate::files;
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use weightfs::fs::{Parts, WeightFs};
use weightfs::layout::{Dir, Ino, Node};
use weightfs::load;
use weightfs::naming::Catalog;
use weightfs::scale::{Hints, Scales};
use weightfs::source::IoMode;
use weightfs::store::{Store, StoreOptions, Verify};
use weightfs::view::Repr;

/// The file system of an unsealed model.
fn plan(file: &Path) -> WeightFs {
    let loaded = load::open(file, IoMode::Mmap).expect("a sound file");
    let model = Arc::new(loaded.model);
    let scales = Scales::build(&model, &Hints::new(None, None), &|_, _| false);
    let verify = Verify::Always;
    let options = StoreOptions { verify, ..StoreOptions::default() };
    let store = Store::new(Arc::clone(&model), loaded.sources, None, options);
    let catalog = Catalog::identity();
    let parts =
        Parts { model, catalog, store, verify, warnings: Vec::new(), scales, log: None, hf: None };
    WeightFs::new(parts).expect("names that differ")
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree");
    let tensors = Node::Dir(Dir::Tensors(Repr::Stored)).ino();
    for count in [1_000, 100_000] {
        let file = files::on_disk(&files::gguf(count, 0));
        let fs = plan(file.path());
        let id = |what| BenchmarkId::new(what, count);
        group.throughput(Throughput::Elements(1));
        group.bench_function(id("lookup"), |bencher| {
            let names: Vec<String> = (0..count).map(|n| files::name(n) + ".bin").collect();
            let mut at = 0;
            bencher.iter(|| {
                at = (at + 7919) % count;
                fs.lookup(tensors, black_box(names[at].as_bytes())).expect("it is there")
            });
        });
        group.bench_function(id("lookup of what is not there"), |bencher| {
            bencher.iter(|| fs.lookup(tensors, black_box(b"blk.1.absent.weight.bin")));
        });
        group.bench_function(id("attributes"), |bencher| {
            let node = fs.lookup(tensors, (files::name(1) + ".bin").as_bytes());
            let ino = node.expect("it is there").ino();
            bencher.iter(|| {
                let node = fs.node(black_box(ino)).expect("it is there");
                fs.attr(node).expect("its size is known")
            });
        });
        group.throughput(Throughput::Elements(1000));
        group.bench_function(id("a listing of 1000"), |bencher| {
            bencher.iter(|| {
                let mut bytes = 0;
                let mut left = 1000;
                fs.list(tensors, 2, &mut |_, _, name| {
                    bytes += name.len();
                    left -= 1;
                    left > 0
                })
                .expect("a directory");
                bytes
            });
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("mount");
    group.sample_size(10);
    for count in [1_000, 100_000] {
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("load and plan", count), |bencher| {
            let file = files::on_disk(&files::gguf(count, 0));
            bencher.iter(|| plan(file.path()).node(Ino::ROOT).expect("there is a root"));
        });
    }
    group.finish();
}
