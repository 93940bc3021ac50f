//! Output rate of matrices that are shown transposed, read in order by one thread in requests
//! of 1 MiB, for some types, shapes and views.
//!
//! The floor is the same matrix as it is stored, decoded to the same type, timed in the same
//! round. The file is not sealed: every chunk is summed all the same.
//!
//! ```text
//! cargo bench --bench transposed
//! ```

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use weightfs::dtype::DType;
use weightfs::model::{ByteOrder, Extent, Format, Model, Shard, Tensor, elements};
use weightfs::naming::{ArchFacts, Catalog, MapSpec};
use weightfs::quant::Target;
use weightfs::scale::{Hints, Scales};
use weightfs::source::{IoMode, Source};
use weightfs::store::{Store, StoreOptions};
use weightfs::view::{self, Repr, Stock};

const ROUNDS: usize = 3;
/// As many as do not fit among what is kept.
const LAYERS: usize = 8;

fn main() {
    println!("type   shape          view  GB/s  plain  of plain");
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_K] {
        for shape in [[3072_u64, 768], [768, 3072], [6400, 1600]] {
            if !shape[1].is_multiple_of(dtype.block().elements) {
                continue;
            }
            for target in [Target::F32, Target::BF16] {
                let [plain, turned] = rates(dtype, shape, target);
                println!(
                    "{:6} {:13}  {:4} {turned:5.2}  {plain:5.2}  {:8.2}",
                    dtype.name(),
                    format!("{shape:?}"),
                    target.dtype().name(),
                    turned / plain
                );
            }
        }
    }
}

/// GB/s of the fastest round, as stored and transposed.
fn rates(dtype: DType, shape: [u64; 2], target: Target) -> [f64; 2] {
    let len = dtype.nbytes(elements(&shape)).expect("a small matrix");
    let tensors: Vec<Tensor> = (0..LAYERS)
        .map(|i| Tensor {
            name: format!("blk.{i}.ffn_up.weight").into_bytes().into(),
            dtype,
            shape: shape.to_vec().into(),
            extent: Extent { shard: 0, offset: i as u64 * len, len },
        })
        .collect();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    // No NaN, no infinity, whatever the type.
    let bytes: Vec<u8> = (0..len as usize * LAYERS).map(|i| (i * 31 % 61) as u8).collect();
    file.write_all(&bytes).expect("room for it");
    let model = Arc::new(Model {
        format: Format::Gguf,
        format_version: 3,
        byte_order: ByteOrder::Little,
        architecture: Some("gpt2".into()),
        name: None,
        metadata: Vec::new(),
        shards: vec![Shard {
            file: (*b"m.gguf").into(),
            len: bytes.len() as u64,
            data_start: 0,
            tensor_infos: 0,
        }],
        tensors,
        warnings: Vec::new(),
    });
    let facts = ArchFacts { architecture: Some("gpt2".into()), ..ArchFacts::default() };
    let source = Source::open(file.path(), IoMode::Mmap).expect("the file");
    let store = Store::new(Arc::clone(&model), vec![source], None, StoreOptions::default());
    let scales = Scales::build(&model, &Hints::new(None, None), &|_, _| false);
    let stock = Stock { model: &model, scales: &scales };
    let catalogs = [&[][..], &[MapSpec::Hf]]
        .map(|maps| Catalog::build(&model, &facts, maps).expect("names of gpt2"));
    let mut best = [f64::INFINITY; 2];
    let mut out = vec![0; 1 << 20];
    for _ in 0..ROUNDS {
        for (best, catalog) in best.iter_mut().zip(&catalogs) {
            let start = Instant::now();
            for index in 0..catalog.len(&model) {
                let mounted = catalog.get(&model, index);
                let content =
                    view::bin(stock, &mounted, Repr::Float(target)).expect("a float tensor");
                for from in (0..content.len()).step_by(out.len()) {
                    content.read(&store, from, &mut out).expect("nothing is damaged");
                }
            }
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    let shown = elements(&shape) as usize * LAYERS * target.size();
    best.map(|seconds| shown as f64 / 1e9 / seconds)
}
