//! Runs that can go on: `ashlar lab sweep`, `ashlar lab run`.

use std::path::Path;

use ashlar_failover::FaultsRun;
use ashlar_lab::scenario::{FILE, refuse_changed, with_nodes, with_pools, with_set};
use ashlar_lab::{
    Agents, Command, Journal, LabError, Machine, Means, Origin, ResultFile, Scale, ScenarioFile,
    ScenarioOptions, SweepPlan, check_out_dir, run_plan, run_scenario, write_whole,
};
use ashlar_oltp::scenario::with_users;
use ashlar_oltp::versus::VersusFile;
use ashlar_oltp::{FleetScenario, OltpScenario};
use ashlar_testbed::own_agents::{self, OwnAgents};
use ashlar_testbed::replicated::Ground;
use ashlar_testbed::service::LocalServices;
use ashlar_testbed::stacks::LocalStacks;
use ashlar_testbed::{link, pools};

use super::interrupt::interruptible;
use super::{databases, ending, faults, ha, report_path, text_of, torn, versus};
use crate::args::{ClientArguments, RunArguments, SweepArguments};
use crate::exit::Failure;
use crate::output::print;
use crate::stack;

/// A sweep of devices.
pub(super) fn sweep(plan: &SweepPlan, arguments: &SweepArguments) -> Result<(), Failure> {
    let out = &arguments.out;
    plan.check()?;
    let origin = Origin {
        command: Command::Sweep,
        scenario: ScenarioFile::of(plan).text()?,
        scale: "1".to_owned(),
        destroy_data: plan.destroy_data,
        machine: Machine::here(),
        clients: agents(&arguments.agents),
        ..Origin::default()
    };
    let mut journal = Journal::begin(out, &origin)?;
    devices(&origin, out, &mut journal)
}

/// A scenario, or what is left of it.
pub(super) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    if let Some(dir) = &arguments.resume {
        return resume(dir);
    }
    let (Some(name), Some(out)) = (&arguments.scenario, &arguments.out) else {
        return Err(Failure::usage(
            "lab run: needs the name of a scenario or a file, and --out DIR; or --resume DIR",
        ));
    };
    let named = |error: LabError| LabError::usage(format!("{name}: {error}"));
    let text = text_of(name)?;
    if VersusFile::is_one(&text).map_err(named)? {
        return versus::run(arguments, &text);
    }
    // A mistake in it is told with its name before anything else is looked at.
    let is_of_databases = is_of_databases(&text).map_err(named)?;
    let is_fleet = FleetScenario::is_one(&text).map_err(named)?;
    if !is_fleet {
        for (option, is_given) in [
            ("--databases", arguments.databases.is_some()),
            ("--streams", arguments.streams.is_some()),
        ] {
            if is_given {
                return Err(Failure::usage(format!(
                    "{option}: for fleets, which have a section [fleet]; {name} has none"
                )));
            }
        }
    }
    if let (Some(nodes), true, false) = (arguments.nodes, is_of_databases, is_fleet) {
        return Err(Failure::usage(format!(
            "--nodes {nodes}: for fleets and scenarios of devices; {name} drives databases on places (--place)"
        )));
    }
    if let (Some(pool), true) = (arguments.pools.first(), is_of_databases) {
        return Err(Failure::usage(format!(
            "--pool {pool}: for scenarios of devices; {name} drives databases, on places (--place)"
        )));
    }
    let origin = Origin {
        command: Command::Run,
        scenario: changed(&text, arguments)?,
        changed: arguments.changed(),
        scale: arguments.scale.clone(),
        dir: arguments.dir.clone(),
        places: arguments.places.clone(),
        destroy_data: arguments.destroy_data,
        machine: Machine::here(),
        clients: agents(&arguments.agents),
        ..Origin::default()
    };
    if is_of_databases {
        match FleetScenario::is_one(&origin.scenario)? {
            true => drop(FleetScenario::parse(&origin.scenario).map_err(named)?),
            false => drop(OltpScenario::parse(&origin.scenario).map_err(named)?),
        }
        databases::check(&origin)?;
    } else {
        if let Some(place) = origin.places.first() {
            return Err(Failure::usage(format!(
                "--place {place}: for scenarios of databases, which have a section [oltp], [scan] or [fleet]; {name} \
                 has none"
            )));
        }
        let file = ScenarioFile::parse(&origin.scenario).map_err(named)?;
        pools::check(&file, &origin.clients).map_err(named)?;
        own_agents::check(&file, &origin.clients)?;
    }
    origin.scale.parse::<Scale>()?;
    let mut journal = Journal::begin(out, &origin)?;
    carry_out(&origin, out, &mut journal)
}

