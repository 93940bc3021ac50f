//! Models for the tests of this room: names, types and shapes; the bytes follow each other.

use super::{ArchFacts, Catalog, MapError, MapSpec};
use crate::dtype::DType;
use crate::model::{ByteOrder, Extent, Format, Model, Shard, Tensor, elements};
use std::io::Write;

pub(super) const DATA_START: u64 = 1000;

/// A model with these tensors.
pub(super) fn model(format: Format, tensors: &[(&[u8], DType, &[u64])]) -> Model {
    let mut offset = DATA_START;
    let tensors: Vec<Tensor> = tensors
        .iter()
        .map(|(name, dtype, shape)| {
            let len = dtype.nbytes(elements(shape)).unwrap();
            let extent = Extent { shard: 0, offset, len };
            offset += len;
            Tensor { name: (*name).into(), dtype: *dtype, shape: (*shape).into(), extent }
        })
        .collect();
    Model {
        format,
        format_version: 3,
        byte_order: ByteOrder::Little,
        architecture: None,
        name: None,
        metadata: Vec::new(),
        shards: vec![Shard {
            file: b"m.gguf".as_slice().into(),
            len: offset,
            data_start: DATA_START,
            tensor_infos: 24,
        }],
        tensors,
        warnings: Vec::new(),
    }
}

/// A GGUF with F32 tensors.
pub(super) fn floats(tensors: &[(&str, &[u64])]) -> Model {
    let tensors: Vec<_> = tensors.iter().map(|(n, s)| (n.as_bytes(), DType::F32, *s)).collect();
    model(Format::Gguf, &tensors)
}

/// F32 vectors with these names.
pub(super) fn named(format: Format, names: &[&str]) -> Model {
    let tensors: Vec<(&[u8], DType, &[u64])> =
        names.iter().map(|n| (n.as_bytes(), DType::F32, [4].as_slice())).collect();
    model(format, &tensors)
}

/// Mounted names, in order.
pub(super) fn names(model: &Model, catalog: &Catalog) -> Vec<String> {
    (0..catalog.len(model))
        .map(|i| String::from_utf8_lossy(catalog.get(model, i).name).into_owned())
        .collect()
}

/// The catalog by map files with these texts, one stage each.
pub(super) fn by_files(model: &Model, texts: &[&str]) -> Result<Catalog, MapError> {
    let files: Vec<_> = texts
        .iter()
        .map(|text| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file
        })
        .collect();
    let stages: Vec<MapSpec> = files.iter().map(|f| MapSpec::File(f.path().into())).collect();
    Catalog::build(model, &ArchFacts::default(), &stages)
}

/// Asserts that four times as much takes about four times as long, not sixteen times: processor
/// time of this thread, the least of three, so that other work on the machine does not count.
pub(super) fn assert_not_quadratic(few: usize, work: impl Fn(usize)) {
    use nix::time::{ClockId, clock_gettime};
    use std::time::Duration;
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let took = |count: usize| {
        let once = |_| {
            let begun = now();
            work(count);
            now() - begun
        };
        (0..3).map(once).min().unwrap()
    };
    let (few, many) = (took(few), took(4 * few));
    assert!(many < few * 10, "{few:?}, and of four times as much {many:?}");
}

#[test]
#[should_panic(expected = "four times as much")]
fn what_grows_with_the_square_is_seen() {
    assert_not_quadratic(300, |count| {
        for step in 0..count * count {
            std::hint::black_box(step);
        }
    });
}
