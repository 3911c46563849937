//! Two runs side by side.

use std::fmt;
use std::path::Path;

use crate::plan::is_label;
use crate::result::{ConfigurationResult, RunResult};
use crate::stats::{Ratio, median};
use crate::units::grouped;
use crate::{CellSpec, LabError, Machine};

/// What two runs have in common, and how they differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// One entry for every cell that both have.
    pub cells: Vec<ComparedCell>,
    /// What makes the two hard to compare: other machines, other methods.
    pub cautions: Vec<String>,
}

/// A cell of both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedCell {
    /// Name of the configuration in the first run.
    pub configuration: String,
    /// The cell.
    pub cell: CellSpec,
    /// Median IOPS in the first run and in the second.
    pub iops: (f64, f64),
    /// Mean latency in microseconds in the first run and in the second.
    pub latency_us: (f64, f64),
    /// The second to the first, repeat by repeat; `None` if the first did nothing.
    pub ratio: Option<Ratio>,
}

/// Compares the runs in two directories: configurations of the same name, or, if no name is
/// common, of the same position.
///
/// # Errors
/// Environment errors for what cannot be read; a usage error if no cell is common.
pub fn compare(first: &Path, second: &Path) -> Result<Comparison, LabError> {
    let (a, b) = (RunResult::load(first)?, RunResult::load(second)?);
    let mut cells = Vec::new();
    for (ours, theirs) in partners(&a, &b) {
        for cell in &ours.cells {
            let Some(other) = theirs.cells.iter().find(|c| c.spec() == cell.spec()) else {
                continue;
            };
            cells.push(ComparedCell {
                configuration: ours.name.clone(),
                cell: cell.spec(),
                iops: (cell.iops, other.iops),
                latency_us: (cell.latency_us.mean, other.latency_us.mean),
                ratio: {
                    let (base, ours) = cell.pairs(other);
                    Ratio::of(&base, &ours)
                },
            });
        }
    }
    if cells.is_empty() {
        return Err(LabError::usage(format!(
            "{} and {} have no cell in common",
            first.display(),
            second.display()
        )));
    }
    Ok(Comparison {
        cells,
        cautions: cautions(&a, &b),
    })
}

type Pair<'a> = (&'a ConfigurationResult, &'a ConfigurationResult);

fn partners<'a>(a: &'a RunResult, b: &'a RunResult) -> Vec<Pair<'a>> {
    let named: Vec<Pair<'a>> = a
        .configurations
        .iter()
        .filter_map(|one| Some((one, b.configurations.iter().find(|o| o.name == one.name)?)))
        .collect();
    if named.is_empty() {
        a.configurations.iter().zip(&b.configurations).collect()
    } else {
        named
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

fn cautions(a: &RunResult, b: &RunResult) -> Vec<String> {
    let (m, n) = (&a.method, &b.method);
    let method = [
        differ("size", m.size_bytes, n.size_bytes),
        differ("seconds", m.seconds, n.seconds),
        differ("sync", m.sync, n.sync),
        differ("verify", m.verify, n.verify),
        differ("rate", format!("{:?}", m.rate), format!("{:?}", n.rate)),
        (a.partial || b.partial).then(|| "a run is partial".to_owned()),
    ];
    let devices = partners(a, b).into_iter();
    let devices = devices.filter(|(ours, theirs)| is_label(&ours.name) && ours.name == theirs.name);
    let devices = devices.filter_map(|(ours, theirs)| differ(&ours.name, &ours.spec, &theirs.spec));
    machine_cautions(&a.machine, &b.machine)
        .chain(method.into_iter().flatten())
        .chain(devices)
        .collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>12} {:>12} {:>9} {:>9} {:>7}  range",
            "cell", "IOPS 1", "IOPS 2", "us 1", "us 2", "2/1"
        )?;
        let mut name = None;
        for cell in &self.cells {
            if name != Some(&cell.configuration) {
                name = Some(&cell.configuration);
                writeln!(f, "{}", cell.configuration)?;
            }
            let (ratio, range) = cell.ratio.as_ref().map_or_else(Default::default, |ratio| {
                let told = if ratio.differs {
                    ""
                } else {
                    "  within the noise"
                };
                let range = format!("{:.2}-{:.2}{told}", ratio.low, ratio.high);
                (format!("{:.2}", ratio.ratio), range)
            });
            writeln!(
                f,
                "  {:<26} {:>12} {:>12} {:>9.1} {:>9.1} {ratio:>7}  {range}",
                cell.cell.slug(),
                grouped(cell.iops.0),
                grouped(cell.iops.1),
                cell.latency_us.0,
                cell.latency_us.1,
            )?;
        }
        let ratios: Vec<f64> = self
            .cells
            .iter()
            .filter_map(|c| c.ratio.as_ref())
            .map(|r| r.ratio)
            .collect();
        writeln!(
            f,
            "median over {} cells: {:.2}",
            ratios.len(),
            median(&ratios)
        )?;
        self.cautions
            .iter()
            .try_for_each(|caution| writeln!(f, "note: {caution}"))
    }
}
