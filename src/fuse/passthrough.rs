//! Files that the kernel reads by itself.
//!
//! `source/FILE` is the source, byte for byte. Where nothing (more) is to be checked,
//! the kernel may take the bytes from there without asking us, as fast as from the source itself.
//! It needs Linux 6.9 and the rights of root; without them the file is served like any other.

use crate::layout::Ino;
use fuser::{BackingId, FileHandle, FopenFlags, ReplyOpen};
use log::debug;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The handle of every file opened so: no reads come of it.
const HANDLE: FileHandle = FileHandle(u64::MAX);

/// The source files that are open.
#[derive(Debug, Default)]
pub(super) struct Passthrough {
    /// Whether the kernel can.
    offered: bool,
    /// Whether it has said that we may not.
    refused: AtomicBool,
    open: Mutex<HashMap<Ino, Opens>>,
}

/// How a file is open. The kernel fails an open that is not like the others there are of the
/// file, with EIO, so that the first decides for all until the last is closed.
#[derive(Debug)]
enum Opens {
    /// Read by the kernel, so many times.
    Passed(BackingId, usize),
    /// Served by us, so many times.
    Served(usize),
}

impl Passthrough {
    /// For a kernel that can, or not.
    pub(super) fn new(offered: bool) -> Passthrough {
        Passthrough { offered, ..Passthrough::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Opens>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens `ino` so that its bytes come from `file`, if there is one; gives the reply back where
    /// that cannot be: the file is served then.
    pub(super) fn open(
        &self,
        ino: Ino,
        file: Option<&File>,
        reply: ReplyOpen,
    ) -> Option<ReplyOpen> {
        if !self.offered {
            return Some(reply);
        }
        let mut open = self.lock();
        let opens = match open.entry(ino) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(self.first(file, &reply)),
        };
        match opens {
            Opens::Passed(id, times) => {
                *times += 1;
                reply.opened_passthrough(HANDLE, FopenFlags::FOPEN_NOFLUSH, id);
                None
            }
            Opens::Served(times) => {
                *times += 1;
                Some(reply)
            }
        }
    }

    /// How a file is opened that is not open.
    fn first(&self, file: Option<&File>, reply: &ReplyOpen) -> Opens {
        let Some(file) = file.filter(|_| !self.refused.load(Ordering::Relaxed)) else {
            return Opens::Served(0);
        };
        match reply.open_backing(file) {
            Ok(id) => Opens::Passed(id, 0),
            Err(error) => {
                debug!("the kernel does not pass reads through: {error}");
                self.refused.store(true, Ordering::Relaxed);
                Opens::Served(0)
            }
        }
    }

    /// Somebody has closed `ino`.
    pub(super) fn close(&self, ino: Ino, handle: FileHandle) {
        let mut open = self.lock();
        let times = match open.get_mut(&ino) {
            Some(Opens::Passed(_, times)) if handle == HANDLE => times,
            Some(Opens::Served(times)) if handle != HANDLE => times,
            _ => return,
        };
        *times = times.saturating_sub(1);
        if *times == 0 {
            open.remove(&ino);
        }
    }
}
