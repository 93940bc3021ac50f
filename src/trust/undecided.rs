//! What anchors say and no seal can answer: digests of parts of files, of all tensors together,
//! and of kinds that seals do not hold. Only the bytes themselves decide those.

use super::clash::said_by;
use super::compare::{Mismatch, compare};
use super::disagree::known_sum;
use super::{Anchor, Claim, Contradiction, Known, Of, Said, Sum, joined};
use crate::model::Model;
use crate::source::{Source, SourceError};

/// What a seal with SHA-256 is going to know, when it is made: everything that it can.
struct Coming;

impl Known for Coming {
    fn file_sha256(&self, _: usize) -> Option<[u8; 32]> {
        Some([0; 32])
    }

    fn file_crc32(&self, _: usize) -> Option<u32> {
        Some(0)
    }

    fn tensor_sha256(&self, _: usize) -> Option<[u8; 32]> {
        Some([0; 32])
    }

    fn tensor_crc32(&self, _: usize) -> Option<u32> {
        Some(0)
    }
}

/// The claims of `anchors` that `known` leaves open, one per file of `model`.
fn left_open(anchors: &[Anchor], model: &Model, known: &dyn Known) -> Vec<Claim> {
    let mut claims = joined(anchors, model.shards.len());
    for (shard, claim) in claims.iter_mut().enumerate() {
        claim.retain(|of, sum| known_sum(known, shard, of, sum).is_none());
    }
    claims
}

/// What `anchors` say and `known` cannot answer, in words: one text for each list or name.
pub fn unanswered<'a>(
    anchors: impl Iterator<Item = &'a Anchor>,
    known: Option<&dyn Known>,
) -> Vec<String> {
    told_open(anchors, |shard, of, sum| {
        known.is_none_or(|known| known_sum(known, shard, of, sum).is_none())
    })
}

/// As [`unanswered`]: what `claims`, of which there is one per file, say nothing about.
pub fn unanswered_by(anchors: &[Anchor], claims: &[Claim]) -> Vec<String> {
    told_open(anchors.iter(), |shard, of, sum| {
        let said = claims.get(shard).map(|claim| claim.sums(of)).unwrap_or_default();
        !said.iter().any(|other| other.name() == sum.name())
    })
}

fn told_open<'a>(
    anchors: impl Iterator<Item = &'a Anchor>,
    is_open: impl Fn(usize, Of, &Sum) -> bool,
) -> Vec<String> {
    let mut open: Vec<(String, Vec<String>)> = Vec::new();
    for anchor in anchors {
        let mut kinds: Vec<(&str, &str)> = Vec::new();
        for (of, sum) in anchor.claim.entries().filter(|(of, s)| is_open(anchor.shard, *of, s)) {
            let what = match of {
                Of::File => "files",
                Of::Payload => "all tensors together",
                Of::Part(..) => "parts of files",
                Of::Tensor(_) => "tensors",
            };
            if !kinds.contains(&(sum.name(), what)) {
                kinds.push((sum.name(), what));
            }
        }
        if kinds.is_empty() {
            continue;
        }
        let source = anchor.source();
        let at = open.iter().position(|(other, _)| *other == source).unwrap_or_else(|| {
            open.push((source, Vec::new()));
            open.len() - 1
        });
        let told = &mut open[at].1;
        let kinds = kinds.into_iter().map(|(sum, what)| format!("{sum} of {what}"));
        for kind in kinds {
            if !told.contains(&kind) {
                told.push(kind);
            }
        }
    }
    open.into_iter().map(|(source, kinds)| format!("{} {source}", kinds.join(", "))).collect()
}

/// Reads what `anchors` say and `known` cannot answer; the first of it that the bytes are not.
/// Nothing is read where everything is answered.
pub fn undecided(
    anchors: &[Anchor],
    model: &Model,
    sources: &[Source],
    known: &dyn Known,
    known_as: &str,
    progress: &dyn Fn(u64),
) -> Result<Option<Contradiction>, SourceError> {
    let claims = left_open(anchors, model, known);
    if claims.iter().all(Claim::is_empty) {
        return Ok(None);
    }
    let report = compare(&claims, model, sources, progress)?;
    Ok(report.bad.first().map(|bad| disproved(anchors, model, bad, known_as)))
}

