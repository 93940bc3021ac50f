//! A directory of the Hugging Face cache, for somebody who came upon it by its path.

use super::DepotError;
use super::error::shown;
use super::hugging_face::{self, is_hub_name};
use std::path::{Path, PathBuf};

/// How the cache calls what is no model.
const OTHERS: [&str; 2] = ["datasets--", "spaces--"];

/// What a repository's directory in the cache holds.
#[derive(Debug)]
pub struct Repository {
    /// `ORG` and `NAME`, or `NAME` alone.
    pub name: Vec<String>,
    /// The snapshot that is meant without a revision: `main`, or the only one there is; none in a
    /// repository that is no model, or of which nothing was fetched.
    pub snapshot: Result<Option<PathBuf>, DepotError>,
}

/// What `directory` is if it is called and built like a repository in the cache. Its files beside
/// the snapshot are no models of their own.
pub fn repository(directory: &Path) -> Option<Repository> {
    let called = directory.file_name()?.to_str()?;
    let (name, is_model) = match called.strip_prefix("models--") {
        Some(name) => (name, true),
        None => (OTHERS.iter().find_map(|other| called.strip_prefix(other))?, false),
    };
    let name: Vec<String> = name.splitn(2, "--").map(str::to_owned).collect();
    if !name.iter().all(|part| is_hub_name(part)) || !directory.join("snapshots").is_dir() {
        return None;
    }
    let snapshot = match is_model {
        true => hugging_face::usual_snapshot(directory, &format!("hf:{}", name.join("/"))),
        false => Ok(None),
    };
    Some(Repository { name, snapshot })
}

/// Where the files of a snapshot's links lie: of the repository that `path`, a directory without
/// symlinks in it, is a snapshot of, or lies in one of.
pub fn blobs_of(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|above| {
        let repository = above.parent()?;
        let called = repository.file_name()?.to_str()?;
        let is_home = above.file_name()? == "snapshots" && called.starts_with("models--");
        is_home.then(|| repository.join("blobs"))
    })
}

/// The name of a repository as `hf:` takes it, for messages.
impl std::fmt::Display for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hf:{}", shown(self.name.join("/").as_bytes()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;

    const ONE: &str = "bbc77c8132af1cc5cf678da3f1ddf2de43606d48";
    const TWO: &str = "0000000000000000000000000000000000000002";

    fn made(called: &str, commits: &[&str], main: Option<&str>) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(called);
        fs::create_dir_all(path.join("snapshots")).unwrap();
        for commit in commits {
            fs::create_dir(path.join("snapshots").join(commit)).unwrap();
        }
        if let Some(main) = main {
            fs::create_dir(path.join("refs")).unwrap();
            fs::write(path.join("refs/main"), main).unwrap();
        }
        (dir, path)
    }

    #[test]
    fn main_is_shown_else_the_only_snapshot() {
        for (commits, main, want) in
            [(&[ONE, TWO][..], Some(TWO), Some(TWO)), (&[ONE], None, Some(ONE)), (&[], None, None)]
        {
            let (_dir, path) = made("models--acme--tiny", commits, main);
            let found = repository(&path).unwrap();
            assert_eq!(found.name, ["acme", "tiny"]);
            let want = want.map(|commit| path.join("snapshots").join(commit));
            assert_eq!(found.snapshot.unwrap(), want);
        }
        let (_dir, path) = made("models--gpt2", &[ONE, TWO], None);
        let found = repository(&path).unwrap();
        assert_eq!(found.to_string(), "hf:gpt2");
        let text = found.snapshot.unwrap_err().to_string();
        assert!(text.contains("hf:gpt2") && text.contains("0000"), "{text}");
    }

    #[test]
    fn other_directories_are_no_repositories() {
        for called in ["acme--tiny", "models--", "models--..--x", "models--a--b--c", "models--a/b"]
        {
            let (_dir, path) = made(called, &[ONE], None);
            assert!(repository(&path).is_none(), "{called}");
        }
        let (_dir, path) = made("datasets--acme--words", &[ONE], None);
        assert_eq!(repository(&path).unwrap().snapshot.unwrap(), None);
        fs::remove_dir_all(path.join("snapshots")).unwrap();
        assert!(repository(&path).is_none());
    }

    #[test]
    fn links_of_a_snapshot_lead_to_its_own_blobs() {
        let hub = Path::new("/hub/models--a--b");
        for below in ["snapshots/1", "snapshots/1/onnx/x"] {
            assert_eq!(blobs_of(&hub.join(below)), Some(hub.join("blobs")));
        }
        for other in ["/hub/models--a--b/blobs", "/hub/a/snapshots/1", "/snapshots", "/"] {
            assert_eq!(blobs_of(Path::new(other)), None);
        }
    }
}
