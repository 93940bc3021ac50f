//! The file system without FUSE: look-up, attributes, listing, reading.
//!
//! Answers every question from the floor plan and the store; must not know GGUF,
//! safetensors or fuser.

use crate::content::{Body, Content};
use crate::hf;
use crate::layout::{Dir, Doc, FileKind, Ino, Layout, LayoutError, Names, Node, Offer, View};
use crate::model::{Extent, Model, Value};
use crate::naming::Catalog;
use crate::quant::Target;
use crate::scale::Scales;
use crate::source::IoMode;
use crate::store::{ReadFailure, Store, StoreError, Verify};
use crate::view::text::{Builder, Text};
use crate::view::whole::{Whole, gguf};
use crate::view::{self, Repr, Stock, document, json};
pub use lanes::Lane;
use members::Choice;
pub use reading::Reader;
pub use snapshots::{Handle, Snapshots};
use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

mod companions;
mod foresight;
mod lanes;
pub mod live;
mod members;
pub mod metrics;
mod reading;
mod snapshots;
mod sums;
pub mod xattr;

/// Arrays up to this many elements stand in `metadata.json` itself.
const INLINE_ELEMENTS: u64 = 64;
/// Longest file name (`NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// Why a question has no answer. `fuse::errno` chooses the number.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// No such file.
    #[error("no such file")]
    NotFound,
    /// A name that no file can have.
    #[error("a name of {0} bytes is longer than {NAME_MAX}")]
    NameTooLong(usize),
    /// Something asked of a file that only a directory has.
    #[error("not a directory")]
    NotDirectory,
    /// A read of a directory.
    #[error("is a directory")]
    IsDirectory,
    /// Not a symlink.
    #[error("not a symbolic link")]
    NotLink,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// A fault of this program.
    #[error("internal error")]
    Internal,
    /// The bytes could not be served; `good` bytes in front of the failure are good.
    #[error("{error}")]
    Read {
        /// Leading good bytes.
        good: usize,
        /// What stopped it.
        error: StoreError,
    },
}

impl From<ReadFailure> for FsError {
    fn from(failure: ReadFailure) -> FsError {
        FsError::Read { good: failure.good, error: failure.error }
    }
}

impl From<io::Error> for FsError {
    fn from(error: io::Error) -> FsError {
        FsError::Read { good: 0, error: StoreError::from(error) }
    }
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Kind of file.
    pub kind: FileKind,
    /// Exact size in bytes; a hint for live documents.
    pub size: u64,
    /// Links: 2 and the subdirectories for a directory.
    pub nlink: u32,
    /// Modification time of the source.
    pub mtime: SystemTime,
}

/// Sizes of the whole file system.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Bytes of the sources.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
}

/// What a mounted file system is made of.
#[derive(Debug)]
pub struct Parts {
    /// The stored model.
    pub model: Arc<Model>,
    /// The mounted names.
    pub catalog: Catalog,
    /// The bytes.
    pub store: Store,
    /// When bytes are checked.
    pub verify: Verify,
    /// Warnings beside the model's and the catalog's.
    pub warnings: Vec<String>,
    /// The weights that are codes with scales: [`view::scaled::recognise`].
    pub scales: Scales,
    /// Where the daemon logs, for `status.json`.
    pub log: Option<String>,
    /// What `hf/` holds, under `map=hf`.
    pub hf: Option<Hf>,
}

/// What `hf/` holds.
#[derive(Debug)]
pub struct Hf {
    /// Its files beside the weights.
    pub files: Vec<hf::File>,
    /// The type of the weights; `None`: BF16 where they are quantised, else as stored.
    pub dtype: Option<Target>,
}

impl Parts {
    fn stock(&self) -> Stock<'_> {
        Stock { model: &self.model, scales: &self.scales }
    }

    fn hf_dtype(&self) -> Option<Target> {
        self.hf.as_ref().and_then(|hf| hf.dtype)
    }
}

