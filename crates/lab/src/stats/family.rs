//! Many questions at once. Of 168 cells of two equal configurations some look different at any level that is asked of
//! each alone; so a run's verdicts are corrected together, and each says the smallest difference that it could have
//! found.

use std::collections::BTreeMap;

use super::Ratio;
use super::power::Bar;

/// Of the differences that a run names, at most this share is named wrongly, on average over runs; of runs with
/// nothing between their configurations at most this share names any.
pub const FALSE_SHARE: f64 = 0.05;

/// Corrects the verdicts of a run's ratios for their number (Benjamini and Hochberg 1995): a difference stays one if
/// its own range leaves 1 out, and if its probability by chance is below the share that its rank has. Ratios of one pair
/// are no questions.
pub fn correct(ratios: &mut [&mut Ratio]) {
    let Some(family) = Family::of(ratios) else {
        return;
    };
    let mut tellers = BTreeMap::new();
    for ratio in ratios {
        family.judge(ratio);
        let Some(noise) = ratio.noise else {
            continue;
        };
        let bar = family.bar(ratio);
        let teller = tellers.entry(bar).or_insert_with(|| bar.teller());
        ratio.detectable_pct = Some(teller.detectable_pct(&noise));
    }
}

/// Questions that were asked together.
struct Family {
    questions: usize,
    /// How many have an answer that is hardly by chance.
    found: usize,
    /// The probability by chance that such an answer has at most.
    most: f64,
}

impl Family {
    fn of(ratios: &[&mut Ratio]) -> Option<Self> {
        let mut chances: Vec<f64> = ratios.iter().filter_map(|ratio| ratio.chance).collect();
        let questions = chances.len();
        chances.sort_by(f64::total_cmp);
        let share = |rank: usize| FALSE_SHARE * rank as f64 / questions as f64;
        let found = (1..=questions)
            .rev()
            .find(|&rank| chances[rank - 1] <= share(rank))
            .unwrap_or(0);
        (questions > 0).then(|| Self {
            questions,
            found,
            most: share(found),
        })
    }

    fn is_found(&self, ratio: &Ratio) -> bool {
        ratio.chance.is_some_and(|chance| chance <= self.most)
    }

    fn judge(&self, ratio: &mut Ratio) {
        ratio.questions = self.questions as u32;
        ratio.differs &= self.is_found(ratio);
    }

    /// What this one had to pass: as one more than the others that are found.
    fn bar(&self, ratio: &Ratio) -> Bar {
        let more = usize::from(!self.is_found(ratio));
        Bar {
            pairs: ratio.pairs,
            rank: (self.found + more).min(self.questions),
            questions: self.questions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::power::normal;
    use super::*;

    /// A cell's repeats on two configurations of a machine that wanders, with noise that has heavy tails: each side's
    /// own is that of a t distribution with four degrees of freedom.
    fn cell(rng: &mut fastrand::Rng, repeats: usize, effect: f64) -> Ratio {
        let noise = |rng: &mut fastrand::Rng| {
            let chi: f64 = (0..4).map(|_| normal(rng).powi(2)).sum();
            0.02 * normal(rng) / (chi / 4.0).sqrt()
        };
        let (mut base, mut ours, mut drift) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..repeats {
            drift += 0.03 * normal(rng);
            base.push(1000.0 * (drift + noise(rng)).exp());
            ours.push(1000.0 * effect * (drift + noise(rng)).exp());
        }
        Ratio::of(&base, &ours).expect("pairs")
    }

    /// A run of 168 cells, the first `differing` of which differ by `effect`.
    fn run(rng: &mut fastrand::Rng, repeats: usize, differing: usize, effect: f64) -> Vec<Ratio> {
        (0..168)
            .map(|index| cell(rng, repeats, if index < differing { effect } else { 1.0 }))
            .collect()
    }

    /// The verdicts alone.
    fn judged(mut cells: Vec<Ratio>) -> Vec<Ratio> {
        let family = Family::of(&cells.iter_mut().collect::<Vec<_>>()).expect("questions");
        cells.iter_mut().for_each(|ratio| family.judge(ratio));
        cells
    }

    #[test]
    fn equal_configurations_are_told_as_equal_in_nineteen_of_twenty_runs() {
        let mut rng = fastrand::Rng::with_seed(20);
        let mut named = 0;
        let mut uncorrected = 0;
        for index in 0..1000 {
            let repeats = [3, 6, 10][index % 3];
            let cells = judged(run(&mut rng, repeats, 0, 1.0));
            named += usize::from(cells.iter().any(|ratio| ratio.differs));
            let apart = |ratio: &Ratio| ratio.low > 1.0 || ratio.high < 1.0;
            uncorrected += usize::from(cells.iter().any(apart));
        }
        assert!(named <= 50, "{named} of 1,000 runs name a difference");
        assert!(uncorrected > 700, "{uncorrected}: the test can fail");
    }

    #[test]
    fn of_what_is_named_one_in_twenty_is_wrong_and_what_is_there_is_found() {
        let mut rng = fastrand::Rng::with_seed(21);
        let (mut wrong, mut right, mut sizes) = (0.0, 0, Vec::new());
        for _ in 0..100 {
            let mut cells = run(&mut rng, 8, 84, 0.85);
            correct(&mut cells.iter_mut().collect::<Vec<_>>());
            let of = |cells: &[Ratio]| cells.iter().filter(|ratio| ratio.differs).count();
            let (true_ones, false_ones) = (of(&cells[..84]), of(&cells[84..]));
            right += true_ones;
            wrong += false_ones as f64 / (true_ones + false_ones).max(1) as f64 / 100.0;
            sizes.extend(cells.iter().filter_map(|ratio| ratio.detectable_pct));
        }
        assert!(wrong <= FALSE_SHARE, "{wrong}");
        assert!(right > 84 * 80, "{right} of 8,400 are found");
        // What is told as the smallest difference to be found is of the size of the noise.
        let told = crate::stats::median(&sizes);
        assert!((3.0..8.0).contains(&told), "{told} %");
    }

    #[test]
    fn one_question_is_its_own_family() {
        let mut one = Ratio::of(&[100.0, 101.0, 102.0], &[80.0, 81.0, 82.0]).expect("pairs");
        correct(&mut [&mut one]);
        assert!(one.differs && one.questions == 1, "{one:?}");
        let told = one.detectable_pct.expect("three pairs");
        assert!((0.1..5.0).contains(&told), "{told}");
        let mut none: [&mut Ratio; 0] = [];
        correct(&mut none);
        let mut single = Ratio::of(&[100.0], &[50.0]).expect("a pair");
        correct(&mut [&mut single]);
        assert_eq!((single.differs, single.questions), (false, 0));
    }
}
