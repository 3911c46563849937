//! Measuring on until it is known well enough, and still being right as often as is said: every look at the
//! figures may err, so each gets a share of the error that is allowed in all.

/// When to look, and what each look may spend.
#[derive(Clone, Debug, PartialEq)]
pub struct Looks {
    /// Pairs at each look, ascending.
    at: Vec<usize>,
    risk: f64,
}

/// Each look has this many times the pairs of the one before.
const GROWTH: f64 = 1.35;
/// Fewer pairs say nothing at the risk of a first look.
const FEWEST: usize = 12;

impl Looks {
    /// Looks at up to `most` pairs that are wrong together with a probability of at most `risk`.
    pub fn up_to(most: usize, risk: f64) -> Self {
        let mut at = vec![most];
        let mut pairs = FEWEST as f64;
        while (pairs as usize) < most {
            at.insert(at.len() - 1, pairs as usize);
            pairs *= GROWTH;
        }
        // The last two need not be neighbours' neighbours.
        if let [.., before, last] = at[..]
            && (before as f64) > last as f64 / GROWTH.sqrt()
        {
            at.remove(at.len() - 2);
        }
        Self { at, risk }
    }

    /// Whether it is time to look.
    pub fn is_at(&self, pairs: usize) -> bool {
        self.at.contains(&pairs)
    }

    /// The probability of error in all.
    pub fn risk(&self) -> f64 {
        self.risk
    }

    /// What a look at so many pairs may spend. By then looks have spent the square of the share of pairs
    /// (Lan and DeMets 1983, with a power of 2): little early, when little is known. The shares add up to
    /// the risk in all whatever the looks have in common (Bonferroni).
    ///
    /// A run that ended before a look has its share to spend.
    pub fn share(&self, pairs: usize) -> f64 {
        let most = self.at.last().copied().unwrap_or(1).max(1) as f64;
        let spent = |pairs: usize| (pairs as f64 / most).min(1.0).powi(2);
        let next = self
            .at
            .iter()
            .position(|&at| at >= pairs)
            .unwrap_or(self.at.len() - 1);
        let before = next
            .checked_sub(1)
            .map_or(0.0, |before| spent(self.at[before]));
        self.risk * (spent(self.at[next]) - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for most in [1, 5, 12, 13, 60, 200] {
            let looks = Looks::up_to(most, 0.01);
            assert!(
                looks.is_at(most) && looks.at.is_sorted_by(|a, b| a < b),
                "{looks:?}"
            );
            let all: f64 = looks.at.iter().map(|&pairs| looks.share(pairs)).sum();
            assert!((all - looks.risk()).abs() < 1e-12, "{looks:?}: {all}");
        }
        let looks = Looks::up_to(60, 0.01);
        assert_eq!(looks.at, [12, 16, 21, 29, 39, 60]);
        assert_eq!(looks.share(30), looks.share(39), "ended between two looks");
        assert!(looks.share(12) < looks.share(60));
    }
}
