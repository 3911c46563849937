//! Medians, spreads, and what a difference is worth.

mod family;
mod looks;
mod power;
mod signed_rank;
mod student;
mod verdict;

use serde::{Deserialize, Serialize};

pub use family::{FALSE_SHARE, correct};
pub use looks::Looks;
pub use verdict::{Measure, Together};

/// The middle value (mean of the two middle ones for an even count); 0 for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted_median(&sorted)
}

fn sorted_median(sorted: &[f64]) -> f64 {
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
    /// The middle of the pairs' ratios.
    pub ratio: f64,
    /// Lower end of its range.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    pub pairs: u32,
    /// How often, of all such ranges, at least so many have the true ratio in them: 0 to 1. It holds if a
    /// pair is as likely to be off to one side as to the other, independently of other pairs.
    #[serde(default)]
    pub confidence: f64,
    /// The range leaves 1 out; and, with fewer than six pairs, no side's own spread is as large as the
    /// difference.
    pub differs: bool,
    /// The larger of the two sides' spreads is at least the difference.
    pub noisy: bool,
    /// How likely pairs are at least so far apart if nothing differs: a paired t test of their logarithms; absent for one
    /// pair, and where the base did nothing in a repeat: then there is no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
    /// Questions of the same run for whose number `differs` is corrected; 0: it is not.
    #[serde(default)]
    pub questions: u32,
    /// The smallest difference, in percent more, of which four of five runs with this one's noise would have said that it
    /// differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable_pct: Option<f64>,
    /// The noise from which that is computed.
    #[serde(skip)]
    noise: Option<power::Noise>,
}

/// From this many pairs on, the range is what signed ranks give; below, it is smallest to largest.
const ENOUGH_FOR_RANKS: usize = 6;
/// The probability of error of a range that ranks give. It takes eight pairs.
const RISK: f64 = 0.01;

impl Ratio {
    /// Compares `ours` with `base`, pair by pair. Up to five pairs, the ratio is the median of the pairs'
    /// and the range that from smallest to largest. From six on, they are Hodges and Lehmann's estimate and
    /// Wilcoxon's signed-rank interval of the pairs' logarithms, at 99 % or the most that so few pairs can
    /// give. Then the pairs decide alone: what a side varies by from repeat to repeat grows with their
    /// number, and a neighbour of a pair varies with it. `None` without a pair whose base is above 0.
    pub fn of(base: &[f64], ours: &[f64]) -> Option<Self> {
        let ratios = ratios(base, ours);
        // All the pairs of few err to one side so often.
        let most = 2.0_f64.powi(1 - ratios.len().min(1000) as i32);
        let found = if ratios.len() >= ENOUGH_FOR_RANKS {
            Found::ranked(&ratios, RISK.max(most))?
        } else {
            Found::whole(&ratios)?
        };
        Some(found.told(base, ours, &ratios, 1.0 - RISK.max(most)))
    }

    /// The same in a measurement that goes on until it knows enough: however many looks there were before
    /// this one, with this one they err with the probability that `looks` allows in all. `None` as long as
    /// there are too few pairs for such a statement.
    pub fn at_look(base: &[f64], ours: &[f64], looks: &Looks) -> Option<Self> {
        let ratios = ratios(base, ours);
        let found = Found::ranked(&ratios, looks.share(ratios.len()))?;
        Some(found.told(base, ours, &ratios, 1.0 - looks.risk()))
    }

    /// Whether both ends of the range are within `percent` of the ratio.
    pub fn is_within(&self, percent: f64) -> bool {
        let most = 1.0 + percent / 100.0;
        self.high <= self.ratio * most && self.ratio <= self.low * most
    }

    /// The comparison in words.
    pub fn words(&self, ours: &str, base: &str) -> String {
        let Self {
            ratio, low, high, ..
        } = self;
        if self.pairs < 2 {
            return format!("{ours} is {ratio:.2} x {base} (one pair: no range)");
        }
        let how = format!("{low:.2}-{high:.2} {}", self.over());
        if self.differs {
            return format!("{ours} is {ratio:.2} x {base} ({how})");
        }
        if self.low > 1.0 || self.high < 1.0 {
            let why = match self.is_by_chance() {
                true => format!("some of {} differ so by chance", self.questions),
                false => "a configuration by itself varies as much".to_owned(),
            };
            return format!("{ours} is {ratio:.2} x {base} ({how}), but {why}");
        }
        let found = self.detectable();
        let found = found.map_or_else(String::new, |percent| {
            format!("; {percent} would have been found")
        });
        format!("no difference beyond the noise: {ours} is {ratio:.2} x {base} ({how}){found}")
    }

