//! Where a group's nodes meet: a network namespace for each, or ports of 127.0.0.1.
//!
//! The namespaces meet in one more, the hub, which has the bridge. The machine's own network is not touched: clients
//! come in over the listener's unix socket, which knows no namespaces.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use super::node::Seat;

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
    /// Namespaces whose names begin with this.
    Namespaces {
        /// The beginning of their names.
        prefix: String,
    },
    /// Ports of 127.0.0.1.
    Loopback {
        /// Each node's four, in the order of `Port::ALL`.
        ports: BTreeMap<String, [u16; 4]>,
    },
}

impl Network {
    /// Namespaces of this prefix.
    pub(super) fn namespaces(prefix: String) -> Result<Self, LabError> {
        let network = Self::Namespaces { prefix };
        let made = network.make();
        if made.is_err() {
            network.remove()?;
        }
        made.map(|()| network)
    }

    /// Ports that are free now.
    pub(super) fn loopback() -> Result<Self, LabError> {
        let free = || TcpListener::bind("127.0.0.1:0");
        let mut held = Vec::new();
        let mut ports = BTreeMap::new();
        for seat in Seat::NODES {
            let mut four = [0; 4];
            for port in &mut four {
                let listener = free().map_err(|error| LabError::caused("a free port", error))?;
                let address = listener.local_addr();
                *port = address
                    .map_err(|error| LabError::caused("a free port", error))?
                    .port();
                held.push(listener);
            }
            ports.insert(seat.letter().to_owned(), four);
        }
        Ok(Self::Loopback { ports })
    }

    /// `namespaces` or `loopback`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Namespaces { .. } => "namespaces",
            Self::Loopback { .. } => "loopback",
        }
    }

    /// The namespaces' names; none on ports of 127.0.0.1.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Loopback { .. } => Vec::new(),
            Self::Namespaces { prefix } => [Seat::A, Seat::B, Seat::Witness, Seat::Hub]
                .map(|seat| format!("{prefix}{}", seat.letter()))
                .into(),
        }
    }

    /// Whether a node can be cut off.
    pub fn can_be_cut(&self) -> bool {
        matches!(self, Self::Namespaces { .. })
    }

    pub(super) fn host(&self, seat: Seat) -> String {
        match self {
            Self::Loopback { .. } => "127.0.0.1".into(),
            Self::Namespaces { .. } => address(seat).into(),
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
        if let Self::Namespaces { prefix } = self {
            let name = seat.letter();
            words.extend([
                "nsenter".into(),
                format!("--net=/run/netns/{prefix}{name}"),
                "--".into(),
            ]);
            if let Program::Keeper(_) = program {
                let own = [
                    "unshare",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    "--",
                ];
                words.extend(own.map(str::to_owned));
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
        let Self::Namespaces { prefix } = self else {
            return Err(LabError::usage(
                "cut-network needs network namespaces, and so root: these nodes are ports of 127.0.0.1",
            ));
        };
        let (hub, state) = (format!("{prefix}h"), if connected { "up" } else { "down" });
        let link = format!("to-{}", seat.letter());
        ip(&["-n", &hub, "link", "set", &link, state])
    }

    fn make(&self) -> Result<(), LabError> {
        let Self::Namespaces { prefix } = self else {
            return Ok(());
        };
        let hub = format!("{prefix}h");
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "set", "lo", "up"])?;
        ip(&["-n", &hub, "link", "add", "hub", "type", "bridge"])?;
        let own = format!("{}/24", address(Seat::Hub));
        ip(&["-n", &hub, "address", "add", &own, "dev", "hub"])?;
        ip(&["-n", &hub, "link", "set", "hub", "up"])?;
        for seat in Seat::NODES {
            let name = format!("{prefix}{}", seat.letter());
            let link = format!("to-{}", seat.letter());
            let own = format!("{}/24", address(seat));
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&[
                "-n", &hub, "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns",
                &name,
            ])?;
            ip(&["-n", &hub, "link", "set", &link, "master", "hub", "up"])?;
            ip(&["-n", &name, "address", "add", &own, "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    /// Removes what was made; what is not there is as it should be.
    ///
    /// # Errors
    /// A namespace stays.
    pub(super) fn remove(&self) -> Result<(), LabError> {
        for name in self.names() {
            if std::path::Path::new("/run/netns").join(&name).exists() {
                ip(&["netns", "delete", &name])?;
            }
        }
        Ok(())
    }
}

/// A node's address in the private network.
fn address(seat: Seat) -> &'static str {
    match seat {
        Seat::A => "10.77.0.1",
        Seat::B => "10.77.0.2",
        Seat::Witness => "10.77.0.3",
        Seat::Hub => "10.77.0.4",
    }
}

fn ip(words: &[&str]) -> Result<(), LabError> {
    let output = Command::new("ip").args(words).output();
    let output = output.map_err(|error| LabError::caused("ip (package iproute2)", error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(LabError::environment(format!(
        "ip {}: {}",
        words.join(" "),
        said.trim()
    )))
}
