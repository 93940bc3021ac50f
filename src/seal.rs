//! The seal: what was promised about a model's bytes.
//!
//! One JSON file covers every byte of every source file with a CRC32 per chunk, and
//! each tensor and file with a SHA-256. This room makes it ([`create`]), finds and
//! loads it ([`find`], [`Seal::load`]), and checks everything against it
//! ([`verify`]). A loaded seal keeps a few words per tensor; the chunk sums stay in
//! the file and are read where a read needs them. Paddings that are zeros, where there are
//! very many, stand there as their number and are known to have the sums of zeros.
//!
//! Knows the model's tensors and extents; not what formats, views or mounts make of them.

mod as_written;
mod create;
mod damaged;
mod described;
mod entry;
mod file_crc;
mod fold;
mod grid;
mod hashing;
mod headers;
mod lexer;
mod merge;
mod peek;
mod place;
mod read;
mod remains;
mod sums;
mod target;
mod verify;
mod whole;
mod write;

pub use crate::bytes::hex::{crc_hex, from_hex, hex};
pub use create::{Outcome, SealOptions, SealReport, create};
pub use damaged::{Verified, objection, verify_against, verify_unopened};
pub use grid::{DEFAULT_CHUNK, Grid, MAX_CHUNK, MIN_CHUNK, Part, Piece, is_chunk_size};
pub use merge::merge;
pub use peek::{Peeked, peek};
pub(crate) use place::{Draft, make_dir};
pub use place::{abandon_drafts, beside, cache_home, cached, find, part_beside, sealed_in};
pub use target::is_seal;
pub use verify::{Bad, END, VerifyOptions, VerifyReport, sha256_file, verify};

use crate::bytes::hex;
use crate::bytes::line::InLine;
use crate::source::{IoMode, Source, SourceError, timestamp};
use crate::trust::{Contradiction, Known};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use sums::crc_of_zeros;

/// The version of the format that is written and read.
const VERSION: u64 = 1;

/// Why there is no seal to rely on.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file is damaged, was edited, or is of another version.
    #[error(
        "{file}: not a valid seal: {what}; make it anew with 'weightfs seal --force', or ignore it with '-o seal=none'"
    )]
    Invalid {
        /// The seal.
        file: String,
        /// What is wrong, with offset, expected and found.
        what: String,
    },
    /// The seal is sound but describes other files.
    #[error(
        "{file}: the seal is not of this model: {what}; if the model is as it should be, make the seal anew with 'weightfs seal --force', or ignore it with '-o seal=none'"
    )]
    Foreign {
        /// The seal.
        file: String,
        /// What differs, with tensor, expected and found.
        what: String,
    },
    /// What has a seal's name is none.
    #[error("{file}: not a weightfs seal: {what}; remove it, or ignore it with '-o seal=none'")]
    NotASeal {
        /// What should be a seal.
        file: String,
        /// What it is instead.
        what: String,
    },
    /// A seal was to be written where something else is.
    #[error(
        "{file}: {what}: no seal takes its place, also with --force; remove it yourself, or name another file with --output"
    )]
    Occupied {
        /// What would be replaced.
        file: String,
        /// What it is.
        what: String,
    },
    /// The disk and the memory of the system disagree about the model.
    #[error(
        "{file}: {len} bytes at {offset} read differently from disk (CRC32 {disk}) and from the page cache ({cache}): nothing was sealed"
    )]
    Unstable {
        /// The source file.
        file: String,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Checksum of the bytes on the device.
        disk: String,
        /// Checksum of the bytes that the page cache gives.
        cache: String,
    },
    /// The bytes are not what is written down about them elsewhere.
    #[error("{0}")]
    Contradicted(Box<Contradiction>),
    /// Parts that cannot be merged.
    #[error("{file}: {what}")]
    Parts {
        /// A part.
        file: String,
        /// Why not, with the other part or the file.
        what: String,
    },
    /// The caller asked for what cannot be.
    #[error("chunk size {0} is not a power of two from 4 KiB to 16 MiB")]
    ChunkSize(u64),
    /// Chunks so small that the seal would be too long to be read.
    #[error(
        "a seal of {chunks} chunks of {chunk_bytes} bytes would be too long: choose a larger --chunk-size"
    )]
    TooLong {
        /// Number of chunks.
        chunks: u64,
        /// Bytes per chunk.
        chunk_bytes: u64,
    },
    /// The source could not be read, or changed meanwhile.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Neither beside the model nor, where that was tried, in the cache can a file be made.
    #[error("{file}: cannot create it: {source}{}", in_cache(cached))]
    NoPlace {
        /// The seal beside the model.
        file: String,
        /// Why it cannot be there.
        source: io::Error,
        /// The seal in the cache, and why it cannot be there.
        cached: Option<(String, io::Error)>,
    },
    /// The seal could not be read or written.
    #[error("{file}: {op}: {source}")]
    Io {
        /// The seal, or its directory.
        file: String,
        /// What was tried.
        op: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// What came of the cache, behind what came of the place beside the model.
fn in_cache(cached: &Option<(String, io::Error)>) -> String {
    cached
        .as_ref()
        .map_or_else(String::new, |(file, error)| format!("\nnor in the cache, as {file}: {error}"))
}

impl SealError {
    /// Whether the seal itself is at fault: invalid, or not of this file (exit code 5).
    pub fn is_mistrust(&self) -> bool {
        matches!(
            self,
            SealError::Invalid { .. } | SealError::Foreign { .. } | SealError::NotASeal { .. }
        )
    }

    /// Whether it is this seal file that could not be read, and not a file of the model.
    pub fn is_of(&self, seal: &Path) -> bool {
        let of = match self {
            SealError::Source(
                SourceError::Changed { file, .. }
                | SourceError::NotAFile { file, .. }
                | SourceError::Io { file, .. },
            )
            | SealError::Io { file, .. } => file,
            _ => return false,
        };
        *of == seal.in_line().to_string()
    }
}

/// What a seal says about one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// CRC32 (IEEE) of the whole tensor.
    pub crc32: u32,
    /// SHA-256 of the whole tensor, where the seal has any.
    pub sha256: Option<[u8; 32]>,
    /// Bytes per chunk of the seal.
    pub chunk_bytes: u64,
}

