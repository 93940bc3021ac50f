//! Stores built by hand, also hostile ones.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

const ONE: &str = "bbc77c8132af1cc5cf678da3f1ddf2de43606d48";
const TWO: &str = "bbc7000000000000000000000000000000000000";
const SHA: &str = "403450e234d65943a7dcf7e05a771ce3c92faa84dd07db4ac20f592037a1e4bd";

struct Stores {
    _dir: tempfile::TempDir,
    root: PathBuf,
    places: Places,
}

impl Stores {
    fn new() -> Stores {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let ollama = vec![root.join("none"), root.join("ollama")];
        let places = Places { hub: Some(root.join("hub")), ollama };
        Stores { _dir: dir, root, places }
    }

    fn put(&self, path: &str, text: &str) -> &Stores {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn link(&self, path: &str, to: &str) -> &Stores {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
        self
    }

    /// A repository with two commits, a branch and a pull request.
    fn tiny(&self) -> &Stores {
        self.put(&format!("hub/models--acme--tiny/snapshots/{ONE}/m.gguf"), "one")
            .put(&format!("hub/models--acme--tiny/snapshots/{TWO}/m.gguf"), "two")
            .put("hub/models--acme--tiny/refs/main", ONE)
            .put("hub/models--acme--tiny/refs/refs/pr/1", &format!("{TWO}\n"))
    }

    fn manifest(&self, path: &str, layers: &[(&str, &str)]) -> &Stores {
        let layer = |(kind, sha): &(&str, &str)| {
            let kind = format!("application/vnd.ollama.image.{kind}");
            format!("{{\"mediaType\": {kind:?}, \"digest\": \"sha256:{sha}\", \"size\": 1}}")
        };
        let layers: Vec<_> = layers.iter().map(layer).collect();
        let text = format!("{{\"schemaVersion\": 2, \"layers\": [{}]}}", layers.join(","));
        self.put(&format!("ollama/manifests/{path}"), &text)
    }

    fn at(&self, spec: &str) -> String {
        let located = locate_in(Path::new(spec), &self.places).unwrap().unwrap();
        let inside = located.path.strip_prefix(&self.root).unwrap();
        inside.to_str().unwrap().to_owned()
    }

    /// The message, with ROOT for where the stores are.
    fn refused(&self, spec: &str) -> String {
        let error = locate_in(Path::new(spec), &self.places).unwrap_err().to_string();
        assert!(error.lines().count() <= 4, "{error}");
        error.replace(self.root.to_str().unwrap(), "ROOT")
    }
}

#[test]
fn what_has_no_such_prefix_is_a_path() {
    let stores = Stores::new();
    for spec in ["m.gguf", "./hf:a/b", "/hf:a", "HF:a", "hf", "ollama", "", "hfx:a", "x/ollama:a"] {
        assert_eq!(locate_in(Path::new(spec), &stores.places).unwrap(), None, "{spec}");
    }
    let bytes = std::ffi::OsStr::from_bytes(b"hf:a\xff");
    let error = locate_in(Path::new(bytes), &stores.places).unwrap_err().to_string();
    assert_eq!(error, "hf:a\\xff: not a name in a store: it is not UTF-8");
}

#[test]
fn revisions_lead_to_their_snapshots() {
    let stores = Stores::new();
    stores.tiny().put("hub/models--acme--tiny/refs/cafe", TWO);
    let one = format!("hub/models--acme--tiny/snapshots/{ONE}");
    let two = format!("hub/models--acme--tiny/snapshots/{TWO}");
    for (spec, want) in [
        ("hf:acme/tiny", &one),
        ("hf:acme/tiny@main", &one),
        ("hf:acme/tiny@refs/pr/1", &two),
        (&format!("hf:acme/tiny@{TWO}"), &two),
        ("hf:acme/tiny@bbc77c", &one),
        ("hf:acme/tiny@BBC70", &two),
        ("hf:acme/tiny@cafe", &two),
        ("hf:acme/tiny/m.gguf", &format!("{one}/m.gguf")),
        ("hf:acme/tiny@bbc77/m.gguf", &format!("{one}/m.gguf")),
        ("hf:acme/tiny@refs/pr/1/m.gguf", &format!("{two}/m.gguf")),
    ] {
        assert_eq!(stores.at(spec), *want, "{spec}");
    }
    stores
        .put(&format!("hub/models--gpt2/snapshots/{ONE}/x"), "")
        .put("hub/models--gpt2/refs/main", ONE);
    assert_eq!(stores.at("hf:gpt2"), format!("hub/models--gpt2/snapshots/{ONE}"));
    assert_eq!(stores.at("hf:gpt2@main/x"), format!("hub/models--gpt2/snapshots/{ONE}/x"));
}

#[test]
fn a_commit_that_is_whole_goes_before_a_ref_of_that_name() {
    let stores = Stores::new();
    stores.tiny().put(&format!("hub/models--acme--tiny/refs/{ONE}"), TWO);
    assert!(stores.at(&format!("hf:acme/tiny@{ONE}")).ends_with(ONE));
}

#[test]
fn what_is_not_in_the_cache_is_said_with_what_is() {
    let stores = Stores::new();
    stores.tiny().put("hub/models--gpt2/refs/main", ONE).put("hub/datasets--acme--tinny/x", "");
    assert_eq!(
        stores.refused("hf:acme/tinny"),
        "hf:acme/tinny: no models--acme--tinny in ROOT/hub, and nothing is downloaded\n\
         there are: acme/tiny, gpt2"
    );
    assert_eq!(
        stores.refused("hf:acme/tiny@v2"),
        "hf:acme/tiny@v2: no revision v2 in ROOT/hub/models--acme--tiny\n\
         there are: main, refs/pr/1; commits: bbc700000000, bbc77c8132af"
    );
    assert_eq!(
        stores.refused("hf:acme/tiny@bbc7"),
        format!("hf:acme/tiny@bbc7: bbc7 begins 2 commits\nthey are: {TWO}, {ONE}")
    );
    assert!(stores.refused("hf:acme/tiny@bbc").contains("no revision bbc"), "too short");
    assert_eq!(
        stores.refused("hf:gpt2"),
        format!(
            "hf:gpt2: refs/main is commit {ONE}, which is not in ROOT/hub/models--gpt2/snapshots\n\
             there are: main"
        )
    );
    let missing = stores.refused("hf:acme/tiny/n.gguf");
    assert!(missing.starts_with("hf:acme/tiny/n.gguf: no n.gguf in ROOT/hub/"), "{missing}");
    assert!(missing.ends_with("\nthere are: m.gguf"), "{missing}");
    let nowhere = Places { hub: None, ollama: Vec::new() };
    let error = locate_in(Path::new("hf:a/b"), &nowhere).unwrap_err().to_string();
    assert!(error.contains("set HF_HOME"), "{error}");
}

#[test]
fn refs_of_strangers_lead_nowhere_else() {
    let stores = Stores::new();
    let repo = "hub/models--acme--tiny";
    stores.tiny().put("secret/m.gguf", "secret").put("secret.txt", ONE);
    for (name, text) in [
        ("up", "../../../secret"),
        ("root", "/etc"),
        ("dots", ".."),
        ("empty", ""),
        ("two", "a\nb"),
        ("nul", "a\0b"),
        ("long", &"x".repeat(300)),
        ("latin", "\u{7f}"),
    ] {
        stores.put(&format!("{repo}/refs/{name}"), text);
        let want = format!("ROOT/{repo}/refs/{name}: is no ref: it should hold a commit");
        assert_eq!(stores.refused(&format!("hf:acme/tiny@{name}")), want);
    }
    stores.put(&format!("{repo}/refs/huge"), &"f".repeat(5000));
    assert!(stores.refused("hf:acme/tiny@huge").contains("is no ref: it has 5000 bytes"));
    stores.link(&format!("{repo}/refs/out"), "../../../secret.txt");
    assert!(stores.refused("hf:acme/tiny@out").contains("refs/out: leads out of the repository"));
    stores.link(&format!("{repo}/refs/gone"), "nowhere").link(&format!("{repo}/refs/loop"), "loop");
    for name in ["gone", "loop"] {
        assert!(stores.refused(&format!("hf:acme/tiny@{name}")).contains("leads out of the"));
    }
    stores.link(&format!("{repo}/refs/good"), "main");
    assert!(stores.at("hf:acme/tiny@good").ends_with(ONE), "a link inside");
    let pipe = stores.root.join(repo).join("refs/pipe");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    assert!(stores.refused("hf:acme/tiny@pipe").contains("named pipe"));
    assert!(stores.refused("hf:acme/tiny@refs/pr").contains("no revision"), "a directory");
}

#[test]
fn snapshots_of_strangers_lead_nowhere_else() {
    let stores = Stores::new();
    let snapshots = "hub/models--acme--tiny/snapshots";
    stores.tiny().put("secret/m.gguf", "secret");
    stores.link(&format!("{snapshots}/out"), "../../../secret");
    stores.put("hub/models--acme--tiny/refs/out", "out").put(&format!("{snapshots}/file"), "");
    for name in ["out", "file"] {
        assert!(
            stores.refused(&format!("hf:acme/tiny@{name}")).contains("is no directory of this")
        );
    }
    stores.link(&format!("{snapshots}/{ONE}/sub"), "../../../../secret");
    assert!(stores.refused("hf:acme/tiny/sub/m.gguf").contains("leads out of the repository"));
    assert!(stores.refused("hf:acme/tiny/sub").contains("leads out of the repository"));
    stores.put("hub/models--a--file", "");
    assert!(stores.refused("hf:a/file").contains("models--a--file: is no directory"));
}

#[test]
fn a_repository_that_was_moved_is_still_in_the_cache() {
    let stores = Stores::new();
    stores.tiny();
    fs::rename(stores.root.join("hub/models--acme--tiny"), stores.root.join("disk2")).unwrap();
    stores.link("hub/models--acme--tiny", "../disk2");
    assert!(stores.at("hf:acme/tiny").ends_with(&format!("models--acme--tiny/snapshots/{ONE}")));
}

#[test]
fn a_model_of_ollama_is_the_blob_of_its_one_layer_of_weights() {
    let stores = Stores::new();
    let layers = [("model", SHA), ("template", &"0".repeat(64)), ("params", &"1".repeat(64))];
    for name in ["registry.ollama.ai/library/tiny/latest", "hf.co/acme/tiny/Q4_K_M"] {
        stores.manifest(name, &layers);
    }
    let want = format!("ollama/blobs/sha256-{SHA}");
    let error = stores.refused("ollama:tiny");
    let manifest = "ROOT/ollama/manifests/registry.ollama.ai/library/tiny/latest";
    assert_eq!(error, format!("{manifest}: names the blob ROOT/{want}, which is not there"));
    stores.put(&format!("{want}-partial"), "");
    assert!(stores.refused("ollama:tiny").ends_with("not there: its download did not finish"));
    stores.put(&format!("ollama/blobs/sha256:{SHA}"), "x");
    assert_eq!(stores.at("ollama:tiny"), format!("ollama/blobs/sha256:{SHA}"));
    stores.put(&want, "x");
    for spec in [
        "ollama:tiny",
        "ollama:tiny:latest",
        "ollama:library/tiny",
        "ollama:hf.co/acme/tiny:Q4_K_M",
    ] {
        assert_eq!(stores.at(spec), want, "{spec}");
    }
    assert_eq!(
        stores.refused("ollama:tinny"),
        "ollama:tinny: no manifest registry.ollama.ai/library/tinny/latest in ROOT/none, ROOT/ollama\n\
         there are: tiny:latest, hf.co/acme/tiny:Q4_K_M"
    );
}

#[test]
fn what_else_a_manifest_names_is_told() {
    let stores = Stores::new();
    let other = "1".repeat(64);
    let path = "registry.ollama.ai/library/tiny/latest";
    stores.manifest(path, &[("model", SHA), ("projector", &other), ("adapter", &other)]);
    stores.put(&format!("ollama/blobs/sha256-{SHA}"), "xy");
    let warnings = locate_in(Path::new("ollama:tiny"), &stores.places).unwrap().unwrap().warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[0].contains("has 2 bytes") && warnings[0].ends_with("says 1"));
    assert!(
        warnings[1].contains("no part of this tree: projector") && warnings[1].ends_with(&other)
    );
    assert!(warnings[2].contains("adapter"));
}

