//! `ashlar lab cluster`.

use std::fmt::Display;

use ashlar_device::parse_size;
use ashlar_failover::{FciPlan, FciSystem, GroupPlaces};
use ashlar_lab::LabError;
use ashlar_oltp::group::{
    Group, GroupPlan, HostedPlan, HostedStatus, end_hosted, hosted_status, is_hosted,
};
use ashlar_testbed::hosts::GroupHosts;
use ashlar_testbed::nodes::{DRIVES, Nodes, NodesPlan};
use serde::Serialize;

use super::interrupt::interruptible;
use crate::args::{GroupAction, GroupArguments};
use crate::exit::Failure;
use crate::output::print;

const DRIVE_SIZE: u64 = 2 << 30;
/// What a pool takes at least.
const LEAST_DRIVE: u64 = 64 << 20;

pub(super) fn run(arguments: &GroupArguments) -> Result<(), Failure> {
    arguments.check().map_err(Failure::usage)?;
    match arguments.action {
        GroupAction::Start | GroupAction::Fci if arguments.hosts.are_given() => hold(arguments),
        GroupAction::Stop | GroupAction::Down => end(arguments),
        GroupAction::Status if is_hosted(&arguments.dir) => {
            show(arguments, &hosted_status(&arguments.dir)?)
        }
        GroupAction::Start => {
            let plan = GroupPlan {
                place_a: None,
                place_b: None,
                tuning: arguments.tuning.into(),
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
            let (plan, progress) = (fci_plan(arguments)?, interruptible()?);
            let fci = FciSystem::up(&arguments.dir, &plan, &progress)?;
            progress.finish();
            show(arguments, &fci.status())
        }
        GroupAction::Status if FciSystem::is_in(&arguments.dir) => {
            show(arguments, &FciSystem::at(&arguments.dir)?.status())
        }
        GroupAction::Move if FciSystem::is_in(&arguments.dir) => {
            let fci = FciSystem::at(&arguments.dir)?;
            fci.switch_over()?;
            show(arguments, &fci.status())
        }
        GroupAction::Up => {
            let plan = nodes_plan(arguments)?;
            let progress = interruptible()?;
            let nodes = Nodes::up(&arguments.dir, &plan, &progress)?;
            progress.finish();
            show(arguments, &nodes.status())
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

/// Ends what is there.
fn end(arguments: &GroupArguments) -> Result<(), Failure> {
    let dir = &arguments.dir;
    match arguments.action {
        _ if is_hosted(dir) => end_hosted(dir)?,
        _ if FciSystem::is_in(dir) => FciSystem::down(dir)?,
        GroupAction::Down => Nodes::at(dir)?.down()?,
        _ => GroupPlaces::of(dir).stop()?,
    }
    let dir = dir.display();
    print(&format!("{dir}: ended, and nothing of it is left\n"))
}

fn nodes_plan(arguments: &GroupArguments) -> Result<NodesPlan, Failure> {
    let plan = NodesPlan {
        nodes: arguments.nodes.unwrap_or(2),
        drives: DRIVES,
        drive_bytes: drive_size(arguments)?.unwrap_or(DRIVE_SIZE),
        loopback: arguments.loopback,
        etcd: arguments.etcd.unwrap_or(1),
        has_switches: false,
    };
    plan.check()?;
    Ok(plan)
}

fn fci_plan(arguments: &GroupArguments) -> Result<FciPlan<'_>, Failure> {
    Ok(FciPlan::sized(&arguments.set, drive_size(arguments)?))
}

fn drive_size(arguments: &GroupArguments) -> Result<Option<u64>, Failure> {
    let Some(text) = &arguments.drive_size else {
        return Ok(None);
    };
    match parse_size(text) {
        Ok(bytes) if bytes >= LEAST_DRIVE => Ok(Some(bytes)),
        Ok(_) => Err(Failure::usage(format!(
            "--drive-size {text}: a pool takes drives of 64 MiB at least"
        ))),
        Err(error) => Err(Failure::usage(format!("--drive-size: {error}"))),
    }
}

/// A group or an instance on given hosts, which ends with this command.
fn hold(arguments: &GroupArguments) -> Result<(), Failure> {
    let (dir, progress) = (arguments.dir.as_path(), interruptible()?);
    let mut tell = |status: &HostedStatus| {
        progress.finish();
        show(arguments, status).map_err(|why| LabError::environment(why.message()))
    };
    let plan = fci_plan(arguments)?;
    let hosts = GroupHosts::greet(&arguments.hosts.agents())?;
    if arguments.action == GroupAction::Fci {
        return Ok(FciSystem::hold_there(
            &hosts, dir, &plan, &progress, &mut tell,
        )?);
    }
    let plan = HostedPlan {
        tuning: arguments.tuning.into(),
        set: arguments.set.clone(),
    };
    Ok(hosts.hold((dir, &plan), &progress, &mut tell)?)
}

/// Prints what something is at, for people or as JSON.
fn show<T: Serialize + Display>(arguments: &GroupArguments, status: &T) -> Result<(), Failure> {
    if arguments.json {
        let text = serde_json::to_string_pretty(status).map_err(Failure::environment)?;
        return print(&format!("{text}\n"));
    }
    print(&status.to_string())
}
