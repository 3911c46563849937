//! What every report of the lab has: one file without network or script, the machine, the flags.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::short::{self, Short};
use super::{caveats, style};
use crate::result::{Check, ScenarioNote};
use crate::units::human_bytes;
use crate::{Head, Machine};

/// What a report has besides what all of them have.
#[derive(Default)]
pub struct Parts {
    /// Every question and what came of it: the table at the top.
    pub short: Vec<Short>,
    /// What was measured, in short: before anything else.
    pub lead: Markup,
    /// Figures, tables and plots.
    pub body: Markup,
    /// Flags of parts of the run, besides its own.
    pub flags: Vec<String>,
    /// How it was measured.
    pub method: Markup,
    /// The seed of its data and load.
    pub seed: Option<u64>,
}

/// The report of a run, whatever it measured.
pub fn report(head: &Head, parts: &Parts) -> String {
    let all: Vec<String> = head.flags.iter().chain(&parts.flags).cloned().collect();
    let body = html! {
        (heading(&head.title, &head.machine))
        @if head.partial { (partial(&head.problems)) }
        (short::table(&parts.short, head))
        @if let Some(scenario) = &head.scenario { (about(scenario)) }
        (parts.lead)
        @if !head.checks.is_empty() { section { h2 { "Checks" } (checks(&head.checks)) } }
        (parts.body)
        (caveats::section(&all))
        (parts.method)
        p.note {
            "Ashlar lab " (head.machine.lab_version)
            @if let Some(seed) = parts.seed { ", seed " (seed) }
            "."
        }
    };
    page(&head.title, &body)
}

/// What a scenario asks, and what of it was run.
fn about(scenario: &ScenarioNote) -> Markup {
    html! {
        section {
            @for part in scenario.about.split("\n\n") { p { (part) } }
            p.note {
                "Scenario " code { (scenario.name) } ", " (scenario.scaled) "."
                @if !scenario.changed.is_empty() {
                    " Changed: " code { (scenario.changed.join(" ")) } "."
                }
                @if !scenario.source.is_empty() {
                    " Published figures: " code { "published/" (scenario.source) } "."
                }
            }
        }
    }
}

/// A whole page.
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " - Ashlar lab" }
                style { (PreEscaped(style::CSS)) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

/// Title and machine.
pub fn heading(title: &str, machine: &Machine) -> Markup {
    html! {
        header {
            p.kicker { "Ashlar lab" }
            h1 { (title) }
            p.sub {
                (machine.cpu_model) ", " (machine.cores) " cores, "
                (human_bytes(machine.memory_bytes)) ", " (machine.kernel)
                @if !machine.file_systems.is_empty() { ", " (machine.file_systems.join(", ")) }
            }
        }
    }
}

/// That something did not finish, and what.
fn partial(problems: &[String]) -> Markup {
    html! {
        section.card.bad {
            h2 { "This run is partial" }
            ul { @for problem in problems { li { (problem) } } }
        }
    }
}

/// What was checked, and what was found.
fn checks(checks: &[Check]) -> Markup {
    html! {
        table.checks {
            tbody {
                @for check in checks {
                    tr {
                        td {
                            @if check.passed { span.ok { "holds" } }
                            @else { span.fail { "FAILED" } }
                        }
                        th { (check.name) }
                        td.text { (check.text) }
                    }
                }
            }
        }
    }
}

/// The names of a chart's lines, in their colours.
pub fn legend<'a>(names: impl Iterator<Item = &'a str>) -> Markup {
    html! {
        @for (index, name) in names.enumerate() {
            span class={ "dot s" (index % 6) } {} (name) "\u{2003}"
        }
    }
}
