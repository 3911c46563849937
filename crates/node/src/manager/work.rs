//! What a pool does in the background, as operators see it.

use std::time::Duration;

use ashlar_store::Status;

use super::LivePool;
use super::status::{members, name_of};
use crate::model::{WorkKind, WorkState, WorkStatus};
use crate::pool::View;

/// Whole ones, and one more for a part.
pub(super) fn seconds(left: Duration) -> u64 {
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

/// All of it.
pub(super) fn work(pool: &LivePool, view: &View) -> Vec<WorkStatus> {
    let status = &view.status;
    let leaving = members(pool, view).filter(|(_, member)| member.in_service && member.leaving);
    let evacuations: Vec<WorkStatus> = leaving
        .map(|(index, member)| evacuation(view, name_of(pool, index), member.holds_homes))
        .collect();
    let walk = view.progress.walk.and_then(|_| {
        let what = match (status.rebuilding, evacuations.is_empty()) {
            (false, _) => WorkKind::Scrub,
            (true, true) => WorkKind::Rebuild,
            // While a drive is emptied nothing else may have to be made again.
            (true, false) if status.degraded => WorkKind::Rebuild,
            (true, false) => return None,
        };
        let subject = lost(pool, view).filter(|_| what == WorkKind::Rebuild);
        Some(walking(view, what, subject))
    });
    let waiting = waiting_repair(status, lost(pool, view));
    let all = walk.into_iter().chain(waiting).chain(evacuations);
    all.chain(reclaims(view)).collect()
}

/// The drive that is out of service, if it is one.
fn lost(pool: &LivePool, view: &View) -> Option<String> {
    let mut out = members(pool, view).filter(|(_, member)| !member.in_service && member.holds);
    let (index, _) = out.next()?;
    out.next().is_none().then(|| name_of(pool, index))
}

fn walking(view: &View, what: WorkKind, subject: Option<String>) -> WorkStatus {
    WorkStatus {
        what,
        subject,
        state: WorkState::Running,
        reason: None,
        progress: view.progress.walk.unwrap_or(0.0),
        eta_seconds: view.progress.walk_left.map(seconds),
    }
}

/// A drive that is being emptied.
fn evacuation(view: &View, drive: String, holds_homes: bool) -> WorkStatus {
    let status = &view.status;
    let moving = WorkStatus {
        subject: Some(drive),
        ..walking(view, WorkKind::Evacuate, None)
    };
    match (view.progress.walk, status.rebuilding, holds_homes) {
        (Some(_), true, _) | (None, true, true) => moving,
        // A scrub comes first.
        (Some(_), false, true) => WorkStatus {
            progress: 0.0,
            eta_seconds: None,
            ..moving
        },
        // What is left are logs and map, which move with the next roots.
        (_, _, false) => WorkStatus {
            progress: 1.0,
            eta_seconds: None,
            ..moving
        },
        (None, false, true) => WorkStatus {
            state: WorkState::Stuck,
            reason: Some("no other drive has room for what it holds: add one".to_owned()),
            eta_seconds: None,
            ..moving
        },
    }
}

/// A repair that waits for its time, or that has found no room.
fn waiting_repair(status: &Status, lost: Option<String>) -> Option<WorkStatus> {
    let waiting = |state, reason: &str, eta: Option<Duration>| WorkStatus {
        what: WorkKind::Rebuild,
        subject: lost,
        state,
        reason: Some(reason.to_owned()),
        progress: 0.0,
        eta_seconds: eta.map(seconds),
    };
    if status.repair_in.is_some() {
        let why = "a lost drive may be replaced first; `pool repair` begins at once";
        return Some(waiting(WorkState::Waiting, why, status.repair_in));
    }
    let is_stuck = status.degraded && !status.rebuilding && status.walk.is_none();
    is_stuck.then(|| {
        let why = "no drive has room for the copies that are missing: add one";
        waiting(WorkState::Stuck, why, None)
    })
}

/// Volumes whose space is given back.
fn reclaims(view: &View) -> impl Iterator<Item = WorkStatus> {
    let deleting = view.status.volumes.iter().filter(|volume| volume.deleting);
    deleting.map(|volume| {
        let reclaim = view.progress.reclaims.get(&volume.number);
        WorkStatus {
            what: WorkKind::Reclaim,
            subject: Some(volume.name.clone()),
            state: WorkState::Running,
            reason: None,
            progress: reclaim.map_or(0.0, |reclaim| reclaim.done),
            eta_seconds: reclaim.and_then(|reclaim| reclaim.left).map(seconds),
        }
    })
}
