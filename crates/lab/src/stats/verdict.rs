//! What ratios say, in a word or two: of one question, and of several of one kind.

use super::{Ratio, median};

/// What a ratio is of: the words that say which way it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Of an amount: accesses a second, new orders a minute.
    Amount,
    /// Of a time: how long work took.
    Time,
}

impl Measure {
    const fn below(self) -> &'static str {
        match self {
            Self::Amount => "less",
            Self::Time => "shorter",
        }
    }

    const fn above(self) -> &'static str {
        match self {
            Self::Amount => "more",
            Self::Time => "longer",
        }
    }
}

/// The words for a ratio of 1, as far as it was measured.
const SAME: &str = "no difference beyond the noise";

impl Ratio {
    /// What it says.
    pub fn verdict(&self, of: Measure) -> String {
        if self.pairs < 2 {
            return "one pair: nothing to judge by".into();
        }
        if self.is_by_chance() {
            return format!("unclear: some of {} differ so by chance", self.questions);
        }
        if !self.differs {
            return if self.low > 1.0 || self.high < 1.0 {
                "unclear: a side by itself varies as much".into()
            } else {
                match self.detectable() {
                    Some(percent) => format!("{SAME}: {percent} would have been found"),
                    None => SAME.into(),
                }
            };
        }
        let word = match self.ratio < 1.0 {
            true => of.below(),
            false => of.above(),
        };
        format!("{:.0} % {word}", 100.0 * (self.ratio - 1.0).abs())
    }
}

/// Several ratios of one kind, told together.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// Their middle, and the least and the greatest; the range of the only one.
    pub ratio: String,
    /// How many say what.
    pub verdict: String,
}

impl Together {
    /// Of these; each is called `one` (a cell, a number of users). `None` without any.
    pub fn of(ratios: &[&Ratio], of: Measure, one: &str) -> Option<Self> {
        if let [only] = ratios {
            let range = match only.pairs {
                0 | 1 => String::new(),
                _ => format!(" ({:.2} to {:.2})", only.low, only.high),
            };
            return Some(Self {
                ratio: format!("{:.2}{range}", only.ratio),
                verdict: only.verdict(of),
            });
        }
        let all: Vec<f64> = ratios.iter().map(|ratio| ratio.ratio).collect();
        let least = all.iter().copied().reduce(f64::min)?;
        let most = all.iter().copied().reduce(f64::max)?;
        let ratio = format!(
            "{:.2} ({least:.2} to {most:.2} of {} {one}s)",
            median(&all),
            all.len()
        );
        Some(Self {
            ratio,
            verdict: counted(ratios, of),
        })
    }
}

fn counted(ratios: &[&Ratio], of: Measure) -> String {
    let count = |wanted: &dyn Fn(&Ratio) -> bool| ratios.iter().filter(|of| wanted(of)).count();
    let single = count(&|ratio| ratio.pairs < 2);
    let below = count(&|ratio| ratio.differs && ratio.ratio < 1.0);
    let above = count(&|ratio| ratio.differs && ratio.ratio >= 1.0);
    let is_unclear =
        |ratio: &Ratio| ratio.pairs > 1 && !ratio.differs && (ratio.low > 1.0 || ratio.high < 1.0);
    let unclear = count(&is_unclear);
    let same = ratios.len() - single - below - above - unclear;
    let said = [
        (below, of.below()),
        (above, of.above()),
        (same, SAME),
        (unclear, "unclear"),
        (single, "one pair: nothing to judge by"),
    ];
    let all = ratios.len();
    let mut said = said.into_iter().filter(|(count, _)| *count > 0);
    match (said.next(), said.next()) {
        (Some((_, words)), None) => format!("{words} in all {all}"),
        (first, second) => {
            let told = first.into_iter().chain(second).chain(said);
            let told: Vec<String> = told
                .map(|(count, words)| format!("{words} in {count}"))
                .collect();
            format!("of {all}: {}", told.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(base: &[f64], ours: &[f64]) -> Ratio {
        Ratio::of(base, ours).expect("pairs")
    }

    const STEADY: [f64; 3] = [1000.0, 1001.0, 1002.0];

    #[test]
    fn a_verdict_says_which_way_and_whether_it_may() {
        let slower = of(&STEADY, &[810.0, 811.0, 812.0]);
        assert_eq!(slower.verdict(Measure::Amount), "19 % less");
        assert_eq!(slower.verdict(Measure::Time), "19 % shorter");
        let faster = of(&STEADY, &[1500.0, 1501.0, 1502.0]);
        assert_eq!(faster.verdict(Measure::Amount), "50 % more");
        assert_eq!(faster.verdict(Measure::Time), "50 % longer");
        let same = of(&STEADY, &[1002.0, 1000.0, 1001.0]);
        assert_eq!(same.verdict(Measure::Amount), SAME);
        let noisy = of(&[1000.0, 2000.0, 3000.0], &[900.0, 1800.0, 2700.0]);
        assert!(noisy.verdict(Measure::Amount).starts_with("unclear"));
        let one = of(&[1.0], &[2.0]);
        assert!(one.verdict(Measure::Amount).starts_with("one pair"));
    }

    #[test]
    fn several_are_counted_and_one_is_told_whole() {
        let slower = of(&STEADY, &[810.0, 811.0, 812.0]);
        let faster = of(&STEADY, &[1500.0, 1501.0, 1502.0]);
        let same = of(&STEADY, &[1002.0, 1000.0, 1001.0]);
        let told = |all: &[&Ratio]| Together::of(all, Measure::Amount, "cell").expect("some");
        let one = told(&[&slower]);
        assert_eq!(
            (&*one.ratio, &*one.verdict),
            ("0.81 (0.81 to 0.81)", "19 % less")
        );
        let many = told(&[&slower, &same, &faster, &slower]);
        assert_eq!(many.ratio, "0.90 (0.81 to 1.50 of 4 cells)");
        assert_eq!(
            many.verdict,
            format!("of 4: less in 2, more in 1, {SAME} in 1")
        );
        assert_eq!(told(&[&slower, &slower]).verdict, "less in all 2");
        assert_eq!(Together::of(&[], Measure::Amount, "cell"), None);
    }
}
