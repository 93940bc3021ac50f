//! Making a seal: every byte read once by all cores, and once more in order for the
//! files' own SHA-256.

use super::file_crc::FileCrcs;
use super::grid::{DEFAULT_CHUNK, Grid, Part, Piece, is_chunk_size};
use super::hex::crc_hex;
use super::place::{self, Draft, beside, cache_home, cached_in, exists};
use super::read::MAX_LEN;
use super::sums::{Sums, crc_of, sum_piece};
use super::target::{self, Place};
use super::whole::Whole;
use super::write::{Times, Writer};
use super::{Seal, SealError, table_len};
use crate::bytes::line::InLine;
use crate::model::Model;
use crate::ordered::in_order;
use crate::source::Source;
use crate::trust::{self, Anchor, Known};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Whether it is a part, of one file of a set: it lies beside that file under a name of
    /// its own, never in the cache.
    pub part: bool,
    /// What is written down elsewhere about the bytes: if they contradict it, nothing is
    /// sealed, and if they do not, the seal records it.
    pub anchors: Vec<Anchor>,
}

impl Default for SealOptions {
    fn default() -> SealOptions {
        SealOptions {
            chunk_bytes: DEFAULT_CHUNK,
            sha256: true,
            force: false,
            output: None,
            part: false,
            anchors: Vec::new(),
        }
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
    if let Some(path) = Places::new(cache, entry, options).taken(sources)? {
        return keep(&path, model, sources);
    }
    let grid = Grid::new(model, options.chunk_bytes);
    let (draft, path) = Places::new(cache, entry, options).open(&grid, sources)?;
    let fail = |op, source| SealError::Io { file: path.in_line().to_string(), op, source };

    for source in sources {
        source.check_unchanged()?;
    }
    let times = Times::now(sources);
    let (hash, anchors) = (options.sha256, &options.anchors);
    if hash {
        // What the sums below will not tell; there is seldom any.
        let wait = |_| progress(0);
        let wrong = trust::undecided_by_sealing(anchors, model, sources, AS_READ, &wait)?;
        if let Some(wrong) = wrong {
            return Err(SealError::Contradicted(Box::new(wrong)));
        }
    }
    let mut writer = Writer::begin(draft.file(), model, &times, &grid, hash, anchors)
        .map_err(|e| fail("write", e))?;
    let maker = Maker::new(model, sources, &grid, hash, anchors);
    maker.run(&mut writer, &path, progress)?;
    let compared = maker.compared.into_inner();
    let crcs: Option<Vec<_>> = maker.crcs.map(|crcs| crcs.into_sums().collect());
    let files = maker.whole.into_results().collect::<Result<Vec<_>, _>>()?;
    for source in sources {
        source.check_unchanged()?;
    }
    let known = Files { sha256: &files, crc32: crcs.as_deref().unwrap_or_default() };
    if let Some(wrong) = trust::contradicted(&options.anchors, model, &known, AS_READ) {
        return Err(SealError::Contradicted(Box::new(wrong)));
    }
    writer.finish(&files).map_err(|e| fail("write", e))?;
    // A long time has passed: something else may lie there now.
    target::check(&path, Place::of(options), sources, entry)?;
    draft.commit().map_err(|e| fail("rename", e))?;
    Ok(SealReport {
        outcome: Outcome::Written,
        path: path.clone(),
        chunk_bytes: options.chunk_bytes,
        chunks: grid.chunks(),
        compared,
        files,
    })
}

/// Who says what is compared with the anchors.
pub(super) const AS_READ: &str = "of the bytes that are there";

/// The digests of whole files, for a comparison with anchors.
pub(super) struct Files<'a> {
    pub(super) sha256: &'a [Option<[u8; 32]>],
    /// Empty where no anchor has any.
    pub(super) crc32: &'a [u32],
}

/// Where the CRC32 of whole files come together, if an anchor says what they are.
pub(super) fn crcs_for(anchors: &[Anchor], model: &Model) -> Option<FileCrcs> {
    let has = |anchor: &Anchor| anchor.claim.crc32.is_some();
    anchors.iter().any(has).then(|| FileCrcs::new(model))
}

impl Known for Files<'_> {
    fn file_sha256(&self, shard: usize) -> Option<[u8; 32]> {
        self.sha256.get(shard).copied().flatten()
    }

    fn file_crc32(&self, shard: usize) -> Option<u32> {
        self.crc32.get(shard).copied()
    }

    fn tensor_sha256(&self, _: usize) -> Option<[u8; 32]> {
        None
    }

    fn tensor_crc32(&self, _: usize) -> Option<u32> {
        None
    }
}

/// The seal that is there, if it fits.
pub(super) fn keep(
    path: &Path,
    model: &Model,
    sources: &[Source],
) -> Result<SealReport, SealError> {
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

/// Where a seal may be written: where the caller says, else beside the model, else, if that
/// directory cannot be written to, in the cache.
pub(super) struct Places<'a> {
    entry: &'a Path,
    force: bool,
    output: Option<&'a Path>,
    beside: PathBuf,
    in_cache: Option<PathBuf>,
}

