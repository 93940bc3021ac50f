//! The read path of one piece: copy a chunk, sum the copy, serve the copy.
//!
//! What a chunk's sum is compared with ([`Store::promise`]), how often it is looked at again
//! ([`Store::look_again`], the retry ladder) and when that is given up ([`Store::give_up`])
//! are three steps. A chunk that has failed is not read again before its latch or the breaker
//! of its tensor lets one reader through ([`Store::known_bad`]).

use super::breaker::{Admission, Patience};
use super::damage::{Bad, Found, Notice};
use super::grains::{self, GRAIN, SPAN};
use super::plain_crc::PlainCrc;
use super::status::count;
use super::{Basis, Corrupt, OnCorruption, ReadFailure, Store, StoreError};
use crate::seal::{Piece, crc_hex};
use crate::source::{IoMode, Source, SourceError};
use crc32fast::Hasher;
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes copied and summed at a time: the copy is still in the cache when it is summed.
const STEP: usize = 64 << 10;
/// Bytes per `pread`: each is a system call, on a network a journey.
const RUN: usize = 4 << 20;
/// Chunks up to this size are read whole where each read is a journey, whatever is wanted.
const AT_ONCE: u64 = 256 << 10;
/// Promised sums fetched at a time.
const SUMS: usize = 32;

/// Waits before the last looks at a chunk, give or take a fifth.
pub(super) const WAITS: &[Duration] =
    &[Duration::ZERO, Duration::from_millis(20), Duration::from_millis(80)];
/// No look begins later than this after the first.
const BUDGET: Duration = Duration::from_millis(250);

thread_local! {
    /// Bytes of a chunk that nobody asked for pass through here to be summed: at most
    /// [`AT_ONCE`] a thread, whatever the size of a chunk.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The part of a chunk that a read wants.
struct Wanted<'a> {
    /// The chunk's number in the model, and in its piece.
    chunk: u64,
    within: u64,
    /// Where the whole chunk lies in the file.
    offset: u64,
    len: u64,
    /// Where the wanted bytes begin in the file, and where they go.
    start: u64,
    out: &'a mut [u8],
}

impl Wanted<'_> {
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

/// How bytes are to be had.
#[derive(Clone, Copy)]
enum Way {
    /// As usual.
    Usual,
    /// They are in `out` already, all of the chunk.
    There,
    /// As usual, the sum computed in another way: the processor may have been wrong.
    Recomputed,
    /// Past the page cache.
    Direct,
}

