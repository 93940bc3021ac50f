//! The read path of one piece: copy a chunk, sum the copy, serve the copy.
//!
//! What the sum of a chunk is compared with is [`Store::promise`]. One that does not keep it, or
//! cannot be read, is handed to the ladder, and so is one that has failed before.

use super::grains::{self, GRAIN, SPAN, Summing};
use super::plain_crc::PlainCrc;
use super::status::count;
use super::{Basis, ReadFailure, Store, StoreError};
use crate::seal::Piece;
use crate::source::{IoMode, Source, SourceError};
use crc32fast::Hasher;
use std::cell::RefCell;
use std::ops::Range;

/// Bytes copied and summed at a time: the copy is still in the cache when it is summed.
const STEP: usize = 64 << 10;
/// Bytes per `pread`: each is a system call, on a network a journey.
const RUN: usize = 4 << 20;
/// Chunks up to this size are read whole where each read is a journey, whatever is wanted.
const AT_ONCE: u64 = 256 << 10;
/// Promised sums fetched at a time.
const SUMS: usize = 32;

/// Reads that a source gets for one that fails through the page cache: the kernel asks once more
/// for the page, and gives what came before it; who goes on there has it asked for again.
const FAILED_READS: usize = 3;

thread_local! {
    /// Bytes of a chunk that nobody asked for pass through here to be summed: at most
    /// [`AT_ONCE`] a thread, whatever the size of a chunk.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The part of a chunk that a read wants.
pub(super) struct Wanted<'a> {
    /// The chunk's number in the model, and in its piece.
    pub(super) chunk: u64,
    pub(super) within: u64,
    /// Where the whole chunk lies in the file.
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Where the wanted bytes begin in the file, and where they go.
    pub(super) start: u64,
    pub(super) out: &'a mut [u8],
    /// Reads of the source that it has cost so far.
    pub(super) cost: usize,
    /// Whether the last look left all of the chunk, as it came, in `out` or, where that holds a
    /// part, in [`SCRATCH`].
    pub(super) at_hand: bool,
}

impl Wanted<'_> {
    /// Whether it is the whole chunk.
    fn is_whole(&self) -> bool {
        self.out.len() as u64 == self.len
    }

    /// Copies out what is wanted of `bytes`, which lie `at` bytes into the chunk.
    fn copy_from(&mut self, at: u64, bytes: &[u8]) {
        // The wanted part, in bytes of the chunk.
        let from = self.start - self.offset;
        let to = from + self.out.len() as u64;
        let (first, last) = (from.max(at), to.min(at + bytes.len() as u64));
        if first < last {
            self.out[(first - from) as usize..(last - from) as usize]
                .copy_from_slice(&bytes[(first - at) as usize..(last - at) as usize]);
        }
    }
}

/// What the grains that are known of a chunk say about the part that is wanted.
enum Grains {
    /// They keep their sums, and are in `out`.
    Good,
    /// Not all are known, or one does not keep its sum: the chunk has to be looked at.
    Unsure,
    /// They could not be read.
    Failed(SourceError),
}

/// How bytes are to be had.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// As usual.
    Usual,
    /// They are in `out` already, all of the chunk.
    There,
    /// As they came a moment ago, the sum computed in another way: the processor may have been
    /// wrong.
    Recomputed,
    /// Past the page cache.
    Direct,
}

/// The promise for chunks of one piece, fetched in batches.
struct Sums {
    first: u64,
    filled: usize,
    sums: [u32; SUMS],
}

