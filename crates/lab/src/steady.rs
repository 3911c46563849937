//! When throughput counts as steady.
//!
//! The rule is that of SNIA's Solid State Storage Performance Test Specification (v2.0.2, steady
//! state: range within 20 % of the average, slope within 10 %, over a window of five rounds),
//! with rounds of a fifth of the measured time instead of a minute.

/// Rounds in the window.
pub(crate) const ROUNDS: usize = 5;
/// Largest distance between the fastest and the slowest round, as a share of their average.
const MAX_RANGE: f64 = 0.20;
/// Largest rise or fall of the fitted line across the window, as a share of the average.
const MAX_SLOPE: f64 = 0.10;

/// Whether a series of rates is steady: cut into five rounds of equal length (an earliest
/// remainder is left out). A series of fewer than five samples, or one of zeroes, is not.
pub(crate) fn is_steady(rates: &[f64]) -> bool {
    let length = rates.len() / ROUNDS;
    if length == 0 {
        return false;
    }
    let window = &rates[rates.len() - length * ROUNDS..];
    let rounds: Vec<f64> = window
        .chunks(length)
        .map(|round| round.iter().sum::<f64>() / length as f64)
        .collect();
    let mean = rounds.iter().sum::<f64>() / ROUNDS as f64;
    let most = rounds.iter().copied().fold(f64::MIN, f64::max);
    let least = rounds.iter().copied().fold(f64::MAX, f64::min);
    mean > 0.0
        && (most - least) <= MAX_RANGE * mean
        && (slope(&rounds) * (ROUNDS - 1) as f64).abs() <= MAX_SLOPE * mean
}

/// Slope of the least-squares line through equally spaced values.
fn slope(values: &[f64]) -> f64 {
    let middle = (values.len() - 1) as f64 / 2.0;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let pairs = values
        .iter()
        .enumerate()
        .map(|(i, v)| (i as f64 - middle, v - mean));
    let (above, below) = pairs.fold((0.0, 0.0), |(a, b), (x, y)| (a + x * y, b + x * x));
    if below > 0.0 { above / below } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_within_a_tenth_is_steady() {
        assert!(is_steady(&[100.0, 104.0, 98.0, 101.0, 99.0]));
        let long: Vec<f64> = (0..23).map(|i| 1000.0 + f64::from(i % 3) * 20.0).collect();
        assert!(is_steady(&long));
    }

    #[test]
    fn a_fall_a_dip_and_silence_are_not() {
        assert!(
            !is_steady(&[100.0, 96.0, 92.0, 88.0, 84.0]),
            "slope 16 %, range 17 %"
        );
        assert!(
            !is_steady(&[100.0, 100.0, 70.0, 100.0, 100.0]),
            "range 30 %"
        );
        assert!(!is_steady(&[0.0; 10]));
        assert!(!is_steady(&[100.0; 4]));
    }
}
