//! Files of a model that cannot be opened, found by what its seal says of them.

use super::SealError;
use super::described::described;
use crate::model::Model;
use crate::source::{IoMode, Source};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A model as its seal describes it, and what is there of its files.
pub(super) struct Remains {
    /// Its files have the names that they have now.
    pub(super) model: Model,
    /// By shard; `None` where there is no such file.
    pub(super) sources: Vec<Option<Source>>,
}

impl Remains {
    /// The files that the seal at `path` speaks of, if it is that of the model with this entry
    /// file. `None`: it is of something else, or nothing is there. `named` is the file that was
    /// asked for, where it is one of the model's; `None`: its directory.
    pub(super) fn find(
        path: &Path,
        entry: &Path,
        named: Option<&Path>,
        io: IoMode,
    ) -> Result<Option<Remains>, SealError> {
        let mut model = described(path)?;
        let Some(names) = names(&model, entry) else {
            return Ok(None);
        };
        let files: Vec<_> = names.iter().map(|name| entry.with_file_name(name)).collect();
        // A list of shards is the model's, and none of the files that were sealed.
        let asked = |named: &Path| named == entry || files.iter().any(|file| file == named);
        if !named.is_none_or(asked) {
            return Ok(None);
        }
        let opened: Option<Vec<_>> = files.iter().map(|file| open(file, io)).collect();
        let Some(sources) = opened.filter(|all| all.iter().any(Option::is_some)) else {
            return Ok(None);
        };
        for (shard, name) in model.shards.iter_mut().zip(names) {
            shard.file = name.as_os_str().as_bytes().into();
        }
        Ok(Some(Remains { model, sources }))
    }

    /// By shard.
    pub(super) fn sources(&self) -> Vec<Option<&Source>> {
        self.sources.iter().map(Option::as_ref).collect()
    }
}

/// `None` where something is there and cannot be opened: why is for others to say.
fn open(file: &Path, io: IoMode) -> Option<Option<Source>> {
    match file.metadata() {
        Ok(_) => Source::open(file, io).ok().map(Some),
        Err(e) if e.kind() == ErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

/// What the files of `model` are called, beside its entry file. The names that were sealed come
/// from a file: they must not lead anywhere else, and where the entry was renamed, so were they.
fn names(model: &Model, entry: &Path) -> Option<Vec<PathBuf>> {
    let own = entry.file_name()?;
    // What is called so is a list of shards, not a file that was sealed.
    let is_list = entry.extension().is_some_and(|extension| extension == "json");
    if model.shards.len() == 1 && !is_list {
        return Some(vec![own.into()]);
    }
    let sealed: Vec<&[u8]> = model.shards.iter().map(|shard| &*shard.file).collect();
    let (was, is) = match is_list || sealed.contains(&own.as_bytes()) {
        true => (&b""[..], &b""[..]),
        false => renaming(sealed.first()?, own.as_bytes()),
    };
    let names = sealed.iter().map(|name| {
        let name = PathBuf::from(OsStr::from_bytes(&[is, name.strip_prefix(was)?].concat()));
        (name.file_name() == Some(name.as_os_str())).then_some(name)
    });
    names.collect()
}

/// What two names begin with, up to where they go on alike.
fn renaming<'a>(was: &'a [u8], is: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let same = was.iter().rev().zip(is.iter().rev()).take_while(|(a, b)| a == b).count();
    (&was[..was.len() - same], &is[..is.len() - same])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::grid::tests::model;
    use super::*;

    fn named(sealed: &[&str], entry: &str) -> Option<Vec<String>> {
        let mut model = model(&vec![(8, 8); sealed.len()], &[]);
        for (shard, name) in model.shards.iter_mut().zip(sealed) {
            shard.file = name.as_bytes().into();
        }
        let names = names(&model, &Path::new("/m").join(entry))?;
        Some(names.into_iter().map(|name| name.into_os_string().into_string().unwrap()).collect())
    }

    #[test]
    fn files_are_called_as_they_are_now() {
        let of = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(named(&["../out/secret"], "b.gguf"), of(&["b.gguf"]));
        let parts = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
        assert_eq!(named(&parts, parts[0]), of(&parts));
        assert_eq!(
            named(&parts, "xm-00001-of-00002.gguf"),
            of(&["xm-00001-of-00002.gguf", "xm-00002-of-00002.gguf"])
        );
        assert_eq!(
            named(&parts, "k-00001-of-00002.gguf"),
            of(&["k-00001-of-00002.gguf", "k-00002-of-00002.gguf"])
        );
        assert_eq!(named(&["a", "b"], "model.safetensors.index.json"), of(&["a", "b"]));
        assert_eq!(named(&["a"], "model.safetensors.index.json"), of(&["a"]));
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for bad in ["../x", "/etc/passwd", "..", "sub/b", ""] {
            assert_eq!(named(&["a", bad], "a"), None, "{bad}");
            assert_eq!(named(&[bad], "x.json"), None, "{bad}");
        }
        // What was renamed with it cannot be told.
        assert_eq!(named(&["a-1", "b-2"], "c-1"), None);
    }
}
