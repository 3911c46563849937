//! Where the nodes of a cluster meet.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ashlar_lab::LabError;
use ashlar_oltp::namespaces::{Namespaces, Place, Way};
use ashlar_oltp::processes::{ALONE, TIED};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

/// The address of the hub, where clients are, and of etcd's first member; the others are below it.
const HUB: u8 = 254;
const ETCD: u8 = 253;
/// What etcd's members are called.
const ETCD_NAMES: [&str; MOST_ETCD] = ["etcd", "etcd-2", "etcd-3"];
/// Most members of etcd.
pub const MOST_ETCD: usize = 3;
/// In each node's namespace.
const API_PORT: u16 = 8080;
/// Nodes over several hosts; the third host has the last member of etcd alone.
pub(crate) const ON_HOSTS: [&str; 2] = ["a", "b"];
/// What is mounted of a node on a host is below this, the same on all of them, and there for the node alone.
pub const OWN_MOUNTS: &str = "/media";
/// The first process of a node's own world: has `OWN_MOUNTS` be a folder of the node's, runs what it is told, and stays
/// until nothing else runs. It buries what loses its parent.
const FIRST: &str = "mount --bind \"$0\" /media || exit; \"$@\"; \
    set -- /proc/[0-9]*; while [ $# -gt 1 ]; do sleep 0.1; set -- /proc/[0-9]*; done";

/// A place in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seat {
    /// A member of etcd, from 0.
    Etcd(usize),
    /// A node, by its name.
    Node(String),
}

impl Seat {
    /// A node's.
    pub fn node(name: &str) -> Self {
        Self::Node(name.to_owned())
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Etcd(member) => ETCD_NAMES[*member],
            Self::Node(name) => name,
        }
    }
}

/// What something listens for: of a node, hosts and peers; of etcd, its clients and members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Those who use it.
    Clients,
    /// Others of its kind.
    Peers,
}

/// A cluster's network.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Network {
    /// A namespace for each.
    Namespaces {
        /// All of them, with a hub.
        namespaces: Namespaces,
        /// By seat.
        hosts: BTreeMap<String, Ipv4Addr>,
    },
    /// Ports of 127.0.0.1, by seat.
    Loopback {
        /// What each listens at.
        ports: BTreeMap<String, Ports>,
    },
    /// Three machines, of which this is one.
    Hosts {
        /// Which one.
        here: usize,
        /// What each listens at: both nodes with a member of etcd, and the witness.
        sites: Box<[Site; 3]>,
        /// What a node here finds at [`OWN_MOUNTS`].
        mounts: PathBuf,
    },
}

/// What a host listens at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    pub(crate) etcd_clients: SocketAddr,
    pub(crate) etcd_peers: SocketAddr,
    pub(crate) portal: SocketAddr,
    pub(crate) replication: SocketAddr,
    pub(crate) api: SocketAddr,
    /// The database, or the listener.
    pub(crate) door: SocketAddr,
}

impl Site {
    pub(crate) fn all(&self) -> [SocketAddr; 6] {
        [
            self.etcd_clients,
            self.etcd_peers,
            self.portal,
            self.replication,
            self.api,
            self.door,
        ]
    }
}

/// Which host has a seat.
fn host_of(seat: &Seat) -> usize {
    match seat {
        Seat::Etcd(member) => *member,
        Seat::Node(name) => usize::from(name != ON_HOSTS[0]),
    }
}

/// What a seat listens at.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ports {
    clients: u16,
    peers: u16,
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, last)
}

impl Network {
    /// What namespaces there are to be; [`bring`](Self::bring) makes them.
    pub(super) fn namespaces(prefix: String, names: &[String], etcd: usize) -> Self {
        let numbered = names.iter().cloned().zip(1u8..);
        let mut hosts: BTreeMap<String, Ipv4Addr> = numbered
            .map(|(name, number)| (name, address(number)))
            .collect();
        let members = ETCD_NAMES.iter().map(ToString::to_string).take(etcd);
        hosts.extend(members.zip((0..=ETCD).rev().map(address)));
        let namespaces = Namespaces { prefix };
        Self::Namespaces { namespaces, hosts }
    }