/// The file system.
#[derive(Debug)]
pub struct WeightFs {
    parts: Arc<Parts>,
    layout: Layout,
    mtime: SystemTime,
    /// `model.json`.
    model: OnceLock<Box<[u8]>>,
    metadata: OnceLock<Arc<Text>>,
    /// One slot per metadata key, filled when its size is first asked for.
    values: Box<[OnceLock<Arc<Text>>]>,
    /// `SHA256SUMS`, `tensors.sfv` and `provenance.yaml`.
    sums: [OnceLock<Arc<Text>>; sums::Kind::COUNT],
    /// `model.safetensors`, stored, in each dtype and in `hf/`.
    whole: [OnceLock<Arc<Whole>>; Choice::COUNT],
    /// `model.gguf`.
    gguf: OnceLock<Arc<Whole>>,
    /// `hf/`.
    hf: companions::Companions,
    /// The store, for bytes that the kernel keeps.
    kept: Store,
    /// The store, for bytes that nobody has asked for yet: a program, and the kernel.
    foresight: [Store; 2],
    /// Whether all tensors are shown in the order in which they are stored.
    in_order: OnceLock<bool>,
    snapshots: Snapshots,
    started: live::Started,
}

impl WeightFs {
    /// Plans the mount; refuses names that meet on one path.
    pub fn new(parts: Parts) -> Result<WeightFs, LayoutError> {
        let mut parts = Arc::new(parts);
        let (whole, mut warnings) = members::obstacles(&parts);
        let gguf = gguf::obstacle(&parts.model).map_err(|why| warnings.extend(why)).is_ok();
        if let Some(parts) = Arc::get_mut(&mut parts) {
            parts.warnings.extend(warnings);
        }
        let names = Names { model: &parts.model, catalog: &parts.catalog, scales: &parts.scales };
        let hashed = parts.store.source_sha256(0).is_some();
        let hf = parts.hf.as_ref().map(|hf| &*hf.files);
        let offer = Offer { sealed: parts.store.is_sealed(), hashed, whole, gguf, hf };
        let layout = Layout::new(names, offer)?;
        let mtime =
            parts.store.sources().iter().map(|s| s.mtime()).max().unwrap_or(SystemTime::UNIX_EPOCH);
        let values = parts.model.metadata.iter().map(|_| OnceLock::new()).collect();
        Ok(WeightFs {
            layout,
            mtime,
            model: OnceLock::new(),
            metadata: OnceLock::new(),
            values,
            sums: Default::default(),
            whole: Default::default(),
            gguf: OnceLock::new(),
            hf: companions::Companions::new(parts.hf.as_ref()),
            kept: parts.store.kept(),
            foresight: [parts.store.unasked(), parts.store.unasked().kept()],
            in_order: OnceLock::new(),
            snapshots: Snapshots::default(),
            started: live::Started::now(),
            parts,
        })
    }

    /// The bytes behind it all.
    pub fn store(&self) -> &Store {
        &self.parts.store
    }

    /// `model.json`, as a document.
    pub fn about(&self) -> serde_json::Value {
        document::model(self.facts())
    }

    /// When the newest of the sources was modified.
    pub fn mtime(&self) -> SystemTime {
        self.mtime
    }

