//! Checking all bytes of a model against its seal, without a mount.

use super::described::described;
use super::grid::{Grid, Part, Piece};
use super::hex::{crc_hex, hex};
use super::sums::{sha256_of, sum_piece};
use super::whole::{Digested, Whole};
use super::{Seal, SealError};
use crate::model::Model;
use crate::ordered::in_order;
use crate::source::{IoMode, Source, SourceError};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// How thoroughly to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Whether the SHA-256 of tensors, headers and files are compared as well, where the seal
    /// has them: chunk sums find every accident, only these find intent. Slower.
    pub sha256: bool,
    /// The one file, by number, that is looked at; `None`: all of them.
    pub file: Option<u32>,
}

impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        VerifyOptions { sha256: true, file: None }
    }
}

/// A range that is not what was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Index of the tensor; `None` for header and padding.
    pub tensor: Option<u32>,
    /// What it lies in.
    pub part: Part,
    /// Number of the chunk in its piece; `None` where all chunks fit and the whole does not.
    pub chunk: Option<u64>,
    /// The file.
    pub shard: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The sealed checksum, in hexadecimal.
    pub expected: String,
    /// The checksum of the bytes, or the reason why there is none ("unreadable: ...").
    pub found: String,
}

/// The outcome of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Bad ranges in order of the files. Empty: everything is as sealed.
    pub bad: Vec<Bad>,
    /// Bad ranges that found no room in `bad`.
    pub more: u64,
    /// Chunks looked at.
    pub chunks: u64,
}

impl VerifyReport {
    /// Whether everything is as sealed.
    pub fn is_good(&self) -> bool {
        self.bad.is_empty()
    }
}

/// What stands in the place of a checksum begins with, where there are no bytes.
const UNREADABLE: &str = "unreadable: ";
/// Bad ranges that are listed. Memory is bounded also when another file was put in place.
const LISTED: usize = 100_000;

