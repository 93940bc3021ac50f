//! Whether anybody uses the mount.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What `idle=` looks at.
#[derive(Debug)]
pub(super) struct Activity {
    since: Instant,
    pub(super) open: AtomicU64,
    /// Milliseconds after `since` at which a file was last opened or closed.
    last: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Activity {
        Activity { since: Instant::now(), open: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    pub(super) fn touch(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// How long no file has been open; `None` while one is.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        if self.open.load(Ordering::Relaxed) > 0 {
            return None;
        }
        Some(
            self.since
                .elapsed()
                .saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed))),
        )
    }
}
