//! What a table of cells has besides its main figures, folded away: percentiles and processors, reads and writes of
//! mixed loads, and what was published, as it was.

use maud::{Markup, html};

use crate::CellSpec;
use crate::result::{Apart, CellResult, RunResult};
use crate::units::{grouped, short_bytes};

/// A table with the same columns for each configuration.
struct Folded {
    title: &'static str,
    columns: &'static [&'static str],
    row: fn(&CellResult) -> Vec<String>,
    note: &'static str,
}

const FOLDED: [Folded; 3] = [
    Folded {
        title: "Percentiles, and IOPS for 1 % of the processors",
        columns: &[
            "p50",
            "p95",
            "p99",
            "p99.9",
            "p99.99",
            "p99.999",
            "max",
            "> 100 ms",
            "CPU %",
            "storage CPU %",
            "IOPS / 1 % CPU",
            "IOPS / 1 % storage CPU",
        ],
        row: percentiles,
        note: "> 100 ms: how many accesses of all repeats took longer. Storage CPU is what the machine used besides the load's own threads and other processes: servers, \
               daemons, the kernel's part. What a device costs that the load opens itself is the load's.",
    },
    Folded {
        title: "Reads and writes apart",
        columns: &[
            "reads/s", "mean", "p95", "p99", "p99.9", "p99.99", "p99.999", "writes/s", "mean",
            "p95", "p99", "p99.9", "p99.99", "p99.999",
        ],
        row: apart,
        note: "Medians over repeats, latency in microseconds.",
    },
    Folded {
        title: "Published figures, of their hardware",
        columns: &[
            "IOPS",
            "published",
            "MiB/s",
            "published",
            "mean us",
            "published",
            "published % lat",
            "IOPS / 1 % CPU",
            "published",
        ],
        row: published,
        note: "Compare how they grow, and the shares of the first configuration; the published % lat is of latency. IOPS for 1 % of the processors are of \
               the storage; those that were published are of a node that has clients, too.",
    },
];

/// All tables of these cells that have something to tell.
pub(super) fn folds(result: &RunResult, cells: &[CellSpec]) -> Markup {
    html! {
        @for folded in &FOLDED {
            @let has_any = result.configurations.iter().any(|of| {
                of.cells.iter().filter(|cell| cells.contains(&cell.spec())).any(|cell| !(folded.row)(cell).is_empty())
            });
            @if has_any {
                details {
                    summary { (folded.title) }
                    div.scroll { (folded.table(result, cells)) }
                    p.note { (folded.note) }
                }
            }
        }
    }
}

impl Folded {
    fn table(&self, result: &RunResult, cells: &[CellSpec]) -> Markup {
        html! {
            table.figures {
                thead {
                    tr.names {
                        th colspan="3" {}
                        @for (index, configuration) in result.configurations.iter().enumerate() {
                            th.edge colspan=(self.columns.len()) {
                                span class={ "dot s" (index % 6) } {} (configuration.name)
                            }
                        }
                    }
                    tr {
                        th { "block" } th { "threads" } th { "depth" }
                        @for _ in &result.configurations {
                            @for (index, column) in self.columns.iter().enumerate() { th.edge[index == 0] { (column) } }
                        }
                    }
                }
                tbody {
                    @for spec in cells {
                        tr {
                            td.key { (short_bytes(u64::from(spec.block_bytes))) }
                            td.key { (spec.threads) } td.key { (spec.depth) }
                            @for configuration in &result.configurations {
                                (self.figures(configuration.cells.iter().find(|cell| cell.spec() == *spec)))
                            }
                        }
                    }
                }
            }
        }
    }

    fn figures(&self, cell: Option<&CellResult>) -> Markup {
        let figures = cell.map(self.row).unwrap_or_default();
        html! {
            @if figures.is_empty() {
                @for index in 0..self.columns.len() { td.edge[index == 0] { @if cell.is_none() { "-" } } }
            }
            @for (index, figure) in figures.iter().enumerate() {
                td.edge[index == 0].published[self.columns[index].starts_with("published")] { (figure) }
            }
        }
    }
}

fn percentiles(cell: &CellResult) -> Vec<String> {
    let of = &cell.latency_us;
    let stalled: u64 = cell.repeats.iter().map(|repeat| repeat.stalled).sum();
    let pct = |pct: Option<f64>| or_nothing(pct, |pct| format!("{pct:.0}"));
    vec![
        us(of.p50),
        us(of.p95),
        us(of.p99),
        us(of.p999),
        told(of.p9999),
        told(of.p99999),
        told(of.max),
        grouped(stalled as f64),
        pct(cell.cpu_pct),
        pct(cell.storage_cpu_pct),
        or_nothing(cell.iops_per_cpu_pct, grouped),
        or_nothing(cell.iops_per_storage_cpu_pct, grouped),
    ]
}

fn apart(cell: &CellResult) -> Vec<String> {
    let (Some(reads), Some(writes)) = (&cell.reads, &cell.writes) else {
        return Vec::new();
    };
    let of = |of: &Apart| {
        let latency = &of.latency_us;
        [
            grouped(of.per_s),
            us(latency.mean),
            us(latency.p95),
            us(latency.p99),
            us(latency.p999),
            told(latency.p9999),
            told(latency.p99999),
        ]
    };
    [of(reads), of(writes)].concat()
}

fn published(cell: &CellResult) -> Vec<String> {
    let Some(theirs) = &cell.published else {
        return Vec::new();
    };
    let mark = if theirs.contradicts { "\u{2020}" } else { "" };
    vec![
        grouped(cell.iops),
        grouped(theirs.iops),
        grouped(cell.mib_s),
        grouped(theirs.mib_s),
        us(cell.latency_us.mean),
        us(theirs.latency_us),
        or_nothing(theirs.latency_pct_of_first, |pct| format!("{pct:.0}{mark}")),
        or_nothing(cell.iops_per_storage_cpu_pct, grouped),
        or_nothing(theirs.iops_per_cpu_pct, grouped),
    ]
}

fn or_nothing(value: Option<f64>, words: impl Fn(f64) -> String) -> String {
    value.map_or_else(String::new, words)
}

/// A percentile that older results do not have.
fn told(value: f64) -> String {
    match value > 0.0 {
        true => us(value),
        false => "-".to_owned(),
    }
}

pub(super) fn us(us: f64) -> String {
    if us < 100.0 {
        format!("{us:.1}")
    } else {
        grouped(us)
    }
}
