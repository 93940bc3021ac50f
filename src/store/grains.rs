//! Sums of parts of chunks that were good, so that small reads need not sum whole chunks.
//!
//! A promise is made for a chunk. Who reads a little of it has the whole chunk summed
//! once; the sums of its grains are taken of the same private copy, and what is read of it later
//! is held to these. A grain that does not keep its sum is no verdict: the chunk is summed as a
//! whole again, and that is.
//!
//! Memory is fixed, for all stores of a process together: tables in which what comes later takes
//! the place of what was there.

use crate::bytes::crc::{self, Shift};
use crc32fast::Hasher;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

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

/// The sums of the grains of a chunk and that of the whole, of bytes that come in pieces.
#[derive(Debug)]
pub(super) struct Summing<'a> {
    /// Of all whole spans.
    whole: u32,
    /// Those of their grains.
    spans: &'a mut Vec<Sums>,
    /// Of the span that is being summed, and how many bytes of it there are.
    span: Sums,
    len: usize,
    /// Of the grain that is being summed.
    grain: Hasher,
}

impl<'a> Summing<'a> {
    /// Of nothing yet; the grains' sums go to `spans`.
    pub(super) fn new(spans: &'a mut Vec<Sums>) -> Summing<'a> {
        spans.clear();
        Summing { whole: 0, spans, span: [0; GRAINS], len: 0, grain: Hasher::new() }
    }

    /// Of nothing again.
    pub(super) fn begin(&mut self) {
        self.spans.clear();
        (self.whole, self.span, self.len) = (0, [0; GRAINS], 0);
        self.grain = Hasher::new();
    }

    /// The next bytes.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = GRAIN as usize - self.len % GRAIN as usize;
            let (now, later) = bytes.split_at(left.min(bytes.len()));
            self.grain.update(now);
            self.len += now.len();
            bytes = later;
            if now.len() == left {
                self.end_grain();
            }
            if self.len == SPAN as usize {
                self.end_span();
            }
        }
    }

    fn end_grain(&mut self) {
        let grain = std::mem::take(&mut self.grain);
        self.span[(self.len - 1) / GRAIN as usize] = grain.finalize();
    }

    fn end_span(&mut self) {
        self.whole = join(self.whole, &self.span, self.len);
        self.spans.push(std::mem::replace(&mut self.span, [0; GRAINS]));
        self.len = 0;
    }

    /// The sum of all bytes.
    pub(super) fn finalize(mut self) -> u32 {
        if !self.len.is_multiple_of(GRAIN as usize) {
            self.end_grain();
        }
        if self.len > 0 {
            self.end_span();
        }
        self.whole
    }
}

/// The sum of all bytes up to the end of a span of `len` bytes, from `sum`, that of those in front
/// of it, and those of its grains.
fn join(sum: u32, sums: &Sums, len: usize) -> u32 {
    let whole = len / GRAIN as usize;
    let grain = Shift::by_power(GRAIN.ilog2());
    let sum = sums[..whole].iter().fold(sum, |sum, next| grain.moved(sum) ^ next);
    match len as u64 % GRAIN {
        0 => sum,
        rest => crc::moved_by(rest, sum) ^ sums[whole],
    }
}

/// The tables of all stores.
static SHARED: LazyLock<Arc<Tables>> = LazyLock::new(Arc::default);
/// The number of the next store.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The sums of the spans of one store that were read in part of late.
#[derive(Debug)]
pub(super) struct Grains {
    tables: Arc<Tables>,
    /// The store's number.
    of: u32,
}

#[derive(Debug)]
struct Tables([Mutex<Vec<Slot>>; TABLES as usize]);

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Of nothing yet: [`NONE`].
    key: u64,
    of: u32,
    sums: Sums,
}

const NONE: u64 = u64::MAX;

/// What a span is called: chunks are numbered through the model.
fn key(chunk: u64, span: u64) -> u64 {
    chunk * SPANS + span
}

impl Default for Tables {
    fn default() -> Tables {
        Tables([const { Mutex::new(Vec::new()) }; TABLES as usize])
    }
}

