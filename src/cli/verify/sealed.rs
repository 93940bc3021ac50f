//! Every byte against a seal.

use super::super::engine::{self, Cure};
use super::super::progress::Progress;
use super::super::unopened::Sealed;
use super::{Bad, Scope, Verdict};
use anyhow::Result;
use std::path::Path;
use weightfs::load::Loaded;
use weightfs::model::Model;
use weightfs::seal::{self, END, Seal, SealError, Verified, VerifyOptions};
use weightfs::source::IoMode;
use weightfs::trust::Found;
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
        engine::agree(loaded, &found.anchors, &seal, &tick)?;
    }
    Ok(verdict)
}

/// A model that cannot be opened, by what a seal says of it: the one that was `given`, or that
/// which belongs to it.
pub(super) fn unopened(model: &Path, given: Option<&Path>) -> Option<Result<Verdict>> {
    let Sealed { seal, entry, named } = Sealed::find(model, given)?;
    let options = VerifyOptions::default();
    let bar = Progress::new(model, 0);
    let tick = |done| bar.set(done);
    match seal::verify_unopened(&seal, &entry, named.as_deref(), IoMode::Auto, options, &tick)? {
        Ok(verified) => {
            let model = verified.described.clone()?;
            Some(Ok(verdict(&model, verified)))
        }
        Err(_) => None,
    }
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
