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
    /// The same ratio as it was published; empty if it was not.
    pub published: String,
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
            ..Self::default()
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
            ..Self::default()
        }
    }

    /// The same beside ratios that were published for it, if any were.
    #[must_use]
    pub fn beside(self, published: &[f64]) -> Self {
        let published = match published {
            [] => String::new(),
            some => from_to(some, |ratio| format!("{ratio:.2}")),
        };
        Self { published, ..self }
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
    let is_published = rows.iter().any(|row| !row.published.is_empty());
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
                                @if is_published { th { "published ratio" } }
                                th.text { "verdict" }
                            }
                        }
                        tbody {
                            @for row in rows {
                                tr {
                                    td.text { (row.question) } td.text { (row.configurations) }
                                    td.pct { (row.ratio) }
                                    @if is_published { td.published { (row.published) } }
                                    td.text { (row.verdict) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