/// As [`undecided`], of a seal with SHA-256 that is yet to be made.
pub fn undecided_by_sealing(
    anchors: &[Anchor],
    model: &Model,
    sources: &[Source],
    known_as: &str,
    progress: &dyn Fn(u64),
) -> Result<Option<Contradiction>, SourceError> {
    undecided(anchors, model, sources, &Coming, known_as, progress)
}

/// What was written down and what is there, with the anchor that says so.
pub fn disproved(
    anchors: &[Anchor],
    model: &Model,
    bad: &Mismatch,
    known_as: &str,
) -> Contradiction {
    let source = said_by(anchors, bad.shard, bad.of, bad.sum);
    let said = [
        Said { digits: bad.sum.digits(), source },
        Said { digits: bad.found.clone(), source: known_as.to_owned() },
    ];
    Contradiction::new(model, bad.shard as usize, (bad.of, bad.sum.name()), said)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::{Case, sha};
    use super::super::{Kind, Range, xxh64::Xxh64};
    use super::*;
    use crate::bytes::hex::from_hex;

    fn digest(text: &str) -> [u8; 32] {
        from_hex(text.as_bytes()).unwrap()
    }

    fn of(case: &Case, claim: Claim) -> Option<Contradiction> {
        let origin = case.root.join("list");
        let (kind, repo, commit) = (Kind::ModelSigning, None, None);
        let anchors = [Anchor { kind, shard: 0, origin, repo, commit, claim }];
        undecided_by_sealing(&anchors, &case.model, &case.sources(), "there", &|_| {}).unwrap()
    }

    #[test]
    fn parts_payload_and_other_sums_are_decided_by_the_bytes() {
        let case = Case::new(&[&["a", "b"]]);
        let range = |sha256| Range { from: 8, to: 30, sha256 };
        let part = |sha256| Claim { ranges: vec![range(sha256)], ..Claim::default() };
        assert_eq!(of(&case, part(digest(&sha(&case.bytes[0][8..30])))), None);
        let wrong = of(&case, part([7; 32])).unwrap();
        assert_eq!((&*wrong.of, wrong.sum), ("its bytes 8 to 30", "SHA-256"));
        assert!(wrong.said[0].source.ends_with("list"), "{wrong}");
        assert_eq!(wrong.said[1].digits, sha(&case.bytes[0][8..30]));

        let payload = |sha256| Claim { payload: Some(sha256), ..Claim::default() };
        let all = [case.tensor(0), case.tensor(1)].concat();
        assert_eq!(of(&case, payload(digest(&sha(&all)))), None);
        let wrong = of(&case, payload([7; 32])).unwrap().to_string();
        let what = "m0: two trusted sources disagree about the SHA-256 of its tensors' bytes, one";
        assert!(wrong.starts_with(what), "{wrong}");
        assert!(wrong.contains(&sha(&all)) && wrong.contains(&"07".repeat(32)), "{wrong}");

        let mut xxh64 = Xxh64::new();
        xxh64.update(case.tensor(1));
        let right = xxh64.finish();
        let tensor = |sum| Claim { tensors: vec![(1, Sum::Xxh64(sum))], ..Claim::default() };
        assert_eq!(of(&case, tensor(right)), None);
        let wrong = of(&case, tensor(right ^ 1)).unwrap();
        assert_eq!((&*wrong.of, wrong.sum), ("its tensor \"b\"", "XXH64"));
    }

    #[test]
    fn what_the_seal_answers_is_not_read_for() {
        let case = Case::new(&[&["a"]]);
        let claim = Claim {
            sha256: Some([7; 32]),
            tensors: vec![(0, Sum::Sha256([7; 32]))],
            crc32: Some(7),
            ..Claim::default()
        };
        assert_eq!(of(&case, claim), None);
    }
}