    /// Makes what of it the machine does not have yet.
    pub(super) fn bring(&self) -> Result<(), LabError> {
        let Self::Namespaces { namespaces, hosts } = self else {
            return Ok(());
        };
        let places: Vec<Place<'_>> = hosts
            .iter()
            .map(|(name, &address)| Place { name, address })
            .collect();
        Namespaces::make(namespaces.prefix.clone(), &[address(HUB)], &places).map(drop)
    }

    /// Ports that are free now.
    pub(super) fn loopback(names: &[String], etcd: usize) -> Result<Self, LabError> {
        let mut drawn = ashlar_oltp::Ports::default();
        let mut free = || {
            let at = drawn.draw(IpAddr::from(Ipv4Addr::LOCALHOST))?;
            std::io::Result::Ok(at.port())
        };
        let mut ports = BTreeMap::new();
        let seats = names.iter().cloned();
        let members = ETCD_NAMES.iter().map(ToString::to_string).take(etcd);
        for seat in seats.chain(members) {
            let mut both = || {
                std::io::Result::Ok(Ports {
                    clients: free()?,
                    peers: free()?,
                })
            };
            let both = both().map_err(|error| LabError::caused("a free port", error))?;
            ports.insert(seat, both);
        }
        Ok(Self::Loopback { ports })
    }

