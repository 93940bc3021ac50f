//! When a chunk that failed is looked at again: a latch per chunk, a circuit breaker per tensor.
//!
//! Pure state with the time passed in (monotonic, since the store was made), so that any trace
//! of events can be replayed. A breaker decides about chunks that have failed, and about how
//! long others may be retried; it never refuses a chunk that has not failed. Must not do I/O,
//! and is never locked over any.
//!
//! ```text
//! closed --5 chunks bad, or 5 failures within a minute--> open
//! open   --cool-down over, one reader probes-----------> half-open
//! half-open --probe good--> closed;  --probe bad--> open, cool-down doubled
//! ```
//!
//! One that opens again keeps the cool-down that it had come to, unless it was closed for longer
//! than that: what was good for so long is not what failed then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Failures that open a breaker.
const TRIPS: usize = 5;
/// How long a failure counts.
const WINDOW: Duration = Duration::from_secs(60);
/// How long a bad chunk is left alone at first: a network that stumbled is back by then.
const CHUNK_COOL_DOWN: Duration = Duration::from_secs(1);
/// How long an open breaker stays so at first.
const COOL_DOWN: Duration = Duration::from_secs(10);
/// Neither grows beyond this.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// What may be done about a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is bad for all that is known: answer without looking.
    Refuse,
    /// This caller, and no other for now, looks once.
    Probe,
}

/// How long a mismatch may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// All rungs, with waits.
    Ladder,
    /// At once or not at all.
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open {
        until: Duration,
    },
    HalfOpen,
}

/// When a chunk may be probed.
#[derive(Clone, Copy, Debug)]
struct Latch {
    until: Duration,
    cool_down: Duration,
}

#[derive(Debug, Default)]
struct Breaker {
    state: State,
    cool_down: Duration,
    /// When it was closed last.
    closed: Duration,
    /// The last failures of a ladder, at most [`TRIPS`].
    failures: VecDeque<Duration>,
    /// Chunks that failed; one that is not here any more may be probed.
    latches: BTreeMap<u64, Latch>,
}

/// Latches kept per breaker; the oldest go, which only lets their chunks be probed earlier.
const LATCHES: usize = 64;

/// A breaker that is not closed, for status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tripped {
    /// The number by which its piece is known.
    pub(super) piece: u64,
    /// Whether a probe is under way.
    pub(super) half_open: bool,
    /// When the next probe may be.
    pub(super) until: Duration,
}

/// The breakers of a store, by the first chunk of their piece. Pieces without trouble have none.
#[derive(Debug, Default)]
pub(super) struct Breakers {
    by_piece: Mutex<BTreeMap<u64, Breaker>>,
    /// Breakers that are not closed: who only wants to know that none is takes no lock.
    tripped: AtomicUsize,
}

impl Breakers {
    /// About a chunk that is known to be bad.
    pub(super) fn admit(&self, piece: u64, chunk: u64, now: Duration) -> Admission {
        let mut all = self.lock();
        let breaker = all.entry(piece).or_default();
        match breaker.state {
            State::HalfOpen => Admission::Refuse,
            State::Open { until } if now < until => Admission::Refuse,
            State::Open { .. } => {
                breaker.state = State::HalfOpen;
                Admission::Probe
            }
            State::Closed => match breaker.latches.get_mut(&chunk) {
                Some(latch) if now < latch.until => Admission::Refuse,
                // Moved before the look, so that nobody else looks meanwhile.
                Some(latch) => {
                    latch.until = now + latch.cool_down;
                    Admission::Probe
                }
                None => {
                    breaker.latch(chunk, now);
                    Admission::Probe
                }
            },
        }
    }

    /// How long a chunk that has just failed for the first time may be retried.
    pub(super) fn patience(&self, piece: u64) -> Patience {
        if self.tripped.load(Ordering::Relaxed) == 0 {
            return Patience::Ladder;
        }
        match self.lock().get(&piece).map(|breaker| breaker.state) {
            None | Some(State::Closed) => Patience::Ladder,
            Some(_) => Patience::None,
        }
    }

    /// A chunk is bad after all that was tried: a `probe`, or one that had not failed before.
    pub(super) fn failed(&self, piece: u64, chunk: u64, now: Duration, probe: bool) {
        let mut all = self.lock();
        let breaker = all.entry(piece).or_default();
        breaker.latch(chunk, now);
        match breaker.state {
            State::Closed => {
                breaker.failures.retain(|&at| now.saturating_sub(at) < WINDOW);
                breaker.failures.push_back(now);
                if breaker.failures.len() >= TRIPS || breaker.latches.len() >= TRIPS {
                    let long_good = now.saturating_sub(breaker.closed) > breaker.cool_down;
                    let before = if long_good { COOL_DOWN } else { breaker.cool_down };
                    breaker.cool_down = before.max(COOL_DOWN);
                    breaker.state = State::Open { until: now + breaker.cool_down };
                    breaker.failures.clear();
                    self.tripped.fetch_add(1, Ordering::Relaxed);
                }
            }
            State::HalfOpen if probe => {
                breaker.cool_down = (breaker.cool_down * 2).min(LONGEST);
                breaker.state = State::Open { until: now + breaker.cool_down };
            }
            // Another chunk failed for the first time meanwhile.
            State::Open { .. } | State::HalfOpen => {}
        }
    }

