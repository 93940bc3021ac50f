//! Sources plus what was promised about them: the bytes one may serve.
//!
//! The one place where bytes are checked. A read copies each chunk it touches, sums
//! that private copy, and serves from it; what is wrong is looked at again past the
//! mapping and past the page cache before it is called bad. Without a seal, a chunk's
//! first sum is remembered and holds for later reads.
//!
//! No lock is held over I/O. Must not know names in the mount or views.

mod breaker;
mod chunk;
mod damage;
mod error;
mod grains;
mod ladder;
mod plain_crc;
mod status;
mod table;
mod tofu;

pub use crate::seal::{Checksum, Part, hex};
pub use error::{Corrupt, ReadFailure, StoreError};
pub use status::{BadChunk, Breaker, Status, TensorState, Trust};
pub use tofu::clear_old_tofu;

use crate::bytes::ReadAt;
use crate::model::{Extent, Model};
use crate::seal::{DEFAULT_CHUNK, Grid, MAX_CHUNK, Piece, Seal};
use crate::source::Source;
use crate::trust::{Anchor, Known, Told, agreement};
use breaker::Breakers;
use damage::Damage;
use grains::Grains;
use ladder::Climbing;
use status::{Counters, count};
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use table::{Bits, Observed};

/// Which reads are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Verify {
    /// Every one.
    #[default]
    Always,
    /// The first of each chunk.
    Once,
    /// None; the identity of the files is still watched.
    Off,
}

impl Verify {
    /// The word in options and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Verify::Always => "always",
            Verify::Once => "once",
            Verify::Off => "off",
        }
    }
}

/// What happens to bytes that fail their check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnCorruption {
    /// They are not served.
    #[default]
    Eio,
    /// They are served, with a line in the log.
    Log,
}

impl OnCorruption {
    /// The word of the option.
    pub const fn name(self) -> &'static str {
        match self {
            OnCorruption::Eio => "eio",
            OnCorruption::Log => "log",
        }
    }
}

/// How a store is to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StoreOptions {
    /// Which reads are checked.
    pub verify: Verify,
    /// What happens to bad bytes.
    pub on_corruption: OnCorruption,
    /// Whether the user named the seal: it is trusted more than one that was found.
    pub seal_given_on_command_line: bool,
}

/// What bytes are compared with.
#[derive(Debug)]
enum Basis {
    /// What was sealed.
    Seal(Box<Seal>),
    /// What was seen before, on this grid.
    Seen(Grid),
}

/// The open files of a model, checked.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
    /// Whether nobody waits for what is read: [`Store::unasked`].
    unasked: bool,
    /// Whether the kernel keeps what is read: [`Store::kept`].
    kept: bool,
}

/// What all handles of a store have in common.
#[derive(Debug)]
pub struct Shared {
    model: Arc<Model>,
    sources: Vec<Source>,
    basis: Basis,
    options: StoreOptions,
    /// What is written down elsewhere about the files.
    anchors: Vec<Told>,
    counters: Counters,
    damage: Damage,
    breakers: Breakers,
    climbing: Climbing,
    /// What the breakers' clock counts from.
    started: Instant,
    /// Before each further look at a bad chunk.
    waits: &'static [Duration],
    /// Sums seen without a seal.
    observed: Option<Observed>,
    /// What small reads are held to.
    grains: Grains,
    /// `verify=once`: chunks that were good in this mount.
    once: Option<Bits>,
    /// `verify=once`: files of which every chunk was.
    settled: Bits,
    /// Tensors of which something was compared with a promise and kept it.
    checked: Bits,
    /// Tensors of which something was served that there was no promise for.
    unchecked: Bits,
    any_checked: AtomicBool,
    any_unchecked: AtomicBool,
}

