//! Whether ratios to what is the 100 % are what a scenario claims of them, whatever was measured.

use crate::result::Check;
use crate::stats::{Ratio, median};

/// What is claimed of ratios.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
}

/// A ratio, and of what.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The cell: `randwrite-64k-t3-d8`, `8 users`.
    pub cell: String,
    pub ratio: Ratio,
}

impl Bounds {
    /// Whether the claim `name` holds of all, which are ratios to `base`: unless one is surely beyond it.
    pub fn judge(&self, name: String, base: &str, all: &[Claimed]) -> Check {
        let (passed, text) = match all.is_empty() {
            true => (false, "not measured".to_owned()),
            false => self.told(base, all),
        };
        Check { name, passed, text }
    }

    fn told(&self, base: &str, all: &[Claimed]) -> (bool, String) {
        let values: Vec<f64> = all.iter().map(|of| of.ratio.ratio).collect();
        let asked = [("at least", self.at_least), ("at most", self.at_most)];
        let asked = asked
            .iter()
            .filter_map(|(words, of)| Some(format!(", {words} {:.2} is claimed", (*of)?)));
        let range = match values.len() {
            1 => "one cell".to_owned(),
            cells => format!(
                "median of {cells} cells, {:.2} to {:.2}",
                values.iter().copied().fold(f64::INFINITY, f64::min),
                values.iter().copied().fold(0.0, f64::max)
            ),
        };
        let mut text = format!(
            "{:.2} x {base} ({range}){}",
            median(&values),
            asked.collect::<String>()
        );
        if all.iter().all(|of| of.ratio.pairs < 2) {
            text += ", which one repeat cannot judge";
        }
        let beyond: Vec<&Claimed> = all.iter().filter(|of| self.is_beyond(&of.ratio)).collect();
        for of in &beyond {
            text += &format!("; {} {:.2} MISSED", of.cell, of.ratio.ratio);
        }
        (beyond.is_empty(), text)
    }

    fn is_beyond(&self, ratio: &Ratio) -> bool {
        // One pair says nothing of how far a ratio wanders.
        let (low, high) = match ratio.pairs {
            0 | 1 => (0.0, f64::INFINITY),
            _ => (ratio.low, ratio.high),
        };
        self.at_least.is_some_and(|least| high < least)
            || self.at_most.is_some_and(|most| low > most)
    }
}
