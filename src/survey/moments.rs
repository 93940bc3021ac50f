//! Number, mean and spread of values, in parts that are put together.

/// Sums that run beside each other: as many as two vector registers of any machine hold.
const LANES: usize = 8;

/// Number, mean, and sum of the squared distances from the mean (Chan, Golub and LeVeque 1979).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) n: u64,
    pub(super) mean: f64,
    pub(super) m2: f64,
}

impl Moments {
    /// Of a few finite values. `sum` is theirs where it is known and finite.
    pub(super) fn of(values: &[f64], sum: Option<f64>) -> Moments {
        if values.is_empty() {
            return Moments::default();
        }
        let n = values.len() as f64;
        let mean = match sum {
            Some(sum) => sum / n,
            // A sum that leaves f64 has a mean that does not.
            None => values.iter().map(|x| x / n).sum(),
        };
        let square = |x: f64| (x - mean) * (x - mean);
        let (chunks, rest) = values.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for chunk in chunks {
            for (sum, &x) in sums.iter_mut().zip(chunk) {
                *sum += square(x);
            }
        }
        let m2 = total(sums) + rest.iter().map(|&x| square(x)).sum::<f64>();
        Moments { n: values.len() as u64, mean, m2 }
    }

    /// Of these values and those of `next`.
    pub(super) fn merge(&mut self, next: Moments) {
        if next.n == 0 {
            return;
        }
        if self.n == 0 {
            *self = next;
            return;
        }
        let n = self.n.saturating_add(next.n);
        let (ours, theirs) = (self.n as f64 / n as f64, next.n as f64 / n as f64);
        let delta = next.mean - self.mean;
        self.mean = match delta.is_finite() {
            true => self.mean + delta * theirs,
            false => self.mean * ours + next.mean * theirs,
        };
        let between = if delta == 0.0 { 0.0 } else { delta * delta * ours * next.n as f64 };
        self.m2 += next.m2 + between;
        self.n = n;
    }

    /// Standard deviation of the values themselves, not of a population that they were drawn from.
    pub(super) fn std(&self) -> f64 {
        (self.m2 / self.n as f64).sqrt()
    }
}

/// The sums of the lanes, always added in the same order.
pub(super) fn total(sums: [f64; LANES]) -> f64 {
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(parts: &[&[f64]]) -> Moments {
        parts.iter().fold(Moments::default(), |mut all, part| {
            all.merge(Moments::of(part, None));
            all
        })
    }

    #[test]
    fn a_small_spread_around_a_large_mean_is_kept() {
        let all: Vec<f64> = (0..1000).map(|i| 1e9 + f64::from(i % 2)).collect();
        let parts: Vec<&[f64]> = all.chunks(37).collect();
        let found = merged(&parts);
        assert_eq!(found.n, 1000);
        assert!((found.mean - (1e9 + 0.5)).abs() < 1e-6, "{found:?}");
        assert!((found.std() - 0.5).abs() < 1e-7, "{found:?}");
    }

    #[test]
    fn nothing_in_a_part_changes_nothing() {
        assert_eq!(merged(&[&[], &[1.0, 2.0], &[]]), Moments::of(&[1.0, 2.0], None));
        assert_eq!(merged(&[]).n, 0);
    }

    #[test]
    fn a_mean_is_finite_where_a_sum_is_not() {
        let found = merged(&[&[f64::MAX, f64::MAX], &[-f64::MAX, -f64::MAX]]);
        assert_eq!((found.mean, found.m2), (0.0, f64::INFINITY));
    }
}
