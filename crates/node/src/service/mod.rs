//! Services that are kept up where their volumes are: the volumes decide, and there is no second quorum.
//!
//! ```text
//! Ownership ─▶ driver ──(what is seen)──▶ machine ──(one action)──▶ host: attach, mount, start, kill
//! ```
//!
//! The `machine` is a state machine without I/O. The driver, a thread for each service, tells it what is seen and has the
//! host do what it says. Who has the volumes is a parameter ([`Ownership`]): of volumes that are not replicated it is
//! always this node, and a service on them has one node only.
//!
//! A service on replicated volumes is remembered by every node that has copies of them (`share`): each tells the others
//! what it knows, the newer counts, and none needs the quorum to start what it has the volumes of.
//!
//! # Invariants
//!
//! 1. A service runs only while its node serves all of its volumes, since the change of owners at which it was mounted.
//! 2. What was mounted before is gone before anything is mounted again, and before a daemon that comes up serves.
//! 3. A daemon that is gone, or stands still, has its replicated services taken down by their guards.

mod address;
mod driver;
mod entry;
mod errand;
mod fences;
mod follow;
mod group;
mod guard;
mod haproxy;
mod host;
mod keep;
mod machine;
mod mounts;
mod needs;
mod orders;
mod postgres;
mod probe;
mod run;
mod share;
mod tell;
#[cfg(test)]
mod tests;
mod wake;

use std::sync::Arc;
use std::time::Duration;

pub use entry::{Answer, Told, Words};
pub use group::end_left_behind;
pub use guard::{GuardPlan, guard};
pub use haproxy::haproxy;
pub use keep::{Services, fence_left_behind};
pub use machine::Owner;
pub use postgres::{make_cluster, postgres, quick_recovery};

use crate::model::{ControlError, VolumeName, VolumeState};
use crate::{Control, Events};

/// Who has volumes, and which other nodes there are.
pub trait Ownership: Send + Sync + 'static {
    /// The name of this node.
    fn node(&self) -> String;

    /// The other nodes.
    fn peers(&self) -> Vec<String>;

    /// Whether this node has all of these. Asked often: it must not wait for anything outside.
    fn owner(&self, volumes: &[VolumeName]) -> Owner;

    /// How long the owner before had been silent when this one had the volumes.
    fn silence(&self, volumes: &[VolumeName]) -> Option<Duration>;

    /// The nodes that have copies of all of these; none: they are not replicated.
    ///
    /// # Errors
    /// Not found. Conflict: copies are on different nodes, or the volumes have different owners.
    fn nodes(&self, volumes: &[VolumeName]) -> Result<Vec<String>, ControlError>;

    /// The other nodes that could have all of them now, as far as this one knows, which has them.
    fn takers(&self, volumes: &[VolumeName]) -> Vec<String>;

    /// The same nodes, those first that are to have it where there is a choice: not one that is about to end. May wait
    /// for their answers.
    fn preferred(&self, nodes: Vec<String>) -> Vec<String>;

    /// Lets this machine connect to all of them, on all their nodes that are reached.
    ///
    /// # Errors
    /// One is not here, or cannot be changed.
    fn let_in(&self, volumes: &[VolumeName]) -> Result<(), ControlError>;

    /// Whether all of them could be given to another node now.
    ///
    /// # Errors
    /// Conflict: there is no such node, it has no copy of all of them, or one is kept here. Environment: the quorum
    /// does not answer.
    fn may_give(&self, volumes: &[VolumeName], to: &str) -> Result<(), ControlError>;

    /// Gives all of them to another node.
    ///
    /// # Errors
    /// Conflict: there is no such node, or it has no copy of all of them. Environment: it has not taken over.
    fn give(&self, volumes: &[VolumeName], to: &str) -> Result<(), ControlError>;

    /// Where this node has the first, asks for the others; where it cannot have them all, a node gets them that can.
    ///
    /// # Errors
    /// One does not come.
    fn gather(&self, volumes: &[VolumeName]) -> Result<(), ControlError>;

    /// Where operators are told what has happened.
    fn events(&self) -> &Events;

    /// Says something to another node.
    ///
    /// # Errors
    /// It cannot be reached, or what it says.
    fn say(&self, node: &str, words: Words) -> Result<Answer, ControlError>;
}

/// Volumes of this node alone.
pub struct OneNode {
    control: Arc<dyn Control>,
    events: Arc<Events>,
}

impl OneNode {
    /// Those of this daemon.
    pub fn new(control: Arc<dyn Control>, events: Arc<Events>) -> Self {
        Self { control, events }
    }

    /// Why a volume cannot be used, if it cannot.
    fn trouble(&self, name: &VolumeName) -> Option<String> {
        match self.control.volume(name) {
            Err(error) => Some(error.message),
            Ok(volume) => match volume.state {
                VolumeState::Online | VolumeState::Degraded => None,
                VolumeState::Stopped | VolumeState::Failed | VolumeState::Deleting => {
                    let why = volume.reason.unwrap_or_default();
                    Some(format!("volume {name} takes no writes: {why}"))
                }
            },
        }
    }
}

/// Words for volumes that have one copy.
pub(crate) fn one_copy(volumes: &[VolumeName]) -> ControlError {
    let names: Vec<String> = volumes.iter().map(ToString::to_string).collect();
    ControlError::conflict(format!(
        "{}: no other node has a copy, so there is nowhere to move to",
        names.join(", ")
    ))
}

impl Ownership for OneNode {
    fn node(&self) -> String {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim().to_owned()
    }

    fn peers(&self) -> Vec<String> {
        Vec::new()
    }

    fn owner(&self, volumes: &[VolumeName]) -> Owner {
        match volumes.iter().find_map(|name| self.trouble(name)) {
            Some(why) => Owner::Unusable { why },
            None => Owner::Here { epoch: 0 },
        }
    }

    fn silence(&self, _: &[VolumeName]) -> Option<Duration> {
        None
    }

    fn nodes(&self, _: &[VolumeName]) -> Result<Vec<String>, ControlError> {
        Ok(Vec::new())
    }

    fn takers(&self, _: &[VolumeName]) -> Vec<String> {
        Vec::new()
    }

    fn preferred(&self, nodes: Vec<String>) -> Vec<String> {
        nodes
    }

    /// Attaching does it.
    fn let_in(&self, _: &[VolumeName]) -> Result<(), ControlError> {
        Ok(())
    }

    fn may_give(&self, volumes: &[VolumeName], _: &str) -> Result<(), ControlError> {
        Err(one_copy(volumes))
    }

    fn give(&self, volumes: &[VolumeName], to: &str) -> Result<(), ControlError> {
        self.may_give(volumes, to)
    }

    fn gather(&self, _: &[VolumeName]) -> Result<(), ControlError> {
        Ok(())
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn say(&self, node: &str, _: Words) -> Result<Answer, ControlError> {
        Err(ControlError::not_found(format!("there is no node {node}")))
    }
}
