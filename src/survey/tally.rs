//! What is counted of values, piece by piece.

use super::lane::{BLOCK, Lane};
use super::moments::{Moments, total};
use serde_json::Value as Json;
use std::fmt;

/// A least or greatest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Of floating-point numbers.
    Float(f64),
    /// Of integers, exact.
    Integer(i128),
}

impl Number {
    /// As a floating-point number, rounded if it must be.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Float(x) => x,
            Number::Integer(n) => n as f64,
        }
    }

    /// As JSON. The integers of a tensor have 64 bits.
    pub fn json(self) -> Json {
        match self {
            Number::Float(x) => json(x),
            Number::Integer(n) => {
                i64::try_from(n).map_or_else(|_| Json::from(n as u64), Json::from)
            }
        }
    }
}

/// A number as JSON; what JSON has no number for is a string.
pub fn json(x: f64) -> Json {
    match x {
        _ if x.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        // Without the sign of -0.0.
        _ => (x + 0.0).into(),
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Float(x) => x.fmt(f),
            Number::Integer(n) => n.fmt(f),
        }
    }
}

/// What was counted of the values of a tensor or a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tally {
    /// Values looked at.
    pub elements: u64,
    /// Those that are 0, of either sign.
    pub zeros: u64,
    /// Those that are no number.
    pub nan: u64,
    /// Those that are infinite, of either sign.
    pub inf: u64,
    least: f64,
    greatest: f64,
    /// Least and greatest where f64 may not hold them.
    wide: Option<(i128, i128)>,
    moments: Moments,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            elements: 0,
            zeros: 0,
            nan: 0,
            inf: 0,
            least: f64::INFINITY,
            greatest: f64::NEG_INFINITY,
            wide: None,
            moments: Moments::default(),
        }
    }
}

impl Tally {
    /// Of the numbers in `bytes`.
    pub(super) fn of(lane: Lane, bytes: &[u8]) -> Tally {
        let mut tally = Tally::default();
        let mut numbers = [0.0; BLOCK];
        for block in bytes.chunks(BLOCK * lane.width()) {
            let numbers = &mut numbers[..block.len() / lane.width()];
            lane.fill(block, numbers);
            tally.add(numbers);
        }
        if lane.is_wide() {
            let start = None::<(i128, i128)>;
            tally.wide = lane.integers(bytes).fold(start, |found, n| {
                let (least, greatest) = found.unwrap_or((n, n));
                Some((least.min(n), greatest.max(n)))
            });
        }
        tally
    }

    /// Counts a block of numbers; those that are not finite are taken out of it.
    fn add(&mut self, numbers: &mut [f64]) {
        self.elements += numbers.len() as u64;
        let seen = look(numbers);
        if seen.sum.is_finite() {
            return self.take(numbers, seen);
        }
        let mut finite = 0;
        for i in 0..numbers.len() {
            let x = numbers[i];
            if x.is_finite() {
                numbers[finite] = x;
                finite += 1;
            }
            self.nan += u64::from(x.is_nan());
            self.inf += u64::from(x.is_infinite());
        }
        let numbers = &numbers[..finite];
        self.take(numbers, look(numbers));
    }

    /// Counts finite numbers.
    fn take(&mut self, numbers: &[f64], seen: Seen) {
        self.zeros += seen.zeros;
        self.least = self.least.min(seen.least);
        self.greatest = self.greatest.max(seen.greatest);
        self.moments.merge(Moments::of(numbers, Some(seen.sum).filter(|sum| sum.is_finite())));
    }

    /// Of these values and those of `next`, which come after them.
    pub fn merge(&mut self, next: &Tally) {
        self.elements = self.elements.saturating_add(next.elements);
        self.zeros = self.zeros.saturating_add(next.zeros);
        self.nan = self.nan.saturating_add(next.nan);
        self.inf = self.inf.saturating_add(next.inf);
        self.least = self.least.min(next.least);
        self.greatest = self.greatest.max(next.greatest);
        self.wide = match (self.wide, next.wide) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.moments.merge(next.moments);
    }

    /// Values that are finite: all the following is of these.
    pub fn finite(&self) -> u64 {
        self.moments.n
    }

    /// Least and greatest value as f64, and `None` where there is no finite one.
    pub fn range(&self) -> Option<(f64, f64)> {
        (self.finite() > 0).then_some((self.least + 0.0, self.greatest + 0.0))
    }

    /// Least and greatest value; `integers` says whether they are that.
    pub(super) fn extremes(&self, integers: bool) -> Option<(Number, Number)> {
        let (least, greatest) = self.range()?;
        Some(match self.wide {
            Some((least, greatest)) => (Number::Integer(least), Number::Integer(greatest)),
            // Exact: of at most 32 bits.
            None if integers => (Number::Integer(least as i128), Number::Integer(greatest as i128)),
            None => (Number::Float(least), Number::Float(greatest)),
        })
    }

