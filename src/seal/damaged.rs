//! Files that no longer fit their seal: damaged, or others altogether?
//!
//! A header that says something else, a file that is too short, too long or not there: as long
//! as most of what is there is what was sealed, the model is damaged, and its seal can name
//! what is missing.

use super::described::described;
use super::remains::Remains;
use super::verify::{Tally, VerifyOptions, VerifyReport, verify, verify_files};
use super::{Seal, SealError};
use crate::bytes::line::InLine;
use crate::model::Model;
use crate::source::{IoMode, Source};
use std::path::Path;

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
            let Ok(mut sealed) = described(path) else {
                return Err(foreign);
            };
            for (shard, own) in sealed.shards.iter_mut().zip(&model.shards) {
                shard.file.clone_from(&own.file);
            }
            match by_description(path, sealed, &sources, options, progress) {
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
    let remains = Remains::find(path, entry, named, io).ok()??;
    let sources = remains.sources();
    match by_description(path, remains.model.clone(), &sources, options, progress) {
        Ok(None) | Err(SealError::Foreign { .. }) => None,
        Ok(Some((verified, _))) => Some(Ok(verified)),
        Err(e) => Some(Err(e)),
    }
}

/// What the seal at `path` has against the files of a model that cannot be opened: that it is not
/// valid, or that one of them is missing, has another length or begins with another header than
/// the one that was sealed. `None`: they are what was sealed, as far as one can see before the
/// data, or the seal says nothing about them. For `entry` and `named` see [`verify_unopened`].
pub fn objection(path: &Path, entry: &Path, named: Option<&Path>, io: IoMode) -> Option<SealError> {
    let remains = match Remains::find(path, entry, named, io) {
        Ok(remains) => remains?,
        Err(error) => return Some(error),
    };
    let foreign = |what| Some(SealError::Foreign { file: path.in_line().to_string(), what });
    for (shard, source) in remains.model.shards.iter().zip(&remains.sources) {
        let name = String::from_utf8_lossy(&shard.file);
        match source.as_ref().map(Source::len) {
            None => {
                return foreign(format!("{name:?} is not there, sealed were {} bytes", shard.len));
            }
            Some(len) if len != shard.len => {
                return foreign(format!("{name:?} has {len} bytes, sealed were {}", shard.len));
            }
            Some(_) => {}
        }
    }
    let seal = Seal::load_described(path, &remains.model, &remains.sources());
    let sources: Vec<_> = remains.sources.into_iter().flatten().collect();
    seal.and_then(|seal| seal.check_headers(&remains.model, &sources)).err()
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
        // Nothing but headers was sealed: one of the same length is no other model's.
        (_, 0) if data.sealed == 0 && !resized => Some(Likeness::Shown),
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
        // Nothing but headers was sealed.
        assert!(case(chunks(1, 0, 1), chunks(0, 0, 0), false));
        assert!(!case(chunks(1, 0, 1), chunks(0, 0, 0), true));
        let of = |missing| {
            let (headers, data) = (chunks(2, missing, 0), chunks(9, 9, 0));
            likeness(&Tally { headers, data }, true)
        };
        assert_eq!((of(1), of(2)), (Some(Likeness::Shown), Some(Likeness::Possible)));
    }
}
