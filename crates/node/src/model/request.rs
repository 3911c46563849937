use std::collections::BTreeSet;

use ashlar_store::Share;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::hosts::check_hosts;
use super::replica::check_count;
use super::{
    ControlError, DriveClass, HostList, HotSpec, LayoutSpec, ReserveSpec, VolumeName, VolumeStatus,
    WhenDegraded, check_name,
};

/// Most drives of a pool.
const MAX_DRIVES: usize = 64;
/// Longest text that names a device.
const MAX_SPEC: usize = 4096;
/// Sizes of volumes are whole numbers of these.
const SIZE_UNIT: u64 = 4096;
const GRAINS: [u32; 4] = [8192, 16384, 32768, 65536];

/// A request that can be wrong by itself. Checked before it reaches [`Control`](crate::Control).
pub trait Check {
    /// Whether it makes sense, whatever the state of the node.
    ///
    /// # Errors
    /// Usage.
    fn check(&self) -> Result<(), ControlError>;
}

/// A pool to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// Its drives, as devices are named: `/dev/x`, `file:/p?size=8GiB&class=hdd`.
    pub drives: Vec<String>,
    /// What is on the drives may be destroyed.
    #[serde(default)]
    pub destroy_data: bool,
    /// How much is kept for repair in place.
    #[serde(default)]
    pub reserve: ReserveSpec,
}

impl Check for CreatePool {
    fn check(&self) -> Result<(), ControlError> {
        check_name("pool", &self.name)?;
        if self.drives.is_empty() {
            return Err(ControlError::usage(format!(
                "pool {}: name at least one drive",
                self.name
            )));
        }
        check_drives(&self.name, &self.drives)?;
        match self.reserve {
            ReserveSpec::Drives(reserve) if reserve as usize >= self.drives.len() => {
                Err(ControlError::usage(format!(
                    "pool {}: {reserve} of {} drives cannot be kept in reserve",
                    self.name,
                    self.drives.len()
                )))
            }
            _ => Ok(()),
        }
    }
}

fn check_drives(pool: &str, drives: &[String]) -> Result<(), ControlError> {
    if drives.len() > MAX_DRIVES {
        return Err(ControlError::usage(format!(
            "pool {pool}: {} drives; at most {MAX_DRIVES}",
            drives.len()
        )));
    }
    let mut seen = BTreeSet::new();
    for drive in drives {
        check_spec(drive)?;
        if !seen.insert(drive) {
            return Err(ControlError::usage(format!(
                "pool {pool}: drive {drive} is named twice"
            )));
        }
    }
    Ok(())
}

pub(super) fn check_spec(spec: &str) -> Result<(), ControlError> {
    if spec.is_empty() || spec.len() > MAX_SPEC || spec.chars().any(char::is_control) {
        return Err(ControlError::usage(format!(
            "drive {:?}: a device is named by 1 to {MAX_SPEC} characters, none of them a control",
            spec.chars().take(64).collect::<String>()
        )));
    }
    Ok(())
}

/// A pool to be taken up again: after a restart of the machine, a move of its drives, a rename.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// Where to look; empty for the drives it had when the daemon last knew it.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Which one, if several pools have this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// The name it has from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// Even if half of its drives or more are missing: they are left out for good. Only for an
    /// operator who knows that they were not in service later than those that are here.
    #[serde(default)]
    pub degraded: bool,
    /// Even if of some blocks no copy is good on the drives that are here: they are errors until they are written. An
    /// import without this that finds such blocks is refused, and says which they are.
    #[serde(default)]
    pub accept_data_loss: bool,
}

impl Check for ImportPool {
    fn check(&self) -> Result<(), ControlError> {
        if let Some(name) = &self.new_name {
            check_name("pool", name)?;
        }
        check_drives("to be imported", &self.drives)
    }
}

/// How much of a pool is to be kept for repair from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetReserve {
    /// How much.
    pub reserve: ReserveSpec,
}

impl Check for SetReserve {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// A pool to be let go, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportPool {
    /// Even if hosts are connected to its volumes; they lose them.
    #[serde(default)]
    pub force: bool,
}

impl Check for ExportPool {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// A drive to be added to a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDrive {
    /// The device.
    pub drive: String,
    /// What is on it may be destroyed.
    #[serde(default)]
    pub destroy_data: bool,
}