fn is_of_databases(text: &str) -> Result<bool, LabError> {
    Ok(OltpScenario::is_one(text)? || FleetScenario::is_one(text)?)
}

fn agents(arguments: &ClientArguments) -> Agents {
    Agents {
        addresses: arguments.clients.clone(),
        token_file: arguments.token_file.clone().unwrap_or_default(),
        serve_on: arguments.serve_on,
    }
}

/// The scenario with what the command line changes in it.
fn changed(text: &str, arguments: &RunArguments) -> Result<String, LabError> {
    let is_fleet = FleetScenario::is_one(text)?;
    let text = with_set(text, &set(arguments, is_fleet))?;
    let text = with_pools(&text, &arguments.pools)?;
    let text = with_nodes(&text, arguments.nodes.filter(|_| !is_fleet))?;
    with_users(&text, &arguments.users)
}

/// What the command line puts into the scenario, besides users.
fn set(arguments: &RunArguments, is_fleet: bool) -> Vec<String> {
    let mut set = arguments.set.clone();
    let count = |databases| format!("fleet.databases={databases}");
    set.extend(arguments.databases.map(count));
    let list = |streams: &String| match streams.contains(',') {
        true => format!("fleet.streams=[{streams}]"),
        false => format!("fleet.streams={streams}"),
    };
    set.extend(arguments.streams.as_ref().map(list));
    let nodes = arguments.nodes.filter(|_| is_fleet);
    set.extend(nodes.map(|nodes| format!("fleet.nodes={nodes}")));
    if arguments.databases.is_some() || arguments.streams.is_some() {
        set.push("fleet.keep=true".to_owned());
    }
    set
}

fn resume(dir: &Path) -> Result<(), Failure> {
    let (mut journal, origin) = Journal::resume(dir, &Machine::here())?;
    match origin.command {
        Command::Failover => {
            let asked: FaultsRun = origin.what()?;
            return faults::carry_out(&asked.ready()?, dir, &mut journal);
        }
        Command::Ha => return ha::carry_out(origin.what()?, dir, &mut journal),
        Command::TornPages => return torn::carry_out(origin.what()?, dir, &mut journal),
        Command::Run | Command::Sweep => origin.refuse_part(dir)?,
    }
    refuse_changed(dir, &origin.scenario)?;
    if !origin.parts.is_empty() {
        check_out_dir(dir)?;
        return versus::resume(&origin, dir, &mut journal);
    }
    pools::end_left(journal.folders())?;
    check_out_dir(dir)?;
    carry_out(&origin, dir, &mut journal)
}

fn carry_out(origin: &Origin, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    match origin.command == Command::Run && is_of_databases(&origin.scenario)? {
        true => databases::run(origin, out, journal),
        false => devices(origin, out, journal),
    }
}

fn devices(origin: &Origin, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    let stacks = LocalStacks::new(stack::open);
    let file = ScenarioFile::parse(&origin.scenario)?;
    let own = OwnAgents::start(&file, origin, journal)?;
    let agents = own.as_ref().map_or(&origin.clients, OwnAgents::agents);
    let clients = link::greet(agents)?;
    let progress = interruptible()?;
    let ground = Ground {
        is_loopback: clients.is_some(),
        progress: &progress,
    };
    let means = Means {
        stacks: &stacks,
        services: &LocalServices::new(&stacks, origin.clients.serve_on, ground),
        clients: clients.as_ref(),
        progress: &progress,
        journal,
    };
    let outcome = match origin.command {
        Command::Sweep => {
            let mut plan = file.plan()?;
            plan.destroy_data = origin.destroy_data;
            run_plan(&plan, means)?
        }
        _ => {
            write_whole(&out.join(FILE), &origin.scenario)?;
            let options = ScenarioOptions {
                scale: origin.scale.parse::<Scale>()?,
                dir: origin.dir.clone(),
                destroy_data: origin.destroy_data,
                changed: origin.changed.clone(),
            };
            run_scenario(&origin.scenario, &options, means)?
        }
    };
    outcome.write(out)?;
    if outcome.is_complete {
        journal.end()?;
    }
    drop(clients);
    own.map_or(Ok(()), OwnAgents::stop)?;
    let result = &outcome.result;
    print(&format!(
        "{}\n{}\n",
        result.text(),
        report_path(out).display()
    ))?;
    match outcome.is_complete {
        true => ending::verdict(result),
        false => ending::verdict_of_resumable(result, out),
    }
}