    /// Namespaces that were made for it, by name.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Namespaces { namespaces, .. } => namespaces.names(),
            Self::Loopback { .. } | Self::Hosts { .. } => Vec::new(),
        }
    }

    /// Whether a seat is on this machine.
    pub(super) fn has(&self, seat: &Seat) -> bool {
        match self {
            Self::Hosts { here, .. } => host_of(seat) == *here,
            _ => true,
        }
    }

    /// Where a service on a node listens, if that is not the node's own to choose.
    pub(super) fn door(&self, seat: &Seat) -> Option<SocketAddr> {
        match self {
            Self::Hosts { sites, .. } => Some(sites[host_of(seat)].door),
            _ => None,
        }
    }

    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Namespaces { .. } => "namespaces",
            Self::Loopback { .. } => "loopback",
            Self::Hosts { .. } => "hosts",
        }
    }

    /// Where something listens.
    pub fn address(&self, seat: &Seat, port: Port) -> SocketAddr {
        let name = seat.name();
        match self {
            Self::Namespaces { hosts, .. } => {
                let host = hosts.get(name).copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
                let usual = match (seat, port) {
                    (Seat::Etcd(_), Port::Clients) => 2379,
                    (Seat::Etcd(_), Port::Peers) => 2380,
                    (Seat::Node(_), Port::Clients) => 4420,
                    (Seat::Node(_), Port::Peers) => 4430,
                };
                SocketAddr::new(IpAddr::V4(host), usual)
            }
            Self::Loopback { ports } => {
                let known = ports.get(name);
                let number = known.map_or(0, |ports| match port {
                    Port::Clients => ports.clients,
                    Port::Peers => ports.peers,
                });
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), number)
            }
            Self::Hosts { sites, .. } => {
                let site = &sites[host_of(seat)];
                match (seat, port) {
                    (Seat::Etcd(_), Port::Clients) => site.etcd_clients,
                    (Seat::Etcd(_), Port::Peers) => site.etcd_peers,
                    (Seat::Node(_), Port::Clients) => site.portal,
                    (Seat::Node(_), Port::Peers) => site.replication,
                }
            }
        }
    }

    /// Where a node's API listens besides its socket; nowhere on ports of 127.0.0.1.
    pub fn api(&self, seat: &Seat) -> Option<SocketAddr> {
        match self {
            Self::Namespaces { hosts, .. } => {
                let host = hosts.get(seat.name())?;
                Some(SocketAddr::new(IpAddr::V4(*host), API_PORT))
            }
            Self::Loopback { .. } => None,
            Self::Hosts { sites, .. } => Some(sites[host_of(seat)].api),
        }
    }

    /// The words before a command that make it run where clients are.
    pub fn entered_hub(&self) -> Vec<String> {
        match self {
            Self::Namespaces { namespaces, .. } => {
                let hub = namespaces.hub();
                let net = format!("--net={}", hub.display());
                vec!["nsenter".into(), net, "--".into()]
            }
            Self::Loopback { .. } | Self::Hosts { .. } => Vec::new(),
        }
    }

    /// The words before a command that make it run at a seat.
    pub fn entered(&self, seat: &Seat) -> Vec<String> {
        match self {
            Self::Namespaces { namespaces, .. } => namespaces.entered(seat.name()),
            Self::Loopback { .. } => Vec::new(),
            Self::Hosts { mounts, .. } => {
                let mut words: Vec<&str> = TIED.into_iter().chain(["--"]).collect();
                let mounts = mounts.display().to_string();
                if let Seat::Node(_) = seat {
                    words.extend(ALONE);
                    words.extend(["sh", "-c", FIRST, &mounts]);
                }
                words.into_iter().map(str::to_owned).collect()
            }
        }
    }

    /// Takes the calling thread, and threads that it starts from now on, where clients are.
    ///
    /// # Errors
    /// The namespace is not there, or this is not root.
    pub fn enter_hub(&self) -> Result<(), LabError> {
        let Self::Namespaces { namespaces, .. } = self else {
            return Ok(());
        };
        let path = namespaces.hub();
        let entered = std::fs::File::open(&path).and_then(|file| {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind)?;
            Ok(())
        });
        entered.map_err(|error| LabError::caused(path.display(), error))
    }

    /// What runs at a seat, whatever has started it; nothing is known of it on ports of 127.0.0.1.
    pub(super) fn processes(&self, seat: &Seat) -> Vec<u32> {
        match self {
            Self::Namespaces { namespaces, .. } => namespaces.processes(seat.name()),
            Self::Loopback { .. } | Self::Hosts { .. } => Vec::new(),
        }
    }

    fn apart(&self) -> Result<&Namespaces, LabError> {
        match self {
            Self::Namespaces { namespaces, .. } => Ok(namespaces),
            Self::Loopback { .. } | Self::Hosts { .. } => Err(LabError::usage(
                "a link can only be cut between network namespaces, which root makes on one machine: these nodes have none",
            )),
        }
    }

    /// Cuts a seat off, or connects it again.
    ///
    /// # Errors
    /// There are no namespaces, or `ip` complains.
    pub fn set_connected(&self, seat: &Seat, connected: bool) -> Result<(), LabError> {
        self.apart()?.set_connected(seat.name(), connected)
    }

    /// What goes one way is lost, or not any more.
    ///
    /// # Errors
    /// There are no namespaces, or `tc` complains.
    pub fn set_lost(&self, seat: &Seat, way: Way, is_lost: bool) -> Result<(), LabError> {
        self.apart()?.set_lost(seat.name(), way, is_lost)
    }

    /// Cuts a seat off from all others, but not from clients; or connects it again.
    ///
    /// # Errors
    /// There are no namespaces, or `ip` complains.
    pub fn set_alone(&self, seat: &Seat, is_alone: bool) -> Result<(), LabError> {
        let apart = self.apart()?;
        let Self::Namespaces { hosts, .. } = self else {
            return Ok(());
        };
        let others = hosts.iter().filter(|(name, _)| *name != seat.name());
        let others: Vec<Ipv4Addr> = others.map(|(_, &address)| address).collect();
        apart.set_silent_to(seat.name(), &others, is_alone)
    }

    pub(super) fn remove(&self) -> Result<(), LabError> {
        match self {
            Self::Namespaces { namespaces, .. } => namespaces.remove(),
            Self::Loopback { .. } | Self::Hosts { .. } => Ok(()),
        }
    }
}
