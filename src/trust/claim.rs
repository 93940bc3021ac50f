//! What is said about the bytes of one file: sums, and of what they are.

use crate::bytes::hex::{crc_hex, hex};

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
    pub(super) const fn rank(&self) -> u8 {
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

/// Of what of a file something is written down, in the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Of {
    /// All of it.
    File,
    /// Its tensors' bytes, one after the other.
    Payload,
    /// The bytes from the first number up to the second.
    Part(u64, u64),
    /// The tensor of this index.
    Tensor(u32),
}

/// What is said about one file of the model. Of the same bytes there may be sums of several
/// kinds: all of them are kept, since one that is right does not make another right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// SHA-256 of the whole file.
    pub sha256: Option<[u8; 32]>,
    /// CRC32 of the whole file.
    pub crc32: Option<u32>,
    /// SHA-256 of its tensors' bytes, one after the other, without header and padding.
    pub payload: Option<[u8; 32]>,
    /// XXH64 of the same.
    pub payload_xxh64: Option<u64>,
    /// Of parts of it, in order of their first bytes.
    pub ranges: Vec<Range>,
    /// Of its tensors, by index, in order; of each one of a kind, that which says most first.
    pub tensors: Vec<(u32, Sum)>,
}

impl Claim {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.entries().next().is_none()
    }

    /// All that is said, in the order of [`Of`]; of the same what says most first.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Of, Sum)> + '_ {
        self.of_file()
            .chain(self.of_payload())
            .chain(self.ranges.iter().map(of_range))
            .chain(self.tensors.iter().map(|(index, sum)| (Of::Tensor(*index), *sum)))
    }

    fn of_file(&self) -> impl Iterator<Item = (Of, Sum)> + use<> {
        let sums = [self.sha256.map(Sum::Sha256), self.crc32.map(Sum::Crc32)];
        sums.into_iter().flatten().map(|sum| (Of::File, sum))
    }

    fn of_payload(&self) -> impl Iterator<Item = (Of, Sum)> + use<> {
        let sums = [self.payload.map(Sum::Sha256), self.payload_xxh64.map(Sum::Xxh64)];
        sums.into_iter().flatten().map(|sum| (Of::Payload, sum))
    }

    /// Whether something is said of all tensors together.
    pub(super) fn has_payload(&self) -> bool {
        self.of_payload().next().is_some()
    }

    /// What is said of this.
    pub(super) fn sums(&self, of: Of) -> Vec<Sum> {
        let sums = |entries: &mut dyn Iterator<Item = (Of, Sum)>| entries.map(|(_, s)| s).collect();
        match of {
            Of::File => sums(&mut self.of_file()),
            Of::Payload => sums(&mut self.of_payload()),
            Of::Part(from, to) => {
                let begin = self.ranges.partition_point(|r| (r.from, r.to) < (from, to));
                let all = self.ranges[begin..].iter().map(of_range);
                sums(&mut all.take_while(|(other, _)| *other == of))
            }
            Of::Tensor(index) => {
                let begin = self.tensors.partition_point(|(other, _)| *other < index);
                let all = self.tensors[begin..].iter();
                all.take_while(|(other, _)| *other == index).map(|(_, sum)| *sum).collect()
            }
        }
    }

    /// How many of its tensors something is said about.
    pub(super) fn tensor_count(&self) -> usize {
        self.tensors.chunk_by(|a, b| a.0 == b.0).count()
    }

    /// Keeps of what is said that for which `keep` holds.
    pub(super) fn retain(&mut self, keep: impl Fn(Of, &Sum) -> bool) {
        let keeps = |of, sum| keep(of, &sum);
        self.sha256 = self.sha256.filter(|&sum| keeps(Of::File, Sum::Sha256(sum)));
        self.crc32 = self.crc32.filter(|&sum| keeps(Of::File, Sum::Crc32(sum)));
        self.payload = self.payload.filter(|&sum| keeps(Of::Payload, Sum::Sha256(sum)));
        self.payload_xxh64 = self.payload_xxh64.filter(|&s| keeps(Of::Payload, Sum::Xxh64(s)));
        self.ranges.retain(|range| {
            let (of, sum) = of_range(range);
            keeps(of, sum)
        });
        self.tensors.retain(|(index, sum)| keep(Of::Tensor(*index), sum));
    }
}

fn of_range(range: &Range) -> (Of, Sum) {
    (Of::Part(range.from, range.to), Sum::Sha256(range.sha256))
}

/// What claims that do not contradict each other say together.
pub(super) fn together<'a>(claims: impl Iterator<Item = &'a Claim>) -> Claim {
    let mut all = Claim::default();
    for claim in claims {
        all.sha256 = all.sha256.or(claim.sha256);
        all.crc32 = all.crc32.or(claim.crc32);
        all.payload = all.payload.or(claim.payload);
        all.payload_xxh64 = all.payload_xxh64.or(claim.payload_xxh64);
        all.ranges.extend(&claim.ranges);
        all.tensors.extend(&claim.tensors);
    }
    all.ranges.sort_unstable_by_key(|range| (range.from, range.to, range.sha256));
    all.ranges.dedup();
    all.tensors.sort_by_key(|(index, sum)| (*index, sum.rank()));
    all.tensors.dedup_by_key(|(index, sum)| (*index, sum.rank()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that can be said, in order.
    fn full() -> Claim {
        let range = |from, to| Range { from, to, sha256: [4; 32] };
        Claim {
            sha256: Some([1; 32]),
            crc32: Some(1),
            payload: Some([2; 32]),
            payload_xxh64: Some(2),
            ranges: vec![range(0, 5), range(5, 9)],
            tensors: vec![
                (0, Sum::Sha256([3; 32])),
                (0, Sum::Xxh64(3)),
                (0, Sum::Crc32(3)),
                (7, Sum::Crc32(7)),
            ],
        }
    }

    #[test]
    fn entries_are_sorted_and_each_is_found() {
        let claim = full();
        let entries: Vec<_> = claim.entries().collect();
        assert_eq!(entries.len(), 10);
        assert!(entries.is_sorted_by_key(|(of, sum)| (*of, sum.rank())));
        for (of, sum) in &entries {
            assert!(claim.sums(*of).contains(sum), "{of:?}");
        }
        let count: usize = [Of::File, Of::Payload, Of::Part(0, 5), Of::Part(5, 9)]
            .into_iter()
            .chain([Of::Tensor(0), Of::Tensor(7)])
            .map(|of| claim.sums(of).len())
            .sum();
        assert_eq!(count, 10);
        assert_eq!(claim.sums(Of::Part(0, 9)), []);
        assert_eq!(claim.sums(Of::Tensor(1)), []);
        assert_eq!(claim.tensor_count(), 2);
    }

    #[test]
    fn what_is_left_out_is_left_out_everywhere() {
        for (gone, sum) in full().entries() {
            let mut claim = full();
            claim.retain(|of, other| (of, *other) != (gone, sum));
            assert_eq!(claim.entries().count(), 9, "{gone:?} {sum:?}");
            assert!(!claim.sums(gone).contains(&sum));
        }
        let mut claim = full();
        claim.retain(|_, _| false);
        assert!(claim.is_empty());
    }

    #[test]
    fn together_every_kind_is_kept() {
        let parts: Vec<Claim> = full()
            .entries()
            .map(|only| {
                let mut claim = full();
                claim.retain(|of, sum| (of, *sum) == only);
                claim
            })
            .collect();
        assert_eq!(together(parts.iter().rev().chain(&parts)), full());
    }
}
