//! The report: a sentence and two tables for each part.

use ashlar_lab::{ResultFile, page};
use maud::{Markup, html};

use super::part::{Part, Row};
use super::{Moved, VersusResult};

pub(super) fn html(result: &VersusResult) -> String {
    let lead = html! {
        section {
            // Results of before have it here alone.
            @if result.head.scenario.is_none() {
                @for paragraph in result.about.split("\n\n") { p { (paragraph) } }
            }
            ul { @for line in &result.storage { li { (line) } } }
        }
        section {
            h2 { "Which was better at what" }
            @for part in &result.parts { p { strong { (part.sentence) } } }
        }
    };
    let body = html! {
        @for part in &result.parts { (shown(part)) }
    };
    let method = html! {
        p.note {
            "The ratio is the group's run time to the instance's, repeat by repeat: above 1 the instance was quicker. What was "
            "published is of other hardware and another database ("
            code { "published/fci_vs_basic_ag.csv" } "): only ratios compare."
        }
    };
    let parts = page::Parts {
        short: result.short(),
        lead,
        body,
        method,
        ..page::Parts::default()
    };
    page::report(&result.head, &parts)
}

fn shown(part: &Part) -> Markup {
    html! {
        section {
            h2 { (part.title) }
            p.note {
                "Scenario " code { (part.name) } ", " (part.scaled) ". All of it: "
                a href=(format!("{}/report.html", part.name)) { (part.name) "/report.html" } "."
            }
            (run_times(part))
            (rates(part))
        }
    }
}

fn run_times(part: &Part) -> Markup {
    html! {
        div.scroll { table.figures {
            thead { tr {
                th { (part.crowd) } th { "instance s" } th { "group s" } th { "ratio" } th { "range" } th { "pairs" }
                th { "published instance" } th { "published group" } th { "published ratio" }
            } }
            tbody { @for row in &part.rows { tr {
                td.key { (count(row)) }
                td { (seconds(row.fci_run_time_s)) }
                td { (seconds(row.group_run_time_s)) }
                td.pct { (format!("{:.2}", row.ratio.ratio)) }
                td { (format!("{:.2} to {:.2}", row.ratio.low, row.ratio.high)) }
                td { (row.ratio.pairs) }
                @match &row.published {
                    Some(known) => {
                        td.published { (known.fci) " " (known.unit) }
                        td.published { (known.group) " " (known.unit) }
                        td.published { (format!("{:.2}", known.group / known.fci)) }
                    }
                    None => { td.published { "-" } td.published { "-" } td.published { "-" } }
                }
            } } }
        } }
    }
}

/// A run time; nothing was measured if it is 0.
fn seconds(time: f64) -> String {
    match time > 0.0 {
        true => format!("{time:.2}"),
        false => "-".to_owned(),
    }
}

fn count(row: &Row) -> String {
    match row.count == row.as_written {
        true => row.count.to_string(),
        false => format!("{} (for {})", row.count, row.as_written),
    }
}

fn rates(part: &Part) -> Markup {
    let names: Vec<(&str, Moved)> = part.rows.first().map_or_else(Vec::new, |row| {
        let all = row.moved.iter();
        all.map(|rate| (&*rate.what, rate.side)).collect()
    });
    let has_published = part.rows.iter().any(|row| {
        row.published
            .as_ref()
            .is_some_and(|of| of.fci_volume_mb_s.is_some())
    });
    html! {
        @if !names.is_empty() {
            h3 { "What storage moved, MB/s read + written" }
            div.scroll { table.figures {
                thead { tr {
                    th { (part.crowd) }
                    @for (name, _) in &names { th { (name) } }
                    @if has_published { th { "published volume" } th { "published group's drive" } }
                } }
                tbody { @for row in &part.rows { tr {
                    td.key { (count(row)) }
                    @for (name, _) in &names { td { (rate(row, name)) } }
                    @if has_published {
                        td.published { (published(row, |of| of.fci_volume_mb_s)) }
                        td.published { (published(row, |of| of.group_drive_mb_s)) }
                    }
                } } }
            } }
        }
    }
}

fn rate(row: &Row, name: &str) -> String {
    let found = row.moved.iter().find(|rate| rate.what == name);
    found.map_or("-".into(), |rate| {
        format!("{:.1} + {:.1}", rate.read_mb_s, rate.write_mb_s)
    })
}

fn published(row: &Row, figure: fn(&super::Published) -> Option<f64>) -> String {
    let known = row.published.as_ref().and_then(figure);
    known.map_or("-".into(), |value| format!("{value}"))
}
