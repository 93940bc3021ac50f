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
mod collector;
mod compare;
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

pub use compare::{CompareReport, Mismatch, Of, UNREADABLE, compare, work};
pub use find::{find, unopened};
pub use list::{List, ListError};
pub use repair::{Repair, http_ranges, repair};
pub use undecided::{undecided, undecided_by_sealing};

use crate::bytes::hex::{crc_hex, hex};
use crate::bytes::line::InLine;
use crate::model::Model;
use std::fmt;
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
        }
    }

    /// Whether it is a content-addressed name: one that a store gave the bytes, not a file
    /// beside them.
    pub const fn is_store(self) -> bool {
        matches!(self, Kind::HfBlob | Kind::OllamaBlob)
    }
}

/// A checksum of a tensor's bytes, or of a file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// SHA-256.
    Sha256([u8; 32]),
    /// XXH64 with seed 0.
    Xxh64(u64),
    /// CRC32 (IEEE).
    Crc32(u32),
}

impl Sum {
    /// Its digits.
    pub fn digits(&self) -> String {
        match self {
            Sum::Sha256(sha) => hex(sha),
            Sum::Xxh64(sum) => format!("{sum:016x}"),
            Sum::Crc32(crc) => crc_hex(*crc),
        }
    }

    /// What it is called.
    pub const fn name(&self) -> &'static str {
        match self {
            Sum::Sha256(_) => "SHA-256",
            Sum::Xxh64(_) => "XXH64",
            Sum::Crc32(_) => "CRC32",
        }
    }

    /// Less for what says more.
    const fn rank(&self) -> u8 {
        match self {
            Sum::Sha256(_) => 0,
            Sum::Xxh64(_) => 1,
            Sum::Crc32(_) => 2,
        }
    }
}

/// The SHA-256 of some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub from: u64,
    /// One past the last.
    pub to: u64,
    /// What they should have.
    pub sha256: [u8; 32],
}

/// What is said about one file of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// SHA-256 of the whole file.
    pub sha256: Option<[u8; 32]>,
    /// CRC32 of the whole file.
    pub crc32: Option<u32>,
    /// SHA-256 of its tensors' bytes, one after the other, without header and padding.
    pub payload: Option<[u8; 32]>,
    /// Of parts of it, in order of their first bytes.
    pub ranges: Vec<Range>,
    /// Of its tensors, by index, in order, each once.
    pub tensors: Vec<(u32, Sum)>,
}

impl Claim {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.sha256.is_none()
            && self.crc32.is_none()
            && self.payload.is_none()
            && self.ranges.is_empty()
            && self.tensors.is_empty()
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

/// What was found beside a model and in its names.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In order of the files, store names first.
    pub anchors: Vec<Anchor>,
    /// What looked like an anchor and could not be used, in words.
    pub warnings: Vec<String>,
}

/// Checksums that were computed or sealed.
pub trait Known {
    /// SHA-256 of a whole file.
    fn file_sha256(&self, shard: usize) -> Option<[u8; 32]>;
    /// SHA-256 of a tensor.
    fn tensor_sha256(&self, index: usize) -> Option<[u8; 32]>;
    /// CRC32 of a tensor.
    fn tensor_crc32(&self, index: usize) -> Option<u32>;
}

/// Two sources that are both trusted and of which one must be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: two trusted sources disagree about the {sum} of {of}\n  {}\n  {}", .said[0], .said[1])]
pub struct Contradiction {
    /// The file.
    pub file: String,
    /// What in it, in words: "the whole file", "its bytes 0 to 40", "its tensor NAME".
    pub of: String,
    /// Which checksum of that they disagree about: "SHA-256", "XXH64" or "CRC32".
    pub sum: &'static str,
    /// Both, the one that is kept nearer to the bytes last.
    pub said: [Said; 2],
}

/// What one source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The digits.
    pub digits: String,
    /// Who says so.
    pub source: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.digits, self.source)
    }
}

impl Anchor {
    /// The anchor in words: `by the name of blob PATH`.
    pub fn source(&self) -> String {
        let path = self.origin.in_line();
        match self.kind {
            Kind::HfBlob | Kind::OllamaBlob => format!("by the name of the blob {path}"),
            _ => format!("in {path}"),
        }
    }

    fn said(&self, digits: String) -> Said {
        Said { digits, source: self.source() }
    }
}

/// Whether what is known is what the anchor says; `None` where the two have nothing in common.
pub fn agreement(anchor: &Anchor, known: &dyn Known) -> Option<bool> {
    let claim = &anchor.claim;
    let mut compared = false;
    if let (Some(expected), Some(found)) = (claim.sha256, known.file_sha256(anchor.shard)) {
        if expected != found {
            return Some(false);
        }
        compared = true;
    }
    for (index, sum) in &claim.tensors {
        let Some(found) = known_sum(known, *index, sum) else {
            continue;
        };
        if found != *sum {
            return Some(false);
        }
        compared = true;
    }
    compared.then_some(true)
}

fn known_sum(known: &dyn Known, index: u32, like: &Sum) -> Option<Sum> {
    match like {
        Sum::Sha256(_) => known.tensor_sha256(index as usize).map(Sum::Sha256),
        Sum::Xxh64(_) => None,
        Sum::Crc32(_) => known.tensor_crc32(index as usize).map(Sum::Crc32),
    }
}

