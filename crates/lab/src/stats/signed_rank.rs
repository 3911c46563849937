//! An interval for the middle of differences by Wilcoxon's signed ranks (Hodges and Lehmann 1963; Tukey
//! 1949). It asks nothing of the noise but that a difference is as likely to be too large as too small,
//! which is so by construction where two things take turns in an order that is drawn at random.

/// More differences than this are averaged, neighbours together, until there are fewer: that keeps what the
/// interval needs, and the exact distribution affordable.
const MOST: usize = 256;

/// Where the middle of symmetric differences lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Middle {
    /// The median of all pairs' averages (Hodges and Lehmann's estimate).
    pub(super) estimate: f64,
    /// Lower end.
    pub(super) low: f64,
    /// Upper end.
    pub(super) high: f64,
}

/// The middle of `differences`, in an interval that misses it with a probability of at most `risk`. `None`
/// if there are too few for that: fewer than log2(2 / risk).
pub(super) fn middle(differences: &[f64], risk: f64) -> Option<Middle> {
    let mut values = differences.to_vec();
    while values.len() > MOST {
        values = values
            .chunks_exact(2)
            .map(|two| (two[0] + two[1]) / 2.0)
            .collect();
    }
    let cut = cut(values.len(), risk)?;
    let averages = averages(&values);
    Some(Middle {
        estimate: super::sorted_median(&averages),
        low: averages[cut],
        high: averages[averages.len() - 1 - cut],
    })
}

/// Walsh's averages: of every value with itself and every other, in order.
fn averages(values: &[f64]) -> Vec<f64> {
    let of = |(at, one): (usize, &f64)| {
        let (one, rest) = (*one, &values[at..]);
        rest.iter().map(move |other| (one + other) / 2.0)
    };
    let mut all: Vec<f64> = values.iter().enumerate().flat_map(of).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// How many averages are left out at either end: the largest k with P(sum of positive ranks <= k) at most
/// half of the risk.
fn cut(count: usize, risk: f64) -> Option<usize> {
    // probability[sum]: that the ranks 1 to n, each positive or not by a coin, have this sum.
    let most = count * (count + 1) / 2;
    let mut probability = vec![0.0; most + 1];
    probability[0] = 1.0;
    let mut reach = 0;
    for rank in 1..=count {
        reach += rank;
        for sum in (0..=reach).rev() {
            let with = if sum >= rank {
                probability[sum - rank]
            } else {
                0.0
            };
            probability[sum] = (probability[sum] + with) / 2.0;
        }
    }
    let mut below = 0.0;
    let within = probability.iter().take_while(|&&p| {
        below += p;
        below <= risk / 2.0
    });
    within.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_those_of_the_tables() {
        // Wilcoxon's critical values, two-sided 5 % and 1 %.
        for (count, five, one) in [
            (6, Some(0), None),
            (7, Some(2), None),
            (8, Some(3), Some(0)),
            (10, Some(8), Some(3)),
            (15, Some(25), Some(15)),
            (25, Some(89), Some(68)),
        ] {
            assert_eq!((cut(count, 0.05), cut(count, 0.01)), (five, one), "{count}");
        }
        assert_eq!((cut(0, 0.01), cut(5, 0.05)), (None, None));
    }

    #[test]
    fn the_middle_is_found_among_outliers() {
        let mut values: Vec<f64> = (0..21).map(f64::from).collect();
        values[20] = 1e9;
        let found = middle(&values, 0.01).expect("enough");
        assert_eq!(found.estimate, 10.0);
        assert!(found.low > 4.0 && found.high < 17.0, "{found:?}");
        let many: Vec<f64> = (0..1000).map(|i| f64::from(i % 10)).collect();
        let found = middle(&many, 0.01).expect("enough");
        assert!((found.estimate - 4.5).abs() < 0.01, "{found:?}");
    }
}
