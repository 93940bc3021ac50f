//! Where the right bytes are written down: anchors, and whether they agree.
//!
//! Neither format carries a checksum, so what a file should be is known from elsewhere: the
//! content-addressed name that a model store gave it, or a list of digests beside it. This
//! room finds such anchors ([`find`]), reads lists that a user names ([`List::read`]),
//! compares them with one another and with what was sealed ([`contradiction`],
//! [`agreement`]) and with the bytes themselves ([`compare`]).
//!
//! All of it is other people's text: read with limits, never followed out of the model's
//! directory. A signature is not verified here, and nothing is called signed. Must not know
//! seals (they offer what they know as [`Known`]), views or mounts.

mod bundle;
mod claim;
mod clash;
mod collector;
mod compare;
mod disagree;
mod find;
mod line;
mod list;
mod notes;
mod repair;
mod report;
mod small;
mod store_name;
mod undecided;
mod xxh64;

pub use claim::{Claim, Of, Range, Sum};
pub use clash::Clash;
pub use compare::{CompareReport, Mismatch, UNREADABLE, compare, work};
pub use disagree::{
    Contradiction, Known, Said, agreement, contradicted, contradicted_tensor, contradiction,
    contradiction_between,
};
pub use find::{find, unopened};
pub use list::{List, ListError};
pub use repair::{Repair, http_ranges, repair};
pub use undecided::{disproved, unanswered, unanswered_by, undecided, undecided_by_sealing};

use std::path::{Path, PathBuf};

/// What kind of thing an anchor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The name of a blob in a Hugging Face cache: the SHA-256 of its bytes.
    HfBlob,
    /// What a Hugging Face download left below `.cache/huggingface/download`.
    HfLocal,
    /// The name of a blob in Ollama's store.
    OllamaBlob,
    /// Lines as sha256sum writes them, in the plain or the BSD form.
    Sha256Sums,
    /// Lines of names and CRC32s.
    Sfv,
    /// What llama.cpp's gguf-hash prints: digests of tensors.
    GgufHash,
    /// The digests in an OpenSSF model signature, which nobody verified.
    ModelSigning,
    /// A provenance report of this program.
    Provenance,
    /// A digest on the command line.
    CommandLine,
}

impl Kind {
    /// The word in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::HfBlob => "hf-blob",
            Kind::HfLocal => "hf-local",
            Kind::OllamaBlob => "ollama-blob",
            Kind::Sha256Sums => "sha256sums",
            Kind::Sfv => "sfv",
            Kind::GgufHash => "gguf-hash",
            Kind::ModelSigning => "model-signing",
            Kind::Provenance => "provenance",
            Kind::CommandLine => "command-line",
        }
    }

    /// Whether a store said so, by a name or in a note of its own, not a list of somebody's.
    pub const fn is_of_store(self) -> bool {
        self.is_store() || matches!(self, Kind::HfLocal)
    }

    /// Whether it is a content-addressed name: one that a store gave the bytes, not a file
    /// beside them.
    pub const fn is_store(self) -> bool {
        matches!(self, Kind::HfBlob | Kind::OllamaBlob)
    }
}

/// What somebody wrote down about one file of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// What kind of source it is.
    pub kind: Kind,
    /// Number of the file.
    pub shard: usize,
    /// Where it stands: the list, or the blob that has the name.
    pub origin: PathBuf,
    /// The repository or model in the store, where that is known.
    pub repo: Option<String>,
    /// Its commit or tag.
    pub commit: Option<String>,
    /// What it says.
    pub claim: Claim,
}

/// The digest of a file that the user gave.
pub fn pinned(shard: usize, sha256: [u8; 32]) -> Anchor {
    Anchor {
        kind: Kind::CommandLine,
        shard,
        origin: PathBuf::new(),
        repo: None,
        commit: None,
        claim: Claim { sha256: Some(sha256), ..Claim::default() },
    }
}

/// What was found beside a model and in its names.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In order of the files, store names first.
    pub anchors: Vec<Anchor>,
    /// What looked like an anchor and could not be used, in words.
    pub warnings: Vec<String>,
}

impl Anchor {
    /// The anchor in words: `by the name of blob PATH`.
    pub fn source(&self) -> String {
        let path = self.origin.display();
        match self.kind {
            Kind::HfBlob | Kind::OllamaBlob => format!("by the name of the blob {path}"),
            Kind::CommandLine => "on the command line".to_owned(),
            _ => format!("in {path}"),
        }
    }
}

/// An anchor without what it says about tensors, and whether it agrees with what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What kind of source it is.
    pub kind: Kind,
    /// Number of the file.
    pub shard: usize,
    /// SHA-256 of the whole file, where it says one.
    pub sha256: Option<[u8; 32]>,
    /// Whether it agrees; `None` where nothing was compared.
    pub agrees: Option<bool>,
    /// The repository or model in the store.
    pub repo: Option<String>,
    /// Its commit or tag.
    pub commit: Option<String>,
}

impl Told {
    /// What is left of an anchor when it has been compared.
    pub fn new(anchor: &Anchor, agrees: Option<bool>) -> Told {
        Told {
            kind: anchor.kind,
            shard: anchor.shard,
            sha256: anchor.claim.sha256,
            agrees,
            repo: anchor.repo.clone(),
            commit: anchor.commit.clone(),
        }
    }
}

/// What anchors that do not contradict each other say together, by file.
pub fn joined(anchors: &[Anchor], files: usize) -> Vec<Claim> {
    let of = |shard| anchors.iter().filter(move |a| a.shard == shard).map(|anchor| &anchor.claim);
    (0..files).map(|shard| claim::together(of(shard))).collect()
}

/// The last component of a path, as bytes.
fn name_of(path: &Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.file_name().unwrap_or_default().as_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
