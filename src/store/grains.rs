//! Sums of parts of chunks that were good, so that small reads need not sum whole chunks.
//!
//! A promise is made for a chunk. Who reads a little of it has the whole chunk summed
//! once; the sums of its grains are taken of the same private copy, and what is read of it later
//! is held to these. A grain that does not keep its sum is no verdict: the chunk is summed as a
//! whole again, and that is.
//!
//! Memory is fixed: a table in which what comes later takes the place of what was there.

use crate::bytes::crc::{self, Shift};
use std::sync::{Mutex, PoisonError};

/// Bytes of a grain: a page, what small reads are made of.
pub(super) const GRAIN: u64 = 4 << 10;
/// Bytes whose grains stand in one slot.
pub(super) const SPAN: u64 = 64 << 10;
/// Grains of a span.
pub(super) const GRAINS: usize = (SPAN / GRAIN) as usize;

/// Tables, each with a lock of its own: readers of different spans do not meet.
const TABLES: u64 = 64;
/// Slots of a table.
const SLOTS: u64 = 512;
/// Spans of the largest chunk.
const SPANS: u64 = crate::seal::MAX_CHUNK / SPAN;

/// Sums of the grains of a span; those behind its end are 0.
pub(super) type Sums = [u32; GRAINS];

/// The sums of the grains of `span`, which is a span or its beginning.
pub(super) fn sums(span: &[u8]) -> Sums {
    let mut sums = [0; GRAINS];
    for (sum, grain) in sums.iter_mut().zip(span.chunks(GRAIN as usize)) {
        *sum = crc32fast::hash(grain);
    }
    sums
}

/// The sum of all bytes up to the end of a span of `len` bytes, from `sum`, that of those in front
/// of it, and the span's own.
pub(super) fn join(sum: u32, sums: &Sums, len: usize) -> u32 {
    let whole = len / GRAIN as usize;
    let grain = Shift::by_power(GRAIN.ilog2());
    let sum = sums[..whole].iter().fold(sum, |sum, next| grain.moved(sum) ^ next);
    match len as u64 % GRAIN {
        0 => sum,
        rest => crc::moved_by(rest, sum) ^ sums[whole],
    }
}

/// The sums of the spans that were read in part of late.
#[derive(Debug)]
pub(super) struct Grains {
    tables: [Mutex<Vec<Slot>>; TABLES as usize],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Of nothing yet: [`NONE`].
    key: u64,
    sums: Sums,
}

const NONE: u64 = u64::MAX;

/// What a span is called: chunks are numbered through the model.
fn key(chunk: u64, span: u64) -> u64 {
    chunk * SPANS + span
}

impl Default for Grains {
    fn default() -> Grains {
        Grains { tables: [const { Mutex::new(Vec::new()) }; TABLES as usize] }
    }
}

impl Grains {
    /// The sums of a span of a chunk, if they are known.
    pub(super) fn get(&self, chunk: u64, span: u64) -> Option<Sums> {
        let (table, slot) = place(chunk, span);
        let table = self.tables[table].lock().unwrap_or_else(PoisonError::into_inner);
        let slot = table.get(slot)?;
        (slot.key == key(chunk, span)).then_some(slot.sums)
    }

    /// Keeps the sums of a span of a chunk that was good.
    pub(super) fn put(&self, chunk: u64, span: u64, sums: Sums) {
        let (table, slot) = place(chunk, span);
        let mut table = self.tables[table].lock().unwrap_or_else(PoisonError::into_inner);
        if table.is_empty() {
            *table = vec![Slot { key: NONE, sums: [0; GRAINS] }; SLOTS as usize];
        }
        table[slot] = Slot { key: key(chunk, span), sums };
    }
}

/// Neighbours have places of their own, whatever the size of a chunk.
fn place(chunk: u64, span: u64) -> (usize, usize) {
    let number = chunk.wrapping_mul(if span == 0 { 1 } else { SPANS + 1 }).wrapping_add(span);
    // Both below constants that are usizes.
    ((number % TABLES) as usize, (number / TABLES % SLOTS) as usize)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_there_until_its_place_is_taken() {
        let grains = Grains::default();
        assert_eq!(grains.get(3, 0), None);
        grains.put(3, 0, [7; GRAINS]);
        assert_eq!(grains.get(3, 0), Some([7; GRAINS]));
        assert_eq!(grains.get(3, 1), None);
        assert_eq!(grains.get(3 + TABLES * SLOTS, 0), None, "the same place, another chunk");
        grains.put(3 + TABLES * SLOTS, 0, [8; GRAINS]);
        assert_eq!(grains.get(3, 0), None);
    }

    #[test]
    fn the_grains_give_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        for len in [0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 200_000] {
            let bytes = &bytes[..len];
            let spans = bytes.chunks(SPAN as usize);
            let sum = spans.fold(0, |sum, span| join(sum, &sums(span), span.len()));
            assert_eq!(sum, crc32fast::hash(bytes), "{len}");
        }
    }

    #[test]
    fn neighbours_do_not_push_each_other_out() {
        let grains = Grains::default();
        for chunk in 0..TABLES * SLOTS {
            grains.put(chunk, 0, [chunk as u32; GRAINS]);
        }
        for chunk in 0..TABLES * SLOTS {
            assert_eq!(grains.get(chunk, 0), Some([chunk as u32; GRAINS]));
        }
        let grains = Grains::default();
        for span in 0..SPANS {
            grains.put(5, span, [span as u32; GRAINS]);
        }
        assert!((0..SPANS).all(|span| grains.get(5, span) == Some([span as u32; GRAINS])));
    }
}
