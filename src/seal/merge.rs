//! One seal from parts that were made file by file, perhaps on many machines.
//!
//! Nothing is read again: the sums are those of the parts, each of which was compared with its
//! file's header when it was loaded. The text is that of sealing all files in one run, but for
//! `created`, which is that of the newest part: merging the same parts gives the same bytes.

use super::create::{Files, Outcome, Places, SealOptions, SealReport, crcs_for, keep};
use super::grid::{Grid, Part, Piece};
use super::place::cache_home;
use super::sums::Sums;
use super::target::{self, Place};
use super::write::{Times, Writer};
use super::{Seal, SealError};
use crate::bytes::line::InLine;
use crate::model::Model;
use crate::source::Source;
use crate::trust;
use crc32fast::Hasher;
use std::path::Path;

/// Who says what is compared with the anchors.
const AS_SEALED: &str = "as sealed by its part";

/// Writes the seal of `model` from one part per file, in the order of `model.shards`. Of the
/// options only `force`, `output` and `anchors` count: the rest is as the parts are.
pub fn merge(
    parts: &[Seal],
    model: &Model,
    sources: &[Source],
    entry: &Path,
    options: &SealOptions,
) -> Result<SealReport, SealError> {
    let first = alike(parts)?;
    let grid = Grid::new(model, first.grid.chunk_bytes());
    let pieces = matched(parts, model, &grid)?;
    let cache = cache_home();
    if let Some(path) = Places::new(cache.as_deref(), entry, options).taken(sources)? {
        return keep(&path, model, sources);
    }
    let (draft, path) = Places::new(cache.as_deref(), entry, options).open(&grid, sources)?;
    let fail = |op, source| SealError::Io { file: path.in_line().to_string(), op, source };
    let times = Times {
        created: parts.iter().map(|part| part.created.clone()).max().unwrap_or_default(),
        mtimes: parts.iter().map(|part| part.mtimes.concat()).collect(),
    };
    let (hashed, anchors) = (first.hashed, &options.anchors);
    let mut writer = Writer::begin(draft.file(), model, &times, &grid, hashed, anchors)
        .map_err(|e| fail("write", e))?;
    let crcs = crcs_for(anchors, model);
    let add = |piece: &Piece, crc32| crcs.iter().for_each(|crcs| crcs.add(piece, crc32));
    let is_tensor = |piece: &&(Piece, Piece)| matches!(piece.0.part, Part::Tensor(_));
    for (whole, piece) in pieces.iter().filter(|piece| !is_tensor(piece)) {
        let part = &parts[whole.shard as usize];
        let mut sums = sums(part, piece)?;
        sums.sha256 = part.header_sha256(piece);
        add(whole, sums.crc32);
        writer.region(whole, &sums).map_err(|e| fail("write", e))?;
    }
    writer.regions_done().map_err(|e| fail("write", e))?;
    // Pieces are in the order of the files, tensors nearly always too.
    let mut tensors: Vec<_> = pieces.iter().filter(is_tensor).collect();
    tensors.sort_by_key(|(whole, _)| index(whole));
    let mut tensors = tensors.into_iter().peekable();
    for (number, tensor) in (0..).zip(&model.tensors) {
        let sums = match tensors.next_if(|(whole, _)| index(whole) == Some(number)) {
            Some((whole, piece)) => {
                let part = &parts[whole.shard as usize];
                let mut sums = sums(part, piece)?;
                let promise = index(piece).and_then(|index| part.tensor(index as usize));
                sums.sha256 = promise.and_then(|promise| promise.sha256);
                add(whole, sums.crc32);
                sums
            }
            None => Sums::of_nothing(hashed),
        };
        let (sha256, crc32) = (sums.sha256, sums.crc32);
        match trust::contradicted_tensor(anchors, model, number, sha256, crc32, AS_SEALED) {
            Some(wrong) => return Err(SealError::Contradicted(Box::new(wrong))),
            None => writer.tensor(tensor, &sums).map_err(|e| fail("write", e))?,
        }
    }
    let files: Vec<_> = parts.iter().map(|part| part.source_sha256(0)).collect();
    let crcs: Option<Vec<_>> = crcs.map(|crcs| crcs.into_sums().collect());
    let known = Files { sha256: &files, crc32: crcs.as_deref().unwrap_or_default() };
    if let Some(wrong) = trust::contradicted(anchors, model, &known, AS_SEALED) {
        return Err(SealError::Contradicted(Box::new(wrong)));
    }
    writer.finish(&files).map_err(|e| fail("write", e))?;
    for source in sources {
        source.check_unchanged()?;
    }
    target::check(&path, Place::of(options), sources, entry)?;
    draft.commit().map_err(|e| fail("rename", e))?;
    Ok(SealReport {
        outcome: Outcome::Written,
        path: path.clone(),
        chunk_bytes: grid.chunk_bytes(),
        chunks: grid.chunks(),
        compared: 0,
        files,
    })
}

