//! The retry ladder: what is done about a chunk that is not as promised.
//!
//! It is looked at again ([`Store::look_again`]): the sum computed in another way, then the bytes
//! read past the page cache, with waits. That costs its source a few reads and a quarter of a
//! second at most, and then the chunk is given up ([`Store::give_up`]): it is not read again
//! before its latch or the breaker of its tensor lets one reader through ([`Store::known_bad`]).

use super::breaker::{Admission, Patience};
use super::chunk::{Wanted, Way, take};
use super::damage::{Bad, Found, Notice};
use super::status::count;
use super::{Basis, Corrupt, OnCorruption, Store, StoreError};
use crate::bytes::line::InLine;
use crate::seal::{Piece, crc_hex};
use crate::source::{Source, SourceError};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits before the last looks at a chunk, give or take a fifth.
pub(super) const WAITS: &[Duration] =
    &[Duration::ZERO, Duration::from_millis(20), Duration::from_millis(80)];
/// No look begins later than this after the first.
const BUDGET: Duration = Duration::from_millis(250);
/// Reads of its source that a chunk may cost until it is given up.
const READS: usize = 4;

impl Way {
    /// What was wrong when this way gives good bytes.
    fn verdict(self) -> &'static str {
        match self {
            Way::Direct => "its copy in the page cache was bad",
            Way::Recomputed => "its checksum was computed wrongly",
            Way::Usual | Way::There => "it is good by now",
        }
    }
}

/// Chunks that somebody is climbing the ladder for.
#[derive(Debug, Default)]
pub(super) struct Climbing {
    chunks: Mutex<BTreeSet<u64>>,
    ended: Condvar,
}

impl Climbing {
    /// Waits until nobody else looks at `chunk`: it is the caller's until he drops what he gets.
    /// Also whether somebody else did.
    fn enter(&self, chunk: u64) -> (Climber<'_>, bool) {
        let mut waited = false;
        let mut chunks = self.lock();
        while !chunks.insert(chunk) {
            waited = true;
            chunks = self.ended.wait(chunks).unwrap_or_else(PoisonError::into_inner);
        }
        (Climber { climbing: self, chunk }, waited)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who is alone with a chunk.
struct Climber<'a> {
    climbing: &'a Climbing,
    chunk: u64,
}

impl Drop for Climber<'_> {
    fn drop(&mut self) {
        self.climbing.lock().remove(&self.chunk);
        self.climbing.ended.notify_all();
    }
}

impl Store {
    /// A chunk was not as promised, or could not be read: another copy of it may be.
    pub(super) fn look_again(
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
        // One reader climbs the ladder; the others who meet the chunk wait for what he finds.
        let (_alone, waited) = self.climbing.enter(wanted.chunk);
        if self.damage.is_bad(wanted.chunk) {
            return self.known_bad(source, piece, promise, wanted);
        }
        let look = |way, found: &mut Found, wanted: &mut Wanted<'_>| -> Result<bool, StoreError> {
            count(&self.counters.retries, 1);
            let good = self.look(source, way, promise, found, wanted)?;
            if good {
                self.tell_healed(source, piece, way, found, wanted);
            }
            Ok(good)
        };
        let first = match &found {
            _ if waited => Some(Way::Usual),
            Found::Sum(_) => Some(Way::Recomputed),
            Found::Unreadable(_) => None,
        };
        if let Some(way) = first
            && look(way, &mut found, wanted)?
        {
            return Ok(());
        }
        // When there are not enough reads left for all rungs, those with the longest waits.
        let left = READS.saturating_sub(wanted.cost);
        let waits = match self.breakers.patience(piece.first_chunk) {
            Patience::Ladder => &self.waits[self.waits.len().saturating_sub(left)..],
            Patience::None => &[Duration::ZERO][..left.min(1)],
        };
        for &wait in waits {
            if !wait.is_zero() {
                let wait = jittered(wait);
                if started.elapsed() + wait >= BUDGET {
                    break;
                }
                std::thread::sleep(wait);
            }
            if look(Way::Direct, &mut found, wanted)? {
                return Ok(());
            }
        }
        source.check_unchanged().map_err(StoreError::from_source)?;
        self.give_up(source, piece, promise, found, false, wanted)
    }

    /// Waits after a read of many chunks that failed: there is one look left for the bad one.
    pub(super) fn wait_after(&self, error: &SourceError, piece: &Piece) {
        let changed = matches!(error, SourceError::Changed { .. });
        if !changed
            && self.breakers.patience(piece.first_chunk) == Patience::Ladder
            && let Some(&wait) = self.waits.last()
        {
            std::thread::sleep(jittered(wait));
        }
    }

    /// One more look: whether the chunk is good now. If not, `found` is what was there.
    fn look(
        &self,
        source: &Source,
        way: Way,
        promise: Option<u32>,
        found: &mut Found,
        wanted: &mut Wanted<'_>,
    ) -> Result<bool, StoreError> {
        match take(source, way, wanted, None) {
            Ok(sum) if promise.unwrap_or_else(|| self.observe(wanted.chunk, sum)) == sum => {
                return Ok(true);
            }
            Ok(sum) => *found = Found::Sum(sum),
            Err(error @ SourceError::Changed { .. }) => return Err(StoreError::Stale(error)),
            Err(error) if matches!(found, Found::Unreadable(_)) => {
                *found = Found::Unreadable(error.to_string());
            }
            // That there were other bytes once tells more.
            Err(_) => {}
        }
        Ok(false)
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
                source.path().in_line(),
                self.name_of(piece),
                wanted.within,
                wanted.len,
                wanted.offset,
            );
        }
    }

    /// A chunk that has failed before: refused from memory, but for one reader now and then who
    /// looks whether it is good by now.
    pub(super) fn known_bad(
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
            let good = self
                .look(source, way, promise, &mut found, wanted)
                .inspect_err(|_| self.breakers.undecided(key, self.now()))?;
            if good {
                self.damage.remove(chunk);
                self.breakers.healed(key, chunk, self.now());
                self.mark(piece, promise.is_some());
                self.tell_healed(source, piece, way, &found, wanted);
                return Ok(());
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
            file: source.path().in_line().to_string(),
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
