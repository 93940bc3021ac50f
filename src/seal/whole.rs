//! SHA-256 of whole files, in order, while others read the same files in pieces.

use super::SealError;
use super::sums::sha256_of;
use crate::source::{Source, SourceError};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How far the reading of pieces may be ahead of the serial pass over the same file,
/// bytes: what both read should come from the disk once.
const AHEAD: u64 = 1 << 30;

/// What became of one file; `None` when it was not hashed to its end.
pub(super) type Digested = Result<Option<[u8; 32]>, SourceError>;

/// The serial passes, one per file.
pub(super) struct Whole<'a> {
    sources: &'a [Source],
    wanted: bool,
    /// The files that are hashed.
    files: Range<usize>,
    next: AtomicUsize,
    hashed: AtomicU64,
    /// For each file, how far its pass has come.
    reached: Vec<AtomicU64>,
    stop: AtomicBool,
    results: Vec<OnceLock<Digested>>,
}

impl<'a> Whole<'a> {
    /// Nothing is hashed unless `wanted`.
    pub(super) fn new(sources: &'a [Source], wanted: bool) -> Whole<'a> {
        Whole {
            sources,
            wanted,
            files: 0..sources.len(),
            next: AtomicUsize::new(0),
            hashed: AtomicU64::new(0),
            reached: sources.iter().map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
            results: sources.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Hashes one file and no other.
    pub(super) fn only(self, file: u32) -> Whole<'a> {
        let file = file as usize;
        Whole { files: file..file + 1, next: AtomicUsize::new(file), ..self }
    }

    /// Does `work` on this thread and the passes on up to `threads` others. When the work
    /// is done first, `tick` is called now and then; when it fails, the passes end.
    pub(super) fn beside(
        &self,
        threads: usize,
        work: impl FnOnce() -> Result<(), SealError>,
        tick: impl Fn(),
    ) -> Result<(), SealError> {
        std::thread::scope(|scope| {
            if self.wanted {
                for _ in 0..self.files.len().min(threads) {
                    scope.spawn(|| self.pass());
                }
            }
            let outcome = work();
            if outcome.is_err() {
                self.stop.store(true, Ordering::Relaxed);
                return outcome;
            }
            let results = &self.results[self.files.clone()];
            while self.wanted && results.iter().any(|r| r.get().is_none()) {
                tick();
                std::thread::sleep(Duration::from_millis(20));
            }
            tick();
            Ok(())
        })
    }

    /// Hashes one file after the other, as long as there are any.
    fn pass(&self) {
        loop {
            let shard = self.next.fetch_add(1, Ordering::Relaxed);
            if shard >= self.files.end {
                return;
            }
            let source = &self.sources[shard];
            let result = sha256_of(source, |at, len| {
                self.reached[shard].store(at, Ordering::Relaxed);
                self.hashed.fetch_add(len, Ordering::Relaxed);
                !self.stop.load(Ordering::Relaxed)
            });
            // Nobody waits for this file any more, whatever came of it.
            self.reached[shard].store(u64::MAX / 2, Ordering::Relaxed);
            let _ = self.results[shard].set(result);
        }
    }

    /// Waits until the pass over file `shard` is close to `at`.
    pub(super) fn keep_close(&self, shard: u32, at: u64) {
        while self.wanted
            && at > self.reached[shard as usize].load(Ordering::Relaxed) + AHEAD
            && !self.stop.load(Ordering::Relaxed)
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Bytes done, of all files together, where `summed` of them were read in pieces.
    pub(super) fn done(&self, summed: u64) -> u64 {
        if self.wanted { (summed + self.hashed.load(Ordering::Relaxed)) / 2 } else { summed }
    }

    /// By file.
    pub(super) fn into_results(self) -> impl Iterator<Item = Digested> {
        self.results.into_iter().map(|result| result.into_inner().unwrap_or(Ok(None)))
    }
}
