//! Which model a directory holds: its one index, else its one `model.safetensors`, else the
//! one model in it.

use super::error::{List, shown_name};
use super::file;
use super::names::{Part, is_index};
use super::{LoadError, Loaded};
use crate::format::Detected;
use crate::source::IoMode;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::DirEntry;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// More entries than this are not looked through: then the model has to be named itself.
pub(super) const MOST_ENTRIES: usize = 20_000;

/// What a directory leads to.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) entry: PathBuf,
    /// Names of all files of the directory that look like models, the found one among them.
    pub(super) models: Vec<Vec<u8>>,
}

/// Finds the one model in `directory`.
pub(super) fn find(directory: &Path) -> Result<Found, LoadError> {
    let listing = Listing::read(directory)?;
    match &*listing.candidates() {
        [] => Err(LoadError::NoModel { directory: directory.into(), instead: listing.instead }),
        [one] => {
            let entry = directory.join(OsStr::from_bytes(one));
            Ok(Found { entry, models: listing.models })
        }
        several => {
            let models = several.iter().map(|name| shown_name(name)).collect();
            Err(LoadError::SeveralModels { directory: directory.into(), models })
        }
    }
}

/// The entry file of the one model in `directory`, where files that are called like models and
/// cannot be recognised any more are models as well.
pub(super) fn likeliest(directory: &Path) -> Option<PathBuf> {
    let listing = Listing::read(directory).ok()?;
    let mut candidates = listing.candidates();
    if candidates.is_empty() {
        candidates = one_of_each_set(&listing.unfit);
    }
    let [one] = &*candidates else { return None };
    Some(directory.join(OsStr::from_bytes(one)))
}

/// A warning about models of the directory that are not served.
pub(super) fn ignored(models: &[Vec<u8>], loaded: &Loaded) -> Option<String> {
    let served = |name: &Vec<u8>| loaded.model.shards.iter().any(|s| *s.file == **name);
    let ignored: Vec<String> =
        models.iter().filter(|name| !served(name)).map(|name| shown_name(name)).collect();
    let by = shown_name(file::name_of(&loaded.entry));
    (!ignored.is_empty()).then(|| {
        format!("files of the directory that {by} does not lead to are ignored: {}", List(&ignored))
    })
}

/// The name of a checkpoint that is one file.
const USUAL: &[u8] = b"model.safetensors";

/// The files of a directory by what they are. Hidden files are passed over: they are the
/// temporary files of copies under way.
#[derive(Default)]
pub(super) struct Listing {
    indexes: Vec<Vec<u8>>,
    /// Whether there is a [`USUAL`] one, whatever is in it.
    usual: bool,
    models: Vec<Vec<u8>>,
    /// Files that are called like models and are none.
    unfit: Vec<Vec<u8>>,
    /// What else might have been meant, in words.
    instead: Vec<String>,
}

impl Listing {
    fn read(directory: &Path) -> Result<Listing, LoadError> {
        let failed = |source| LoadError::Io { file: directory.into(), op: "list it", source };
        let mut entries: Vec<DirEntry> = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            entries.push(entry.map_err(failed)?);
            if entries.len() > MOST_ENTRIES {
                let problem = format!("has over {MOST_ENTRIES} entries; name the model in it");
                return Err(LoadError::Set { file: directory.into(), problem });
            }
        }
        entries.sort_by_key(DirEntry::file_name);
        let mut listing = Listing::default();
        for entry in entries {
            let name = entry.file_name();
            if !name.as_bytes().starts_with(b".") {
                listing.add(name.as_bytes(), &entry.path());
            }
        }
        Ok(listing)
    }

    /// The entry files of the models that a directory of these files holds.
    pub(super) fn candidates(&self) -> Vec<Vec<u8>> {
        match self {
            Listing { indexes, .. } if !indexes.is_empty() => indexes.clone(),
            Listing { usual: true, .. } => vec![USUAL.to_vec()],
            Listing { models, .. } => one_of_each_set(models),
        }
    }

    /// Files that are called like models and are none, where a file with a name of its own
    /// counts as a model.
    pub(super) fn unfit(&self) -> &[Vec<u8>] {
        if self.usual || !self.indexes.is_empty() { &[] } else { &self.unfit }
    }

    /// Takes note of the file `name`, which is at `path`.
    pub(super) fn add(&mut self, name: &[u8], path: &Path) {
        if is_index(name) {
            self.indexes.push(name.into());
            return;
        }
        self.usual |= name == USUAL;
        let instead = match file::open(path, IoMode::Pread).map(|opened| opened.detected) {
            Ok(Detected::Gguf | Detected::Safetensors) => {
                self.models.push(name.into());
                return;
            }
            Ok(Detected::Json) => "JSON text",
            Ok(Detected::Other(what)) => what,
            Err(LoadError::Unfinished { .. }) => "a download that did not finish",
            Err(LoadError::NotAFile { .. }) => return,
            Err(_) => "a link to nothing or not readable",
        };
        if name.ends_with(b".gguf") || name.ends_with(b".safetensors") {
            self.unfit.push(name.into());
        }
        if sounds_like_model(name) {
            self.instead.push(format!("{} is {instead}", shown_name(name)));
        }
    }
}

fn sounds_like_model(name: &[u8]) -> bool {
    const ENDINGS: [&[u8]; 9] = [
        b".gguf",
        b".safetensors",
        b".bin",
        b".pt",
        b".pth",
        b".ckpt",
        b".onnx",
        b".h5",
        b".incomplete",
    ];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// One name for each model: of files that are parts of one set the first.
fn one_of_each_set(models: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut first_of: BTreeMap<Vec<u8>, (u64, &[u8])> = BTreeMap::new();
    let mut alone = Vec::new();
    for name in models {
        match Part::parse(name) {
            Some(part) => {
                let this = (part.number, name.as_slice());
                let first = first_of.entry(part.sibling(0)).or_insert(this);
                *first = this.min(*first);
            }
            None => alone.push(name.clone()),
        }
    }
    alone.extend(first_of.into_values().map(|(_, name)| name.to_vec()));
    alone.sort_unstable();
    alone
}
