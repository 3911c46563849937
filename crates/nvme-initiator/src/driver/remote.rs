use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BlockDevice, Description, ErrorKind, Geometry, IoError};
use ashlar_reactor::{Handle, Opener};

use super::blocking;
use super::device::RemoteDevice;
use super::record::Record;
use super::watch::PathBoard;
use crate::config::Config;
use crate::controller::{Identity, NamespaceFacts};
use crate::reconnect::Unflushed;

/// How long a path has to answer while there are others to be tried.
const GLANCE: Duration = Duration::from_secs(2);

/// A remote namespace that every core opens for itself: each opened device has its own association.
pub struct Remote {
    pub(super) config: Arc<Config>,
    pub(super) peers: Vec<SocketAddr>,
    pub(super) facts: NamespaceFacts,
    pub(super) unflushed: Arc<Unflushed>,
    record: Option<Arc<Record>>,
    pub(super) board: PathBoard,
}

impl Remote {
    /// Connects once, blocking, to learn the namespace's shape; that association is shut down again.
    ///
    /// # Errors
    /// Names the address, the NQN and what went wrong; there is no second attempt. Of several portals one
    /// that answers is enough, though all must be addresses.
    pub fn connect(config: Config) -> Result<Self, IoError> {
        let portals = config.portals().into_iter();
        let peers = portals.map(resolve).collect::<Result<Vec<_>, _>>()?;
        let facts = find_namespace(&config, &peers)?;
        Ok(Self {
            config: Arc::new(config),
            peers,
            facts,
            unflushed: Arc::default(),
            record: None,
            board: PathBoard::default(),
        })
    }

    /// The same, one of a row of processes of which each takes over from one that has died: `file`
    /// names the association in use. The one that it names now has ended, with all its commands,
    /// before an I/O command is sent. Only one device may be opened.
    ///
    /// # Errors
    /// Names the file: it cannot be read or made, or holds something else.
    pub fn recorded_in(mut self, file: &Path) -> Result<Self, IoError> {
        let record = Record::open(file)?;
        // One of another portal has to end, too.
        let mut config = (*self.config).clone();
        let named = record.predecessors.iter().map(|one| one.address.clone());
        config.add_portals(named);
        record.check(&config.portals())?;
        let more = &config.portals()[self.peers.len()..];
        for portal in more {
            self.peers.push(resolve(portal)?);
        }
        self.config = Arc::new(config);
        self.record = Some(Arc::new(record));
        Ok(self)
    }

    /// What the namespace is.
    pub fn facts(&self) -> &NamespaceFacts {
        &self.facts
    }

    /// Where its paths are shown once a device is open; of several devices, as the last of them has found
    /// them.
    pub fn board(&self) -> PathBoard {
        self.board.clone()
    }

    /// Opens the namespace on the calling thread's reactor. The association is made while the
    /// device is polled; until then requests wait.
    pub fn open_device(&self, reactor: &Handle) -> RemoteDevice {
        RemoteDevice::open(reactor, self).recorded_in(self.record.clone())
    }
}

impl Opener for Remote {
    fn geometry(&self) -> Geometry {
        self.facts.geometry
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        Ok(Box::new(self.open_device(reactor)))
    }

    fn describe(&self) -> Description {
        let config = &self.config;
        let digests = match (config.digests.header, config.digests.data) {
            (true, true) => ", header and data digests",
            (true, false) => ", header digests",
            (false, true) => ", data digests",
            (false, false) => "",
        };
        Description::leaf(format!(
            "nvme-tcp {} {} namespace {} ({} queue(s) of {}{digests}, replay {})",
            config.portals().join(","),
            config.nqn,
            self.facts.nsid,
            config.queues,
            config.depth,
            config.replay,
        ))
    }

    fn names(&self) -> Vec<String> {
        names_of(&self.facts.identity, &self.config.nqn)
    }
}

/// All that names a namespace in all the world. A UUID does whatever its subsystem is called; of the others some
/// targets give each of their subsystems the same.
fn names_of(identity: &Identity, nqn: &str) -> Vec<String> {
    let names = identity.names();
    if names.is_empty() {
        return names;
    }
    let names = names.join(", ");
    vec![match identity.ids.uuid {
        Some(_) => format!("namespace {names}"),
        None => format!("namespace {names} of {nqn}"),
    }]
}

/// Learns the namespace's shape by the first path that leads to it. Of several, one whose target is stopped or
/// cut off is left for the next before long.
fn find_namespace(config: &Config, peers: &[SocketAddr]) -> Result<NamespaceFacts, IoError> {
    let hasty = Config {
        timeout: config.timeout.min(GLANCE),
        ..config.clone()
    };
    let is_late = |error: &IoError| error.kind() == ErrorKind::Timeout;
    let mut tried = find_by_any(if peers.len() > 1 { &hasty } else { config }, peers);
    if peers.len() > 1 && matches!(&tried, Err(errors) if errors.iter().any(is_late)) {
        tried = find_by_any(config, peers);
    }
    let mut errors = match tried {
        Ok(facts) => return Ok(facts),
        Err(errors) => errors,
    };
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match errors.pop() {
        Some(only) if errors.is_empty() => Err(only),
        last => {
            let kind = last.map_or(ErrorKind::NotSent, |error| error.kind());
            Err(IoError::new(kind, format!("no path: {}", all.join("; "))))
        }
    }
}

fn find_by_any(config: &Config, peers: &[SocketAddr]) -> Result<NamespaceFacts, Vec<IoError>> {
    let mut errors = Vec::new();
    for (path, &peer) in config.paths().iter().zip(peers) {
        match blocking::find_namespace(path, peer) {
            Ok(facts) => return Ok(facts),
            Err(error) => errors.push(error),
        }
    }
    Err(errors)
}

/// The first address that `host:port` stands for.
pub(super) fn resolve(address: &str) -> Result<SocketAddr, IoError> {
    let failed = |why: String| IoError::new(ErrorKind::NotSent, format!("{address}: {why}"));
    let mut found = address
        .to_socket_addrs()
        .map_err(|error| failed(error.to_string()))?;
    found.next().ok_or_else(|| failed("no such address".into()))
}

#[cfg(test)]
mod tests {
    use ashlar_block::BlockSize;
    use ashlar_nvme::identify::NamespaceIdentity;

    use super::*;

    #[test]
    fn a_uuid_names_a_namespace_whatever_its_subsystem_is_called() {
        let named = |uuid: Option<[u8; 16]>| {
            let ids = NamespaceIdentity {
                uuid,
                eui64: Some([7; 8]),
                ..NamespaceIdentity::default()
            };
            let identity = Identity {
                ids,
                blocks: 1,
                block_size: BlockSize::B4096,
            };
            names_of(&identity, "nqn.a").join("; ")
        };
        assert_eq!(named(None), "namespace eui64 0707070707070707 of nqn.a");
        let uuid = "uuid 05050505-0505-0505-0505-050505050505";
        let both = format!("namespace {uuid}, eui64 0707070707070707");
        assert_eq!(named(Some([5; 16])), both);
    }
}
