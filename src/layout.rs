//! The floor plan: which files and directories there are, their names and inodes.
//!
//! Nothing is stored per file. An inode number says what it stands for (a view of
//! the n-th tensor, the n-th metadata key, ...), so a directory of a million names
//! costs one hash index. Must not know bytes or FUSE.

use crate::hf;
use crate::model::{Model, Value};
use crate::naming::{Catalog, StemIndex, file_name, file_stem};
use crate::quant::Target;
use crate::scale::Scales;
use crate::view::document::LONGEST_SUFFIX;
use crate::view::{self, Repr, Stock};
use std::borrow::Cow;

mod hf_entries;
mod node;

use node::LIVES;
pub use node::{Dir, Doc, Ino, Live, Node, View};

/// File names of the whole model.
const WHOLE: &str = "model.safetensors";
const GGUF: &str = "model.gguf";

/// Any float type: names are the same in all of them.
const FLOAT: Repr = Repr::Float(Target::F32);

/// Which kind of file a node is.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Directory,
    File,
    Symlink,
}

/// Why there can be no such tree; the mount is refused.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// Two things would have the same file name.
    #[error("two names meet on the path {dir}/{file}: {a} and {b}")]
    Collision {
        /// Directory.
        dir: &'static str,
        /// Their common file name (or its stem).
        file: String,
        /// The one.
        a: String,
        /// The other.
        b: String,
    },
    /// More entries than can be numbered.
    #[error("{dir}/: {count} entries are more than 4294967295")]
    TooMany {
        /// Directory.
        dir: &'static str,
        /// How many there would be.
        count: usize,
    },
}

/// The plan of one mount.
#[derive(Debug)]
pub struct Layout {
    tensors: StemIndex,
    /// Mounted tensors that have another name in the float directories, and those names.
    renamed: Vec<u32>,
    renamed_index: StemIndex,
    source_names: Option<StemIndex>,
    metadata: StemIndex,
    sources: StemIndex,
    /// Root entries in listing order.
    root: Vec<(&'static str, Node)>,
    /// Entries of `hf/` and of its directory of templates.
    hf: hf_entries::HfEntries,
}

/// Which files about the whole model a mount has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// `tensors.sfv` and `provenance.yaml`: there are CRC32s to list.
    pub sealed: bool,
    /// `SHA256SUMS`: there are SHA-256 digests to list.
    pub hashed: bool,
    /// `model.safetensors`: the format can hold the model.
    pub whole: bool,
    /// `model.gguf`: the model came from GGUF and can be one such file.
    pub gguf: bool,
    /// `hf/`, with these files beside the weights.
    pub hf: Option<&'a [hf::File]>,
}

/// Model and names, which every question to the plan needs.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The stored model.
    pub model: &'a Model,
    /// The mounted names.
    pub catalog: &'a Catalog,
    /// The weights that are codes with scales.
    pub scales: &'a Scales,
}

impl<'a> Names<'a> {
    fn stock(self) -> Stock<'a> {
        Stock { model: self.model, scales: self.scales }
    }
}

impl Layout {
    /// Plans the mount; `offer` says which files about the whole model there are.
    pub fn new(names: Names<'_>, offer: Offer<'_>) -> Result<Layout, LayoutError> {
        let Offer { sealed, hashed, whole, gguf, hf } = offer;
        let Names { model, catalog, .. } = names;
        let tensors = index(
            "tensors",
            catalog.len(model),
            |i| catalog.get(model, i as usize).name,
            |i| mounted_stem(names, i),
        )?;
        let renamed = renamed(names);
        let renamed_index = index(
            "f32",
            renamed.len(),
            |i| catalog.get(model, renamed[i as usize] as usize).name,
            |i| shown_stem(names, renamed[i as usize], FLOAT),
        )?;
        let source_names = if !catalog.in_force() {
            None
        } else {
            Some(index(
                "source-names",
                model.tensors.len(),
                |i| &*model.tensors[i as usize].name,
                |i| stored_stem(model, i),
            )?)
        };
        let metadata = index(
            "metadata",
            model.metadata.len(),
            |i| &*model.metadata[i as usize].key,
            |i| metadata_file_name(model, i),
        )?;
        let sources = index(
            "source",
            model.shards.len(),
            |i| &*model.shards[i as usize].file,
            |i| source_file_name(model, i),
        )?;

        let mut root = vec![
            ("model.json", Node::Doc(Doc::Model)),
            ("metadata.json", Node::Doc(Doc::Metadata)),
            ("metadata", Node::Dir(Dir::Metadata)),
        ];
        for repr in Repr::ALL {
            root.push((repr.directory(), Node::Dir(Dir::Tensors(repr))));
        }
        if gguf {
            root.push((GGUF, Node::Gguf));
        }
        if whole {
            root.push((WHOLE, Node::Whole(Repr::Stored)));
        }
        if hf.is_some() {
            root.push(("hf", Node::Dir(Dir::Hf)));
        }
        root.push(("source", Node::Dir(Dir::Source)));
        if source_names.is_some() {
            root.push(("source-names", Node::Dir(Dir::SourceNames)));
        }
        if hashed {
            root.push(("SHA256SUMS", Node::Doc(Doc::Sha256Sums)));
        }
        if sealed {
            root.push(("tensors.sfv", Node::Doc(Doc::Sfv)));
            root.push(("provenance.yaml", Node::Doc(Doc::Provenance)));
        }
        root.push((".weightfs", Node::Dir(Dir::Live)));
        let hf =
            hf.map(|files| hf_entries::HfEntries::new(model, files, whole)).unwrap_or_default();
        Ok(Layout { tensors, renamed, renamed_index, source_names, metadata, sources, root, hf })
    }

