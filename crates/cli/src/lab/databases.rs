//! `ashlar lab run` of scenarios of databases.

use std::path::PathBuf;
use std::time::Duration;

use ashlar_lab::{LabError, Scale, check_out_dir};
use ashlar_oltp::scenario::Place;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::{FailoverPlan, FailoverResult, ResultFile, ScenarioRun, run_scenario};

pub(super) use ashlar_oltp::scenario::SHIPPED;

use super::interrupt::interruptible;
use super::oltp::{logic, time};
use super::report_path;
use super::server::commit;
use crate::args::{CommitWord, FailoverArguments, RunArguments};
use crate::exit::Failure;
use crate::output::print;

pub(super) fn run(arguments: &RunArguments, text: &str) -> Result<(), Failure> {
    if arguments.destroy_data {
        return Err(Failure::usage(
            "--destroy-data: a database's folder is always a new one",
        ));
    }
    let places = places(arguments)?;
    let scale: Scale = arguments.scale.parse()?;
    check_out_dir(&arguments.out)?;
    let run = ScenarioRun {
        text,
        scale,
        places: &places,
        out: &arguments.out,
    };
    let result = run_scenario(&run, &interruptible()?)?;
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

pub(super) fn failover(arguments: &FailoverArguments) -> Result<(), Failure> {
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

fn places(arguments: &RunArguments) -> Result<Vec<Place>, Failure> {
    if arguments.places.is_empty() {
        return Ok(vec![Place {
            name: "here".into(),
            dir: arguments.dir.clone(),
        }]);
    }
    let place = |text: &String| match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => Ok(Place {
            name: name.into(),
            dir: PathBuf::from(dir),
        }),
        _ => Err(Failure::usage(format!("--place {text}: must be NAME=DIR"))),
    };
    arguments.places.iter().map(place).collect()
}