impl Store {
    /// Reads `out.len()` bytes from `from` on of `piece`; the caller keeps them inside. They are
    /// part of what a reader of `extent` asked for, in bytes of the file.
    pub(super) fn read_piece(
        &self,
        source: &Source,
        piece: &Piece,
        extent: Range<u64>,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), ReadFailure> {
        let grid = self.grid();
        let chunk_bytes = grid.chunk_bytes();
        let end = from + out.len() as u64;
        let whole_chunks =
            from / chunk_bytes * chunk_bytes..end.next_multiple_of(chunk_bytes).min(piece.len);
        let fetched = self.announce(source, piece, from..end, whole_chunks, extent);
        let mut sums = Sums { first: 0, filled: 0, sums: [0; SUMS] };
        // Chunks before these are in `out` already, or were part of a read that failed.
        let (mut there, mut failed) = (0, 0);
        let mut good = 0;
        for within in from / chunk_bytes..end.div_ceil(chunk_bytes) {
            let (offset, len) = grid.chunk_of(piece, within);
            let begin = (within * chunk_bytes).max(from);
            let stop = (within * chunk_bytes + len).min(end);
            let whole = stop - begin == len;
            let tried = !fetched || within < there.max(failed);
            if whole && !tried && source.io() == IoMode::Pread {
                // As many whole chunks as there are, in one read; none that is known to be bad.
                let last =
                    if end == piece.len { end.div_ceil(chunk_bytes) } else { end / chunk_bytes };
                let most = last.min(within + (RUN as u64 / chunk_bytes).max(1));
                let to = (most * chunk_bytes).min(piece.len).min(end);
                let run = &mut out[good..good + (to - begin) as usize];
                let bad = self.damage.any_in(piece.first_chunk + within..piece.first_chunk + most);
                if !bad {
                    match source.read_at(piece.offset + begin, run) {
                        Ok(()) => there = most,
                        Err(error) => {
                            failed = most;
                            if !self.unasked {
                                self.wait_after(&error, piece);
                            }
                        }
                    }
                }
            }
            // Of a read that failed, each chunk is tried by itself, and tells.
            let (way, cost) = match whole {
                true if within < there => (Way::There, 1),
                true if within < failed => (Way::Direct, FAILED_READS),
                _ if fetched => (Way::Usual, 0),
                _ if source.reads_direct() => (Way::Direct, 1),
                _ => (Way::Usual, 1),
            };
            let wanted = Wanted {
                chunk: piece.first_chunk + within,
                within,
                offset,
                len,
                start: piece.offset + begin,
                out: &mut out[good..good + (stop - begin) as usize],
                cost,
                at_hand: false,
            };
            let last = end.div_ceil(chunk_bytes);
            self.read_chunk(source, piece, &mut sums, last, way, wanted)
                .map_err(|error| ReadFailure { good, error })?;
            good += (stop - begin) as usize;
        }
        Ok(())
    }

    /// Tells `source` that `wanted` of `piece` is asked for and `around` will be read for it.
    /// Nothing is read ahead of a chunk that is known to be bad. False when something was, and
    /// could not be had.
    fn announce(
        &self,
        source: &Source,
        piece: &Piece,
        wanted: Range<u64>,
        around: Range<u64>,
        extent: Range<u64>,
    ) -> bool {
        let chunk_bytes = self.grid().chunk_bytes();
        let farthest = (around.end + RUN as u64).min(piece.len).div_ceil(chunk_bytes);
        let chunks = wanted.start / chunk_bytes..farthest;
        let bad =
            self.damage.first_in(piece.first_chunk + chunks.start..piece.first_chunk + chunks.end);
        let stop = bad.map_or(u64::MAX, |bad| (bad - piece.first_chunk) * chunk_bytes);
        if wanted.start >= stop {
            return true;
        }
        let in_file =
            |part: Range<u64>| piece.offset + part.start..piece.offset + part.end.min(stop);
        let extent = extent.start..extent.end.min(piece.offset.saturating_add(stop));
        source.announce(in_file(wanted), in_file(around), extent)
    }

    fn read_chunk(
        &self,
        source: &Source,
        piece: &Piece,
        sums: &mut Sums,
        last: u64,
        way: Way,
        mut wanted: Wanted<'_>,
    ) -> Result<(), StoreError> {
        let once = self.once.as_ref().filter(|bits| bits.get(wanted.chunk));
        if once.is_some() {
            return match way {
                Way::There => Ok(()),
                _ => source.read_at(wanted.start, wanted.out).map_err(StoreError::from_source),
            };
        }
        let promise = self.promise(piece, sums, wanted.within, wanted.chunk, last)?;
        let known_bad = self.damage.is_bad(wanted.chunk);
        if known_bad && self.unasked {
            return Err(StoreError::Unasked);
        }
        if known_bad {
            return self.known_bad(source, piece, promise, &mut wanted);
        }
        let part = !wanted.is_whole();
        let known = if part { self.take_grains(source, &mut wanted) } else { Grains::Unsure };
        let mut sums_of_grains = Vec::new();
        let found = match known {
            Grains::Good => {
                count(&self.counters.chunks_checked, 1);
                self.mark(piece, promise.is_some());
                return Ok(());
            }
            Grains::Unsure => take(source, way, &mut wanted, part.then_some(&mut sums_of_grains)),
            Grains::Failed(error) => Err(error),
        };
        count(&self.counters.chunks_checked, 1);
        let good = match (promise, &found) {
            (Some(expected), Ok(found)) => expected == *found,
            (None, Ok(found)) => self.observe(wanted.chunk, *found) == *found,
            (_, Err(_)) => false,
        };
        if !good && self.unasked {
            return Err(StoreError::Unasked);
        }
        if !good {
            let promise = promise.or_else(|| self.observed.as_ref()?.get(wanted.chunk));
            self.look_again(source, piece, promise, found, &mut wanted)?;
            if self.damage.is_bad(wanted.chunk) {
                return Ok(()); // served all the same; not to be called checked
            }
        }
        if good {
            for (span, sums) in (0..).zip(sums_of_grains) {
                self.grains.put(wanted.chunk, span, sums);
            }
        }
        self.mark(piece, promise.is_some());
        if let Some(once) = &self.once {
            once.set(wanted.chunk);
        }
        Ok(())
    }

