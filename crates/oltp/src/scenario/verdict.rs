//! What a ratio says, in a word or two.

use ashlar_lab::stats::Ratio;

/// Of new orders more is better, of a run time less: the words say which it is.
pub(super) fn verdict(ratio: &Ratio, is_run_time: bool) -> String {
    if ratio.pairs < 2 {
        return "one pair: nothing to judge by".into();
    }
    if ratio.is_by_chance() {
        return format!("unclear: some of {} differ so by chance", ratio.questions);
    }
    if !ratio.differs {
        return if ratio.low > 1.0 || ratio.high < 1.0 {
            "unclear: a side by itself varies as much".into()
        } else {
            match ratio.detectable() {
                Some(percent) => {
                    format!("no difference beyond the noise: {percent} would have been found")
                }
                None => "no difference beyond the noise".into(),
            }
        };
    }
    let word = match (is_run_time, ratio.ratio < 1.0) {
        (false, true) => "less",
        (false, false) => "more",
        (true, true) => "shorter",
        (true, false) => "longer",
    };
    format!("{:.0} % {word}", 100.0 * (ratio.ratio - 1.0).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_which_way_and_whether_it_may() {
        let of = |base: &[f64], ours: &[f64]| Ratio::of(base, ours).expect("pairs");
        let steady = [1000.0, 1001.0, 1002.0];
        let slower = of(&steady, &[810.0, 811.0, 812.0]);
        assert_eq!(verdict(&slower, false), "19 % less");
        assert_eq!(verdict(&slower, true), "19 % shorter");
        let faster = of(&steady, &[1500.0, 1501.0, 1502.0]);
        assert_eq!(verdict(&faster, false), "50 % more");
        assert_eq!(verdict(&faster, true), "50 % longer");
        let same = of(&steady, &[1002.0, 1000.0, 1001.0]);
        assert_eq!(verdict(&same, false), "no difference beyond the noise");
        let noisy = of(&[1000.0, 2000.0, 3000.0], &[900.0, 1800.0, 2700.0]);
        assert!(verdict(&noisy, false).starts_with("unclear"));
        assert!(verdict(&of(&[1.0], &[2.0]), false).starts_with("one pair"));
    }
}
