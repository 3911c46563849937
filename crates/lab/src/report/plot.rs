//! Line plots as inline SVG: IOPS and latency by depth, for each pattern, block size and thread
//! count that has more than one depth; otherwise by threads.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::result::{CellResult, RunResult};
use crate::units::{grouped, short_bytes};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 30.0;
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
                @for (index, configuration) in result.configurations.iter().enumerate() {
                    span class={ "dot s" (index % 6) } {} (configuration.name) "\u{2003}"
                }
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
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = panel(&mut svg, plot, (0.0, "IOPS"), |point| point.1);
    let _ = panel(&mut svg, plot, (WIDTH, "us"), |point| point.2);
    let width = 2.0 * WIDTH;
    html! {
        svg viewBox=(format!("0 0 {width} {HEIGHT}")) role="img" aria-label=(plot.title) {
            (PreEscaped(svg))
        }
    }
}

/// One half of a plot; everything that goes in is a number.
fn panel(
    svg: &mut String,
    plot: &Plot,
    (offset, unit): (f64, &str),
    value: fn(&(u32, f64, f64)) -> f64,
) -> std::fmt::Result {
    let most = plot.lines.iter().flatten().map(value).fold(0.0, f64::max);
    let top = nice(most);
    let (bottom, left, right) = (HEIGHT - BOTTOM, offset + LEFT, offset + WIDTH - RIGHT);
    let y = |v: f64| bottom - (v / top) * (bottom - TOP);
    let log = |tick: u32| f64::from(tick.max(1)).log2();
    let (first, last) = (log(plot.ticks[0]), log(plot.ticks[plot.ticks.len() - 1]));
    let x = |tick: u32| left + (log(tick) - first) / (last - first).max(1e-9) * (right - left);
    for step in 0..=4 {
        let at = top * f64::from(step) / 4.0;
        let level = y(at);
        writeln!(
            svg,
            r#"<line class="grid" x1="{left:.1}" x2="{right:.1}" y1="{level:.1}" y2="{level:.1}"/>"#
        )?;
        let (tx, ty) = (left - 6.0, level + 4.0);
        writeln!(
            svg,
            r#"<text x="{tx:.1}" y="{ty:.1}" text-anchor="end">{}</text>"#,
            label(at)
        )?;
    }
    let (tx, ty) = (left - 6.0, TOP - 12.0);
    writeln!(
        svg,
        r#"<text x="{tx:.1}" y="{ty:.1}" text-anchor="end">{unit}</text>"#
    )?;
    for &tick in &plot.ticks {
        let (tx, ty) = (x(tick), bottom + 16.0);
        writeln!(
            svg,
            r#"<text x="{tx:.1}" y="{ty:.1}" text-anchor="middle">{tick}</text>"#
        )?;
    }
    for (index, line) in plot.lines.iter().enumerate() {
        let color = format!("var(--s{})", index % 6);
        let points: Vec<String> = line
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.0), y(value(point))))
            .collect();
        writeln!(
            svg,
            r#"<polyline class="line" stroke="{color}" points="{}"/>"#,
            points.join(" ")
        )?;
        for point in line {
            let (cx, cy, told) = (x(point.0), y(value(point)), grouped(value(point)));
            writeln!(
                svg,
                r#"<circle cx="{cx:.1}" cy="{cy:.1}" r="3" fill="{color}"><title>depth {}: {told}</title></circle>"#,
                point.0
            )?;
        }
    }
    Ok(())
}

/// The next round number of which a quarter is round as well.
fn nice(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(most.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps
        .iter()
        .map(|step| step * power)
        .find(|&top| top >= most)
        .unwrap_or(power * 10.0)
}

fn label(value: f64) -> String {
    let trimmed = |value: f64, unit: &str| {
        let text = format!("{value:.1}");
        format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match value {
        v if v >= 1e6 => trimmed(v / 1e6, "M"),
        v if v >= 1e4 => trimmed(v / 1e3, "k"),
        v if v >= 10.0 || v == 0.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(nice(79_282.0), 80_000.0);
        assert_eq!(nice(0.37), 0.4);
        assert_eq!(nice(1000.0), 1000.0);
        assert_eq!(nice(0.0), 1.0);
        assert_eq!(
            (label(1_500_000.0), label(20_000.0), label(0.5)),
            ("1.5M".into(), "20k".into(), "0.5".into())
        );
    }
}
