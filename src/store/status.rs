//! What a store knows about itself, as plain data: from memory, without I/O.

use super::{OnCorruption, Store, Verify};
use crate::bytes::line::InLine;
use crate::seal::{Part, Seal, crc_hex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why the bytes are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The seal was given on the command line.
    Pinned,
    /// A store's content-addressed name vouches for the file.
    Store,
    /// A seal or list lies beside the model or in the cache.
    Sidecar,
    /// Each chunk is held to what it was when it was first served.
    Tofu,
    /// Nothing is checked.
    None,
}

impl Trust {
    /// What is to be said of bytes of both.
    pub const fn weaker(self, other: Trust) -> Trust {
        // In the order in which they are written down above.
        if other as u8 > self as u8 { other } else { self }
    }

    /// The word in JSON and xattrs.
    pub const fn name(self) -> &'static str {
        match self {
            Trust::Pinned => "pinned",
            Trust::Store => "store",
            Trust::Sidecar => "sidecar",
            Trust::Tofu => "tofu",
            Trust::None => "none",
        }
    }
}

/// What is known about the bytes of one tensor, or of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorState {
    /// Nothing was served yet, or something that there was nothing to compare with.
    Unverified,
    /// Everything that was served was compared with a promise and kept it.
    Verified,
    /// Some chunk is bad.
    Degraded,
    /// The breaker is open: chunks that failed are not tried again for now.
    Open,
    /// The file was truncated or modified in place.
    Stale,
}

impl TensorState {
    /// Every state, the best first.
    pub const ALL: [TensorState; 5] = [
        TensorState::Verified,
        TensorState::Unverified,
        TensorState::Degraded,
        TensorState::Open,
        TensorState::Stale,
    ];

    /// What is to be said of bytes that come from two tensors.
    pub const fn worse(self, other: TensorState) -> TensorState {
        const fn rank(state: TensorState) -> u8 {
            match state {
                TensorState::Verified => 0,
                TensorState::Unverified => 1,
                TensorState::Degraded => 2,
                TensorState::Open => 3,
                TensorState::Stale => 4,
            }
        }
        if rank(other) > rank(self) { other } else { self }
    }

    /// The word in JSON and xattrs.
    pub const fn name(self) -> &'static str {
        match self {
            TensorState::Unverified => "unverified",
            TensorState::Verified => "verified",
            TensorState::Degraded => "degraded",
            TensorState::Open => "open",
            TensorState::Stale => "stale",
        }
    }
}

/// Counters of a store, since the mount.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) bytes_served: AtomicU64,
    pub(super) chunks_checked: AtomicU64,
    pub(super) mismatches: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) healed: AtomicU64,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// One bad chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadChunk {
    /// The tensor's index; `None` for header and padding.
    pub tensor: Option<u32>,
    /// What it lies in.
    pub part: Part,
    /// Its number within the tensor, or within the header or padding.
    pub chunk: u64,
    /// The file it lies in.
    pub shard: u32,
    /// First byte, from the start of that file.
    pub source_offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Promised CRC32 in hexadecimal, or "unknown".
    pub expected: String,
    /// CRC32 of the bytes that are there, or "unreadable: ...".
    pub found: String,
}

/// A breaker that is not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// The tensor's index; `None` for header and padding.
    pub tensor: Option<u32>,
    /// Whether a probe is under way: "half-open", else "open".
    pub half_open: bool,
    /// How long until the next probe may be.
    pub remaining: Duration,
}

/// Everything for `.weightfs/status.json` that the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How bytes are checked.
    pub verify: Verify,
    /// What is done about bad ones.
    pub on_corruption: OnCorruption,
    /// Why the others are believed.
    pub trust: Trust,
    /// The worst that is true of any source or tensor.
    pub state: TensorState,
    /// Reads asked for.
    pub reads: u64,
    /// Bytes that went out to readers, those in front of damage among them.
    pub bytes_served: u64,
    /// Chunks whose sum was computed.
    pub chunks_checked: u64,
    /// Times a chunk was not as expected at the first look.
    pub mismatches: u64,
    /// Further looks.
    pub retries: u64,
    /// Chunks that were good at a further look.
    pub healed: u64,
    /// Source files that were truncated or modified in place.
    pub source_changed: u64,
    /// Chunks that are bad now, in order of the files; the first thousand.
    pub bad: Vec<BadChunk>,
    /// Number of chunks that are bad now.
    pub bad_chunks: u64,
    /// Breakers that are not closed.
    pub breakers: Vec<Breaker>,
    /// What happened to the sources and the seal without harm, and why changed ones are stale.
    pub notes: Vec<String>,
}

impl Store {
    /// A snapshot. Waits for nothing, whatever the sources do.
    pub fn status(&self) -> Status {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let bad = self.damage.listed().into_iter().filter_map(|(chunk, bad)| {
            let (piece, within) = self.grid().locate(chunk)?;
            let (source_offset, len) = self.grid().chunk_of(&piece, within);
            Some(BadChunk {
                tensor: match piece.part {
                    Part::Tensor(index) => Some(index),
                    _ => None,
                },
                part: piece.part,
                chunk: within,
                shard: piece.shard,
                source_offset,
                len,
                expected: bad.expected.map_or("unknown".to_owned(), crc_hex),
                found: bad.found.to_string(),
            })
        });
        let seal = self.seal().map(Seal::file);
        let notes = self.sources().iter().chain(seal).flat_map(|source| {
            let file = source.path().in_line().to_string();
            let changed = source.changed().map(|what| format!("changed: {what}"));
            let notes = source.notes().into_iter().chain(changed);
            notes.map(move |note| format!("{file}: {note}")).collect::<Vec<_>>()
        });
        let now = self.now();
        let breakers = self.breakers.tripped().into_iter().filter_map(|tripped| {
            let (piece, _) = self.grid().locate(tripped.piece)?;
            Some(Breaker {
                tensor: match piece.part {
                    Part::Tensor(index) => Some(index),
                    _ => None,
                },
                half_open: tripped.half_open,
                remaining: tripped.until.saturating_sub(now),
            })
        });
        let source_changed = self.sources().iter().filter(|s| s.is_changed()).count() as u64;
        Status {
            verify: self.options.verify,
            on_corruption: self.options.on_corruption,
            trust: self.trust(),
            state: self.state(),
            reads: read(&counters.reads),
            bytes_served: read(&counters.bytes_served),
            chunks_checked: read(&counters.chunks_checked),
            mismatches: read(&counters.mismatches),
            retries: read(&counters.retries),
            healed: read(&counters.healed),
            source_changed,
            bad: bad.collect(),
            bad_chunks: self.damage.count(),
            breakers: breakers.collect(),
            notes: notes.collect(),
        }
    }

    /// The worst that is true of anything.
    fn state(&self) -> TensorState {
        if self.sources().iter().any(|s| s.is_changed()) {
            TensorState::Stale
        } else if self.breakers.any_tripped() {
            TensorState::Open
        } else if self.damage.count() > 0 {
            TensorState::Degraded
        } else if self.all_checked() {
            TensorState::Verified
        } else {
            TensorState::Unverified
        }
    }
}