/// Checks every byte of all files, header and padding too, or of the one that the options
/// name. `progress` is called on this thread, now and then, with the number of bytes done of
/// all that are looked at.
pub fn verify(
    model: &Model,
    sources: &[Source],
    seal: &Seal,
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Result<VerifyReport, SealError> {
    let wanted = |piece: &Piece| options.file.is_none_or(|file| file == piece.shard);
    verify_pieces(&wanted, model, sources, seal, options, progress)
}

/// As [`verify`], of the pieces that are `wanted`.
fn verify_pieces(
    wanted: &(dyn Fn(&Piece) -> bool + Sync),
    model: &Model,
    sources: &[Source],
    seal: &Seal,
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Result<VerifyReport, SealError> {
    for source in sources {
        source.check_unchanged()?;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let with_files = options.sha256 && seal.files.iter().any(Option::is_some);
    let whole = Whole::new(sources, with_files);
    let whole = match options.file {
        Some(file) => whole.only(file),
        None => whole,
    };
    let check = Check { sources, seal, options, done: 0.into(), whole };
    let tick = || progress(check.whole.done(check.done.load(Ordering::Relaxed)));
    let grid = seal.grid();
    let pieces = || grid.pieces().filter(wanted);
    let chunks = pieces().map(|piece| grid.chunks_of(&piece)).sum();
    let mut report = VerifyReport { chunks, ..VerifyReport::default() };
    let mut files = vec![Findings::default(); sources.len()];
    let work = || {
        in_order(
            threads,
            pieces(),
            |piece| Ok((piece, check.piece(&piece)?)),
            |(piece, bad)| {
                for bad in bad {
                    files[piece.shard as usize].add(&bad);
                    if report.bad.len() < LISTED {
                        report.bad.push(bad);
                    } else {
                        report.more += 1;
                    }
                }
                Ok(())
            },
            tick,
        )
    };
    check.whole.beside(threads, work, tick)?;
    for source in sources {
        source.check_unchanged()?;
    }
    for ((shard, digested), findings) in check.whole.into_results().enumerate().zip(&files) {
        judge(model, seal, shard, digested, findings)?;
    }
    Ok(report)
}

/// What was found in one file.
#[derive(Clone, Default)]
struct Findings {
    bad: u64,
    /// The first range whose bytes could be read.
    first: Option<Bad>,
}

impl Findings {
    fn add(&mut self, bad: &Bad) {
        self.bad += 1;
        if self.first.is_none() && !bad.found.starts_with(UNREADABLE) {
            self.first = Some(bad.clone());
        }
    }
}

/// Tells damage of a file from a fault of the seal: parts of which one is good and the
/// other is not cannot have been sealed together.
fn judge(
    model: &Model,
    seal: &Seal,
    shard: usize,
    digested: Digested,
    findings: &Findings,
) -> Result<(), SealError> {
    let fault = |what: String| SealError::Invalid { file: seal.path().display().to_string(), what };
    let file = || String::from_utf8_lossy(&model.shards[shard].file).into_owned();
    let (found, sealed) = match (digested, seal.source_sha256(shard)) {
        (Ok(Some(found)), Some(sealed)) => (found, sealed),
        // Its pieces could not be read either, and tell where.
        (Err(_), _) if findings.bad > 0 => return Ok(()),
        (Err(e), _) => return Err(e.into()),
        (Ok(_), _) => return Ok(()),
    };
    match &findings.first {
        Some(bad) if found == sealed => Err(fault(format!(
            "{}: {} bytes at {} have checksum {}, the seal says {}, and yet all of {:?} is as sealed",
            match bad.tensor.and_then(|index| model.tensors.get(index as usize)) {
                Some(tensor) => format!("tensor {:?}", String::from_utf8_lossy(&tensor.name)),
                None => format!("the {}", bad.part.kind()),
            },
            bad.len,
            bad.offset,
            bad.found,
            bad.expected,
            file()
        ))),
        None if findings.bad == 0 && found != sealed => Err(fault(format!(
            "{:?} has SHA-256 {}, the seal says {}, and yet all its chunks are as sealed",
            file(),
            hex(&found),
            hex(&sealed)
        ))),
        _ => Ok(()),
    }
}

/// A report and the model that its tensors are counted in.
#[derive(Debug)]
pub struct Verified {
    /// What was found.
    pub report: VerifyReport,
    /// The model as the seal describes it, where the files' own headers no longer do:
    /// indices of tensors and shards in the report mean these. `None`: the model given.
    pub described: Option<Model>,
}

/// Checks every byte against the seal at `path`. A header so damaged that it describes
/// another model is damage, not another model, as long as most of the tensors' bytes are
/// those that were sealed: then the seal's own description is used.
pub fn verify_against(
    path: &Path,
    model: &Model,
    sources: &[Source],
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Result<Verified, SealError> {
    match Seal::load_layout(path, model, sources) {
        Ok(seal) => {
            let report = verify(model, sources, &seal, options, progress)?;
            Ok(Verified { report, described: None })
        }
        Err(foreign @ SealError::Foreign { .. }) => {
            match by_description(path, described(path)?, sources, options, progress) {
                Ok(Some(verified)) => Ok(verified),
                Ok(None) | Err(SealError::Foreign { .. }) => Err(foreign),
                Err(e) => Err(e),
            }
        }
        Err(e) => Err(e),
    }
}

/// Checks the files of a model that cannot be opened at all, if a seal lies beside its entry
/// file (or in the cache) and its bytes are mostly those that were sealed. `None`: there is
/// no such seal, or it is of something else, and why the model cannot be opened is all that
/// can be said.
pub fn verify_unopened(
    entry: &Path,
    io: IoMode,
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Option<Result<Verified, SealError>> {
    let path = super::find(entry)?;
    let model = described(&path).ok()?;
    let mut sources = Vec::new();
    for shard in &model.shards {
        // Names come from a file: they must not lead anywhere else.
        let name = Path::new(OsStr::from_bytes(&shard.file));
        let beside = match model.shards.len() {
            1 => entry.to_owned(),
            _ if name.file_name() == Some(name.as_os_str()) => entry.with_file_name(name),
            _ => return None,
        };
        sources.push(Source::open(&beside, io).ok()?);
    }
    match by_description(&path, model, &sources, options, progress) {
        Ok(None) | Err(SealError::Foreign { .. }) => None,
        Ok(Some(verified)) => Some(Ok(verified)),
        Err(e) => Some(Err(e)),
    }
}

/// `None` when the bytes are not those of the seal, so that nothing is known about them.
fn by_description(
    path: &Path,
    model: Model,
    sources: &[Source],
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Result<Option<Verified>, SealError> {
    let seal = Seal::load_layout(path, &model, sources)?;
    // Of the other files the headers: they tell whose seal it is.
    let wanted = |piece: &Piece| {
        piece.part == Part::Header || options.file.is_none_or(|file| file == piece.shard)
    };
    let report = verify_pieces(&wanted, &model, sources, &seal, options, progress)?;
    let headers: u64 = {
        let grid = seal.grid();
        grid.pieces().filter(|p| p.part == Part::Header).map(|p| grid.chunks_of(&p)).sum()
    };
    let bad_headers = report.bad.iter().filter(|b| b.part == Part::Header).count() as u64;
    let bad_data = report.bad.len() as u64 + report.more - bad_headers;
    let ours = bad_headers > 0 && 2 * bad_data < report.chunks - headers;
    Ok(ours.then_some(Verified { report, described: Some(model) }))
}

/// The check in hand.
struct Check<'a> {
    sources: &'a [Source],
    seal: &'a Seal,
    options: VerifyOptions,
    /// Bytes read in pieces.
    done: AtomicU64,
    whole: Whole<'a>,
}

impl Check<'_> {
    /// What is bad in a piece.
    fn piece(&self, piece: &Piece) -> Result<Vec<Bad>, SealError> {
        let (seal, grid) = (self.seal, self.seal.grid());
        let source = &self.sources[piece.shard as usize];
        let (tensor, sealed) = match piece.part {
            Part::Tensor(index) => {
                (Some(index), seal.tensor(index as usize).and_then(|sum| sum.sha256))
            }
            _ => (None, seal.header_sha256(piece)),
        };
        let sealed = sealed.filter(|_| self.options.sha256);
        let read = sum_piece(source, grid, piece, sealed.is_some(), |at, len| {
            self.whole.keep_close(piece.shard, at);
            self.done.fetch_add(len, Ordering::Relaxed);
            true
        });
        let sums = match read {
            Ok(Some(sums)) => sums,
            // A source that changed is no damage of the model: it is another file now.
            Err(e @ SourceError::Changed { .. }) => return Err(e.into()),
            Err(_) | Ok(None) => return unreadable(source, seal, grid, piece, tensor),
        };
        let mut bad = Vec::new();
        let mut expected = vec![0; sums.chunks.len().min(4096)];
        for (batch, found) in (0..).zip(sums.chunks.chunks(4096)) {
            let first = batch * 4096;
            let expected = &mut expected[..found.len()];
            seal.expected(piece, first, expected)?;
            for ((within, &found), &expected) in (first..).zip(found).zip(&*expected) {
                if found != expected {
                    bad.push(chunk(grid, piece, tensor, within, expected, crc_hex(found)));
                }
            }
        }
        if let (true, Some(expected), Some(found)) = (bad.is_empty(), sealed, sums.sha256)
            && expected != found
        {
            bad.push(Bad {
                tensor,
                part: piece.part,
                chunk: None,
                shard: piece.shard,
                offset: piece.offset,
                len: piece.len,
                expected: hex(&expected),
                found: hex(&found),
            });
        }
        Ok(bad)
    }
}

fn chunk(
    grid: &Grid,
    piece: &Piece,
    tensor: Option<u32>,
    within: u64,
    expected: u32,
    found: String,
) -> Bad {
    let (offset, len) = grid.chunk_of(piece, within);
    Bad {
        tensor,
        part: piece.part,
        chunk: Some(within),
        shard: piece.shard,
        offset,
        len,
        expected: crc_hex(expected),
        found,
    }
}

/// Some bytes of the piece cannot be read: find out which chunks that concerns.
fn unreadable(
    source: &Source,
    seal: &Seal,
    grid: &Grid,
    piece: &Piece,
    tensor: Option<u32>,
) -> Result<Vec<Bad>, SealError> {
    let mut bad = Vec::new();
    let mut room = Vec::new();
    for within in 0..grid.chunks_of(piece) {
        let mut expected = [0];
        seal.expected(piece, within, &mut expected)?;
        let (offset, len) = grid.chunk_of(piece, within);
        room.resize(len as usize, 0);
        let found = match source.reread_at(offset, &mut room) {
            Ok(()) => {
                let found = crc32fast::hash(&room);
                if found == expected[0] {
                    continue;
                }
                crc_hex(found)
            }
            Err(e @ SourceError::Changed { .. }) => return Err(e.into()),
            Err(e) => format!("{UNREADABLE}{e}"),
        };
        bad.push(chunk(grid, piece, tensor, within, expected[0], found));
    }
    Ok(bad)
}

/// SHA-256 of a whole source file, for a comparison with a digest from elsewhere.
/// `progress` is called with the number of bytes done.
pub fn sha256_file(source: &Source, progress: &dyn Fn(u64)) -> Result<[u8; 32], SealError> {
    source.check_unchanged()?;
    let sum = sha256_of(source, |at, _| {
        progress(at);
        true
    })?;
    source.check_unchanged()?;
    progress(source.len());
    Ok(sum.unwrap_or_default())
}
