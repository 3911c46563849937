//! The concurrent scan on every place of a scenario, in turn.

use ashlar_lab::LabError;
use ashlar_lab::units::human_bytes;

use super::file::ScanSection;
use super::load::order;
use super::result::{ConfigurationResult, ScenarioResult};
use super::{Stage, told};
use crate::files;
use crate::postgres::{Logic, Postgres};
use crate::scan::{ScanPlan, ScanResult, make};
use crate::server::{DATABASE, Server, Settings, limited};

/// A server's processes take so much memory, whatever the size of the table.
const LEAST_MEMORY: u64 = 48 << 20;
const MEMORY_EACH_READER: u64 = 6 << 20;

/// A server that is killed when it is not needed any more.
struct Own(Server);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Runs it.
pub(super) fn run(stage: &Stage<'_>, result: &mut ScenarioResult) -> Result<(), LabError> {
    let Some(section) = &stage.file.scan else {
        return Ok(());
    };
    let plan = stage.file.scan_plan(section);
    let mut servers = Vec::new();
    for index in 0..stage.places.len() {
        servers.push(place(stage, (section, &plan), index, result)?);
    }
    let steps = servers.len() * plan.readers.len() * plan.repeats as usize;
    stage.progress.start(steps as u64);
    for repeat in 1..=plan.repeats {
        for &readers in &plan.readers {
            for index in order(servers.len(), repeat) {
                let (server, settings) = &servers[index];
                let of = &mut result.configurations[index];
                let what = format!("{}, {readers} readers, repeat {repeat}", of.name);
                stage.progress.doing(&what);
                let Some(scan) = &mut of.scan else { continue };
                if let Err(error) = step(stage, (server, settings), scan, (readers, repeat)) {
                    scan.partial = true;
                    told(result, &what, &error);
                    stage.progress.finish();
                    return Ok(());
                }
                stage.keep(result)?;
            }
        }
    }
    stage.progress.finish();
    Ok(())
}

fn open(stage: &Stage<'_>, server: &Own) -> Result<Postgres, LabError> {
    let database = Postgres::new(&server.0.url(DATABASE), Logic::Client)?;
    Ok(database.until(stage.progress))
}

/// A server on a place with the table in it, stopped, and how it is to be run.
fn place(
    stage: &Stage<'_>,
    (section, plan): (&ScanSection, &ScanPlan),
    index: usize,
    result: &mut ScenarioResult,
) -> Result<(Own, Settings), LabError> {
    let name = &stage.places[index].name;
    stage
        .progress
        .say(&format!("{name}: a server with {} rows is made", plan.rows));
    let server = Own(Server::at(&stage.folders[index].path().join("a"))?);
    server.0.start(Some(Settings {
        memory_bytes: None,
        set: section.set.clone(),
    }))?;
    let database = open(stage, &server)?;
    make(&database, plan, stage.progress)?;
    let scan = ScanResult::new(&database, plan)?;
    server.0.stop()?;
    let most = plan.readers.iter().copied().max().unwrap_or(1) as u64;
    let least = LEAST_MEMORY + MEMORY_EACH_READER * most;
    let wanted = section
        .memory_pct
        .map(|pct| (pct / 100.0 * scan.bytes as f64) as u64);
    let (settings, reason) = match wanted {
        Some(wanted) => limited(section.set.clone(), wanted.max(least)),
        None => (
            Settings {
                memory_bytes: None,
                set: section.set.clone(),
            },
            None,
        ),
    };
    if let Some(reason) = reason {
        result
            .flags
            .push(format!("{name}: {reason}: the page cache has no limit"));
    } else if wanted.is_some_and(|wanted| wanted < least) {
        let share = 100.0 * least as f64 / scan.bytes.max(1) as f64;
        result.flags.push(format!(
            "{name}: the server's processes need {}, {share:.0} % of the table",
            human_bytes(least)
        ));
    }
    result.configurations.push(ConfigurationResult {
        name: name.clone(),
        place: name.clone(),
        database_bytes: scan.bytes,
        memory_pct: section.memory_pct,
        memory_bytes: settings.memory_bytes,
        scan: Some(scan),
        ..ConfigurationResult::default()
    });
    Ok((server, settings))
}

/// One step, of a server that was just started and of whose files nothing is in memory.
fn step(
    stage: &Stage<'_>,
    (server, settings): (&Own, &Settings),
    scan: &mut ScanResult,
    (readers, repeat): (usize, u32),
) -> Result<(), LabError> {
    stage.progress.go_on()?;
    server.0.stop()?;
    files::forget(&server.0.data())?;
    server.0.start(Some(settings.clone()))?;
    let database = open(stage, server)?;
    let step = scan.step(&database, (readers, repeat), stage.progress)?;
    stage.progress.step(&step.line());
    scan.steps.push(step);
    Ok(())
}
