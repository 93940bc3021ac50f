//! `[[HOST/]NAMESPACE/]NAME[:TAG]` in a store of Ollama.
//!
//! ```text
//! manifests/HOST/NAMESPACE/NAME/TAG      JSON: the layers
//! blobs/sha256-HEX                       a layer; sha256:HEX in old stores
//! blobs/splits/HEX/                      links with the names of a split's parts, HEX its first
//! ```

use super::error::{DepotError, nearest, show, shown};
use super::manifest::{Layer, Manifest, is_sha256};
use super::places::Places;
use super::{Located, StoreModel, entries, entries_within, is_inside};
use crate::bytes::read_vec;
use crate::source::{IoMode, Source};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The parts that a name may lack.
const HOST: &str = "registry.ollama.ai";
const NAMESPACE: &str = "library";
const TAG: &str = "latest";
/// Longest part of a name.
const MAX_PART: usize = 350;
/// A manifest lists a handful of layers, one that is made of tensors thousands.
const MAX_MANIFEST: u64 = 1 << 20;
/// Models of a store that are looked through.
const MAX_MODELS: usize = 5000;

/// A name in full.
#[derive(Debug, PartialEq, Eq)]
struct Name<'a> {
    host: &'a str,
    namespace: &'a str,
    model: &'a str,
    tag: &'a str,
}

impl<'a> Name<'a> {
    fn parse(text: &'a str) -> Result<Name<'a>, String> {
        const FORM: &str = "it should be ollama:[[HOST/]NAMESPACE/]NAME[:TAG]";
        let (path, tag) = match text.rsplit_once(':') {
            // A host may have a port.
            Some((path, tag)) if !tag.contains('/') => (path, tag),
            _ => (text, TAG),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (host, namespace, model) = match parts[..] {
            [model] => (HOST, NAMESPACE, model),
            [namespace, model] => (HOST, namespace, model),
            [host, namespace, model] => (host, namespace, model),
            _ => return Err(FORM.into()),
        };
        for (part, colon) in [(host, true), (namespace, false), (model, false), (tag, false)] {
            let allowed =
                |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b) || colon && b == b':';
            let first = part.bytes().next();
            if !first.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
                || part.len() > MAX_PART
                || !part.bytes().all(allowed)
            {
                return Err(format!("{FORM}, of letters, digits and . - _"));
            }
        }
        Ok(Name { host, namespace, model, tag })
    }

    fn below_manifests(&self) -> String {
        [self.host, self.namespace, self.model, self.tag].join("/")
    }
}

/// Finds the blob with the weights.
pub(super) fn find(text: &str, places: &Places) -> Result<Located, DepotError> {
    let spec = format!("ollama:{}", shown(text.as_bytes()));
    let name = Name::parse(text).map_err(|what| DepotError::Name { spec: spec.clone(), what })?;
    let wanted = name.below_manifests();
    let mut problems = Vec::new();
    for root in &places.ollama {
        let store = Store { root };
        let path = store.manifests().join(&wanted);
        match path.metadata() {
            Ok(about) if about.is_dir() => {}
            Ok(_) => return store.located(&path, &spec),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                problems.push(format!("{} ({error})", show(root)));
                continue;
            }
            Err(_) => {}
        }
        problems.push(show(root));
    }
    let what = format!("no manifest {wanted} in {}", problems.join(", "));
    let models = places.ollama.iter().flat_map(|root| Store { root }.models());
    let models = models.map(|parts| shown(short(&parts).as_bytes())).collect();
    Err(DepotError::Absent { spec, what, there: nearest("there are", text, models) })
}

/// The models in `directory` if it is built like a store, by their names; `None` of any other.
pub fn models_of_ollama(directory: &Path) -> Option<Vec<StoreModel>> {
    let store = Store { root: directory };
    let is_store = store.manifests().is_dir() && store.blobs().is_dir();
    let models = if is_store { store.models() } else { Vec::new() };
    let located = |parts: &[String; 4]| {
        let (name, path) = (short(parts), store.manifests().join(parts.join("/")));
        let spec = format!("ollama:{}", shown(name.as_bytes()));
        let name = name.split('/').map(str::to_owned).collect();
        StoreModel { name, located: store.located(&path, &spec) }
    };
    (!models.is_empty()).then(|| models.iter().map(located).collect())
}

