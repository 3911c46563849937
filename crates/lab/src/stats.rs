//! Medians, spreads, and what a difference is worth.

use serde::{Deserialize, Serialize};

/// The middle value (mean of the two middle ones for an even count); 0 for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The mean; 0 for none.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// (largest - smallest) / median; 0 for fewer than two values or a median of 0.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    if values.len() < 2 || middle == 0.0 {
        return 0.0;
    }
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    (most - least) / middle
}

/// How one configuration compares with another, from repeats that were run in pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the pairs' ratios.
    pub ratio: f64,
    /// Lower end of its range.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Pairs.
    pub pairs: u32,
    /// The range leaves 1 out; and, with fewer than six pairs, no side's own spread is as large as the
    /// difference.
    pub differs: bool,
    /// The larger of the two sides' spreads is at least the difference.
    pub noisy: bool,
}

/// From this many pairs on, the range is a bootstrap one; below, it is smallest to largest.
const ENOUGH_FOR_BOOTSTRAP: usize = 6;
const RESAMPLES: usize = 2000;

impl Ratio {
    /// Compares `ours` with `base`, pair by pair. Up to five pairs the range is that of the
    /// pairs' ratios; from six on, the 0.5th to 99.5th percentile of the medians of 2,000 seeded
    /// resamples. Then the pairs decide alone: what a side varies by from repeat to repeat grows with their
    /// number, and a neighbour of a pair varies with it. `None` without a pair whose base is above 0.
    pub fn of(base: &[f64], ours: &[f64]) -> Option<Self> {
        let pairs = base.iter().zip(ours).filter(|&(&b, _)| b > 0.0);
        let ratios: Vec<f64> = pairs.map(|(&b, &o)| o / b).collect();
        if ratios.is_empty() {
            return None;
        }
        let enough = ratios.len() >= ENOUGH_FOR_BOOTSTRAP;
        let (low, high) = if enough {
            bootstrap(&ratios)
        } else {
            let least = ratios.iter().copied().fold(f64::MAX, f64::min);
            (least, ratios.iter().copied().fold(f64::MIN, f64::max))
        };
        let ratio = median(&ratios);
        let noisy = spread(base).max(spread(ours)) >= (1.0 - ratio).abs();
        let apart = ratios.len() >= 2 && (low > 1.0 || high < 1.0);
        Some(Self {
            ratio,
            low,
            high,
            pairs: ratios.len() as u32,
            differs: apart && (enough || !noisy),
            noisy,
        })
    }

    /// The comparison in words.
    pub fn words(&self, ours: &str, base: &str) -> String {
        let Self {
            ratio,
            low,
            high,
            pairs,
            ..
        } = self;
        let how = format!("{low:.2}-{high:.2} over {pairs} interleaved pairs");
        if *pairs < 2 {
            return format!("{ours} is {ratio:.2} x {base} (one pair: no range)");
        }
        if self.differs {
            return format!("{ours} is {ratio:.2} x {base} ({how})");
        }
        if self.low > 1.0 || self.high < 1.0 {
            return format!(
                "{ours} is {ratio:.2} x {base} ({how}), but a configuration by itself varies as much"
            );
        }
        format!("no difference beyond the noise: {ours} is {ratio:.2} x {base} ({how})")
    }
}

