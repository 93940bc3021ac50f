//! Damage told from a fault of what is written down.
//!
//! Bytes that are not what one source says, and are what others say of all of them, are not
//! damaged: the sources contradict each other, and it takes the bytes to see that. A SHA-256
//! that is right beside a wrong CRC32 of the same file is the plainest case; a wrong sum of a
//! tensor in a file whose SHA-256 is right is another.

use super::compare::{Finding, Mismatch, spans};
use super::disagree::words;
use super::{Anchor, Claim, Contradiction, Of, Said, Sum};
use crate::model::Model;

/// Something written down about bytes that others vouch for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// What is not so.
    pub bad: Mismatch,
    /// What is, and of what: it is about the same bytes, or some of them.
    pub held: (Of, Sum),
}

impl Clash {
    /// The two anchors that disagree.
    pub fn between(&self, anchors: &[Anchor], model: &Model) -> Contradiction {
        let Clash { bad, held: (of, sum) } = self;
        let source = said_by(anchors, bad.shard, bad.of, bad.sum);
        let witness = said_by(anchors, bad.shard, *of, *sum);
        let (held, digits) = (words(model, *of), sum.digits());
        let name = sum.name();
        let found = format!("found, where the {name} of {held} is right: {digits} {witness}");
        let said = [
            Said { digits: bad.sum.digits(), source },
            Said { digits: bad.found.clone(), source: found },
        ];
        Contradiction::new(model, bad.shard as usize, (bad.of, bad.sum.name()), said)
    }
}

/// Who says so, in words.
pub(super) fn said_by(anchors: &[Anchor], shard: u32, of: Of, sum: Sum) -> String {
    let says = |a: &&Anchor| a.shard == shard as usize && a.claim.sums(of).contains(&sum);
    anchors.iter().find(says).map_or_else(String::new, Anchor::source)
}

/// The first finding about bytes that are, all of them, what others say. `todo` is what was
/// looked at, findings are in its order.
pub(super) fn first(
    found: &[Finding],
    todo: &[(u32, Of)],
    claims: &[Claim],
    model: &Model,
) -> Option<Clash> {
    let mut vouched: Option<Vouched> = None;
    found.iter().filter(|finding| finding.mismatch.is_readable()).find_map(|finding| {
        let bad = &finding.mismatch;
        if let Some(sum) = finding.held {
            return Some(Clash { bad: bad.clone(), held: (bad.of, sum) });
        }
        if vouched.as_ref().is_none_or(|vouched| vouched.shard != bad.shard) {
            vouched = Some(Vouched::new(bad.shard, found, todo, model));
        }
        let of = vouched.as_ref()?.witness(bad.of, model)?;
        let sum = *claims[bad.shard as usize].sums(of).first()?;
        Some(Clash { bad: bad.clone(), held: (of, sum) })
    })
}

/// The bytes of a file that are right.
struct Vouched {
    shard: u32,
    /// What was found to be right.
    right: Vec<Of>,
    /// All of that: first byte and end of each run, in order and apart from each other.
    runs: Vec<(u64, u64)>,
}

impl Vouched {
    fn new(shard: u32, found: &[Finding], todo: &[(u32, Of)], model: &Model) -> Vouched {
        let is_wrong = |number| found.binary_search_by_key(&number, |f| f.number).is_ok();
        let of_file = todo.iter().enumerate().filter(|(_, (other, _))| *other == shard);
        let right: Vec<Of> =
            of_file.filter(|(number, _)| !is_wrong(*number)).map(|(_, (_, of))| *of).collect();
        let spans = right.iter().flat_map(|of| spans(*of, shard, model));
        let mut all: Vec<_> = spans.filter(|(_, len)| *len > 0).map(run).collect();
        all.sort_unstable();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all {
            match runs.last_mut() {
                Some((_, end)) if from <= *end => *end = (*end).max(to),
                _ => runs.push((from, to)),
            }
        }
        Vouched { shard, right, runs }
    }

