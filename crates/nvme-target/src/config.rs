use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ashlar_block::Geometry;
use ashlar_nvme::log::AnaState;
use uuid::Uuid;

use crate::reservation::Reservations;

/// Who may connect to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAccess {
    /// Every host.
    Any,
    /// The hosts with these NQNs.
    Listed(Vec<String>),
}

impl HostAccess {
    /// Whether the host with this NQN is named.
    pub fn names(&self, host_nqn: &str) -> bool {
        matches!(self, Self::Listed(hosts) if hosts.iter().any(|host| host == host_nqn))
    }

    /// Whether the host with this NQN may connect.
    pub fn allows(&self, host_nqn: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(hosts) => hosts.iter().any(|host| host == host_nqn),
        }
    }
}

/// One namespace: a device as hosts see it.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// The device's shape and promises.
    pub geometry: Geometry,
    /// Its identity for hosts; must stay the same across restarts, or they take it for another
    /// disk.
    pub uuid: Uuid,
    /// How it can be reserved; hosts are offered that only with it.
    pub reservations: Option<Reservations>,
}

/// One subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Its NQN, at most 223 bytes.
    pub nqn: String,
    /// Its namespaces; the first is nsid 1.
    pub namespaces: Vec<NamespaceConfig>,
    /// Who may connect.
    pub access: HostAccess,
    /// What discovery tells hosts to connect to; the address that the discovering host used when
    /// `None`.
    pub advertise: Option<SocketAddr>,
    /// How it is shared with other targets; `None` for one that only this target serves.
    pub shared: Option<Shared>,
}

/// A subsystem that several targets serve under one NQN, with the same namespaces and identities: what
/// differs from target to target. Hosts are told by ANA which of them to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Ids of the controllers made here, within 1 and FFEFh. No other target of this subsystem may use
    /// them: hosts refuse a second controller of the same id.
    pub controller_ids: RangeInclusive<u16>,
    /// How its namespaces are reached here, until that is changed.
    pub state: AnaState,
    /// Where the others serve it, as discovery tells hosts.
    pub portals: Vec<SocketAddr>,
    /// The core, counted from 0, that the I/O queues of its hosts go to, where only one may have them: a device that
    /// labels writes does so on one core.
    pub core: Option<usize>,
    /// How long what was begun may go on after the keep-alive of an association has run out, as hosts are
    /// told (CQT); zero says nothing of it.
    pub quiesce: Duration,
}

/// How long the target waits for hosts.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From accepting a connection to its Connect command.
    pub handshake: Duration,
    /// Without progress on bytes that the host owes or must take.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(30),
        }
    }
}
