//! Two runs side by side, whatever they measured: a row for each cell that both have.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::result_file::ResultFile;
use crate::stats::{Ratio, correct, median};
use crate::units::{grouped, human_us};
use crate::{LabError, Machine};

/// The `schema` of `lab compare --json`.
const SCHEMA: &str = "ashlar-compare-1";
/// Told of two runs of which one did not reach its end.
pub const A_RUN_IS_PARTIAL: &str = "a run is partial";

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Accesses a second.
    Iops,
    /// New orders a minute.
    Nopm,
    /// Transactions a second.
    Tps,
    /// Seconds: less is better.
    RunTimeS,
    /// 95th percentile of new orders, from when they were due: less is better.
    NewOrderP95Us,
}

impl Figure {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::Nopm => "NOPM",
            Self::Tps => "TPS",
            Self::RunTimeS => "time s",
            Self::NewOrderP95Us => "p95 ms",
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Self::RunTimeS => format!("{value:.2}"),
            Self::NewOrderP95Us => format!("{:.2}", value / 1000.0),
            _ => grouped(value),
        }
    }

    /// What it is called between a ratio and its base, if it is a time.
    const fn time(self) -> Option<&'static str> {
        match self {
            Self::RunTimeS => Some("run time"),
            Self::NewOrderP95Us => Some("95th percentile"),
            _ => None,
        }
    }
}

/// A cell of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The configuration, of runs that have more than one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub configuration: String,
    /// The cell: `randread-4k-t1-d1`, `8 users`, `4 readers`.
    pub cell: String,
    /// What is compared.
    pub figure: Figure,
    /// Medians of the first run and of the second.
    pub medians: [f64; 2],
    /// A latency of both in microseconds: the mean of accesses, the 95th percentile of new orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<[f64; 2]>,
    /// The second to the first, repeat by repeat; null if the first did nothing.
    pub ratio: Option<Ratio>,
}

/// Figures of a cell in both runs: all of each, and those of repeats that both have.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Of the first run, of the second.
    pub all: [Vec<f64>; 2],
    pub pairs: (Vec<f64>, Vec<f64>),
}

impl Row {
    /// A row of these; none if one run has no figure.
    pub fn of(cell: String, figure: Figure, figures: &Figures) -> Option<Self> {
        let [first, second] = &figures.all;
        let (base, ours) = &figures.pairs;
        (!first.is_empty() && !second.is_empty()).then(|| Self {
            configuration: String::new(),
            cell,
            figure,
            medians: [median(first), median(second)],
            latency_us: None,
            ratio: Ratio::of(base, ours),
        })
    }

    /// With a latency beside it.
    #[must_use]
    pub fn with_latency(mut self, us: Option<[f64; 2]>) -> Self {
        self.latency_us = us;
        self
    }

    /// How good the second run is in terms of the first: more is better, whatever the figure.
    fn goodness(&self) -> Option<f64> {
        let ratio = self.ratio.as_ref()?.ratio;
        Some(match self.figure.time() {
            Some(_) => 1.0 / ratio,
            None => ratio,
        })
    }

    /// What the ratio is worth, in words; the pairs are repeats of two runs, not neighbours in one.
    pub fn told(&self, second: &str, first: &str) -> String {
        let Some(ratio) = &self.ratio else {
            return "nothing was done".to_owned();
        };
        let words = ratio.words(second, first);
        let words = words.replace("interleaved pairs", "pairs of repeats");
        match self.figure.time() {
            Some(time) => words.replacen(" x ", &format!(" x the {time} of "), 1),
            None => words,
        }
    }
}

/// A result that can stand beside another one of its kind.
pub trait Comparable: ResultFile {
    /// A row for each cell that both have.
    fn rows(&self, other: &Self) -> Vec<Row>;

    /// What makes the two hard to compare.
    fn cautions(&self, other: &Self) -> Vec<String>;

    /// What it has, for two that have nothing in common.
    fn contents(&self) -> String;
}

/// What two runs have in common, and how they differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    schema: &'static str,
    /// One for each cell that both have.
    pub rows: Vec<Row>,
    /// What makes the two hard to compare.
    pub cautions: Vec<String>,
}

impl Comparison {
    /// Compares two results.
    ///
    /// # Errors
    /// A usage error if no cell is in both.
    pub fn of<C: Comparable>(a: &C, b: &C) -> Result<Self, LabError> {
        Self::of_rows(a.rows(b), a.cautions(b)).ok_or_else(|| {
            let (a, b) = (a.contents(), b.contents());
            LabError::usage(format!("nothing is in both: {a} against {b}"))
        })
    }

    /// Of these rows, corrected for how many they are; none without any. A caution is said once.
    pub fn of_rows(mut rows: Vec<Row>, all: Vec<String>) -> Option<Self> {
        let mut ratios: Vec<&mut Ratio> =
            rows.iter_mut().filter_map(|r| r.ratio.as_mut()).collect();
        correct(&mut ratios);
        let mut cautions: Vec<String> = Vec::new();
        for caution in all {
            if !cautions.contains(&caution) {
                cautions.push(caution);
            }
        }
        (!rows.is_empty()).then_some(Self {
            schema: SCHEMA,
            rows,
            cautions,
        })
    }