    /// Whether all of these bytes are right; `false` where there are none.
    fn has_all(&self, of: Of, model: &Model) -> bool {
        let mut wanted = spans(of, self.shard, model).filter(|(_, len)| *len > 0).peekable();
        wanted.peek().is_some() && wanted.all(|span| self.has(run(span)))
    }

    fn has(&self, (from, to): (u64, u64)) -> bool {
        let behind = self.runs.partition_point(|(begin, _)| *begin <= from);
        behind.checked_sub(1).is_some_and(|at| to <= self.runs[at].1)
    }

    /// One of those that say that these bytes are right, if they all are.
    fn witness(&self, of: Of, model: &Model) -> Option<Of> {
        if !self.has_all(of, model) {
            return None;
        }
        let touch = |a: (u64, u64), b: (u64, u64)| a.0 < b.1 && b.0 < a.1;
        let (from, to) = spans(of, self.shard, model).map(run).find(|(from, to)| from < to)?;
        let is_there = |other: &&Of| {
            spans(**other, self.shard, model).map(run).any(|other| touch(other, (from, to)))
        };
        self.right.iter().find(is_there).copied()
    }
}

/// First byte and end.
fn run((from, len): (u64, u64)) -> (u64, u64) {
    (from, from.saturating_add(len))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::{Case, sha};
    use super::super::{Kind, Range, compare, joined};
    use super::*;
    use crate::bytes::hex::from_hex;

    /// Sums of a file of 16 bytes of header, tensors `a` and `b` of 40 each, and 4 bytes.
    struct Sums(Vec<u8>);

    impl Sums {
        fn sha(&self, from: usize, to: usize) -> [u8; 32] {
            from_hex(sha(&self.0[from..to]).as_bytes()).unwrap()
        }

        fn crc(&self, from: usize, to: usize) -> u32 {
            crc32fast::hash(&self.0[from..to])
        }

        fn file(&self) -> Claim {
            Claim { sha256: Some(self.sha(0, 100)), ..Claim::default() }
        }

        fn part(&self, from: u64, to: u64) -> Claim {
            let sha256 = self.sha(from as usize, to as usize);
            Claim { ranges: vec![Range { from, to, sha256 }], ..Claim::default() }
        }

        fn tensors(&self, indices: &[u32]) -> Claim {
            let sum = |&i: &u32| {
                let from = 16 + 40 * i as usize;
                (i, Sum::Sha256(self.sha(from, from + 40)))
            };
            Claim { tensors: indices.iter().map(sum).collect(), ..Claim::default() }
        }

        fn payload(&self) -> Claim {
            Claim { payload: Some(self.sha(16, 96)), ..Claim::default() }
        }
    }

    /// The claims are of several lists; of which the bytes are not, and what speaks for them.
    fn clash(case: &Case, claims: Vec<Claim>) -> (usize, Option<(Of, Of)>) {
        let named = (0..).zip(claims).map(|(number, claim)| Anchor {
            kind: Kind::Sha256Sums,
            shard: 0,
            origin: format!("/list{number}").into(),
            repo: None,
            commit: None,
            claim,
        });
        let anchors: Vec<Anchor> = named.collect();
        let claims = joined(&anchors, 1);
        let report = compare(&claims, &case.model, &case.sources(), &|_| {}).unwrap();
        if let Some(clash) = &report.clash {
            let text = clash.between(&anchors, &case.model).to_string();
            assert_eq!(text.lines().count(), 3, "{text}");
            assert_eq!(text.matches("/list").count(), 2, "{text}");
        }
        (report.bad.len(), report.clash.map(|clash| (clash.bad.of, clash.held.0)))
    }

    /// What the file has, and what a file has of which every byte is another.
    fn sums(case: &Case) -> (Sums, Sums) {
        let right = case.bytes[0].clone();
        let wrong = right.iter().map(|byte| !byte).collect();
        (Sums(right), Sums(wrong))
    }

    #[test]
    fn what_is_right_of_all_the_bytes_makes_wrong_sums_a_clash() {
        let case = Case::new(&[&["a", "b"]]);
        let (right, wrong) = sums(&case);
        for (held, other, of, by) in [
            (right.file(), wrong.tensors(&[1]), Of::Tensor(1), Of::File),
            (right.file(), wrong.payload(), Of::Payload, Of::File),
            (right.file(), wrong.part(3, 50), Of::Part(3, 50), Of::File),
            (right.payload(), wrong.tensors(&[0]), Of::Tensor(0), Of::Payload),
            (right.payload(), wrong.part(20, 90), Of::Part(20, 90), Of::Payload),
            (right.tensors(&[0, 1]), wrong.payload(), Of::Payload, Of::Tensor(0)),
            (right.tensors(&[0, 1]), wrong.part(20, 90), Of::Part(20, 90), Of::Tensor(0)),
            (right.part(16, 56), wrong.tensors(&[0]), Of::Tensor(0), Of::Part(16, 56)),
        ] {
            assert_eq!(clash(&case, vec![held, other]), (1, Some((of, by))), "{of:?} {by:?}");
        }
        let parts = vec![right.part(0, 30), right.part(30, 100), wrong.file()];
        assert_eq!(clash(&case, parts), (1, Some((Of::File, Of::Part(0, 30)))));
    }

    #[test]
    fn another_kind_of_sum_of_the_same_bytes() {
        let case = Case::new(&[&["a", "b"]]);
        let (right, wrong) = sums(&case);
        let crc = |sums: &Sums| Claim { crc32: Some(sums.crc(0, 100)), ..Claim::default() };
        let crc_of_a = |sums: &Sums| Claim {
            tensors: vec![(0, Sum::Crc32(sums.crc(16, 56)))],
            ..Claim::default()
        };
        let file = Some((Of::File, Of::File));
        assert_eq!(clash(&case, vec![right.file(), crc(&right)]), (0, None));
        assert_eq!(clash(&case, vec![right.file(), crc(&wrong)]), (1, file));
        assert_eq!(clash(&case, vec![wrong.file(), crc(&right)]), (1, file));
        assert_eq!(clash(&case, vec![wrong.file(), crc(&wrong)]), (1, None), "damage, told once");
        let tensor = Some((Of::Tensor(0), Of::Tensor(0)));
        assert_eq!(clash(&case, vec![right.tensors(&[0]), crc_of_a(&wrong)]), (1, tensor));
        assert_eq!(clash(&case, vec![wrong.tensors(&[0]), crc_of_a(&right)]), (1, tensor));
    }

    #[test]
    fn bytes_of_which_some_are_vouched_for_by_nobody_are_damaged() {
        let case = Case::new(&[&["a", "b"]]);
        let (right, wrong) = sums(&case);
        for (held, other) in [
            (right.tensors(&[0, 1]), wrong.file()),
            (right.tensors(&[0]), wrong.payload()),
            (right.tensors(&[0]), wrong.tensors(&[1])),
            (right.payload(), wrong.file()),
            (right.part(16, 55), wrong.tensors(&[0])),
            (right.part(0, 40), wrong.part(41, 60)),
        ] {
            assert_eq!(clash(&case, vec![held.clone(), other.clone()]), (1, None), "{other:?}");
        }
        let parts = vec![right.part(0, 30), right.part(31, 100), wrong.file()];
        assert_eq!(clash(&case, parts), (1, None), "one byte is not spoken of");
    }

    #[test]
    fn what_ends_behind_the_file_is_no_clash() {
        let case = Case::new(&[&["a", "b"]]);
        let (right, _) = sums(&case);
        let range = Range { from: 90, to: u64::MAX, sha256: [1; 32] };
        let beyond = Claim { ranges: vec![range], ..Claim::default() };
        assert_eq!(clash(&case, vec![right.file(), beyond]), (1, None));
    }
}
