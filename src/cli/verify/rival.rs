//! What the user gave, against what is known of the model besides: its seal, the names that
//! stores gave its files, the lists that lie beside them. Where both are trusted and disagree,
//! it is not for us to choose.

use super::super::{engine, exit};
use super::Scope;
use super::sealed::at_fault;
use anyhow::Result;
use std::path::Path;
use weightfs::bytes::line::InLine;
use weightfs::load::Loaded;
use weightfs::seal::{self, Seal, SealError};
use weightfs::trust::{self, Anchor, CompareReport, Mismatch, Of, Sum};

/// Looks whether what else is known speaks for the bytes where `given` does not, or against
/// them where it does.
pub(super) fn look(
    loaded: &Loaded,
    scope: Scope,
    given: &[Anchor],
    report: &CompareReport,
) -> Result<()> {
    if !report.bad.iter().all(Mismatch::is_readable) {
        return Ok(());
    }
    let found = trust::find(&loaded.model, &loaded.sources).anchors;
    match report.bad.is_empty() {
        true => against(loaded, given, &found),
        false => speaks_for(loaded, scope, given, &found, &report.bad),
    }
}

/// The bytes are what was given.
fn against(loaded: &Loaded, given: &[Anchor], found: &[Anchor]) -> Result<()> {
    let model = &loaded.model;
    let by_seal = || {
        let seal = match seal::find(&loaded.entry).map(|path| load(&path, loaded))? {
            Ok(seal) => seal,
            Err(error) => {
                exit::warn(&format!("{error}: not compared, since something else was asked for"));
                return None;
            }
        };
        let known_as = format!("in the seal {}", seal.path().in_line());
        trust::contradicted(given, model, &seal, &known_as)
    };
    match trust::contradiction_between(given, found, model).or_else(by_seal) {
        Some(wrong) => Err(engine::distrust(&wrong)),
        None => {
            let given = trust::joined(given, model.shards.len());
            for text in trust::unanswered_by(found, &given) {
                exit::say(&format!("{text}: not compared, since something else was asked for"));
            }
            Ok(())
        }
    }
}

/// The bytes are not what was given.
fn speaks_for(
    loaded: &Loaded,
    scope: Scope,
    given: &[Anchor],
    found: &[Anchor],
    bad: &[Mismatch],
) -> Result<()> {
    let model = &loaded.model;
    for bad in bad {
        if let Some(anchor) = found.iter().find(|anchor| anchor.vouches(bad)) {
            let known_as = format!("found, and {}", anchor.source());
            let wrong = trust::disproved(given, model, bad, &known_as);
            return Err(engine::distrust(&wrong));
        }
    }
    let (Some(first), Some(seal)) = (bad.first(), sealed(loaded)) else {
        return Ok(());
    };
    // A seal that does not fit the bytes either is no witness.
    let fits = !bad.iter().any(|bad| bad.is_known(&seal) == Some(false));
    let is_all = |bad: &Mismatch| matches!((bad.of, bad.sum), (Of::File, Sum::Sha256(_)));
    let is_told = bad.iter().all(|bad| is_all(bad) && bad.is_known(&seal) == Some(true));
    if !fits || !is_told && !is_sealed_so(loaded, scope, &seal)? {
        return Ok(());
    }
    let known_as = match first.is_known(&seal) {
        Some(_) => format!("found, and in the seal {}", seal.path().in_line()),
        None => format!("found, which fits the seal {}", seal.path().in_line()),
    };
    Err(engine::distrust(&trust::disproved(given, model, first, &known_as)))
}

/// The seal of the model, if it has one that can be used.
fn sealed(loaded: &Loaded) -> Option<Seal> {
    load(&seal::find(&loaded.entry)?, loaded).ok()
}

fn load(path: &Path, loaded: &Loaded) -> Result<Seal, SealError> {
    Seal::load(path, &loaded.model, &loaded.sources)
}

/// Whether all bytes that are looked at are as sealed.
fn is_sealed_so(loaded: &Loaded, scope: Scope, seal: &Seal) -> Result<bool> {
    let options = seal::VerifyOptions { sha256: false, file: scope.file };
    let report = seal::verify(&loaded.model, &loaded.sources, seal, options, &|_| {});
    Ok(report.map_err(at_fault)?.is_good())
}