/// The name of a manifest as short as it is understood.
fn short([host, namespace, model, tag]: &[String; 4]) -> String {
    let before = match (&**host, &**namespace) {
        (HOST, NAMESPACE) => String::new(),
        (HOST, _) => format!("{namespace}/"),
        _ => format!("{host}/{namespace}/"),
    };
    format!("{before}{model}:{tag}")
}

/// What `ollama:NAME` asks for: the repository, without the parts that are usual, and the tag.
pub fn asked_of_ollama(spec: &Path) -> Option<(String, String)> {
    let text = spec.as_os_str().as_bytes().strip_prefix(super::OLLAMA)?;
    let Name { host, namespace, model, tag } = Name::parse(std::str::from_utf8(text).ok()?).ok()?;
    let repo = match (host, namespace) {
        (HOST, NAMESPACE) => model.to_owned(),
        (HOST, _) => format!("{namespace}/{model}"),
        _ => format!("{host}/{namespace}/{model}"),
    };
    Some((repo, tag.to_owned()))
}

/// Whether this is a blob of Ollama by its name and place. Ollama clears its blobs of all that
/// is called otherwise when it starts.
pub fn is_blob(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let digits = name.strip_prefix(b"sha256-").or_else(|| name.strip_prefix(b"sha256:"));
    let directory = path.parent().and_then(Path::file_name);
    digits.is_some_and(is_sha256) && directory.is_some_and(|name| name == "blobs")
}

struct Store<'a> {
    root: &'a Path,
}

impl Store<'_> {
    fn manifests(&self) -> PathBuf {
        self.root.join("manifests")
    }

    fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    fn located(&self, path: &Path, spec: &str) -> Result<Located, DepotError> {
        let manifest = self.manifest(path)?;
        let wrong = |what: String| DepotError::store(path, what);
        let models = manifest.models();
        let located = match &*models {
            [] => return Err(wrong(no_model(&manifest))),
            [one] => {
                let blob = self.blob(one, path)?;
                let warnings = size_warning(one, &blob, path).into_iter().collect();
                Located { path: blob, warnings, prefix: None }
            }
            several => self.split(several, path)?,
        };
        let beside = manifest.companions().map(|layer| self.companion(layer, spec));
        let warnings = located.warnings.into_iter().chain(beside).collect();
        Ok(Located { warnings, ..located })
    }

    fn manifest(&self, path: &Path) -> Result<Manifest, DepotError> {
        if !is_inside(path, &self.manifests()) {
            return Err(DepotError::store(path, "leads out of the store"));
        }
        let source = Source::open(path, IoMode::Pread)?;
        if source.len() > MAX_MANIFEST {
            let what = format!(
                "is no manifest: it has {} bytes, at most {MAX_MANIFEST} are read",
                source.len()
            );
            return Err(DepotError::store(path, what));
        }
        let text = read_vec(&source, 0, source.len() as usize)
            .map_err(|error| DepotError::store(path, format!("cannot read it: {error}")))?;
        Manifest::parse(&text).map_err(|what| DepotError::store(path, what))
    }

    fn blob(&self, layer: &Layer, manifest: &Path) -> Result<PathBuf, DepotError> {
        let sha256 = layer.sha256().map_err(|what| DepotError::store(manifest, what))?;
        let named = |mark| self.blobs().join(format!("sha256{mark}{sha256}"));
        let (new, old) = (named('-'), named(':'));
        if let Some(blob) = [&new, &old].into_iter().find(|path| path.symlink_metadata().is_ok()) {
            return Ok(blob.clone());
        }
        let partial = self.blobs().join(format!("sha256-{sha256}-partial"));
        let end = match partial.symlink_metadata().is_ok() {
            true => ": its download did not finish",
            false => "",
        };
        Err(DepotError::store(
            manifest,
            format!("names the blob {}, which is not there{end}", show(&new)),
        ))
    }

    /// Several layers are the parts of a split. A blob's name does not say which part it is, but
    /// Ollama makes links that do when it runs the model.
    fn split(&self, models: &[&Layer], manifest: &Path) -> Result<Located, DepotError> {
        let mut blobs = Vec::new();
        for layer in models {
            let sha256 = layer.sha256().map_err(|what| DepotError::store(manifest, what))?;
            let links = self.blobs().join("splits").join(sha256);
            if links.is_dir() && is_inside(&links, self.root) {
                return Ok(Located { path: links, warnings: Vec::new(), prefix: None });
            }
            blobs.push(show(&self.blob(layer, manifest)?));
        }
        let what = format!(
            "has {} layers of weights, and their names do not tell how they belong together\n\
             one of them is {}; split parts get names in blobs/splits when Ollama runs the model",
            models.len(),
            blobs[0],
        );
        Err(DepotError::store(manifest, what))
    }

    fn companion(&self, layer: &Layer, spec: &str) -> String {
        let kind = layer.kind();
        let digits = layer.sha256().unwrap_or("?");
        let path = self.blobs().join(format!("sha256-{digits}"));
        format!("{spec} also has a layer that is no part of this tree: {kind} {}", show(&path))
    }

    /// What is in the store: host, namespace, name and tag of each manifest.
    fn models(&self) -> Vec<[String; 4]> {
        let mut level = vec![Vec::new()];
        for _ in 0..4 {
            let below = |parts: &Vec<String>| {
                let dir = self.manifests().join(parts.join("/"));
                let names = match parts.is_empty() {
                    true => entries(&dir),
                    false => entries_within(&dir),
                };
                let names = names.into_iter().filter_map(|name| name.into_string().ok());
                let parts = parts.clone();
                names.map(move |name| [&*parts, &[name]].concat()).collect::<Vec<_>>()
            };
            level = level.iter().flat_map(below).take(MAX_MODELS).collect();
        }
        level.into_iter().filter_map(|parts| parts.try_into().ok()).collect()
    }
}