    fn names(&self) -> Names<'_> {
        let Parts { model, catalog, scales, .. } = &*self.parts;
        Names { model, catalog, scales }
    }

    fn facts(&self) -> document::Facts<'_> {
        let Parts { model, catalog, store, verify, warnings, scales, .. } = &*self.parts;
        document::Facts { model, catalog, store, verify: *verify, warnings, scales }
    }

    /// What an inode number stands for.
    pub fn node(&self, ino: Ino) -> Result<Node, FsError> {
        self.layout.node(self.names(), ino).ok_or(FsError::NotFound)
    }

    /// The entry `name` of the directory `parent`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Node, FsError> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong(name.len()));
        }
        let Node::Dir(dir) = self.node(parent)? else {
            return Err(FsError::NotDirectory);
        };
        self.layout.lookup(self.names(), dir, name).ok_or(FsError::NotFound)
    }

    /// Whether [`WeightFs::attr`] answers from memory: the size of what is made on first use,
    /// partly from metadata in the source, is not known before.
    pub fn knows_size(&self, node: Node) -> bool {
        match node {
            Node::Hf(file) => self.hf.is_made(file),
            Node::Doc(Doc::Metadata) => self.metadata.get().is_some(),
            Node::Doc(Doc::Sha256Sums) => self.sums[sums::Kind::Sha256 as usize].get().is_some(),
            Node::Doc(Doc::Sfv) => self.sums[sums::Kind::Sfv as usize].get().is_some(),
            Node::Doc(Doc::Provenance) => {
                self.sums[sums::Kind::Provenance as usize].get().is_some()
            }
            Node::Meta(i) => {
                let i = i as usize;
                matches!(self.parts.model.metadata[i].value, Value::Str(_))
                    || self.values[i].get().is_some()
            }
            Node::Whole(repr) => self.whole[Choice::One(repr).slot()].get().is_some(),
            Node::HfWeights => self.whole[self.hf_choice().slot()].get().is_some(),
            Node::Gguf => self.gguf.get().is_some(),
            _ => true,
        }
    }

    /// Attributes of a node.
    pub fn attr(&self, node: Node) -> Result<Attr, FsError> {
        let size = self.size(node)?;
        Ok(Attr { size, ..self.attr_without_size(node) })
    }

    /// Attributes with a size of 0: all that can be told when the source cannot be read.
    pub fn attr_without_size(&self, node: Node) -> Attr {
        let nlink = match node {
            Node::Dir(dir) => 2 + self.layout.subdirectories(dir),
            _ => 1,
        };
        let mtime = self.shard(node).map_or(self.mtime, |shard| self.shard_mtime(shard));
        Attr { ino: node.ino(), kind: Layout::kind(node), size: 0, nlink, mtime }
    }

    /// The one source that a file's bytes come from.
    fn shard(&self, node: Node) -> Option<u32> {
        match node {
            Node::Tensor(i, ..) => {
                Some(self.parts.catalog.get(&self.parts.model, i as usize).extent.shard)
            }
            Node::Source(i) => Some(i),
            _ => None,
        }
    }

    /// The source of a second tensor that a file is joined from.
    fn other_shard(&self, node: Node) -> Option<u32> {
        let Node::Tensor(i, ..) = node else {
            return None;
        };
        let model = &self.parts.model;
        let other = self.parts.catalog.get(model, i as usize).transform.other()?;
        Some(model.tensors[other as usize].extent.shard)
    }

    /// Whether what lies behind a file of tensors or a source file is still what was mounted.
    pub fn check_source(&self, node: Node) -> Result<(), FsError> {
        let sources = self.parts.store.sources();
        let behind = match (node, self.shard(node)) {
            (Node::Whole(_) | Node::Gguf | Node::HfWeights, _) => sources,
            (Node::Tensor(_, _, View::Json), _) | (_, None) => &[],
            (_, Some(shard)) => &sources[shard as usize..][..1],
        };
        let other = self.other_shard(node).filter(|_| !behind.is_empty());
        let other = other.map(|shard| &sources[shard as usize]);
        let mut all = behind.iter().chain(other);
        let changed = all.try_for_each(|source| source.check_unchanged());
        changed.map_err(|e| FsError::Read { good: 0, error: e.into() })
    }

    fn shard_mtime(&self, shard: u32) -> SystemTime {
        self.parts.store.sources().get(shard as usize).map_or(self.mtime, |s| s.mtime())
    }

    fn size(&self, node: Node) -> Result<u64, FsError> {
        Ok(match node {
            Node::Dir(_) => 0,
            Node::SourceName(i) => self.read_link_of(i)?.len() as u64,
            Node::Live(live) => self.live(live).len() as u64,
            _ => self.content(node)?.len(),
        })
    }

    /// Entries of a directory from position `from` on, `.` and `..` first; see [`Layout::list`].
    /// Every entry carries its node.
    pub fn list(
        &self,
        ino: Ino,
        from: u64,
        emit: &mut dyn FnMut(u64, Node, &[u8]) -> bool,
    ) -> Result<(), FsError> {
        let node = self.node(ino)?;
        let Node::Dir(dir) = node else {
            return Err(FsError::NotDirectory);
        };
        if from < 1 && !emit(1, node, b".") {
            return Ok(());
        }
        if from < 2 && !emit(2, Node::Dir(Layout::parent(node)), b"..") {
            return Ok(());
        }
        self.layout.list(self.names(), dir, from.saturating_sub(2), &mut |next, node, name| {
            emit(next + 2, node, name)
        });
        Ok(())
    }

    /// The target of a symlink.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        match self.node(ino)? {
            Node::SourceName(i) => self.read_link_of(i),
            _ => Err(FsError::NotLink),
        }
    }

    fn read_link_of(&self, i: u32) -> Result<Vec<u8>, FsError> {
        self.layout.link(self.names(), i).ok_or(FsError::NotFound)
    }

    /// Totals for statfs.
    pub fn totals(&self) -> Totals {
        let bytes = self.parts.model.shards.iter().map(|s| s.len).sum();
        Totals { bytes, files: self.layout.files(self.names()) }
    }

    /// Opens a file. A live document is written here, so that one open shows one state.
    pub fn open(&self, ino: Ino) -> Result<Handle, FsError> {
        match self.node(ino)? {
            Node::Dir(_) => Err(FsError::IsDirectory),
            Node::Live(live) => {
                self.parts.store.glance();
                Ok(self.snapshots.open(self.live(live)))
            }
            _ => Ok(Handle(0)),
        }
    }

    /// Whether `ino` is one of `source/`.
    pub fn is_source(&self, ino: Ino) -> bool {
        matches!(self.node(ino), Ok(Node::Source(_)))
    }

    /// The file that holds the very bytes of `ino`, when they need no check and it is at hand.
    pub fn passes_through(&self, ino: Ino) -> Option<&File> {
        let Ok(Node::Source(shard)) = self.node(ino) else { return None };
        let source = self.parts.store.sources().get(shard as usize)?;
        let near = source.io() == IoMode::Mmap;
        (near && self.parts.store.is_settled(shard)).then(|| source.file())
    }

    /// Forgets an open file.
    pub fn release(&self, handle: Handle) {
        self.snapshots.close(handle);
    }

    /// The content of a file.
    fn content(&self, node: Node) -> Result<Content<'_>, FsError> {
        let Parts { model, catalog, .. } = &*self.parts;
        Ok(match node {
            Node::Dir(_) => return Err(FsError::IsDirectory),
            Node::Live(_) | Node::SourceName(_) => return Err(FsError::NotFound),
            Node::Doc(Doc::Model) => {
                let make = || json::document(&document::model(self.facts())).into();
                Content { head: (&**self.model.get_or_init(make)).into(), body: Body::Empty }
            }
            Node::Doc(Doc::Metadata) => {
                Content { head: (&[]).into(), body: Body::Text(self.metadata_text()?) }
            }
            Node::Doc(Doc::Sha256Sums) => self.sums(sums::Kind::Sha256)?,
            Node::Doc(Doc::Sfv) => self.sums(sums::Kind::Sfv)?,
            Node::Doc(Doc::Provenance) => self.sums(sums::Kind::Provenance)?,
            Node::Meta(i) => self.value(i)?,
            Node::Source(i) => {
                let len = model.shards[i as usize].len;
                Content {
                    head: (&[]).into(),
                    body: Body::Span(Extent { shard: i, offset: 0, len }),
                }
            }
            Node::Tensor(i, repr, View::Json) => {
                let document = document::tensor(self.facts(), i as usize, repr);
                Content::document(json::document(&document.ok_or(FsError::NotFound)?))
            }
            Node::Tensor(i, repr, view) => {
                let mounted = catalog.get(model, i as usize);
                let content = match view {
                    View::Npy => view::npy(self.parts.stock(), &mounted, repr),
                    _ => view::bin(self.parts.stock(), &mounted, repr),
                };
                content.ok_or(FsError::NotFound)?
            }
            Node::Whole(repr) => {
                let whole = self.whole(Choice::One(repr))?;
                Content { head: (&[]).into(), body: Body::Whole(whole) }
            }
            Node::Hf(file) => {
                Content { head: self.hf.bytes(&self.parts, file)?.into(), body: Body::Empty }
            }
            Node::HfWeights => {
                let whole = self.whole(self.hf_choice())?;
                Content { head: (&[]).into(), body: Body::Whole(whole) }
            }
            Node::Gguf => {
                let whole = once(&self.gguf, || Whole::gguf(model, &self.parts.store))?;
                Content { head: (&[]).into(), body: Body::Whole(whole) }
            }
        })
    }

    /// How `hf/` holds its weights.
    fn hf_choice(&self) -> Choice {
        self.parts.hf_dtype().map_or(Choice::Checkpoint, |dtype| Choice::One(Repr::Float(dtype)))
    }

    /// A `model.safetensors`, planned on first use.
    fn whole(&self, choice: Choice) -> Result<Arc<Whole>, FsError> {
        once(&self.whole[choice.slot()], || {
            let members = members::Members::new(Arc::clone(&self.parts), choice);
            Whole::new(Arc::new(members), &self.parts.model, &self.parts.store)
        })
    }

    /// `metadata/KEY` verbatim, or `metadata/KEY.json`.
    fn value(&self, i: u32) -> Result<Content<'_>, FsError> {
        let i = i as usize;
        match &self.parts.model.metadata[i].value {
            Value::Str(crate::model::Text::Span(extent)) => {
                Ok(Content { head: (&[]).into(), body: Body::Span(*extent) })
            }
            Value::Str(crate::model::Text::Inline(bytes)) => {
                Ok(Content { head: (&**bytes).into(), body: Body::Empty })
            }
            _ => {
                let text = once(&self.values[i], || {
                    let mut builder = Builder::new(&self.parts.model, &self.parts.store);
                    builder.value(i, 0)?;
                    builder.literal("\n");
                    Ok(builder.finish())
                })?;
                Ok(Content { head: (&[]).into(), body: Body::Text(text) })
            }
        }
    }

    fn metadata_text(&self) -> Result<Arc<Text>, FsError> {
        once(&self.metadata, || {
            let model = &self.parts.model;
            let mut builder = Builder::new(model, &self.parts.store);
            for (i, meta) in model.metadata.iter().enumerate() {
                let key = json::lossy(&meta.key);
                builder.literal(if i == 0 { "{\n  " } else { ",\n  " });
                builder.literal(&serde_json::Value::from(&*key).to_string());
                builder.literal(": ");
                match &meta.value {
                    Value::Array(array) if array.len() > INLINE_ELEMENTS => {
                        let file = crate::layout::metadata_file_name(model, i as u32);
                        let file = format!("metadata/{}", json::lossy(&file));
                        builder.literal(&format!(
                            "{{\n    \"array\": \"{}\",\n    \"length\": {},\n    \"file\": {}\n  }}",
                            array.elem().name(),
                            array.len(),
                            serde_json::Value::from(file),
                        ));
                    }
                    _ => builder.value(i, 2)?,
                }
            }
            builder.literal(if model.metadata.is_empty() { "{}\n" } else { "\n}\n" });
            Ok(builder.finish())
        })
    }

    /// `SHA256SUMS`, `tensors.sfv` or `provenance.yaml`.
    fn sums(&self, kind: sums::Kind) -> Result<Content<'_>, FsError> {
        let text = once(&self.sums[kind as usize], || {
            let mut builder = Builder::new(&self.parts.model, &self.parts.store);
            builder.lines(Arc::new(sums::Sums::new(Arc::clone(&self.parts), kind)))?;
            Ok(builder.finish())
        })?;
        Ok(Content { head: (&[]).into(), body: Body::Text(text) })
    }
}

/// The text in `slot`, made on first use. Two makers at once are harmless: the texts are equal.
fn once<T>(
    slot: &OnceLock<Arc<T>>,
    make: impl FnOnce() -> io::Result<T>,
) -> Result<Arc<T>, FsError> {
    if let Some(text) = slot.get() {
        return Ok(Arc::clone(text));
    }
    let made = Arc::new(make()?);
    Ok(Arc::clone(slot.get_or_init(|| made)))
}

/// Which directory entries the kernel may keep and read ahead.
pub fn is_live(node: Node) -> bool {
    matches!(node, Node::Live(_) | Node::Dir(Dir::Live))
}