    /// What `ino` stands for, if there is such a file.
    pub fn node(&self, names: Names<'_>, ino: Ino) -> Option<Node> {
        let node = Node::from_ino(ino)?;
        let exists = match node {
            Node::Dir(Dir::SourceNames) => self.source_names.is_some(),
            Node::Dir(Dir::HfTemplates) | Node::Hf(_) | Node::HfWeights => self.hf.has(node),
            Node::Dir(Dir::Hf) => self.root.iter().any(|&(_, n)| n == node),
            Node::Dir(_) | Node::Live(_) => true,
            Node::Doc(_) | Node::Gguf => self.root.iter().any(|&(_, n)| n == node),
            Node::Meta(i) => (i as usize) < names.model.metadata.len(),
            Node::Source(i) => (i as usize) < names.model.shards.len(),
            Node::SourceName(i) => self.source_names.is_some() && link_target(names, i).is_some(),
            Node::Whole(_) => self.root.iter().any(|&(_, n)| n == Node::Whole(Repr::Stored)),
            Node::Tensor(i, repr, view) => {
                (i as usize) < names.catalog.len(names.model) && has_view(names, i, repr, view)
            }
        };
        exists.then_some(node)
    }

    /// The entry called `name` in `dir`.
    pub fn lookup(&self, names: Names<'_>, dir: Dir, name: &[u8]) -> Option<Node> {
        let model = names.model;
        match dir {
            Dir::Root => {
                self.root.iter().find(|(n, _)| n.as_bytes() == name).map(|&(_, node)| node)
            }
            Dir::Hf | Dir::HfTemplates => self.hf.lookup(dir, name),
            Dir::Live => match name {
                b"status.json" => Some(Node::Live(Live::Status)),
                b"metrics" => Some(Node::Live(Live::Metrics)),
                _ => None,
            },
            Dir::Metadata => {
                self.metadata.find(name, |i| metadata_file_name(model, i)).map(Node::Meta)
            }
            Dir::Source => {
                self.sources.find(name, |i| source_file_name(model, i)).map(Node::Source)
            }
            Dir::SourceNames => {
                let index = self.source_names.as_ref()?;
                let i = index.find(name.strip_suffix(b".bin")?, |i| stored_stem(model, i))?;
                link_target(names, i).map(|_| Node::SourceName(i))
            }
            Dir::Tensors(repr) => {
                if name == WHOLE.as_bytes() {
                    return self.whole_in(repr);
                }
                let (stem, view) = View::ALL
                    .iter()
                    .find_map(|&v| Some((name.strip_suffix(v.suffix().as_bytes())?, v)))?;
                let i = self.tensor(names, stem, repr)?;
                has_view(names, i, repr, view).then_some(Node::Tensor(i, repr, view))
            }
        }
    }

    /// The tensor whose files in the directory of `repr` begin with `stem`.
    fn tensor(&self, names: Names<'_>, stem: &[u8], repr: Repr) -> Option<u32> {
        if repr != Repr::Stored && !self.renamed.is_empty() {
            let of = |i: u32| shown_stem(names, self.renamed[i as usize], repr);
            if let Some(at) = self.renamed_index.find(stem, of) {
                return Some(self.renamed[at as usize]);
            }
        }
        let found = self.tensors.find(stem, |i| mounted_stem(names, i))?;
        let elsewhere = repr != Repr::Stored && self.renamed.binary_search(&found).is_ok();
        (!elsewhere).then_some(found)
    }

