use std::net::SocketAddr;
use std::time::Duration;

use ashlar_block::Geometry;
use uuid::Uuid;

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
