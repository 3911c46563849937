//! A scenario that tests the statistics (`self_test`): whether its comparisons say what they must.

use ashlar_lab::result::Check;

use super::compared::{Compared, RUN_TIME};

/// What the comparisons of one configuration with the same again, and with itself slowed down on purpose, must
/// say: nothing of the one, and that the other is slower.
pub(super) fn checks(comparisons: &[Compared]) -> Vec<Check> {
    let of = |differ_in: &str, name: &str, is_right: &dyn Fn(&Compared) -> bool| {
        let found = comparisons.iter().filter(|of| of.differ_in == differ_in);
        let found: Vec<&Compared> = found.collect();
        let wrong: Vec<&str> = found
            .iter()
            .filter(|of| !is_right(of))
            .map(|of| &*of.text)
            .collect();
        let told = match (found.is_empty(), wrong.is_empty()) {
            (true, _) => vec!["it was not compared"],
            (_, true) => found.iter().map(|of| &*of.text).collect(),
            (_, false) => wrong.clone(),
        };
        Check {
            name: name.to_owned(),
            passed: !found.is_empty() && wrong.is_empty(),
            text: told.join("; "),
        }
    };
    vec![
        of("nothing", "the same again is told as the same", &|of| {
            !of.ratio.differs
        }),
        of("slow_down", "what is slowed down is found", &|of| {
            of.ratio.differs && is_slower(of)
        }),
    ]
}

/// Slower is fewer new orders a minute, and more seconds.
fn is_slower(of: &Compared) -> bool {
    match &*of.figure {
        RUN_TIME => of.ratio.ratio > 1.0,
        _ => of.ratio.ratio < 1.0,
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::stats::Ratio;

    use super::*;

    fn of(differ_in: &str, ours: [f64; 4]) -> Compared {
        let ratio = Ratio::of(&[100.0, 101.0, 100.5, 99.5], &ours).expect("pairs");
        Compared {
            differ_in: differ_in.into(),
            figure: "nopm".into(),
            base: "a".into(),
            ours: "b".into(),
            users: 8,
            users_as_written: 8,
            text: ratio.words("b", "a"),
            ratio,
            published: None,
        }
    }

    #[test]
    fn a_report_that_does_not_say_what_it_must_fails() {
        let same = of("nothing", [100.2, 100.8, 100.6, 99.4]);
        let slow = of("slow_down", [90.0, 91.0, 90.2, 89.9]);
        let passed = |all: &[Compared]| -> Vec<bool> {
            checks(all).iter().map(|check| check.passed).collect()
        };
        assert_eq!(passed(&[same.clone(), slow.clone()]), [true, true]);
        let told = of("nothing", [80.0, 81.0, 80.2, 80.1]);
        assert_eq!(passed(&[told, slow]), [false, true]);
        let missed = of("slow_down", [99.0, 102.0, 100.0, 99.9]);
        assert_eq!(passed(&[same.clone(), missed]), [true, false]);
        let faster = of("slow_down", [120.0, 121.0, 120.2, 120.1]);
        assert_eq!(passed(&[same.clone(), faster]), [true, false]);
        // Of fixed work the run time is told: the other way round.
        let timed = |ours| Compared {
            figure: RUN_TIME.into(),
            ..of("slow_down", ours)
        };
        let slow = timed([120.0, 121.0, 120.2, 120.1]);
        assert_eq!(passed(&[same.clone(), slow]), [true, true]);
        let quick = timed([90.0, 91.0, 90.2, 89.9]);
        assert_eq!(passed(&[same.clone(), quick]), [true, false]);
        let found = checks(&[same]);
        assert!(!found[1].passed && found[1].text == "it was not compared");
    }
}
