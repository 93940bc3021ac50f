//! Files and tensors against digests that somebody wrote down.

use super::super::exit::{Exit, Failure};
use super::super::progress::Progress;
use super::super::text::plural;
use super::sealed::at_fault;
use super::{Bad, Scope, Verdict};
use anyhow::Result;
use std::collections::HashSet;
use std::path::Path;
use weightfs::bytes::line::{InLine, Safe};
use weightfs::load::Loaded;
use weightfs::model::{Model, Tensor};
use weightfs::seal::{self, Seal};
use weightfs::trust::{self, Claim, CompareReport, Known, Mismatch, Of, UNREADABLE};
use weightfs::view::json::lossy;

/// Compares a model with claims, one per file; `with` says in words whose they are.
pub(super) fn by_claims(
    typed: &Path,
    loaded: &Loaded,
    scope: Scope,
    claims: &[Claim],
    with: &str,
) -> Result<Verdict> {
    let (model, sources) = (&loaded.model, &loaded.sources);
    let work = trust::work(claims, model);
    let bar = Progress::new(typed, work);
    let report = trust::compare(claims, model, sources, &|done| bar.set(done))?;
    drop(bar);
    let uncovered = report.uncovered.iter().find(|&&shard| scope.has(shard as usize));
    if let Some(&shard) = uncovered.filter(|_| report.bad.is_empty()) {
        let file = &model.shards[shard as usize].file;
        let nor = match unnamed(&claims[shard as usize], model, shard) {
            Some(tensor) => format!(", nor for its tensor {:?}", lossy(&tensor.name)),
            None => String::new(),
        };
        let text = format!("{}: {with} has no line for {}{nor}", typed.in_line(), Safe(file));
        return Err(Failure::with(Exit::Unsealed, text));
    }
    if let Some(mismatch) = report.bad.first() {
        contradict(loaded, mismatch, with)?;
    }
    Ok(verdict(model, report, with))
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
        let tensor = bad.tensor.map(|i| lossy(&model.tensors[i as usize].name).into_owned());
        let place = match bad.of {
            Of::File => "file",
            Of::Payload => "tensors",
            Of::Part | Of::Tensor => "part",
        };
        Bad {
            tensor,
            place,
            chunk: None,
            shard: bad.shard,
            file: lossy(&file.file).into_owned(),
            offset: bad.offset,
            length: bad.len,
            expected: bad.expected,
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

/// Bytes that are not what was expected but are what their seal says: two sources that are
/// both trusted disagree, and it is not for us to choose.
fn contradict(loaded: &Loaded, bad: &Mismatch, with: &str) -> Result<()> {
    if bad.found.starts_with(UNREADABLE) {
        return Ok(());
    }
    let Some(path) = seal::find(&loaded.entry) else {
        return Ok(());
    };
    let Ok(seal) = Seal::load(&path, &loaded.model, &loaded.sources) else {
        return Ok(());
    };
    let (sealed, crc32) = match bad.tensor {
        None => (seal.file_sha256(bad.shard as usize), None),
        Some(index) => (seal.tensor_sha256(index as usize), seal.tensor_crc32(index as usize)),
    };
    let fits = sealed.is_some_and(|sha256| seal::hex(&sha256) == bad.found)
        || crc32.is_some_and(|crc32| seal::crc_hex(crc32) == bad.found);
    // A seal that does not fit the rest of the bytes either is no witness.
    if !fits || bad.tensor.is_some() && !is_sealed_so(loaded, &seal)? {
        return Ok(());
    }
    let sum = if bad.found.len() == 8 { "CRC32" } else { "SHA-256" };
    let what = match bad.tensor {
        None => "the whole file".to_owned(),
        Some(index) => {
            format!("its tensor {:?}", lossy(&loaded.model.tensors[index as usize].name))
        }
    };
    let text = format!(
        "{}: two trusted sources disagree about the {sum} of {what}\n  {} by {with}\n  {} sealed, and found",
        loaded.sources[bad.shard as usize].path().in_line(),
        bad.expected,
        bad.found,
    );
    Err(Failure::with(Exit::Seal, text))
}

/// Whether all bytes are as sealed.
fn is_sealed_so(loaded: &Loaded, seal: &Seal) -> Result<bool> {
    let options = seal::VerifyOptions { sha256: false, file: None };
    let report = seal::verify(&loaded.model, &loaded.sources, seal, options, &|_| {});
    Ok(report.map_err(at_fault)?.is_good())
}
