//! A model as a file system without FUSE, and the laws of its files: a file has the size it
//! says, any range of it equals that slice of the whole, and a name leads to what its
//! directory lists.

use super::take::Take;
use std::path::Path;
use std::sync::Arc;
use weightfs::format::gguf::array::{ArrayReader, Item};
use weightfs::fs::{FsError, Handle, Hf, Parts, WeightFs};
use weightfs::hf::{self, meta::Meta};
use weightfs::layout::{FileKind, Ino, Node};
use weightfs::load::{self, Loaded};
use weightfs::model::{Array, Format, Model};
use weightfs::naming::{ArchFacts, Catalog, MapSpec};
use weightfs::scale::Hints;
use weightfs::source::IoMode;
use weightfs::store::{Store, StoreOptions, Verify};
use weightfs::view;

/// No file of a small input's mount is longer: decoded to F32, 1 bit of weight is 4 bytes.
const LONGEST_FILE: u64 = 4 << 20;

/// Opens the model at `path` as a mount with these maps would; `None` where it is refused.
pub(crate) fn mount(path: &Path, maps: &[MapSpec], verify: Verify) -> Option<WeightFs> {
    let Loaded { model, sources, .. } = load::open(path, IoMode::Pread).ok()?;
    let model = Arc::new(model);
    let options = StoreOptions { verify, ..StoreOptions::default() };
    let store = Store::new(Arc::clone(&model), sources, None, options);
    let facts = ArchFacts::read(&model, &|array| integers(&store, array));
    let catalog = Catalog::build(&model, &facts, maps).ok()?;
    let scales = view::scaled::recognise(&model, &catalog, &store, &Hints::default());
    let hf = (model.format == Format::Gguf && maps.contains(&MapSpec::Hf))
        .then(|| Hf { files: hf::plan(Meta::new(&model, &store)).files, dtype: None });
    let warnings = scales.warnings(&model);
    let parts = Parts { model, catalog, store, verify, warnings, scales, log: None, hf };
    WeightFs::new(parts).ok()
}

fn integers(store: &Store, array: &Array) -> Option<Vec<u64>> {
    let Array::Span { elem, count, extent, encoding } = array else { return None };
    let shard = store.shard(extent.shard as usize);
    let mut reader = ArrayReader::new(&shard, *elem, *count, *extent, *encoding);
    let mut numbers = Vec::new();
    while let Some(Item::Value(value)) = reader.next().ok()? {
        numbers.push(value.as_u64()?);
    }
    Some(numbers)
}

/// Reads the file at `path` as a model without a map: its metadata and descriptions.
pub(crate) fn walk_file(path: &Path) {
    let Some(fs) = mount(path, &[], Verify::Always) else { return };
    for name in [&b"metadata.json"[..], b"model.json"] {
        let node = fs.lookup(Ino::ROOT, name).unwrap();
        whole(&fs, node);
    }
    let metadata = fs.lookup(Ino::ROOT, b"metadata").unwrap();
    for (node, _) in entries(&fs, metadata).into_iter().take(8) {
        let text = whole(&fs, node);
        let half = text.len() / 2;
        range(&fs, node, &text, half, text.len());
    }
}

/// The entries of a directory.
fn entries(fs: &WeightFs, dir: Node) -> Vec<(Node, Vec<u8>)> {
    let mut all = Vec::new();
    fs.list(dir.ino(), 0, &mut |_, node, name| {
        all.push((node, name.to_vec()));
        true
    })
    .unwrap();
    all.retain(|(_, name)| *name != *b"." && *name != *b"..");
    all
}

fn leads_to(fs: &WeightFs, dir: Node, (node, name): &(Node, Vec<u8>)) {
    assert!(name.len() <= 255 && !name.contains(&b'/') && !name.contains(&0), "{name:?}");
    assert_eq!(fs.lookup(dir.ino(), name).unwrap(), *node, "{:?}", name.escape_ascii());
}

/// All of a file, in one read, at the size it says.
pub(crate) fn whole(fs: &WeightFs, node: Node) -> Vec<u8> {
    let size = fs.attr(node).unwrap().size;
    assert!(size <= LONGEST_FILE, "{node:?} has {size} bytes");
    let mut bytes = vec![0xA5; size as usize + 1];
    let read = fs.read(node.ino(), Handle(0), 0, &mut bytes).unwrap();
    assert_eq!(read as u64, size, "{node:?}");
    assert_eq!(bytes.pop(), Some(0xA5), "{node:?}: written past the end");
    bytes
}

