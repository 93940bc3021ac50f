//! Every model in a directory and the directories below it.
//!
//! What is a model is decided for each directory as for one that is given as MODEL; a file is a
//! model of its own where there are several. Of a repository in a Hugging Face cache the usual
//! snapshot is looked at, under the repository's name; of a store of Ollama what its manifests
//! name. Hidden names are passed over, and links that lead out of the directory: what a directory
//! shows is in it.
//!
//! Each directory is looked into once, whatever leads to it: known by device and inode. Those that
//! lie in their places come first, then those that only links lead to, each by the first link
//! in the order of the walk: so a link that is added takes no model's name away, and a maze of links
//! costs one look at each. (A link to a file is a name of its own: seal and siblings lie beside it.)

use super::directory::{Listing, MOST_ENTRIES};
use super::error::shown_name;
use super::names::Part;
use super::{LoadError, file};
use crate::depot::{self, Repository};
use crate::format::Detected;
use crate::source::IoMode;
use notes::Notes;
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{DirEntry, Metadata, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

mod mounts;
mod notes;

/// Directories below the one that is named are looked into to this depth. Caches and
/// collections of models need four.
const DEEPEST: usize = 8;
/// Models that one mount takes: each costs open files, and a number in every inode's.
pub(super) const MOST_MODELS: usize = 4096;
/// Entries of all directories that are looked at.
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
    /// What is to be said of it besides.
    pub warnings: Vec<String>,
    /// Why it is no model, where that is known already.
    pub problem: Option<LoadError>,
}

impl Found {
    fn new(shown: Vec<Box<[u8]>>, path: PathBuf) -> Found {
        Found { shown, path, warnings: Vec::new(), problem: None }
    }
}

/// Finds all models in the directory that `spec` names, a path or a name in a store.
pub fn walk(spec: &Path) -> Result<Walk, LoadError> {
    Ok(counted(spec)?.0)
}

/// As [`walk`], and how many entries of directories were looked at.
pub(super) fn counted(spec: &Path) -> Result<(Walk, usize), LoadError> {
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
    let path = directory.clone();
    let place = Place { path, shown: Vec::new(), blobs, depth: 0, linked: false, above: None };
    let mut walker = Walker {
        directory,
        root,
        ours: mounts::ours(),
        found: Vec::new(),
        notes: Notes::default(),
        looked_at: 0,
        seen: HashSet::new(),
        links: VecDeque::new(),
    };
    walker.look_into(place, false)?;
    while let Some((above, name)) = walker.links.pop_front() {
        let place = Place { linked: true, ..Place::below(&above, &name) };
        walker.look_into(place, true)?;
    }
    let Walker { directory, found, notes, looked_at, .. } = walker;
    Ok((Walk { notes: notes.told(&directory, DEEPEST), directory, models: found }, looked_at))
}

/// Whether something is called like a model in the directories below one. A guess for a message:
/// little is looked at, and nothing opened.
pub fn seems_to_hold_some(directory: &Path) -> bool {
    const MOST: usize = 2_000;
    let mut left = MOST;
    let mut directories = VecDeque::from([directory.to_path_buf()]);
    while let Some(directory) = directories.pop_front() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten().take(left) {
            let name = entry.file_name();
            let name = name.as_bytes();
            left -= 1;
            match entry.file_type() {
                _ if name.starts_with(b".") => {}
                Ok(kind) if kind.is_dir() => directories.push_back(entry.path()),
                _ if name.ends_with(b".gguf") || name.ends_with(b".safetensors") => return true,
                _ => {}
            }
        }
    }
    false
}

/// Device and inode of a directory.
type Id = (u64, u64);

struct Walker {
    /// As it was named.
    directory: PathBuf,
    /// Without symlinks in it.
    root: PathBuf,
    /// Devices of the mounts of ours.
    ours: HashSet<u64>,
    found: Vec<Found>,
    notes: Notes,
    looked_at: usize,
    /// Directories that were looked into.
    seen: HashSet<Id>,
    /// What is looked into when all that lies in its place has been: links to directories.
    links: VecDeque<(Rc<Above>, OsString)>,
}

/// A directory to be looked into.
struct Place {
    path: PathBuf,
    shown: Vec<Box<[u8]>>,
    /// Where links of a repository's snapshot may lead as well.
    blobs: Option<PathBuf>,
    depth: usize,
    /// Whether a link leads to it, or to what it lies in.
    linked: bool,
    /// The directory that it was found in; none of the first.
    above: Option<Rc<Above>>,
}

/// A directory that was looked into, with what is found in it in mind.
struct Above {
    place: Place,
    id: Id,
}

impl Place {
    fn below(above: &Rc<Above>, name: &OsStr) -> Place {
        let Place { path, blobs, depth, linked, .. } = &above.place;
        Place {
            path: path.join(name),
            shown: above.place.shown_as(name.as_bytes()),
            blobs: blobs.clone(),
            depth: depth + 1,
            linked: *linked,
            above: Some(Rc::clone(above)),
        }
    }

    /// Whether it lies on the way to itself.
    fn is_way_up(&self, own: Id) -> bool {
        std::iter::successors(self.above.as_deref(), |above| above.place.above.as_deref())
            .any(|above| above.id == own)
    }

    fn shown_as(&self, name: &[u8]) -> Vec<Box<[u8]>> {
        self.shown.iter().cloned().chain([name.into()]).collect()
    }
}

