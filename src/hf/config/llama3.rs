//! Llama 3's rope scaling back from the factors that the converter made of it.
//!
//! `rope_freqs.weight` holds r[i] for i = 0..d/2. With b the base and w = 2 pi b^(2i/d) the
//! wavelength, r is 1 for w < original/high, `factor` for w > original/low, and
//! 1/((1-s)/factor + s) with s = (original/w - low)/(high - low) in between. Only the ratios
//! original/low and original/high act, so `original` may be fixed: 8192, as in all published
//! models.

use std::f64::consts::TAU;

/// What `rope_freqs.weight` says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scaling {
    /// Every factor is 1.
    None,
    /// Llama 3's rule with these numbers.
    Llama3 { factor: f64, low: f64, high: f64 },
    /// Another rule: only the factors themselves say it.
    Other,
}

/// `original_max_position_embeddings` of all published models.
pub(super) const ORIGINAL: f64 = 8192.0;

/// Two factors are the same when they differ by less than this part.
const TOLERANCE: f64 = 1e-4;

/// The rule that gives these positive factors for base `base`.
pub(super) fn invert(factors: &[f32], base: f64) -> Scaling {
    let factors: Vec<f64> = factors.iter().map(|&x| x.into()).collect();
    if factors.iter().all(|&r| r == 1.0) {
        return Scaling::None;
    }
    let largest = factors.iter().copied().fold(1.0, f64::max);
    // Where no wavelength is long enough the largest is not the factor; these are published.
    let published = [largest, 8.0, 32.0].map(|factor| (factor, 1.0, 4.0));
    let solved = solve(&factors, base, largest);
    let rounded = solved.map(|(low, high)| (cents(low), cents(high)));
    let solved = [rounded, solved].into_iter().flatten().map(|(low, high)| (largest, low, high));
    let mut rules = published.into_iter().chain(solved);
    match rules.find(|&(factor, low, high)| gives(&factors, base, factor, low, high)) {
        Some((factor, low, high)) => Scaling::Llama3 { factor, low, high },
        None => Scaling::Other,
    }
}

fn cents(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}

/// `original / w` for each pair: what `low` and `high` are compared with.
fn turns(count: usize, base: f64) -> impl Iterator<Item = f64> {
    (0..count).map(move |i| ORIGINAL / (TAU * base.powf(i as f64 / count as f64)))
}

/// Low and high from two factors between 1 and the largest: s is a line in original/w.
fn solve(factors: &[f64], base: f64, largest: f64) -> Option<(f64, f64)> {
    let between = |&(r, _): &(f64, f64)| r > 1.0 + 1e-6 && r < largest * (1.0 - 1e-6);
    let s = |r: f64| (1.0 / r - 1.0 / largest) / (1.0 - 1.0 / largest);
    let pairs = || factors.iter().copied().zip(turns(factors.len(), base)).filter(between);
    let ((r0, x0), (r1, x1)) = (pairs().next()?, pairs().last()?);
    let slope = (s(r1) - s(r0)) / (x1 - x0);
    let low = x0 - s(r0) / slope;
    let high = low + 1.0 / slope;
    (low.is_finite() && high.is_finite() && 0.0 < low && low < high).then_some((low, high))
}

/// Whether this rule gives these factors.
fn gives(factors: &[f64], base: f64, factor: f64, low: f64, high: f64) -> bool {
    factors.iter().zip(turns(factors.len(), base)).all(|(&r, turns)| {
        let expected = if turns > high {
            1.0
        } else if turns < low {
            factor
        } else {
            let s = (turns - low) / (high - low);
            1.0 / ((1.0 - s) / factor + s)
        };
        (r - expected).abs() < TOLERANCE * expected
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the converter makes them.
    fn forward(dim: usize, base: f64, factor: f64, low: f64, high: f64, original: f64) -> Vec<f32> {
        (0..dim / 2)
            .map(|i| {
                let freq = 1.0 / base.powf(2.0 * i as f64 / dim as f64);
                let wavelen = TAU / freq;
                if wavelen < original / high {
                    1.0
                } else if wavelen > original / low {
                    factor as f32
                } else {
                    let smooth = (original / wavelen - low) / (high - low);
                    (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
                }
            })
            .collect()
    }

    #[test]
    fn published_scalings_come_back_exactly() {
        for (dim, factor) in [(128, 8.0), (64, 32.0), (128, 32.0), (32, 8.0), (16, 8.0), (8, 32.0)]
        {
            let factors = forward(dim, 500_000.0, factor, 1.0, 4.0, 8192.0);
            let expected = Scaling::Llama3 { factor, low: 1.0, high: 4.0 };
            assert_eq!(invert(&factors, 500_000.0), expected, "{dim} {factor}");
        }
    }

    #[test]
    fn no_wavelength_reaches_the_factor_and_it_is_found_all_the_same() {
        let factors = forward(8, 10_000.0, 8.0, 1.0, 4.0, 8192.0);
        assert!(factors.iter().all(|&r| r < 7.0), "{factors:?}");
        let expected = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0 };
        assert_eq!(invert(&factors, 10_000.0), expected);
    }

    #[test]
    fn another_original_length_gives_the_same_ratios() {
        let factors = forward(128, 500_000.0, 16.0, 1.0, 4.0, 4096.0);
        let expected = Scaling::Llama3 { factor: 16.0, low: 2.0, high: 8.0 };
        assert_eq!(invert(&factors, 500_000.0), expected);
    }

    #[test]
    fn uneven_bounds_are_left_unrounded() {
        let factors = forward(128, 10_000.0, 4.0, 1.2345, 6.789, 8192.0);
        let Scaling::Llama3 { factor, low, high } = invert(&factors, 10_000.0) else {
            panic!("{:?}", invert(&factors, 10_000.0));
        };
        assert_eq!(factor, 4.0);
        assert!((low - 1.2345).abs() < 1e-2 && (high - 6.789).abs() < 1e-2, "{low} {high}");
    }

    #[test]
    fn ones_are_no_scaling() {
        assert_eq!(invert(&[1.0; 64], 500_000.0), Scaling::None);
        assert_eq!(invert(&[], 500_000.0), Scaling::None);
    }

    #[test]
    fn anything_else_is_not_forced_into_the_rule() {
        let rising: Vec<f32> = (0..64).map(|i| 1.0 + i as f32 * 0.1).collect();
        assert_eq!(invert(&rising, 500_000.0), Scaling::Other);
        assert_eq!(invert(&[0.5; 64], 500_000.0), Scaling::Other);
        assert_eq!(invert(&[f32::MAX, f32::MIN_POSITIVE], 1e-30), Scaling::Other);
        assert_eq!(invert(&[2.0, 3.0], f64::MAX), Scaling::Other);
    }
}
