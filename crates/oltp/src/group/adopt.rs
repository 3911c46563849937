//! A group of two databases that exist: a primary and its standby are kept by Patroni from now on, and what they hold
//! stays where it is when the group ends.

use std::path::Path;
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};
use rustix::process::{Pid, Signal, kill_process};

use super::node::{Member, NodeName};
use super::{Group, GroupPlan, READY_WITHIN, Role, Tuning};
use crate::processes;
use crate::server::Door;

/// A database may write for long before it has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a database was told by `alter system` counts more than what Patroni says, and so must go.
const OWN_SETTINGS: &str = "data/postgresql.auto.conf";

/// Databases that are taken over, both of them stopped in order.
pub(crate) struct Adopted<'a> {
    /// Where etcd, the listener and what is known of the group will be: an empty directory.
    pub(crate) dir: &'a Path,
    /// The primary's and the standby's; each has its `data`.
    pub(crate) homes: [&'a Path; 2],
    /// PostgreSQL's settings, `name=value`.
    pub(crate) set: Vec<String>,
    /// If clients on other machines are to reach the primary.
    pub(crate) door: Option<Door>,
}

impl Group {
    /// Starts a group of databases that exist, and waits until a commit waits for the standby.
    ///
    /// # Errors
    /// A program that is missing, a group that is not ready in time: what was started is ended again.
    pub(crate) fn adopt(adopted: Adopted<'_>, progress: &Progress) -> Result<Self, LabError> {
        let plan = GroupPlan {
            place_a: None,
            place_b: None,
            // It is started again and again: with a loop of 10 s each start would wait for two.
            tuning: Tuning::Fast,
            set: adopted.set,
            loopback: false,
        };
        let homes = adopted.homes.map(Path::to_owned);
        for home in &homes {
            let own = home.join(OWN_SETTINGS);
            std::fs::write(&own, "").map_err(|error| LabError::caused(own.display(), error))?;
        }
        let mut group = Self::make(adopted.dir, &plan, homes.into())?;
        group.door = adopted.door;
        let started = group.start_members(progress);
        if let Err(error) = started {
            group.stop()?;
            return Err(error);
        }
        Ok(group)
    }

    /// Waits until the database that was the primary is one.
    pub(super) fn await_primary(&self, progress: &Progress) -> Result<(), LabError> {
        let begun = Instant::now();
        while self.role(NodeName::A) != Role::Primary {
            progress.go_on()?;
            if begun.elapsed() > READY_WITHIN {
                return Err(LabError::environment(format!(
                    "the primary that the group has adopted is none after {} s{}",
                    READY_WITHIN.as_secs(),
                    self.last_words()
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Ends it, the standby first, each database in order; what they hold stays.
    ///
    /// # Errors
    /// Something does not end.
    pub(crate) fn release(&self) -> Result<(), LabError> {
        for node in [NodeName::B, NodeName::A] {
            self.end_in_order(node)?;
        }
        self.stop()
    }

    fn end_in_order(&self, node: NodeName) -> Result<(), LabError> {
        let begun = Instant::now();
        let mut told: Vec<u32> = Vec::new();
        loop {
            let left = self.processes(Member::Patroni(node));
            if left.is_empty() {
                return Ok(());
            }
            // The keeper ends its database, and then itself.
            for pid in left
                .iter()
                .copied()
                .filter(|&pid| processes::is_python(pid))
            {
                if !told.contains(&pid) {
                    told.push(pid);
                    // One that has ended meanwhile is what is wanted.
                    let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::TERM));
                }
            }
            if begun.elapsed() > ENDS_WITHIN {
                return Err(LabError::environment(format!(
                    "node {node} of the group does not end: process {} is left",
                    left[0]
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
