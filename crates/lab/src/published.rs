//! The published figures (`published/*.csv` at the root of the tree), joined to cells by key.

use std::collections::HashMap;

use csv::StringRecord;

use crate::result::{PublishedFigures, RunResult};
use crate::units::parse_block;
use crate::{CellSpec, LabError, Pattern};

const NVMEOF: &str = include_str!("../../../published/nvmeof_local_vs_remote_sweep.csv");
const SCALING: &str = include_str!("../../../published/virtual_device_scaling.csv");
const VSAN: &str = include_str!("../../../published/vsan_vs_s2d.csv");

/// More than this off Little's law is no rounding.
const OFF: f64 = 0.25;

/// A published table that a scenario can stand beside.
pub(crate) struct Published {
    figures: HashMap<(String, CellSpec), PublishedFigures>,
}

impl Published {
    /// The table in `published/<file>`.
    pub(crate) fn table(file: &str) -> Result<Self, LabError> {
        let figures = match file {
            "nvmeof_local_vs_remote_sweep.csv" => collect(NVMEOF, nvmeof_row),
            "virtual_device_scaling.csv" => collect(SCALING, scaling_row),
            "vsan_vs_s2d.csv" => collect(VSAN, vsan_row),
            _ => {
                return Err(LabError::usage(format!(
                    "published = {file:?}: sweeps are published in nvmeof_local_vs_remote_sweep.csv, \
                     virtual_device_scaling.csv and vsan_vs_s2d.csv"
                )));
            }
        };
        let mut table = Self { figures: figures? };
        table.mark_contradictions();
        Ok(table)
    }

    /// What was published for `cell` on the configuration that the table calls `name`.
    pub(crate) fn find(&self, name: &str, cell: &CellSpec) -> Option<&PublishedFigures> {
        let of = |name: String| self.figures.get(&(name, *cell));
        // One client alone is a table of its own.
        of(name.to_owned()).or_else(|| of(format!("{name}_1vm")))
    }

    /// Marks cells whose IOPS times latency is not what other rows of the same configuration have for each access in
    /// flight: as many clients as there were.
    fn mark_contradictions(&mut self) {
        let clients = |cell: &CellSpec, of: &PublishedFigures| {
            let in_flight = of.iops * of.latency_us / 1e6;
            in_flight / f64::from(cell.threads * cell.depth)
        };
        let mut all: HashMap<String, Vec<f64>> = HashMap::new();
        for ((name, cell), of) in &self.figures {
            all.entry(name.clone()).or_default().push(clients(cell, of));
        }
        for ((name, cell), of) in &mut self.figures {
            let usual = all.get(name).map_or(0.0, |all| crate::stats::median(all));
            of.contradicts = usual > 0.0 && (clients(cell, of) / usual - 1.0).abs() > OFF;
        }
    }

    /// Puts the published figures beside ours; `names` are the table's names of the result's
    /// configurations.
    pub(crate) fn join(&self, result: &mut RunResult, names: &[Option<String>]) {
        let base = names.first().cloned().flatten();
        for (configuration, name) in result.configurations.iter_mut().zip(names) {
            let Some(name) = name else { continue };
            for cell in &mut configuration.cells {
                let spec = cell.spec();
                let mut figures = self.find(name, &spec).cloned();
                let first = base.as_ref().and_then(|base| self.find(base, &spec));
                if let (Some(figures), Some(first)) = (&mut figures, first) {
                    figures.pct_of_first = Some(100.0 * figures.iops / first.iops);
                    figures.latency_pct_of_first =
                        Some(100.0 * figures.latency_us / first.latency_us);
                    figures.contradicts |= first.contradicts;
                }
                cell.published = figures;
            }
        }
    }
}

type Entry = ((String, CellSpec), PublishedFigures);

fn collect(
    text: &str,
    row: fn(&StringRecord) -> Option<Vec<Entry>>,
) -> Result<HashMap<(String, CellSpec), PublishedFigures>, LabError> {
    let mut figures = HashMap::new();
    for record in csv::Reader::from_reader(text.as_bytes()).records() {
        let record = record.map_err(|error| LabError::caused("published figures", error))?;
        figures.extend(row(&record).unwrap_or_default());
    }
    Ok(figures)
}

fn number<T: std::str::FromStr>(record: &StringRecord, column: usize) -> Option<T> {
    record.get(column)?.trim().parse().ok()
}

/// Figures from three columns: IOPS, MiB/s, milliseconds.
fn figures(record: &StringRecord, column: usize) -> Option<PublishedFigures> {
    Some(PublishedFigures {
        iops: number(record, column)?,
        mib_s: number(record, column + 1)?,
        latency_us: number::<f64>(record, column + 2)? * 1000.0,
        iops_per_cpu_pct: None,
        pct_of_first: None,
        latency_pct_of_first: None,
        contradicts: false,
    })
}

