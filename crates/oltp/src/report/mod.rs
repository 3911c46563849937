//! `report.html` of OLTP runs and of scans, in the looks of the lab's other reports.

mod charts;
pub(crate) mod clients;
mod failover;
mod faults;
mod method;
mod scan;
mod scenario;
pub(crate) mod short;
mod tables;
#[cfg(test)]
mod tests;

use std::path::Path;

use ashlar_lab::result::RunResult;
use ashlar_lab::short::Short;
use ashlar_lab::stats::Measure;
use ashlar_lab::{Comparison, Figure, Head, Kind, LabError, ResultFile, kind_in, page};
use maud::{Markup, html};

use crate::failover::FailoverResult;
use crate::faults::FaultsResult;
use crate::fleet::FleetResult;
use crate::published::HammerDb;
use crate::result::OltpResult;
use crate::scan::ScanResult;
use crate::scenario::ScenarioResult;
use crate::versus::VersusResult;

pub(crate) use failover::html as of_failover;
pub(crate) use faults::html as of_faults;
pub(crate) use scan::html as of_scan;
pub(crate) use scenario::html as of_scenario;

/// A run that a report shows, by the name that it has there.
pub(crate) struct Shown<'a> {
    pub(crate) name: String,
    pub(crate) result: &'a OltpResult,
}

/// Renders `report.html` of a run's directory again, whatever it measured, from its `result.json`.
///
/// # Errors
/// Environment errors for what cannot be read or written, and of a kind whose report only its run writes.
pub fn render_report(dir: &Path) -> Result<(), LabError> {
    match kind_in(dir)? {
        Kind::Devices => RunResult::render_again(dir),
        Kind::Oltp => OltpResult::render_again(dir),
        Kind::Databases => ScenarioResult::render_again(dir),
        Kind::Versus => VersusResult::render_again(dir),
        Kind::Fleet => FleetResult::render_again(dir),
        Kind::Scan => ScanResult::render_again(dir),
        Kind::Failover => FailoverResult::render_again(dir),
        Kind::Faults => FaultsResult::render_again(dir),
        kind @ (Kind::TornPages | Kind::Ha) => Err(LabError::usage(format!(
            "{}: a report of {} is written by its run alone: report.html, if it has one",
            dir.display(),
            kind.words()
        ))),
    }
}

/// Renders a report of two runs, with what their difference is worth, into `to`.
///
/// # Errors
/// Environment errors for what cannot be read or written.
pub fn render_comparison(first: &Path, second: &Path, to: &Path) -> Result<(), LabError> {
    let (a, b) = (OltpResult::load(first)?, OltpResult::load(second)?);
    let names = names(first, second);
    ashlar_lab::write_whole(to, &both(&names, &a, &b))
}

/// Directories by their last names, or whole where those are the same.
pub fn names(first: &Path, second: &Path) -> [String; 2] {
    let last = |path: &Path| path.file_name().map(|name| name.display().to_string());
    match (last(first), last(second)) {
        (Some(a), Some(b)) if a != b => [a, b],
        _ => [first, second].map(|path| path.display().to_string()),
    }
}

/// The report of one run.
pub(crate) fn html(result: &OltpResult) -> Result<String, LabError> {
    let shown = [Shown {
        name: result.database.sql.clone(),
        result,
    }];
    Ok(page::report(
        &result.head,
        &page::Parts {
            short: result.short(),
            lead: method::database(result),
            body: html! {
                (charts::users(&shown))
                (tables::summary(&shown))
                (published(result)?)
                (tables::latency(&shown))
                (charts::over_time(&shown))
                (charts::device_and_processor(&shown))
                (tables::consistency(&shown))
            },
            method: method::method(result),
            seed: Some(result.method.seed),
            ..page::Parts::default()
        },
    ))
}

/// The report of two runs.
fn both(names: &[String; 2], a: &OltpResult, b: &OltpResult) -> String {
    let comparison = Comparison::of(a, b);
    let shown = [(0, a), (1, b)].map(|(index, result)| Shown {
        name: names[index].clone(),
        result,
    });
    let title = format!("{}: {} against {}", a.head.title, names[0], names[1]);
    let flags: Vec<String> = shown.iter().flat_map(named_flags).collect();
    let head = Head {
        title,
        machine: b.head.machine.clone(),
        ..Head::default()
    };
    page::report(
        &head,
        &page::Parts {
            short: in_short(names, comparison.as_ref().ok()),
            lead: statements(names, comparison.as_ref().ok()),
            body: html! {
                (charts::users(&shown))
                (tables::summary(&shown))
                (tables::latency(&shown))
                (charts::over_time(&shown))
                (charts::device_and_processor(&shown))
                (tables::consistency(&shown))
            },
            flags,
            method: html! {
                @for run in &shown {
                    h2 { (run.name) }
                    (method::database(run.result))
                    (method::method(run.result))
                }
            },
            seed: None,
        },
    )
}

/// A run's flags and problems, with its name.
pub(crate) fn named_flags(shown: &Shown<'_>) -> Vec<String> {
    let Shown { name, result } = shown;
    let all = result.head.flags.iter().chain(&result.head.problems);
    all.map(|text| format!("{name}: {text}")).collect()
}

/// All numbers of users as one question.
fn in_short(names: &[String; 2], comparison: Option<&Comparison>) -> Vec<Short> {
    let rows = comparison.map_or(&[][..], |comparison| &comparison.rows);
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let ratios: Vec<_> = rows.iter().filter_map(|row| row.ratio.as_ref()).collect();
    let measure = match first.figure {
        Figure::RunTimeS => Measure::Time,
        _ => Measure::Amount,
    };
    let what = match measure {
        Measure::Time => "Run time",
        Measure::Amount => "NOPM",
    };
    let sides = format!("{} against {}", names[1], names[0]);
    vec![Short::of(what, sides, &ratios, "step", measure)]
}

fn statements(names: &[String; 2], comparison: Option<&Comparison>) -> Markup {
    html! {
        section {
            h2 { "What the difference is worth" }
            @match comparison {
                Some(comparison) => {
                    table.checks {
                        tbody {
                            @for row in &comparison.rows {
                                tr { th { (row.cell) } td { (row.told(&names[1], &names[0])) } }
                            }
                        }
                    }
                    ul.flags { @for caution in &comparison.cautions { li { (caution) } } }
                }
                None => p { "No number of users is in both." },
            }
        }
    }
}

/// The one figure of a single run that does not depend on the hardware.
fn published(result: &OltpResult) -> Result<Markup, LabError> {
    let counted =
        |step: &&crate::result::StepResult| step.tpm_source == "database" && step.nopm > 0.0;
    let ratios: Vec<f64> = result
        .steps
        .iter()
        .filter(counted)
        .map(|step| step.tpm / step.nopm)
        .collect();
    if ratios.is_empty() {
        return Ok(html! {});
    }
    let theirs = HammerDb::tpm_each_nopm()?;
    Ok(html! {
        p.note {
            (format!("TPM a NOPM: {:.2} here", ashlar_lab::stats::median(&ratios)))
            (format!("; published by users of HammerDB: {theirs:.2}"))
            " (" code { "published/nvmeof_hammerdb.csv" } "). Published NOPM belong to their hardware: "
            "the scenario " code { "nvmeof-hammerdb" } " compares the ratios."
        }
    })
}
