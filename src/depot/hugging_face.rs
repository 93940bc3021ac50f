//! `ORG/NAME[@REV][/FILE]` in the cache of the Hugging Face hub.
//!
//! ```text
//! models--ORG--NAME/refs/REV             the commit of a branch, a tag or refs/pr/N
//! models--ORG--NAME/snapshots/COMMIT/    the files, mostly links to ../../blobs/
//! ```
//!
//! Which snapshot is meant is what the hub's own library says offline, and a commit may be
//! cut short. FILE is not asked of a MODEL, it chooses one of several.

use super::error::{DepotError, listed, nearest, show, shown};
use super::places::Places;
use super::{Located, entries, is_inside, is_plain};
use crate::bytes::read_vec;
use crate::source::{IoMode, Source};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest organisation or name that the hub has.
const MAX_NAME: usize = 96;
/// Longest revision and path that are looked at.
const MAX_REST: usize = 1024;
/// A ref holds 40 digits.
const MAX_REF: u64 = 1024;
/// Fewest digits of a commit that is cut short.
const MIN_SHORT: usize = 4;
/// How deep names of refs go: `refs/convert/parquet`.
const MAX_DEPTH: usize = 5;
/// Refs that are named when one is missing.
const MAX_REFS: usize = 1000;
/// The revision that is meant without one.
const MAIN: &str = "main";

/// What was typed behind `hf:`.
#[derive(Debug, PartialEq, Eq)]
struct Name<'a> {
    /// `ORG/NAME` or `NAME`.
    repo: &'a str,
    /// What follows `@`: REV, or REV and a file.
    revision: Option<&'a str>,
    /// A file where there is no `@` before it.
    file: Option<&'a str>,
}

impl<'a> Name<'a> {
    fn parse(text: &'a str) -> Result<Name<'a>, String> {
        let behind_name = text.match_indices('/').nth(1).map(|(at, _)| at);
        let at = text.find('@').filter(|at| behind_name.is_none_or(|slash| *at < slash));
        let name = match (at, behind_name) {
            (Some(at), _) => {
                Name { repo: &text[..at], revision: Some(&text[at + 1..]), file: None }
            }
            (None, Some(at)) => {
                Name { repo: &text[..at], revision: None, file: Some(&text[at + 1..]) }
            }
            (None, None) => Name { repo: text, revision: None, file: None },
        };
        let parts = name.repo.split('/');
        if !(parts.clone().count() <= 2 && parts.clone().all(is_hub_name)) {
            return Err(
                "it should be hf:ORG/NAME[@REV], of letters, digits and single . - _".into()
            );
        }
        for (rest, what) in [(name.revision, "revision"), (name.file, "file")] {
            if rest.is_some_and(|rest| rest.len() > MAX_REST || !rest.split('/').all(is_plain)) {
                return Err(format!("its {what} is empty, too long or leads elsewhere"));
            }
        }
        Ok(name)
    }

    /// What stands before a file of the model with this revision.
    fn prefix(&self, revision: Option<&str>) -> String {
        match revision.or((!self.repo.contains('/')).then_some(MAIN)) {
            Some(revision) => format!("hf:{}@{revision}/", self.repo),
            None => format!("hf:{}/", self.repo),
        }
    }

    /// Each way to read it: a revision and a file. A ref may hold slashes, so all of it is tried
    /// first.
    fn readings(&self) -> Vec<(&'a str, Option<&'a str>)> {
        let Some(rest) = self.revision else {
            return vec![(MAIN, self.file)];
        };
        let cuts = rest.rmatch_indices('/').map(|(at, _)| (&rest[..at], Some(&rest[at + 1..])));
        std::iter::once((rest, None)).chain(cuts).collect()
    }
}

/// What the hub allows: no name of it is a path, or two.
pub(super) fn is_hub_name(part: &str) -> bool {
    let first = part.bytes().next();
    first.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && part.len() <= MAX_NAME
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !part.contains("..")
        && !part.contains("--")
}

/// Finds the snapshot, or the file in it.
pub(super) fn find(text: &str, places: &Places) -> Result<Located, DepotError> {
    let spec = format!("hf:{}", shown(text.as_bytes()));
    let name = Name::parse(text).map_err(|what| DepotError::Name { spec: spec.clone(), what })?;
    let Some(cache) = &places.hub else {
        let what = "no home directory is known, so set HF_HOME or HF_HUB_CACHE".into();
        return Err(DepotError::Absent { spec, what, there: String::new() });
    };
    let directory = format!("models--{}", name.repo.replace('/', "--"));
    let repo = Repo { path: cache.join(&directory) };
    match repo.path.metadata() {
        Ok(about) if about.is_dir() => {}
        Ok(_) => return Err(repo.wrong("is no directory")),
        Err(error) if is_absence(&error) => {
            let what = format!("no {directory} in {}, and nothing is downloaded", show(cache));
            let there = nearest("there are", name.repo, repositories(cache));
            return Err(DepotError::Absent { spec, what, there });
        }
        Err(error) => return Err(repo.wrong(&format!("cannot look into it: {error}"))),
    }
    for (revision, file) in name.readings() {
        if let Some(snapshot) = repo.snapshot(revision, &spec)? {
            let prefix = name.prefix(name.revision.map(|_| revision));
            return match file {
                None => Ok(Located { path: snapshot, warnings: Vec::new(), prefix: Some(prefix) }),
                Some(file) => repo.file(&snapshot, file, &spec, &prefix),
            };
        }
    }
    let wanted = name.revision.unwrap_or(MAIN);
    let what = format!("no revision {} in {}", shown(wanted.as_bytes()), show(&repo.path));
    Err(DepotError::Absent { spec, what, there: repo.revisions(wanted) })
}

/// The snapshot of the repository in `directory` that is meant without a revision: that of `main`,
/// or the only one. `spec` is what the repository is called in messages.
pub(super) fn usual_snapshot(directory: &Path, spec: &str) -> Result<Option<PathBuf>, DepotError> {
    let repo = Repo { path: directory.to_path_buf() };
    if let Some(snapshot) = repo.snapshot(MAIN, spec)? {
        return Ok(Some(snapshot));
    }
    match &*repo.commits() {
        [] => Ok(None),
        [one] => repo.inside(one).map(Some),
        several => {
            let what = format!("no {MAIN}, and {} snapshots in {}", several.len(), show(directory));
            let there =
                format!("mount one of them by itself: {spec}@REV; {}", repo.revisions(MAIN));
            Err(DepotError::Absent { spec: spec.to_owned(), what, there })
        }
    }
}

/// `models--ORG--NAME` in the cache. It may itself be a link, by its owner's choice; nothing in
/// it leads out.
struct Repo {
    path: PathBuf,
}

impl Repo {
    fn wrong(&self, what: &str) -> DepotError {
        DepotError::store(&self.path, what)
    }

