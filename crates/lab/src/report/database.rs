//! A database on two storages, beside the devices.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Line};
use super::page::legend;
use crate::result::{DatabaseResult, DatabaseStep};
use crate::units::{grouped, human_us};

/// The section of it.
pub(super) fn section(result: &DatabaseResult) -> Markup {
    let [first, second] = &result.names;
    html! {
        section {
            h2 { "A database on it: " (result.title) }
            p { (result.version) ", " (second) " against " (first) "." }
            div.scroll { (table(result)) }
            p.note {
                (legend(result.names.iter().map(String::as_str)))
                "NOPM: new orders a minute, medians; a point for each repeat"
            }
            div.plots {
                @for step in &result.steps {
                    div.card {
                        h3 { (step.users) " users" }
                        (Chart::draw(&[by_repeat(step)], "new orders a minute by repeat"))
                    }
                }
            }
            ul.flags { @for caution in &result.cautions { li { (caution) } } }
        }
    }
}

fn table(result: &DatabaseResult) -> Markup {
    html! {
        table.figures {
            thead {
                tr {
                    th { "users" }
                    @for name in &result.names { th.edge { (name) ": NOPM" } th { "p95" } }
                    th.edge { "ratio" } th { "range" } th { "pairs" } th { "in words" }
                }
            }
            tbody {
                @for step in &result.steps {
                    tr {
                        td.key { (step.users) }
                        @for side in 0..2 {
                            td.edge { (grouped(step.nopm[side])) }
                            td { (human_us(step.p95_us[side])) }
                        }
                        @if let Some(ratio) = &step.ratio {
                            td.edge.pct { (format!("{:.2}", ratio.ratio)) }
                            td { (format!("{:.2} to {:.2}", ratio.low, ratio.high)) }
                            td { (ratio.pairs) }
                        } @else { td.edge.pct { "-" } td { "-" } td { "0" } }
                        td.text { (step.text) }
                    }
                }
            }
        }
    }
}

fn by_repeat(step: &DatabaseStep) -> Chart {
    let line = |side: usize| Line {
        color: side,
        points: (1..)
            .map(f64::from)
            .zip(step.pairs.iter().map(|pair| pair[side]))
            .collect(),
        dashed: false,
    };
    Chart {
        unit: "NOPM",
        of: "repeat",
        axis: Axis::Linear,
        lines: vec![line(0), line(1)],
    }
}
