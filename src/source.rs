//! The only door to a source file's bytes.
//!
//! Bytes are copied out, so what a checksum saw is what is served. Must not know
//! what the bytes mean.

use crate::bytes::ReadAt;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// The mapping on local file systems, `pread` on network and FUSE ones.
    #[default]
    Auto,
    /// Always the mapping, guarded against SIGBUS.
    Mmap,
    /// Always `pread`.
    Pread,
}

/// What can go wrong with a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file was truncated or modified in place since it was opened.
    #[error("{file}: changed since it was opened: {what}")]
    Changed {
        /// Which file.
        file: String,
        /// What differs, with both values.
        what: String,
    },
    /// The operating system said no.
    #[error("{file}: {op}: {source}")]
    Io {
        /// Which file.
        file: String,
        /// What was tried, with offset and length where it was a read.
        op: String,
        /// The system's error.
        source: io::Error,
    },
}

/// An open, read-only source file.
#[derive(Debug)]
pub struct Source {}

#[allow(unused_variables, missing_docs, reason = "stub")]
impl Source {
    /// Opens `path` (regular files only, O_CLOEXEC) and remembers its identity.
    pub fn open(path: &Path, io: IoMode) -> Result<Source, SourceError> {
        unimplemented!()
    }
    /// The path it was opened by, made absolute but with symlinks kept.
    pub fn path(&self) -> &Path {
        unimplemented!()
    }
    /// File name of [`Source::path`].
    pub fn file_name(&self) -> &OsStr {
        unimplemented!()
    }
    /// Symlinks resolved, at open.
    pub fn canonical_path(&self) -> &Path {
        unimplemented!()
    }
    /// Size at open; it never changes afterwards.
    pub fn len(&self) -> u64 {
        unimplemented!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn mtime(&self) -> SystemTime {
        unimplemented!()
    }
    /// Which mode `Auto` came to.
    pub fn io(&self) -> IoMode {
        unimplemented!()
    }
    /// Copies bytes out, through the mapping or `pread`. Does not look at the identity.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        unimplemented!()
    }
    /// As `read_at` but always by `pread`, past the mapping: for a second look.
    pub fn reread_at(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        unimplemented!()
    }
    /// ESTALE rule of contract section 5: compares fstat with the identity at open.
    /// Renames, unlinks, chmods and links are noted, not errors. Sticky once it failed.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        unimplemented!()
    }
    /// Whether `check_unchanged` ever noted a harmless change (renamed, unlinked, ...), in words.
    pub fn notes(&self) -> Vec<String> {
        unimplemented!()
    }
    pub fn file(&self) -> &File {
        unimplemented!()
    }
}

impl ReadAt for Source {
    fn len(&self) -> u64 {
        Source::len(self)
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Source::read_at(self, offset, out).map_err(io::Error::other)
    }
}
