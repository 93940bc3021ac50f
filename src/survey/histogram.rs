//! How values spread: bins of equal width from the least to the greatest, as numpy counts them.

use super::lane::{BLOCK, Lane};

/// Number of bins.
pub const BINS: usize = 32;

/// How many finite values fall into each of [`BINS`] bins. A bin holds its lower edge, and the
/// last one its upper edge too.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Lower edge of the first bin.
    pub from: f64,
    /// Upper edge of the last bin.
    pub to: f64,
    /// Values in each bin.
    pub counts: [u64; BINS],
}

/// Where one bin ends and the next begins.
#[derive(Clone, Debug)]
pub(super) struct Edges {
    edges: [f64; BINS + 1],
    /// Bins per unit, where that leads near the bin; else they are searched.
    scale: Option<f64>,
}

impl Edges {
    /// Between the least and the greatest value; around a single one as wide as 1.
    pub(super) fn new((least, greatest): (f64, f64)) -> Edges {
        let (from, to) =
            if least == greatest { (least - 0.5, greatest + 0.5) } else { (least, greatest) };
        let (width, bins) = (to - from, BINS as f64);
        let step = width / bins;
        let mut edges = std::array::from_fn(|i| match width.is_finite() {
            true => i as f64 * step + from,
            // Wider than f64: each part of it is not.
            false => from * (1.0 - i as f64 / bins) + to * (i as f64 / bins),
        });
        edges[BINS] = to;
        let scale = bins / width;
        let scale = (scale.is_normal() && step.is_normal()).then_some(scale);
        Edges { edges, scale }
    }

    /// Counts the finite numbers in `bytes`.
    pub(super) fn count(&self, lane: Lane, bytes: &[u8]) -> [u64; BINS] {
        let mut counts = [0; BINS];
        let mut numbers = [0.0; BLOCK];
        for block in bytes.chunks(BLOCK * lane.width()) {
            let numbers = &mut numbers[..block.len() / lane.width()];
            lane.fill(block, numbers);
            // Neighbours are often of one bin: they do not wait for each other's count.
            let mut beside = [[0u32; BINS]; 4];
            for (i, &x) in numbers.iter().enumerate().filter(|(_, x)| x.is_finite()) {
                let count = &mut beside[i % 4][self.bin(x)];
                *count = count.wrapping_add(1);
            }
            for (bin, count) in counts.iter_mut().enumerate() {
                *count += beside.iter().map(|counts| u64::from(counts[bin])).sum::<u64>();
            }
        }
        counts
    }

    fn bin(&self, x: f64) -> usize {
        let last = BINS - 1;
        let Some(scale) = self.scale else {
            let above = self.edges.partition_point(|&edge| edge <= x);
            return above.saturating_sub(1).min(last);
        };
        // At most one beside it, which the edges decide.
        let near = (((x - self.edges[0]) * scale) as usize).min(last);
        let near = if x < self.edges[near] { near.saturating_sub(1) } else { near };
        if near < last && x >= self.edges[near + 1] { near + 1 } else { near }
    }

    pub(super) fn histogram(&self, counts: [u64; BINS]) -> Histogram {
        Histogram { from: self.edges[0], to: self.edges[BINS], counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[f64]) -> Vec<u64> {
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Edges::new((least, greatest)).count(Lane::F64, &bytes).to_vec()
    }

    #[test]
    fn an_edge_belongs_to_the_bin_above_and_the_last_to_the_last() {
        let numbers: Vec<f64> = (0..=32).map(f64::from).collect();
        let counts = of(&numbers);
        assert_eq!(counts[..31], [1; 31]);
        assert_eq!(counts[31], 2);
    }

    #[test]
    fn equal_values_stand_in_the_middle() {
        let counts = of(&[7.0; 5]);
        assert_eq!((counts[16], counts.iter().sum::<u64>()), (5, 5));
    }

    #[test]
    fn no_range_is_too_wide_or_too_narrow() {
        for numbers in [
            [-f64::MAX, 0.0, f64::MAX],
            [0.0, 5e-324, 1e-323],
            [f64::MAX, f64::MAX, f64::MAX],
            [1.0, 1.0, 1.0 + f64::EPSILON],
        ] {
            let counts = of(&numbers);
            assert_eq!(counts.iter().sum::<u64>(), 3, "{numbers:?}");
        }
        let counts = of(&[-f64::MAX, 0.0, f64::MAX]);
        assert_eq!((counts[0], counts[31]), (1, 1));
    }
}
