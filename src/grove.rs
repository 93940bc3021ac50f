//! One model or several in one mount: which of them a question is for, and what lies around them.
//!
//! The upper 16 bits of an inode number are the model's, the rest says what that model's own file
//! system calls the file. A mount of one model has the number 0 throughout; in one of several, 0 is
//! the grove's own: the directories above the models, `models.json`, and a `.weightfs/` of all. The
//! numbers of models and directories come from their names, so that they stay when others come and
//! go. Nothing changes once it is planned, so that to find a model is a shift and a look into a
//! table. Must not know fuser, formats or what the files of a model are.

use crate::fs::live::Started;
use crate::fs::{Attr, FsError, Handle, Lane, NAME_MAX, Reader, Snapshots, Totals, WeightFs};
use crate::layout::{FileKind, Ino, Live, Node};
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

mod live;
mod numbers;
mod plan;
mod spot;

pub use plan::{LeftOut, Member};
pub use spot::{Place, Spot};

/// Positions of what is listed behind the entries of a model's own root directory.
const BESIDE: u64 = 1 << 32;

/// All models of a mount.
#[derive(Debug)]
pub struct Grove {
    /// In the order in which they were given.
    trees: Box<[Tree]>,
    /// By the number in inode numbers: one more than the place in `trees`, 0 where there is none.
    places: Box<[u16]>,
    /// What lies around several models; none around a single one.
    clearing: Option<Clearing>,
    lanes: usize,
}

/// A model with its place.
#[derive(Debug)]
struct Tree {
    fs: Arc<WeightFs>,
    /// The directory that it lies in.
    parent: Spot,
    /// What is shown in its root directory beside its own entries, sorted.
    beside: Box<[Entry]>,
    /// Its first lane among those of all.
    lane: usize,
    /// Its directory in the mount, encoded; empty for a single model.
    name: String,
}

/// What is not a model's.
#[derive(Debug)]
struct Clearing {
    /// By number; see [`Place`].
    directories: HashMap<u32, Directory>,
    /// `models.json`.
    models: Box<[u8]>,
    mtime: SystemTime,
    left_out: Vec<LeftOut>,
    /// Where the daemon logs.
    log: Option<String>,
    started: Started,
    snapshots: Snapshots,
}

/// A directory above models.
#[derive(Debug)]
struct Directory {
    parent: Spot,
    /// Sorted by name.
    entries: Box<[Entry]>,
}

#[derive(Debug)]
struct Entry {
    name: Box<[u8]>,
    spot: Spot,
}