/// The number of the tensor that a piece is.
fn index(piece: &Piece) -> Option<u32> {
    match piece.part {
        Part::Tensor(index) => Some(index),
        _ => None,
    }
}

/// The first part, once all were made in the same way.
fn alike(parts: &[Seal]) -> Result<&Seal, SealError> {
    let first = parts.first().expect("a model has files, and each has its part");
    for part in &parts[1..] {
        let differs = |what: String| {
            let (file, other) = (part.path().in_line(), first.path().in_line());
            Err(SealError::Parts { file: file.to_string(), what: format!("{what} {other}") })
        };
        let (size, wanted) = (part.grid.chunk_bytes(), first.grid.chunk_bytes());
        if size != wanted {
            return differs(format!("it has chunks of {size} bytes, not {wanted} as"));
        }
        if part.hashed != first.hashed {
            let has = if part.hashed { "SHA-256" } else { "no SHA-256" };
            return differs(format!("it has {has}, unlike"));
        }
    }
    Ok(first)
}

/// Each piece of the model with the piece of a part that it is.
fn matched(parts: &[Seal], model: &Model, grid: &Grid) -> Result<Vec<(Piece, Piece)>, SealError> {
    let mut matched = Vec::with_capacity(grid.slots());
    for (shard, part) in (0..).zip(parts) {
        let (mut whole, mut pieces) = (grid.pieces_from(shard, 0), part.grid.pieces());
        loop {
            let same = |a: &Piece, b: &Piece| {
                (a.offset, a.len, a.part.kind()) == (b.offset, b.len, b.part.kind())
            };
            match (whole.next(), pieces.next()) {
                (Some(a), Some(b)) if same(&a, &b) => matched.push((a, b)),
                (None, None) => break,
                (a, b) => {
                    let at = a.or(b).map_or(0, |piece| piece.offset);
                    let file = String::from_utf8_lossy(&model.shards[shard as usize].file);
                    let what = format!(
                        "{file:?} is cut otherwise within the whole model, at byte {at}: \
                         make the part anew with the index beside the file"
                    );
                    return Err(SealError::Parts { file: part.path().in_line().to_string(), what });
                }
            }
        }
    }
    Ok(matched)
}

/// The sums of a piece, without SHA-256.
fn sums(part: &Seal, piece: &Piece) -> Result<Sums, SealError> {
    let mut chunks = vec![0; part.grid.chunks_of(piece) as usize];
    part.expected(piece, 0, &mut chunks)?;
    let mut whole = Hasher::new();
    for (within, &crc) in (0..).zip(&chunks) {
        let (_, len) = part.grid.chunk_of(piece, within);
        whole.combine(&Hasher::new_with_initial_len(crc, len));
    }
    Ok(Sums { chunks, crc32: whole.finalize(), sha256: None })
}
