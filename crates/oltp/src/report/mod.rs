//! `report.html` of OLTP runs and of scans, in the looks of the lab's other reports.

mod charts;
mod failover;
mod faults;
mod method;
mod scan;
mod scenario;
mod tables;
#[cfg(test)]
mod tests;

use std::path::Path;

use ashlar_lab::{Comparison, LabError, page};
use maud::{Markup, html};

use crate::failover::FailoverResult;
use crate::faults::FaultsResult;
use crate::fleet::FleetResult;
use crate::published::HammerDb;
use crate::result::OltpResult;
use crate::scan::ScanResult;
use crate::scenario::ScenarioResult;
use crate::versus::VersusResult;
use ashlar_lab::ResultFile;

/// A run that a report shows, by the name that it has there.
pub(crate) struct Shown<'a> {
    pub(crate) name: String,
    pub(crate) result: &'a OltpResult,
}

/// Renders `report.html` of a run's or a scan's directory again, from its `result.json`.
///
/// # Errors
/// Environment errors for what cannot be read or written.
pub fn render_report(dir: &Path) -> Result<(), LabError> {
    let text = if ScanResult::is_in(dir) {
        scan::html(&ScanResult::load(dir)?)?
    } else if FailoverResult::is_in(dir) {
        failover::html(&FailoverResult::load(dir)?)
    } else if FleetResult::is_in(dir) {
        crate::fleet::html(&FleetResult::load(dir)?)?
    } else if FaultsResult::is_in(dir) {
        faults::html(&FaultsResult::load(dir)?)
    } else if VersusResult::is_in(dir) {
        return VersusResult::load(dir)?.write_report(dir);
    } else if ScenarioResult::is_in(dir) {
        scenario::html(&ScenarioResult::load(dir)?)?
    } else {
        html(&OltpResult::load(dir)?)?
    };
    write(&dir.join("report.html"), &text)
}

/// Renders a report of two runs, with what their difference is worth, into `to`.
///
/// # Errors
/// Environment errors for what cannot be read or written.
pub fn render_comparison(first: &Path, second: &Path, to: &Path) -> Result<(), LabError> {
    let (a, b) = (OltpResult::load(first)?, OltpResult::load(second)?);
    let names = names(first, second);
    write(to, &both(&names, &a, &b))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), LabError> {
    ashlar_lab::write_whole(path, text)
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
    let body = html! {
        (page::heading(&result.title, &result.machine))
        @if result.partial { (page::partial(&result.problems)) }
        (method::database(result))
        (charts::users(&shown))
        (tables::summary(&shown))
        (published(result)?)
        (tables::latency(&shown))
        (charts::over_time(&shown))
        (charts::device_and_processor(&shown))
        (tables::consistency(&shown))
        (page::flags(&result.flags))
        (method::method(result))
    };
    Ok(page::page(&result.title, &body))
}

/// The report of two runs.
fn both(names: &[String; 2], a: &OltpResult, b: &OltpResult) -> String {
    let comparison = Comparison::of(a, b);
    let shown = [(0, a), (1, b)].map(|(index, result)| Shown {
        name: names[index].clone(),
        result,
    });
    let title = format!("{}: {} against {}", a.title, names[0], names[1]);
    let flags: Vec<String> = shown.iter().flat_map(named_flags).collect();
    let body = html! {
        (page::heading(&title, &b.machine))
        (statements(names, comparison.as_ref().ok()))
        (charts::users(&shown))
        (tables::summary(&shown))
        (tables::latency(&shown))
        (charts::over_time(&shown))
        (charts::device_and_processor(&shown))
        (tables::consistency(&shown))
        (page::flags(&flags))
        @for run in &shown {
            h2 { (run.name) }
            (method::database(run.result))
            (method::method(run.result))
        }
    };
    page::page(&title, &body)
}

/// A run's flags and problems, with its name.
pub(crate) fn named_flags(shown: &Shown<'_>) -> Vec<String> {
    let Shown { name, result } = shown;
    let all = result.flags.iter().chain(&result.problems);
    all.map(|text| format!("{name}: {text}")).collect()
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

impl OltpResult {
    /// Writes `report.html` into `dir`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_report(&self, dir: &Path) -> Result<(), LabError> {
        write(&dir.join("report.html"), &html(self)?)
    }
}

impl FailoverResult {
    /// Writes `report.html` into `dir`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_report(&self, dir: &Path) -> Result<(), LabError> {
        write(&dir.join("report.html"), &failover::html(self))
    }
}

impl FaultsResult {
    /// Writes `report.html` into `dir`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_report(&self, dir: &Path) -> Result<(), LabError> {
        write(&dir.join("report.html"), &faults::html(self))
    }
}

impl ScenarioResult {
    /// Writes `report.html` into `dir`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_report(&self, dir: &Path) -> Result<(), LabError> {
        write(&dir.join("report.html"), &scenario::html(self)?)
    }
}

impl ScanResult {
    /// Writes `report.html` into `dir`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_report(&self, dir: &Path) -> Result<(), LabError> {
        write(&dir.join("report.html"), &scan::html(self)?)
    }
}