impl Deref for Store {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Basis {
    fn grid(&self) -> &Grid {
        match self {
            Basis::Seal(seal) => seal.grid(),
            Basis::Seen(grid) => grid,
        }
    }
}

/// Memory that the sums of an unsealed model may take, in chunks of 4 bytes each.
const OBSERVED: u64 = (16 << 20) / 4;

/// The largest chunk of which a part can be given back: who reads on needs the rest of it again.
const HELD: u64 = 1 << 20;

impl Store {
    /// Puts the parts together. `seal` was loaded for this model and these files, which are
    /// in the order of `model.shards`.
    pub fn new(
        model: impl Into<Arc<Model>>,
        sources: Vec<Source>,
        seal: Option<Seal>,
        options: StoreOptions,
    ) -> Store {
        let model = model.into();
        let observe = seal.is_none() && options.verify != Verify::Off;
        let basis = match seal {
            Some(seal) => Basis::Seal(Box::new(seal)),
            None => Basis::Seen(Grid::new(&model, unsealed_chunk(&model))),
        };
        let (chunks, tensors) = (basis.grid().chunks(), model.tensors.len() as u64);
        let shared = Shared {
            counters: Counters::default(),
            damage: Damage::new(chunks),
            breakers: Breakers::default(),
            climbing: Climbing::default(),
            started: Instant::now(),
            waits: ladder::WAITS,
            observed: observe.then(|| Observed::new(chunks)),
            grains: Grains::new(),
            once: (options.verify == Verify::Once).then(|| Bits::new(chunks)),
            settled: Bits::new(sources.len() as u64),
            checked: Bits::new(tensors),
            unchecked: Bits::new(tensors),
            any_checked: AtomicBool::new(false),
            any_unchecked: AtomicBool::new(false),
            model,
            sources,
            basis,
            options,
            anchors: Vec::new(),
        };
        Store { shared: Arc::new(shared), unasked: false, kept: false }
    }

    /// The same store, for bytes that somebody is likely to ask for soon. What cannot be had at
    /// the first look is no damage yet: it is not looked at again, told or remembered, and who
    /// asks for it finds out. Nor is it counted before it is served: [`Store::count_served`].
    pub fn unasked(&self) -> Store {
        Store { shared: Arc::clone(&self.shared), unasked: true, kept: self.kept }
    }

    /// The same store, for bytes that the kernel keeps in its page cache once they are served: they
    /// need not stay in its cache of the source as well, if they were not there before.
    pub fn kept(&self) -> Store {
        Store { shared: Arc::clone(&self.shared), unasked: self.unasked, kept: true }
    }

    /// Counts a read that was answered with `len` bytes from [`Store::unasked`].
    pub fn count_served(&self, len: u64) {
        count(&self.counters.reads, 1);
        self.count_delivered(len);
    }

    /// Counts `len` bytes that went out to a reader. What is read here may be turned on the way,
    /// or be a part of an answer that fails: only who answers knows how many they are.
    pub fn count_delivered(&self, len: u64) {
        count(&self.counters.bytes_served, len);
    }

    /// Compares what was sealed with `anchors`, and keeps what came of it. Whether one that
    /// disagrees is borne is for the caller to decide.
    pub fn with_anchors(mut self, anchors: &[Anchor]) -> Store {
        let known = self.seal().map(|seal| seal as &dyn Known);
        let told = |anchor| Told::new(anchor, known.and_then(|known| agreement(anchor, known)));
        let anchors = anchors.iter().map(told).collect();
        let shared =
            Arc::get_mut(&mut self.shared).expect("a store is put together before it is shared");
        shared.anchors = anchors;
        self
    }

    /// What is written down elsewhere about the files, in their order.
    pub fn anchors(&self) -> &[Told] {
        &self.anchors
    }

    /// The model whose bytes these are.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The open files, in the order of the model's shards.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The seal, if there is one.
    pub fn seal(&self) -> Option<&Seal> {
        match &self.basis {
            Basis::Seal(seal) => Some(seal),
            Basis::Seen(_) => None,
        }
    }

    /// Whether there is a seal.
    pub fn is_sealed(&self) -> bool {
        self.seal().is_some()
    }

    /// Bytes per chunk that is checked at a time: the seal's, or our own.
    pub fn chunk_bytes(&self) -> u64 {
        self.grid().chunk_bytes()
    }

    /// What it was told.
    pub fn options(&self) -> StoreOptions {
        self.options
    }

    /// Why its bytes may be believed.
    pub fn trust(&self) -> Trust {
        match self.seal() {
            Some(_) if self.options.seal_given_on_command_line => Trust::Pinned,
            Some(_) if self.is_of_store() => Trust::Store,
            Some(_) => Trust::Sidecar,
            None if self.options.verify == Verify::Off => Trust::None,
            None => Trust::Tofu,
        }
    }

    /// Whether every file was sealed with the SHA-256 that its content-addressed name says.
    fn is_of_store(&self) -> bool {
        let named = |shard| {
            let mut anchors = self.anchors.iter().filter(|anchor| anchor.shard == shard);
            anchors.any(|anchor| anchor.kind.is_store() && anchor.agrees == Some(true))
        };
        let disagrees = self.anchors.iter().any(|anchor| anchor.agrees == Some(false));
        !self.sources.is_empty() && !disagrees && (0..self.sources.len()).all(named)
    }