impl Check for AddDrive {
    fn check(&self) -> Result<(), ControlError> {
        check_spec(&self.drive)
    }
}

/// A drive to be replaced by another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceDrive {
    /// The drive that goes, by its device or its id; it may be dead or missing.
    pub old: String,
    /// The device that comes.
    pub new: String,
    /// What is on the new one may be destroyed.
    #[serde(default)]
    pub destroy_data: bool,
}

impl Check for ReplaceDrive {
    fn check(&self) -> Result<(), ControlError> {
        check_spec(&self.old)?;
        check_spec(&self.new)?;
        if self.old == self.new {
            return Err(ControlError::usage(format!(
                "drive {} cannot replace itself; name the old one by its id",
                self.old
            )));
        }
        Ok(())
    }
}

/// A drive to be emptied and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveDrive {
    /// The drive, by its device or its id.
    pub drive: String,
}

impl Check for RemoveDrive {
    fn check(&self) -> Result<(), ControlError> {
        check_spec(&self.drive)
    }
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub name: String,
    /// Its size, a multiple of 4,096.
    pub bytes: u64,
    /// How it is laid out.
    pub layout: LayoutSpec,
    /// Size of its slots, which are allocated, and with parity written, as a whole: 8,192, 16,384,
    /// 32,768 or 65,536. Without it, parity has the smallest that its columns of data fill best,
    /// mirrors have 65,536. A `stripe` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grain_bytes: Option<u32>,
    /// The class of drives that hold it. Without it, in a pool of several classes: the one with most room, of
    /// those with drives enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DriveClass>,
    /// Where what is small and hot of it lies, beside the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<HotSpec>,
    /// How much of the volume may be there, in percent, 1 to 90; 20 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_share_percent: Option<u8>,
    /// What it does when a copy is missing.
    #[serde(default)]
    pub when_degraded: WhenDegraded,
    /// The hosts that may connect, by NQN.
    #[serde(default)]
    pub allow_hosts: Vec<String>,
    /// Whether every host may.
    #[serde(default)]
    pub allow_any_host: bool,
    /// How many nodes have a copy, each in its pool of this name: 1 to 3.
    #[serde(default = "one")]
    pub replicas: u8,
    /// Which nodes; without it, this one and those whose pools of this name have most room, none that is drained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

const fn one() -> u8 {
    1
}

impl CreateVolume {
    /// A volume that no host may use yet.
    pub fn new(volume: &VolumeName, bytes: u64, layout: LayoutSpec) -> Self {
        Self {
            pool: volume.pool.clone(),
            name: volume.name.clone(),
            bytes,
            layout,
            grain_bytes: None,
            class: None,
            hot: None,
            hot_share_percent: None,
            when_degraded: WhenDegraded::default(),
            allow_hosts: Vec::new(),
            allow_any_host: false,
            replicas: 1,
            nodes: Vec::new(),
        }
    }
}

impl CreateVolume {
    /// Who may connect to it.
    pub(crate) fn hosts(&self) -> HostList {
        HostList {
            hosts: self.allow_hosts.clone(),
            any_host: self.allow_any_host,
        }
    }