    /// A probe could not tell, e.g. since the file has changed: as if it had not been.
    pub(super) fn undecided(&self, piece: u64, now: Duration) {
        if let Some(breaker) = self.lock().get_mut(&piece)
            && breaker.state == State::HalfOpen
        {
            breaker.state = State::Open { until: now };
        }
    }

    /// A chunk that was bad is good.
    pub(super) fn healed(&self, piece: u64, chunk: u64, now: Duration) {
        let mut all = self.lock();
        let Some(breaker) = all.get_mut(&piece) else { return };
        breaker.latches.remove(&chunk);
        if breaker.state == State::HalfOpen {
            breaker.state = State::Closed;
            breaker.closed = now;
            breaker.failures.clear();
            // The others may be good again too: the next reader of each finds out.
            breaker.latches.clear();
            self.tripped.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the breaker of `piece` is not closed.
    pub(super) fn is_tripped(&self, piece: u64) -> bool {
        self.tripped.load(Ordering::Relaxed) > 0
            && self.lock().get(&piece).is_some_and(|breaker| breaker.state != State::Closed)
    }

    /// Whether any breaker is not closed.
    pub(super) fn any_tripped(&self) -> bool {
        self.tripped.load(Ordering::Relaxed) > 0
    }

    /// The breakers that are not closed, by piece.
    pub(super) fn tripped(&self) -> Vec<Tripped> {
        if !self.any_tripped() {
            return Vec::new();
        }
        let all = self.lock();
        let tripped = all.iter().filter_map(|(&piece, breaker)| match breaker.state {
            State::Closed => None,
            State::Open { until } => Some(Tripped { piece, half_open: false, until }),
            State::HalfOpen => Some(Tripped { piece, half_open: true, until: Duration::ZERO }),
        });
        tripped.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Breaker>> {
        self.by_piece.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Breaker {
    /// Keeps `chunk` from being looked at for its cool-down, twice as long as the last.
    fn latch(&mut self, chunk: u64, now: Duration) {
        let cool_down = match self.latches.get(&chunk) {
            Some(latch) => (latch.cool_down * 2).min(LONGEST),
            None => CHUNK_COOL_DOWN,
        };
        if self.latches.len() >= LATCHES && !self.latches.contains_key(&chunk) {
            let earliest = self.latches.iter().min_by_key(|(_, latch)| latch.until);
            if let Some((&chunk, _)) = earliest {
                self.latches.remove(&chunk);
            }
        }
        self.latches.insert(chunk, Latch { until: now + cool_down, cool_down });
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_bad_chunk_is_left_alone_for_its_cool_down_which_doubles() {
        let breakers = Breakers::default();
        breakers.failed(0, 7, s(0), true);
        assert_eq!(breakers.admit(0, 7, s(0)), Admission::Refuse);
        assert_eq!(breakers.admit(0, 7, s(1)), Admission::Probe);
        assert_eq!(breakers.admit(0, 7, s(1)), Admission::Refuse, "one prober at a time");
        breakers.failed(0, 7, s(1), true);
        assert_eq!(breakers.admit(0, 7, s(2)), Admission::Refuse);
        assert_eq!(breakers.admit(0, 7, s(3)), Admission::Probe);
        breakers.healed(0, 7, s(3));
        assert!(!breakers.is_tripped(0));
        breakers.failed(0, 7, s(4), true);
        assert_eq!(breakers.admit(0, 7, s(5)), Admission::Probe, "it begins anew");
    }

    #[test]
    fn five_bad_chunks_open_it_and_one_probe_decides() {
        let breakers = Breakers::default();
        for chunk in 0..4 {
            breakers.failed(0, chunk, s(100 * chunk), true);
            assert_eq!(breakers.patience(0), Patience::Ladder);
        }
        breakers.failed(0, 4, s(400), true);
        assert!(breakers.is_tripped(0) && !breakers.is_tripped(50));
        assert_eq!(breakers.patience(0), Patience::None);
        assert_eq!(breakers.patience(50), Patience::Ladder, "of another tensor");
        assert_eq!(breakers.admit(0, 0, s(409)), Admission::Refuse);
        let open = Tripped { piece: 0, half_open: false, until: s(410) };
        assert_eq!(breakers.tripped(), [open]);
        assert_eq!(breakers.admit(0, 0, s(410)), Admission::Probe);
        assert_eq!(breakers.admit(0, 1, s(410)), Admission::Refuse, "half-open: others wait");
        assert!(breakers.tripped()[0].half_open);
        breakers.failed(0, 0, s(410), true);
        assert_eq!(breakers.admit(0, 1, s(429)), Admission::Refuse, "the cool-down has doubled");
        assert_eq!(breakers.admit(0, 1, s(430)), Admission::Probe);
        breakers.healed(0, 1, s(430));
        assert!(breakers.tripped().is_empty());
        assert_eq!(breakers.admit(0, 2, s(430)), Admission::Probe, "the others are tried again");
    }

    #[test]
    fn the_cool_down_grows_to_a_quarter_of_an_hour_and_no_further() {
        let breakers = Breakers::default();
        (0..5).for_each(|chunk| breakers.failed(0, chunk, s(0), true));
        let mut now = s(0);
        let mut waits = Vec::new();
        for _ in 0..10 {
            let until = breakers.tripped()[0].until;
            waits.push((until - now).as_secs());
            now = until;
            assert_eq!(breakers.admit(0, 3, now), Admission::Probe);
            breakers.failed(0, 3, now, true);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 900, 900, 900]);
    }

    #[test]
    fn the_cool_down_is_short_again_after_a_time_as_long_and_not_before() {
        let breakers = Breakers::default();
        let trip = |now| (0..5).for_each(|chunk| breakers.failed(0, chunk, now, false));
        let probe = |now| assert_eq!(breakers.admit(0, 3, now), Admission::Probe);
        trip(s(0));
        probe(s(10));
        breakers.failed(0, 3, s(10), true);
        probe(s(30));
        breakers.failed(0, 3, s(30), true);
        probe(s(70));
        breakers.healed(0, 3, s(70));
        assert!(breakers.tripped().is_empty());
        trip(s(110));
        assert_eq!(breakers.tripped()[0].until, s(150), "it was 40 s, and good for no longer");
        probe(s(150));
        breakers.healed(0, 3, s(150));
        trip(s(191));
        assert_eq!(breakers.tripped()[0].until, s(201), "it was good for longer than that");
    }

    #[test]
    fn a_probe_that_cannot_tell_leaves_the_next_to_try() {
        let breakers = Breakers::default();
        (0..5).for_each(|chunk| breakers.failed(0, chunk, s(0), true));
        assert_eq!(breakers.admit(0, 3, s(10)), Admission::Probe);
        breakers.undecided(0, s(11));
        assert_eq!(breakers.admit(0, 2, s(11)), Admission::Probe);
    }

    #[test]
    fn however_many_chunks_are_bad_little_is_kept() {
        let breakers = Breakers::default();
        (0..100_000).for_each(|chunk| breakers.failed(0, chunk, s(chunk), true));
        assert_eq!(breakers.lock()[&0].latches.len(), LATCHES);
    }

    /// Any trace: half-open never has two probes, a refusal has a reason, the counter of
    /// tripped breakers is right.
    #[test]
    fn a_hundred_thousand_random_events_keep_the_rules() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let breakers = Breakers::default();
        let mut now = s(0);
        let mut bad = std::collections::BTreeSet::new();
        let mut probing: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        for _ in 0..100_000 {
            now += Duration::from_millis(random(3000));
            let (piece, within) = (random(3) * 100, random(8));
            let chunk = piece + within;
            let half_open = breakers.tripped().iter().any(|t| t.piece == piece && t.half_open);
            if bad.contains(&chunk) {
                match breakers.admit(piece, chunk, now) {
                    Admission::Refuse => {}
                    Admission::Probe => {
                        assert!(!half_open, "a second probe while one is under way");
                        let decided = breakers.is_tripped(piece);
                        match random(3) {
                            0 => {
                                breakers.healed(piece, chunk, now);
                                bad.remove(&chunk);
                                assert!(!breakers.is_tripped(piece));
                            }
                            1 => breakers.failed(piece, chunk, now, true),
                            _ if decided => {
                                probing.insert(piece, Some(chunk));
                            }
                            _ => {}
                        }
                    }
                }
            } else if random(2) == 0 {
                breakers.failed(piece, chunk, now, false);
                bad.insert(chunk);
            }
            if random(20) == 0
                && let Some(Some(_)) = probing.remove(&piece)
            {
                breakers.undecided(piece, now);
            }
            let tripped = breakers.tripped();
            assert_eq!(breakers.any_tripped(), !tripped.is_empty());
            assert_eq!(breakers.tripped.load(Ordering::Relaxed), tripped.len());
        }
    }
}