    /// Fills `out` from a chunk whose grains are known, if they are and keep their sums.
    fn take_grains(&self, source: &Source, wanted: &mut Wanted<'_>) -> Grains {
        let from = wanted.start - wanted.offset;
        let end = from + wanted.out.len() as u64;
        let spans = from / SPAN..end.div_ceil(SPAN);
        if !spans.clone().all(|span| self.grains.get(wanted.chunk, span).is_some()) {
            return Grains::Unsure;
        }
        for span in spans {
            // Its place may have been taken meanwhile.
            let Some(sums) = self.grains.get(wanted.chunk, span) else {
                return Grains::Unsure;
            };
            // The whole grains around what is wanted of the span, in bytes of the chunk.
            let first = from.max(span * SPAN) / GRAIN * GRAIN;
            let last = end.min((span + 1) * SPAN).next_multiple_of(GRAIN).min(wanted.len);
            let sums = &sums[((first - span * SPAN) / GRAIN) as usize..];
            let good = SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(scratch.len().max(STEP), 0);
                let bytes = &mut scratch[..(last - first) as usize];
                source.read_at(wanted.offset + first, bytes)?;
                wanted.copy_from(first, bytes);
                let mut grains = bytes.chunks(GRAIN as usize).zip(sums);
                Ok(grains.all(|(grain, &sum)| crc32fast::hash(grain) == sum))
            });
            match good {
                Ok(true) => {}
                Ok(false) => {
                    wanted.cost += 1;
                    return Grains::Unsure;
                }
                Err(error) => {
                    wanted.cost += FAILED_READS;
                    return Grains::Failed(error);
                }
            }
        }
        Grains::Good
    }

    /// What the sum of a chunk has to be, if anything is known: by the seal, or by what was
    /// served before.
    fn promise(
        &self,
        piece: &Piece,
        sums: &mut Sums,
        within: u64,
        chunk: u64,
        last: u64,
    ) -> Result<Option<u32>, StoreError> {
        let Basis::Seal(seal) = &self.basis else {
            return Ok(self.observed.as_ref().and_then(|seen| seen.get(chunk)));
        };
        let held = |sums: &Sums| within >= sums.first && within < sums.first + sums.filled as u64;
        if !held(sums) {
            let take = (last - within).min(SUMS as u64) as usize;
            seal.expected(piece, within, &mut sums.sums[..take]).map_err(StoreError::Seal)?;
            (sums.first, sums.filled) = (within, take);
        }
        Ok(Some(sums.sums[(within - sums.first) as usize]))
    }

    /// Keeps the first sum of a chunk; the one that holds.
    pub(super) fn observe(&self, chunk: u64, found: u32) -> u32 {
        self.observed.as_ref().map_or(found, |seen| seen.first(chunk, found))
    }
}

/// A CRC32 being computed.
enum Sum<'a> {
    /// As fast as the processor can.
    Fast(Hasher),
    /// From those of grains, which are wanted as well.
    Joined(Summing<'a>),
    /// By the book, for a second opinion.
    Plain(PlainCrc),
}

