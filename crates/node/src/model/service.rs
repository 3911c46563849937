use std::net::SocketAddr;
use std::path::{Component, PathBuf};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request::Check;
use super::{ControlError, ServiceAddress, VolumeName, check_name};

/// Longest command, in bytes.
const LONGEST_COMMAND: usize = 4096;
/// Most volumes of a service.
const MOST_VOLUMES: usize = 16;

/// A service to be kept up where its volumes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateService {
    /// Its name.
    pub name: String,
    /// Its volumes, `pool/volume`. All of them are on one node, and move together.
    pub volumes: Vec<String>,
    /// Where each is mounted, in the same order.
    #[schema(value_type = Vec<String>)]
    pub mounts: Vec<PathBuf>,
    /// Whose its commands are; root without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Starts it: a command of `sh`, which may stay or leave processes behind.
    pub start: String,
    /// Given while it still serves, before it is stopped in order or moved: what makes the stop short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
    /// Stops it in order; without, its processes are ended by SIGTERM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Ends with 0 when it is ready; without, it is as soon as it has been started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// A file system that an empty volume is given: `xfs` or `ext4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// An address that is where it runs: `ADDRESS/PREFIX[%INTERFACE]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<ServiceAddress>,
}

impl CreateService {
    /// Its volumes by name.
    ///
    /// # Errors
    /// Usage: one is no name of a volume.
    pub fn volume_names(&self) -> Result<Vec<VolumeName>, ControlError> {
        self.volumes.iter().map(|text| text.parse()).collect()
    }
}

impl Check for CreateService {
    fn check(&self) -> Result<(), ControlError> {
        check_name("service", &self.name)?;
        let usage = |text: String| {
            Err(ControlError::usage(format!(
                "service {}: {text}",
                self.name
            )))
        };
        let names = self.volume_names()?;
        if names.is_empty() || names.len() > MOST_VOLUMES {
            return usage(format!("it has 1 to {MOST_VOLUMES} volumes"));
        }
        if names.len() != self.mounts.len() {
            return usage(format!(
                "{} volumes and {} mount points: say one for each, in the same order",
                names.len(),
                self.mounts.len()
            ));
        }
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return usage(format!("volume {name} is named twice"));
            }
        }
        for (at, mount) in self.mounts.iter().enumerate() {
            let plain = mount
                .components()
                .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
            if !mount.is_absolute() || !plain || mount.parent().is_none() {
                return usage(format!(
                    "mount point {}: must be an absolute path",
                    mount.display()
                ));
            }
            // Programs compare it as text with what the kernel says.
            let simple: PathBuf = mount.components().collect();
            if simple.as_os_str() != mount.as_os_str() {
                return usage(format!(
                    "mount point {}: must be written {}",
                    mount.display(),
                    simple.display()
                ));
            }
            if self.mounts[..at].contains(mount) {
                return usage(format!("mount point {} is named twice", mount.display()));
            }
        }
        let commands = [
            Some(&self.start),
            self.drain.as_ref(),
            self.stop.as_ref(),
            self.ready.as_ref(),
        ];
        for command in commands.into_iter().flatten() {
            if command.trim().is_empty()
                || command.len() > LONGEST_COMMAND
                || command.contains('\0')
            {
                return usage(format!("a command has 1 to {LONGEST_COMMAND} bytes"));
            }
        }
        match self.file_system.as_deref() {
            None | Some("xfs" | "ext4") => Ok(()),
            Some(other) => usage(format!("file system {other:?}: must be xfs or ext4")),
        }
    }
}

/// How a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// An operator has stopped it.
    Stopped,
    /// Its volumes are another node's, which runs it; `reason` says why if it does not.
    Elsewhere,
    /// It waits: for its volumes, or before it is tried again; `reason` says for what.
    Waiting,
    /// Its volumes are attached and mounted.
    Mounting,
    /// Its start command has been given, and it is not ready yet.
    Starting,
    /// It runs and is ready.
    Running,
    /// It is being stopped, and its volumes unmounted.
    Stopping,
    /// It failed too often in a row; `reason` says how. `service start` tries again.
    Failed,
}

/// Everything about a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceStatus {
    /// What it is.
    #[serde(flatten)]
    pub service: CreateService,
    /// How it is on this node.
    pub state: ServiceState,
    /// Why it is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The node that has its volumes, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Since which change of owners.
    pub epoch: u64,
    /// Whether another node takes over when this one is lost.
    pub highly_available: bool,
    /// Whether this node has its address; nothing where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_here: Option<bool>,
    /// Seconds for which it has been in this state.
    pub since_seconds: f64,
    /// How often its owner has changed while this daemon ran.
    pub moves: u64,
    /// How often it was started.
    pub starts: u64,
    /// How often it failed: its processes ended, it was not ready, or its volumes went.
    pub failures: u64,
    /// Seconds from its last failure until it was ready again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_gap_seconds: Option<f64>,
    /// The nodes that can have it; none where its volumes are not replicated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ServiceNode>,
    /// What an operator should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A node that can have a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceNode {
    /// Its name.
    pub name: String,
    /// Where its API listens on TCP, if it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub api: Option<SocketAddr>,
}

/// Where a service is to move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveService {
    /// The node; without, any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Check for MoveService {
    fn check(&self) -> Result<(), ControlError> {
        self.to.as_ref().map_or(Ok(()), |to| check_name("node", to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> CreateService {
        CreateService {
            name: "pg".into(),
            volumes: vec!["tank/data".into(), "tank/wal".into()],
            mounts: vec!["/srv/data".into(), "/srv/wal".into()],
            user: None,
            start: "run".into(),
            drain: None,
            stop: None,
            ready: None,
            file_system: Some("xfs".into()),
            address: None,
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(good().check(), Ok(()));
        type Wrong = fn(&mut CreateService);
        let wrong: [(&str, Wrong); 12] = [
            ("service \"a b\"", |s| s.name = "a b".into()),
            ("1 to 16 volumes", |s| s.volumes.clear()),
            ("2 volumes and 1 mount points", |s| drop(s.mounts.pop())),
            ("tank/data is named twice", |s| {
                s.volumes[1] = "tank/data".into()
            }),
            ("/srv/data is named twice", |s| {
                s.mounts[1] = "/srv/data".into()
            }),
            ("srv/wal: must be an absolute", |s| {
                s.mounts[1] = "srv/wal".into()
            }),
            ("/srv/wal/: must be written /srv/wal", |s| {
                s.mounts[1] = "/srv/wal/".into()
            }),
            ("must be written /srv/wal", |s| {
                s.mounts[1] = "/srv//wal".into()
            }),
            ("must be written /srv/wal", |s| {
                s.mounts[1] = "/srv/./wal".into()
            }),
            ("a command has", |s| s.start = " ".into()),
            ("a command has", |s| s.drain = Some(String::new())),
            ("\"zfs\": must be xfs", |s| {
                s.file_system = Some("zfs".into())
            }),
        ];
        for (named, wrong) in wrong {
            let mut service = good();
            wrong(&mut service);
            let error = service.check().expect_err(named);
            assert!(error.message.contains(named), "{named}: {error}");
        }
    }
}
