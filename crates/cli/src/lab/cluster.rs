//! `ashlar lab cluster`.

use std::fmt::Display;

use ashlar_device::parse_size;
use ashlar_failover::{FciPlan, FciSystem, GroupPlaces};
use ashlar_oltp::group::{Group, GroupPlan, Tuning};
use ashlar_testbed::nodes::{DRIVES, ETCD_MEMBERS, MOST_NODES, Nodes, NodesPlan};
use serde::Serialize;

use super::interrupt::interruptible;
use crate::args::{GroupAction, GroupArguments, TuningWord};
use crate::exit::Failure;
use crate::output::print;

const DRIVE_SIZE: &str = "2GiB";

pub(super) fn run(arguments: &GroupArguments) -> Result<(), Failure> {
    check(arguments)?;
    let dir = arguments.dir.display();
    match arguments.action {
        GroupAction::Start => {
            let plan = GroupPlan {
                place_a: None,
                place_b: None,
                tuning: tuning(arguments.tuning),
                set: arguments.set.clone(),
                loopback: arguments.loopback,
            };
            let asked = [arguments.place_a.clone(), arguments.place_b.clone()];
            let (places, progress) = (GroupPlaces::of(&arguments.dir), interruptible()?);
            let group = places.start(&asked, plan, &progress)?;
            progress.finish();
            show(arguments, &group.status())
        }
        GroupAction::Fci => {
            let mut plan = FciPlan::new(&arguments.set);
            if let Some(size) = &arguments.drive_size {
                plan.drive_bytes = parse_size(size)?;
            }
            let progress = interruptible()?;
            let fci = FciSystem::up(&arguments.dir, &plan, &progress)?;
            progress.finish();
            show(arguments, &fci.status())
        }
        GroupAction::Stop | GroupAction::Down if FciSystem::is_in(&arguments.dir) => {
            FciSystem::down(&arguments.dir)?;
            print(&format!("{dir}: ended, and nothing of it is left\n"))
        }
        GroupAction::Status if FciSystem::is_in(&arguments.dir) => {
            show(arguments, &FciSystem::at(&arguments.dir)?.status())
        }
        GroupAction::Move if FciSystem::is_in(&arguments.dir) => {
            let fci = FciSystem::at(&arguments.dir)?;
            fci.switch_over()?;
            show(arguments, &fci.status())
        }
        GroupAction::Stop => {
            GroupPlaces::of(&arguments.dir).stop()?;
            print(&format!("{dir}: ended, and nothing of it is left\n"))
        }
        GroupAction::Up => {
            let plan = nodes_plan(arguments)?;
            let progress = interruptible()?;
            let nodes = Nodes::up(&arguments.dir, &plan, &progress)?;
            progress.finish();
            show(arguments, &nodes.status())
        }
        GroupAction::Down => {
            Nodes::at(&arguments.dir)?.down()?;
            print(&format!("{dir}: ended, and nothing of it is left\n"))
        }
        GroupAction::Status if Nodes::is_in(&arguments.dir) => {
            show(arguments, &Nodes::at(&arguments.dir)?.status())
        }
        GroupAction::Status => show(arguments, &Group::at(&arguments.dir)?.status()),
        GroupAction::Move => {
            let group = Group::at(&arguments.dir)?;
            group.switch_over()?;
            show(arguments, &group.status())
        }
    }
}

/// Refuses what another action takes.
fn check(arguments: &GroupArguments) -> Result<(), Failure> {
    let starts = arguments.action == GroupAction::Start;
    let ups = arguments.action == GroupAction::Up;
    let of_group = arguments.place_a.is_some() || arguments.place_b.is_some();
    if !starts && of_group {
        return Err(Failure::usage("--place-a and --place-b are for start"));
    }
    if !starts && arguments.action != GroupAction::Fci && !arguments.set.is_empty() {
        return Err(Failure::usage("--set is for start and fci"));
    }
    if !starts && !ups && arguments.loopback {
        return Err(Failure::usage("--loopback is for up and start"));
    }
    if !ups && (arguments.nodes, arguments.etcd) != (None, None) {
        return Err(Failure::usage("--nodes and --etcd are for up"));
    }
    if !ups && arguments.action != GroupAction::Fci && arguments.drive_size.is_some() {
        return Err(Failure::usage("--drive-size is for up and fci"));
    }
    Ok(())
}

fn nodes_plan(arguments: &GroupArguments) -> Result<NodesPlan, Failure> {
    let nodes = arguments.nodes.unwrap_or(2);
    if !(1..=MOST_NODES).contains(&nodes) {
        return Err(Failure::usage(format!(
            "--nodes {nodes}: 1 to {MOST_NODES}"
        )));
    }
    if let Some(etcd) = arguments.etcd.filter(|etcd| !ETCD_MEMBERS.contains(etcd)) {
        return Err(Failure::usage(format!("--etcd {etcd}: 1 or 3")));
    }
    let size = arguments.drive_size.as_deref().unwrap_or(DRIVE_SIZE);
    Ok(NodesPlan {
        nodes,
        drives: DRIVES,
        drive_bytes: parse_size(size)?,
        loopback: arguments.loopback,
        etcd: arguments.etcd.unwrap_or(1),
        has_switches: false,
    })
}

pub(super) fn tuning(word: TuningWord) -> Tuning {
    match word {
        TuningWord::Default => Tuning::Default,
        TuningWord::Fast => Tuning::Fast,
    }
}

/// Prints what something is at, for people or as JSON.
fn show<T: Serialize + Display>(arguments: &GroupArguments, status: &T) -> Result<(), Failure> {
    if arguments.json {
        let text = serde_json::to_string_pretty(status).map_err(Failure::environment)?;
        return print(&format!("{text}\n"));
    }
    print(&status.to_string())
}
