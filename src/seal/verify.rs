//! Checking all bytes of a model against its seal, without a mount.

use super::grid::{Grid, Part, Piece};
use super::hex::{crc_hex, hex};
use super::sums::{sha256_of, sum_piece};
use super::whole::{Digested, Whole};
use super::{Seal, SealError};
use crate::bytes::line::InLine;
use crate::model::{Model, Shard};
use crate::ordered::in_order;
use crate::source::{Source, SourceError};
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

impl VerifyOptions {
    fn looks_at(&self, file: u32) -> bool {
        self.file.is_none_or(|only| only == file)
    }
}

/// A range that is not what was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Index of the tensor; `None` for header and padding.
    pub tensor: Option<u32>,
    /// What it lies in.
    pub part: Part,
    /// Number of the chunk in its piece; `None` where all chunks fit and the whole does not,
    /// and for what lies behind the sealed end of a file.
    pub chunk: Option<u64>,
    /// The file.
    pub shard: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The sealed checksum, in hexadecimal; [`END`] for what lies behind it.
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

/// Stands in the place of the checksum of bytes that were not there when the file was sealed.
pub const END: &str = "end of file";
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
    let sources: Vec<_> = sources.iter().map(Some).collect();
    let wanted = |piece: &Piece| options.looks_at(piece.shard);
    Ok(verify_pieces(&wanted, model, &sources, seal, options, progress)?.0)
}

/// As [`verify`], of files that may be shorter or longer than was sealed, or not there at all:
/// what is missing of them is bad, and so is what is too much. The headers of all files are looked
/// at: they tell whose seal it is.
pub(super) fn verify_files(
    model: &Model,
    sources: &[Option<&Source>],
    seal: &Seal,
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Result<(VerifyReport, Tally), SealError> {
    let wanted = |piece: &Piece| piece.part == Part::Header || options.looks_at(piece.shard);
    verify_pieces(&wanted, model, sources, seal, options, progress)
}

/// Checks the pieces that are `wanted`.
fn verify_pieces(
    wanted: &(dyn Fn(&Piece) -> bool + Sync),
    model: &Model,
    sources: &[Option<&Source>],
    seal: &Seal,
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Result<(VerifyReport, Tally), SealError> {
    for source in sources.iter().flatten() {
        source.check_unchanged()?;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let with_files = options.sha256 && seal.files.iter().any(Option::is_some);
    // The digest of a file of another length is another one.
    let hashed = |number, shard: &Shard, source: &Source| {
        with_files && options.looks_at(number) && source.len() == shard.len
    };
    let whole = (0..)
        .zip(model.shards.iter().zip(sources))
        .map(|(number, (shard, source))| source.filter(|source| hashed(number, shard, source)));
    let check = Check { sources, seal, options, done: 0.into(), whole: Whole::new(whole) };
    let tick = || progress(check.whole.done(check.done.load(Ordering::Relaxed)));
    let grid = seal.grid();
    let pieces = || grid.pieces().filter(wanted);
    let chunks = pieces().map(|piece| grid.chunks_of(&piece)).sum();
    let mut report = VerifyReport { chunks, ..VerifyReport::default() };
    let mut tally = Tally::default();
    let mut files = vec![Findings::default(); sources.len()];
    let work = || {
        in_order(
            threads,
            pieces(),
            |piece| Ok((piece, check.piece(&piece)?)),
            |(piece, looked)| {
                tally.add(seal.grid(), &piece, &looked);
                report.more += looked.unlisted;
                for bad in looked.bad {
                    files[piece.shard as usize].add(&bad);
                    report.add(bad);
                }
                Ok(())
            },
            tick,
        )
    };
    check.whole.beside(threads, work, tick)?;
    for source in sources.iter().flatten() {
        source.check_unchanged()?;
    }
    for ((shard, digested), findings) in check.whole.into_results().enumerate().zip(&files) {
        judge(model, seal, shard, digested, findings)?;
    }
    for (number, (shard, source)) in (0..).zip(model.shards.iter().zip(sources)) {
        if let Some(more) = source.and_then(|source| source.len().checked_sub(shard.len))
            && more > 0
            && options.looks_at(number)
        {
            report.add(Bad {
                tensor: None,
                part: Part::Trailing,
                chunk: None,
                shard: number,
                offset: shard.len,
                len: more,
                expected: END.to_owned(),
                found: format!("{more} bytes more"),
            });
        }
    }
    report.bad.sort_by_key(|bad| bad.shard);
    Ok((report, tally))
}

impl VerifyReport {
    fn add(&mut self, bad: Bad) {
        if self.bad.len() < LISTED {
            self.bad.push(bad);
        } else {
            self.more += 1;
        }
    }
}

/// Chunks by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunks {
    /// All that the seal has.
    pub(super) sealed: u64,
    /// Those of which the file does not have all bytes.
    pub(super) missing: u64,
    /// Those whose bytes are others.
    pub(super) wrong: u64,
}

/// What all of a report comes to, also where it does not list everything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) headers: Chunks,
    /// Tensors and what lies between and behind them.
    pub(super) data: Chunks,
}

impl Tally {
    fn add(&mut self, grid: &Grid, piece: &Piece, looked: &Looked) {
        let chunks = match piece.part {
            Part::Header => &mut self.headers,
            _ => &mut self.data,
        };
        chunks.sealed += grid.chunks_of(piece);
        chunks.missing += looked.missing;
        chunks.wrong += looked.bad.len() as u64 + looked.unlisted - looked.missing;
    }
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
    let fault = |what: String| SealError::Invalid { file: seal.path().in_line().to_string(), what };
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

/// The check in hand.
struct Check<'a> {
    sources: &'a [Option<&'a Source>],
    seal: &'a Seal,
    options: VerifyOptions,
    /// Bytes read in pieces.
    done: AtomicU64,
    whole: Whole<'a>,
}

