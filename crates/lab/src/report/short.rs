//! What a report says first: every question, what was compared for it, by how much, and what that says.

use maud::{Markup, html};

use crate::Head;
use crate::stats::{Measure, Ratio, Together};

/// A question, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Short {
    /// What was asked.
    pub question: String,
    /// What was compared, or measured alone.
    pub configurations: String,
    /// By how much, with its range; `-` of what stands alone.
    pub ratio: String,
    /// What that says.
    pub verdict: String,
}

impl Short {
    /// Of what was measured alone.
    pub fn alone(
        question: impl Into<String>,
        configuration: impl Into<String>,
        verdict: impl Into<String>,
    ) -> Self {
        Self {
            question: question.into(),
            configurations: configuration.into(),
            ratio: "-".into(),
            verdict: verdict.into(),
        }
    }

    /// Of ratios of one kind, each of which is called `one`.
    pub fn of(
        question: impl Into<String>,
        configurations: impl Into<String>,
        ratios: &[&Ratio],
        one: &str,
        measure: Measure,
    ) -> Self {
        let told = Together::of(ratios, measure, one);
        let (ratio, verdict) = match told {
            Some(told) => (told.ratio, told.verdict),
            None => ("-".into(), "not measured".into()),
        };
        Self {
            question: question.into(),
            configurations: configurations.into(),
            ratio,
            verdict,
        }
    }
}

/// The least and the greatest of figures, or the only one; `-` without any.
pub fn from_to(figures: &[f64], told: impl Fn(f64) -> String) -> String {
    let least = figures.iter().copied().reduce(f64::min);
    let most = figures.iter().copied().reduce(f64::max);
    match (least.map(&told), most.map(&told)) {
        (Some(least), Some(most)) if least == most => least,
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => "-".into(),
    }
}

/// Checks, as the last of the questions.
fn of_checks(head: &Head) -> Option<Short> {
    let failed: Vec<&str> = head
        .checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| &*check.name)
        .collect();
    let verdict = match (head.checks.len(), failed.len()) {
        (0, _) => return None,
        (all, 0) => format!("{all} hold"),
        (all, some) => format!("{some} of {all} FAILED: {}", failed.join(", ")),
    };
    Some(Short::alone("checks", "-", verdict))
}

pub(super) fn table(rows: &[Short], head: &Head) -> Markup {
    let checks = of_checks(head);
    let rows: Vec<&Short> = rows.iter().chain(&checks).collect();
    html! {
        section {
            h2 { "In short" }
            @if rows.is_empty() { p { "Nothing was measured." } }
            @else {
                div.scroll {
                    table.figures.short {
                        thead {
                            tr {
                                th.text { "question" } th.text { "configurations" } th { "ratio (range)" }
                                th.text { "verdict" }
                            }
                        }
                        tbody {
                            @for row in rows {
                                tr {
                                    td.text { (row.question) } td.text { (row.configurations) }
                                    td.pct { (row.ratio) } td.text { (row.verdict) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
