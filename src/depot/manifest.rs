//! A manifest of Ollama's store: which blobs a model is made of.

use serde::Deserialize;

/// The weights.
pub(super) const MODEL: &str = "application/vnd.ollama.image.model";
/// What stands before the kind of a layer.
const KINDS: &str = "application/vnd.ollama.image.";

/// What a manifest says.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    layers: Option<Vec<Layer>>,
}

/// One blob and what it is for.
#[derive(Debug, Deserialize)]
pub(super) struct Layer {
    #[serde(default, rename = "mediaType")]
    kind: String,
    #[serde(default)]
    digest: String,
    pub(super) size: Option<u64>,
}

impl Layer {
    /// The 64 digits of its SHA-256.
    pub(super) fn sha256(&self) -> Result<&str, String> {
        let digits = self.digest.strip_prefix("sha256:");
        digits.filter(|digits| is_sha256(digits.as_bytes())).ok_or_else(|| {
            let digest: String = self.digest.chars().take(80).collect();
            format!("has a layer with the digest {digest:?}, which is no sha256: and 64 digits")
        })
    }

    /// Its kind without what all kinds begin with.
    pub(super) fn kind(&self) -> &str {
        self.kind.strip_prefix(KINDS).unwrap_or(&self.kind)
    }
}

/// 64 lower-case hexadecimal digits.
pub(super) fn is_sha256(digits: &[u8]) -> bool {
    crate::bytes::hex::from_hex::<32>(digits).is_some()
}

impl Manifest {
    /// Reads the text of one.
    pub(super) fn parse(text: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest =
            serde_json::from_slice(text).map_err(|error| format!("is no manifest: {error}"))?;
        match manifest.layers {
            None => Err("is no manifest: it has no \"layers\"".into()),
            Some(_) => Ok(manifest),
        }
    }

    /// The layers that are weights, in order.
    pub(super) fn models(&self) -> Vec<&Layer> {
        self.layers().filter(|layer| layer.kind == MODEL).collect()
    }

    /// Weights beside the model's own: what is added to it, or looks or guesses for it.
    pub(super) fn companions(&self) -> impl Iterator<Item = &Layer> {
        self.layers().filter(|layer| matches!(layer.kind(), "adapter" | "projector" | "draft"))
    }

    /// The kinds of its layers, each once, in order.
    pub(super) fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = Vec::new();
        for layer in self.layers() {
            let kind: String = layer.kind().chars().take(80).collect();
            let kind = super::shown(kind.as_bytes());
            if !kinds.contains(&kind) && kinds.len() < 20 {
                kinds.push(kind);
            }
        }
        kinds
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().flatten()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_manifest_says_why() {
        for (text, why) in [
            ("", "EOF"),
            ("[]", "is no manifest"),
            ("{}", "no \"layers\""),
            ("{\"layers\": null}", "no \"layers\""),
            ("{\"layers\": 3}", "expected a sequence"),
            ("{\"layers\": [{\"digest\": 3}]}", "expected a string"),
            ("{\"layers\": [{\"size\": -1}]}", "invalid value"),
        ] {
            let error = Manifest::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(Manifest::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn digests_that_are_names_of_other_files_are_none() {
        let sha = "0f".repeat(32);
        for (digest, good) in [
            (format!("sha256:{sha}"), true),
            (format!("sha256-{sha}"), false),
            (format!("sha256:{}", sha.to_uppercase()), false),
            (format!("sha512:{sha}"), false),
            (format!("sha256:{}", &sha[1..]), false),
            ("sha256:../../../etc/passwd".into(), false),
            (String::new(), false),
        ] {
            let text =
                format!("{{\"layers\": [{{\"mediaType\": \"{MODEL}\", \"digest\": {digest:?}}}]}}");
            let manifest = Manifest::parse(text.as_bytes()).unwrap();
            assert_eq!(manifest.models()[0].sha256().is_ok(), good, "{digest}");
        }
    }
}