impl Grains {
    /// Those of one more store.
    pub(super) fn new() -> Grains {
        // Tests count what is summed, beside each other.
        let tables = if cfg!(test) { Arc::default() } else { Arc::clone(&SHARED) };
        Grains::in_tables(tables)
    }

    fn in_tables(tables: Arc<Tables>) -> Grains {
        Grains { tables, of: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The sums of a span of a chunk, if they are known.
    pub(super) fn get(&self, chunk: u64, span: u64) -> Option<Sums> {
        let (table, slot) = self.place(chunk, span);
        let table = self.tables.0[table].lock().unwrap_or_else(PoisonError::into_inner);
        let slot = table.get(slot)?;
        ((slot.of, slot.key) == (self.of, key(chunk, span))).then_some(slot.sums)
    }

    /// Keeps the sums of a span of a chunk that was good.
    pub(super) fn put(&self, chunk: u64, span: u64, sums: Sums) {
        let (table, slot) = self.place(chunk, span);
        let mut table = self.tables.0[table].lock().unwrap_or_else(PoisonError::into_inner);
        if table.is_empty() {
            *table = vec![Slot { key: NONE, of: 0, sums: [0; GRAINS] }; SLOTS as usize];
        }
        table[slot] = Slot { key: key(chunk, span), of: self.of, sums };
    }

    /// Neighbours have places of their own, whatever the size of a chunk; the same chunks of
    /// different stores lie apart.
    fn place(&self, chunk: u64, span: u64) -> (usize, usize) {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let first = u64::from(self.of).wrapping_mul(GOLDEN) >> u32::BITS;
        let number = chunk.wrapping_mul(if span == 0 { 1 } else { SPANS + 1 });
        let number = number.wrapping_add(span).wrapping_add(first);
        // Both below constants that are usizes.
        ((number % TABLES) as usize, (number / TABLES % SLOTS) as usize)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_there_until_its_place_is_taken() {
        let grains = Grains::in_tables(Arc::default());
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
            for piece in [1000, 1024, 4096, 65_536, 1 << 20] {
                let mut spans = vec![[1; GRAINS]; 3];
                let mut summing = Summing::new(&mut spans);
                summing.update(&bytes[..len / 3]);
                summing.begin();
                bytes.chunks(piece).for_each(|piece| summing.update(piece));
                assert_eq!(summing.finalize(), crc32fast::hash(bytes), "{len} by {piece}");
                let grains: Vec<u32> = bytes.chunks(4096).map(crc32fast::hash).collect();
                assert_eq!(spans.concat()[..grains.len()], grains, "{len} by {piece}");
                assert_eq!(spans.len(), len.div_ceil(SPAN as usize));
            }
        }
    }

    #[test]
    fn neighbours_do_not_push_each_other_out() {
        let grains = Grains::in_tables(Arc::default());
        for chunk in 0..TABLES * SLOTS {
            grains.put(chunk, 0, [chunk as u32; GRAINS]);
        }
        for chunk in 0..TABLES * SLOTS {
            assert_eq!(grains.get(chunk, 0), Some([chunk as u32; GRAINS]));
        }
        let grains = Grains::in_tables(Arc::default());
        for span in 0..SPANS {
            grains.put(5, span, [span as u32; GRAINS]);
        }
        assert!((0..SPANS).all(|span| grains.get(5, span) == Some([span as u32; GRAINS])));
    }

    #[test]
    fn stores_that_share_tables_never_see_each_others_sums() {
        let tables = Arc::default();
        let stores: Vec<Grains> =
            (0..100).map(|_| Grains::in_tables(Arc::clone(&tables))).collect();
        for (i, grains) in stores.iter().enumerate() {
            (0..8).for_each(|chunk| grains.put(chunk, 0, [i as u32; GRAINS]));
        }
        let kept = stores.iter().enumerate().flat_map(|(i, grains)| {
            (0..8).filter_map(move |chunk| grains.get(chunk, 0)).map(move |sums| (i, sums))
        });
        let kept: Vec<_> = kept.collect();
        assert!(kept.iter().all(|&(i, sums)| sums == [i as u32; GRAINS]));
        assert!(kept.len() > 700, "they push each other out: {}", kept.len());
    }
}
