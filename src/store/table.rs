//! Tables with an entry per chunk that cost memory only where they are touched.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries that come into being together.
const SEGMENT: usize = 1024;

/// A long array of atomics, all zero, made in segments as they are first written. The last one is
/// as long as the rest of the array: a mount may hold thousands of models of a few chunks each.
#[derive(Debug)]
pub(super) struct Sparse<T> {
    segments: Box<[OnceLock<Box<[T]>>]>,
    len: u64,
}

impl<T: Default> Sparse<T> {
    pub(super) fn new(len: u64) -> Sparse<T> {
        let segments = len.div_ceil(SEGMENT as u64);
        Sparse { segments: (0..segments).map(|_| OnceLock::new()).collect(), len }
    }

    /// The entry, if its segment was ever written to. An entry that is not there is zero.
    pub(super) fn get(&self, index: u64) -> Option<&T> {
        let segment = self.segments.get((index / SEGMENT as u64) as usize)?.get()?;
        segment.get((index % SEGMENT as u64) as usize)
    }

    /// The entry, to be written to; `None` past the end.
    pub(super) fn entry(&self, index: u64) -> Option<&T> {
        let number = index / SEGMENT as u64;
        let segment = self.segments.get(number as usize)?;
        let len = (self.len - number * SEGMENT as u64).min(SEGMENT as u64);
        let segment = segment.get_or_init(|| (0..len).map(|_| T::default()).collect());
        segment.get((index % SEGMENT as u64) as usize)
    }
}

/// One bit per index.
#[derive(Debug)]
pub(super) struct Bits(Sparse<AtomicU64>);

impl Bits {
    pub(super) fn new(len: u64) -> Bits {
        Bits(Sparse::new(len.div_ceil(64)))
    }

    pub(super) fn get(&self, index: u64) -> bool {
        let word = self.0.get(index / 64).map_or(0, |word| word.load(Ordering::Acquire));
        word >> (index % 64) & 1 == 1
    }

    /// Sets the bit; whether it was not set before.
    pub(super) fn set(&self, index: u64) -> bool {
        if self.get(index) {
            return false;
        }
        let bit = 1 << (index % 64);
        self.0.entry(index / 64).is_some_and(|w| w.fetch_or(bit, Ordering::AcqRel) & bit == 0)
    }

    /// Clears the bit; whether it was set before.
    pub(super) fn clear(&self, index: u64) -> bool {
        let bit = 1 << (index % 64);
        self.0.get(index / 64).is_some_and(|w| w.fetch_and(!bit, Ordering::AcqRel) & bit != 0)
    }
}

/// Checksums that were observed: what is set first stays.
#[derive(Debug)]
pub(super) struct Observed {
    sums: Sparse<AtomicU32>,
    /// Which of the sums that are zero were observed to be zero.
    zeros: Bits,
}

impl Observed {
    pub(super) fn new(len: u64) -> Observed {
        Observed { sums: Sparse::new(len), zeros: Bits::new(len) }
    }

    /// The sum observed for `index`.
    pub(super) fn get(&self, index: u64) -> Option<u32> {
        match self.sums.get(index).map_or(0, |sum| sum.load(Ordering::Acquire)) {
            0 => self.zeros.get(index).then_some(0),
            sum => Some(sum),
        }
    }

    /// Keeps `sum` unless there is one already; the one that holds from now on.
    pub(super) fn first(&self, index: u64, sum: u32) -> u32 {
        if sum == 0 {
            match self.get(index) {
                Some(sum) => return sum,
                None => self.zeros.set(index),
            };
            return 0;
        }
        match self.sums.entry(index) {
            Some(entry) if !self.zeros.get(index) => entry
                .compare_exchange(0, sum, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|there| there, |_| sum),
            Some(_) => 0,
            None => sum,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn untouched_segments_do_not_exist() {
        let table = Sparse::<AtomicU32>::new(5_000_000);
        assert!(table.get(4_999_999).is_none());
        table.entry(4_999_999).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(table.get(4_999_999).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(table.segments.iter().filter(|s| s.get().is_some()).count(), 1);
        assert!(table.entry(6_000_000).is_none());
        assert!(Sparse::<AtomicU32>::new(0).entry(0).is_none());
    }

    #[test]
    fn a_short_table_costs_what_it_holds() {
        for (len, last) in [(1, 1), (5, 5), (1024, 1024), (1025, 1), (3000, 952)] {
            let table = Sparse::<AtomicU32>::new(len);
            assert!(table.entry(len - 1).is_some() && table.entry(len).is_none());
            let segment = table.segments.last().and_then(OnceLock::get).unwrap();
            assert_eq!(segment.len(), last, "{len}");
        }
    }

    #[test]
    fn bits() {
        let bits = Bits::new(1000);
        assert!(!bits.get(63) && !bits.clear(63));
        assert!(bits.set(63) && !bits.set(63) && bits.set(64));
        assert!(bits.get(63) && bits.get(64) && !bits.get(65));
        assert!(bits.clear(63) && !bits.get(63) && bits.get(64));
        assert!(!bits.set(1 << 40) && !bits.get(1 << 40));
    }

    #[test]
    fn what_was_observed_first_stays() {
        let seen = Observed::new(10);
        assert_eq!(seen.get(3), None);
        assert_eq!(seen.first(3, 5), 5);
        assert_eq!(seen.first(3, 6), 5);
        assert_eq!(seen.first(3, 0), 5);
        assert_eq!(seen.get(3), Some(5));
        assert_eq!(seen.first(4, 0), 0);
        assert_eq!(seen.get(4), Some(0));
        assert_eq!(seen.first(4, 9), 0);
        assert_eq!(seen.get(4), Some(0));
    }
}