    /// Checksums of a stored tensor, from the seal.
    pub fn tensor_checksum(&self, index: usize) -> Option<Checksum> {
        self.seal()?.tensor(index)
    }

    /// As [`Store::tensor_checksum`], where the file that holds the tensor has the size and the
    /// modification time that it was sealed with: what may be believed without reading the bytes.
    pub fn fresh_checksum(&self, index: usize) -> Option<Checksum> {
        let shard = self.model.tensors.get(index)?.extent.shard as usize;
        let source = self.sources.get(shard)?;
        self.seal().filter(|seal| seal.is_of_time(shard, source))?.tensor(index)
    }

    /// SHA-256 of a whole source file, from the seal.
    pub fn source_sha256(&self, shard: usize) -> Option<[u8; 32]> {
        self.seal()?.source_sha256(shard)
    }

    /// Looks whether sources were written to, where that takes no time: of what the kernel keeps
    /// no reader comes by who would see it.
    pub fn glance(&self) {
        self.sources.iter().for_each(|source| {
            source.glance();
        });
    }

    /// As [`Store::glance`], at the file that a tensor lies in.
    pub fn glance_at(&self, tensor: usize) {
        let extent = self.model.tensors.get(tensor).map(|tensor| tensor.extent);
        if let Some(source) = extent.and_then(|e| self.sources.get(e.shard as usize)) {
            source.glance();
        }
    }

    /// What is known about a tensor's bytes.
    pub fn tensor_state(&self, index: usize) -> TensorState {
        let Some(tensor) = self.model.tensors.get(index) else {
            return TensorState::Unverified;
        };
        let extent = tensor.extent;
        if self.sources.get(extent.shard as usize).is_some_and(Source::is_changed) {
            return TensorState::Stale;
        }
        if self.damage.count() > 0
            && let Some(piece) = self.grid().pieces_from(extent.shard, extent.offset).next()
            && piece.part == Part::Tensor(index as u32)
            && self
                .damage
                .any_in(piece.first_chunk..piece.first_chunk + self.grid().chunks_of(&piece))
        {
            return match self.breakers.is_tripped(piece.first_chunk) {
                true => TensorState::Open,
                false => TensorState::Degraded,
            };
        }
        if self.checked.get(index as u64) && !self.unchecked.get(index as u64) {
            TensorState::Verified
        } else {
            TensorState::Unverified
        }
    }

    /// A source file through the checks, for what is decoded on demand. The caller knows
    /// how many shards there are; a shard that is not there has no bytes.
    pub fn shard(&self, shard: usize) -> Checked<'_> {
        Checked { store: self, shard }
    }

    /// Fills `out` with the bytes from `from` on of `extent`, which may cross tensors.
    /// On failure tells how many leading bytes of `out` are good.
    pub fn read(&self, extent: Extent, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        if !self.unasked {
            count(&self.counters.reads, 1);
        }
        let fail = |good, error| Err(ReadFailure { good, error });
        let shard = extent.shard;
        let outside = || StoreError::Outside {
            shard,
            offset: extent.offset.saturating_add(from),
            len: out.len() as u64,
        };
        let Some(source) = self.sources.get(shard as usize) else {
            return fail(0, outside());
        };
        let end = from.checked_add(out.len() as u64).filter(|&end| end <= extent.len);
        let file_end = end.and_then(|end| extent.offset.checked_add(end));
        if file_end.is_none_or(|end| end > source.len()) {
            return fail(0, outside());
        }
        if out.is_empty() {
            return Ok(());
        }
        if source.is_changed() {
            source
                .check_unchanged()
                .map_err(|e| ReadFailure { good: 0, error: StoreError::Stale(e) })?;
        }
        let start = extent.offset + from;
        // Ends inside the file or is cut there: what was asked for does.
        let whole = extent.offset..extent.offset.saturating_add(extent.len).min(source.len());
        let result = match self.options.verify {
            Verify::Off => {
                let wanted = start..start + out.len() as u64;
                source.announce(wanted.clone(), wanted, whole);
                self.read_unchecked(source, start, out)
            }
            Verify::Always | Verify::Once => self.read_checked(source, shard, whole, start, out),
        };
        if self.kept && self.chunk_bytes() <= HELD {
            source.pass_on(&(start..start + out.len() as u64), self.chunk_bytes());
        }
        // After the copy, so that nothing read from a changed file gets out, checked or not.
        if let Err(e) = source.check_unchanged() {
            return fail(0, StoreError::from_source(e));
        }
        result
    }