impl Walker {
    /// Finds the models in one directory, then those below it.
    fn look_into(&mut self, place: Place, is_link: bool) -> Result<(), LoadError> {
        let about = match self.enter(&place) {
            Ok(about) => about,
            Err(error) => return self.unreadable(&place, error),
        };
        if self.ours.contains(&about.dev()) {
            return self.refuse_ours(&place);
        }
        let id = id(&about);
        if is_link && !self.is_new_and_inside(&place, id) {
            return Ok(());
        }
        // What lies in its place is there once, whatever its file system says of inodes.
        if !self.seen.insert(id) && place.linked {
            return Ok(());
        }
        let Some(place) = self.as_repository(place) else { return Ok(()) };
        if let Some(models) = depot::models_of_ollama(&place.path) {
            return self.add_named(&place, models);
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
                Kind::Out => complete = false,
                Kind::Dir { link } => directories.push((name, link)),
                Kind::File if is_seal(name.as_bytes()) => {}
                Kind::File => listing.add(name.as_bytes(), &entry.path()),
            }
        }
        drop(entries);
        self.add_models(&place, &listing, complete)?;
        let above = Rc::new(Above { place, id });
        for (name, link) in directories {
            if above.place.depth == DEEPEST {
                let path = above.place.path.join(&name);
                self.notes.deep.add(|| Self::name_of(&self.directory, &path));
            } else if link {
                self.links.push_back((Rc::clone(&above), name));
            } else {
                self.look_into(Place::below(&above, &name), false)?;
            }
        }
        Ok(())
    }

    /// A mount of ours shows the models of somewhere else once more, as files.
    fn refuse_ours(&mut self, place: &Place) -> Result<(), LoadError> {
        if place.depth == 0 {
            let problem = "lies in a mount of weightfs: what it holds are views of models that are mounted; name the directory of the models themselves".into();
            return Err(LoadError::Set { file: place.path.clone(), problem });
        }
        self.notes.mounts.add(|| Self::name_of(&self.directory, &place.path));
        Ok(())
    }

    /// Whether what a link leads to is in the directory and was not looked into.
    fn is_new_and_inside(&mut self, place: &Place, id: Id) -> bool {
        if self.seen.contains(&id) {
            // A way back up is no other name of what is there.
            if !place.is_way_up(id) {
                self.notes.again.add(|| Self::name_of(&self.directory, &place.path));
            }
            return false;
        }
        let inside = self.leads_inside(&place.path);
        if !inside {
            self.notes.outside.add(|| Self::name_of(&self.directory, &place.path));
        }
        inside
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
                let path = snapshot?;
                self.seen.extend(path.metadata().ok().map(|about| id(&about)));
                Some(Place { path, shown, blobs, ..place })
            }
            Err(error) => {
                let problem = Some(LoadError::Depot(error));
                self.found.push(Found { problem, ..Found::new(shown, place.path) });
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
        self.notes.add_error(&error);
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

    /// What an entry is, or leads to.
    fn kind(&mut self, entry: &DirEntry, place: &Place) -> Kind {
        match entry.file_type() {
            Err(_) => return Kind::Out,
            Ok(kind) if kind.is_dir() => return Kind::Dir { link: false },
            Ok(kind) if !kind.is_symlink() => return Kind::File,
            Ok(_) => {}
        }
        let path = entry.path();
        match path.metadata() {
            Ok(about) if about.is_dir() => return Kind::Dir { link: true },
            Ok(_) => {}
            // It leads to nothing: if it is called like a model, that is told of it.
            Err(_) => return Kind::File,
        }
        let inside = resolved(&path).is_some_and(|target| {
            target.starts_with(&self.root)
                || place.blobs.as_ref().is_some_and(|blobs| target.starts_with(blobs))
        });
        if inside {
            return Kind::File;
        }
        self.notes.outside.add(|| Self::name_of(&self.directory, &path));
        Kind::Out
    }

    /// The models of a store that names them itself.
    fn add_named(
        &mut self,
        place: &Place,
        models: Vec<depot::StoreModel>,
    ) -> Result<(), LoadError> {
        for depot::StoreModel { name, located } in models {
            let below = name.iter().map(|part| part.as_bytes().into());
            let shown = place.shown.iter().cloned().chain(below).collect();
            let found = match located {
                Ok(located) if !self.leads_inside(&located.path) => {
                    self.notes.outside.add(|| Self::name_of(&self.directory, &located.path));
                    continue;
                }
                Ok(located) => {
                    Found { warnings: located.warnings, ..Found::new(shown, located.path) }
                }
                Err(error) => {
                    let problem = Some(LoadError::Depot(error));
                    Found { problem, ..Found::new(shown, place.path.clone()) }
                }
            };
            self.add(found)?;
        }
        Ok(())
    }

    fn leads_inside(&self, path: &Path) -> bool {
        resolved(path).is_some_and(|target| target.starts_with(&self.root))
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
                    Found::new(place.shown.clone(), path)
                }
                _ => Found::new(place.shown_as(&own), at(&place.path, entry)),
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
            self.add(Found { problem, ..Found::new(place.shown_as(entry), path) })?;
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
    fn name_of(directory: &Path, path: &Path) -> String {
        let inner = path.strip_prefix(directory).unwrap_or(path);
        shown_name(inner.as_os_str().as_bytes())
    }
}

fn at(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(name))
}

/// What an entry of a directory is to the walk.
enum Kind {
    /// A directory, in its place or behind a link.
    Dir { link: bool },
    /// Anything else, or a link to it or to nothing.
    File,
    /// A link to a file that is not in the directory that is walked.
    Out,
}

fn id(about: &Metadata) -> Id {
    (about.dev(), about.ino())
}

/// Where a path leads to. The kernel goes there in one step; a chain of links is not followed
/// one by one.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut only_path = OpenOptions::new();
    let opened =
        only_path.read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path).ok()?;
    let named = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    named.ok().filter(|path| path.is_absolute()).or_else(|| path.canonicalize().ok())
}

fn is_seal(name: &[u8]) -> bool {
    name.ends_with(b".weightfs.json") || name.ends_with(b".weightfs-part.json")
}
