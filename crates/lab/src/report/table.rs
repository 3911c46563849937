//! The tables, in the papers' layout: rows block x threads x depth, columns for each
//! configuration, the share of the first, and the published share beside it.

use maud::{Markup, html};

use super::more::{self, us};
use crate::CellSpec;
use crate::result::{CellResult, RunResult};
use crate::units::{grouped, short_bytes};

/// Cells that stand in one table.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) cells: Vec<CellSpec>,
}

/// The tables: one for every pattern and role, in the order in which they were measured.
pub(super) fn groups(result: &RunResult) -> Vec<Table> {
    let mut groups: Vec<Table> = Vec::new();
    for cell in result.configurations.iter().flat_map(|c| &c.cells) {
        let (title, spec) = (title(cell), cell.spec());
        match groups.iter_mut().find(|table| table.title == title) {
            Some(table) if table.cells.contains(&spec) => {}
            Some(table) => table.cells.push(spec),
            None => groups.push(Table {
                title,
                cells: vec![spec],
            }),
        }
    }
    groups
}

/// All of them.
pub(super) fn tables(result: &RunResult) -> Markup {
    let mut published = result.configurations.iter().flat_map(|of| &of.cells);
    let any_contradicts = published.any(contradicts);
    html! {
        section {
            h2 { "Tables" }
            p.note {
                "Latency in microseconds. % is the median ratio of interleaved pairs to the first "
                "configuration's IOPS; % MiB/s and % lat are of medians (of latency, more is worse). A red dot marks "
                "a cell with a flag: see the list below."
                @if any_contradicts {
                    " \u{2020} marks published figures that contradict themselves: IOPS times latency is more than a "
                    "quarter off the accesses in flight that the other rows have, or what they are divided by is."
                }
            }
            @for table in groups(result) {
                h3 { (table.title) }
                div.scroll { (one(result, &table.cells)) }
                (more::folds(result, &table.cells))
            }
        }
    }
}

fn title(cell: &CellResult) -> String {
    let kind = match cell.pattern {
        crate::Pattern::RandRead => "Random read".to_owned(),
        crate::Pattern::RandWrite => "Random write".to_owned(),
        crate::Pattern::Read => "Sequential read".to_owned(),
        crate::Pattern::Write => "Sequential write".to_owned(),
        crate::Pattern::RandRw => format!("Random, {} % read", cell.read_pct),
        crate::Pattern::Rw => format!("Sequential, {} % read", cell.read_pct),
    };
    if cell.role.is_empty() {
        kind
    } else {
        format!("{} - {kind}", cell.role)
    }
}

fn one(result: &RunResult, cells: &[CellSpec]) -> Markup {
    let of = |index: usize, spec: &CellSpec| {
        result.configurations[index]
            .cells
            .iter()
            .find(|cell| cell.spec() == *spec)
    };
    let published = |index: usize| {
        cells
            .iter()
            .any(|spec| of(index, spec).is_some_and(|cell| shares(cell).1.is_some()))
    };
    let columns: Vec<(usize, bool)> = (0..result.configurations.len())
        .map(|index| (index, published(index)))
        .collect();
    html! {
        table.figures {
            thead {
                tr.names {
                    th colspan="3" {}
                    @for &(index, published) in &columns {
                        th.edge colspan=(5 + 3 * usize::from(index > 0) + usize::from(published)) {
                            span class={ "dot s" (index % 6) } {}
                            (result.configurations[index].name)
                        }
                    }
                }
                tr {
                    th { "block" } th { "threads" } th { "depth" }
                    @for &(index, published) in &columns {
                        th.edge { "IOPS" } th { "MiB/s" } th { "mean" } th { "p99" }
                        th { "CPU %" }
                        @if index > 0 { th { "%" } th { "% MiB/s" } th { "% lat" } }
                        @if published { th { (if index > 0 { "published %" } else { "published IOPS" }) } }
                    }
                }
            }
            tbody {
                @for (row, spec) in cells.iter().enumerate() {
                    tr.block[row > 0 && cells[row - 1].block_bytes != spec.block_bytes] {
                        td.key { (short_bytes(u64::from(spec.block_bytes))) }
                        td.key { (spec.threads) } td.key { (spec.depth) }
                        @for &(index, published) in &columns {
                            @let shown = Shown {
                                cell: of(index, spec),
                                first: of(0, spec).filter(|_| index > 0),
                                share: index > 0,
                                published,
                            };
                            (figures(&shown))
                        }
                    }
                }
            }
        }
    }
}

/// What a row shows of a configuration.
struct Shown<'a> {
    cell: Option<&'a CellResult>,
    /// The first configuration's, if this is another.
    first: Option<&'a CellResult>,
    share: bool,
    published: bool,
}

/// Whether what was published for a cell contradicts itself.
pub(super) fn contradicts(cell: &CellResult) -> bool {
    cell.published.as_ref().is_some_and(|of| of.contradicts)
}

fn figures(shown: &Shown<'_>) -> Markup {
    let &Shown {
        share, published, ..
    } = shown;
    let Some(cell) = shown.cell else {
        let columns = 5 + 3 * usize::from(share) + usize::from(published);
        return html! { @for index in 0..columns { td.edge[index == 0] { "-" } } };
    };
    let of_first = |figure: fn(&CellResult) -> f64| {
        let first = figure(shown.first?);
        (first > 0.0).then(|| format!("{:.0}", 100.0 * figure(cell) / first))
    };
    let (ours, theirs) = shares(cell);
    let noisy = cell.versus_first.as_ref().is_some_and(|ratio| ratio.noisy);
    let flagged = !cell.steady || cell.errors > 0 || cell.partial || noisy;
    html! {
        td.edge title=(spread(cell)) {
            (grouped(cell.iops))
            @if flagged { span.mark { "\u{2022}" } }
        }
        td { (grouped(cell.mib_s)) }
        td { (us(cell.latency_us.mean)) }
        td { (us(cell.latency_us.p99)) }
        td { @if let Some(cpu) = cell.cpu_pct { (format!("{cpu:.0}")) } }
        @if share {
            td.pct title=[range(cell)] { @if let Some(ours) = ours { (format!("{ours:.0}")) } }
            td { @if let Some(share) = of_first(|cell| cell.mib_s) { (share) } }
            td { @if let Some(share) = of_first(|cell| cell.latency_us.mean) { (share) } }
        }
        @if published {
            td.published {
                @if let Some(theirs) = theirs { (theirs) }
                @if contradicts(cell) { "\u{2020}" }
            }
        }
    }
}

/// What its repeats' median, which is shown, does not say.
fn spread(cell: &CellResult) -> String {
    let repeats = cell.repeats.len();
    let (mean, percent) = (grouped(cell.mean), cell.spread * 100.0);
    format!("median of {repeats}; mean {mean}, spread {percent:.0} %")
}

/// Ours and the published share of the first configuration; where there is nothing to compare
/// with, the published IOPS.
fn shares(cell: &CellResult) -> (Option<f64>, Option<String>) {
    let ours = cell.versus_first.as_ref().map(|ratio| ratio.ratio * 100.0);
    let theirs = cell
        .published
        .as_ref()
        .map(|published| match published.pct_of_first {
            Some(share) if ours.is_some() => format!("{share:.0} %"),
            _ => grouped(published.iops),
        });
    (ours, theirs)
}

fn range(cell: &CellResult) -> Option<String> {
    let ratio = cell.versus_first.as_ref()?;
    let (low, high) = (ratio.low * 100.0, ratio.high * 100.0);
    Some(format!(
        "{low:.0} to {high:.0} % over {} pairs",
        ratio.pairs
    ))
}