#[test]
fn manifests_without_one_model_say_what_they_have() {
    let stores = Stores::new();
    let path = "registry.ollama.ai/library/tiny/latest";
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    for (layers, want) in [
        (&[][..], "has no layers"),
        (&[("template", &*a), ("license", &b)], "no layer of weights, only template, license"),
        (&[("tensor", &a), ("tensor", &b)], "each tensor in a layer of its own"),
        (&[("model", "../../x")], "is no sha256: and 64 digits"),
    ] {
        stores.manifest(path, layers);
        let error = stores.refused("ollama:tiny");
        assert!(error.starts_with(&format!("ROOT/ollama/manifests/{path}: ")), "{error}");
        assert!(error.contains(want), "{error}");
    }
    for (text, want) in [("", "is no manifest"), ("{}", "no \"layers\""), ("[1]", "is no manifest")]
    {
        stores.put(&format!("ollama/manifests/{path}"), text);
        assert!(stores.refused("ollama:tiny").contains(want), "{text}");
    }
    stores.put("secret", "{\"layers\": []}");
    fs::remove_file(stores.root.join("ollama/manifests").join(path)).unwrap();
    stores.link(&format!("ollama/manifests/{path}"), "../../../../../secret");
    assert!(stores.refused("ollama:tiny").contains("leads out of the store"));
}

