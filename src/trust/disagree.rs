//! Two sources about the same bytes, and whether they agree.

use super::{Anchor, Claim, Mismatch, Of, Sum};
use crate::model::Model;
use std::fmt;

/// Checksums that were computed or sealed.
pub trait Known {
    /// SHA-256 of a whole file.
    fn file_sha256(&self, shard: usize) -> Option<[u8; 32]>;
    /// CRC32 of a whole file.
    fn file_crc32(&self, shard: usize) -> Option<u32>;
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

impl Contradiction {
    pub(super) fn new(
        model: &Model,
        shard: usize,
        (of, sum): (Of, &'static str),
        said: [Said; 2],
    ) -> Contradiction {
        Contradiction { file: file_of(model, shard), of: words(model, of), sum, said }
    }
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
    pub(super) fn said(&self, digits: String) -> Said {
        Said { digits, source: self.source() }
    }

    /// Whether it says that the bytes are to be what they were found to be.
    pub fn vouches(&self, bad: &Mismatch) -> bool {
        let is_found = |sum: &Sum| {
            sum.rank() == bad.sum.rank() && bad.is_readable() && sum.digits() == bad.found
        };
        self.shard == bad.shard as usize && self.claim.sums(bad.of).iter().any(is_found)
    }
}

/// Whether what is known is what the anchor says; `None` where the two have nothing in common.
pub fn agreement(anchor: &Anchor, known: &dyn Known) -> Option<bool> {
    let mut compared = false;
    for (of, sum) in anchor.claim.entries() {
        let Some(found) = known_sum(known, anchor.shard, of, &sum) else {
            continue;
        };
        if found != sum {
            return Some(false);
        }
        compared = true;
    }
    compared.then_some(true)
}

/// What is known of the same, in the same kind.
pub(super) fn known_sum(known: &dyn Known, shard: usize, of: Of, like: &Sum) -> Option<Sum> {
    match (of, like) {
        (Of::File, Sum::Sha256(_)) => known.file_sha256(shard).map(Sum::Sha256),
        (Of::File, Sum::Crc32(_)) => known.file_crc32(shard).map(Sum::Crc32),
        (Of::Tensor(index), Sum::Sha256(_)) => known.tensor_sha256(index as usize).map(Sum::Sha256),
        (Of::Tensor(index), Sum::Crc32(_)) => known.tensor_crc32(index as usize).map(Sum::Crc32),
        (_, Sum::Xxh64(_)) | (Of::Payload | Of::Part(..), _) => None,
    }
}

/// The first of the anchors that what is known contradicts; `known_as` says who knows it.
pub fn contradicted(
    anchors: &[Anchor],
    model: &Model,
    known: &dyn Known,
    known_as: &str,
) -> Option<Contradiction> {
    let differs = |anchor: &Anchor| {
        anchor.claim.entries().find_map(|(of, expected)| {
            let found = known_sum(known, anchor.shard, of, &expected)?;
            (found != expected).then_some((of, expected, found))
        })
    };
    let found = |anchor: &Anchor| {
        let (of, expected, found) = differs(anchor)?;
        let known = Said { digits: found.digits(), source: known_as.to_owned() };
        let said = [anchor.said(expected.digits()), known];
        Some(Contradiction::new(model, anchor.shard, (of, expected.name()), said))
    };
    anchors.iter().find_map(found)
}

/// The first two anchors that contradict each other about the same bytes.
pub fn contradiction(anchors: &[Anchor], model: &Model) -> Option<Contradiction> {
    let pairs = anchors
        .iter()
        .enumerate()
        .flat_map(|(at, a)| anchors[at + 1..].iter().map(move |b| (a, b)));
    differing(pairs, model)
}

/// As [`contradiction`], of one of the `given` and one of the `others`.
pub fn contradiction_between(
    given: &[Anchor],
    others: &[Anchor],
    model: &Model,
) -> Option<Contradiction> {
    differing(given.iter().flat_map(|a| others.iter().map(move |b| (a, b))), model)
}

fn differing<'a>(
    mut pairs: impl Iterator<Item = (&'a Anchor, &'a Anchor)>,
    model: &Model,
) -> Option<Contradiction> {
    pairs.find_map(|(a, b)| {
        let differs = if a.shard == b.shard { difference(&a.claim, &b.claim) } else { None };
        let (of, x, y) = differs?;
        let said = [a.said(x.digits()), b.said(y.digits())];
        Some(Contradiction::new(model, a.shard, (of, x.name()), said))
    })
}

/// The first of what both speak about, in the same kind, and say differently.
fn difference(a: &Claim, b: &Claim) -> Option<(Of, Sum, Sum)> {
    let place = |(of, sum): &(Of, Sum)| (*of, sum.rank());
    let mut others = b.entries().peekable();
    a.entries().find_map(|x| {
        while others.next_if(|y| place(y) < place(&x)).is_some() {}
        let (of, y) = others.next_if(|y| place(y) == place(&x))?;
        (x.1 != y).then_some((of, x.1, y))
    })
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
    let computed = |like: &Sum| match like {
        Sum::Sha256(_) => sha256.map(Sum::Sha256),
        Sum::Xxh64(_) => None,
        Sum::Crc32(_) => Some(Sum::Crc32(crc32)),
    };
    anchors.iter().find_map(|anchor| {
        anchor.claim.sums(Of::Tensor(index)).into_iter().find_map(|expected| {
            let found = computed(&expected).filter(|found| *found != expected)?;
            let known = Said { digits: found.digits(), source: known_as.to_owned() };
            let said = [anchor.said(expected.digits()), known];
            let about = (Of::Tensor(index), expected.name());
            Some(Contradiction::new(model, anchor.shard, about, said))
        })
    })
}

/// The name of a file.
pub(super) fn file_of(model: &Model, shard: usize) -> String {
    let name = model.shards.get(shard).map(|shard| String::from_utf8_lossy(&shard.file));
    name.unwrap_or_default().into_owned()
}

/// What is spoken of.
pub(super) fn words(model: &Model, of: Of) -> String {
    match of {
        Of::File => "the whole file".to_owned(),
        Of::Payload => "its tensors' bytes, one after the other".to_owned(),
        Of::Part(from, to) => format!("its bytes {from} to {to}"),
        Of::Tensor(index) => {
            let tensor = model.tensors.get(index as usize);
            let name = tensor.map(|t| String::from_utf8_lossy(&t.name)).unwrap_or_default();
            format!("its tensor {name:?}")
        }
    }
}
