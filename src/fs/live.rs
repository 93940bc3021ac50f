//! `.weightfs/`: how things stand now, from memory only.

use super::WeightFs;
use crate::layout::Live;
use crate::store::{Part, Status};
use crate::view::json;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// `/proc/self/status`, open: a daemon that gave up opening files still knows its size. One for
/// all models of the process.
static PROCESS: OnceLock<Option<File>> = OnceLock::new();

/// When the mount began, by both clocks: one for people, one that never jumps.
#[derive(Debug)]
pub struct Started {
    wall: SystemTime,
    monotonic: Instant,
    /// What the daemon gave up, in words.
    confined: OnceLock<String>,
    /// Who has been waiting for a source for so long that it must hang.
    stalled: AtomicUsize,
}

impl Started {
    /// This moment.
    pub fn now() -> Started {
        PROCESS.get_or_init(|| File::open("/proc/self/status").ok());
        Started {
            wall: SystemTime::now(),
            monotonic: Instant::now(),
            confined: OnceLock::new(),
            stalled: AtomicUsize::new(0),
        }
    }

    /// Says once what the daemon gave up.
    pub fn set_confined(&self, what: String) {
        // The first one said holds.
        let _ = self.confined.set(what);
    }

    /// What it gave up, once that was said.
    pub fn confined(&self) -> Option<&str> {
        self.confined.get().map(String::as_str)
    }

    /// Says how many requests wait for a source that seems to hang.
    pub fn set_stalled(&self, requests: usize) {
        self.stalled.store(requests, Ordering::Relaxed);
    }

    /// How many requests, in the whole mount, wait for a source that seems to hang.
    pub fn stalled(&self) -> usize {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Seconds since 1970.
    pub fn mounted_at(&self) -> u64 {
        self.wall.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
    }

    /// Seconds since the mount.
    pub fn uptime(&self) -> u64 {
        self.monotonic.elapsed().as_secs()
    }

    /// A line of `/proc/self/status`, in bytes: `VmRSS:` counts mapped file pages as well,
    /// `RssAnon:` is what this process holds itself.
    pub fn memory(&self, field: &str) -> u64 {
        let mut text = [0; 4096];
        let process = PROCESS.get().and_then(Option::as_ref);
        let len = process.and_then(|file| file.read_at(&mut text, 0).ok());
        let text = String::from_utf8_lossy(&text[..len.unwrap_or(0)]);
        let kib = text.lines().find_map(|line| line.strip_prefix(field));
        let kib = kib.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

impl WeightFs {
    /// Says once what the daemon gave up, for `status.json`.
    pub fn set_confined(&self, what: String) {
        self.started.set_confined(what);
    }

    /// Says how many requests of the whole mount wait for a source that seems to hang.
    pub fn set_stalled(&self, requests: usize) {
        self.started.set_stalled(requests);
    }

    /// The text of a live document as of now.
    pub(super) fn live(&self, live: Live) -> Vec<u8> {
        match live {
            Live::Status => json::document(&self.status()),
            Live::Metrics => self.metrics().into_bytes(),
        }
    }

    /// What is known of the bytes, and of the trouble with them.
    pub fn known(&self) -> Known {
        let status = self.parts.store.status();
        let tensor = |index: Option<u32>| {
            let name = index.map(|t| &self.parts.model.tensors[t as usize].name);
            name.map(|name| json::lossy(name).into_owned())
        };
        let bad = status.bad.iter().map(|b| {
            json!({
                "part": part_name(b.part),
                "tensor": tensor(b.tensor),
                "chunk": b.chunk,
                "source_offset": b.source_offset,
                "expected": b.expected,
                "found": b.found,
            })
        });
        let now = SystemTime::now();
        let breakers = status.breakers.iter().map(|b| {
            let until = (now + b.remaining).duration_since(UNIX_EPOCH).unwrap_or_default();
            json!({
                "tensor": tensor(b.tensor),
                "state": if b.half_open { "half-open" } else { "open" },
                "until": until.as_secs(),
            })
        });
        Known { bad: bad.collect(), breakers: breakers.collect(), status }
    }

    /// `status.json`.
    fn status(&self) -> Json {
        let store = &self.parts.store;
        let Known { status, bad, breakers } = self.known();
        json!({
            "mounted_at": self.started.mounted_at(),
            "uptime_seconds": self.started.uptime(),
            "verify": self.parts.verify.name(),
            "trust": store.trust().name(),
            "state": status.state.name(),
            "reads": status.reads,
            "bytes_served": status.bytes_served,
            "chunks_checked": status.chunks_checked,
            "mismatches": status.mismatches,
            "retries": status.retries,
            "healed": status.healed,
            "source_changed": status.source_changed > 0,
            "breakers": breakers,
            "bad": bad,
            "rss_bytes": self.started.memory("VmRSS:"),
            "log": self.parts.log,
            "pid": std::process::id(),
            "stalled": self.started.stalled(),
            "confined": self.started.confined(),
            "sealed": store.is_sealed(),
            "on_corruption": status.on_corruption.name(),
            "rss_anon_bytes": self.started.memory("RssAnon:"),
            "notes": status.notes,
        })
    }
}

/// What a model's store knows, with names in the place of numbers.
#[derive(Debug)]
pub struct Known {
    /// As it is.
    pub status: Status,
    /// `bad` of `status.json`.
    pub bad: Vec<Json>,
    /// `breakers` of `status.json`.
    pub breakers: Vec<Json>,
}

/// What a damaged chunk lies in.
pub(super) fn part_name(part: Part) -> &'static str {
    match part {
        Part::Header => "header",
        Part::Tensor(_) => "tensor",
        Part::Padding | Part::Trailing => "padding",
    }
}
