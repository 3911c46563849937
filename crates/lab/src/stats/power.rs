//! How large a difference has to be to be found: of the whole verdict, which asks more than one test. Repeats with the
//! noise that was seen are drawn, always the same ones; each has a smallest difference from which on it is told as one.

use super::{ENOUGH_FOR_RANKS, RISK, logarithm, mean, signed_rank, sorted_median, spread, student};

/// How often a difference of the size that is told would have been found.
pub(super) const POWER: f64 = 0.8;
/// Draws of a run's repeats: the share that finds it is right to about 0.013.
const DRAWS: usize = 1000;
const SEED: u64 = 20;
/// With more pairs than this, what is needed goes with the standard error alone.
const MOST_PAIRS: usize = 24;

/// What two sides vary by from repeat to repeat, in logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Noise {
    base: f64,
    ours: f64,
    /// What wanders under both moves them together.
    correlation: f64,
}

impl Noise {
    /// What was seen; none of fewer than two pairs, or of values that have no logarithm.
    pub(super) fn of(base: &[f64], ours: &[f64]) -> Option<Self> {
        let pairs = base.iter().zip(ours).filter(|&(&b, _)| b > 0.0);
        let logarithms = pairs.map(|(&b, &o)| (b.ln(), b.ln() + logarithm(&(o / b))));
        let (base, ours): (Vec<f64>, Vec<f64>) = logarithms.unzip();
        let freedom = base.len().checked_sub(1).filter(|&freedom| freedom > 0)? as f64;
        let (base_mean, ours_mean) = (mean(&base), mean(&ours));
        let together = |of: &[f64], of_mean: f64, with: &[f64], with_mean: f64| {
            let products = of.iter().zip(with);
            let sum: f64 = products.map(|(a, b)| (a - of_mean) * (b - with_mean)).sum();
            sum / freedom
        };
        let of_base = together(&base, base_mean, &base, base_mean).sqrt();
        let of_ours = together(&ours, ours_mean, &ours, ours_mean).sqrt();
        let both = together(&base, base_mean, &ours, ours_mean);
        let correlation = both / (of_base * of_ours);
        let is_one = of_base.is_finite() && of_ours.is_finite();
        is_one.then(|| Self {
            base: of_base,
            ours: of_ours,
            correlation: match correlation.is_finite() {
                true => correlation.clamp(-1.0, 1.0),
                false => 0.0,
            },
        })
    }

    /// Of a pair's difference.
    fn difference(&self) -> f64 {
        let together = 2.0 * self.correlation * self.base * self.ours;
        let square = self.base.powi(2) + self.ours.powi(2) - together;
        square.max(0.0).sqrt()
    }
}

/// What a difference has to pass to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bar {
    pub(super) pairs: u32,
    /// How many differences the run would name with it.
    pub(super) rank: usize,
    pub(super) questions: usize,
}

impl Bar {
    /// The largest probability by chance that counts.
    pub(super) fn chance(self) -> f64 {
        super::FALSE_SHARE * self.rank as f64 / self.questions as f64
    }

    pub(super) fn teller(self) -> Teller {
        match (self.pairs as usize) < ENOUGH_FOR_RANKS {
            true => Teller::Few(Few {
                pairs: self.pairs as usize,
                needed: student::quantile(self.chance(), self.pairs - 1),
            }),
            false => Teller::Many(self.of_many()),
        }
    }

    /// For differences with a deviation of 1.
    fn of_many(self) -> f64 {
        let pairs = (self.pairs as usize).min(MOST_PAIRS);
        let scale = (pairs as f64 / f64::from(self.pairs)).sqrt();
        let needed = student::quantile(self.chance(), pairs as u32 - 1);
        let risk = RISK.max(2.0_f64.powi(1 - pairs as i32));
        let mut rng = fastrand::Rng::with_seed(SEED);
        scale
            * smallest(|| {
                let differences: Vec<f64> = (0..pairs).map(|_| normal(&mut rng)).collect();
                let range = signed_rank::middle(&differences, risk);
                let of_range = range.map_or(f64::INFINITY, |range| -range.low);
                of_test(&differences, needed).max(of_range)
            })
    }
}

/// Says what a difference has to be.
pub(super) enum Teller {
    Few(Few),
    /// So many times what a difference varies by.
    Many(f64),
}

/// So few pairs that a side's own spread counts.
pub(super) struct Few {
    pairs: usize,
    /// The t that counts.
    needed: f64,
}

impl Teller {
    /// The difference in percent that is found with [`POWER`].
    pub(super) fn detectable_pct(&self, noise: &Noise) -> f64 {
        let needed = match self {
            Self::Few(few) => few.needed(noise),
            Self::Many(times) => times * noise.difference(),
        };
        100.0 * needed.exp_m1()
    }
}