/// In [`Seal::tables`]: the sums are those of zeros.
const ZEROS: u64 = u64::MAX;

/// What is kept per tensor: 36 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    crc32: u32,
    sha256: [u8; 32],
}

/// A seal that was found to describe an open model.
#[derive(Debug)]
pub struct Seal {
    /// The seal file, kept open: a new seal that replaces it does not concern this one.
    file: Source,
    grid: Grid,
    /// Where the base64 text of each piece's chunk sums begins, by [`Piece::index`];
    /// [`ZEROS`] where they are those of zeros and not written down.
    tables: Vec<u64>,
    /// By tensor index.
    promises: Vec<Promise>,
    hashed: bool,
    /// SHA-256 of each file's header, by shard.
    headers: Vec<Option<[u8; 32]>>,
    /// SHA-256 of each whole source file, by shard.
    files: Vec<Option<[u8; 32]>>,
    /// CRC32 of each whole source file, by shard, once somebody asked for it; `None` where the
    /// seal could not be read.
    file_crcs: Vec<OnceLock<Option<u32>>>,
    /// When it was made, in its own words.
    created: String,
    /// The modification time of each source file then.
    mtimes: Vec<String>,
    /// For each file, begin and end of the long arrays of its metadata, where it says so.
    arrays: Vec<Option<Vec<(u64, u64)>>>,
    warnings: Vec<String>,
    /// Whether sums could not be read from it the last time.
    lost: AtomicBool,
}

impl Seal {
    /// The file it was read from.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The seal file, as it was opened.
    pub(crate) fn file(&self) -> &Source {
        &self.file
    }

    /// Whether the seal file is not on a local file system: whoever reads from it may have to wait.
    pub fn is_far(&self) -> bool {
        self.file.io() == IoMode::Pread
    }

    /// Whether the seal file is still what was loaded; one that was replaced by a rename is.
    pub fn check_unchanged(&self) -> Result<(), SealError> {
        Ok(self.file.check_unchanged()?)
    }

    /// When it was made, as it says: `2026-11-30T00:00:00Z`.
    pub fn created(&self) -> &str {
        &self.created
    }

    /// Pieces and chunks that it speaks of.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// What differs from the time of sealing without being damage.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Checksums of the tensor with this index.
    pub fn tensor(&self, index: usize) -> Option<Checksum> {
        let promise = self.promises.get(index)?;
        Some(Checksum {
            crc32: promise.crc32,
            sha256: self.hashed.then_some(promise.sha256),
            chunk_bytes: self.grid.chunk_bytes(),
        })
    }

