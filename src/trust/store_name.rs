//! What the model stores know: the names of their blobs, and the notes of their downloads.

use super::line::digest;
use super::small;
use super::{Anchor, Claim, Kind, name_of};
use crate::source::Source;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A note of a download has three lines.
const MAX_NOTE: u64 = 4096;
/// How far above a file its download directory is looked for: repositories are not deep.
const MAX_ABOVE: usize = 6;
/// Symlinks on the way from the name given to the blob.
const MAX_LINKS: usize = 16;
/// Manifests of Ollama that are looked at for the name of a model.
const MAX_MANIFESTS: usize = 1000;
/// A manifest lists a handful of layers.
const MAX_MANIFEST: u64 = 64 << 10;
/// A file's time may be told less exactly than the note's.
const SLACK: Duration = Duration::from_secs(1);

/// What the stores say about one file.
pub(super) fn anchors(shard: usize, source: &Source) -> Vec<Anchor> {
    [hf_blob(shard, source), ollama(shard, source), hf_local(shard, source)]
        .into_iter()
        .flatten()
        .collect()
}

fn anchor(kind: Kind, shard: usize, origin: PathBuf, sha256: [u8; 32]) -> Anchor {
    let claim = Claim { sha256: Some(sha256), ..Claim::default() };
    Anchor { kind, shard, origin, repo: None, commit: None, claim }
}

/// `models--ORG--NAME/blobs/<64 digits>`: the SHA-256 of large files, those in LFS and in Xet
/// alike. A name of 40 digits is git's SHA-1 of a small file, and no SHA-256.
fn hf_blob(shard: usize, source: &Source) -> Option<Anchor> {
    let blob = source.canonical_path();
    let sha256 = digest(name_of(blob))?;
    let blobs = blob.parent().filter(|dir| name_of(dir) == b"blobs")?;
    let repo = blobs.parent()?;
    let name = repo_name(name_of(repo))?;
    let mut anchor = anchor(Kind::HfBlob, shard, blob.to_owned(), sha256);
    anchor.repo = Some(name);
    anchor.commit = commit(source.path(), repo);
    Some(anchor)
}

/// `models--org--name` as `org/name`.
fn repo_name(directory: &[u8]) -> Option<String> {
    let kinds: [(&[u8], _); 3] =
        [(b"models--", ""), (b"datasets--", "datasets/"), (b"spaces--", "spaces/")];
    let (rest, kind) =
        kinds.iter().find_map(|(prefix, kind)| Some((directory.strip_prefix(*prefix)?, kind)))?;
    let name = std::str::from_utf8(rest).ok().filter(|name| !name.is_empty())?;
    Some(format!("{kind}{}", name.replace("--", "/")))
}

/// The commit of the snapshot through which a blob was named: `snapshots/COMMIT` below the
/// repository, on the way from link to link.
fn commit(named: &Path, repo: &Path) -> Option<String> {
    let mut at = named.to_owned();
    for _ in 0..MAX_LINKS {
        let dir = at.parent()?.canonicalize().ok()?;
        if let Ok(inside) = dir.strip_prefix(repo) {
            let mut parts = inside.components();
            if parts.next() == Some(Component::Normal(OsStr::new("snapshots"))) {
                let commit = parts.next()?.as_os_str().to_str()?;
                return Some(commit.to_owned());
            }
        }
        at = dir.join(std::fs::read_link(&at).ok()?);
    }
    None
}

/// `sha256-<64 digits>`, with a colon in old stores.
fn ollama(shard: usize, source: &Source) -> Option<Anchor> {
    let blob = source.canonical_path();
    let name = name_of(blob);
    let digits = name.strip_prefix(b"sha256-").or_else(|| name.strip_prefix(b"sha256:"))?;
    let sha256 = digest(digits)?;
    let mut anchor = anchor(Kind::OllamaBlob, shard, blob.to_owned(), sha256);
    if let Some(blobs) = blob.parent().filter(|dir| name_of(dir) == b"blobs") {
        let manifests = blobs.with_file_name("manifests");
        let wanted = [b"sha256:", digits].concat();
        if let Some((repo, tag)) = ollama_model(&manifests, &wanted) {
            (anchor.repo, anchor.commit) = (Some(repo), Some(tag));
        }
    }
    Some(anchor)
}

