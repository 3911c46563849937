//! Where a group's nodes meet: a network namespace for each, or ports of 127.0.0.1.
//!
//! Clients come in over the listener's unix socket, which knows no namespaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use super::node::Seat;
use crate::Ports;
use crate::namespaces::{Namespaces, Place};
use crate::processes;

/// The hub's second address.
const AGENTS_FROM: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 5);

/// What something listens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Port {
    EtcdPeers,
    EtcdClients,
    Database,
    Keeper,
}

impl Port {
    const ALL: [Self; 4] = [
        Self::EtcdPeers,
        Self::EtcdClients,
        Self::Database,
        Self::Keeper,
    ];

    fn usual(self) -> u16 {
        match self {
            Self::EtcdPeers => 2380,
            Self::EtcdClients => 2379,
            Self::Database => 5432,
            Self::Keeper => 8008,
        }
    }
}

/// What is started.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program<'a> {
    Plain(&'a str),
    Keeper(&'a str),
}

/// A group's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Network {
    /// A namespace for each.
    Namespaces(Namespaces),
    /// Ports of 127.0.0.1.
    Loopback {
        /// Each node's four, in the order of `Port::ALL`.
        ports: BTreeMap<String, [u16; 4]>,
    },
}

impl Network {
    /// Namespaces of this prefix.
    pub(super) fn namespaces(prefix: String) -> Result<Self, LabError> {
        let places = Seat::NODES.map(|seat| Place {
            name: seat.letter(),
            address: address(seat),
        });
        let hub = [address(Seat::Hub), AGENTS_FROM];
        Namespaces::make(prefix, &hub, &places).map(Self::Namespaces)
    }

    /// Ports that are free now.
    pub(super) fn loopback() -> Result<Self, LabError> {
        let mut free = Ports::default();
        let mut ports = BTreeMap::new();
        for seat in Seat::NODES {
            let mut four = [0; 4];
            for port in &mut four {
                let drawn = free.draw(IpAddr::from(Ipv4Addr::LOCALHOST));
                *port = drawn
                    .map_err(|error| LabError::caused("a free port", error))?
                    .port();
            }
            ports.insert(seat.letter().to_owned(), four);
        }
        Ok(Self::Loopback { ports })
    }

    /// `namespaces` or `loopback`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Namespaces(_) => "namespaces",
            Self::Loopback { .. } => "loopback",
        }
    }

    /// The namespaces' names; none on ports of 127.0.0.1.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Loopback { .. } => Vec::new(),
            Self::Namespaces(all) => all.names(),
        }
    }

    /// Whether a node can be cut off.
    pub fn can_be_cut(&self) -> bool {
        matches!(self, Self::Namespaces(_))
    }

    /// As whom the listener comes to the databases for clients on other machines, whom these do not trust.
    pub(super) fn agents_from(&self) -> Ipv4Addr {
        match self {
            Self::Loopback { .. } => Ipv4Addr::new(127, 0, 0, 2),
            Self::Namespaces(_) => AGENTS_FROM,
        }
    }

    pub(super) fn host(&self, seat: Seat) -> String {
        match self {
            Self::Loopback { .. } => "127.0.0.1".into(),
            Self::Namespaces(_) => address(seat).to_string(),
        }
    }

    pub(super) fn port(&self, seat: Seat, port: Port) -> u16 {
        let Self::Loopback { ports } = self else {
            return port.usual();
        };
        let at = Port::ALL
            .iter()
            .position(|other| *other == port)
            .unwrap_or(0);
        ports.get(seat.letter()).map_or(0, |four| four[at])
    }

    pub(super) fn address(&self, seat: Seat, port: Port) -> String {
        format!("{}:{}", self.host(seat), self.port(seat, port))
    }

    /// A command that runs where this seat is, as this user; a keeper in a world of processes of its own, in which it
    /// is the first: it buries what it started, which not every machine's first process does.
    pub(super) fn command(
        &self,
        seat: Seat,
        user: Option<(u32, u32)>,
        program: Program<'_>,
    ) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Self::Namespaces(all) = self {
            words.extend(all.entered(seat.letter()));
            if let Program::Keeper(_) = program {
                words.extend(processes::ALONE.map(str::to_owned));
            }
        }
        if let Some((user, group)) = user {
            let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
            words.extend([
                "setpriv".into(),
                user,
                group,
                "--clear-groups".into(),
                "--".into(),
            ]);
        }
        let (Program::Plain(path) | Program::Keeper(path)) = program;
        words.push(path.to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// Cuts a node off, or connects it again. What is on its way then is lost without a word.
    ///
    /// # Errors
    /// `ip` complains; there are no namespaces.
    pub(super) fn set_connected(&self, seat: Seat, connected: bool) -> Result<(), LabError> {
        let Self::Namespaces(all) = self else {
            return Err(LabError::usage(
                "cut-network needs network namespaces, and so root: these nodes are ports of 127.0.0.1",
            ));
        };
        all.set_connected(seat.letter(), connected)
    }

    /// Removes what was made; what is not there is as it should be.
    ///
    /// # Errors
    /// A namespace stays.
    pub(super) fn remove(&self) -> Result<(), LabError> {
        match self {
            Self::Loopback { .. } => Ok(()),
            Self::Namespaces(all) => all.remove(),
        }
    }
}

/// A node's address in the private network.
fn address(seat: Seat) -> Ipv4Addr {
    let last = match seat {
        Seat::A => 1,
        Seat::B => 2,
        Seat::Witness => 3,
        Seat::Hub => 4,
    };
    Ipv4Addr::new(10, 77, 0, last)
}
