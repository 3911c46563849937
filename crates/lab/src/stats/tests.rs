//! What is said of pairs, and how often it is wrong.

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

/// A normal variable.
fn normal(rng: &mut fastrand::Rng) -> f64 {
    let (radius, angle) = (1.0 - rng.f64(), rng.f64() * std::f64::consts::TAU);
    (-2.0 * radius.ln()).sqrt() * angle.cos()
}

/// Pairs of repeats on a machine that drifts, each side with noise of its own; the second side is
/// `effect` times the first.
fn drifting(rng: &mut fastrand::Rng, pairs: usize, noise: f64, effect: f64) -> [Vec<f64>; 2] {
    let (mut base, mut ours, mut drift) = (Vec::new(), Vec::new(), 1000.0);
    for _ in 0..pairs {
        drift *= 1.0 + 0.03 * normal(rng);
        base.push(drift * (1.0 + noise * normal(rng)));
        ours.push(effect * drift * (1.0 + noise * normal(rng)));
    }
    [base, ours]
}

/// A machine that others use, too: what it gives from window to window wanders (each window is much like
/// the one before), has heavy tails, and now and then is a fraction for some windows together.
struct Shared {
    rng: fastrand::Rng,
    wanders: f64,
    taken: Option<(f64, u32)>,
}

impl Shared {
    fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            wanders: 0.0,
            taken: None,
        }
    }

    fn window(&mut self) -> f64 {
        let rng = &mut self.rng;
        self.wanders = 0.9 * self.wanders + 0.08 * normal(rng);
        if rng.f64() < 0.02 {
            self.taken = Some((0.3 + 0.6 * rng.f64(), rng.u32(1..8)));
        }
        let taken = match &mut self.taken {
            Some((share, left)) if *left > 0 => {
                *left -= 1;
                *share
            }
            _ => 1.0,
        };
        // Student's t with three degrees of freedom.
        let chi: f64 = (0..3).map(|_| normal(rng).powi(2)).sum();
        let tail = normal(rng) / (chi / 3.0).sqrt();
        1000.0 * taken * (self.wanders + 0.05 * tail).exp()
    }

    /// Blocks of windows in which two sides take turns there and back, in an order that is drawn.
    fn blocks(&mut self, count: usize, effect: f64) -> [Vec<f64>; 2] {
        let mut sides = [Vec::new(), Vec::new()];
        for _ in 0..count {
            let first = usize::from(self.rng.bool());
            let mut sum = [0.0, 0.0];
            for side in [first, 1 - first, 1 - first, first] {
                sum[side] += self.window() * [1.0, effect][side];
            }
            sides[0].push(sum[0]);
            sides[1].push(sum[1]);
        }
        sides
    }

    /// A measurement that goes on until it knows to 5 %, or has `most` blocks.
    fn until_known(&mut self, most: usize, effect: f64) -> Option<Ratio> {
        let looks = Looks::up_to(most, 0.01);
        let all = self.blocks(most, effect);
        let mut known = None;
        for pairs in (1..=most).filter(|&pairs| looks.is_at(pairs)) {
            known = Ratio::at_look(&all[0][..pairs], &all[1][..pairs], &looks);
            if known.as_ref().is_some_and(|ratio| ratio.is_within(5.0)) {
                break;
            }
        }
        known
    }
}

/// The share of so many runs of which something is true.
fn share(runs: u64, mut of: impl FnMut(u64) -> bool) -> f64 {
    (0..runs).filter(|&run| of(run)).count() as f64 / runs as f64
}

