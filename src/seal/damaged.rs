//! Files that no longer fit their seal: damaged, or others altogether?
//!
//! A header that says something else, a file that is too short, too long or not there: as long
//! as most of what is there is what was sealed, the model is damaged, and its seal can name
//! what is missing.

use super::described::described;
use super::verify::{Tally, VerifyOptions, VerifyReport, verify, verify_files};
use super::{Seal, SealError};
use crate::model::Model;
use crate::source::{IoMode, Source};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A report and the model that its tensors are counted in.
#[derive(Debug)]
pub struct Verified {
    /// What was found.
    pub report: VerifyReport,
    /// The model as the seal describes it, where the files themselves no longer tell:
    /// indices of tensors and shards in the report mean these. `None`: the model given.
    pub described: Option<Model>,
    /// How long each file is; `None` where it is not there.
    pub lengths: Vec<Option<u64>>,
}

/// Checks every byte against the seal at `path`. A header so damaged that it describes
/// another model is damage, not another model, as long as most of the tensors' bytes are
/// those that were sealed: then the seal's own description is used. The same holds for files
/// that are longer or shorter than they were.
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
            let lengths = sources.iter().map(|source| Some(source.len())).collect();
            Ok(Verified { report, described: None, lengths })
        }
        Err(foreign @ SealError::Foreign { .. }) => {
            let sources: Vec<_> = sources.iter().map(Some).collect();
            match by_description(path, described(path)?, &sources, options, progress) {
                Ok(Some((verified, Likeness::Shown))) => Ok(verified),
                // It can be opened and is shorter than the header of the one that was sealed.
                Ok(Some((_, Likeness::Possible)) | None) | Err(SealError::Foreign { .. }) => {
                    Err(foreign)
                }
                Err(e) => Err(e),
            }
        }
        Err(e) => Err(e),
    }
}

/// Checks the files of a model that cannot be opened at all, if the seal at `path` is that of
/// the model with this entry file and what is there of it is mostly what was sealed. `None`:
/// the seal is of something else, and why the model cannot be opened is all that can be said.
/// `named` is the file that was asked for, where it is one of the model's; `None`: its directory.
pub fn verify_unopened(
    path: &Path,
    entry: &Path,
    named: Option<&Path>,
    io: IoMode,
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Option<Result<Verified, SealError>> {
    let model = described(path).ok()?;
    let names = beside(&model, entry)?;
    // A list of shards is the model's, and none of the files that were sealed.
    let asked = |named: &Path| named == entry || names.iter().any(|name| name == named);
    if !named.is_none_or(asked) {
        return None;
    }
    let mut sources = Vec::new();
    for name in &names {
        match name.metadata() {
            Ok(_) => sources.push(Some(Source::open(name, io).ok()?)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => sources.push(None),
            Err(_) => return None,
        }
    }
    if sources.iter().all(Option::is_none) {
        return None;
    }
    let sources: Vec<_> = sources.iter().map(Option::as_ref).collect();
    match by_description(path, model, &sources, options, progress) {
        Ok(None) | Err(SealError::Foreign { .. }) => None,
        Ok(Some((verified, _))) => Some(Ok(verified)),
        Err(e) => Some(Err(e)),
    }
}

/// Where the files of `model` are. Their names come from a file: they must not lead anywhere
/// else.
fn beside(model: &Model, entry: &Path) -> Option<Vec<PathBuf>> {
    // What is called so is a list of shards, not a file that was sealed.
    let is_list = entry.extension().is_some_and(|extension| extension == "json");
    if model.shards.len() == 1 && !is_list {
        return Some(vec![entry.to_owned()]);
    }
    let mut names = model.shards.iter().map(|shard| Path::new(OsStr::from_bytes(&shard.file)));
    names.try_fold(Vec::new(), |mut paths, name| {
        (name.file_name() == Some(name.as_os_str())).then_some(())?;
        paths.push(entry.with_file_name(name));
        Some(paths)
    })
}

/// `None` when the bytes are not those of the seal, so that nothing is known about them.
fn by_description(
    path: &Path,
    model: Model,
    sources: &[Option<&Source>],
    options: VerifyOptions,
    progress: &dyn Fn(u64),
) -> Result<Option<(Verified, Likeness)>, SealError> {
    if model.shards.len() != sources.len() {
        return Ok(None);
    }
    let seal = Seal::load_described(path, &model, sources)?;
    let (report, tally) = verify_files(&model, sources, &seal, options, progress)?;
    let lengths: Vec<_> = sources.iter().map(|source| source.map(Source::len)).collect();
    let resized = model.shards.iter().zip(&lengths).any(|(shard, len)| *len != Some(shard.len));
    let likeness = likeness(&tally, resized);
    Ok(likeness.map(|likeness| (Verified { report, described: Some(model), lengths }, likeness)))
}

/// How sure it is that damaged files are those of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likeness {
    /// What is there is mostly what was sealed.
    Shown,
    /// Too little is there to say.
    Possible,
}

/// Whether files are damaged ones of the seal's, not others (`None`): `resized` when one of them
/// is not as long as it was.
fn likeness(tally: &Tally, resized: bool) -> Option<Likeness> {
    let Tally { headers, data } = tally;
    let there = data.sealed - data.missing;
    match (headers.wrong + headers.missing, there) {
        // They say themselves what they are. If a file is as it was and its header too, then
        // it is the seal that describes another one.
        (0, _) => resized.then_some(Likeness::Shown),
        // Nothing is there that could be another model's.
        (_, 0) => match headers.sealed - headers.missing {
            0 => Some(Likeness::Possible),
            _ => (headers.wrong == 0).then_some(Likeness::Shown),
        },
        (_, there) => (2 * data.wrong < there).then_some(Likeness::Shown),
    }
}

#[cfg(test)]
mod tests {
    use super::super::verify::Chunks;
    use super::*;

    #[test]
    fn damage_is_told_from_another_file_by_what_is_there() {
        let chunks = |sealed, missing, wrong| Chunks { sealed, missing, wrong };
        let case = |headers, data, resized| likeness(&Tally { headers, data }, resized).is_some();
        let good = chunks(2, 0, 0);
        // The header is good: whatever else is wrong is damage, if the seal is not.
        assert!(case(good, chunks(9, 9, 0), true));
        assert!(case(good, chunks(9, 2, 7), true));
        assert!(!case(good, chunks(9, 0, 0), false));
        // It is not: the data decide.
        for resized in [true, false] {
            assert!(case(chunks(2, 0, 1), chunks(9, 0, 4), resized));
            assert!(!case(chunks(2, 0, 1), chunks(9, 0, 5), resized));
            assert!(case(chunks(2, 0, 1), chunks(9, 6, 1), resized));
            assert!(!case(chunks(2, 0, 1), chunks(9, 6, 2), resized));
        }
        // There are none: only a header that was cut off says nothing else.
        assert!(case(chunks(2, 1, 0), chunks(9, 9, 0), true));
        assert!(case(chunks(2, 2, 0), chunks(9, 9, 0), true));
        assert!(!case(chunks(2, 1, 1), chunks(9, 9, 0), true));
        assert!(!case(chunks(2, 0, 2), chunks(0, 0, 0), true));
        let of = |missing| {
            let (headers, data) = (chunks(2, missing, 0), chunks(9, 9, 0));
            likeness(&Tally { headers, data }, true)
        };
        assert_eq!((of(1), of(2)), (Some(Likeness::Shown), Some(Likeness::Possible)));
    }
}
