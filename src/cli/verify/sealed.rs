//! Every byte against a seal.

use super::super::engine::{self, Cure};
use super::super::exit::{Exit, Failure};
use super::super::progress::Progress;
use super::{Bad, Verdict};
use anyhow::Result;
use std::path::Path;
use weightfs::load::Loaded;
use weightfs::model::Model;
use weightfs::seal::{self, Seal, SealError, Verified, VerifyOptions};
use weightfs::source::IoMode;
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
    found: &Found,
    bar: &Progress,
) -> Result<Verdict> {
    let (model, sources) = (&loaded.model, &loaded.sources);
    let tick = |done| bar.set(done);
    let verified = seal::verify_against(path, model, sources, VerifyOptions::default(), &tick);
    let verified = verified.map_err(at_fault)?;
    let verdict = verdict(model, verified);
    if verdict.bad.is_empty() && !found.anchors.is_empty() {
        let seal = Seal::load(path, model, sources).map_err(at_fault)?;
        if let Some(wrong) = engine::disagreement(loaded, &found.anchors, Some(&seal)) {
            return Err(engine::distrust(&wrong));
        }
        if seal.source_sha256(0).is_none() {
            by_hashing(loaded, found, bar, path)?;
        }
    }
    Ok(verdict)
}

/// A seal without SHA-256 has nothing to compare with the anchors: the bytes have.
fn by_hashing(loaded: &Loaded, found: &Found, bar: &Progress, seal: &Path) -> Result<()> {
    let claims = trust::joined(&found.anchors, loaded.model.shards.len());
    let report = trust::compare(&claims, &loaded.model, &loaded.sources, &|done| bar.set(done))?;
    let Some(bad) = report.bad.first() else {
        return Ok(());
    };
    let text = format!(
        "{}: the seal and what is written down about the file disagree\n  {} expected\n  {} found, which fits the seal {}",
        loaded.entry.display(),
        bad.expected,
        bad.found,
        seal.display(),
    );
    Err(Failure::with(Exit::Seal, text))
}

/// A model that cannot be opened, by what its seal says of it.
pub(super) fn unopened(entry: &Path) -> Option<Result<Verdict>> {
    match seal::verify_unopened(entry, IoMode::Auto, VerifyOptions::default(), &|_| {})? {
        Ok(verified) => {
            let model = verified.described.clone()?;
            Some(Ok(verdict(&model, verified)))
        }
        Err(_) => None,
    }
}

fn verdict(opened: &Model, verified: Verified) -> Verdict {
    let Verified { report, described } = verified;
    let model = described.as_ref().unwrap_or(opened);
    let bad = report.bad.into_iter().map(|bad| Bad {
        tensor: bad.tensor.map(|i| lossy(&model.tensors[i as usize].name).into_owned()),
        place: bad.part.kind(),
        chunk: bad.chunk,
        shard: bad.shard,
        file: lossy(&model.shards[bad.shard as usize].file).into_owned(),
        offset: bad.offset,
        length: bad.len,
        expected: bad.expected,
        found: bad.found,
        suspect: vec![(bad.offset, bad.len)],
    });
    Verdict {
        bad: bad.collect(),
        more: report.more,
        checked: (report.chunks, "chunk"),
        bytes: model.shards.iter().map(|shard| shard.len).sum(),
        with: None,
        files: Verdict::files_of(model),
    }
}
