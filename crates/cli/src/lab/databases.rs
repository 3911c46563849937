//! `ashlar lab run` of scenarios of databases.

use std::path::Path;
use std::time::Duration;

use ashlar_lab::{Journal, Origin, ResultFile, Scale, new_out_dir};
use ashlar_oltp::scenario::Place;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::{
    FailoverPlan, FailoverResult, FleetScenario, ScenarioRun, check_clients, run_fleet,
    run_scenario,
};
use ashlar_testbed::link::with_agents;
use ashlar_testbed::volumes::AttachedVolumes;

pub(super) use ashlar_oltp::scenario::SHIPPED;

use super::ending;
use super::interrupt::interruptible;
use super::oltp::{logic, time};
use super::server::commit;
use crate::args::{CommitWord, FailoverArguments};
use crate::exit::Failure;

/// Refuses what a scenario of databases cannot be given.
pub(super) fn check(origin: &Origin) -> Result<(), Failure> {
    if origin.destroy_data {
        return Err(Failure::usage(
            "--destroy-data: a database's folder is always a new one",
        ));
    }
    let places = Place::given(&origin.places)?;
    if !origin.clients.addresses.is_empty() {
        check_clients(&origin.scenario)?;
    }
    if FleetScenario::is_one(&origin.scenario)? {
        FleetScenario::parse(&origin.scenario)?.check_places(places.len())?;
    }
    Ok(())
}

/// Databases, or a fleet of them.
pub(super) fn run(origin: &Origin, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    let places = Place::given(&origin.places)?;
    let (run, progress) = (scenario_run(origin, &places, out)?, interruptible()?);
    if FleetScenario::is_one(&origin.scenario)? {
        let volumes = AttachedVolumes::here();
        let result = with_agents(&origin.clients, |clients| {
            run_fleet(&run.with(clients), &volumes, &progress, journal)
        })?;
        return ending::end_resumable(&result, out, journal);
    }
    let result = with_agents(&origin.clients, |clients| {
        run_scenario(&run.with(clients), &progress, journal)
    })?;
    ending::end_resumable(&result, out, journal)
}

fn scenario_run<'a>(
    origin: &'a Origin,
    places: &'a [Place],
    out: &'a Path,
) -> Result<ScenarioRun<'a>, Failure> {
    Ok(ScenarioRun {
        patroni: None,
        clients: None,
        text: &origin.scenario,
        changed: &origin.changed,
        scale: origin.scale.parse::<Scale>()?,
        places,
        dir: &origin.dir,
        out,
    })
}

pub(super) fn failover(arguments: &FailoverArguments) -> Result<(), Failure> {
    if !arguments.faults.is_empty() {
        return super::faults::run(arguments);
    }
    if arguments.hosts.are_given() {
        return Err(Failure::usage(
            "--host: a group on given hosts is made with --topology group --fault …",
        ));
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
    new_out_dir(&arguments.out)?;
    let mut keep = |result: &FailoverResult| result.write(&arguments.out);
    let result = ashlar_oltp::failover(&plan, (&interruptible()?, &mut keep))?;
    ending::end(&result, &arguments.out)
}