    /// The directory of a revision, if there is such a revision.
    fn snapshot(&self, revision: &str, spec: &str) -> Result<Option<PathBuf>, DepotError> {
        if is_commit(revision) && self.has(revision) {
            return self.inside(revision).map(Some);
        }
        if let Some(commit) = self.commit_of_ref(revision)? {
            if !self.has(&commit) {
                let what = format!(
                    "refs/{revision} is commit {commit}, which is not in {}",
                    show(&self.path.join("snapshots"))
                );
                let (spec, there) = (spec.to_owned(), self.revisions(revision));
                return Err(DepotError::Absent { spec, what, there });
            }
            return self.inside(&commit).map(Some);
        }
        if is_plain(revision) && self.has(revision) {
            return self.inside(revision).map(Some);
        }
        let commits: Vec<String> = match is_short_commit(revision) {
            true => self.commits().into_iter().filter(|c| starts_with(c, revision)).collect(),
            false => Vec::new(),
        };
        match &*commits {
            [] => Ok(None),
            [one] => self.inside(one).map(Some),
            several => {
                let what = format!("{revision} begins {} commits", several.len());
                let there = format!("they are: {}", listed(several));
                Err(DepotError::Absent { spec: spec.to_owned(), what, there })
            }
        }
    }

    fn has(&self, commit: &str) -> bool {
        self.path.join("snapshots").join(commit).symlink_metadata().is_ok()
    }

    fn inside(&self, commit: &str) -> Result<PathBuf, DepotError> {
        let path = self.path.join("snapshots").join(commit);
        match path.is_dir() && is_inside(&path, &self.path) {
            true => Ok(path),
            false => Err(DepotError::store(&path, "is no directory of this repository")),
        }
    }

    /// What the ref says, if there is one.
    fn commit_of_ref(&self, revision: &str) -> Result<Option<String>, DepotError> {
        let path = self.path.join("refs").join(revision);
        match path.symlink_metadata() {
            Ok(about) if about.is_dir() => return Ok(None),
            Ok(_) => {}
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => {
                return Err(DepotError::store(&path, format!("cannot look at it: {error}")));
            }
        }
        if !is_inside(&path, &self.path) {
            return Err(DepotError::store(&path, "leads out of the repository, or nowhere"));
        }
        let source = Source::open(&path, IoMode::Pread)?;
        if source.len() > MAX_REF {
            let what = format!("is no ref: it has {} bytes, not 40", source.len());
            return Err(DepotError::store(&path, what));
        }
        let bytes = read_vec(&source, 0, source.len() as usize)
            .map_err(|error| DepotError::store(&path, format!("cannot read it: {error}")))?;
        match std::str::from_utf8(&bytes).map(str::trim) {
            Ok(commit) if is_plain(commit) => Ok(Some(commit.to_owned())),
            _ => Err(DepotError::store(&path, "is no ref: it should hold a commit")),
        }
    }

