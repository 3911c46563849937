//! `ashlar lab cluster`.

use ashlar_oltp::group::{Group, GroupPlan, GroupStatus, Tuning};

use super::interrupt::interruptible;
use crate::args::{GroupAction, GroupArguments, TuningWord};
use crate::exit::Failure;
use crate::output::print;

pub(super) fn run(arguments: &GroupArguments) -> Result<(), Failure> {
    let starts = arguments.action == GroupAction::Start;
    let says_how = arguments.place_a.is_some()
        || arguments.place_b.is_some()
        || !arguments.set.is_empty()
        || arguments.loopback;
    if !starts && says_how {
        return Err(Failure::usage(
            "--place-a, --place-b, --set and --loopback are for start",
        ));
    }
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
        GroupAction::Status => show(arguments, &Group::at(&arguments.dir)?.status()),
        GroupAction::Move => {
            let group = Group::at(&arguments.dir)?;
            group.switch_over()?;
            show(arguments, &group.status())
        }
    }
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
