//! A mapping that is lost between two looks at a chunk: what the first look left in memory is
//! told by that look, and not by where bytes come from afterwards.
#![allow(clippy::unwrap_used)]

use super::chunk::{Wanted, Way, take};
use super::*;
use crate::seal::SealOptions;
use crate::seal::tests::{Case, pattern};
use crate::source::IoMode;
use std::sync::atomic::AtomicUsize;

/// Longer than what is copied of a mapping at a time, short enough to be read at once.
const CHUNK: usize = 150_000;

fn file() -> (tempfile::TempDir, std::path::PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let bytes = pattern(2 * CHUNK, 3);
    std::fs::write(&path, &bytes).unwrap();
    (dir, path, bytes)
}

/// The part of chunk `within` that `out` has room for, from `from` on.
fn wanted(within: u64, from: u64, out: &mut [u8]) -> Wanted<'_> {
    let offset = within * CHUNK as u64;
    let (len, start) = (CHUNK as u64, offset + from);
    Wanted { chunk: within, within, offset, len, start, out, cost: 0, at_hand: false }
}

#[test]
fn what_came_from_a_mapping_is_read_again_when_that_is_lost() {
    let (_dir, path, bytes) = file();
    for (from, len) in [(0, CHUNK), (70_000, 4096), (0, 1), (CHUNK - 1, 1)] {
        for io in [IoMode::Mmap, IoMode::Pread] {
            let source = Source::open(&path, io).unwrap();
            let mut out = vec![0; len];
            let mut wanted = wanted(0, from as u64, &mut out);
            let sum = crc32fast::hash(&bytes[..CHUNK]);
            assert_eq!(take(&source, Way::Usual, &mut wanted, None).unwrap(), sum);
            assert_eq!(wanted.at_hand, io == IoMode::Pread);
            if io == IoMode::Mmap {
                source.loser()();
                assert_eq!(source.io(), IoMode::Pread);
            }
            assert_eq!(take(&source, Way::Recomputed, &mut wanted, None).unwrap(), sum);
            assert_eq!(out, bytes[from..from + len], "{io:?}, {from}");
        }
    }
}

/// By a script, so that it happens in the middle of a look, too.
#[test]
fn a_mapping_lost_within_a_look_costs_no_reader_a_byte() {
    let case = Case::new();
    case.seal_with(&SealOptions { chunk_bytes: 256 << 10, ..SealOptions::default() }).unwrap();
    let extent = case.extent(2);
    assert_eq!(extent.len as usize, CHUNK);
    // Pieces of which the first look consists, of the whole chunk and of a part.
    for at in 0..4 {
        for (from, len) in [(0, CHUNK), (70_000, 4096)] {
            let store = case.sealed(IoMode::Mmap);
            let source = &store.sources()[0];
            let (lose, reads) = (source.loser(), AtomicUsize::new(0));
            source.set_fault(Box::new(move |_, offset, out| {
                if offset + out.len() as u64 <= extent.offset {
                    return Ok(());
                }
                let number = reads.fetch_add(1, Ordering::Relaxed);
                if number == 0 {
                    // The first look is no good, and a second one follows.
                    out[0] ^= 1;
                }
                if number == at {
                    lose();
                }
                Ok(())
            }));
            let mut out = vec![0; len];
            store.read(extent, from as u64, &mut out).unwrap();
            assert_eq!(out, case.tensor(2)[from..from + len], "lost after read {at}");
            let status = store.status();
            assert_eq!((status.healed, status.bad_chunks), (1, 0), "lost after read {at}");
        }
    }
}
