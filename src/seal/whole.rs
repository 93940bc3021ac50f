//! SHA-256 of whole files, in order, while others read the same files in pieces.

use super::SealError;
use super::sums::sha256_of;
use crate::source::{Source, SourceError};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How far the reading of pieces may be ahead of the serial pass over the same file,
/// bytes: what both read should come from the disk once.
const AHEAD: u64 = 1 << 30;

/// Where a pass is that is over.
const FAR: u64 = u64::MAX / 2;

/// What became of one file; `None` when it was not hashed to its end.
pub(super) type Digested = Result<Option<[u8; 32]>, SourceError>;

/// The serial passes, one per file.
pub(super) struct Whole<'a> {
    /// `None`: its digest is not wanted.
    sources: Vec<Option<&'a Source>>,
    wanted: bool,
    next: AtomicUsize,
    hashed: AtomicU64,
    /// For each file, how far its pass has come.
    reached: Vec<AtomicU64>,
    stop: AtomicBool,
    results: Vec<OnceLock<Digested>>,
}

impl<'a> Whole<'a> {
    /// Of each file that is not `None`.
    pub(super) fn new(sources: impl Iterator<Item = Option<&'a Source>>) -> Whole<'a> {
        let sources: Vec<_> = sources.collect();
        // Nobody waits for a pass that there is not.
        let reached = |source: &Option<_>| if source.is_some() { 0 } else { FAR };
        let result = |source: &Option<_>| match source {
            Some(_) => OnceLock::new(),
            None => OnceLock::from(Ok(None)),
        };
        Whole {
            wanted: sources.iter().any(Option::is_some),
            next: AtomicUsize::new(0),
            hashed: AtomicU64::new(0),
            reached: sources.iter().map(reached).map(AtomicU64::new).collect(),
            stop: AtomicBool::new(false),
            results: sources.iter().map(result).collect(),
            sources,
        }
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
                for _ in 0..self.sources.len().min(threads) {
                    scope.spawn(|| self.pass());
                }
            }
            let outcome = work();
            if outcome.is_err() {
                self.stop.store(true, Ordering::Relaxed);
                return outcome;
            }
            while self.wanted && self.results.iter().any(|r| r.get().is_none()) {
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
            let source = match self.sources.get(shard) {
                Some(Some(source)) => source,
                Some(None) => continue,
                None => return,
            };
            let result = sha256_of(source, |at, len| {
                self.reached[shard].store(at, Ordering::Relaxed);
                self.hashed.fetch_add(len, Ordering::Relaxed);
                !self.stop.load(Ordering::Relaxed)
            });
            // Nobody waits for this file any more, whatever came of it.
            self.reached[shard].store(FAR, Ordering::Relaxed);
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
