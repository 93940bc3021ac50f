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

/// The files that are open so.
#[derive(Debug, Default)]
pub(super) struct Passthrough {
    /// Whether the kernel can.
    offered: bool,
    /// Whether it has said that we may not.
    refused: AtomicBool,
    /// One per file: all who have it open must have the same.
    open: Mutex<HashMap<Ino, Backing>>,
}

#[derive(Debug)]
struct Backing {
    id: BackingId,
    opens: usize,
}

impl Passthrough {
    /// For a kernel that can, or not.
    pub(super) fn new(offered: bool) -> Passthrough {
        Passthrough { offered, ..Passthrough::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Backing>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens `ino` so that its bytes come from `file`; gives the reply back where that cannot be.
    pub(super) fn open(&self, ino: Ino, file: &File, reply: ReplyOpen) -> Option<ReplyOpen> {
        if !self.offered || self.refused.load(Ordering::Relaxed) {
            return Some(reply);
        }
        let mut open = self.lock();
        let backing = match open.entry(ino) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => match reply.open_backing(file) {
                Ok(id) => place.insert(Backing { id, opens: 0 }),
                Err(error) => {
                    debug!("the kernel does not pass reads through: {error}");
                    self.refused.store(true, Ordering::Relaxed);
                    return Some(reply);
                }
            },
        };
        backing.opens += 1;
        reply.opened_passthrough(HANDLE, FopenFlags::FOPEN_NOFLUSH, &backing.id);
        None
    }

    /// Somebody has closed `ino`.
    pub(super) fn close(&self, ino: Ino, handle: FileHandle) {
        if handle != HANDLE {
            return;
        }
        let mut open = self.lock();
        if let Some(backing) = open.get_mut(&ino) {
            backing.opens -= 1;
            if backing.opens == 0 {
                open.remove(&ino);
            }
        }
    }
}