impl Way {
    /// What was wrong when this way gives good bytes.
    fn verdict(self) -> &'static str {
        match self {
            Way::Direct => "its copy in the page cache was bad",
            _ => "its checksum was computed wrongly",
        }
    }
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
        let in_file = |part: Range<u64>| piece.offset + part.start..piece.offset + part.end;
        source.announce(in_file(from..end), in_file(whole_chunks), extent);
        let mut sums = Sums { first: 0, filled: 0, sums: [0; SUMS] };
        // Chunks before this one are in `out` already.
        let mut there = 0;
        let mut good = 0;
        for within in from / chunk_bytes..end.div_ceil(chunk_bytes) {
            let (offset, len) = grid.chunk_of(piece, within);
            let begin = (within * chunk_bytes).max(from);
            let stop = (within * chunk_bytes + len).min(end);
            let whole = stop - begin == len;
            if whole && within >= there && source.io() == IoMode::Pread {
                // As many whole chunks as there are, in one read; none that is known to be bad.
                let last =
                    if end == piece.len { end.div_ceil(chunk_bytes) } else { end / chunk_bytes };
                let most = last.min(within + (RUN as u64 / chunk_bytes).max(1));
                let to = (most * chunk_bytes).min(piece.len).min(end);
                let run = &mut out[good..good + (to - begin) as usize];
                let bad = self.damage.any_in(piece.first_chunk + within..piece.first_chunk + most);
                if !bad && source.read_at(piece.offset + begin, run).is_ok() {
                    there = most;
                }
                // If not, each chunk is tried by itself, and tells.
            }
            let way = if whole && within < there { Way::There } else { Way::Usual };
            let wanted = Wanted {
                chunk: piece.first_chunk + within,
                within,
                offset,
                len,
                start: piece.offset + begin,
                out: &mut out[good..good + (stop - begin) as usize],
            };
            let last = end.div_ceil(chunk_bytes);
            self.read_chunk(source, piece, &mut sums, last, way, wanted)
                .map_err(|error| ReadFailure { good, error })?;
            good += (stop - begin) as usize;
        }
        Ok(())
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
        let part = wanted.out.len() as u64 != wanted.len;
        if part && self.take_grains(source, &mut wanted) {
            count(&self.counters.chunks_checked, 1);
            self.mark(piece, promise.is_some());
            return Ok(());
        }
        let mut sums_of_grains = Vec::new();
        let found = take(source, way, &mut wanted, part.then_some(&mut sums_of_grains));
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
    fn take_grains(&self, source: &Source, wanted: &mut Wanted<'_>) -> bool {
        let from = wanted.start - wanted.offset;
        let end = from + wanted.out.len() as u64;
        for span in from / SPAN..end.div_ceil(SPAN) {
            let Some(sums) = self.grains.get(wanted.chunk, span) else {
                return false;
            };
            // The whole grains around what is wanted of the span, in bytes of the chunk.
            let first = from.max(span * SPAN) / GRAIN * GRAIN;
            let last = end.min((span + 1) * SPAN).next_multiple_of(GRAIN).min(wanted.len);
            let sums = &sums[((first - span * SPAN) / GRAIN) as usize..];
            let good = SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(scratch.len().max(STEP), 0);
                let bytes = &mut scratch[..(last - first) as usize];
                let good = source.read_at(wanted.offset + first, bytes).is_ok()
                    && bytes
                        .chunks(GRAIN as usize)
                        .zip(sums)
                        .all(|(grain, &sum)| crc32fast::hash(grain) == sum);
                wanted.copy_from(first, bytes);
                good
            });
            if !good {
                return false;
            }
        }
        true
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
    fn observe(&self, chunk: u64, found: u32) -> u32 {
        self.observed.as_ref().map_or(found, |seen| seen.first(chunk, found))
    }

    /// A chunk was not as promised, or could not be read: another copy of it may be.
    fn look_again(
        &self,
        source: &Source,
        piece: &Piece,
        promise: Option<u32>,
        found: Result<u32, SourceError>,
        wanted: &mut Wanted<'_>,
    ) -> Result<(), StoreError> {
        let started = Instant::now();
        if let Err(error @ SourceError::Changed { .. }) = found {
            return Err(StoreError::Stale(error));
        }
        // A file that changed explains it; that is no damage.
        source.check_unchanged().map_err(StoreError::from_source)?;
        if let Basis::Seal(seal) = &self.basis {
            // Nor is it damage of the model when its seal was written over.
            seal.check_unchanged().map_err(StoreError::Seal)?;
        }
        count(&self.counters.mismatches, 1);
        let mut found = match found {
            Ok(sum) => Found::Sum(sum),
            Err(error) => Found::Unreadable(error.to_string()),
        };
        let recompute = matches!(found, Found::Sum(_)).then_some((Way::Recomputed, Duration::ZERO));
        let waits = match self.breakers.patience(piece.first_chunk) {
            Patience::Ladder => self.waits,
            Patience::None => &self.waits[..1],
        };
        for (way, wait) in recompute.into_iter().chain(waits.iter().map(|&w| (Way::Direct, w))) {
            if !wait.is_zero() {
                let wait = jittered(wait);
                if started.elapsed() + wait >= BUDGET {
                    break;
                }
                std::thread::sleep(wait);
            }
            count(&self.counters.retries, 1);
            match take(source, way, wanted, None) {
                Ok(sum) if promise.unwrap_or_else(|| self.observe(wanted.chunk, sum)) == sum => {
                    self.tell_healed(source, piece, way, &found, wanted);
                    return Ok(());
                }
                // Of the usual look; what a computation that went wrong gave is of no interest.
                Ok(sum) => found = Found::Sum(sum),
                Err(error @ SourceError::Changed { .. }) => return Err(StoreError::Stale(error)),
                Err(error) if matches!(found, Found::Unreadable(_)) => {
                    found = Found::Unreadable(error.to_string());
                }
                Err(_) => {}
            }
        }
        source.check_unchanged().map_err(StoreError::from_source)?;
        self.give_up(source, piece, promise, found, false, wanted)
    }

    /// A further look was good.
    fn tell_healed(
        &self,
        source: &Source,
        piece: &Piece,
        way: Way,
        found: &Found,
        wanted: &Wanted<'_>,
    ) {
        count(&self.counters.healed, 1);
        if let Way::Direct = way {
            // The next reader would meet the same bad copy.
            source.evict(wanted.offset, wanted.len);
        }
        if self.damage.may_log_healed() {
            let verdict = match found {
                Found::Unreadable(_) => "the source stumbled",
                Found::Sum(_) => way.verdict(),
            };
            log::warn!(
                "{}: {} chunk {}: {} bytes at {} were bad at the first look ({found}) and good at a further one: {verdict}",
                source.path().display(),
                self.name_of(piece),
                wanted.within,
                wanted.len,
                wanted.offset,
            );
        }
    }

    /// A chunk that has failed before: refused from memory, but for one reader now and then who
    /// looks whether it is good by now.
    fn known_bad(
        &self,
        source: &Source,
        piece: &Piece,
        promise: Option<u32>,
        wanted: &mut Wanted<'_>,
    ) -> Result<(), StoreError> {
        let (key, chunk) = (piece.first_chunk, wanted.chunk);
        let known = self.damage.get(chunk);
        let promise = promise.or(known.as_ref().and_then(|bad| bad.expected));
        let mut found = known.map_or_else(
            || Found::Unreadable("it failed before, and is not looked at for now".into()),
            |bad| bad.found,
        );
        if self.breakers.admit(key, chunk, self.now()) == Admission::Refuse {
            return self.refuse(source, piece, Bad { expected: promise, found }, wanted);
        }
        for way in [Way::Usual, Way::Direct] {
            count(&self.counters.chunks_checked, 1);
            match take(source, way, wanted, None) {
                Ok(sum) if promise.unwrap_or_else(|| self.observe(chunk, sum)) == sum => {
                    self.damage.remove(chunk);
                    self.breakers.healed(key, chunk);
                    self.mark(piece, promise.is_some());
                    self.tell_healed(source, piece, way, &found, wanted);
                    return Ok(());
                }
                Ok(sum) => found = Found::Sum(sum),
                Err(error @ SourceError::Changed { .. }) => {
                    self.breakers.undecided(key, self.now());
                    return Err(StoreError::Stale(error));
                }
                Err(error) => found = Found::Unreadable(error.to_string()),
            }
        }
        count(&self.counters.mismatches, 1);
        self.give_up(source, piece, promise, found, true, wanted)
    }

    /// Monotonic time, for the breakers.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The chunk is bad.
    fn give_up(
        &self,
        source: &Source,
        piece: &Piece,
        promise: Option<u32>,
        found: Found,
        probe: bool,
        wanted: &mut Wanted<'_>,
    ) -> Result<(), StoreError> {
        self.breakers.failed(piece.first_chunk, wanted.chunk, self.now(), probe);
        let bad = Bad { expected: promise, found };
        let corrupt = self.corrupt(source, piece, wanted, &bad);
        let notice = self.damage.add(wanted.chunk, bad.clone());
        let refused = self.refuse(source, piece, bad, wanted);
        let what = match refused {
            Err(_) => "damaged",
            Ok(()) => "DAMAGED BYTES ARE SERVED (on_corruption=log)",
        };
        match notice {
            Notice::None => {}
            Notice::Line => log::error!("{what}: {corrupt}"),
            Notice::LastLine => {
                log::error!("{what}: {corrupt}; further lines of this kind are suppressed");
            }
        }
        refused
    }

    /// Answers for a chunk that is bad: an error, or the bytes as they are where that is wanted.
    /// Of those that cannot be read there are none.
    fn refuse(
        &self,
        source: &Source,
        piece: &Piece,
        bad: Bad,
        wanted: &mut Wanted<'_>,
    ) -> Result<(), StoreError> {
        let served = self.options.on_corruption == OnCorruption::Log
            && source.read_at(wanted.start, wanted.out).is_ok();
        if served {
            return Ok(());
        }
        Err(StoreError::Corrupt(Box::new(self.corrupt(source, piece, wanted, &bad))))
    }

    fn corrupt(&self, source: &Source, piece: &Piece, wanted: &Wanted<'_>, bad: &Bad) -> Corrupt {
        Corrupt {
            file: source.path().display().to_string(),
            what: self.name_of(piece),
            chunk: wanted.within,
            offset: wanted.offset,
            len: wanted.len,
            expected: bad.expected.map_or("unknown".to_owned(), crc_hex),
            found: bad.found.to_string(),
        }
    }
}