/// A range is that slice of the whole.
pub(crate) fn range(fs: &WeightFs, node: Node, whole: &[u8], from: usize, len: usize) {
    let mut bytes = vec![0x5A; len];
    let read = fs.read(node.ino(), Handle(0), from as u64, &mut bytes).unwrap();
    let wanted = &whole[from.min(whole.len())..from.saturating_add(len).min(whole.len())];
    let bytes = &bytes[..read];
    if let Some(at) = (0..read.max(wanted.len())).find(|&at| bytes.get(at) != wanted.get(at)) {
        let near = |all: &[u8]| all[all.len().min(at.saturating_sub(8))..].to_vec();
        let [is, was] = [near(bytes), near(wanted)].map(|all| all[..all.len().min(16)].to_vec());
        panic!("{node:?} {from}+{len} of {}: byte {at}: {is:02x?} for {was:02x?}", whole.len());
    }
}

/// Whether the file may fail to be read: what is made of metadata that proves to be wrong.
fn may_fail(node: Node) -> bool {
    matches!(node, Node::Hf(_))
}

/// A few files and ranges of them, as `take` says.
pub(crate) fn some(fs: &WeightFs, take: &mut Take<'_>) {
    for _ in 0..3 {
        let mut node = fs.node(Ino::ROOT).unwrap();
        let mut depth = 0;
        while weightfs::layout::Layout::kind(node) == FileKind::Directory && depth < 4 {
            let all = entries(fs, node);
            if all.is_empty() {
                break;
            }
            let entry = &all[take.u8() as usize % all.len()];
            leads_to(fs, node, entry);
            node = entry.0;
            depth += 1;
        }
        let ranges = [(take.u16(), take.u8()), (take.u16(), take.u8())];
        file(fs, node, &ranges);
        if take.is_empty() {
            break;
        }
    }
}

/// Every file, and ranges of each at the ends and across the middle.
pub(crate) fn all(fs: &WeightFs) {
    let mut directories = vec![fs.node(Ino::ROOT).unwrap()];
    while let Some(dir) = directories.pop() {
        for entry in entries(fs, dir) {
            leads_to(fs, dir, &entry);
            let node = entry.0;
            match weightfs::layout::Layout::kind(node) {
                FileKind::Directory => directories.push(node),
                _ => file(fs, node, &[(0, 1), (1, 7), (0x55AA, 64), (0x7FFF, 255), (0xFFFF, 3)]),
            }
        }
    }
}

fn file(fs: &WeightFs, node: Node, ranges: &[(u16, u8)]) {
    match node {
        Node::Live(_) | Node::Dir(_) => return,
        Node::SourceName(_) => {
            let target = fs.read_link(node.ino()).unwrap();
            assert!(target.starts_with(b"../tensors/"));
            return;
        }
        _ => {}
    }
    if may_fail(node) && fs.attr(node).is_err() {
        return;
    }
    let whole = whole(fs, node);
    for &(place, len) in ranges {
        // Anywhere, and every so often past the end.
        let from = (whole.len() + 2) * usize::from(place) / 0xFFFF;
        range(fs, node, &whole, from, usize::from(len) * 17);
    }
    assert!(matches!(fs.lookup(node.ino(), b"x"), Err(FsError::NotDirectory | FsError::NotFound)));
}

/// What a catalog promises of each mounted tensor.
pub(crate) fn check_catalog(model: &Model, catalog: &Catalog) {
    let mut names = Vec::new();
    for index in 0..catalog.len(model) {
        let mounted = catalog.get(model, index);
        let stored = &model.tensors[mounted.source as usize];
        let elements = weightfs::model::elements(mounted.shape);
        assert_eq!(mounted.dtype.nbytes(elements), Some(mounted.nbytes), "{mounted:?}");
        assert_eq!(mounted.extent.shard, stored.extent.shard);
        assert!(mounted.extent.offset >= stored.extent.offset);
        assert!(mounted.extent.end() <= stored.extent.end(), "{mounted:?}");
        assert!(catalog.targets(model, mounted.source).contains(&index));
        names.push(mounted.name);
    }
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "a name twice");
}
