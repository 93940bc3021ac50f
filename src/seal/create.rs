//! Making a seal: every byte read once by all cores, and once more in order for the
//! files' own SHA-256.

use super::grid::{DEFAULT_CHUNK, Grid, Part, Piece, is_chunk_size};
use super::hex::crc_hex;
use super::ordered::in_order;
use super::place::{self, Draft, beside, cache_home, cached_in, exists};
use super::read::MAX_LEN;
use super::sums::{Sums, crc_of, sha256_of, sum_piece};
use super::write::Writer;
use super::{Seal, SealError, table_len};
use crate::model::Model;
use crate::source::Source;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How a seal is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealOptions {
    /// Bytes per chunk: a power of two from 4 KiB to 16 MiB.
    pub chunk_bytes: u64,
    /// Whether to compute SHA-256, of each tensor, each header and each file.
    pub sha256: bool,
    /// Whether to replace a seal that is there.
    pub force: bool,
    /// Where to write it, instead of beside the model or into the cache.
    pub output: Option<PathBuf>,
}

impl Default for SealOptions {
    fn default() -> SealOptions {
        SealOptions { chunk_bytes: DEFAULT_CHUNK, sha256: true, force: false, output: None }
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new seal was written.
    Written,
    /// There was one that fits the model; it was left alone and nothing was read.
    Kept,
}

/// The seal that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealReport {
    /// Whether it is new.
    pub outcome: Outcome,
    /// Where it lies.
    pub path: PathBuf,
    /// Bytes per chunk.
    pub chunk_bytes: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Chunks that were compared with the device itself, past the page cache.
    pub compared: u64,
    /// SHA-256 of each source file, where the seal has it.
    pub files: Vec<Option<[u8; 32]>>,
}

/// How far the reading of tensors may be ahead of the serial pass over the same file,
/// bytes: what both read should come from the disk once.
const AHEAD: u64 = 1 << 30;
/// One chunk of so many is compared with the device.
const SAMPLE: u64 = 100;
/// At least so many chunks are, where there are as many.
const SAMPLE_LEAST: u64 = 8;

/// Reads all of `model`'s files and writes its seal. `entry` is the file the seal is named
/// after. `progress` is called on this thread, now and then, with the number of bytes done
/// of all files together.
pub fn create(
    model: &Model,
    sources: &[Source],
    entry: &Path,
    options: &SealOptions,
    progress: &dyn Fn(u64),
) -> Result<SealReport, SealError> {
    create_in(cache_home().as_deref(), model, sources, entry, options, progress)
}

/// As [`create`], with the cache named: tests have their own.
pub(super) fn create_in(
    cache: Option<&Path>,
    model: &Model,
    sources: &[Source],
    entry: &Path,
    options: &SealOptions,
    progress: &dyn Fn(u64),
) -> Result<SealReport, SealError> {
    if !is_chunk_size(options.chunk_bytes) {
        return Err(SealError::ChunkSize(options.chunk_bytes));
    }
    let in_cache = cache.map(|cache| cached_in(cache, entry));
    if !options.force {
        let places = match &options.output {
            Some(output) => vec![output.clone()],
            None => [Some(beside(entry)), in_cache.clone()].into_iter().flatten().collect(),
        };
        if let Some(path) = places.iter().find(|path| exists(path)) {
            return keep(path, model, sources);
        }
    }
    let grid = Grid::new(model, options.chunk_bytes);
    if table_len(grid.chunks()) > MAX_LEN / 2 {
        let (chunks, chunk_bytes) = (grid.chunks(), options.chunk_bytes);
        return Err(SealError::TooLong { chunks, chunk_bytes });
    }
    let (draft, path) = open_draft(entry, in_cache, options)?;
    let fail = |op, source| SealError::Io { file: path.display().to_string(), op, source };

    for source in sources {
        source.check_unchanged()?;
    }
    let mut writer = Writer::begin(draft.file(), model, sources, &grid, options.sha256)
        .map_err(|e| fail("write", e))?;
    let maker = Maker::new(model, sources, &grid, options.sha256);
    let files = maker.run(&mut writer, &path, progress)?;
    for source in sources {
        source.check_unchanged()?;
    }
    writer.finish(&files).map_err(|e| fail("write", e))?;
    draft.commit().map_err(|e| fail("rename", e))?;
    Ok(SealReport {
        outcome: Outcome::Written,
        path: path.clone(),
        chunk_bytes: options.chunk_bytes,
        chunks: grid.chunks(),
        compared: maker.compared.into_inner(),
        files,
    })
}

