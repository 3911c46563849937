use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::name::{check_host, check_remembered_host};
use super::{Check, ControlError, VolumeStatus};

/// Most hosts in a volume's list.
const MAX_HOSTS: usize = 1024;

/// Hosts that may connect from now on, besides those that may already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowHosts {
    /// These, by NQN. One that is on the list already stays there once.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Every host. The list stays for when that ends.
    #[serde(default)]
    pub any_host: bool,
}

impl Check for AllowHosts {
    fn check(&self) -> Result<(), ControlError> {
        check_named(&self.hosts, self.any_host)?;
        check_hosts(&self.hosts)
    }
}

/// Hosts that may connect no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DenyHosts {
    /// These, by NQN: each must be on the list.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Those that are not on the list.
    #[serde(default)]
    pub any_host: bool,
    /// Even if that cuts off hosts that are connected; they lose the volume.
    #[serde(default)]
    pub disconnect: bool,
}

impl Check for DenyHosts {
    fn check(&self) -> Result<(), ControlError> {
        check_named(&self.hosts, self.any_host)?;
        // What an earlier version has let in must be possible to take out.
        self.hosts
            .iter()
            .try_for_each(|host| check_remembered_host(host))
    }
}

/// Who may connect from now on, in place of who might.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetHosts {
    /// These hosts, by NQN.
    #[serde(default)]
    pub allow_hosts: Vec<String>,
    /// Every host.
    #[serde(default)]
    pub allow_any_host: bool,
    /// Even if that cuts off hosts that are connected; they lose the volume.
    #[serde(default)]
    pub disconnect: bool,
}

impl Check for SetHosts {
    fn check(&self) -> Result<(), ControlError> {
        check_hosts(&self.allow_hosts)
    }
}

/// A change of who may connect to a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostChange {
    /// More hosts may.
    Allow(AllowHosts),
    /// Some may no more.
    Deny(DenyHosts),
    /// Others may.
    Set(SetHosts),
}

impl HostChange {
    /// Whether hosts that are connected may be cut off by it.
    pub const fn disconnects(&self) -> bool {
        match self {
            Self::Allow(_) => false,
            Self::Deny(DenyHosts { disconnect, .. }) | Self::Set(SetHosts { disconnect, .. }) => {
                *disconnect
            }
        }
    }
}

/// Who may connect to a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList {
    /// These hosts, by NQN.
    pub hosts: Vec<String>,
    /// Every host.
    pub any_host: bool,
}

impl HostList {
    fn of(volume: &VolumeStatus) -> Self {
        Self {
            hosts: volume.allow_hosts.clone(),
            any_host: volume.allow_any_host,
        }
    }

    fn admits(&self, host: &str) -> bool {
        self.any_host || self.hosts.iter().any(|listed| listed == host)
    }

    fn with(mut self, more: &AllowHosts) -> Self {
        for host in &more.hosts {
            if !self.hosts.contains(host) {
                self.hosts.push(host.clone());
            }
        }
        self.any_host |= more.any_host;
        self
    }

    fn without(mut self, gone: &DenyHosts, volume: &str) -> Result<Self, ControlError> {
        if let Some(stranger) = gone.hosts.iter().find(|host| !self.hosts.contains(host)) {
            return Err(ControlError::not_found(format!(
                "host {stranger} is not on the list of {volume}: nothing was changed"
            )));
        }
        if let (true, false, Some(host)) = (self.any_host, gone.any_host, gone.hosts.first()) {
            return Err(ControlError::conflict(format!(
                "every host may connect to {volume}, {host} too: deny that with it (--any-host)"
            )));
        }
        self.hosts.retain(|host| !gone.hosts.contains(host));
        self.any_host &= !gone.any_host;
        Ok(self)
    }
}

impl HostChange {
    /// Who may connect to a volume after it.
    ///
    /// # Errors
    /// Refused: it would cut off a host that is connected, and does not say that this is meant; the message
    /// names the host. Not found, conflict: a host that is to be denied is not on the list, or every host may
    /// connect anyway. Usage: too many hosts.
    pub fn applied_to(&self, volume: &VolumeStatus) -> Result<HostList, ControlError> {
        let name = format!("volume {}/{}", volume.pool, volume.name);
        let before = HostList::of(volume);
        let (after, disconnect) = match self {
            Self::Allow(more) => (before.with(more), false),
            Self::Deny(gone) => (before.without(gone, &name)?, gone.disconnect),
            Self::Set(list) => {
                let after = HostList {
                    hosts: list.allow_hosts.clone(),
                    any_host: list.allow_any_host,
                };
                (after, list.disconnect)
            }
        };
        check_count(after.hosts.len())?;
        let mut connected = volume.connected_hosts.iter();
        match connected.find(|host| !after.admits(host)) {
            Some(host) if !disconnect => Err(ControlError::refused(format!(
                "host {host} is connected to {name} and would lose it: end its use there first \
                 (detach, nvme disconnect), or say --disconnect"
            ))),
            _ => Ok(after),
        }
    }
}

fn check_named(hosts: &[String], any: bool) -> Result<(), ControlError> {
    match hosts.is_empty() && !any {
        true => Err(ControlError::usage(
            "name a host by its NQN, or say any host",
        )),
        false => Ok(()),
    }
}

fn check_count(hosts: usize) -> Result<(), ControlError> {
    match hosts > MAX_HOSTS {
        true => Err(ControlError::usage(format!(
            "{hosts} hosts are allowed; at most {MAX_HOSTS}"
        ))),
        false => Ok(()),
    }
}

/// Whether these can be hosts of a volume's list.
pub(super) fn check_hosts(hosts: &[String]) -> Result<(), ControlError> {
    check_count(hosts.len())?;
    hosts.iter().try_for_each(|host| check_host(host))
}

/// Whether these can have been hosts of a volume's list: earlier versions let in what is no NQN.
pub(crate) fn check_remembered_hosts(hosts: &[String]) -> Result<(), ControlError> {
    check_count(hosts.len())?;
    hosts
        .iter()
        .try_for_each(|host| check_remembered_host(host))
}
