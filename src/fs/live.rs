//! `.weightfs/`: how things stand now, from memory only.

use super::WeightFs;
use crate::layout::Live;
use crate::store::Part;
use crate::view::json;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When the mount began, by both clocks: one for people, one that never jumps.
#[derive(Debug)]
pub(super) struct Started {
    wall: SystemTime,
    monotonic: Instant,
    /// `/proc/self/status`, open: a daemon that gave up opening files still knows its size.
    process: Option<File>,
    /// What the daemon gave up, in words.
    confined: OnceLock<String>,
}

impl Started {
    pub(super) fn now() -> Started {
        Started {
            wall: SystemTime::now(),
            monotonic: Instant::now(),
            process: File::open("/proc/self/status").ok(),
            confined: OnceLock::new(),
        }
    }

    /// When the mount began, in seconds of Unix time.
    pub(super) fn at(&self) -> u64 {
        self.wall.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
    }

    /// Seconds since then, by the clock that never jumps.
    pub(super) fn uptime(&self) -> u64 {
        self.monotonic.elapsed().as_secs()
    }

    /// A line of `/proc/self/status`, in bytes: `VmRSS:` counts mapped file pages as well,
    /// `RssAnon:` is what this process holds itself.
    pub(super) fn memory(&self, field: &str) -> u64 {
        let mut text = [0; 4096];
        let len = self.process.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let text = String::from_utf8_lossy(&text[..len.unwrap_or(0)]);
        let kib = text.lines().find_map(|line| line.strip_prefix(field));
        let kib = kib.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

impl WeightFs {
    /// Says once what the daemon gave up, for `status.json`.
    pub fn set_confined(&self, what: String) {
        // The first one said holds.
        let _ = self.started.confined.set(what);
    }

    /// The text of a live document as of now.
    pub(super) fn live(&self, live: Live) -> Vec<u8> {
        match live {
            Live::Status => json::document(&self.status()),
            Live::Metrics => self.metrics().into_bytes(),
        }
    }

    /// `status.json` (contract 3.3).
    fn status(&self) -> Json {
        let store = &self.parts.store;
        let status = store.status();
        let bad: Vec<Json> = status
            .bad
            .iter()
            .map(|b| {
                let name = b.tensor.map(|t| &self.parts.model.tensors[t as usize].name);
                json!({
                    "part": part_name(b.part),
                    "tensor": name.map(|name| json::lossy(name)),
                    "chunk": b.chunk,
                    "source_offset": b.source_offset,
                    "expected": b.expected,
                    "found": b.found,
                })
            })
            .collect();
        let now = SystemTime::now();
        let breakers: Vec<Json> = status
            .breakers
            .iter()
            .map(|b| {
                let name = b.tensor.map(|t| &self.parts.model.tensors[t as usize].name);
                let until = (now + b.remaining).duration_since(UNIX_EPOCH).unwrap_or_default();
                json!({
                    "tensor": name.map(|name| json::lossy(name)),
                    "state": if b.half_open { "half-open" } else { "open" },
                    "until": until.as_secs(),
                })
            })
            .collect();
        json!({
            "mounted_at": self.started.at(),
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
            "confined": self.started.confined.get(),
            "sealed": store.is_sealed(),
            "on_corruption": status.on_corruption.name(),
            "rss_anon_bytes": self.started.memory("RssAnon:"),
            "notes": status.notes,
        })
    }
}

/// What a damaged chunk lies in.
pub(super) fn part_name(part: Part) -> &'static str {
    match part {
        Part::Header => "header",
        Part::Tensor(_) => "tensor",
        Part::Padding | Part::Trailing => "padding",
    }
}