    /// Its hot home, and how much of it may be there.
    ///
    /// # Errors
    /// A share without a hot home, or out of bounds.
    pub(crate) fn hot_home(&self) -> Result<Option<(HotSpec, Share)>, ControlError> {
        let said = self.hot_share_percent;
        let Some(hot) = self.hot else {
            return match said {
                None => Ok(None),
                Some(percent) => Err(ControlError::usage(format!(
                    "a share of {percent} % is for a hot home: say which, as in mirror:2@nvme"
                ))),
            };
        };
        let share = said.map_or(Some(Share::DEFAULT), Share::of_percent);
        let share = share.ok_or_else(|| {
            ControlError::usage(format!(
                "a share of {} % for hot home {hot}: it is 1 to {}",
                said.unwrap_or(0),
                Share::MOST
            ))
        })?;
        Ok(Some((hot, share)))
    }
}

impl Check for CreateVolume {
    fn check(&self) -> Result<(), ControlError> {
        VolumeName::new(&self.pool, &self.name)?;
        check_size(self.bytes)?;
        if !(1..=3).contains(&self.replicas) {
            return Err(ControlError::usage(format!(
                "{} replicas: a volume has 1 to 3",
                self.replicas
            )));
        }
        check_count(self.replicas, &self.nodes)?;
        if let Some(grain) = self.grain_bytes.filter(|grain| !GRAINS.contains(grain)) {
            return Err(ControlError::usage(format!(
                "grain of {grain} bytes: there are {GRAINS:?}"
            )));
        }
        self.hot_home()?;
        check_hosts(&self.allow_hosts)
    }
}

pub(super) fn check_size(bytes: u64) -> Result<(), ControlError> {
    if bytes == 0 || !bytes.is_multiple_of(SIZE_UNIT) {
        return Err(ControlError::usage(format!(
            "size of {bytes} bytes: it must be a multiple of {SIZE_UNIT}, and not 0"
        )));
    }
    Ok(())
}

/// Another size for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// The new size, a multiple of 4,096.
    pub bytes: u64,
    /// What lies behind a nearer end may be destroyed.
    #[serde(default)]
    pub destroy_data: bool,
}

impl Check for ResizeVolume {
    fn check(&self) -> Result<(), ControlError> {
        check_size(self.bytes)
    }
}

impl ResizeVolume {
    /// Whether it may be done to this volume.
    ///
    /// # Errors
    /// Refused: it cuts off the volume's end and does not say that this is meant.
    pub fn allowed_on(&self, volume: &VolumeStatus) -> Result<(), ControlError> {
        if self.bytes >= volume.bytes || self.destroy_data {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "volume {}/{} has {} bytes: what lies behind {} would be destroyed; say --destroy-data \
             if that is meant",
            volume.pool, volume.name, volume.bytes, self.bytes
        )))
    }
}

/// What a volume does from now on when a copy is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetWhenDegraded {
    /// What it does.
    pub when_degraded: WhenDegraded,
}

impl Check for SetWhenDegraded {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// A volume to be deleted: the query of `DELETE`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteVolume {
    /// What it holds may be destroyed.
    #[serde(default)]
    #[param(required = false)]
    pub destroy_data: bool,
    /// Even if hosts are connected, or a service has it; they lose it.
    #[serde(default)]
    #[param(required = false)]
    pub force: bool,
    /// Of a cached volume: what only the cache has may be lost.
    #[serde(default)]
    #[param(required = false)]
    pub accept_data_loss: bool,
}

impl Check for DeleteVolume {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

impl DeleteVolume {
    /// Whether it may be done to this volume.
    ///
    /// # Errors
    /// Refused: hosts are connected, or it holds data, and the request does not say that this is
    /// meant; the message names what was found.
    pub fn allowed_on(&self, volume: &VolumeStatus) -> Result<(), ControlError> {
        let name = format!("volume {}/{}", volume.pool, volume.name);
        self.allowed_by_hosts_of(volume)?;
        if self.destroy_data {
            return Ok(());
        }
        let holds = match volume.used_bytes {
            0 => "is empty, but its name and identity would be gone".to_owned(),
            bytes => format!("holds {bytes} bytes of data, which would be destroyed"),
        };
        Err(ControlError::refused(format!(
            "{name} {holds}; say --destroy-data if that is meant"
        )))
    }

    /// Whether it may be done as far as hosts are concerned.
    ///
    /// # Errors
    /// Refused: one is connected, and the request does not say that it may lose the volume.
    pub fn allowed_by_hosts_of(&self, volume: &VolumeStatus) -> Result<(), ControlError> {
        let name = format!("{}/{}", volume.pool, volume.name);
        self.allowed_by_hosts(&name, &volume.connected_hosts)
    }

    /// The same of a volume of this name that these are connected to.
    ///
    /// # Errors
    /// Those of [`allowed_by_hosts_of`](Self::allowed_by_hosts_of).
    pub fn allowed_by_hosts(&self, name: &str, hosts: &[String]) -> Result<(), ControlError> {
        let (false, Some(host)) = (self.force, hosts.first()) else {
            return Ok(());
        };
        let others = match hosts.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Err(ControlError::refused(format!(
            "volume {name} is in use by {host}{others}: disconnect it, or say --force"
        )))
    }
}