    /// Compares the runs in two directories.
    ///
    /// # Errors
    /// Environment errors for what cannot be read; a usage error that names both if no cell is in both.
    pub fn load<C: Comparable + serde::de::DeserializeOwned>(
        first: &Path,
        second: &Path,
    ) -> Result<Self, LabError> {
        let (a, b) = (C::load(first)?, C::load(second)?);
        let named = |error| {
            let (first, second) = (first.display(), second.display());
            LabError::usage(format!("{first} and {second}: {error}"))
        };
        Self::of(&a, &b).map_err(named)
    }

    /// Rows in which the second run is worse than this share of the first, beyond the noise; in words.
    pub fn below(&self, share: f64) -> Vec<String> {
        let is_below = |row: &&Row| {
            let differs = row.ratio.as_ref().is_some_and(|ratio| ratio.differs);
            differs && row.goodness().is_some_and(|goodness| goodness < share)
        };
        let rows = self.rows.iter().filter(is_below);
        rows.map(|row| format!("{} {}", row.name(), row.told("the second", "the first")))
            .collect()
    }
}

impl Row {
    fn name(&self) -> String {
        match &*self.configuration {
            "" => format!("{}:", self.cell),
            configuration => format!("{configuration}, {}:", self.cell),
        }
    }
}

/// Says that something is not the same in two runs, if it is not.
pub fn differ(what: &str, a: impl fmt::Display, b: impl fmt::Display) -> Option<String> {
    let (a, b) = (a.to_string(), b.to_string());
    (a != b).then(|| format!("{what} differs: {a} against {b}"))
}

/// What makes any two runs hard to compare, whatever they measured.
pub fn machine_cautions(a: &Machine, b: &Machine) -> impl Iterator<Item = String> {
    let apart = "the runs were not interleaved: what changed on the machine between them counts";
    std::iter::once(apart.to_owned()).chain(a.differences(b))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = self.rows.iter().map(|row| row.cell.len() + 2).max();
        let wide = widest.unwrap_or(0).max(20);
        let mut head = None;
        for row in &self.rows {
            let Row {
                configuration,
                figure,
                ..
            } = row;
            if head != Some((configuration, figure)) {
                head = Some((configuration, figure));
                let (name, us) = (figure.name(), row.latency_us.map_or("", |_| "latency"));
                let (one, other) = (format!("{name} 1"), format!("{name} 2"));
                writeln!(f, "{configuration:<wide$} {one:>12} {other:>12} {us:>20}")?;
            }
            let [first, second] = row.medians.map(|value| figure.shown(value));
            let us = row.latency_us.map(|us| us.map(human_us).join(", "));
            writeln!(
                f,
                "  {:<w$} {first:>12} {second:>12} {:>20}  {}",
                row.cell,
                us.unwrap_or_default(),
                row.told("the second", "the first"),
                w = wide - 2
            )?;
        }
        let ratios: Vec<f64> = self
            .rows
            .iter()
            .filter_map(|r| Some(r.ratio.as_ref()?.ratio))
            .collect();
        if ratios.len() > 1 {
            let (count, middle) = (ratios.len(), median(&ratios));
            writeln!(f, "median of {count} ratios: {middle:.2}")?;
        }
        self.cautions
            .iter()
            .try_for_each(|caution| writeln!(f, "note: {caution}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figure: Figure, first: [f64; 3], second: [f64; 3]) -> Row {
        let figures = Figures {
            all: [first.to_vec(), second.to_vec()],
            pairs: (first.to_vec(), second.to_vec()),
        };
        Row::of("8 users".into(), figure, &figures).expect("figures")
    }

    fn below(rows: Vec<Row>, share: f64) -> usize {
        let mut rows = rows;
        correct(
            &mut rows
                .iter_mut()
                .filter_map(|r| r.ratio.as_mut())
                .collect::<Vec<_>>(),
        );
        let comparison = Comparison {
            schema: SCHEMA,
            rows,
            cautions: Vec::new(),
        };
        comparison.below(share).len()
    }

    #[test]
    fn worse_is_fewer_of_what_is_counted_and_longer_of_what_is_timed() {
        let base = [100.0, 101.0, 100.5];
        let less = base.map(|figure| figure * 0.9);
        let more = base.map(|figure| figure * 1.1);
        for figure in [Figure::Iops, Figure::Nopm, Figure::Tps] {
            assert_eq!(below(vec![row(figure, base, less)], 0.95), 1);
            assert_eq!(below(vec![row(figure, base, less)], 0.85), 0, "not so much");
            assert_eq!(below(vec![row(figure, base, more)], 0.95), 0, "better");
        }
        for time in [Figure::RunTimeS, Figure::NewOrderP95Us] {
            assert_eq!(below(vec![row(time, base, less)], 0.95), 0);
            assert_eq!(below(vec![row(time, base, more)], 0.95), 1);
        }
        let noise = [60.0, 140.0, 85.0];
        assert_eq!(
            below(vec![row(Figure::Iops, base, noise)], 0.95),
            0,
            "noise is no failure"
        );
    }
}