    /// `model.safetensors` in a directory of tensors: in each dtype's, the stored one's is at the
    /// root.
    fn whole_in(&self, repr: Repr) -> Option<Node> {
        let whole = self.root.iter().any(|&(_, n)| n == Node::Whole(Repr::Stored));
        (whole && repr != Repr::Stored).then_some(Node::Whole(repr))
    }

    /// Entries of `dir` from position `from` on: `emit` is given the position to go on
    /// after this entry, the entry and its name, and returns false when it is full.
    pub fn list(
        &self,
        names: Names<'_>,
        dir: Dir,
        from: u64,
        emit: &mut dyn FnMut(u64, Node, &[u8]) -> bool,
    ) {
        let Names { model, catalog, .. } = names;
        match dir {
            Dir::Root => numbered(from, self.root.len() as u64, |i, next| {
                let (name, node) = self.root[i];
                emit(next, node, name.as_bytes())
            }),
            Dir::Hf | Dir::HfTemplates => {
                let entries = self.hf.of(dir);
                numbered(from, entries.len() as u64, |i, next| {
                    emit(next, entries[i].1, &entries[i].0)
                });
            }
            Dir::Live => numbered(from, LIVES.len() as u64, |i, next| {
                let name = match LIVES[i] {
                    Live::Status => "status.json",
                    Live::Metrics => "metrics",
                };
                emit(next, Node::Live(LIVES[i]), name.as_bytes())
            }),
            Dir::Metadata => numbered(from, model.metadata.len() as u64, |i, next| {
                emit(next, Node::Meta(i as u32), &metadata_file_name(model, i as u32))
            }),
            Dir::Source => numbered(from, model.shards.len() as u64, |i, next| {
                emit(next, Node::Source(i as u32), &source_file_name(model, i as u32))
            }),
            Dir::SourceNames => numbered(from, model.tensors.len() as u64, |i, next| {
                if link_target(names, i as u32).is_none() {
                    return true;
                }
                let stem = stored_stem(model, i as u32);
                emit(next, Node::SourceName(i as u32), &[&*stem, b".bin"].concat())
            }),
            Dir::Tensors(repr) => {
                let views = View::ALL.len() as u64;
                let last = catalog.len(model) as u64 * views;
                numbered(from, last + 1, |at, next| {
                    if at as u64 == last {
                        return self.whole_in(repr).is_none_or(|n| emit(next, n, WHOLE.as_bytes()));
                    }
                    let (i, view) = ((at as u64 / views) as u32, View::ALL[at % View::ALL.len()]);
                    if !has_view(names, i, repr, view) {
                        return true;
                    }
                    let stem = shown_stem(names, i, repr);
                    let name = [&*stem, view.suffix().as_bytes()].concat();
                    emit(next, Node::Tensor(i, repr, view), &name)
                });
            }
        }
    }

    /// The kind of a node.
    pub fn kind(node: Node) -> FileKind {
        match node {
            Node::Dir(_) => FileKind::Directory,
            Node::SourceName(_) => FileKind::Symlink,
            _ => FileKind::File,
        }
    }

    /// The directory that holds `node`.
    pub fn parent(node: Node) -> Dir {
        match node {
            Node::Dir(Dir::HfTemplates) | Node::HfWeights => Dir::Hf,
            Node::Hf(hf::File::NamedTemplate(_)) => Dir::HfTemplates,
            Node::Hf(_) => Dir::Hf,
            Node::Dir(_) | Node::Doc(_) | Node::Gguf => Dir::Root,
            Node::Live(_) => Dir::Live,
            Node::Meta(_) => Dir::Metadata,
            Node::Source(_) => Dir::Source,
            Node::SourceName(_) => Dir::SourceNames,
            Node::Whole(Repr::Stored) => Dir::Root,
            Node::Whole(repr) | Node::Tensor(_, repr, _) => Dir::Tensors(repr),
        }
    }

    /// Where the symlink of the `i`th stored tensor points.
    pub fn link(&self, names: Names<'_>, i: u32) -> Option<Vec<u8>> {
        let target = link_target(names, i)?;
        let stem = mounted_stem(names, target as u32);
        Some([b"../tensors/", &*stem, b".bin"].concat())
    }

    /// Number of all files and directories (statfs).
    pub fn files(&self, names: Names<'_>) -> u64 {
        let Names { model, catalog, .. } = names;
        let tensors = (catalog.len(model) * View::ALL.len() * Repr::ALL.len()) as u64;
        let hf = (self.hf.of(Dir::Hf).len() + self.hf.of(Dir::HfTemplates).len()) as u64;
        self.root.len() as u64 + hf + tensors + (model.metadata.len() + model.shards.len()) as u64
    }