/// The seal that is there, if it fits.
fn keep(path: &Path, model: &Model, sources: &[Source]) -> Result<SealReport, SealError> {
    let seal = Seal::load(path, model, sources)?;
    Ok(SealReport {
        outcome: Outcome::Kept,
        path: path.to_owned(),
        chunk_bytes: seal.grid().chunk_bytes(),
        chunks: seal.grid().chunks(),
        compared: 0,
        files: (0..sources.len()).map(|shard| seal.source_sha256(shard)).collect(),
    })
}

/// Begins the file where it belongs: where the caller says, else beside the model, else,
/// if that directory cannot be written to, in the cache.
fn open_draft(
    entry: &Path,
    in_cache: Option<PathBuf>,
    options: &SealOptions,
) -> Result<(Draft, PathBuf), SealError> {
    let fail = |path: &Path, source| SealError::Io {
        file: path.display().to_string(),
        op: "create",
        source,
    };
    if let Some(output) = &options.output {
        let draft = Draft::new(output).map_err(|e| fail(output, e))?;
        return Ok((draft, output.clone()));
    }
    let first = beside(entry);
    let refused = match Draft::new(&first) {
        Ok(draft) => return Ok((draft, first)),
        Err(e) => e,
    };
    let elsewhere = matches!(
        refused.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidFilename
    );
    // One that lies beside the model is found first, so a new one in the cache would be
    // of no use.
    match in_cache {
        Some(path) if elsewhere && !exists(&first) => {
            let dir = path.parent().unwrap_or(&path);
            let draft = place::make_dir(dir)
                .and_then(|()| Draft::new(&path))
                .map_err(|e| fail(&path, e))?;
            Ok((draft, path))
        }
        _ => Err(fail(&first, refused)),
    }
}

/// The work in hand.
struct Maker<'a> {
    model: &'a Model,
    sources: &'a [Source],
    grid: &'a Grid,
    with_sha: bool,
    /// Bytes summed, and bytes hashed in order: each file counts in both.
    summed: AtomicU64,
    hashed: AtomicU64,
    /// For each file, how far the serial pass has come.
    reached: Vec<AtomicU64>,
    stop: AtomicBool,
    /// Every so manieth chunk, from which on.
    sample: (u64, u64),
    compared: AtomicU64,
}

