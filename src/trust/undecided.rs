//! What anchors say and no seal can answer: digests of parts of files, of all tensors together,
//! and of kinds that seals do not hold. Only the bytes themselves decide those.

use super::compare::{Mismatch, Of, compare, is_by_tensors};
use super::{
    Anchor, Claim, Contradiction, Known, PAYLOAD, Range, Said, Sum, WHOLE, file_of, joined,
    known_sum, part_of, tensor_of,
};
use crate::bytes::hex::{crc_hex, hex};
use crate::model::Model;
use crate::source::{Source, SourceError};

/// What a seal with SHA-256 is going to know, when it is made: everything that it can.
struct Coming;

impl Known for Coming {
    fn file_sha256(&self, _: usize) -> Option<[u8; 32]> {
        Some([0; 32])
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
    for (shard, claim) in (0u32..).zip(&mut claims) {
        if known.file_sha256(shard as usize).is_some() {
            claim.sha256 = None;
        }
        if is_by_tensors(shard, claim, model) {
            claim.payload = None;
        }
        claim.tensors.retain(|(index, sum)| known_sum(known, *index, sum).is_none());
    }
    claims
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
fn disproved(anchors: &[Anchor], model: &Model, bad: &Mismatch, known_as: &str) -> Contradiction {
    let shard = bad.shard as usize;
    let says = |anchor: &&Anchor| anchor.shard == shard && anchor.claim.says(bad);
    let source = anchors.iter().find(says).map_or_else(String::new, Anchor::source);
    let of = match (bad.of, bad.tensor) {
        (Of::Tensor, index) => tensor_of(model, index.unwrap_or(u32::MAX)),
        (Of::File, _) => WHOLE.to_owned(),
        (Of::Payload, _) => PAYLOAD.to_owned(),
        (Of::Part, _) => part_of(bad.offset, bad.offset.saturating_add(bad.len)),
    };
    Contradiction {
        file: file_of(model, shard),
        of,
        sum: match bad.expected.len() {
            8 => "CRC32",
            16 => "XXH64",
            _ => "SHA-256",
        },
        said: [
            Said { digits: bad.expected.clone(), source },
            Said { digits: bad.found.clone(), source: known_as.to_owned() },
        ],
    }
}

impl Claim {
    /// Whether the mismatch is one with this claim.
    fn says(&self, bad: &Mismatch) -> bool {
        let is = |sum: &Sum| sum.digits() == bad.expected;
        match bad.tensor {
            Some(tensor) => self.tensors.iter().any(|(index, sum)| *index == tensor && is(sum)),
            None => {
                let of = |range: &Range| (range.from, range.to - range.from);
                let ranges = self.ranges.iter().filter(|r| of(r) == (bad.offset, bad.len));
                let mut digests =
                    self.sha256.iter().chain(&self.payload).chain(ranges.map(|r| &r.sha256));
                digests.any(|sha256| hex(sha256) == bad.expected)
                    || self.crc32.is_some_and(|crc32| crc_hex(crc32) == bad.expected)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::{Case, sha};
    use super::super::{Kind, xxh64::Xxh64};
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
            payload: Some([7; 32]),
            ..Claim::default()
        };
        assert_eq!(of(&case, claim), None);
    }
}