/// What a look at a piece came to.
#[derive(Default)]
struct Looked {
    bad: Vec<Bad>,
    /// Bad ones that found no room there.
    unlisted: u64,
    /// How many of all of these are bad since their bytes are not there.
    missing: u64,
}

impl Check<'_> {
    /// What is bad in a piece.
    fn piece(&self, piece: &Piece) -> Result<Looked, SealError> {
        let (seal, grid) = (self.seal, self.seal.grid());
        let source = self.sources.get(piece.shard as usize).copied().flatten();
        let len = source.map_or(0, Source::len);
        let there = len.saturating_sub(piece.offset).min(piece.len);
        if let Some(source) = source
            && there == piece.len
        {
            let sealed = match piece.part {
                Part::Tensor(index) => seal.tensor(index as usize).and_then(|sum| sum.sha256),
                _ => seal.header_sha256(piece),
            };
            let sealed = sealed.filter(|_| self.options.sha256);
            let bad = self.present(source, piece, sealed)?;
            return Ok(Looked { bad, ..Looked::default() });
        }
        // The chunks that are there as a whole, then those that are not.
        let whole = there / grid.chunk_bytes();
        let mut looked = Looked::default();
        if let Some(source) = source
            && whole > 0
        {
            let begin = Piece { len: whole * grid.chunk_bytes(), ..*piece };
            looked.bad = self.present(source, &begin, None)?;
        }
        let why = match source {
            Some(_) => format!("{UNREADABLE}the file ends at {len}"),
            None => format!("{UNREADABLE}there is no such file"),
        };
        looked.missing = grid.chunks_of(piece) - whole;
        for within in whole..grid.chunks_of(piece) {
            if looked.bad.len() == LISTED {
                looked.unlisted = grid.chunks_of(piece) - within;
                break;
            }
            let mut expected = [0];
            seal.expected(piece, within, &mut expected)?;
            looked.bad.push(chunk(grid, piece, within, expected[0], why.clone()));
        }
        Ok(looked)
    }

    /// What is bad in a piece that the file has, whose SHA-256 was `sealed`.
    fn present(
        &self,
        source: &Source,
        piece: &Piece,
        sealed: Option<[u8; 32]>,
    ) -> Result<Vec<Bad>, SealError> {
        let (seal, grid) = (self.seal, self.seal.grid());
        let read = sum_piece(source, grid, piece, sealed.is_some(), |at, len| {
            self.whole.keep_close(piece.shard, at);
            self.done.fetch_add(len, Ordering::Relaxed);
            true
        });
        let sums = match read {
            Ok(Some(sums)) => sums,
            // A source that changed is no damage of the model: it is another file now.
            Err(e @ SourceError::Changed { .. }) => return Err(e.into()),
            Err(_) | Ok(None) => return unreadable(source, seal, grid, piece),
        };
        let mut bad = Vec::new();
        let mut expected = vec![0; sums.chunks.len().min(4096)];
        for (batch, found) in (0..).zip(sums.chunks.chunks(4096)) {
            let first = batch * 4096;
            let expected = &mut expected[..found.len()];
            seal.expected(piece, first, expected)?;
            for ((within, &found), &expected) in (first..).zip(found).zip(&*expected) {
                if found != expected {
                    bad.push(chunk(grid, piece, within, expected, crc_hex(found)));
                }
            }
        }
        if let (true, Some(expected), Some(found)) = (bad.is_empty(), sealed, sums.sha256)
            && expected != found
        {
            bad.push(Bad {
                tensor: tensor_of(piece),
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

fn tensor_of(piece: &Piece) -> Option<u32> {
    match piece.part {
        Part::Tensor(index) => Some(index),
        _ => None,
    }
}

fn chunk(grid: &Grid, piece: &Piece, within: u64, expected: u32, found: String) -> Bad {
    let (offset, len) = grid.chunk_of(piece, within);
    Bad {
        tensor: tensor_of(piece),
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
        bad.push(chunk(grid, piece, within, expected[0], found));
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