fn nvmeof_row(record: &StringRecord) -> Option<Vec<Entry>> {
    let pattern = match record.get(1)? {
        "seqrw" => Pattern::Rw,
        name => name.parse().ok()?,
    };
    let cell = CellSpec {
        pattern,
        read_pct: number(record, 2)?,
        block_bytes: parse_block(record.get(3)?).ok()?,
        threads: number(record, 4)?,
        depth: number(record, 5)?,
        sync: false,
    };
    Some(vec![
        (("local".to_owned(), cell), figures(record, 6)?),
        (("remote".to_owned(), cell), figures(record, 9)?),
    ])
}

fn scaling_row(record: &StringRecord) -> Option<Vec<Entry>> {
    let cell = CellSpec {
        pattern: Pattern::RandRead,
        read_pct: 100,
        block_bytes: parse_block(record.get(1)?).ok()?,
        threads: number(record, 2)?,
        depth: number(record, 3)?,
        sync: false,
    };
    Some(vec![(
        (record.get(0)?.to_owned(), cell),
        figures(record, 4)?,
    )])
}

/// `4k random read/write 70/30`, `1M write`: block, order, kind, mix.
fn vsan_row(record: &StringRecord) -> Option<Vec<Entry>> {
    let text = record.get(1)?;
    let (block, kind) = text.split_once(' ')?;
    let (pattern, read_pct) = match kind.split(['(', ' ']).take(2).collect::<Vec<_>>()[..] {
        ["random", "read"] => (Pattern::RandRead, 100),
        ["random", "write"] => (Pattern::RandWrite, 0),
        ["random", "read/write"] => (Pattern::RandRw, 70),
        ["read", ..] => (Pattern::Read, 100),
        ["write", ..] => (Pattern::Write, 0),
        _ => return None,
    };
    let cell = CellSpec {
        pattern,
        read_pct,
        block_bytes: parse_block(block).ok()?,
        threads: number(record, 2)?,
        depth: number(record, 3)?,
        sync: text.contains("synchronous"),
    };
    let figures = PublishedFigures {
        iops_per_cpu_pct: number(record, 8),
        ..figures(record, 4)?
    };
    Some(vec![((record.get(0)?.to_owned(), cell), figures)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(pattern: Pattern, read_pct: u8, block: &str, threads: u32, depth: u32) -> CellSpec {
        let block_bytes = parse_block(block).expect("a block");
        CellSpec {
            pattern,
            read_pct,
            block_bytes,
            threads,
            depth,
            sync: false,
        }
    }

    #[test]
    fn every_row_has_a_key() {
        let count = |file| Published::table(file).expect("a table").figures.len();
        assert_eq!(
            count("nvmeof_local_vs_remote_sweep.csv"),
            2 * (NVMEOF.lines().count() - 1)
        );
        assert_eq!(
            count("virtual_device_scaling.csv"),
            SCALING.lines().count() - 1
        );
        assert_eq!(count("vsan_vs_s2d.csv"), VSAN.lines().count() - 1);
        assert!(Published::table("flash_cache.csv").is_err());
    }

    #[test]
    fn cells_that_contradict_themselves_are_marked() {
        let of = |file, name, cell: &CellSpec| {
            let table = Published::table(file).expect("a table");
            table.find(name, cell).expect("a row").contradicts
        };
        let sweep = "nvmeof_local_vs_remote_sweep.csv";
        // 16 in flight at 452,210 a second are 35 us each, and 26 are printed: so are 177 % for the remote side.
        let first = cell(Pattern::RandRead, 100, "8k", 4, 4);
        assert!(of(sweep, "local", &first) && !of(sweep, "remote", &first));
        let table = Published::table(sweep).expect("a table");
        let count = table.figures.values().filter(|of| of.contradicts).count();
        assert_eq!(count, 3);
        let table = Published::table("vsan_vs_s2d.csv").expect("a table");
        let marked = table.figures.iter().filter(|(_, of)| of.contradicts);
        assert!(marked.count() >= 4);
    }

    #[test]
    fn figures_are_found_by_key() {
        let table = Published::table("nvmeof_local_vs_remote_sweep.csv").expect("a table");
        let found = table
            .find("remote", &cell(Pattern::Rw, 60, "60k", 1, 4))
            .expect("a row");
        assert_eq!((found.iops, found.mib_s), (76590.0, 4488.0));
        assert!((found.latency_us - 52.0).abs() < 1e-9);
        let table = Published::table("vsan_vs_s2d.csv").expect("a table");
        let found = table.find("single_drive", &cell(Pattern::RandRw, 70, "4k", 6, 16));
        assert_eq!(found.map(|f| f.iops), Some(531_000.0));
        let found = table.find("vsan_mirror_raid5", &cell(Pattern::RandRw, 70, "4k", 3, 2));
        assert_eq!(found.map(|f| f.iops), Some(241_500.0));
        assert!(found.is_some_and(|f| f.iops_per_cpu_pct.is_some()));
    }
}
