//! Line plots: IOPS and latency by depth, for each pattern, block size and thread
//! count that has more than one depth; otherwise by threads.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Line};
use super::page::legend;
use crate::result::{CellResult, RunResult};
use crate::units::short_bytes;

/// More than these are left to the tables.
const MOST_PLOTS: usize = 48;

/// One plot: lines over a common, logarithmic horizontal axis.
struct Plot {
    title: String,
    ticks: Vec<u32>,
    /// For each configuration: (tick, IOPS, mean latency).
    lines: Vec<Vec<(u32, f64, f64)>>,
}

/// All plots of a result.
pub(super) fn plots(result: &RunResult) -> Markup {
    let plots: Vec<Plot> = collect(result);
    if plots.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "By depth" }
            p.note {
                (legend(result.configurations.iter().map(|c| c.name.as_str())))
                "left IOPS, right mean latency in microseconds; a tick for each depth"
            }
            div.plots {
                @for plot in plots.iter().take(MOST_PLOTS) {
                    div.card {
                        h3 { (plot.title) }
                        (draw(plot))
                    }
                }
            }
            @if plots.len() > MOST_PLOTS {
                p.note { (plots.len() - MOST_PLOTS) " more are in the tables only." }
            }
        }
    }
}

fn collect(result: &RunResult) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    let count = result.configurations.len();
    for (index, configuration) in result.configurations.iter().enumerate() {
        for cell in &configuration.cells {
            let title = title(cell);
            let at = plots
                .iter()
                .position(|plot| plot.title == title)
                .unwrap_or_else(|| {
                    plots.push(Plot {
                        title,
                        ticks: Vec::new(),
                        lines: vec![Vec::new(); count],
                    });
                    plots.len() - 1
                });
            let plot = &mut plots[at];
            if !plot.ticks.contains(&cell.depth) {
                plot.ticks.push(cell.depth);
            }
            plot.lines[index].push((cell.depth, cell.iops, cell.latency_us.mean));
        }
    }
    plots.retain(|plot| plot.ticks.len() > 1);
    for plot in &mut plots {
        plot.ticks.sort_unstable();
        plot.lines
            .iter_mut()
            .for_each(|line| line.sort_unstable_by_key(|point| point.0));
    }
    plots
}

fn title(cell: &CellResult) -> String {
    let mix = if cell.pattern.is_mixed() {
        format!(" {} % read", cell.read_pct)
    } else {
        String::new()
    };
    let block = short_bytes(u64::from(cell.block_bytes));
    let threads = if cell.threads == 1 {
        "thread"
    } else {
        "threads"
    };
    format!("{}{mix}, {block}, {} {threads}", cell.pattern, cell.threads)
}

fn draw(plot: &Plot) -> Markup {
    let chart = |unit, value: fn(&(u32, f64, f64)) -> f64| Chart {
        unit,
        of: "depth",
        axis: Axis::Log,
        lines: plot
            .lines
            .iter()
            .enumerate()
            .map(|(color, points)| Line {
                color,
                points: points.iter().map(|p| (f64::from(p.0), value(p))).collect(),
                dashed: false,
            })
            .collect(),
    };
    let charts = [chart("IOPS", |point| point.1), chart("us", |point| point.2)];
    Chart::draw(&charts, &plot.title)
}
