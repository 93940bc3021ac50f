//! Files and tensors against digests that somebody wrote down.

use super::super::engine;
use super::super::exit::{Exit, Failure};
use super::super::progress::Progress;
use super::super::text::{Safe, plural};
use super::{Bad, Scope, Verdict, rival};
use anyhow::{Result, anyhow};
use std::collections::HashSet;
use std::path::Path;
use weightfs::load::Loaded;
use weightfs::model::{Model, Tensor};
use weightfs::trust::{self, Anchor, Claim, CompareReport, Of};
use weightfs::view::json::lossy;

/// Compares a model that has no seal with what was found about it; `with` says in words whose
/// that is.
pub(super) fn by_found(
    typed: &Path,
    loaded: &Loaded,
    scope: Scope,
    anchors: &[Anchor],
    with: &str,
) -> Result<Verdict> {
    let report = compare(typed, loaded, scope, anchors, with)?;
    match &report.clash {
        Some(clash) => Err(engine::distrust(&clash.between(anchors, &loaded.model))),
        None => Ok(verdict(&loaded.model, report, with)),
    }
}

/// Compares a model with what the user gave.
pub(super) fn by_given(
    typed: &Path,
    loaded: &Loaded,
    scope: Scope,
    given: &[Anchor],
    with: &str,
) -> Result<Verdict> {
    let report = compare(typed, loaded, scope, given, with)?;
    rival::look(loaded, scope, given, &report)?;
    match &report.clash {
        // One source by itself: nobody else has to be asked to know that it is of no use.
        Some(clash) => Err(anyhow!(clash.between(given, &loaded.model))),
        None => Ok(verdict(&loaded.model, report, with)),
    }
}

fn compare(
    typed: &Path,
    loaded: &Loaded,
    scope: Scope,
    anchors: &[Anchor],
    with: &str,
) -> Result<CompareReport> {
    let (model, sources) = (&loaded.model, &loaded.sources);
    let claims = trust::joined(anchors, model.shards.len());
    let work = trust::work(&claims, model);
    let bar = Progress::new(typed, work);
    let report = trust::compare(&claims, model, sources, &|done| bar.set(done))?;
    drop(bar);
    let uncovered = report.uncovered.iter().find(|&&shard| scope.has(shard as usize));
    if let Some(&shard) = uncovered.filter(|_| report.bad.is_empty()) {
        let file = &model.shards[shard as usize].file;
        let nor = match unnamed(&claims[shard as usize], model, shard) {
            Some(tensor) => format!(", nor for its tensor {:?}", lossy(&tensor.name)),
            None => String::new(),
        };
        let text = format!("{}: {with} has no line for {}{nor}", typed.display(), Safe(file));
        return Err(Failure::with(Exit::Unsealed, text));
    }
    Ok(report)
}

/// The first tensor of a file that is not spoken of, where others are.
fn unnamed<'a>(claim: &Claim, model: &'a Model, shard: u32) -> Option<&'a Tensor> {
    let named: HashSet<u32> = claim.tensors.iter().map(|(index, _)| *index).collect();
    let of_file = (0u32..).zip(&model.tensors).filter(|(_, t)| t.extent.shard == shard);
    let mut unnamed = of_file.filter(|(index, _)| !named.contains(index));
    unnamed.next().map(|(_, tensor)| tensor).filter(|_| !named.is_empty())
}

pub(super) fn verdict(model: &Model, report: CompareReport, with: &str) -> Verdict {
    let (checked, more) = match (report.files, report.tensors) {
        (0, tensors) => ((tensors, "tensor"), None),
        (files, 0) => ((files, "file"), None),
        (files, tensors) => {
            let tensors = plural(tensors as usize, "tensor");
            ((files, "file"), Some(format!(", {tensors} also one by one")))
        }
    };
    let bad = report.bad.into_iter().map(|bad| {
        let file = &model.shards[bad.shard as usize];
        let tensor = bad.tensor().map(|i| lossy(&model.tensors[i as usize].name).into_owned());
        let place = match bad.of {
            Of::File => "file",
            Of::Payload => "tensors",
            Of::Part(..) | Of::Tensor(_) => "part",
        };
        Bad {
            tensor,
            place,
            chunk: None,
            shard: bad.shard,
            file: lossy(&file.file).into_owned(),
            offset: bad.offset,
            length: bad.len,
            expected: bad.sum.digits(),
            found: bad.found,
            suspect: bad.suspect,
        }
    });
    Verdict {
        bad: bad.collect(),
        more: 0,
        checked,
        bytes: report.bytes,
        with: Some(format!("by {with}{}", more.unwrap_or_default())),
        files: Verdict::files_of(model),
        endless: false,
        lengths: model.shards.iter().map(|shard| Some(shard.len)).collect(),
    }
}
