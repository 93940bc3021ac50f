//! What is known to be bad: a latch per chunk, the list for status, and log lines that
//! stay few however much is damaged.

use super::table::Bits;
use crate::seal::crc_hex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bad chunks that are kept with their details; the others are only counted and latched.
const LISTED: usize = 1000;
/// Lines written to the log about new bad chunks.
const LOGGED: u64 = 100;

/// What was there instead of the expected bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Bytes with this CRC32.
    Sum(u32),
    /// None: the system's reason.
    Unreadable(String),
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Found::Sum(crc) => f.write_str(&crc_hex(*crc)),
            Found::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

/// The details of a bad chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    /// `None` for a chunk that could not be read before anything was known about it.
    pub(super) expected: Option<u32>,
    pub(super) found: Found,
}

/// All bad chunks, by their number in the grid.
#[derive(Debug)]
pub(super) struct Damage {
    latched: Bits,
    count: AtomicU64,
    logged: AtomicU64,
    healed_logged: AtomicU64,
    list: Mutex<BTreeMap<u64, Bad>>,
    /// Whether there were ever more than the list could hold: it is not the whole truth.
    overflowed: AtomicBool,
}

/// What to do about the log for a new bad chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// It was known.
    None,
    /// Write a line.
    Line,
    /// Write that there will be no more lines.
    LastLine,
}

impl Damage {
    pub(super) fn new(chunks: u64) -> Damage {
        Damage {
            latched: Bits::new(chunks),
            count: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            healed_logged: AtomicU64::new(0),
            list: Mutex::default(),
            overflowed: AtomicBool::new(false),
        }
    }

    /// Chunks that are bad now.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether this chunk was found bad and has not been good since.
    pub(super) fn is_bad(&self, chunk: u64) -> bool {
        self.count() > 0 && self.latched.get(chunk)
    }

    /// Whether any chunk of the range is bad.
    pub(super) fn any_in(&self, chunks: Range<u64>) -> bool {
        self.first_in(chunks).is_some()
    }

    /// The first bad chunk of the range.
    pub(super) fn first_in(&self, mut chunks: Range<u64>) -> Option<u64> {
        if self.count() == 0 || chunks.is_empty() {
            return None;
        }
        if self.overflowed.load(Ordering::Acquire) {
            return chunks.find(|&chunk| self.latched.get(chunk));
        }
        self.list().range(chunks).next().map(|(&chunk, _)| chunk)
    }

    /// Latches a chunk.
    pub(super) fn add(&self, chunk: u64, bad: Bad) -> Notice {
        if !self.latched.set(chunk) {
            return Notice::None;
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        {
            let mut list = self.list();
            if list.len() < LISTED {
                list.insert(chunk, bad);
            } else {
                self.overflowed.store(true, Ordering::Release);
            }
        }
        match self.logged.fetch_add(1, Ordering::Relaxed) {
            0..LOGGED => Notice::Line,
            LOGGED => Notice::LastLine,
            _ => Notice::None,
        }
    }

    /// The details of a bad chunk, while they are kept.
    pub(super) fn get(&self, chunk: u64) -> Option<Bad> {
        self.list().get(&chunk).cloned()
    }

    /// Whether a line about a chunk that was good at a further look is still welcome.
    pub(super) fn may_log_healed(&self) -> bool {
        self.healed_logged.fetch_add(1, Ordering::Relaxed) < LOGGED
    }

    /// Releases a chunk that turned out good; whether it was latched.
    pub(super) fn remove(&self, chunk: u64) -> bool {
        let was = self.latched.clear(chunk);
        if was {
            self.count.fetch_sub(1, Ordering::AcqRel);
            self.list().remove(&chunk);
        }
        was
    }

    /// The chunks that are listed, in order.
    pub(super) fn listed(&self) -> Vec<(u64, Bad)> {
        self.list().iter().map(|(&chunk, bad)| (chunk, bad.clone())).collect()
    }

    /// Never held over I/O or logging.
    fn list(&self) -> MutexGuard<'_, BTreeMap<u64, Bad>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(found: u32) -> Bad {
        Bad { expected: Some(1), found: Found::Sum(found) }
    }

    #[test]
    fn a_chunk_is_new_once_and_can_recover() {
        let damage = Damage::new(100);
        assert!(!damage.is_bad(5) && !damage.any_in(0..100));
        assert_eq!(damage.add(5, bad(2)), Notice::Line);
        assert_eq!(damage.add(5, bad(3)), Notice::None);
        assert!(damage.is_bad(5) && damage.any_in(5..6) && !damage.any_in(6..100));
        assert_eq!(damage.listed(), [(5, bad(2))]);
        assert!(damage.remove(5) && !damage.remove(5));
        assert_eq!(damage.count(), 0);
    }

    #[test]
    fn log_and_list_are_capped_and_the_latch_is_not() {
        let damage = Damage::new(10_000);
        let notices: Vec<_> = (0..5000).map(|chunk| damage.add(chunk, bad(2))).collect();
        assert_eq!(notices.iter().filter(|&&n| n == Notice::Line).count(), 100);
        assert_eq!(notices.iter().filter(|&&n| n == Notice::LastLine).count(), 1);
        assert_eq!(notices[100], Notice::LastLine);
        assert_eq!(damage.listed().len(), LISTED);
        assert_eq!(damage.count(), 5000);
        assert!(damage.is_bad(4999) && damage.any_in(4990..6000) && !damage.any_in(5000..6000));
        // What was never listed is bad still when most of the others are good again.
        (0..4500).for_each(|chunk| assert!(damage.remove(chunk)));
        assert_eq!((damage.count(), damage.listed().len()), (500, 0));
        assert_eq!(damage.first_in(10..6000), Some(4500));
    }
}