    /// A file of the snapshot. It may be a link, as nearly all are; the directories on the way
    /// to it stay in the repository.
    fn file(
        &self,
        snapshot: &Path,
        file: &str,
        spec: &str,
        prefix: &str,
    ) -> Result<Located, DepotError> {
        let path = snapshot.join(file);
        if path.symlink_metadata().is_err() {
            let what = format!("no {} in {}", shown(file.as_bytes()), show(snapshot));
            let names = entries(snapshot).iter().map(|name| shown(name.as_bytes())).collect();
            let there = nearest("there are", file, names);
            return Err(DepotError::Absent { spec: spec.to_owned(), what, there });
        }
        let place = if path.is_dir() { &*path } else { path.parent().unwrap_or(snapshot) };
        if !is_inside(place, &self.path) {
            return Err(DepotError::store(place, "leads out of the repository"));
        }
        let prefix = path.is_dir().then(|| format!("{prefix}{file}/"));
        Ok(Located { path, warnings: Vec::new(), prefix })
    }

    fn commits(&self) -> Vec<String> {
        let names = entries(&self.path.join("snapshots"));
        names.into_iter().filter_map(|name| name.into_string().ok()).collect()
    }

    /// Refs and the beginnings of commits, in words.
    fn revisions(&self, wanted: &str) -> String {
        const DIGITS: usize = 12;
        let mut refs = Vec::new();
        self.refs_below(Path::new(""), MAX_DEPTH, &mut refs);
        let commits = self.commits();
        let short =
            commits.iter().map(|c| shown(c.chars().take(DIGITS).collect::<String>().as_bytes()));
        let refs = nearest("there are", wanted, refs);
        let commits = listed(&short.collect::<Vec<_>>());
        match (refs.is_empty(), commits.is_empty()) {
            (false, false) => format!("{refs}; commits: {commits}"),
            (true, false) => format!("there are commits: {commits}"),
            (_, true) => refs,
        }
    }

    fn refs_below(&self, at: &Path, depth: usize, found: &mut Vec<String>) {
        let refs = self.path.join("refs");
        for name in entries(&refs.join(at)) {
            if found.len() >= MAX_REFS {
                return;
            }
            let inner = at.join(&name);
            match refs.join(&inner).symlink_metadata() {
                Ok(about) if about.is_dir() && depth > 0 => {
                    self.refs_below(&inner, depth - 1, found)
                }
                Ok(about) if !about.is_dir() => found.push(shown(inner.as_os_str().as_bytes())),
                _ => {}
            }
        }
    }
}

/// The models of a cache, as they are named.
fn repositories(cache: &Path) -> Vec<String> {
    let named = |name: &OsStr| {
        let name = name.to_str()?.strip_prefix("models--")?;
        Some(shown(name.replacen("--", "/", 1).as_bytes()))
    };
    entries(cache).iter().filter_map(|name| named(name)).collect()
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_short_commit(text: &str) -> bool {
    (MIN_SHORT..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn starts_with(commit: &str, short: &str) -> bool {
    commit.get(..short.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(short))
}

/// Nothing is there, be it that a part of the way is a file or too long for a name.
fn is_absence(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        for (text, repo, revision, file) in [
            ("gpt2", "gpt2", None, None),
            ("acme/tiny", "acme/tiny", None, None),
            ("acme/tiny@refs/pr/1", "acme/tiny", Some("refs/pr/1"), None),
            ("gpt2@v1", "gpt2", Some("v1"), None),
            ("gpt2@v1/a/b.gguf", "gpt2", Some("v1/a/b.gguf"), None),
            ("acme/tiny/a@b.gguf", "acme/tiny", None, Some("a@b.gguf")),
            ("acme/tiny/q4/m.gguf", "acme/tiny", None, Some("q4/m.gguf")),
            ("a.b_c-d/_x", "a.b_c-d/_x", None, None),
        ] {
            assert_eq!(Name::parse(text), Ok(Name { repo, revision, file }), "{text}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        let long = "x".repeat(97);
        for text in [
            "",
            "/",
            "..",
            "../x",
            "a/..",
            "a/",
            "/a",
            "/etc/passwd",
            "a//b",
            "a/b@",
            "a/b@..",
            "a/b@/etc",
            "a/b@../../x",
            "a/b@x/../y",
            "a/b@x//y",
            "a/b@x/",
            "a/b/../x",
            "a/b/",
            "a\0b",
            "a/b@x\0",
            "a/b@x\n",
            "a--b",
            "a..b/c",
            ".a/b",
            "-a/b",
            "a b",
            "a/b\u{e9}",
            "a%2fb",
            &long,
        ] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn all_of_a_revision_is_tried_before_a_file_is_cut_off() {
        let readings = |text| Name::parse(text).unwrap().readings();
        assert_eq!(readings("a/b"), [("main", None)]);
        assert_eq!(readings("a/b/f"), [("main", Some("f"))]);
        let want = [("r/x/f", None), ("r/x", Some("f")), ("r", Some("x/f"))];
        assert_eq!(readings("a/b@r/x/f"), want);
    }
}
