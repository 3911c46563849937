//! What is attached.

use std::path::Path;

use serde::Serialize;

use crate::control;
use crate::counters::Tallies;
use crate::local;
use crate::nvme::{self, Health};
use crate::paths::PathStatus;
use crate::state::{Folder, Phase, Processes, State};
use crate::system::process::Process;
use crate::system::{mounts, users};

/// How an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// It is on its way.
    Attaching,
    /// It is mounted and served.
    Attached,
    /// It is served, but without a guardian, which would start another server.
    Unguarded,
    /// The server is stopped by a signal: I/O waits.
    Stopped,
    /// There is no server: I/O waits for one if there is a guardian, and fails if not.
    Unserved,
    /// The kernel has lost the target and tries to connect again: I/O waits.
    Reconnecting,
    /// Another host has taken the volume over: all I/O fails.
    Fenced,
    /// Its file system is not mounted (any more).
    Unmounted,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attachment {
    /// What is remembered of it.
    #[serde(flatten)]
    pub state: State,
    /// How it is.
    pub condition: Condition,
    /// The processes behind it.
    pub processes: Option<Processes>,
    /// What has arrived since the server started, or the daemon took it; nothing if it does not answer.
    pub requests: Option<Tallies>,
    /// By which paths its server reaches the volume; none if it does not answer, or is another's.
    pub paths: Vec<PathStatus>,
    /// Why all I/O fails, if another host has taken the volume over.
    pub fenced: Option<String>,
    /// Of one that is not mounted: what of it is there, and who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// Everything that is attached.
pub fn list(base: &Path) -> Vec<Attachment> {
    let folders = Folder::all(base);
    folders.iter().filter_map(look).collect()
}

fn look(folder: &Folder) -> Option<Attachment> {
    let state = folder.state().ok()?;
    let processes = folder.processes();
    let condition = condition(&state, processes.as_ref());
    let mut told = Attachment {
        state,
        condition,
        processes,
        requests: None,
        paths: Vec::new(),
        fenced: None,
        left: None,
    };
    if condition == Condition::Unmounted {
        told.left = Some(left(folder, &told));
    }
    match (condition, &told.state.local) {
        (Condition::Stopped | Condition::Unserved, _) => {}
        (_, Some(daemon)) => {
            told.requests = local::count(&daemon.socket, &told.state.identity);
        }
        (_, None) => {
            if let Some(answer) = control::ask(folder.path()) {
                told.requests = Some(answer.tallies);
                told.paths = answer.paths;
                told.fenced = answer.fenced;
            }
        }
    }
    let is_served = matches!(condition, Condition::Attached | Condition::Unguarded);
    if is_served && told.fenced.is_some() {
        told.condition = Condition::Fenced;
    }
    Some(told)
}

/// What an attachment has besides its mount.
fn left(folder: &Folder, told: &Attachment) -> String {
    let mut left = Vec::new();
    let device = match &told.state.controller {
        Some(_) => told.state.device.clone(),
        None => folder.loop_device(Some(&told.state)),
    };
    if let Some(device) = device {
        let name = device.display();
        left.push(match users::holders(&device) {
            Some(who) => format!("{name}, in use by {who}"),
            None => name.to_string(),
        });
    }
    let processes = told.processes.iter();
    let processes =
        processes.flat_map(|all| [("server", all.server), ("guardian", Some(all.guardian))]);
    for (what, process) in processes {
        if let Some(process) = process.filter(Process::is_alive) {
            left.push(format!("its {what} (process {})", process.pid));
        }
    }
    match left.is_empty() {
        true => "nothing but its name".to_owned(),
        false => left.join("; "),
    }
}

fn condition(state: &State, processes: Option<&Processes>) -> Condition {
    if matches!(state.phase, Phase::Attaching(by) if by.is_alive()) {
        return Condition::Attaching;
    }
    let device = state.device.as_deref();
    let is_ours = |mount: mounts::Mount| Some(Path::new(&mount.source)) == device;
    if !mounts::at(&state.mount).is_some_and(is_ours) {
        return Condition::Unmounted;
    }
    if let Some(controller) = &state.controller {
        return match nvme::health(controller) {
            Health::Live => Condition::Attached,
            Health::Waiting => Condition::Reconnecting,
            Health::Gone => Condition::Unserved,
        };
    }
    let Some(processes) = processes else {
        return Condition::Unserved;
    };
    match processes.server.or(processes.daemon) {
        Some(server) if server.is_stopped() => Condition::Stopped,
        Some(server) if server.is_alive() => match processes.guardian.is_alive() {
            true => Condition::Attached,
            false => Condition::Unguarded,
        },
        _ => Condition::Unserved,
    }
}