    /// Whether reads of a source file need no (more) check: `verify=off`, or `verify=once` when
    /// all of it was good.
    pub fn is_settled(&self, shard: u32) -> bool {
        let all_good = |once: &Bits| {
            let mut pieces = self.grid().pieces_from(shard, 0);
            pieces.all(|piece| {
                let mut chunks =
                    piece.first_chunk..piece.first_chunk + self.grid().chunks_of(&piece);
                chunks.all(|chunk| once.get(chunk))
            })
        };
        match self.options.verify {
            Verify::Always => false,
            Verify::Once => {
                let settled =
                    self.settled.get(shard.into()) || self.once.as_ref().is_some_and(all_good);
                if settled {
                    // For good: nobody forgets that a chunk was.
                    self.settled.set(shard.into());
                }
                settled
            }
            Verify::Off => true,
        }
    }

    fn read_unchecked(
        &self,
        source: &Source,
        start: u64,
        out: &mut [u8],
    ) -> Result<(), ReadFailure> {
        /// A page: what a device that fails loses at least.
        const STEP: usize = 4096;
        let Err(error) = source.read_at(start, out) else {
            return Ok(());
        };
        // Once more in small steps, for the good prefix.
        let mut good = 0;
        for out in out.chunks_mut(STEP) {
            if source.reread_at(start + good as u64, out).is_err() {
                return Err(ReadFailure { good, error: StoreError::from_source(error) });
            }
            good += out.len();
        }
        Ok(())
    }

    fn read_checked(
        &self,
        source: &Source,
        shard: u32,
        extent: Range<u64>,
        start: u64,
        out: &mut [u8],
    ) -> Result<(), ReadFailure> {
        let mut done = 0;
        for piece in self.grid().pieces_from(shard, start) {
            let from = start + done as u64 - piece.offset;
            let take = (piece.len - from).min((out.len() - done) as u64) as usize;
            self.read_piece(source, &piece, extent.clone(), from, &mut out[done..done + take])
                .map_err(|failure| ReadFailure { good: done + failure.good, ..failure })?;
            done += take;
            if done == out.len() {
                break;
            }
        }
        Ok(())
    }

    fn grid(&self) -> &Grid {
        self.basis.grid()
    }

    /// Remembers that bytes of `piece` were served, and whether they kept a promise.
    fn mark(&self, piece: &Piece, kept: bool) {
        let (bits, any) = if kept {
            (&self.checked, &self.any_checked)
        } else {
            (&self.unchecked, &self.any_unchecked)
        };
        if let Part::Tensor(index) = piece.part {
            bits.set(u64::from(index));
        }
        if !any.load(Ordering::Relaxed) {
            any.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something was served, and all of it kept a promise.
    fn all_checked(&self) -> bool {
        self.any_checked.load(Ordering::Relaxed) && !self.any_unchecked.load(Ordering::Relaxed)
    }

    /// How a message calls a piece.
    fn name_of(&self, piece: &Piece) -> String {
        let tensor = match piece.part {
            Part::Tensor(index) => self.model.tensors.get(index as usize),
            _ => None,
        };
        match tensor {
            Some(tensor) => format!("tensor {:?}", String::from_utf8_lossy(&tensor.name)),
            None => piece.part.kind().to_owned(),
        }
    }
}

/// The chunk size for a model without a seal: the default one, unless its sums would take
/// too much memory.
fn unsealed_chunk(model: &Model) -> u64 {
    let bytes: u64 = model.shards.iter().map(|s| s.len).sum();
    // Each piece can have one short chunk; there is padding for each tensor at most.
    let short = 2 * model.tensors.len() as u64 + 2 * model.shards.len() as u64;
    let mut chunk = DEFAULT_CHUNK;
    while chunk < MAX_CHUNK && bytes / chunk + short > OBSERVED {
        chunk *= 2;
    }
    chunk
}

/// One source file of a store, through the checks.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    store: &'a Store,
    shard: usize,
}

impl ReadAt for Checked<'_> {
    fn len(&self) -> u64 {
        self.store.sources.get(self.shard).map_or(0, Source::len)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let len = ReadAt::len(self);
        let extent = Extent { shard: self.shard as u32, offset: 0, len };
        self.store.read(extent, offset, out).map_err(io::Error::other)
    }
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod lost;
