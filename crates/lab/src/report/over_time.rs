//! Accesses over time, of cells with a rate: what stands still is seen.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Line};
use super::page::legend;
use crate::CellSpec;
use crate::result::{CellResult, RunResult};

/// A plot for each cell that has a series: the first repeat of each configuration.
pub(super) fn section(result: &RunResult) -> Markup {
    let mut cells: Vec<CellSpec> = Vec::new();
    let all = result.configurations.iter().flat_map(|of| &of.cells);
    for cell in all.filter(|cell| has_series(cell)) {
        if !cells.contains(&cell.spec()) {
            cells.push(cell.spec());
        }
    }
    html! {
        @if !cells.is_empty() {
            section {
                h2 { "Over time" }
                p.note {
                    (legend(result.configurations.iter().map(|of| of.name.as_str())))
                    "accesses a second of the first repeat, at a fixed rate"
                }
                div.plots {
                    @for cell in &cells {
                        div.card {
                            h3 { (cell.slug()) }
                            (Chart::draw(&[chart(result, cell)], "accesses a second over time"))
                        }
                    }
                }
            }
        }
    }
}

fn has_series(cell: &CellResult) -> bool {
    let first = cell.repeats.first();
    first.is_some_and(|repeat| repeat.series.len() > 1)
}

fn chart(result: &RunResult, spec: &CellSpec) -> Chart {
    let line = |(color, of): (usize, &crate::result::ConfigurationResult)| {
        let cell = of.cells.iter().find(|cell| cell.spec() == *spec);
        let series = cell.and_then(|cell| cell.repeats.first());
        let series = series.map_or(&[][..], |repeat| &repeat.series[..]);
        let seconds = cell.map_or(result.method.seconds, |cell| {
            let own = cell.procedure.as_ref();
            own.map_or(result.method.seconds, |own| own.seconds)
        });
        let interval = seconds / series.len().max(1) as f64;
        let point =
            |(at, &count): (usize, &u64)| ((at + 1) as f64 * interval, count as f64 / interval);
        Line {
            color,
            points: series.iter().enumerate().map(point).collect(),
            dashed: false,
        }
    };
    Chart {
        unit: "IOPS",
        of: "second",
        axis: Axis::Linear,
        lines: result.configurations.iter().enumerate().map(line).collect(),
    }
}