    /// The smallest difference that would have been found in four of five such runs, in words.
    pub fn detectable(&self) -> Option<String> {
        self.detectable_pct.map(told_pct)
    }

    /// Its own range says that it differs, and the number of questions that were asked says that some do.
    pub fn is_by_chance(&self) -> bool {
        let apart = self.pairs >= 2 && (self.low > 1.0 || self.high < 1.0);
        let by_itself = apart && (self.pairs as usize >= ENOUGH_FOR_RANKS || !self.noisy);
        by_itself && !self.differs && self.questions > 0
    }

    /// How many pairs, and where they are enough to say so, how sure.
    fn over(&self) -> String {
        let sure = if self.pairs as usize >= ENOUGH_FOR_RANKS && self.confidence > 0.0 {
            // Never more than it is.
            format!("at {} % ", (100.0 * self.confidence + 1e-9).floor())
        } else {
            String::new()
        };
        format!("{sure}over {} interleaved pairs", self.pairs)
    }
}

fn ratios(base: &[f64], ours: &[f64]) -> Vec<f64> {
    let pairs = base.iter().zip(ours).filter(|&(&b, _)| b > 0.0);
    pairs.map(|(&b, &o)| o / b).collect()
}

/// Of nothing at all, too: that is far below any other.
fn logarithm(ratio: &f64) -> f64 {
    ratio.max(1e-9).ln()
}

/// The standard error of the mean.
fn error_of_mean(values: &[f64]) -> f64 {
    let (middle, count) = (mean(values), values.len() as f64);
    let squares: f64 = values.iter().map(|of| (of - middle).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt()
}

/// A paired t test of the ratios' logarithms; none of fewer than two, or of ratios that have none.
fn by_chance(ratios: &[f64]) -> Option<f64> {
    let logarithms: Vec<f64> = ratios.iter().map(logarithm).collect();
    let (middle, error) = (mean(&logarithms), error_of_mean(&logarithms));
    let chance = || match middle == 0.0 {
        true => 1.0,
        false => student::chance(middle / error, ratios.len() as u32 - 1),
    };
    (ratios.len() >= 2 && error.is_finite()).then(chance)
}

/// A difference in percent as it is told.
fn told_pct(percent: f64) -> String {
    match percent {
        percent if percent > 100.0 => "only more than twice as much".to_owned(),
        percent if percent < 1.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// A ratio and its range.
struct Found {
    ratio: f64,
    low: f64,
    high: f64,
}

impl Found {
    fn whole(ratios: &[f64]) -> Option<Self> {
        (!ratios.is_empty()).then(|| Self {
            ratio: median(ratios),
            low: ratios.iter().copied().fold(f64::MAX, f64::min),
            high: ratios.iter().copied().fold(f64::MIN, f64::max),
        })
    }

    fn ranked(ratios: &[f64], risk: f64) -> Option<Self> {
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let middle = signed_rank::middle(&logarithms, risk)?;
        Some(Self {
            ratio: middle.estimate.exp(),
            low: middle.low.exp(),
            high: middle.high.exp(),
        })
    }

    fn told(self, base: &[f64], ours: &[f64], ratios: &[f64], confidence: f64) -> Ratio {
        let Self { ratio, low, high } = self;
        // Where the base did nothing there is no ratio: the others alone would be a choice of pairs in favour of the base.
        let is_whole = ratios.len() == base.len().min(ours.len());
        let noisy = !is_whole || spread(base).max(spread(ours)) >= (1.0 - ratio).abs();
        let apart = is_whole && ratios.len() >= 2 && (low > 1.0 || high < 1.0);
        Ratio {
            chance: by_chance(ratios).filter(|_| is_whole),
            questions: 0,
            detectable_pct: None,
            noise: power::Noise::of(base, ours),
            ratio,
            low,
            high,
            pairs: ratios.len() as u32,
            confidence,
            differs: apart && (ratios.len() >= ENOUGH_FOR_RANKS || !noisy),
            noisy,
        }
    }
}

#[cfg(test)]
mod tests;