fn no_model(manifest: &Manifest) -> String {
    let kinds = manifest.kinds();
    match () {
        () if kinds.is_empty() => "has no layers, as models that run elsewhere".into(),
        () if kinds.iter().any(|kind| kind == "tensor") => {
            "keeps each tensor in a layer of its own, which is not supported".into()
        }
        () => format!("has no layer of weights, only {}", super::error::listed(&kinds)),
    }
}

fn size_warning(layer: &Layer, blob: &Path, manifest: &Path) -> Option<String> {
    let (told, found) = (layer.size?, blob.metadata().ok()?.len());
    (told != found)
        .then(|| format!("{} has {found} bytes, {} says {told}", show(blob), show(manifest)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_up() {
        for (text, want) in [
            ("llama3", "registry.ollama.ai/library/llama3/latest"),
            ("llama3:8b", "registry.ollama.ai/library/llama3/8b"),
            ("me/mine:v1", "registry.ollama.ai/me/mine/v1"),
            ("hf.co/acme/tiny-GGUF:Q4_K_M", "hf.co/acme/tiny-GGUF/Q4_K_M"),
            ("localhost:5000/a/b", "localhost:5000/a/b/latest"),
            ("localhost:5000/a/b:c", "localhost:5000/a/b/c"),
        ] {
            assert_eq!(Name::parse(text).unwrap().below_manifests(), want, "{text}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for text in [
            "",
            ":",
            "a:",
            ":a",
            "/",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "/a",
            "a/",
            "a//b",
            "a:..",
            "a:.",
            "a/b/c/d",
            "a\0",
            "a b",
            "a\n",
            "a:b:c",
            "a@sha256-00",
            "a\u{e9}",
            ".a",
            "-a",
            "https://a/b/c",
            "a:b/c",
        ] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn blobs_are_known_by_name_and_place() {
        let sha = "0f".repeat(32);
        assert!(is_blob(Path::new(&format!("/m/blobs/sha256-{sha}"))));
        assert!(is_blob(Path::new(&format!("/m/blobs/sha256:{sha}"))));
        assert!(!is_blob(Path::new(&format!("/m/other/sha256-{sha}"))));
        assert!(!is_blob(Path::new(&format!("/m/blobs/{sha}"))));
        assert!(!is_blob(Path::new("blobs/x.gguf")));
    }
}
