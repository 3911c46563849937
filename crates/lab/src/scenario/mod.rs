//! Scenarios: a run as a file, scaled to the machine, judged, beside published figures.

mod bounds;
mod file;
mod judge;
mod overrides;
mod pool;
mod scale;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use bounds::{Bounds, Claimed};
pub use file::{
    ClaimSection, ClaimedFigure, ConfigurationSection, DoublesSection, MatrixSection,
    MeasureSection, PromiseSection, ScenarioFile,
};
pub use overrides::{FILE, refuse_changed, with_set};
pub use pool::{with_nodes, with_pools};
pub use scale::Scale;

use crate::published::Published;
use crate::result::ScenarioNote;
use crate::runner::{Means, RunOutcome, run_plan};
use crate::{LabError, OwnFolder, remove_left};

/// The scenarios that ship: name and text.
pub const SHIPPED: [(&str, &str); 6] = [
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
    (
        "vsan-vs-s2d",
        include_str!("../../../../scenarios/vsan-vs-s2d.toml"),
    ),
    (
        "vsan-vs-s2d-tiers",
        include_str!("../../../../scenarios/vsan-vs-s2d-tiers.toml"),
    ),
    (
        "write-cache",
        include_str!("../../../../scenarios/write-cache.toml"),
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
    /// What the command line changed in the text, as it was given.
    pub changed: Vec<String>,
}

/// Reads a scenario of any kind.
///
/// # Errors
/// A usage error that names the line.
pub fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, LabError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let at = error.span().map(|span| span.start);
        let why = ashlar_plain::at_line(text, at, error.message());
        LabError::usage(format!("scenario: {why}"))
    })
}

/// Whether a scenario has one of these sections, by which its kind is known.
///
/// # Errors
/// A usage error that names the line where it is no TOML, and so of no kind.
pub fn has_any(text: &str, sections: &[&str]) -> Result<bool, LabError> {
    let table: toml::Table = read(text)?;
    Ok(sections.iter().any(|section| table.contains_key(*section)))
}

/// Seconds as they are written.
///
/// # Errors
/// A usage error that names them.
pub fn seconds(name: &str, seconds: f64) -> Result<std::time::Duration, LabError> {
    std::time::Duration::try_from_secs_f64(seconds)
        .map_err(|error| LabError::usage(format!("{name} = {seconds}: {error}")))
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

/// Runs a scenario of this `text` (see [`scenario_text`]) and judges it: promises, doubling, verification.
///
/// # Errors
/// As [`run_sweep`](crate::run_sweep); and usage errors for what the file gets wrong.
pub fn run_scenario(
    text: &str,
    options: &ScenarioOptions,
    means: Means<'_>,
) -> Result<RunOutcome, LabError> {
    let file = ScenarioFile::parse(text)?;
    let mut plan = file.plan()?;
    plan.destroy_data = options.destroy_data;
    let promised: Vec<_> = file
        .promise
        .iter()
        .map(PromiseSection::cell)
        .collect::<Result<_, _>>()?;
    // Before a scale is put to what no scale can be.
    plan.check()?;
    let scaled = options.scale.apply(&mut plan, &promised);
    let table = file
        .published
        .as_deref()
        .map(Published::table)
        .transpose()?;
    let uses_dir = plan.configurations.iter().any(|c| c.spec.contains("{dir}"));
    remove_left(means.journal.folders())?;
    let own = uses_dir
        .then(|| OwnFolder::make(&options.dir))
        .transpose()?;
    let own = own.as_ref().map(OwnFolder::path);
    if let Some(own) = own {
        means.journal.made(own)?;
    }
    for configuration in &mut plan.configurations {
        configuration.spec = file::fill_in(&configuration.spec, own, plan.size)?;
    }
    means.progress.say(&format!("{}: {scaled}", file.name));
    let mut outcome = run_plan(&plan, means)?;
    let result = &mut outcome.result;
    result.head.title = file.heading();
    result.head.scenario = Some(ScenarioNote {
        name: file.name.clone(),
        about: file.about.trim().to_owned(),
        scale: options.scale.factor(),
        scaled,
        source: file.published.clone().unwrap_or_default(),
        changed: options.changed.clone(),
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
    outcome.source = Some(text.to_owned());
    Ok(outcome)
}
