//! A run in other tools' formats, and in full.

mod diskspd;
mod fio;
mod hlog;
mod tables;

use std::path::Path;

use crate::runner::RunOutcome;
use crate::{LabError, SweepPlan, report, scenario};

impl RunOutcome {
    /// Writes the run's directory: `result.json`, `sweep.toml` or `scenario.toml` (the
    /// scenario's text), `result.csv`, `series.csv`, `result.fio.json`, `result.diskspd.xml`,
    /// `latency.hlog`, `report.html`.
    pub fn write(&self, dir: &Path) -> Result<(), LabError> {
        check_out_dir(dir)?;
        let json = serde_json::to_string_pretty(&self.result)
            .map_err(|error| LabError::caused("result.json", error))?;
        let plan = match &self.source {
            Some(text) => ("scenario.toml", text.clone()),
            None => ("sweep.toml", sweep_toml(&self.plan)?),
        };
        let files = [
            ("result.json", json + "\n"),
            plan,
            ("result.csv", tables::cells(&self.result)?),
            ("series.csv", tables::series(self)?),
            ("result.fio.json", fio::json(self)?),
            ("result.diskspd.xml", diskspd::xml(self)?),
            ("latency.hlog", hlog::log(self)?),
            ("report.html", report::html(&self.result)),
        ];
        files
            .iter()
            .try_for_each(|(name, text)| write(&dir.join(name), text))
    }
}

/// Makes `dir` and makes sure that it can be written to, before anything is measured.
///
/// # Errors
/// An environment error that names the directory.
pub fn check_out_dir(dir: &Path) -> Result<(), LabError> {
    let refuse = |error| LabError::caused(format!("output directory {}", dir.display()), error);
    std::fs::create_dir_all(dir).map_err(refuse)?;
    let probe = dir.join(".ashlar-lab-probe");
    std::fs::write(&probe, []).map_err(refuse)?;
    std::fs::remove_file(&probe).map_err(refuse)
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(|error| LabError::caused(path.display(), error))
}

/// The sweep as a scenario file that repeats it.
fn sweep_toml(plan: &SweepPlan) -> Result<String, LabError> {
    toml::to_string_pretty(&scenario::ScenarioFile::of(plan))
        .map_err(|error| LabError::caused("sweep.toml", error))
}