/// The first model, by name, one of whose layers is this blob: its name and its tag, from
/// `HOST/NAMESPACE/MODEL/TAG`.
fn ollama_model(manifests: &Path, wanted: &[u8]) -> Option<(String, String)> {
    let mut left = MAX_MANIFESTS;
    let mut level = vec![manifests.to_owned()];
    for _ in 0..4 {
        let mut next = Vec::new();
        for dir in &level {
            for entry in std::fs::read_dir(dir).ok().into_iter().flatten().flatten() {
                left = left.checked_sub(1)?;
                next.push(entry.path());
            }
        }
        next.sort();
        level = next;
    }
    let mentions = |path: &Path| {
        let file = small::open_beside(path, MAX_MANIFEST).ok()?;
        let text = small::read(file, MAX_MANIFEST).ok()?;
        text.windows(wanted.len()).any(|part| part == wanted).then_some(())
    };
    let found = level.iter().find(|path| mentions(path).is_some())?;
    let name = found.strip_prefix(manifests).ok()?;
    let parts: Vec<&str> = name.iter().map(OsStr::to_str).collect::<Option<_>>()?;
    let [host, namespace, model, tag] = parts[..] else {
        return None;
    };
    let repo = match (host, namespace) {
        ("registry.ollama.ai", "library") => model.to_owned(),
        ("registry.ollama.ai", _) => format!("{namespace}/{model}"),
        _ => format!("{host}/{namespace}/{model}"),
    };
    Some((repo, tag.to_owned()))
}

/// `.cache/huggingface/download/FILE.metadata` in a directory that was downloaded to: three
/// lines with the commit, the etag and a time. A file that was written to after that time is
/// not the one that was downloaded.
fn hf_local(shard: usize, source: &Source) -> Option<Anchor> {
    let named = source.path();
    for above in named.ancestors().skip(1).take(MAX_ABOVE) {
        let inside = named.strip_prefix(above).ok()?;
        let mut note = above.join(".cache/huggingface/download").join(inside).into_os_string();
        note.push(".metadata");
        let note = PathBuf::from(note);
        let Ok(file) = small::open_beside(&note, MAX_NOTE) else {
            continue;
        };
        let text = small::read(file, MAX_NOTE).ok()?;
        let (commit, sha256, time) = note_of(&text)?;
        if source.mtime() > time + SLACK {
            return None;
        }
        let mut anchor = anchor(Kind::HfLocal, shard, note, sha256);
        anchor.commit = Some(commit);
        return Some(anchor);
    }
    None
}

