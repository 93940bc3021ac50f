//! What to fetch again: the damaged ranges of a file, merged.

use std::fmt::Write;

/// Ranges of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Number of the file.
    pub shard: u32,
    /// First byte and last byte, both included, as HTTP counts; in order, apart from each other.
    pub ranges: Vec<(u64, u64)>,
}

impl Repair {
    /// The value of an HTTP `Range` header.
    pub fn http(&self) -> String {
        http_ranges(&self.ranges)
    }

    /// How many bytes that is.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(from, to)| to - from + 1).sum()
    }
}

/// Merges ranges (file, first byte, number of bytes) that touch or overlap.
pub fn repair(bad: impl IntoIterator<Item = (u32, u64, u64)>) -> Vec<Repair> {
    let mut bad: Vec<_> = bad.into_iter().filter(|&(_, _, len)| len > 0).collect();
    bad.sort_unstable();
    let mut plan: Vec<Repair> = Vec::new();
    for (shard, from, len) in bad {
        let to = from.saturating_add(len - 1);
        if plan.last().is_none_or(|last| last.shard != shard) {
            plan.push(Repair { shard, ranges: Vec::new() });
        }
        let Some(Repair { ranges, .. }) = plan.last_mut() else {
            continue;
        };
        match ranges.last_mut() {
            Some((_, end)) if from <= end.saturating_add(1) => *end = (*end).max(to),
            _ => ranges.push((from, to)),
        }
    }
    plan
}

/// `bytes=0-65535,131072-196607`.
pub fn http_ranges(ranges: &[(u64, u64)]) -> String {
    let mut text = String::from("bytes=");
    for (i, (from, to)) in ranges.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{from}-{to}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sorted_and_merged_per_file() {
        let plan =
            repair([(1, 0, 10), (0, 100, 10), (0, 110, 5), (0, 50, 10), (0, 55, 3), (0, 7, 0)]);
        assert_eq!(
            plan,
            [
                Repair { shard: 0, ranges: vec![(50, 59), (100, 114)] },
                Repair { shard: 1, ranges: vec![(0, 9)] },
            ]
        );
        assert_eq!(plan[0].http(), "bytes=50-59,100-114");
        assert_eq!(plan[0].bytes(), 25);
    }

    #[test]
    fn the_end_of_all_numbers() {
        let plan = repair([(0, u64::MAX, 5), (0, u64::MAX - 1, 1)]);
        assert_eq!(plan[0].ranges, [(u64::MAX - 1, u64::MAX)]);
        assert_eq!(repair([]), []);
    }
}