/// The share of runs that say that there is a difference.
fn found(pairs: usize, noise: f64, effect: f64) -> f64 {
    let mut rng = fastrand::Rng::with_seed(7);
    share(400, |_| {
        let [base, ours] = drifting(&mut rng, pairs, noise, effect);
        Ratio::of(&base, &ours).is_some_and(|ratio| ratio.differs)
    })
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
        // Three to five pairs are within their spread as often as not; six can be sure to 96.9 %.
        let most = if pairs < 8 { 0.06 } else { 0.02 };
        assert!(
            alarms <= most,
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
fn a_range_has_the_truth_in_it_as_often_as_it_says_on_a_shared_machine() {
    for effect in [1.0, 0.9] {
        for blocks in [6, 8, 12, 30, 60] {
            let mut sure = 0.0;
            let has = share(1000, |run| {
                let [base, ours] = Shared::new(run).blocks(blocks, effect);
                let ratio = Ratio::of(&base, &ours).expect("pairs");
                sure = ratio.confidence;
                (ratio.low..=ratio.high).contains(&effect)
            });
            // Three standard errors of the count.
            let least = sure - 3.0 * (sure * (1.0 - sure) / 1000.0).sqrt();
            assert!(
                has >= least,
                "{effect}, {blocks} blocks: {has}, said {sure}"
            );
        }
    }
    let few = |pairs: usize| {
        let of = vec![1.0; pairs];
        Ratio::of(&of, &of).expect("pairs").confidence
    };
    assert_eq!((few(1), few(2), few(5)), (0.0, 0.5, 0.9375));
    assert_eq!((few(6), few(8)), (1.0 - 1.0 / 32.0, 0.99));
}

#[test]
fn measuring_on_until_it_is_known_errs_no_more_than_is_said_and_finds_a_tenth() {
    const MOST: usize = 120;
    let alarms = share(1000, |run| {
        let ratio = Shared::new(run).until_known(MOST, 1.0).expect("a range");
        ratio.differs
    });
    assert!(alarms <= 0.02, "{alarms} false alarms");
    let (mut pairs, mut has) = (Vec::new(), 0);
    let finds = share(300, |run| {
        let ratio = Shared::new(run).until_known(MOST, 0.9).expect("a range");
        pairs.push(f64::from(ratio.pairs));
        has += u32::from((ratio.low..=ratio.high).contains(&0.9));
        ratio.differs && ratio.ratio < 1.0
    });
    println!(
        "alarms {alarms}, found {finds}, of 300 {has} right, {} pairs",
        median(&pairs)
    );
    assert!(finds >= 0.95, "a tenth is found in {finds}");
    assert!(has >= 292, "{has} of 300");
    // It ends when it knows.
    assert!(median(&pairs) < MOST as f64, "{}", median(&pairs));
}

#[test]
fn too_few_pairs_for_a_look_say_nothing() {
    let looks = Looks::up_to(60, 0.01);
    let (base, ours) = ([100.0; 12], [80.0; 12]);
    assert_eq!(Ratio::at_look(&base[..5], &ours[..5], &looks), None);
    let all = ([100.0; 30], [80.0; 30]);
    let known = Ratio::at_look(&all.0, &all.1, &looks).expect("enough");
    assert!(known.differs && known.is_within(1.0) && !known.is_within(-30.0));
    assert_eq!(
        known.words("b", "a"),
        "b is 0.80 x a (0.80-0.80 at 99 % over 30 interleaved pairs)"
    );
}

#[test]
fn of_many_pairs_an_outlier_does_not_rule() {
    let base = [100.0; 16];
    let mut ours = [
        80.0, 81.0, 79.0, 80.5, 80.2, 79.9, 80.1, 80.3, 80.0, 79.5, 80.6, 79.8, 80.4, 79.7, 80.7,
        79.4,
    ];
    let clean = Ratio::of(&base, &ours).expect("pairs");
    ours[6] = 50.0;
    let ratio = Ratio::of(&base, &ours).expect("pairs");
    assert!(
        ratio.low > 0.75 && ratio.high < 0.82 && (ratio.ratio - clean.ratio).abs() < 0.005,
        "{ratio:?}"
    );
    // Nothing was done at all: that is a ratio, too.
    ours[6] = 0.0;
    let ratio = Ratio::of(&base, &ours).expect("pairs");
    assert!(
        ratio.low > 0.75 && ratio.ratio > 0.79 && ratio.differs,
        "{ratio:?}"
    );
    let ratio = Ratio::of(&base, &[0.0; 16]).expect("pairs");
    assert!(ratio.high == 0.0 && ratio.differs, "{ratio:?}");
}

/// Of turns that did nothing on either side, those in which the base did something are no sample: with them alone, two
/// equal sides were told apart, for sure.
#[test]
fn turns_in_which_the_base_did_nothing_leave_no_verdict() {
    let (base, ours) = ([4080.0, 40040.0, 0.0, 0.0, 0.0, 0.0], [0.0; 6]);
    let ratio = Ratio::of(&base, &ours).expect("pairs");
    assert!(
        !ratio.differs && ratio.noisy && ratio.chance.is_none(),
        "{ratio:?}"
    );
    let words = ratio.words("remote", "local");
    assert!(words.contains("varies as much"), "{words}");
    // A side that does nothing beside one that always does something is told.
    let ratio = Ratio::of(&[4000.0, 4010.0, 4020.0], &[0.0; 3]).expect("pairs");
    assert!(ratio.differs && ratio.chance.is_some(), "{ratio:?}");
}
