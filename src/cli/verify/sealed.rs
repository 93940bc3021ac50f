//! Every byte against a seal.

use super::super::engine::{self, Cure};
use super::super::progress::Progress;
use super::{Bad, Scope, Verdict};
use anyhow::Result;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weightfs::load::Loaded;
use weightfs::model::Model;
use weightfs::seal::{self, END, Seal, SealError, Verified, VerifyOptions};
use weightfs::trust::{self, Found};
use weightfs::view::json::lossy;

/// Why a seal does not help.
pub(super) fn at_fault(error: SealError) -> anyhow::Error {
    engine::seal_error(error, Cure::Force)
}

/// Against the seal at `path`. One that all bytes fit must agree with the anchors as well.
pub(super) fn by_seal(
    path: &Path,
    loaded: &Loaded,
    scope: Scope,
    found: &Found,
    bar: &Progress,
) -> Result<Verdict> {
    let (model, sources) = (&loaded.model, &loaded.sources);
    let tick = |done| bar.set(done);
    let options = VerifyOptions { file: scope.file, ..VerifyOptions::default() };
    let verified = seal::verify_against(path, model, sources, options, &tick);
    let verified = verified.map_err(at_fault)?;
    let verdict = Verdict { bytes: scope.bytes(loaded), ..verdict(model, verified) };
    if verdict.bad.is_empty() && !found.anchors.is_empty() {
        let seal = Seal::load(path, model, sources).map_err(at_fault)?;
        if let Some(wrong) = engine::disagreement(loaded, &found.anchors, Some(&seal)) {
            return Err(engine::distrust(&wrong));
        }
        by_hashing(loaded, found, bar, &seal)?;
    }
    Ok(verdict)
}

/// What a seal cannot answer the anchors, the bytes can: parts of files, other kinds of digests,
/// and all of them where the seal has no SHA-256.
fn by_hashing(loaded: &Loaded, found: &Found, bar: &Progress, seal: &Seal) -> Result<()> {
    let known_as = format!("found, which fits the seal {}", seal.path().display());
    let tick = |done| bar.set(done);
    let (model, sources) = (&loaded.model, &loaded.sources);
    match trust::undecided(&found.anchors, model, sources, seal, &known_as, &tick)? {
        Some(wrong) => Err(engine::distrust(&wrong)),
        None => Ok(()),
    }
}

/// A model that cannot be opened, by what a seal says of it: the one that was `given`, or that
/// which belongs to it.
pub(super) fn unopened(model: &Path, given: Option<&Path>) -> Option<Result<Verdict>> {
    let model = std::path::absolute(model).ok()?;
    let is_directory = model.is_dir();
    let entry = entry_of(&model, is_directory, given)?;
    let seal = given.map(Path::to_path_buf).or_else(|| seal::find(&entry))?;
    let named = (!is_directory).then_some(&*model);
    let options = VerifyOptions::default();
    let bar = Progress::new(&model, 0);
    let tick = |done| bar.set(done);
    match seal::verify_unopened(&seal, &entry, named, engine::ONE_PASS, options, &tick)? {
        Ok(verified) => {
            let model = verified.described.clone()?;
            Some(Ok(verdict(&model, verified)))
        }
        Err(_) => None,
    }
}

/// The entry file of the sealed model that `model` is, is a file of, or is the directory of.
fn entry_of(model: &Path, is_directory: bool, given: Option<&Path>) -> Option<PathBuf> {
    if !is_directory && (given.is_some() || seal::find(model).is_some()) {
        return Some(model.to_owned());
    }
    let dir = if is_directory { model } else { model.parent()? };
    let mut entries = seal::sealed_in(dir);
    if !is_directory {
        let lists = |entry: &PathBuf| {
            let files = seal::find(entry).and_then(|seal| seal::peek(&seal).ok());
            let name = model.file_name().unwrap_or_default().as_bytes();
            files.is_some_and(|files| files.iter().any(|file| *file.name == *name))
        };
        entries.retain(lists);
    }
    if entries.len() > 1 {
        // A list of shards goes before what else lies there.
        entries.retain(|entry| entry.extension().is_some_and(|extension| extension == "json"));
    }
    entries.pop().filter(|_| entries.is_empty())
}

fn verdict(opened: &Model, verified: Verified) -> Verdict {
    let Verified { report, described, lengths } = verified;
    let model = described.as_ref().unwrap_or(opened);
    let bad = report.bad.into_iter().map(|bad| Bad {
        tensor: bad.tensor.map(|i| lossy(&model.tensors[i as usize].name).into_owned()),
        place: bad.part.kind(),
        chunk: bad.chunk,
        shard: bad.shard,
        file: lossy(&model.shards[bad.shard as usize].file).into_owned(),
        offset: bad.offset,
        length: bad.len,
        // What is too much cannot be fetched again.
        suspect: if bad.expected == END { vec![] } else { vec![(bad.offset, bad.len)] },
        expected: bad.expected,
        found: bad.found,
    });
    Verdict {
        bad: bad.collect(),
        more: report.more,
        checked: (report.chunks, "chunk"),
        bytes: model.shards.iter().map(|shard| shard.len).sum(),
        with: None,
        files: Verdict::files_of(model),
        endless: false,
        lengths,
    }
}
