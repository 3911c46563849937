//! Line charts as inline SVG. Everything that goes into the drawing is a number or a static word.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::units::grouped;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 30.0;
/// Lines of more points than this have no dots.
const MOST_DOTS: usize = 40;
/// More ticks than this would run into each other.
const MOST_TICKS: usize = 12;

/// How the horizontal axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Equal factors are equally far apart: depths, users.
    Log,
    /// Equal differences are: time.
    Linear,
}

/// A line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Which of the page's six colours, going round.
    pub color: usize,
    /// Where it goes, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Drawn in dashes: what it shows is not measured here.
    pub dashed: bool,
}

/// Lines over a common horizontal axis; the vertical one begins at 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What the vertical axis counts.
    pub unit: &'static str,
    /// What the horizontal axis counts, for a dot's text.
    pub of: &'static str,
    /// The horizontal axis.
    pub axis: Axis,
    pub lines: Vec<Line>,
}

impl Chart {
    /// Draws charts side by side in one picture; `label` says what it is to those who do not see it.
    pub fn draw(charts: &[Self], label: &str) -> Markup {
        let mut svg = String::new();
        for (index, chart) in charts.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = chart.panel(&mut svg, index as f64 * WIDTH);
        }
        let width = charts.len() as f64 * WIDTH;
        html! {
            svg viewBox=(format!("0 0 {width} {HEIGHT}")) role="img" aria-label=(label) {
                (PreEscaped(svg))
            }
        }
    }

    /// Where points are on the horizontal axis, each once.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks: Vec<f64> = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().map(|point| point.0))
            .collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        ticks
    }

    fn panel(&self, svg: &mut String, offset: f64) -> std::fmt::Result {
        let ticks = self.ticks();
        let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) else {
            return Ok(());
        };
        let values = self.lines.iter().flat_map(|line| &line.points);
        let top = nice(values.map(|point| point.1).fold(0.0, f64::max));
        let (bottom, left, right) = (HEIGHT - BOTTOM, offset + LEFT, offset + WIDTH - RIGHT);
        let y = |v: f64| bottom - (v / top) * (bottom - TOP);
        let along = |tick: f64| match self.axis {
            Axis::Log => tick.max(1.0).log2(),
            Axis::Linear => tick,
        };
        let (from, to) = (along(first), along(last));
        let x = |tick: f64| left + (along(tick) - from) / (to - from).max(1e-9) * (right - left);
        for step in 0..=4 {
            let at = top * f64::from(step) / 4.0;
            let level = y(at);
            writeln!(
                svg,
                r#"<line class="grid" x1="{left:.1}" x2="{right:.1}" y1="{level:.1}" y2="{level:.1}"/>"#
            )?;
            text(svg, (left - 6.0, level + 4.0), "end", &label(at))?;
        }
        text(svg, (left - 6.0, TOP - 12.0), "end", self.unit)?;
        let every = ticks.len().div_ceil(MOST_TICKS).max(1);
        for tick in ticks.iter().step_by(every) {
            text(svg, (x(*tick), bottom + 16.0), "middle", &format!("{tick}"))?;
        }
        for line in &self.lines {
            self.line(svg, line, &x, &y)?;
        }
        Ok(())
    }

    fn line(
        &self,
        svg: &mut String,
        line: &Line,
        x: &dyn Fn(f64) -> f64,
        y: &dyn Fn(f64) -> f64,
    ) -> std::fmt::Result {
        let color = format!("var(--s{})", line.color % 6);
        let points: Vec<String> = line
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)))
            .collect();
        let class = if line.dashed { "line pub" } else { "line" };
        writeln!(
            svg,
            r#"<polyline class="{class}" stroke="{color}" points="{}"/>"#,
            points.join(" ")
        )?;
        if line.points.len() > MOST_DOTS {
            return Ok(());
        }
        for (at, value) in &line.points {
            let told = if *value < 10.0 {
                format!("{value:.2}")
            } else {
                grouped(*value)
            };
            writeln!(
                svg,
                r#"<circle cx="{:.1}" cy="{:.1}" r="3" fill="{color}"><title>{} {at}: {told}</title></circle>"#,
                x(*at),
                y(*value),
                self.of
            )?;
        }
        Ok(())
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) -> std::fmt::Result {
    writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
    )
}

/// The next round number of which a quarter is round as well.
fn nice(most: f64) -> f64 {
    if most <= 0.0 || !most.is_finite() {
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
        assert_eq!((nice(0.0), nice(f64::NAN)), (1.0, 1.0));
        assert_eq!(
            (label(1_500_000.0), label(20_000.0), label(0.5)),
            ("1.5M".into(), "20k".into(), "0.5".into())
        );
    }

    #[test]
    fn a_chart_draws_numbers_only_and_thins_its_ticks() {
        let line = Line {
            color: 7,
            points: (0..100).map(|i| (f64::from(i), f64::from(i))).collect(),
            dashed: true,
        };
        let chart = Chart {
            unit: "tx/s",
            of: "second",
            axis: Axis::Linear,
            lines: vec![line, Line::default()],
        };
        let svg = Chart::draw(&[chart.clone(), chart], "\"x\"").into_string();
        assert!(svg.contains("&quot;x&quot;") && svg.contains("line pub"));
        assert!(svg.contains("var(--s1)") && !svg.contains("NaN") && !svg.contains("circle"));
        assert!(svg.matches("<text").count() <= 2 * (6 + MOST_TICKS));
        let empty = Chart {
            unit: "",
            of: "",
            axis: Axis::Log,
            lines: Vec::new(),
        };
        assert!(!Chart::draw(&[empty], "").into_string().contains("<text"));
    }
}
