//! Line plots: IOPS and latency by depth, for each pattern, block size and thread
//! count that has more than one depth; otherwise by threads.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Line};
use super::page::legend;
use crate::result::{CellResult, RunResult};
use crate::units::short_bytes;

/// More than these are folded away.
const MOST_OPEN: usize = 24;

/// One plot: lines over a common, logarithmic horizontal axis.
struct Plot {
    title: String,
    ticks: Vec<u32>,
    /// For each configuration.
    lines: Vec<Vec<Point>>,
}

#[derive(Clone, Copy)]
struct Point {
    tick: u32,
    iops: f64,
    latency_us: f64,
    mib_s: f64,
    /// Processors in use; 0 if it is not known.
    cpu_pct: f64,
    /// IOPS and mean latency as published; none if they were not.
    published: Option<(f64, f64)>,
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
            (cards(plots.get(..MOST_OPEN).unwrap_or(&plots)))
            @if let Some(more) = plots.get(MOST_OPEN..).filter(|more| !more.is_empty()) {
                details {
                    summary { (more.len()) " more plots" }
                    (cards(more))
                }
            }
        }
    }
}

fn cards(plots: &[Plot]) -> Markup {
    html! {
        div.plots {
            @for plot in plots {
                div.card {
                    h3 { (plot.title) }
                    (draw(plot))
                    details {
                        summary { "MiB/s, and processors in use" }
                        (draw_means(plot))
                    }
                    @if plot.is_published() {
                        details {
                            summary { "As published, on their hardware" }
                            (draw_published(plot))
                        }
                    }
                }
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
            plot.lines[index].push(Point {
                tick: cell.depth,
                iops: cell.iops,
                latency_us: cell.latency_us.mean,
                mib_s: cell.mib_s,
                cpu_pct: cell.cpu_pct.unwrap_or(0.0),
                published: cell.published.as_ref().map(|of| (of.iops, of.latency_us)),
            });
        }
    }
    plots.retain(|plot| plot.ticks.len() > 1);
    for plot in &mut plots {
        plot.ticks.sort_unstable();
        plot.lines
            .iter_mut()
            .for_each(|line| line.sort_unstable_by_key(|point| point.tick));
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
    let charts = [
        plot.chart("IOPS", |point| Some(point.iops)),
        plot.chart("us", |point| Some(point.latency_us)),
    ];
    Chart::draw(&charts, &plot.title)
}

fn draw_means(plot: &Plot) -> Markup {
    let charts = [
        plot.chart("MiB/s", |point| Some(point.mib_s)),
        plot.chart("CPU %", |point| Some(point.cpu_pct)),
    ];
    Chart::draw(&charts, &format!("{}: MiB/s and processors", plot.title))
}

/// In panels of their own: absolute figures of other hardware would press ours flat, or theirs.
fn draw_published(plot: &Plot) -> Markup {
    let mut charts = [
        plot.chart("IOPS", |point| Some(point.published?.0)),
        plot.chart("us", |point| Some(point.published?.1)),
    ];
    let lines = charts.iter_mut().flat_map(|chart| &mut chart.lines);
    lines.for_each(|line| line.dashed = true);
    Chart::draw(&charts, &format!("{}: as published", plot.title))
}

impl Plot {
    /// Whether a line of what was published has two points.
    fn is_published(&self) -> bool {
        let count = |line: &Vec<Point>| line.iter().filter(|of| of.published.is_some()).count();
        self.lines.iter().any(|line| count(line) > 1)
    }

    fn chart(&self, unit: &'static str, value: fn(&Point) -> Option<f64>) -> Chart {
        let line = |(color, points): (usize, &Vec<Point>)| {
            let points = points.iter();
            Line {
                color,
                points: points
                    .filter_map(|of| Some((f64::from(of.tick), value(of)?)))
                    .collect(),
                dashed: false,
            }
        };
        Chart {
            unit,
            of: "depth",
            axis: Axis::Log,
            lines: self.lines.iter().enumerate().map(line).collect(),
        }
    }
}