impl<'a> Places<'a> {
    pub(super) fn new(
        cache: Option<&Path>,
        entry: &'a Path,
        options: &'a SealOptions,
    ) -> Places<'a> {
        Places {
            entry,
            force: options.force,
            output: options.output.as_deref(),
            beside: if options.part { place::part_beside(entry) } else { beside(entry) },
            in_cache: cache.filter(|_| !options.part).map(|cache| cached_in(cache, entry)),
        }
    }

    /// What lies at one of the places already, and is not to be replaced.
    pub(super) fn taken(&self, sources: &[Source]) -> Result<Option<PathBuf>, SealError> {
        if let Some(output) = self.output {
            target::check(output, Place::Named, sources, self.entry)?;
        }
        let places = match self.output {
            Some(output) => [Some(output), None],
            None => [Some(&*self.beside), self.in_cache.as_deref()],
        };
        let taken = places.into_iter().flatten().find(|path| !self.force && exists(path));
        Ok(taken.map(Path::to_path_buf))
    }

    /// Begins the file, for the chunks of `grid`.
    pub(super) fn open(
        self,
        grid: &Grid,
        sources: &[Source],
    ) -> Result<(Draft, PathBuf), SealError> {
        if table_len(grid.chunks()) > MAX_LEN / 2 {
            let (chunks, chunk_bytes) = (grid.chunks(), grid.chunk_bytes());
            return Err(SealError::TooLong { chunks, chunk_bytes });
        }
        let fail = |path: &Path, source| SealError::Io {
            file: path.in_line().to_string(),
            op: "create",
            source,
        };
        if let Some(output) = self.output {
            let draft = Draft::new(output).map_err(|e| fail(output, e))?;
            return Ok((draft, output.to_owned()));
        }
        let no_place = |first: &Path, source, cached| SealError::NoPlace {
            file: first.in_line().to_string(),
            source,
            cached,
        };
        let first = self.beside;
        target::check(&first, Place::Own { force: self.force }, sources, self.entry)?;
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
        match self.in_cache {
            Some(path) if elsewhere && !exists(&first) => {
                target::check(&path, Place::Own { force: self.force }, sources, self.entry)?;
                let dir = path.parent().unwrap_or(&path);
                match place::make_dir(dir).and_then(|()| Draft::new(&path)) {
                    Ok(draft) => Ok((draft, path)),
                    Err(error) => {
                        let cached = Some((path.in_line().to_string(), error));
                        Err(no_place(&first, refused, cached))
                    }
                }
            }
            _ => Err(no_place(&first, refused, None)),
        }
    }
}

/// The work in hand.
struct Maker<'a> {
    model: &'a Model,
    sources: &'a [Source],
    grid: &'a Grid,
    with_sha: bool,
    anchors: &'a [Anchor],
    /// Bytes summed in pieces.
    summed: AtomicU64,
    whole: Whole<'a>,
    crcs: Option<FileCrcs>,
    /// Every so manieth chunk, from which on.
    sample: (u64, u64),
    compared: AtomicU64,
}

impl<'a> Maker<'a> {
    fn new(
        model: &'a Model,
        sources: &'a [Source],
        grid: &'a Grid,
        with_sha: bool,
        anchors: &'a [Anchor],
    ) -> Maker<'a> {
        let each = SAMPLE.min(grid.chunks() / SAMPLE_LEAST).max(1);
        Maker {
            model,
            sources,
            grid,
            with_sha,
            anchors,
            summed: AtomicU64::new(0),
            whole: Whole::new(sources.iter().map(|source| with_sha.then_some(source))),
            crcs: crcs_for(anchors, model),
            sample: (each, RandomState::new().hash_one(0) % each),
            compared: AtomicU64::new(0),
        }
    }

    fn run(
        &self,
        writer: &mut Writer<'_>,
        path: &Path,
        progress: &dyn Fn(u64),
    ) -> Result<(), SealError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let work = || self.sum_all(threads, writer, path, progress);
        self.whole.beside(threads, work, || self.tick(progress))
    }

    fn tick(&self, progress: &dyn Fn(u64)) {
        progress(self.whole.done(self.summed.load(Ordering::Relaxed)));
    }

    /// Regions first, since the text has them first, then tensors.
    fn sum_all(
        &self,
        threads: usize,
        writer: &mut Writer<'_>,
        path: &Path,
        progress: &dyn Fn(u64),
    ) -> Result<(), SealError> {
        let file = path.in_line().to_string();
        let fail = |source| SealError::Io { file: file.clone(), op: "write", source };
        in_order(
            threads,
            self.grid.pieces().filter(|p| !matches!(p.part, Part::Tensor(_))),
            |piece| {
                Ok((piece, self.sum(&piece, self.with_sha && piece.part == Part::Header, false)?))
            },
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
                Some(piece) => Ok((index, self.sum(&piece, self.with_sha, true)?)),
                None => Ok((index, Sums::of_nothing(self.with_sha))),
            },
            |(index, sums)| {
                let (anchors, model) = (self.anchors, self.model);
                let (sha256, crc32) = (sums.sha256, sums.crc32);
                match trust::contradicted_tensor(anchors, model, index, sha256, crc32, AS_READ) {
                    Some(wrong) => Err(SealError::Contradicted(Box::new(wrong))),
                    None => writer.tensor(&model.tensors[index as usize], &sums).map_err(fail),
                }
            },
            || self.tick(progress),
        )
    }

    /// The sums of a piece. With `close` it keeps close to the serial pass.
    fn sum(&self, piece: &Piece, with_sha: bool, close: bool) -> Result<Sums, SealError> {
        let source = &self.sources[piece.shard as usize];
        let sums = sum_piece(source, self.grid, piece, with_sha, |at, len| {
            if close {
                self.whole.keep_close(piece.shard, at);
            }
            self.summed.fetch_add(len, Ordering::Relaxed);
            true
        })?;
        let sums = sums.unwrap_or_else(|| Sums::of_nothing(with_sha));
        self.compare(source, piece, &sums)?;
        if let Some(crcs) = &self.crcs {
            crcs.add(piece, sums.crc32);
        }
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
                file: source.path().in_line().to_string(),
                offset,
                len,
                disk: crc_hex(disk),
                cache: crc_hex(if cache == disk { crc } else { cache }),
            });
        }
        Ok(())
    }
}