#[test]
fn the_parts_of_a_split_are_found_by_the_names_that_ollama_gives_them() {
    let stores = Stores::new();
    let path = "registry.ollama.ai/library/tiny/latest";
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    stores.manifest(path, &[("model", &a), ("model", &b)]);
    for sha in [&a, &b] {
        stores.put(&format!("ollama/blobs/sha256-{sha}"), "");
    }
    let error = stores.refused("ollama:tiny");
    assert!(error.contains("has 2 layers of weights") && error.contains(&a), "{error}");
    stores.put(&format!("ollama/blobs/splits/{a}/m-00001-of-00002.gguf"), "");
    assert_eq!(stores.at("ollama:tiny"), format!("ollama/blobs/splits/{a}"));
}

#[test]
fn lists_of_what_is_there_tell_nothing_of_other_places() {
    let stores = Stores::new();
    stores.tiny().put("secret/a/b/c/TREASURE", "").put("secret/TREASURE.gguf", "");
    let snapshot = format!("hub/models--acme--tiny/snapshots/{ONE}");
    stores.link(&format!("{snapshot}/out"), "../../../../secret");
    stores.put(&format!("{snapshot}/q4/m.gguf"), "");
    stores.link("hub/models--acme--tiny/refs/out", "../../../secret");
    stores.put("ollama/blobs/x", "").link("ollama/manifests/h", "../../secret");
    stores.link("ollama/manifests/i/j", "../../../secret/a");
    let located = locate_in(Path::new("hf:acme/tiny"), &stores.places).unwrap().unwrap();
    assert_eq!(located.below(), ["hf:acme/tiny/q4"]);
    for spec in ["hf:acme/tiny@none", "hf:acme/none", "ollama:none"] {
        let error = stores.refused(spec);
        assert!(!error.contains("TREASURE"), "{error}");
    }
}