impl<'a> Maker<'a> {
    fn new(model: &'a Model, sources: &'a [Source], grid: &'a Grid, with_sha: bool) -> Maker<'a> {
        let each = SAMPLE.min(grid.chunks() / SAMPLE_LEAST).max(1);
        Maker {
            model,
            sources,
            grid,
            with_sha,
            summed: AtomicU64::new(0),
            hashed: AtomicU64::new(0),
            reached: sources.iter().map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
            sample: (each, RandomState::new().hash_one(0) % each),
            compared: AtomicU64::new(0),
        }
    }

    fn run(
        &self,
        writer: &mut Writer<'_>,
        path: &Path,
        progress: &dyn Fn(u64),
    ) -> Result<Vec<Option<[u8; 32]>>, SealError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let results: Vec<OnceLock<_>> = self.sources.iter().map(|_| OnceLock::new()).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (next, results) = (&next, &results);
            if self.with_sha {
                for _ in 0..self.sources.len().min(threads) {
                    scope.spawn(move || {
                        loop {
                            let shard = next.fetch_add(1, Ordering::Relaxed);
                            let Some(source) = self.sources.get(shard) else {
                                return;
                            };
                            let result = sha256_of(source, |at, len| {
                                self.reached[shard].store(at, Ordering::Relaxed);
                                self.hashed.fetch_add(len, Ordering::Relaxed);
                                !self.stop.load(Ordering::Relaxed)
                            });
                            // Nobody waits for this file any more, whatever came of it.
                            self.reached[shard].store(u64::MAX / 2, Ordering::Relaxed);
                            let _ = results[shard].set(result);
                        }
                    });
                }
            }
            let outcome = self.sum_all(threads, writer, path, progress);
            if outcome.is_err() {
                self.stop.store(true, Ordering::Relaxed);
                return outcome;
            }
            while self.with_sha && results.iter().any(|r| r.get().is_none()) {
                self.tick(progress);
                std::thread::sleep(Duration::from_millis(20));
            }
            self.tick(progress);
            Ok(())
        })?;
        results
            .into_iter()
            .map(|result| match result.into_inner() {
                Some(result) => Ok(result?),
                None => Ok(None),
            })
            .collect()
    }

    fn tick(&self, progress: &dyn Fn(u64)) {
        let (summed, hashed) =
            (self.summed.load(Ordering::Relaxed), self.hashed.load(Ordering::Relaxed));
        progress(if self.with_sha { (summed + hashed) / 2 } else { summed });
    }

    /// Regions first, since the text has them first, then tensors.
    fn sum_all(
        &self,
        threads: usize,
        writer: &mut Writer<'_>,
        path: &Path,
        progress: &dyn Fn(u64),
    ) -> Result<(), SealError> {
        let file = path.display().to_string();
        let fail = |source| SealError::Io { file: file.clone(), op: "write", source };
        in_order(
            threads,
            self.grid.pieces().filter(|p| !matches!(p.part, Part::Tensor(_))),
            |piece| Ok((piece, self.sum(&piece, self.with_sha && piece.part == Part::Header, 0)?)),
            |(piece, sums)| writer.region(&piece, &sums).map_err(fail),
            || self.tick(progress),
        )?;
        writer.regions_done().map_err(fail)?;
        let mut pieces =
            self.grid.pieces().filter(|p| matches!(p.part, Part::Tensor(_))).peekable();
        let tensors = (0..self.model.tensors.len() as u32).map(move |index| {
            let part = Part::Tensor(index);
            let piece = pieces.next_if(|p| p.part == part).or_else(|| {
                let extent = self.model.tensors[index as usize].extent;
                self.grid.pieces_from(extent.shard, extent.offset).next().filter(|p| p.part == part)
            });
            (index, piece)
        });
        in_order(
            threads,
            tensors,
            |(index, piece)| match piece {
                Some(piece) => Ok((index, self.sum(&piece, self.with_sha, AHEAD)?)),
                None => Ok((index, Sums::of_nothing(self.with_sha))),
            },
            |(index, sums)| writer.tensor(&self.model.tensors[index as usize], &sums).map_err(fail),
            || self.tick(progress),
        )
    }

    /// The sums of a piece. With `ahead` it keeps that close to the serial pass.
    fn sum(&self, piece: &Piece, with_sha: bool, ahead: u64) -> Result<Sums, SealError> {
        let source = &self.sources[piece.shard as usize];
        let reached = &self.reached[piece.shard as usize];
        let sums = sum_piece(source, self.grid, piece, with_sha, |at, len| {
            while self.with_sha
                && ahead > 0
                && at > reached.load(Ordering::Relaxed) + ahead
                && !self.stop.load(Ordering::Relaxed)
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            self.summed.fetch_add(len, Ordering::Relaxed);
            true
        })?;
        let sums = sums.unwrap_or_else(|| Sums::of_nothing(with_sha));
        self.compare(source, piece, &sums)?;
        Ok(sums)
    }

    /// Compares the sampled chunks of a piece with what the device has: a bad copy in the
    /// page cache must not be sealed.
    fn compare(&self, source: &Source, piece: &Piece, sums: &Sums) -> Result<(), SealError> {
        let (each, from) = self.sample;
        let mut room = Vec::new();
        for (within, &crc) in (0..).zip(&sums.chunks) {
            if (piece.first_chunk + within) % each != from {
                continue;
            }
            let (offset, len) = self.grid.chunk_of(piece, within);
            room.resize(len as usize, 0);
            if !source.reread_direct(offset, &mut room)? {
                return Ok(());
            }
            self.compared.fetch_add(1, Ordering::Relaxed);
            let disk = crc32fast::hash(&room);
            if disk == crc {
                continue;
            }
            source.check_unchanged()?;
            let cache = crc_of(source, offset, len, &mut room)?;
            return Err(SealError::Unstable {
                file: source.path().display().to_string(),
                offset,
                len,
                disk: crc_hex(disk),
                cache: crc_hex(if cache == disk { crc } else { cache }),
            });
        }
        Ok(())
    }
}
