//! Live documents that are open: each open shows one state.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open file: 0 unless it is a live document's snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u64);

/// The texts of all that are open.
#[derive(Debug, Default)]
pub struct Snapshots {
    open: Mutex<HashMap<u64, Arc<Vec<u8>>>>,
    last: AtomicU64,
}

impl Snapshots {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Vec<u8>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `text` until it is closed.
    pub fn open(&self, text: Vec<u8>) -> Handle {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(handle, Arc::new(text));
        Handle(handle)
    }

    /// Copies bytes from `offset` on into `out` and returns how many; of a text that nobody has
    /// opened as it is `now`.
    pub fn read(
        &self,
        handle: Handle,
        now: impl FnOnce() -> Vec<u8>,
        offset: u64,
        out: &mut [u8],
    ) -> usize {
        let kept = self.lock().get(&handle.0).cloned();
        let text = kept.unwrap_or_else(|| Arc::new(now()));
        let rest = usize::try_from(offset).ok().and_then(|o| text.get(o..)).unwrap_or_default();
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        n
    }

    /// Forgets an open text.
    pub fn close(&self, handle: Handle) {
        if handle.0 != 0 {
            self.lock().remove(&handle.0);
        }
    }
}
