//! `ashlar lab cluster`.

use ashlar_device::parse_size;
use ashlar_oltp::group::{Group, GroupPlan, GroupStatus, Tuning};
use ashlar_testbed::nodes::{DRIVES, ETCD_MEMBERS, MOST_NODES, Nodes, NodesPlan};

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
                place_a: arguments.place_a.clone(),
                place_b: arguments.place_b.clone(),
                tuning: tuning(arguments.tuning),
                set: arguments.set.clone(),
                loopback: arguments.loopback,
            };
            let progress = interruptible()?;
            let group = Group::start(&arguments.dir, &plan, &progress)?;
            progress.finish();
            show(arguments, &group.status())
        }
        GroupAction::Stop => {
            Group::at(&arguments.dir)?.stop()?;
            print(&format!("{dir}: ended, and nothing of it is left\n"))
        }
        GroupAction::Up => {
            let plan = nodes_plan(arguments)?;
            let progress = interruptible()?;
            let nodes = Nodes::up(&arguments.dir, &plan, &progress)?;
            progress.finish();
            show_nodes(&nodes, arguments.json)
        }
        GroupAction::Down => {
            Nodes::at(&arguments.dir)?.down()?;
            print(&format!("{dir}: ended, and nothing of it is left\n"))
        }
        GroupAction::Status if Nodes::is_in(&arguments.dir) => {
            show_nodes(&Nodes::at(&arguments.dir)?, arguments.json)
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
    let of_group =
        arguments.place_a.is_some() || arguments.place_b.is_some() || !arguments.set.is_empty();
    if !starts && of_group {
        return Err(Failure::usage(
            "--place-a, --place-b and --set are for start",
        ));
    }
    if !starts && !ups && arguments.loopback {
        return Err(Failure::usage("--loopback is for up and start"));
    }
    let sizes = (arguments.nodes, &arguments.drive_size, arguments.etcd);
    if !ups && sizes != (None, &None, None) {
        return Err(Failure::usage(
            "--nodes, --drive-size and --etcd are for up",
        ));
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

fn show(arguments: &GroupArguments, status: &GroupStatus) -> Result<(), Failure> {
    if arguments.json {
        let text = serde_json::to_string_pretty(status).map_err(Failure::environment)?;
        return print(&format!("{text}\n"));
    }
    let mut text = format!("listener: {}\nnetwork: {}\n", status.url, status.network);
    for node in &status.nodes {
        text.push_str(&format!(
            "{}: {:?}, {} processes\n",
            node.node, node.role, node.processes
        ));
    }
    text.push_str(&format!(
        "etcd: {} of 3\nhaproxy: {}\n",
        status.etcd_members,
        if status.listener {
            "runs"
        } else {
            "does not run"
        }
    ));
    print(&text)
}

/// Prints what a cluster is at.
fn show_nodes(nodes: &Nodes, json: bool) -> Result<(), Failure> {
    let status = nodes.status();
    if json {
        let text = serde_json::to_string_pretty(&status).map_err(Failure::environment)?;
        return print(&format!("{text}\n"));
    }
    let pids = |pids: &[u32]| match pids {
        [] => "does not run".to_owned(),
        all => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            format!("pid {}", all.join(" "))
        }
    };
    let mut text = format!(
        "cluster: {}\nnetwork: {}\netcd: {}, {}\n",
        status.cluster.display(),
        status.network,
        status.etcd.endpoint,
        pids(&status.etcd.pids)
    );
    for node in &status.nodes {
        text.push_str(&format!(
            "{}: portal {}, api {}, {}\n",
            node.name,
            node.portal,
            node.api.display(),
            pids(&node.pids)
        ));
    }
    if !status.enter.is_empty() {
        text.push_str(&format!("clients: {} ashlar …\n", status.enter));
    }
    print(&text)
}
