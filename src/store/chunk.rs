//! The read path of one piece: copy a chunk, sum the copy, serve the copy.
//!
//! What a chunk's sum is compared with, how often it is looked at again and when that
//! is given up are three separate steps here ([`Store::promise`], [`Store::look_again`],
//! [`Store::give_up`]), so that a retry ladder with waits and a breaker per tensor have
//! their places.

use super::damage::{Bad, Found, Notice};
use super::status::count;
use super::{Basis, Corrupt, OnCorruption, ReadFailure, Store, StoreError};
use crate::seal::{Piece, crc_hex};
use crate::source::{IoMode, Source, SourceError};
use crc32fast::Hasher;
use std::cell::RefCell;

/// Bytes copied and summed at a time: the copy is still in the cache when it is summed.
const STEP: usize = 64 << 10;
/// Bytes per `pread`: each is a system call, on a network a journey.
const RUN: usize = 4 << 20;
/// Promised sums fetched at a time.
const SUMS: usize = 32;

thread_local! {
    /// Bytes of a chunk that nobody asked for pass through here to be summed. One step
    /// per thread, whatever the size of a chunk.
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

/// How bytes are to be had.
#[derive(Clone, Copy)]
enum Way {
    /// As usual.
    Usual,
    /// They are in `out` already, all of the chunk.
    There,
    /// By `pread`, past the mapping.
    Pread,
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
    /// Reads `out.len()` bytes from `from` on of `piece`; the caller keeps them inside.
    pub(super) fn read_piece(
        &self,
        source: &Source,
        piece: &Piece,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), ReadFailure> {
        let grid = self.grid();
        let chunk_bytes = grid.chunk_bytes();
        let end = from + out.len() as u64;
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
                // As many whole chunks as there are, in one read.
                let last =
                    if end == piece.len { end.div_ceil(chunk_bytes) } else { end / chunk_bytes };
                let most = within + (RUN as u64 / chunk_bytes).max(1);
                let to = (last.min(most) * chunk_bytes).min(piece.len).min(end);
                let run = &mut out[good..good + (to - begin) as usize];
                if source.read_at(piece.offset + begin, run).is_ok() {
                    there = last.min(most);
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
        let found = take(source, way, &mut wanted);
        count(&self.counters.chunks_checked, 1);
        let good = match (promise, &found) {
            (Some(expected), Ok(found)) => expected == *found,
            (None, Ok(found)) => self.observe(wanted.chunk, *found) == *found,
            (_, Err(_)) => false,
        };
        if good {
            if self.damage.is_bad(wanted.chunk) && self.damage.remove(wanted.chunk) {
                count(&self.counters.healed, 1);
            }
        } else {
            let promise = promise.or_else(|| self.observed.as_ref()?.get(wanted.chunk));
            self.look_again(source, piece, promise, found, &mut wanted)?;
            if self.damage.is_bad(wanted.chunk) {
                return Ok(()); // served all the same; not to be called checked
            }
        }
        self.mark(piece, promise.is_some());
        if let Some(once) = &self.once {
            once.set(wanted.chunk);
        }
        Ok(())
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
        if let Err(error @ SourceError::Changed { .. }) = found {
            return Err(StoreError::Stale(error));
        }
        // A file that changed explains it; that is no damage.
        source.check_unchanged().map_err(StoreError::from_source)?;
        count(&self.counters.mismatches, 1);
        let mut found = match found {
            Ok(sum) => Found::Sum(sum),
            Err(error) => Found::Unreadable(error.to_string()),
        };
        if !self.damage.is_bad(wanted.chunk) {
            for way in [Way::Pread, Way::Direct] {
                count(&self.counters.retries, 1);
                match take(source, way, wanted) {
                    Ok(sum)
                        if promise.unwrap_or_else(|| self.observe(wanted.chunk, sum)) == sum =>
                    {
                        count(&self.counters.healed, 1);
                        log::warn!(
                            "{}: {} chunk {}: {} bytes at {} were wrong at the first look ({found}) and good at the next",
                            source.path().display(),
                            self.name_of(piece),
                            wanted.within,
                            wanted.len,
                            wanted.offset,
                        );
                        return Ok(());
                    }
                    Ok(sum) => found = Found::Sum(sum),
                    Err(error @ SourceError::Changed { .. }) => {
                        return Err(StoreError::Stale(error));
                    }
                    Err(_) => {}
                }
            }
            source.check_unchanged().map_err(StoreError::from_source)?;
        }
        self.give_up(source, piece, promise, found, wanted)
    }

    /// The chunk is bad.
    fn give_up(
        &self,
        source: &Source,
        piece: &Piece,
        promise: Option<u32>,
        found: Found,
        wanted: &mut Wanted<'_>,
    ) -> Result<(), StoreError> {
        let corrupt = Corrupt {
            file: source.path().display().to_string(),
            what: self.name_of(piece),
            chunk: wanted.within,
            offset: wanted.offset,
            len: wanted.len,
            expected: promise.map_or("unknown".to_owned(), crc_hex),
            found: found.to_string(),
        };
        // The bytes as they are, where that is wanted; of those that cannot be read there are none.
        let served = self.options.on_corruption == OnCorruption::Log
            && source.read_at(wanted.start, wanted.out).is_ok();
        let what = if served { "DAMAGED BYTES ARE SERVED (on_corruption=log)" } else { "damaged" };
        match self.damage.add(wanted.chunk, Bad { expected: promise, found }) {
            Notice::None => {}
            Notice::Line => log::error!("{what}: {corrupt}"),
            Notice::LastLine => {
                log::error!("{what}: {corrupt}; further lines of this kind are suppressed");
            }
        }
        if served { Ok(()) } else { Err(StoreError::Corrupt(Box::new(corrupt))) }
    }
}

/// Copies the wanted bytes out and sums the whole chunk, in the order of the file.
fn take(source: &Source, way: Way, wanted: &mut Wanted<'_>) -> Result<u32, SourceError> {
    let mut crc = Hasher::new();
    if let Way::There = way {
        crc.update(wanted.out);
        return Ok(crc.finalize());
    }
    let read = |offset: u64, out: &mut [u8]| match way {
        Way::Direct => {
            if source.reread_direct(offset, out)? {
                return Ok(());
            }
            source.reread_at(offset, out)
        }
        Way::Pread => source.reread_at(offset, out),
        Way::Usual | Way::There => source.read_at(offset, out),
    };
    let pass = |offset: u64, len: u64, crc: &mut Hasher| {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(STEP, 0);
            let mut done = 0;
            while done < len {
                let step = &mut scratch[..(len - done).min(STEP as u64) as usize];
                read(offset + done, step)?;
                crc.update(step);
                done += step.len() as u64;
            }
            Ok(())
        })
    };
    pass(wanted.offset, wanted.start - wanted.offset, &mut crc)?;
    let mut at = wanted.start;
    let step = if source.io() == IoMode::Pread { RUN } else { STEP };
    for out in wanted.out.chunks_mut(step) {
        read(at, out)?;
        crc.update(out);
        at += out.len() as u64;
    }
    pass(at, wanted.offset + wanted.len - at, &mut crc)?;
    Ok(crc.finalize())
}
