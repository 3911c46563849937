//! Services that are kept up where their volumes are: the volumes decide, and there is no second quorum.
//!
//! ```text
//! Ownership ─▶ driver ──(what is seen)──▶ machine ──(one action)──▶ host: attach, mount, start, kill
//! ```
//!
//! The `machine` is a state machine without I/O. The driver, a thread for each service, tells it what is seen and has the
//! host do what it says. Who has the volumes is a parameter ([`Ownership`]): of volumes that are not replicated it is
//! always this node, and a service on them has one node only.

mod driver;
mod group;
mod host;
mod keep;
mod machine;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use keep::Services;
pub use machine::Owner;

use crate::Control;
use crate::model::{ControlError, VolumeName, VolumeState};

/// Who has volumes.
pub trait Ownership: Send + Sync + 'static {
    /// The name of this node.
    fn node(&self) -> String;

    /// Who has all of these.
    fn owner(&self, volumes: &[VolumeName]) -> Owner;

    /// Whether another node could have them, and take over when this one is lost.
    fn can_move(&self, volumes: &[VolumeName]) -> bool;

    /// Gives all of them to another node in one step, or to this one.
    ///
    /// # Errors
    /// Conflict: there is no such node, or none that has a copy of all of them.
    fn give(&self, volumes: &[VolumeName], to: Option<&str>) -> Result<(), ControlError>;
}

/// Volumes of this node alone.
pub struct OneNode(Arc<dyn Control>);

impl OneNode {
    /// Those of this daemon.
    pub fn new(control: Arc<dyn Control>) -> Self {
        Self(control)
    }

    /// Why a volume cannot be used, if it cannot.
    fn trouble(&self, name: &VolumeName) -> Option<String> {
        match self.0.volume(name) {
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

impl Ownership for OneNode {
    fn node(&self) -> String {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim().to_owned()
    }

    fn owner(&self, volumes: &[VolumeName]) -> Owner {
        match volumes.iter().find_map(|name| self.trouble(name)) {
            Some(why) => Owner::Unusable { why },
            None => Owner::Here { epoch: 0 },
        }
    }

    fn can_move(&self, _: &[VolumeName]) -> bool {
        false
    }

    fn give(&self, volumes: &[VolumeName], _: Option<&str>) -> Result<(), ControlError> {
        let names: Vec<String> = volumes.iter().map(ToString::to_string).collect();
        Err(ControlError::conflict(format!(
            "{}: no other node has a copy, so there is nowhere to move to",
            names.join(", ")
        )))
    }
}
