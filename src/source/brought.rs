//! Which of a file's pages in the kernel's cache are there because of us.
//!
//! What goes on into the page cache of the mount would be in memory twice. Pages that
//! were there before we came are somebody's; those that our reading brought in are
//! ours to give back. So before a part of the file is read for the first time, it is
//! looked at: the kernel tells what it holds.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes that are judged together.
pub(super) const WINDOW: u64 = 8 << 20;
/// The first and last bytes of a window are not looked at: what the kernel reads around what is
/// read of its neighbours may lie there.
const SPILL: u64 = 2 << 20;
/// Bytes that are given back together: a window has as many as a word has bits.
const GRANULE: u64 = WINDOW / u64::BITS as u64;
/// The kernel's largest folio of a file, on the processors that matter. It gives back whole ones.
const FOLIO: u64 = 2 << 20;
/// A window of which less than this part was there is ours.
const FEW: usize = 8;

const UNKNOWN: u8 = 0;
const THEIRS: u8 = 1;
const OURS: u8 = 2;

/// What is known of each window: a byte for 8 MiB.
#[derive(Debug)]
pub(super) struct Brought {
    windows: Vec<AtomicU8>,
    /// Which granules of each window were passed on, once any was: a bit for 128 KiB.
    passed: OnceLock<Vec<AtomicU64>>,
    len: u64,
}

impl Brought {
    /// Nothing is known of a file of `len` bytes.
    pub(super) fn new(len: u64) -> Brought {
        let windows = (0..len.div_ceil(WINDOW)).map(|_| AtomicU8::new(UNKNOWN)).collect();
        Brought { windows, passed: OnceLock::new(), len }
    }