    /// Mean of the finite values.
    pub fn mean(&self) -> Option<f64> {
        let (least, greatest) = self.range()?;
        // What is left of rounding must not lead out of the values.
        Some(self.moments.mean.clamp(least, greatest) + 0.0)
    }

    /// Standard deviation of the finite values, `numpy.std`; infinite where its square leaves f64.
    pub fn std(&self) -> Option<f64> {
        let (least, greatest) = self.range()?;
        let equal =
            least == greatest && self.wide.is_none_or(|(least, greatest)| least == greatest);
        Some(if equal { 0.0 } else { self.moments.std() })
    }
}

/// What one look at a block of numbers shows; nothing of it holds when the sum is not finite,
/// but for a block that is known to be.
struct Seen {
    sum: f64,
    least: f64,
    greatest: f64,
    zeros: u64,
}

fn look(numbers: &[f64]) -> Seen {
    let (chunks, rest) = numbers.as_chunks::<8>();
    let mut sums = [0.0; 8];
    let mut least = [f64::INFINITY; 8];
    let mut greatest = [f64::NEG_INFINITY; 8];
    // Counted as numbers of the same width, which the compiler adds beside each other.
    let mut zeros = [0.0; 8];
    for chunk in chunks {
        for i in 0..8 {
            let x = chunk[i];
            sums[i] += x;
            least[i] = if x < least[i] { x } else { least[i] };
            greatest[i] = if x > greatest[i] { x } else { greatest[i] };
            zeros[i] += if x == 0.0 { 1.0 } else { 0.0 };
        }
    }
    let all = rest.iter().copied();
    Seen {
        sum: total(sums) + all.clone().sum::<f64>(),
        least: least.into_iter().chain(all.clone()).fold(f64::INFINITY, f64::min),
        greatest: greatest.into_iter().chain(all.clone()).fold(f64::NEG_INFINITY, f64::max),
        zeros: total(zeros) as u64 + all.filter(|&x| x == 0.0).count() as u64,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(numbers: &[f64]) -> Tally {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Tally::of(Lane::F64, &bytes)
    }

    #[test]
    fn what_is_no_number_is_counted_and_left_out() {
        let found = of(&[1.0, f64::NAN, -0.0, f64::INFINITY, 3.0, f64::NEG_INFINITY, 0.0]);
        assert_eq!((found.elements, found.zeros, found.nan, found.inf), (7, 2, 1, 2));
        assert_eq!(found.range(), Some((0.0, 3.0)));
        assert_eq!(found.mean(), Some(1.0));
        assert_eq!(found.std(), Some((6.0f64 / 4.0).sqrt()));
    }

    #[test]
    fn infinities_of_both_signs_do_not_pass_for_finite() {
        for pair in [[f64::INFINITY, f64::NEG_INFINITY], [f64::NAN, f64::NAN]] {
            let mut numbers = vec![1.0; 64];
            numbers[3] = pair[0];
            numbers[60] = pair[1];
            let found = of(&numbers);
            assert_eq!((found.nan + found.inf, found.finite()), (2, 62));
            assert_eq!(found.range(), Some((1.0, 1.0)));
        }
    }

    #[test]
    fn nothing_has_no_least_value() {
        for found in [of(&[]), of(&[f64::NAN])] {
            assert_eq!((found.range(), found.mean(), found.std()), (None, None, None));
        }
    }

    #[test]
    fn integers_are_exact_beyond_what_f64_holds() {
        let numbers = [i64::MAX, i64::MIN, i64::MIN + 1];
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let found = Tally::of(Lane::I64, &bytes).extremes(true).unwrap();
        assert_eq!(found.0.json(), Json::from(i64::MIN));
        assert_eq!(found.1.json(), Json::from(i64::MAX));
        let found = Tally::of(Lane::U64, &[0xff; 8]).extremes(true).unwrap();
        assert_eq!(found.1.json(), Json::from(u64::MAX));
    }

    #[test]
    fn equal_values_have_no_spread_and_are_their_own_mean() {
        let found = of(&vec![0.1; 10_001]);
        assert_eq!((found.mean(), found.std()), (Some(0.1), Some(0.0)));
    }

    #[test]
    fn parts_in_order_are_the_whole() {
        let numbers: Vec<f64> = (0..10_000).map(|i| f64::from(i % 977) / 7.0).collect();
        let whole = of(&numbers);
        let mut parts = Tally::default();
        numbers.chunks(BLOCK).for_each(|part| parts.merge(&of(part)));
        assert_eq!(parts, whole);
    }

    #[test]
    fn a_sum_that_leaves_f64_is_no_infinite_value() {
        let found = of(&[f64::MAX; 16]);
        assert_eq!((found.inf, found.finite(), found.mean()), (0, 16, Some(f64::MAX)));
    }
}
