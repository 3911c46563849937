//! Scenarios: a run as a file, scaled to the machine, judged, beside published figures.

mod file;
mod judge;
mod scale;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use file::{
    ConfigurationSection, DoublesSection, MatrixSection, MeasureSection, PromiseSection,
    ScenarioFile,
};
pub use scale::Scale;

use crate::published::Published;
use crate::result::ScenarioNote;
use crate::runner::{RunOutcome, run_plan};
use crate::{LabError, Progress, Services, Stacks};

/// The scenarios that ship: name and text.
pub const SHIPPED: [(&str, &str); 3] = [
    (
        "nvmeof-local-vs-remote",
        include_str!("../../../../scenarios/nvmeof-local-vs-remote.toml"),
    ),
    (
        "virtual-device-scaling",
        include_str!("../../../../scenarios/virtual-device-scaling.toml"),
    ),
    (
        "drive-baseline",
        include_str!("../../../../scenarios/drive-baseline.toml"),
    ),
];

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct ScenarioOptions {
    /// How large.
    pub scale: Scale,
    /// Where a folder for backing files (`{dir}`) is made, and removed afterwards.
    pub dir: PathBuf,
    /// Overwrite data that is found on a device.
    pub destroy_data: bool,
}

/// The text of a scenario: one that ships, by name, or a file.
///
/// # Errors
/// A usage error if there is neither, naming those that ship.
pub fn scenario_text(name_or_path: &str) -> Result<String, LabError> {
    find_text(&SHIPPED, name_or_path)
}

/// The same, of any scenarios that ship.
///
/// # Errors
/// As [`scenario_text`]'s.
pub fn find_text(shipped: &[(&str, &str)], name_or_path: &str) -> Result<String, LabError> {
    if let Some((_, text)) = shipped.iter().find(|(name, _)| *name == name_or_path) {
        return Ok((*text).to_owned());
    }
    std::fs::read_to_string(name_or_path).map_err(|error| {
        let names: Vec<_> = shipped.iter().map(|(name, _)| *name).collect();
        LabError::usage(format!(
            "{name_or_path}: no such scenario ({}) and no such file: {error}",
            names.join(", ")
        ))
    })
}

/// Runs a scenario (see [`scenario_text`]) and judges it: promises, doubling, verification.
///
/// # Errors
/// As [`run_sweep`](crate::run_sweep); and usage errors for what the file gets wrong.
pub fn run_scenario(
    name_or_path: &str,
    options: &ScenarioOptions,
    stacks: &dyn Stacks,
    services: &dyn Services,
    progress: &Progress,
) -> Result<RunOutcome, LabError> {
    let text = scenario_text(name_or_path)?;
    let file = ScenarioFile::parse(&text)?;
    let mut plan = file.plan()?;
    plan.destroy_data = options.destroy_data;
    let promised: Vec<_> = file
        .promise
        .iter()
        .map(PromiseSection::cell)
        .collect::<Result<_, _>>()?;
    let scaled = options.scale.apply(&mut plan, &promised);
    let table = file
        .published
        .as_deref()
        .map(Published::table)
        .transpose()?;
    let own = OwnFolder::make(&options.dir, &file)?;
    for configuration in &mut plan.configurations {
        configuration.spec = file::fill_in(&configuration.spec, own.path(), plan.size)?;
    }
    progress.say(&format!("{}: {scaled}", file.name));
    let mut outcome = run_plan(&plan, stacks, services, progress)?;
    let result = &mut outcome.result;
    result.title = file.heading();
    result.scenario = Some(ScenarioNote {
        name: file.name.clone(),
        about: file.about.trim().to_owned(),
        scale: options.scale.factor(),
        scaled,
        source: file.published.clone().unwrap_or_default(),
    });
    if let Some(table) = &table {
        let names: Vec<_> = file
            .configuration
            .iter()
            .map(|c| c.published.clone())
            .collect();
        table.join(result, &names);
    }
    judge::judge(&file, table.as_ref(), result)?;
    outcome.source = Some(text);
    Ok(outcome)
}

/// A new folder for backing files, removed with everything in it when dropped. Only a folder
/// that did not exist before is ever removed.
struct OwnFolder(Option<PathBuf>);

impl OwnFolder {
    fn make(base: &Path, file: &ScenarioFile) -> Result<Self, LabError> {
        if !file.configuration.iter().any(|c| c.stack.contains("{dir}")) {
            return Ok(Self(None));
        }
        let refuse = |error| LabError::caused(format!("folder {}", base.display()), error);
        std::fs::create_dir_all(base).map_err(refuse)?;
        let base = base.canonicalize().map_err(refuse)?;
        for number in 0..1000 {
            let path = base.join(format!("ashlar-lab-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(Some(path))),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(refuse(error)),
            }
        }
        Err(LabError::environment(format!(
            "folder {}: too many old runs",
            base.display()
        )))
    }

    fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}
