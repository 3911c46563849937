//! A group over given hosts: an agent of each has a seat, and starts, watches and ends its programs.
//!
//! ```text
//! coordinator ── claim ─▶ agent: a folder, ports            once
//!             ── start ─▶ agent: etcd; Patroni; HAProxy     each of the programs of its seat
//!             ── look ──▶ agent: what runs                  every second
//!             ── break ─▶ agent: something of it fails      then mend, or it is over in time
//!             ── end ───▶ agent: all ends, and is removed
//! ```
//!
//! The first two hosts have a database and a member of etcd each, the third has etcd's third member and the listener. The
//! coordinator stays while the group is there: when it goes, in order or not, each agent ends its part.
//!
//! The network is the hosts' own, so all that takes orders by it wants a password, which follows from the agents' token
//! and from what is drawn for a group. What members of etcd say to each other has none.

mod breaks;
mod entry;
mod group;
mod kept;
mod quorum;
mod seats;
mod status;
mod system;
mod words;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_lab::agent::Clients;
use ashlar_lab::{LabError, Progress};

pub use self::entry::{Keys, USER, make_user};
use self::group::{HostedGroup, check_hosts, check_plan};
use self::kept::Kept;
pub use self::kept::{end_hosted, hosted_status, is_hosted};
pub use self::seats::GroupSeats;
pub use self::status::{HostStatus, HostedStatus, InstanceNode, InstanceStatus};
pub use self::system::{HostedSystem, OVER_AFTER_S, check_faults, check_hosted};
pub use self::words::check_settings;
use super::Tuning;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often agents are asked while the group is there.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// What a group on given hosts is to be.
#[derive(Clone, Debug)]
pub struct HostedPlan {
    /// How fast it notices.
    pub tuning: Tuning,
    /// PostgreSQL's settings, `name=value`, of those that are known.
    pub set: Vec<String>,
}

/// Makes a group on the hosts of three agents, says so, and has it stay until this is to end. Then all of it ends.
///
/// # Errors
/// The directory is taken, an agent refuses, the group is not ready in time: what was started is ended again.
pub fn hold_hosted(
    clients: &Arc<Clients>,
    (dir, plan, keys): (&Path, &HostedPlan, &Keys),
    progress: &Progress,
    tell: &mut dyn FnMut(&HostedStatus) -> Result<(), LabError>,
) -> Result<(), LabError> {
    check_plan(clients, plan)?;
    check_hosts(clients, &[])?;
    let start = || -> Result<Box<dyn Held>, LabError> {
        let group = HostedGroup::start(clients, (plan, keys), progress)?;
        Ok(Box::new(group))
    };
    hold(dir, &start, progress, tell)
}

/// What is on given hosts for as long as it is held.
pub trait Held {
    /// What it is at; `dir` is the coordinator's.
    fn status(&self, dir: &Path) -> HostedStatus;

    /// # Errors
    /// Something stays.
    fn end(self: Box<Self>) -> Result<(), LabError>;
}

/// What makes it.
pub type StartHeld<'a> = &'a dyn Fn() -> Result<Box<dyn Held>, LabError>;

/// Starts something on given hosts, says so, and has it stay until this is to end. Then all of it ends.
///
/// # Errors
/// The directory is taken, or what starting or ending says.
pub fn hold(
    dir: &Path,
    start: StartHeld<'_>,
    progress: &Progress,
    tell: &mut dyn FnMut(&HostedStatus) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let kept = Kept::claim(dir)?;
    let held = start()?;
    let stayed = stay(held.as_ref(), &kept, progress, tell);
    let ended = held.end();
    stayed.and(ended)
}

/// Watches it until this is to end. A host that is lost does not end the others: that is what a group is for.
fn stay(
    held: &dyn Held,
    kept: &Kept,
    progress: &Progress,
    tell: &mut dyn FnMut(&HostedStatus) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mut is_told = false;
    loop {
        let status = held.status(kept.dir());
        match kept.keep(&status) {
            // A group under a load is not ended because a disk is full for a while.
            Err(error) if is_told => progress.say(&error.to_string()),
            kept => kept?,
        }
        if !is_told {
            tell(&status)?;
            is_told = true;
        }
        let looked = Instant::now();
        while looked.elapsed() < WATCH_EVERY {
            if progress.go_on().is_err() {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