    /// SHA-256 of a whole source file, where the seal has it.
    pub fn source_sha256(&self, shard: usize) -> Option<[u8; 32]> {
        self.files.get(shard).copied().flatten()
    }

    /// Whether `source` has the modification time that the file of this shard had when it was
    /// sealed: then nobody has written to it since, as far as one can tell without reading it. Its
    /// size was compared when the seal was loaded.
    pub fn is_of_time(&self, shard: usize, source: &Source) -> bool {
        let sealed = self.mtimes.get(shard);
        sealed.is_some_and(|sealed| *sealed == timestamp(source.identity().mtime))
    }

    /// SHA-256 of the header that `piece` is, where the seal has it.
    fn header_sha256(&self, piece: &Piece) -> Option<[u8; 32]> {
        let header = self.headers.get(piece.shard as usize).copied().flatten();
        header.filter(|_| piece.part == Part::Header)
    }

    /// The CRC32 of chunks `first..first + out.len()` of `piece`, read from the seal file.
    /// The caller keeps them inside the piece.
    pub fn expected(&self, piece: &Piece, first: u64, out: &mut [u32]) -> Result<(), SealError> {
        let read = self.read_sums(piece, first, out);
        match &read {
            Ok(()) if !self.lost.load(Ordering::Relaxed) => {}
            Ok(()) => {
                if self.lost.swap(false, Ordering::Relaxed) {
                    log::warn!("{}: the seal can be read again", self.path().in_line());
                }
            }
            // Who reads the model is told by an error that does not say whose it is.
            Err(error) => {
                if !self.lost.swap(true, Ordering::Relaxed) {
                    log::error!(
                        "the seal cannot be read, and what it is needed for fails: {error}"
                    );
                }
            }
        }
        read
    }

    fn read_sums(&self, piece: &Piece, first: u64, out: &mut [u32]) -> Result<(), SealError> {
        /// Sums decoded at a time; three of them fill four groups of four characters.
        const BATCH: usize = 192;
        let table = self.tables.get(piece.index).copied().unwrap_or(0);
        if table == ZEROS {
            for (within, crc) in (first..).zip(out) {
                *crc = crc_of_zeros(self.grid.chunk_of(piece, within).1);
            }
            return Ok(());
        }
        let mut first = first;
        for out in out.chunks_mut(BATCH) {
            // Sums are 4 bytes each, groups of base64 hold 3.
            let (from, to) = (4 * first, 4 * (first + out.len() as u64));
            let (group, groups_end) = (from / 3, to.div_ceil(3));
            let mut text = [0u8; (4 * BATCH / 3 + 2) * 4];
            let text = &mut text[..(groups_end - group) as usize * 4];
            self.file.read_at(table + 4 * group, text)?;
            let mut bytes = [0u8; (4 * BATCH / 3 + 2) * 3];
            let skip = (from - 3 * group) as usize;
            let good = match STANDARD.decode_slice(&*text, &mut bytes) {
                Ok(len) => bytes.get(skip..len).filter(|b| b.len() >= 4 * out.len()),
                Err(_) => None,
            };
            let Some(good) = good else {
                return Err(SealError::Invalid {
                    file: self.path().in_line().to_string(),
                    what: format!("the chunk table at byte {table} is not base64 of whole sums"),
                });
            };
            for (crc, four) in out.iter_mut().zip(good.chunks_exact(4)) {
                *crc = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
            }
            first += out.len() as u64;
        }
        Ok(())
    }
}

impl Known for Seal {
    fn file_sha256(&self, shard: usize) -> Option<[u8; 32]> {
        self.source_sha256(shard)
    }

    fn file_crc32(&self, shard: usize) -> Option<u32> {
        let crc = || self.file_crc32_of(shard as u32).ok();
        *self.file_crcs.get(shard)?.get_or_init(crc)
    }

    fn tensor_sha256(&self, index: usize) -> Option<[u8; 32]> {
        self.tensor(index)?.sha256
    }

    fn tensor_crc32(&self, index: usize) -> Option<u32> {
        Some(self.tensor(index)?.crc32)
    }
}

/// Characters of base64 that hold the sums of so many chunks.
fn table_len(chunks: u64) -> u64 {
    (4 * chunks).div_ceil(3) * 4
}

#[cfg(test)]
mod edited;
#[cfg(test)]
mod foreign_hand;
#[cfg(test)]
mod paddings;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
pub(crate) use grid::tests as grid_tests;
