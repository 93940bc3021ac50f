//! Every model in a directory and the directories below it.
//!
//! What is a model is decided for each directory as for one that is given as MODEL; a file is a
//! model of its own where there are several. Of a repository in a Hugging Face cache the usual
//! snapshot is looked at, under the repository's name. Hidden names are passed over, and links
//! that lead out of the directory: what a directory shows is in it.

use super::directory::{Listing, MOST_ENTRIES};
use super::error::{List, Shown, shown_name};
use super::names::Part;
use super::{LoadError, file};
use crate::depot::{self, Repository};
use crate::format::Detected;
use crate::source::IoMode;
use std::ffi::OsStr;
use std::fs::{DirEntry, FileType, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories below the one that is named are looked into to this depth. Caches and
/// collections of models need four.
const DEEPEST: usize = 8;
/// Models that one mount takes: each costs open files, and a number in every inode's.
pub(super) const MOST_MODELS: usize = 4096;
/// Entries of all directories that are looked at: links may lead to the same ones again.
const MOST_LOOKED_AT: usize = 200_000;

/// What was found.
#[derive(Debug, Default)]
pub struct Walk {
    /// The directory, absolute.
    pub directory: PathBuf,
    /// Sorted as directories list them, those of a directory before those below it.
    pub models: Vec<Found>,
    /// What was not looked at, in words.
    pub notes: Vec<String>,
}

/// A model, or what is called like one.
#[derive(Debug)]
pub struct Found {
    /// Where it is to be shown: names of directories, not encoded, the last one its own.
    pub shown: Vec<Box<[u8]>>,
    /// What to open as MODEL, absolute.
    pub path: PathBuf,
    /// Why it is no model, where that is known already.
    pub problem: Option<LoadError>,
}

/// Finds all models in the directory that `spec` names, a path or a name in a store.
pub fn walk(spec: &Path) -> Result<Walk, LoadError> {
    let located = depot::locate(spec)?;
    let path = located.as_ref().map_or(spec, |located| &located.path);
    let failed = |op| move |source| LoadError::Io { file: path.into(), op, source };
    if !std::fs::metadata(path).map_err(failed("open it"))?.is_dir() {
        let problem = "is no directory, and all models of a directory were asked for".into();
        return Err(LoadError::Set { file: path.into(), problem });
    }
    let directory = std::path::absolute(path).map_err(failed("find it"))?;
    let root = directory.canonicalize().map_err(failed("find it"))?;
    let blobs = depot::blobs_of(&root);
    let place = Place { path: directory.clone(), shown: Vec::new(), blobs, depth: 0 };
    let mut walker =
        Walker { directory, root, found: vec![], notes: Notes::default(), looked_at: 0 };
    walker.look_into(place, &mut Vec::new())?;
    let Walker { directory, found, notes, .. } = walker;
    Ok(Walk { notes: notes.told(&directory), directory, models: found })
}

struct Walker {
    /// As it was named.
    directory: PathBuf,
    /// Without symlinks in it.
    root: PathBuf,
    found: Vec<Found>,
    notes: Notes,
    looked_at: usize,
}

/// A directory to be looked into.
struct Place {
    path: PathBuf,
    shown: Vec<Box<[u8]>>,
    /// Where links of a repository's snapshot may lead as well.
    blobs: Option<PathBuf>,
    depth: usize,
}

impl Place {
    fn below(&self, name: &OsStr) -> Place {
        Place {
            path: self.path.join(name),
            shown: self.shown_as(name.as_bytes()),
            blobs: self.blobs.clone(),
            depth: self.depth + 1,
        }
    }

    fn shown_as(&self, name: &[u8]) -> Vec<Box<[u8]>> {
        self.shown.iter().cloned().chain([name.into()]).collect()
    }
}

/// What was passed over.
#[derive(Default)]
struct Notes {
    outside: Vec<String>,
    deep: Vec<String>,
    mounts: Vec<String>,
    other: Vec<String>,
}

impl Notes {
    fn told(self, directory: &Path) -> Vec<String> {
        let told = |what: &str, names: Vec<String>| {
            let text = || format!("{}: {what}: {}", Shown(directory), List(&names));
            (!names.is_empty()).then(text)
        };
        let mut notes: Vec<String> = [
            told("links that lead out of it are not followed", self.outside),
            told(&format!("directories deeper than {DEEPEST} are not looked into"), self.deep),
            told("mounts of weightfs are not looked into", self.mounts),
        ]
        .into_iter()
        .flatten()
        .collect();
        notes.extend(self.other);
        notes
    }
}

impl Walker {
    /// Finds the models in one directory, then those below it. `above` are the directories on the
    /// way to it: a link back to one of them is no way on.
    fn look_into(&mut self, place: Place, above: &mut Vec<(u64, u64)>) -> Result<(), LoadError> {
        let Some(place) = self.as_repository(place) else { return Ok(()) };
        let about = match self.enter(&place) {
            Ok(about) => about,
            Err(error) => return self.unreadable(&place, error),
        };
        let id = (about.dev(), about.ino());
        if above.contains(&id) {
            return Ok(());
        }
        let entries = match self.entries(&place) {
            Ok(entries) => entries,
            Err(error @ LoadError::Io { .. }) => return self.unreadable(&place, error),
            Err(error) => return Err(error),
        };
        let mut listing = Listing::default();
        let mut directories = Vec::new();
        let mut complete = entries.len() <= MOST_ENTRIES;
        for entry in &entries {
            let name = entry.file_name();
            match self.kind(entry, &place) {
                None => complete = false,
                Some(kind) if kind.is_dir() => directories.push(name),
                Some(_) if is_seal(name.as_bytes()) => {}
                Some(_) => listing.add(name.as_bytes(), &entry.path()),
            }
        }
        self.add_models(&place, &listing, complete)?;
        above.push(id);
        for name in directories {
            let below = place.below(&name);
            if below.depth > DEEPEST {
                self.notes.deep.push(self.name_of(&below.path));
            } else if is_mount_of_ours(&below.path, &place.path) {
                self.notes.mounts.push(self.name_of(&below.path));
            } else {
                self.look_into(below, above)?;
            }
        }
        above.pop();
        Ok(())
    }

    /// Of a repository the snapshot, under the repository's name; any other place as it is.
    fn as_repository(&mut self, place: Place) -> Option<Place> {
        let Some(repository) = depot::repository(&place.path) else { return Some(place) };
        let Repository { name, snapshot } = repository;
        let mut shown = place.shown.clone();
        if shown.pop().is_some() {
            shown.extend(name.iter().map(|part| part.as_bytes().into()));
        }
        match snapshot {
            Ok(snapshot) => {
                let blobs = place.path.canonicalize().ok().map(|home| home.join("blobs"));
                snapshot.map(|path| Place { path, shown, blobs, ..place })
            }
            Err(error) => {
                let problem = Some(LoadError::Depot(error));
                self.found.push(Found { shown, path: place.path, problem });
                None
            }
        }
    }

    fn enter(&self, place: &Place) -> Result<Metadata, LoadError> {
        std::fs::metadata(&place.path).map_err(|source| LoadError::Io {
            file: place.path.clone(),
            op: "look into it",
            source,
        })
    }

    /// A directory that cannot be listed is told, unless it is the one that was named.
    fn unreadable(&mut self, place: &Place, error: LoadError) -> Result<(), LoadError> {
        if place.depth == 0 {
            return Err(error);
        }
        self.notes.other.push(error.to_string());
        Ok(())
    }

    /// What is in a directory, sorted, hidden names left out.
    fn entries(&mut self, place: &Place) -> Result<Vec<DirEntry>, LoadError> {
        let failed = |source| LoadError::Io { file: place.path.clone(), op: "list it", source };
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&place.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            self.looked_at += 1;
            if self.looked_at > MOST_LOOKED_AT {
                let problem = format!(
                    "it and the directories below hold over {MOST_LOOKED_AT} entries; mount them in parts"
                );
                return Err(LoadError::Set { file: self.directory.clone(), problem });
            }
            if !entry.file_name().as_bytes().starts_with(b".") {
                entries.push(entry);
            }
        }
        entries.sort_by_key(DirEntry::file_name);
        Ok(entries)
    }

    /// What an entry is, or leads to; `None` for a link that leads out.
    fn kind(&mut self, entry: &DirEntry, place: &Place) -> Option<FileType> {
        let kind = entry.file_type().ok()?;
        if !kind.is_symlink() {
            return Some(kind);
        }
        let path = entry.path();
        let Ok(target) = path.canonicalize() else {
            // It leads to nothing: if it is called like a model, that is told of it.
            return Some(kind);
        };
        let is_blob = || place.blobs.as_ref().is_some_and(|blobs| target.starts_with(blobs));
        if !target.starts_with(&self.root) && !is_blob() {
            self.notes.outside.push(self.name_of(&path));
            return None;
        }
        Some(std::fs::metadata(&target).map_or(kind, |about| about.file_type()))
    }

    /// The models among the files of a directory. `complete`: nothing in it was passed over, so
    /// that the directory itself stands for its one model.
    fn add_models(
        &mut self,
        place: &Place,
        listing: &Listing,
        complete: bool,
    ) -> Result<(), LoadError> {
        let candidates = listing.candidates();
        for entry in &candidates {
            let own = Part::parse(entry).map_or_else(|| entry.clone(), |part| part.set());
            let found = match &*candidates {
                [_] if !place.shown.is_empty() => {
                    let whole = complete.then(|| place.path.clone());
                    let path = whole.unwrap_or_else(|| at(&place.path, entry));
                    Found { shown: place.shown.clone(), path, problem: None }
                }
                _ => Found {
                    shown: place.shown_as(&own),
                    path: at(&place.path, entry),
                    problem: None,
                },
            };
            self.add(found)?;
        }
        for entry in listing.unfit() {
            let path = at(&place.path, entry);
            let problem = match file::open(&path, IoMode::Pread).map(|opened| opened.detected) {
                Ok(Detected::Other(what)) => Some(file::not_a_model(&path, what)),
                Ok(Detected::Json) => Some(file::not_a_model(&path, "JSON text")),
                Ok(Detected::Gguf | Detected::Safetensors) => None,
                Err(LoadError::NotAFile { .. }) => continue,
                Err(error) => Some(error),
            };
            self.add(Found { shown: place.shown_as(entry), path, problem })?;
        }
        Ok(())
    }

    fn add(&mut self, found: Found) -> Result<(), LoadError> {
        if self.found.len() >= MOST_MODELS {
            let problem = format!("holds over {MOST_MODELS} models; mount it in parts");
            return Err(LoadError::Set { file: self.directory.clone(), problem });
        }
        self.found.push(found);
        Ok(())
    }

    /// How a path is called in a note.
    fn name_of(&self, path: &Path) -> String {
        let inner = path.strip_prefix(&self.directory).unwrap_or(path);
        shown_name(inner.as_os_str().as_bytes())
    }
}

fn at(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(name))
}

/// Whether a mount of weightfs lies at `path`, below `parent`: it has our directory, and lies on a
/// file system of its own. Somebody may just call a directory so.
fn is_mount_of_ours(path: &Path, parent: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|about| about.dev()).ok();
    path.join(".weightfs/status.json").is_file() && device(path) != device(parent)
}

fn is_seal(name: &[u8]) -> bool {
    name.ends_with(b".weightfs.json") || name.ends_with(b".weightfs-part.json")
}