impl Few {
    fn needed(&self, noise: &Noise) -> f64 {
        let own = (1.0 - noise.correlation.powi(2)).sqrt();
        let mut rng = fastrand::Rng::with_seed(SEED);
        smallest(|| {
            let (mut base, mut ours, mut differences) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..self.pairs {
                let (one, other) = (normal(&mut rng), normal(&mut rng));
                let of_base = noise.base * one;
                let of_ours = noise.ours * (noise.correlation * one + own * other);
                base.push(of_base.exp());
                ours.push(of_ours.exp());
                differences.push(of_ours - of_base);
            }
            differences.sort_by(f64::total_cmp);
            let by_itself = spread(&base).max(spread(&ours)).ln_1p();
            of_test(&differences, self.needed)
                .max(-differences[0])
                .max(by_itself - sorted_median(&differences))
        })
    }
}

/// From which difference on the t test finds these, if they vary so around it.
fn of_test(differences: &[f64], needed: f64) -> f64 {
    let error = super::error_of_mean(differences);
    needed * error - mean(differences)
}

/// The difference that [`POWER`] of the draws find.
fn smallest(mut draw: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    all.sort_by(f64::total_cmp);
    all[(POWER * DRAWS as f64) as usize].max(0.0)
}

/// A draw of the normal distribution.
pub(super) fn normal(rng: &mut fastrand::Rng) -> f64 {
    let (radius, angle) = (1.0 - rng.f64(), rng.f64() * std::f64::consts::TAU);
    (-2.0 * radius.ln()).sqrt() * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::super::{Ratio, correct};
    use super::*;

    /// Repeats of two sides that differ by `effect`, a logarithm, on a machine that wanders under both.
    fn repeats(rng: &mut fastrand::Rng, pairs: u32, drift: f64, effect: f64) -> Ratio {
        let (mut base, mut ours, mut at) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..pairs {
            at += drift * normal(rng);
            base.push(1000.0 * (at + 0.02 * normal(rng)).exp());
            ours.push(1000.0 * (at + effect + 0.02 * normal(rng)).exp());
        }
        Ratio::of(&base, &ours).expect("pairs")
    }

    /// The noise of the above: the mean of what many such runs show.
    fn noise(rng: &mut fastrand::Rng, pairs: u32, drift: f64) -> Noise {
        let runs = 1500;
        let (mut base, mut ours, mut both) = (0.0, 0.0, 0.0);
        for _ in 0..runs {
            let noise = repeats(rng, pairs, drift, 0.0).noise.expect("pairs");
            base += noise.base.powi(2) / f64::from(runs);
            ours += noise.ours.powi(2) / f64::from(runs);
            both += noise.correlation * noise.base * noise.ours / f64::from(runs);
        }
        let (base, ours) = (base.sqrt(), ours.sqrt());
        Noise {
            base,
            ours,
            correlation: both / (base * ours),
        }
    }

    #[test]
    fn what_is_told_is_found_in_four_of_five_runs() {
        let mut rng = fastrand::Rng::with_seed(7);
        for (pairs, drift, questions) in [
            (3, 0.0, 1),
            (3, 0.03, 1),
            (3, 0.03, 168),
            (4, 0.0, 1),
            (5, 0.03, 1),
            (5, 0.0, 168),
            (6, 0.03, 1),
            (8, 0.0, 1),
            (8, 0.0, 168),
            (16, 0.0, 1),
            (32, 0.0, 168),
        ] {
            let bar = Bar {
                pairs,
                rank: 1,
                questions,
            };
            let noise = noise(&mut rng, pairs, drift);
            let effect = (bar.teller().detectable_pct(&noise) / 100.0).ln_1p();
            let found = (0..1000).filter(|_| {
                let run = repeats(&mut rng, pairs, drift, effect);
                run.differs && run.chance.is_some_and(|chance| chance <= bar.chance())
            });
            let share = found.count() as f64 / 1000.0;
            let what = format!("{pairs} pairs, drift {drift}, {questions} questions: {share}");
            assert!((POWER - 0.06..POWER + 0.06).contains(&share), "{what}");
        }
    }

    #[test]
    fn a_run_tells_it_of_its_own_noise() {
        let mut rng = fastrand::Rng::with_seed(8);
        let mut told = |pairs| {
            let mut all: Vec<f64> = Vec::new();
            for _ in 0..25 {
                let mut one = repeats(&mut rng, pairs, 0.03, 0.0);
                correct(&mut [&mut one]);
                all.extend(one.detectable_pct);
            }
            crate::stats::median(&all)
        };
        // Of a difference whose deviation is 2.8 %; a machine that wanders counts up to five pairs.
        let (few, six, many) = (told(3), told(6), told(20));
        assert!((8.0..16.0).contains(&few), "{few}");
        assert!((3.0..6.0).contains(&six), "{six}");
        assert!((1.5..3.0).contains(&many), "{many}");
    }
}