/// Whose question it is.
enum Home<'a> {
    Tree(&'a Tree, u16, Ino),
    Own(&'a Clearing, Place),
}

fn find(entries: &[Entry], name: &[u8]) -> Option<Spot> {
    let at = entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok()?;
    Some(entries[at].spot)
}

impl Clearing {
    fn directory(&self, number: u32) -> Result<&Directory, FsError> {
        self.directories.get(&number).ok_or(FsError::NotFound)
    }
}

impl Grove {
    /// A mount of one model, as its own file system says.
    pub fn of_one(fs: WeightFs) -> Grove {
        let lanes = fs.lanes();
        let parent = Spot::In(0, Node::Dir(crate::layout::Dir::Root));
        let (beside, name) = (Box::default(), String::new());
        let tree = Tree { fs: Arc::new(fs), parent, beside, lane: 0, name };
        Grove { trees: [tree].into(), places: [1].into(), clearing: None, lanes }
    }

    /// All models.
    pub fn models(&self) -> impl Iterator<Item = &Arc<WeightFs>> {
        self.trees.iter().map(|tree| &tree.fs)
    }

    /// Those of several that are not shown.
    pub fn left_out(&self) -> &[LeftOut] {
        self.clearing.as_ref().map_or(&[], |clearing| &clearing.left_out)
    }

    /// Says once what the daemon gave up, for `status.json`.
    pub fn set_confined(&self, what: &str) {
        self.models().for_each(|fs| fs.set_confined(what.to_owned()));
        if let Some(clearing) = &self.clearing {
            clearing.started.set_confined(what.to_owned());
        }
    }

    /// Says how many requests wait for a source that seems to hang, for `status.json`.
    pub fn set_stalled(&self, requests: usize) {
        self.models().for_each(|fs| fs.set_stalled(requests));
        if let Some(clearing) = &self.clearing {
            clearing.started.set_stalled(requests);
        }
    }

    /// The model that an inode number is of, and what it calls it.
    fn tree(&self, ino: Ino) -> Option<(&Tree, Ino)> {
        let (number, local) = spot::apart(ino)?;
        Some((self.numbered(number).ok()?, local))
    }

    fn numbered(&self, number: u16) -> Result<&Tree, FsError> {
        let place = self.places.get(usize::from(number)).copied().unwrap_or(0);
        let tree = usize::from(place).checked_sub(1).and_then(|place| self.trees.get(place));
        tree.ok_or(FsError::NotFound)
    }

    fn home(&self, ino: Ino) -> Result<Home<'_>, FsError> {
        let (number, local) = spot::apart(ino).ok_or(FsError::NotFound)?;
        match &self.clearing {
            Some(clearing) if number == 0 => {
                let place = Place::from_ino(local).ok_or(FsError::NotFound)?;
                if let Place::Dir(number) = place {
                    clearing.directory(number)?;
                }
                Ok(Home::Own(clearing, place))
            }
            _ => Ok(Home::Tree(self.numbered(number)?, number, local)),
        }
    }

    /// What an inode number stands for.
    pub fn spot(&self, ino: Ino) -> Result<Spot, FsError> {
        Ok(match self.home(ino)? {
            Home::Own(_, place) => Spot::Own(place),
            Home::Tree(tree, number, local) => Spot::In(number, tree.fs.node(local)?),
        })
    }

    /// The entry `name` of the directory `parent`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Spot, FsError> {
        match self.home(parent)? {
            Home::Own(_, _) if name.len() > NAME_MAX => Err(FsError::NameTooLong(name.len())),
            Home::Own(clearing, Place::Dir(number)) => {
                find(&clearing.directory(number)?.entries, name).ok_or(FsError::NotFound)
            }
            Home::Own(..) => Err(FsError::NotDirectory),
            Home::Tree(tree, number, local) => match tree.fs.lookup(local, name) {
                Ok(node) => Ok(Spot::In(number, node)),
                Err(FsError::NotFound) if local == Ino::ROOT => {
                    find(&tree.beside, name).ok_or(FsError::NotFound)
                }
                Err(error) => Err(error),
            },
        }
    }

    /// Whether [`Grove::attr`] answers from memory.
    pub fn knows_size(&self, spot: Spot) -> bool {
        match spot {
            Spot::Own(_) => true,
            Spot::In(number, node) => {
                self.numbered(number).is_ok_and(|tree| tree.fs.knows_size(node))
            }
        }
    }

    /// Attributes of what is there.
    pub fn attr(&self, spot: Spot) -> Result<Attr, FsError> {
        match spot {
            Spot::Own(Place::Live(live)) => {
                let size = self.live(live).len() as u64;
                Ok(Attr { size, ..self.attr_without_size(spot)? })
            }
            Spot::Own(_) => self.attr_without_size(spot),
            Spot::In(number, node) => {
                let tree = self.numbered(number)?;
                Ok(tree.attr(spot, tree.fs.attr(node)?))
            }
        }
    }

    /// Attributes with a size of 0 where that is all that can be told from memory.
    pub fn attr_without_size(&self, spot: Spot) -> Result<Attr, FsError> {
        let place = match spot {
            Spot::In(number, node) => {
                let tree = self.numbered(number)?;
                return Ok(tree.attr(spot, tree.fs.attr_without_size(node)));
            }
            Spot::Own(place) => place,
        };
        let clearing = self.clearing.as_ref().ok_or(FsError::NotFound)?;
        let (size, nlink) = match place {
            Place::Dir(number) => (0, 2 + directories(&clearing.directory(number)?.entries)),
            Place::Models => (clearing.models.len() as u64, 1),
            Place::Live(_) => (0, 1),
        };
        Ok(Attr { ino: spot.ino(), kind: spot.kind(), size, nlink, mtime: clearing.mtime })
    }

    /// Entries of a directory from position `from` on, `.` and `..` first; `emit` is given the
    /// position to go on after each, and returns false when it is full.
    pub fn list(
        &self,
        ino: Ino,
        from: u64,
        emit: &mut dyn FnMut(u64, Spot, &[u8]) -> bool,
    ) -> Result<(), FsError> {
        match self.home(ino)? {
            Home::Own(clearing, Place::Dir(number)) => {
                let directory = clearing.directory(number)?;
                let own = Spot::Own(Place::Dir(number));
                if from < 1 && !emit(1, own, b".") {
                    return Ok(());
                }
                if from < 2 && !emit(2, directory.parent, b"..") {
                    return Ok(());
                }
                list(&directory.entries, 2, from, emit);
                Ok(())
            }
            Home::Own(..) => Err(FsError::NotDirectory),
            Home::Tree(tree, number, local) => {
                let is_root = local == Ino::ROOT;
                let mut full = false;
                if from < BESIDE {
                    tree.fs.list(local, from, &mut |next, node, name| {
                        let spot = match name {
                            b".." if is_root => tree.parent,
                            _ => Spot::In(number, node),
                        };
                        full = !emit(next, spot, name);
                        !full
                    })?;
                }
                if is_root && !full {
                    list(&tree.beside, BESIDE, from, emit);
                }
                Ok(())
            }
        }
    }

    /// The target of a symlink.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        match self.home(ino)? {
            Home::Own(..) => Err(FsError::NotLink),
            Home::Tree(tree, _, local) => tree.fs.read_link(local),
        }
    }

    /// Totals for statfs.
    pub fn totals(&self) -> Totals {
        let own = self.clearing.iter().flat_map(|clearing| clearing.directories.values());
        let own = own.map(|directory| 1 + directory.entries.len() as u64).sum();
        self.models().map(|fs| fs.totals()).fold(Totals { bytes: 0, files: own }, |all, one| {
            Totals {
                bytes: all.bytes.saturating_add(one.bytes),
                files: all.files.saturating_add(one.files),
            }
        })
    }

    /// Whether what lies behind a file is still what was mounted.
    pub fn check_source(&self, spot: Spot) -> Result<(), FsError> {
        match spot {
            Spot::Own(_) => Ok(()),
            Spot::In(number, node) => self.numbered(number)?.fs.check_source(node),
        }
    }

    /// Opens a file. A live document is written here, so that one open shows one state.
    pub fn open(&self, ino: Ino) -> Result<Handle, FsError> {
        match self.home(ino)? {
            Home::Own(_, Place::Dir(_)) => Err(FsError::IsDirectory),
            Home::Own(clearing, Place::Live(live)) => Ok(clearing.snapshots.open(self.live(live))),
            Home::Own(_, Place::Models) => Ok(Handle(0)),
            Home::Tree(tree, _, local) => tree.fs.open(local),
        }
    }

    /// Forgets an open file.
    pub fn release(&self, ino: Ino, handle: Handle) {
        match self.home(ino) {
            Ok(Home::Own(clearing, _)) => clearing.snapshots.close(handle),
            Ok(Home::Tree(tree, ..)) => tree.fs.release(handle),
            Err(_) => {}
        }
    }

    /// Copies bytes from `offset` on into `out`; returns how many, fewer only at the end.
    pub fn read(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, FsError> {
        self.read_for(Reader::Program, ino, handle, offset, out)
    }

    /// As [`Grove::read`], for a reader of either kind.
    pub fn read_for(
        &self,
        reader: Reader,
        ino: Ino,
        handle: Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, FsError> {
        match self.home(ino)? {
            Home::Tree(tree, _, local) => tree.fs.read_for(reader, local, handle, offset, out),
            Home::Own(_, Place::Dir(_)) => Err(FsError::IsDirectory),
            Home::Own(clearing, Place::Live(live)) => {
                Ok(clearing.snapshots.read(handle, || self.live(live), offset, out))
            }
            Home::Own(clearing, Place::Models) => {
                let from = usize::try_from(offset).ok();
                let rest = from.and_then(|from| clearing.models.get(from..)).unwrap_or_default();
                let n = rest.len().min(out.len());
                out[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            }
        }
    }

    /// Whether `ino` is one of a `source/`.
    pub fn is_source(&self, ino: Ino) -> bool {
        self.tree(ino).is_some_and(|(tree, local)| tree.fs.is_source(local))
    }

    /// See [`WeightFs::passes_through`].
    pub fn passes_through(&self, ino: Ino) -> Option<&File> {
        let (tree, local) = self.tree(ino)?;
        tree.fs.passes_through(local)
    }

    /// See [`WeightFs::foreseeable`].
    pub fn foreseeable(&self, ino: Ino) -> Option<u64> {
        let (tree, local) = self.tree(ino)?;
        tree.fs.foreseeable(local)
    }

    /// See [`WeightFs::foresee`].
    pub fn foresee(&self, ino: Ino, offset: u64, out: &mut [u8], reader: Reader) -> bool {
        self.tree(ino).is_some_and(|(tree, local)| tree.fs.foresee(local, offset, out, reader))
    }

    /// See [`WeightFs::read_at_once`].
    pub fn read_at_once(
        &self,
        ino: Ino,
        offset: u64,
        out: &mut [u8],
        reader: Reader,
    ) -> Option<usize> {
        let (tree, local) = self.tree(ino)?;
        tree.fs.read_at_once(local, offset, out, reader)
    }

    /// See [`WeightFs::serve_foreseen`].
    pub fn serve_foreseen(&self, ino: Ino, offset: u64, len: u64) -> Result<(), FsError> {
        let (tree, local) = self.tree(ino).ok_or(FsError::NotFound)?;
        tree.fs.serve_foreseen(local, offset, len)
    }

    /// See [`WeightFs::serve_short`].
    pub fn serve_short(&self, ino: Ino, len: u64) {
        if let Some((tree, _)) = self.tree(ino) {
            tree.fs.serve_short(len);
        }
    }

    /// The value of an extended attribute.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        match self.home(ino)? {
            Home::Own(..) => Err(FsError::NoAttribute),
            Home::Tree(tree, _, local) => tree.fs.xattr(local, name),
        }
    }

    /// Names of the attributes that have a value, each ended by NUL.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        match self.home(ino)? {
            Home::Own(..) => Ok(Vec::new()),
            Home::Tree(tree, _, local) => tree.fs.xattrs(local),
        }
    }

    /// How many lanes there are: each model has its own.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// See [`WeightFs::lane_of_attr`].
    pub fn lane_of_attr(&self, spot: Spot) -> Option<Lane> {
        let Spot::In(number, node) = spot else { return None };
        let tree = self.numbered(number).ok()?;
        tree.fs.lane_of_attr(node).map(|lane| tree.lane(lane))
    }

    /// See [`WeightFs::lane_of_open`].
    pub fn lane_of_open(&self, ino: Ino) -> Option<Lane> {
        let (tree, local) = self.tree(ino)?;
        tree.fs.lane_of_open(local).map(|lane| tree.lane(lane))
    }

    /// See [`WeightFs::lane_of_read`].
    pub fn lane_of_read(&self, ino: Ino, offset: u64) -> Option<Lane> {
        let (tree, local) = self.tree(ino)?;
        tree.fs.lane_of_read(local, offset).map(|lane| tree.lane(lane))
    }

    /// See [`WeightFs::lane_of_wait`].
    pub fn lane_of_wait(&self, ino: Ino, offset: u64) -> Option<Lane> {
        let (tree, local) = self.tree(ino)?;
        tree.fs.lane_of_wait(local, offset).map(|lane| tree.lane(lane))
    }

    /// See [`WeightFs::lane_of_trouble`].
    pub fn lane_of_trouble(&self, ino: Ino, offset: u64) -> Option<Lane> {
        let (tree, local) = self.tree(ino)?;
        tree.fs.lane_of_trouble(local, offset).map(|lane| tree.lane(lane))
    }

    /// The text of a live document of all models as of now.
    fn live(&self, live: Live) -> Vec<u8> {
        match live {
            Live::Status => live::status(self),
            Live::Metrics => live::metrics(self).into_bytes(),
        }
    }
}

impl Tree {
    fn lane(&self, lane: Lane) -> Lane {
        Lane(self.lane + lane.0)
    }

    fn attr(&self, spot: Spot, own: Attr) -> Attr {
        let beside = if own.ino == Ino::ROOT { directories(&self.beside) } else { 0 };
        Attr { ino: spot.ino(), nlink: own.nlink + beside, ..own }
    }
}

/// How many of the entries are directories: at most one for each model and what lies above it.
fn directories(entries: &[Entry]) -> u32 {
    entries.iter().filter(|entry| entry.spot.kind() == FileKind::Directory).count() as u32
}

/// Entries from position `from` on, of which the first has position `first`.
fn list(entries: &[Entry], first: u64, from: u64, emit: &mut dyn FnMut(u64, Spot, &[u8]) -> bool) {
    let passed = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
    for (i, entry) in entries.iter().enumerate().skip(passed) {
        if !emit(first + i as u64 + 1, entry.spot, &entry.name) {
            break;
        }
    }
}