impl Sum<'_> {
    /// Of nothing yet, whatever it was.
    fn begin(&mut self) {
        match self {
            Sum::Fast(crc) => *crc = Hasher::new(),
            Sum::Joined(grains) => grains.begin(),
            Sum::Plain(crc) => *crc = PlainCrc::new(),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Sum::Fast(crc) => crc.update(bytes),
            Sum::Joined(grains) => grains.update(bytes),
            Sum::Plain(crc) => crc.update(bytes),
        }
    }

    fn finalize(self) -> u32 {
        match self {
            Sum::Fast(crc) => crc.finalize(),
            Sum::Joined(grains) => grains.finalize(),
            Sum::Plain(crc) => crc.finalize(),
        }
    }
}

/// Copies the wanted bytes out and sums the whole chunk, in the order of the file. Of a chunk that
/// is wanted in part, the sums of its grains go to `grains`.
pub(super) fn take(
    source: &Source,
    way: Way,
    wanted: &mut Wanted<'_>,
    grains: Option<&mut Vec<grains::Sums>>,
) -> Result<u32, SourceError> {
    let at_hand = std::mem::take(&mut wanted.at_hand);
    let mut crc = match (way, grains) {
        (Way::Recomputed, _) => Sum::Plain(PlainCrc::new()),
        (_, Some(grains)) => Sum::Joined(Summing::new(grains)),
        (_, None) => Sum::Fast(Hasher::new()),
    };
    match way {
        Way::There => {
            crc.update(wanted.out);
            wanted.at_hand = true;
        }
        Way::Recomputed if at_hand && wanted.is_whole() => crc.update(wanted.out),
        // Nothing else was read by this thread since.
        Way::Recomputed if at_hand => {
            SCRATCH.with_borrow(|scratch| crc.update(&scratch[..wanted.len as usize]));
        }
        Way::Usual | Way::Recomputed | Way::Direct => {
            let result = copy(source, way, wanted, &mut crc);
            wanted.cost += match way {
                Way::Recomputed if source.io() == IoMode::Mmap => 0,
                Way::Usual if result.is_err() => FAILED_READS,
                _ => 1,
            };
            result?;
        }
    }
    Ok(crc.finalize())
}

fn copy(
    source: &Source,
    way: Way,
    wanted: &mut Wanted<'_>,
    crc: &mut Sum<'_>,
) -> Result<(), SourceError> {
    if matches!(way, Way::Usual) {
        if copy_mapped(source, wanted, crc)? {
            return Ok(());
        }
        crc.begin();
    }
    let read = |offset: u64, out: &mut [u8]| match way {
        Way::Direct => {
            if source.reread_direct(offset, out)? {
                return Ok(());
            }
            source.evict(offset, out.len() as u64);
            source.reread_at(offset, out)
        }
        Way::Usual | Way::There | Way::Recomputed => source.read_at(offset, out),
    };
    // The mapping may be lost meanwhile: what is said of this look is said of its own way.
    let far = source.io() == IoMode::Pread;
    if wanted.is_whole() {
        let mut at = wanted.start;
        for out in wanted.out.chunks_mut(if far { RUN } else { STEP }) {
            read(at, out)?;
            crc.update(out);
            at += out.len() as u64;
        }
        wanted.at_hand = far;
        return Ok(());
    }
    SCRATCH.with_borrow_mut(|scratch| {
        // Each read may be a journey.
        let step = if far { AT_ONCE } else { STEP as u64 }.min(wanted.len);
        scratch.resize(scratch.len().max(step as usize), 0);
        let mut done = 0;
        while done < wanted.len {
            let bytes = &mut scratch[..(wanted.len - done).min(step) as usize];
            read(wanted.offset + done, bytes)?;
            crc.update(bytes);
            wanted.copy_from(done, bytes);
            done += bytes.len() as u64;
        }
        wanted.at_hand = far && step == wanted.len;
        Ok(())
    })
}

/// From a mapping, summed on the way; `Ok(false)`, and nothing promised, where there is none (any
/// more).
fn copy_mapped(
    source: &Source,
    wanted: &mut Wanted<'_>,
    crc: &mut Sum<'_>,
) -> Result<bool, SourceError> {
    if wanted.is_whole() {
        return source.read_through(wanted.start, wanted.out, |piece| crc.update(piece));
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(scratch.len().max(STEP), 0);
        let mut done = 0;
        while done < wanted.len {
            let bytes = &mut scratch[..(wanted.len - done).min(STEP as u64) as usize];
            if !source.read_through(wanted.offset + done, bytes, |piece| crc.update(piece))? {
                return Ok(false);
            }
            wanted.copy_from(done, bytes);
            done += bytes.len() as u64;
        }
        Ok(true)
    })
}
