//! Where seals lie, and how a file gets there whole or not at all.

use super::hex::hex;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is put behind the entry file's name.
const SUFFIX: &str = ".weightfs.json";
/// The same for the seal of one file of a set, which is no seal of a model.
const PART_SUFFIX: &str = ".weightfs-part.json";
/// Names in a directory that are looked at in search of seals.
const MAX_ENTRIES: usize = 20_000;
/// A temporary file of this age belongs to nobody any more.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// The seal's path beside the model's entry file, as named, symlinks not resolved.
pub fn beside(entry: &Path) -> PathBuf {
    with_suffix(entry, SUFFIX)
}

/// The path of the part of a seal that is of this file, beside it.
pub fn part_beside(file: &Path) -> PathBuf {
    with_suffix(file, PART_SUFFIX)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// `$XDG_CACHE_HOME/weightfs`, or `~/.cache/weightfs`; `None` where neither is known.
pub fn cache_home() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("weightfs"))
}

/// The seal's path in the cache, where the model's directory is not writable.
pub fn cached(entry: &Path) -> Option<PathBuf> {
    Some(cached_in(&cache_home()?, entry))
}

/// As [`cached`], below another directory than [`cache_home`].
pub(super) fn cached_in(cache: &Path, entry: &Path) -> PathBuf {
    let canonical = std::fs::canonicalize(entry).unwrap_or_else(|_| entry.to_owned());
    let key = hex(&Sha256::digest(canonical.as_os_str().as_bytes()));
    cache.join("seals").join(key + ".json")
}

/// The seal that belongs to the model with this entry file: beside it, else in the cache.
/// Whether it is any good is for [`super::Seal::load`] to say.
pub fn find(entry: &Path) -> Option<PathBuf> {
    [Some(beside(entry)), cached(entry)].into_iter().flatten().find(|path| exists(path))
}

/// The entry files in `dir` of which there is a seal, in order of their names; they need not be
/// there themselves.
pub fn sealed_in(dir: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let sealed = |name: OsString| {
        let path = dir.join(&name);
        match name.as_bytes().strip_suffix(SUFFIX.as_bytes()) {
            Some(entry) if !entry.is_empty() => Some(dir.join(OsStr::from_bytes(entry))),
            _ => cached(&path).is_some_and(|seal| exists(&seal)).then_some(path),
        }
    };
    let mut entries: Vec<_> = names.filter_map(|entry| sealed(entry.file_name())).collect();
    entries.sort();
    entries.dedup();
    entries
}

/// Whether something has this name, be it a link that leads nowhere.
pub(super) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Makes a directory of the cache, private to the user.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The temporary files that are there now, for [`abandon_drafts`].
static DRAFTS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn drafts() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    DRAFTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files of this process, which is about to end: whoever makes another or
/// gives one its name waits for ever.
pub fn abandon_drafts() {
    let mut drafts = drafts();
    for temporary in std::mem::take(&mut *drafts) {
        // Left behind it is removed by a later seal.
        let _ = std::fs::remove_file(temporary);
    }
    std::mem::forget(drafts);
}

/// A file that is being written under a temporary name. Dropped without
/// [`Draft::commit`], it vanishes.
#[derive(Debug)]
pub(crate) struct Draft {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl Draft {
    /// Begins a file that is to become `target`, in the same directory; removes what
    /// killed processes left there.
    pub(crate) fn new(target: &Path) -> io::Result<Draft> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        if let Err(e) = target.symlink_metadata()
            && e.kind() == io::ErrorKind::InvalidFilename
        {
            return Err(e); // better now than when all the work is done
        }
        let dir = parent(target);
        let prefix = prefix(name);
        remove_stale(dir, &prefix);
        let random = RandomState::new();
        for attempt in 0..100u32 {
            let number = random.hash_one((std::process::id(), attempt, target));
            let mut temporary = prefix.clone();
            temporary.push(format!("{}.{number:016x}", std::process::id()));
            let temporary = dir.join(temporary);
            let mut drafts = drafts();
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .custom_flags(libc::O_CLOEXEC)
                .open(&temporary);
            match opened {
                Ok(file) => {
                    drafts.insert(temporary.clone());
                    return Ok(Draft {
                        file,
                        temporary,
                        target: target.to_owned(),
                        committed: false,
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The file, to be written to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name, on disk: afterwards, also after a power loss, there is
    /// either what was there before or all of the new.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let mut drafts = drafts();
        std::fs::rename(&self.temporary, &self.target)?;
        self.committed = true;
        drafts.remove(&self.temporary);
        drop(drafts);
        // Some file systems refuse to sync a directory; the file is whole all the same.
        match File::open(parent(&self.target)).and_then(|dir| dir.sync_all()) {
            Err(e) if e.raw_os_error() == Some(libc::EIO) => Err(e),
            _ => Ok(()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.committed {
            let mut drafts = drafts();
            drafts.remove(&self.temporary);
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// The directory a file is in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// What the names of all temporary files for `name` begin with. Cut where the whole would
/// not be a possible file name.
fn prefix(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    let mut prefix = OsString::from(".");
    prefix.push(OsStr::from_bytes(&bytes[..bytes.len().min(200)]));
    prefix.push(".tmp.");
    prefix
}

fn remove_stale(dir: &Path, prefix: &OsStr) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let old = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if entry.file_name().as_bytes().starts_with(prefix.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && old().is_some_and(|age| age > STALE)
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::SystemTime;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_draft_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("x.json");
        let draft = Draft::new(&target).unwrap();
        draft.file().write_all(b"half").unwrap();
        assert!(names(dir.path())[0].starts_with(&format!(".x.json.tmp.{}.", std::process::id())));
        drop(draft);
        assert_eq!(names(dir.path()), [""; 0]);

        std::fs::write(&target, b"old").unwrap();
        let draft = Draft::new(&target).unwrap();
        draft.file().write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        draft.commit().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["x.json"]);
    }

    #[test]
    fn leftovers_of_yesterday_are_removed_and_those_of_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - STALE - Duration::from_secs(60);
        let place = |name: &str, time: SystemTime| {
            File::create(dir.path().join(name)).unwrap().set_modified(time).unwrap();
        };
        place(".x.json.tmp.1.aa", old);
        place(".x.json.tmp.2.bb", SystemTime::now());
        place(".y.json.tmp.1.aa", old);
        place("x.json", old);
        drop(Draft::new(&dir.path().join("x.json")).unwrap());
        assert_eq!(names(dir.path()), [".x.json.tmp.2.bb", ".y.json.tmp.1.aa", "x.json"]);
    }

    #[test]
    fn a_name_of_full_length_can_still_be_drafted() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("n".repeat(255));
        Draft::new(&target).unwrap().commit().unwrap();
        assert!(exists(&target));
    }

    #[test]
    fn names_of_seals() {
        assert_eq!(beside(Path::new("/m/a.gguf")), Path::new("/m/a.gguf.weightfs.json"));
        let dir = tempfile::tempdir().unwrap();
        let entry = dir.path().join("a.gguf");
        std::fs::write(&entry, b"").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("a.gguf", &link).unwrap();
        let cache = Path::new("/c");
        let canonical = entry.canonicalize().unwrap();
        let key = hex(&Sha256::digest(canonical.as_os_str().as_bytes()));
        assert_eq!(cached_in(cache, &entry), cache.join("seals").join(format!("{key}.json")));
        assert_eq!(cached_in(cache, &link), cached_in(cache, &entry));
    }
}