    /// How many directories lie directly in `dir`.
    pub fn subdirectories(&self, dir: Dir) -> u32 {
        match dir {
            Dir::Root => self.root.iter().filter(|(_, n)| matches!(n, Node::Dir(_))).count() as u32,
            Dir::Hf => u32::from(!self.hf.of(Dir::HfTemplates).is_empty()),
            _ => 0,
        }
    }
}

/// Calls `step(index, index + 1)` from `from` on until it returns false.
fn numbered(from: u64, count: u64, mut step: impl FnMut(usize, u64) -> bool) {
    for i in from..count {
        if !step(i as usize, i + 1) {
            break;
        }
    }
}

fn has_view(names: Names<'_>, i: u32, repr: Repr, view: View) -> bool {
    let mounted = names.catalog.get(names.model, i as usize);
    match view {
        View::Bin | View::Json => view::shown(names.stock(), &mounted, repr).is_some(),
        View::Npy => view::has_npy(names.stock(), &mounted, repr),
    }
}

/// The one mounted tensor that is all of the stored one: none when it is dropped, split or
/// joined with another.
fn link_target(names: Names<'_>, stored: u32) -> Option<usize> {
    let targets = names.catalog.targets(names.model, stored);
    let whole = names.model.tensors.get(stored as usize)?.extent;
    let target = targets.start;
    if targets.len() != 1 || !names.catalog.shares(stored).is_empty() {
        return None;
    }
    let mounted = names.catalog.get(names.model, target);
    (mounted.extent == whole && !mounted.transform.is_joined()).then_some(target)
}

/// An index of `count` names of `dir`; two equal ones refuse the mount. `subject` is what
/// an entry stands for, for the message.
fn index<'a>(
    dir: &'static str,
    count: usize,
    subject: impl Fn(u32) -> &'a [u8],
    name: impl Fn(u32) -> Cow<'a, [u8]>,
) -> Result<StemIndex, LayoutError> {
    // Readers take at most 2^20 tensors and keys; a map's slices are counted in u32 as well.
    let count = u32::try_from(count).map_err(|_| LayoutError::TooMany { dir, count })?;
    StemIndex::build(count, name).map_err(|c| LayoutError::Collision {
        dir,
        file: c.stem.escape_ascii().to_string(),
        a: format!("\"{}\"", subject(c.a).escape_ascii()),
        b: format!("\"{}\"", subject(c.b).escape_ascii()),
    })
}

fn mounted_stem(names: Names<'_>, i: u32) -> Cow<'_, [u8]> {
    file_stem(names.catalog.get(names.model, i as usize).name, LONGEST_SUFFIX)
}

/// The stem of a tensor's files in the directory of `repr`.
fn shown_stem(names: Names<'_>, i: u32, repr: Repr) -> Cow<'_, [u8]> {
    let mounted = names.catalog.get(names.model, i as usize);
    match view::name(names.stock(), &mounted, repr) {
        Cow::Borrowed(name) => file_stem(name, LONGEST_SUFFIX),
        Cow::Owned(name) => file_stem(&name, LONGEST_SUFFIX).into_owned().into(),
    }
}

/// The mounted tensors that have another name in the float directories, ascending.
fn renamed(names: Names<'_>) -> Vec<u32> {
    let Names { model, catalog, scales } = names;
    let mut renamed: Vec<u32> = scales
        .renamed()
        .flat_map(|source| catalog.targets(model, source))
        // Counted when the tensors were indexed.
        .map(|i| i as u32)
        .filter(|&i| {
            let mounted = catalog.get(model, i as usize);
            *view::name(names.stock(), &mounted, FLOAT) != *mounted.name
        })
        .collect();
    renamed.sort_unstable();
    renamed
}

fn stored_stem(model: &Model, i: u32) -> Cow<'_, [u8]> {
    file_stem(&model.tensors[i as usize].name, LONGEST_SUFFIX)
}

fn source_file_name(model: &Model, i: u32) -> Cow<'_, [u8]> {
    file_stem(&model.shards[i as usize].file, 0)
}

/// File name of the `i`th metadata entry in `metadata/`.
pub fn metadata_file_name(model: &Model, i: u32) -> Cow<'_, [u8]> {
    let meta = &model.metadata[i as usize];
    let suffix = if matches!(meta.value, Value::Str(_)) { "" } else { ".json" };
    file_name(&meta.key, suffix, LONGEST_SUFFIX)
}