    /// `bytes`, inside the file, are about to be read. `resident` tells how many of the pages of
    /// some bytes the kernel holds, and of how many; `None` where it does not say.
    pub(super) fn note(
        &self,
        bytes: &Range<u64>,
        resident: impl Fn(Range<u64>) -> Option<(usize, usize)>,
    ) {
        let last = bytes.end.saturating_sub(1) / WINDOW;
        for number in bytes.start / WINDOW..=last {
            let Some(window) = self.window(number) else { return };
            if window.load(Ordering::Relaxed) != UNKNOWN {
                continue;
            }
            let start = number * WINDOW;
            let end = (start + WINDOW).min(self.len);
            let found = if end - start <= SPILL && number > 0 {
                // Too short to tell: as the one in front of it.
                self.window(number - 1).map_or(THEIRS, |before| before.load(Ordering::Relaxed))
            } else {
                let from = if end - start > SPILL { start + SPILL } else { start };
                let to = if end - from > SPILL { end - SPILL } else { end };
                match resident(from..to) {
                    Some((there, all)) if there < all.div_ceil(FEW) => OURS,
                    _ => THEIRS,
                }
            };
            // Who looked first saw what was there before.
            let found = if found == UNKNOWN { THEIRS } else { found };
            let _ = window.compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// `bytes`, inside the file, have been passed on to the mount's own page cache: what may be
    /// given back of them, and of what was passed on around them. Who reads on may need the `held`
    /// bytes next to what is not passed on yet once more.
    pub(super) fn pass_on(&self, bytes: &Range<u64>, held: u64) -> Option<Range<u64>> {
        let passed =
            self.passed.get_or_init(|| self.windows.iter().map(|_| AtomicU64::new(0)).collect());
        let bit = |granule: u64| {
            let word = usize::try_from(granule / u64::from(u64::BITS)).ok()?;
            Some((passed.get(word)?, 1u64 << (granule % u64::from(u64::BITS))))
        };
        // Pieces end anywhere: who has begun a granule is taken to have read it, unless nobody has
        // begun the next one.
        let (first, last) = (bytes.start.div_ceil(GRANULE), bytes.end.div_ceil(GRANULE));
        for (word, bit) in (first..last).filter_map(bit) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        let may_go = |granule: &u64| {
            let window = self.window(*granule * GRANULE / WINDOW);
            window.is_some_and(|window| window.load(Ordering::Relaxed) == OURS)
                && bit(*granule).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
        };
        if first >= last || !may_go(&first) {
            return None;
        }
        let around = (FOLIO + held).div_ceil(GRANULE);
        let before = (first.saturating_sub(around)..first).rev().take_while(may_go).count() as u64;
        let after = (first..last + around).take_while(may_go).count() as u64;
        let start = (first - before) * GRANULE;
        let end = (first + after) * GRANULE;
        let start = if start == 0 { 0 } else { start + held };
        let read_up = bytes.end == self.len || first + after > last;
        let end = match end >= self.len && read_up {
            true => self.len,
            false => (end - GRANULE).saturating_sub(held),
        };
        (start < end).then_some(start..end)
    }

    fn window(&self, number: u64) -> Option<&AtomicU8> {
        self.windows.get(usize::try_from(number).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that holds the pages of `held`.
    fn kernel(held: Range<u64>) -> impl Fn(Range<u64>) -> Option<(usize, usize)> {
        move |asked| {
            let there = held.end.min(asked.end).saturating_sub(held.start.max(asked.start));
            let all = (asked.end - asked.start).div_ceil(4096);
            Some(((there / 4096) as usize, all as usize))
        }
    }

    const GONE: Option<Range<u64>> = None;

    #[test]
    fn what_was_there_before_is_not_ours() {
        let brought = Brought::new(5 * WINDOW);
        brought.note(&(0..5 * WINDOW), kernel(WINDOW..3 * WINDOW));
        assert_eq!(brought.pass_on(&(0..WINDOW), 0), Some(0..WINDOW - GRANULE));
        assert_eq!(brought.pass_on(&(WINDOW..2 * WINDOW), 0), GONE);
        assert_eq!(brought.pass_on(&(3 * WINDOW..5 * WINDOW), 0), Some(3 * WINDOW..5 * WINDOW));
    }

    #[test]
    fn the_first_look_holds() {
        let brought = Brought::new(2 * WINDOW);
        brought.note(&(0..10), kernel(0..0));
        brought.note(&(0..10), kernel(0..WINDOW));
        brought.note(&(WINDOW..WINDOW + 1), kernel(0..2 * WINDOW));
        brought.note(&(WINDOW..WINDOW + 1), kernel(0..0));
        assert_eq!(brought.pass_on(&(0..WINDOW), 0), Some(0..WINDOW - GRANULE));
        assert_eq!(brought.pass_on(&(WINDOW..2 * WINDOW), 0), GONE);
    }

    #[test]
    fn what_the_kernel_read_around_is_not_taken_for_somebody_s() {
        let brought = Brought::new(3 * WINDOW + SPILL / 2);
        brought.note(&(WINDOW..WINDOW + 10), kernel(0..0));
        brought.note(&(2 * WINDOW..2 * WINDOW + 10), kernel(WINDOW..2 * WINDOW + SPILL));
        brought.note(&(0..10), kernel(WINDOW - SPILL..2 * WINDOW));
        let tail = 3 * WINDOW..3 * WINDOW + SPILL / 2;
        brought.note(&tail, kernel(0..4 * WINDOW));
        for window in [0..WINDOW, WINDOW..2 * WINDOW, 2 * WINDOW..3 * WINDOW, tail] {
            assert!(brought.pass_on(&window, 0).is_some(), "{window:?}");
        }
    }

    #[test]
    fn nothing_is_ours_that_nobody_read_or_where_the_kernel_does_not_say() {
        let brought = Brought::new(3 * WINDOW);
        assert_eq!(brought.pass_on(&(0..WINDOW), 0), GONE);
        brought.note(&(0..3 * WINDOW), |_| None);
        assert_eq!(brought.pass_on(&(0..3 * WINDOW), 0), GONE);
        let short = Brought::new(1000);
        short.note(&(0..1000), kernel(0..0));
        assert_eq!(short.pass_on(&(0..1000), 4096), Some(0..1000));
        assert_eq!(Brought::new(0).pass_on(&(0..0), 0), GONE);
    }

    /// Bytes that are kept of a file of 500 granules which is read in this order, in pieces of five
    /// that begin and end anywhere; none is read twice.
    fn kept(order: impl Iterator<Item = u64>) -> u64 {
        const UNIT: u64 = GRANULE / 8;
        let len = 500 * GRANULE;
        let brought = Brought::new(len);
        brought.note(&(0..len), kernel(0..0));
        let mut read = vec![false; 500 * 8];
        let mut there = read.clone();
        for piece in order {
            let begin = |piece: u64| if piece == 0 { 0 } else { piece * 5 * GRANULE + 3 * UNIT };
            let bytes = begin(piece)..begin(piece + 1).min(len);
            let inside = (bytes.start / UNIT) as usize..(bytes.end / UNIT) as usize;
            read[inside.clone()].fill(true);
            there[inside].fill(true);
            if let Some(gone) = brought.pass_on(&bytes, UNIT) {
                let whole = (gone.start / UNIT) as usize..(gone.end / UNIT) as usize;
                assert!(read[whole.clone()].iter().all(|&read| read), "{gone:?} was not read yet");
                there[whole].fill(false);
            }
        }
        there.iter().filter(|&&there| there).count() as u64 * UNIT
    }

    #[test]
    fn little_is_kept_whichever_way_it_is_read() {
        assert!(kept(0..100) < 3 * GRANULE, "from front to back");
        assert!(kept((0..100).rev()) < 3 * GRANULE, "from back to front");
        assert!(kept((0..50).flat_map(|i| [i, 50 + i])) < 5 * GRANULE, "by two");
        assert!(kept((0..100).map(|i| i * 37 % 100)) < 100 * GRANULE, "here and there");
    }

    #[test]
    fn what_may_be_needed_again_stays() {
        let brought = Brought::new(4 * WINDOW);
        brought.note(&(0..4 * WINDOW), kernel(0..0));
        let piece = WINDOW..WINDOW + 10 * GRANULE;
        let held = GRANULE / 2;
        let gone = Some(piece.start + held..piece.end - GRANULE - held);
        assert_eq!(brought.pass_on(&piece, held), gone);
        assert_eq!(brought.pass_on(&(100..GRANULE), held), GONE, "the beginning of no granule");
    }
}