fn bootstrap(ratios: &[f64]) -> (f64, f64) {
    let mut rng = fastrand::Rng::with_seed(ratios.len() as u64);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sample: Vec<f64> = ratios
                .iter()
                .map(|_| ratios[rng.usize(0..ratios.len())])
                .collect();
            median(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
    (at(0.005), at(0.995))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_and_spread() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(spread(&[90.0, 100.0, 110.0]), 0.2);
        assert_eq!(
            (median(&[]), spread(&[5.0]), spread(&[0.0, 0.0])),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn a_clear_difference_is_told_with_its_range() {
        let base = [100.0, 102.0, 101.0, 99.0, 100.0];
        let ours = [81.0, 82.0, 80.0, 81.0, 80.0];
        let ratio = Ratio::of(&base, &ours).expect("pairs");
        assert!(ratio.differs && !ratio.noisy);
        assert_eq!(
            ratio.words("remote", "local"),
            "remote is 0.80 x local (0.79-0.82 over 5 interleaved pairs)"
        );
    }

    #[test]
    fn noise_is_called_noise() {
        let base = [100.0, 120.0, 90.0];
        let ours = [105.0, 110.0, 95.0];
        let ratio = Ratio::of(&base, &ours).expect("pairs");
        assert!(!ratio.differs);
        assert!(
            ratio
                .words("b", "a")
                .starts_with("no difference beyond the noise")
        );
        // Every pair agrees, but each side moves by more than they differ.
        let base = [100.0, 200.0, 150.0];
        let ours = [110.0, 220.0, 165.0];
        let ratio = Ratio::of(&base, &ours).expect("pairs");
        assert!(ratio.noisy && !ratio.differs);
        assert!(ratio.words("b", "a").contains("varies as much"));
        assert_eq!(Ratio::of(&[0.0], &[1.0]), None);
    }

    /// Pairs of repeats on a machine that drifts, each side with noise of its own; the second side is
    /// `effect` times the first.
    fn samples(rng: &mut fastrand::Rng, pairs: usize, noise: f64, effect: f64) -> [Vec<f64>; 2] {
        let mut normal = || {
            let (radius, angle) = (1.0 - rng.f64(), rng.f64() * std::f64::consts::TAU);
            (-2.0 * radius.ln()).sqrt() * angle.cos()
        };
        let (mut base, mut ours, mut drift) = (Vec::new(), Vec::new(), 1000.0);
        for _ in 0..pairs {
            drift *= 1.0 + 0.03 * normal();
            base.push(drift * (1.0 + noise * normal()));
            ours.push(effect * drift * (1.0 + noise * normal()));
        }
        [base, ours]
    }

    /// The share of runs that say that there is a difference.
    fn found(pairs: usize, noise: f64, effect: f64) -> f64 {
        const RUNS: usize = 60;
        let mut rng = fastrand::Rng::with_seed(7);
        let differ = (0..RUNS).filter(|_| {
            let [base, ours] = samples(&mut rng, pairs, noise, effect);
            Ratio::of(&base, &ours).is_some_and(|ratio| ratio.differs)
        });
        differ.count() as f64 / RUNS as f64
    }

    #[test]
    fn a_tenth_is_found_and_nothing_is_found_where_there_is_nothing() {
        for (pairs, noise) in [
            (3, 0.02),
            (5, 0.03),
            (6, 0.03),
            (10, 0.03),
            (10, 0.08),
            (20, 0.03),
        ] {
            let alarms = found(pairs, noise, 1.0);
            assert!(
                alarms <= 0.07,
                "{pairs} pairs, noise {noise}: {alarms} false alarms"
            );
        }
        for (pairs, noise, least) in [
            (3, 0.01, 0.7),
            (6, 0.02, 0.9),
            (10, 0.03, 0.95),
            (20, 0.06, 0.85),
        ] {
            let share = found(pairs, noise, 0.9);
            assert!(
                share >= least,
                "{pairs} pairs, noise {noise}: found in {share}"
            );
        }
        // More repeats find more, not less.
        assert!(found(20, 0.06, 0.9) > found(6, 0.06, 0.9));
    }

    #[test]
    fn many_pairs_are_resampled_the_same_way_each_time() {
        let base = [100.0; 9];
        let ours = [80.0, 81.0, 79.0, 80.5, 80.2, 79.9, 50.0, 80.1, 80.3];
        let ratio = Ratio::of(&base, &ours).expect("pairs");
        assert!(
            ratio.low > 0.75 && ratio.high < 0.82,
            "an outlier does not rule: {ratio:?}"
        );
        assert_eq!(Some(ratio), Ratio::of(&base, &ours));
    }
}