/// A wait of about so long: readers that failed together do not come back together.
fn jittered(wait: Duration) -> Duration {
    // Every RandomState hashes otherwise.
    let part = RandomState::new().hash_one(0) % 400;
    wait * (800 + part as u32) / 1000
}

/// A CRC32 being computed.
enum Sum {
    /// As fast as the processor can.
    Fast(Hasher),
    /// By the book, for a second opinion.
    Plain(PlainCrc),
}

impl Sum {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Sum::Fast(crc) => crc.update(bytes),
            Sum::Plain(crc) => crc.update(bytes),
        }
    }

    fn finalize(self) -> u32 {
        match self {
            Sum::Fast(crc) => crc.finalize(),
            Sum::Plain(crc) => crc.finalize(),
        }
    }
}

/// Copies the wanted bytes out and sums the whole chunk, in the order of the file. Of a chunk that
/// is wanted in part, the sums of its grains go to `grains`.
fn take(
    source: &Source,
    way: Way,
    wanted: &mut Wanted<'_>,
    mut grains: Option<&mut Vec<grains::Sums>>,
) -> Result<u32, SourceError> {
    let mut crc = match way {
        Way::Recomputed => Sum::Plain(PlainCrc::new()),
        _ => Sum::Fast(Hasher::new()),
    };
    if let Way::There = way {
        crc.update(wanted.out);
        return Ok(crc.finalize());
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
    let far = source.io() == IoMode::Pread;
    if wanted.out.len() as u64 == wanted.len {
        let mut at = wanted.start;
        for out in wanted.out.chunks_mut(if far { RUN } else { STEP }) {
            read(at, out)?;
            crc.update(out);
            at += out.len() as u64;
        }
        return Ok(crc.finalize());
    }
    SCRATCH.with_borrow_mut(|scratch| {
        // One journey, if it is not too long.
        let step = if far && wanted.len <= AT_ONCE { wanted.len as usize } else { STEP };
        scratch.resize(scratch.len().max(step), 0);
        let mut done = 0;
        while done < wanted.len {
            let bytes = &mut scratch[..(wanted.len - done).min(step as u64) as usize];
            read(wanted.offset + done, bytes)?;
            crc.update(bytes);
            if let Some(grains) = &mut grains {
                grains.extend(bytes.chunks(grains::SPAN as usize).map(grains::sums));
            }
            wanted.copy_from(done, bytes);
            done += bytes.len() as u64;
        }
        Ok(crc.finalize())
    })
}
