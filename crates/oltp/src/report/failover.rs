//! The report of a primary's death under load.

use ashlar_lab::{ResultFile, page};
use maud::{Markup, html};

use super::{charts, method};
use crate::failover::FailoverResult;
use crate::result::StepResult;
use crate::server::Commit;

pub(crate) fn html(result: &FailoverResult) -> String {
    let parts = page::Parts {
        short: result.short(),
        lead: html! {
            section {
                (method::described(&result.database))
                @if let Some(build) = &result.build { p.note { (build.line()) } }
                p {
                    (result.users) " users on " (result.warehouses) " warehouses; a primary and a synchronous "
                    "standby, " code { "synchronous_commit=" (result.commit.word()) } "."
                }
            }
        },
        body: html! {
            @if result.was_looked_at() { (verdict(result)) }
            @if result.before.users > 0 { (load("Before", &result.before)) }
            @if result.after.users > 0 { (load("After, on the promoted server", &result.after)) }
        },
        seed: Some(result.seed),
        ..page::Parts::default()
    };
    page::report(&result.head, &parts)
}

fn verdict(result: &FailoverResult) -> Markup {
    let row = |holds: bool, what: &str, text: String| {
        html! {
            tr {
                td { @if holds { span.ok { "holds" } } @else { span.fail { "FAILED" } } }
                th { (what) }
                td.text { (text) }
            }
        }
    };
    let conditions = |of: &crate::check::Consistency| of.complaint().unwrap_or_default();
    let (at_once, later) = (&result.consistency, &result.after.consistency);
    html! {
        section {
            h2 { "What became of what was acknowledged" }
            p {
                (format!("The primary was killed with all its processes {:.1} s after the first transaction; ", result.killed_after_s))
                (format!("its standby was the primary {:.2} s after that.", result.promoted_after_s))
                @if let Some(text) = result.cut_off_text() { " When it was killed, " (text) "." }
            }
            @if result.commit == Commit::Local {
                p.note {
                    "Commits did not wait for the standby, so transactions are expected to be missing: it shows that a "
                    "loss is seen, and says nothing against the storage."
                }
            }
            table.checks {
                tbody {
                    (row(
                        result.missing == 0,
                        "Every acknowledged new order, payment and delivery is there",
                        format!("{} acknowledged, {} missing{} {}", result.acknowledged, result.missing,
                            kinds(result), result.examples.join(", ")),
                    ))
                    (row(at_once.failed().is_empty(), "Conditions 1 to 12 after the promotion", conditions(at_once)))
                    (row(later.failed().is_empty(), "Conditions 1 to 12 after more load", conditions(later)))
                }
            }
        }
    }
}

fn kinds(result: &FailoverResult) -> String {
    let of = result.kinds.iter().map(|(name, count)| {
        let name = name.replace('_', " ");
        format!("{name} {} of {}", count.missing, count.acknowledged)
    });
    let of: Vec<String> = of.collect();
    if of.is_empty() {
        return String::new();
    }
    format!(" ({})", of.join(", "))
}

fn load(title: &str, step: &StepResult) -> Markup {
    html! {
        section {
            h2 { (title) }
            p { (step.line()) }
            div.card { (charts::of_step(step)) }
        }
    }
}
