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

/// The file's path without symlinks, and the way there from the name that was given: a store, or
/// a directory in it, may itself be a link to where there is room.
fn ways(source: &Source) -> Vec<PathBuf> {
    let mut ways = vec![source.canonical_path().to_owned()];
    let mut at = Some(source.path().to_owned());
    for _ in 0..MAX_LINKS {
        let Some(way) = at else { break };
        let target = way.read_link().ok();
        let parent = way.parent().map(Path::to_path_buf);
        at = target.zip(parent).map(|(target, parent)| plain(&parent.join(target)));
        // What `..` means depends on the links before it: believed where it leads to the file.
        if way.canonicalize().is_ok_and(|path| path == ways[0]) && !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

/// A path with what `.` and `..` in it mean where there are no links.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

/// The directory of blobs in which `way` is.
fn blobs_of(way: &Path) -> Option<&Path> {
    way.parent().filter(|dir| name_of(dir) == b"blobs")
}

/// `models--ORG--NAME/blobs/<64 digits>`: the SHA-256 of large files, those in LFS and in Xet
/// alike.
///
/// A name of 40 digits is git's SHA-1 of a small file that is not in LFS. It is not used: the hub
/// keeps what holds tensors in LFS, so such a name is that of a configuration, which no seal
/// covers; and SHA-1 is no evidence against whoever means harm.
fn hf_blob(shard: usize, source: &Source) -> Option<Anchor> {
    let found = ways(source).into_iter().find_map(|way| {
        let sha256 = digest(name_of(&way))?;
        let name = repo_name(name_of(blobs_of(&way)?.parent()?))?;
        Some((way, sha256, name))
    });
    let (blob, sha256, name) = found?;
    let commit = blobs_of(&blob).and_then(Path::parent).and_then(|repo| {
        let repo = repo.canonicalize().ok()?;
        commit(source.path(), &repo)
    });
    let mut anchor = anchor(Kind::HfBlob, shard, blob, sha256);
    (anchor.repo, anchor.commit) = (Some(name), commit);
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

/// `blobs/sha256-<64 digits>`, with a colon in old stores. Anywhere else a name of this form is
/// what somebody called a file, not what a store did.
fn ollama(shard: usize, source: &Source) -> Option<Anchor> {
    let digits_of = |way: &Path| {
        let name = name_of(way);
        let digits = name.strip_prefix(b"sha256-").or_else(|| name.strip_prefix(b"sha256:"))?;
        Some((digits.to_vec(), digest(digits)?))
    };
    let found = ways(source).into_iter().find_map(|way| {
        let (digits, sha256) = digits_of(&way)?;
        let manifests = blobs_of(&way)?.with_file_name("manifests");
        Some((way, digits, sha256, manifests))
    });
    let (blob, digits, sha256, manifests) = found?;
    let mut anchor = anchor(Kind::OllamaBlob, shard, blob, sha256);
    let wanted = [b"sha256:", &*digits].concat();
    if let Some((repo, tag)) = ollama_model(&manifests, &wanted) {
        (anchor.repo, anchor.commit) = (Some(repo), Some(tag));
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
            format!("downloads/sha256-{SHA}"),
            format!("sha256-{SHA}"),
            format!("blobs/sub/sha256-{SHA}"),
            format!("my-blobs/sha256-{SHA}"),
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
    fn a_store_that_is_elsewhere_is_a_store_by_the_way_there() {
        let place = Place::new();
        let kinds = |path: &Path| of(path).iter().map(|a| a.kind).collect::<Vec<_>>();
        // The directory of blobs is a link to a larger disk.
        place.put(&format!("disk/b/sha256-{SHA}"), "x");
        place.put("models/manifests/registry.ollama.ai/library/tiny/8b", &format!("sha256:{SHA}"));
        place.link("models/blobs", "../disk/b");
        let named = place.root.join(format!("models/blobs/sha256-{SHA}"));
        assert_eq!(told(&of(&named)[0]), (Kind::OllamaBlob, Some("tiny"), Some("8b")));
        assert_eq!(kinds(&place.link("x.gguf", named.to_str().unwrap())), [Kind::OllamaBlob]);
        assert_eq!(kinds(&place.root.join(format!("disk/b/sha256-{SHA}"))), []);
        // So is the blob itself.
        let file = place.put("lmstudio/tiny.gguf", "x");
        let blob = place.link(&format!("other/blobs/sha256-{SHA}"), file.to_str().unwrap());
        assert_eq!(kinds(&blob), [Kind::OllamaBlob]);
        assert_eq!(kinds(&file), []);
        // A repository of the hub, by a way with `..` that means what it seems to.
        place.put(&format!("disk/hf/blobs/{SHA}"), "x");
        place.link("hub/models--a--b", "../disk/hf");
        let model = format!("snapshots/{COMMIT}/m.gguf");
        place.link(&format!("disk/hf/{model}"), &format!("../../blobs/{SHA}"));
        let found = of(&place.root.join(format!("hub/models--a--b/{model}")));
        assert_eq!(told(&found[0]), (Kind::HfBlob, Some("a/b"), Some(COMMIT)));
        // And by one that does not: `..` of a link is above where it leads.
        place.put(&format!("far/deep/{SHA}"), "x");
        place.put(&format!("models--a--b/blobs/{SHA}"), "another");
        place.link("models--a--b/in", "../far/deep/here");
        place.put("far/deep/here/y", "");
        place.link("far/deep/here/m", &format!("../{SHA}"));
        assert_eq!(kinds(&place.root.join("models--a--b/in/m")), []);
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
