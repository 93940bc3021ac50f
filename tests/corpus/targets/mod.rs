//! What is done with one input of each fuzz target. The property stands at the top of each.
//!
//! Shared by the fuzzer (`tests/fuzz`) and by `tests/corpus.rs`, which runs every kept input.
//! A broken property is a panic, more memory than is fair as well. Nothing here waits or keeps
//! anything from input to input, except the models that the seals and maps are of.
#![allow(clippy::unwrap_used)]

pub(crate) mod gguf;
pub(crate) mod hf;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod safetensors;
pub(crate) mod seal;
pub(crate) mod take;
pub(crate) mod tree;
pub(crate) mod views;
pub(crate) mod writers;

use std::cell::OnceCell;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A file in memory, where the system has such a place, that is filled anew for each input.
pub(crate) struct Scratch(tempfile::NamedTempFile);

impl Scratch {
    /// A new file in a directory that is memory.
    pub(crate) fn new() -> Scratch {
        let dir = PathBuf::from("/dev/shm");
        let dir = if dir.is_dir() { dir } else { std::env::temp_dir() };
        Scratch(tempfile::Builder::new().prefix("weightfs-corpus-").tempfile_in(dir).unwrap())
    }

    /// Holds exactly `bytes` from now on.
    pub(crate) fn fill(&self, bytes: &[u8]) -> &std::path::Path {
        self.0.as_file().set_len(bytes.len() as u64).unwrap();
        self.0.as_file().write_all_at(bytes, 0).unwrap();
        self.0.path()
    }
}

/// One scratch file for each thread.
pub(crate) fn with_scratch<T>(act: impl FnOnce(&Scratch) -> T) -> T {
    thread_local!(static FILE: OnceCell<Scratch> = const { OnceCell::new() });
    FILE.with(|file| act(file.get_or_init(Scratch::new)))
}