/// The first of the anchors that what is known contradicts; `known_as` says who knows it.
pub fn contradicted(
    anchors: &[Anchor],
    model: &Model,
    known: &dyn Known,
    known_as: &str,
) -> Option<Contradiction> {
    let known_as = |digits| Said { digits, source: known_as.to_owned() };
    for anchor in anchors {
        if let (Some(expected), Some(found)) =
            (anchor.claim.sha256, known.file_sha256(anchor.shard))
            && expected != found
        {
            return Some(Contradiction {
                file: file_of(model, anchor.shard),
                of: WHOLE.to_owned(),
                sum: "SHA-256",
                said: [anchor.said(hex(&expected)), known_as(hex(&found))],
            });
        }
        for (index, expected) in &anchor.claim.tensors {
            if let Some(found) = known_sum(known, *index, expected)
                && found != *expected
            {
                return Some(Contradiction {
                    file: file_of(model, anchor.shard),
                    of: tensor_of(model, *index),
                    sum: expected.name(),
                    said: [anchor.said(expected.digits()), known_as(found.digits())],
                });
            }
        }
    }
    None
}

/// The first two anchors that contradict each other about the same bytes.
pub fn contradiction(anchors: &[Anchor], model: &Model) -> Option<Contradiction> {
    for (at, a) in anchors.iter().enumerate() {
        for b in anchors[at + 1..].iter().filter(|b| b.shard == a.shard) {
            let about = |of: String, sum, digits: [String; 2]| {
                let [first, second] = digits;
                let file = file_of(model, a.shard);
                Some(Contradiction { file, of, sum, said: [a.said(first), b.said(second)] })
            };
            for (x, y, of) in [
                (a.claim.sha256, b.claim.sha256, WHOLE),
                (a.claim.payload, b.claim.payload, PAYLOAD),
            ] {
                if let (Some(x), Some(y)) = (x, y)
                    && x != y
                {
                    return about(of.to_owned(), "SHA-256", [hex(&x), hex(&y)]);
                }
            }
            if let (Some(x), Some(y)) = (a.claim.crc32, b.claim.crc32)
                && x != y
            {
                return about(WHOLE.to_owned(), "CRC32", [crc_hex(x), crc_hex(y)]);
            }
            let mut parts = b.claim.ranges.iter().peekable();
            for x in &a.claim.ranges {
                let place = (x.from, x.to);
                while parts.next_if(|y| (y.from, y.to) < place).is_some() {}
                if let Some(y) = parts.next_if(|y| (y.from, y.to) == place)
                    && x.sha256 != y.sha256
                {
                    let digits = [hex(&x.sha256), hex(&y.sha256)];
                    return about(part_of(x.from, x.to), "SHA-256", digits);
                }
            }
            let mut others = b.claim.tensors.iter().peekable();
            for (index, x) in &a.claim.tensors {
                while others.next_if(|(other, _)| other < index).is_some() {}
                if let Some((_, y)) = others.next_if(|(other, _)| other == index)
                    && x.name() == y.name()
                    && x != y
                {
                    let of = tensor_of(model, *index);
                    return about(of, x.name(), [x.digits(), y.digits()]);
                }
            }
        }
    }
    None
}

/// As [`contradicted`], for a tensor whose checksums were just computed.
pub fn contradicted_tensor(
    anchors: &[Anchor],
    model: &Model,
    index: u32,
    sha256: Option<[u8; 32]>,
    crc32: u32,
    known_as: &str,
) -> Option<Contradiction> {
    anchors.iter().find_map(|anchor| {
        let tensors = &anchor.claim.tensors;
        let at = tensors.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        let expected = tensors[at].1;
        let found = match expected {
            Sum::Sha256(_) => Sum::Sha256(sha256?),
            Sum::Xxh64(_) => return None,
            Sum::Crc32(_) => Sum::Crc32(crc32),
        };
        (found != expected).then(|| Contradiction {
            file: file_of(model, anchor.shard),
            of: tensor_of(model, index),
            sum: expected.name(),
            said: [
                anchor.said(expected.digits()),
                Said { digits: found.digits(), source: known_as.to_owned() },
            ],
        })
    })
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
    let mut claims = vec![Claim::default(); files];
    for Anchor { shard, claim, .. } in anchors {
        let Some(all) = claims.get_mut(*shard) else {
            continue;
        };
        all.sha256 = all.sha256.or(claim.sha256);
        all.crc32 = all.crc32.or(claim.crc32);
        all.payload = all.payload.or(claim.payload);
        all.ranges.extend(&claim.ranges);
        all.tensors.extend(&claim.tensors);
    }
    for claim in &mut claims {
        claim.ranges.sort_unstable_by_key(|range| (range.from, range.to, range.sha256));
        claim.ranges.dedup();
        claim.tensors.sort_by_key(|(index, sum)| (*index, sum.rank()));
        claim.tensors.dedup_by_key(|(index, _)| *index);
    }
    claims
}

fn file_of(model: &Model, shard: usize) -> String {
    let shard = model.shards.get(shard);
    shard.map(|shard| shard.file.in_line().to_string()).unwrap_or_default()
}

/// What is spoken of.
const WHOLE: &str = "the whole file";
/// The same, of [`Claim::payload`].
const PAYLOAD: &str = "its tensors' bytes, one after the other";

fn part_of(from: u64, to: u64) -> String {
    format!("its bytes {from} to {to}")
}

fn tensor_of(model: &Model, index: u32) -> String {
    let tensor = model.tensors.get(index as usize);
    let name = tensor.map(|tensor| String::from_utf8_lossy(&tensor.name)).unwrap_or_default();
    format!("its tensor {name:?}")
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