/// Commit, etag and time of a note whose etag is a SHA-256.
fn note_of(text: &[u8]) -> Option<(String, [u8; 32], SystemTime)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines().map(str::trim);
    let (commit, etag, time) = (lines.next()?, lines.next()?, lines.next()?);
    let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    let seconds = time.parse().ok().filter(|seconds: &f64| (0.0..1e11).contains(seconds))?;
    let time = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
    is_commit.then_some((commit.to_owned(), digest(etag.as_bytes())?, time))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::source::IoMode;
    use std::os::unix::fs::symlink;

    const SHA: &str = "403450e234d65943a7dcf7e05a771ce3c92faa84dd07db4ac20f592037a1e4bd";
    const COMMIT: &str = "bbc77c8132af1cc5cf678da3f1ddf2de43606d48";

    struct Place {
        _dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            Place { _dir: dir, root }
        }

        fn put(&self, path: &str, text: &str) -> PathBuf {
            let path = self.root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        }

        fn link(&self, path: &str, to: &str) -> PathBuf {
            let path = self.root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(to, &path).unwrap();
            path
        }
    }

    fn of(path: &Path) -> Vec<Anchor> {
        anchors(0, &Source::open(path, IoMode::Auto).unwrap())
    }

    fn told(anchor: &Anchor) -> (Kind, Option<&str>, Option<&str>) {
        (anchor.kind, anchor.repo.as_deref(), anchor.commit.as_deref())
    }

    #[test]
    fn a_snapshot_names_blob_repository_and_commit() {
        let place = Place::new();
        let blob = place.put(&format!("hub/models--acme--tiny/blobs/{SHA}"), "x");
        let snapshot = format!("hub/models--acme--tiny/snapshots/{COMMIT}");
        let model = place.link(&format!("{snapshot}/m.gguf"), &format!("../../blobs/{SHA}"));
        let deep = place.link(&format!("{snapshot}/a/m.gguf"), &format!("../../../blobs/{SHA}"));
        let far = place.link("mine/m.gguf", model.to_str().unwrap());
        for path in [&model, &deep, &far] {
            let found = of(path);
            assert_eq!(found.len(), 1, "{path:?}");
            assert_eq!(told(&found[0]), (Kind::HfBlob, Some("acme/tiny"), Some(COMMIT)));
            assert_eq!(found[0].claim.sha256, digest(SHA.as_bytes()));
            assert_eq!(found[0].origin, blob);
        }
        assert_eq!(told(&of(&blob)[0]), (Kind::HfBlob, Some("acme/tiny"), None));
    }

    #[test]
    fn names_that_are_no_digest_of_the_bytes() {
        let place = Place::new();
        for path in [
            format!("models--a--b/blobs/{COMMIT}"),
            format!("models--a--b/other/{SHA}"),
            format!("somewhere/blobs/{SHA}"),
            format!("models--/blobs/{SHA}"),
            format!("models--a--b/blobs/{SHA}0"),
            format!("models--a--b/blobs/{}", SHA.replace('4', "g")),
            format!("blobs/sha256-{COMMIT}"),
            format!("blobs/sha512-{SHA}"),
            "sha256-".to_owned(),
        ] {
            assert_eq!(of(&place.put(&path, "x")), [], "{path}");
        }
    }

    #[test]
    fn a_blob_of_ollama_with_its_model() {
        let place = Place::new();
        let blob = place.put(&format!("models/blobs/sha256-{SHA}"), "x");
        assert_eq!(told(&of(&blob)[0]), (Kind::OllamaBlob, None, None));
        let manifest = |path: &str, digest: &str| {
            let text = format!("{{\"layers\":[{{\"digest\":\"sha256:{digest}\",\"size\":1}}]}}");
            place.put(&format!("models/manifests/{path}"), &text);
        };
        manifest("registry.ollama.ai/library/a/latest", &"0".repeat(64));
        manifest("registry.ollama.ai/library/tiny/8b", SHA);
        assert_eq!(told(&of(&blob)[0]), (Kind::OllamaBlob, Some("tiny"), Some("8b")));
        manifest("hf.co/acme/tiny/q4", SHA);
        assert_eq!(told(&of(&blob)[0]), (Kind::OllamaBlob, Some("hf.co/acme/tiny"), Some("q4")));
        let old = place.put(&format!("models/blobs/sha256:{SHA}"), "x");
        assert_eq!(told(&of(&old)[0]), (Kind::OllamaBlob, Some("hf.co/acme/tiny"), Some("q4")));
        let link = place.link("x.gguf", blob.to_str().unwrap());
        assert_eq!(of(&link)[0].claim.sha256, digest(SHA.as_bytes()));
    }

    #[test]
    fn a_download_into_a_directory() {
        let place = Place::new();
        let model = place.put("d/sub/m.gguf", "x");
        let note = |text: String| {
            place.put("d/.cache/huggingface/download/sub/m.gguf.metadata", &text);
            of(&model)
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let found = note(format!("{COMMIT}\n{SHA}\n{}\n", now + 1.0));
        assert_eq!(told(&found[0]), (Kind::HfLocal, None, Some(COMMIT)));
        assert_eq!(found[0].claim.sha256, digest(SHA.as_bytes()));
        assert_eq!(note(format!("{COMMIT}\n{SHA}\n{}\n", now - 0.5)).len(), 1, "a second of slack");
        for text in [
            format!("{COMMIT}\n{SHA}\n{}\n", now - 100.0),
            format!("{COMMIT}\n{COMMIT}\n{now}\n"),
            format!("{COMMIT}\n\"{SHA}\"\n{now}\n"),
            format!("main\n{SHA}\n{now}\n"),
            format!("{COMMIT}\n{SHA}\n"),
            format!("{COMMIT}\n{SHA}\nNaN\n"),
            format!("{COMMIT}\n{SHA}\n1e300\n"),
            format!("{COMMIT}\n{SHA}\n-1\n"),
            String::new(),
            "x".repeat(5000),
        ] {
            assert_eq!(note(text.clone()), [], "{text}");
        }
    }
}
