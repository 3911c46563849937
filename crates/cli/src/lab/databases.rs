//! `ashlar lab run` of scenarios of databases.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_lab::{Journal, LabError, Origin, ResultFile, Scale, check_out_dir};
use ashlar_oltp::scenario::Place;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::{
    FailoverPlan, FailoverResult, FleetScenario, ScenarioRun, run_fleet, run_scenario,
};

pub(super) use ashlar_oltp::scenario::SHIPPED;

use super::interrupt::interruptible;
use super::oltp::{logic, time};
use super::report_path;
use super::runs::unfinished;
use super::server::commit;
use super::volumes::AttachedVolumes;
use crate::args::{CommitWord, FailoverArguments};
use crate::exit::Failure;
use crate::output::print;

/// Refuses what a scenario of databases cannot be given.
pub(super) fn check(origin: &Origin) -> Result<(), Failure> {
    if origin.destroy_data {
        return Err(Failure::usage(
            "--destroy-data: a database's folder is always a new one",
        ));
    }
    let places = places(origin)?;
    if FleetScenario::is_one(&origin.scenario)? {
        FleetScenario::parse(&origin.scenario)?.check_places(places.len())?;
    }
    Ok(())
}

pub(super) fn run(origin: &Origin, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    let places = places(origin)?;
    let run = ScenarioRun {
        text: &origin.scenario,
        scale: origin.scale.parse::<Scale>()?,
        places: &places,
        dir: &origin.dir,
        out,
    };
    let result = run_scenario(&run, &interruptible()?, journal)?;
    if !result.partial {
        journal.end()?;
    }
    let report = report_path(out);
    print(&format!("{}{}\n", result.text(), report.display()))?;
    if let Some(text) = result.complaint() {
        return Err(Failure::check(text));
    }
    if result.partial {
        return Err(unfinished(&result.problems, out));
    }
    Ok(())
}

/// A fleet of databases.
pub(super) fn fleet(origin: &Origin, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    let places = places(origin)?;
    let run = ScenarioRun {
        text: &origin.scenario,
        scale: origin.scale.parse::<Scale>()?,
        places: &places,
        dir: &origin.dir,
        out,
    };
    let result = run_fleet(&run, &AttachedVolumes::here(), &interruptible()?, journal)?;
    if !result.partial {
        journal.end()?;
    }
    let report = report_path(out);
    print(&format!("{}{}\n", result.text(), report.display()))?;
    if let Some(text) = result.complaint() {
        return Err(Failure::check(text));
    }
    if result.partial {
        return Err(unfinished(&result.problems, out));
    }
    Ok(())
}

pub(super) fn failover(arguments: &FailoverArguments) -> Result<(), Failure> {
    if !arguments.faults.is_empty() {
        return super::faults::run(arguments);
    }
    let cut_off = match (&arguments.cut_off, arguments.commit) {
        (Some(text), _) => time("--cut-off", text)?,
        (None, CommitWord::Local) => Duration::from_secs(1),
        (None, _) => Duration::ZERO,
    };
    let plan = FailoverPlan {
        primary: arguments.dir.clone(),
        standby: arguments
            .standby
            .clone()
            .unwrap_or_else(|| arguments.dir.clone()),
        shape: Shape::tpcc(arguments.warehouses),
        users: arguments.users,
        before: time("--before", &arguments.before)?,
        cut_off,
        after: time("--after", &arguments.after)?,
        commit: commit(arguments.commit),
        logic: logic(arguments.sql),
        set: arguments.set.clone(),
        seed: arguments.seed,
    };
    check_out_dir(&arguments.out)?;
    let mut keep = |result: &FailoverResult| result.write(&arguments.out);
    let result = ashlar_oltp::failover(&plan, (&interruptible()?, &mut keep))?;
    result.write(&arguments.out)?;
    result.write_report(&arguments.out)?;
    let report = report_path(&arguments.out);
    print(&format!("{}{}\n", result.text(), report.display()))?;
    if let Some(text) = result.complaint() {
        return Err(Failure::check(text));
    }
    if result.partial {
        return Err(LabError::environment(result.problems.join("; ")).into());
    }
    Ok(())
}

fn places(origin: &Origin) -> Result<Vec<Place>, Failure> {
    let place = |text: &String| match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => Ok(Place {
            name: name.into(),
            dir: PathBuf::from(dir),
        }),
        _ => Err(Failure::usage(format!("--place {text}: must be NAME=DIR"))),
    };
    origin.places.iter().map(place).collect()
}
