//! Who is in a group.

use std::fmt;
use std::str::FromStr;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

/// A node with a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeName {
    A,
    B,
}

impl NodeName {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}

impl FromStr for NodeName {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        match text {
            "a" => Ok(Self::A),
            "b" => Ok(Self::B),
            other => Err(LabError::environment(format!(
                "{other}: is no node of a group"
            ))),
        }
    }
}

/// A program of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Member {
    /// Etcd beside a database.
    Etcd(NodeName),
    /// The third etcd, on a node without a database.
    Witness,
    /// Patroni and the PostgreSQL that it keeps.
    Patroni(NodeName),
    /// HAProxy.
    Listener,
}

impl Member {
    /// The members of etcd.
    pub const ETCD: [Self; 3] = [
        Self::Etcd(NodeName::A),
        Self::Etcd(NodeName::B),
        Self::Witness,
    ];

    /// All that belongs to a node.
    pub fn of_node(node: NodeName) -> [Self; 2] {
        [Self::Etcd(node), Self::Patroni(node)]
    }

    /// Where in the network it is.
    pub(super) fn seat(self) -> Seat {
        match self {
            Self::Etcd(NodeName::A) | Self::Patroni(NodeName::A) => Seat::A,
            Self::Etcd(NodeName::B) | Self::Patroni(NodeName::B) => Seat::B,
            Self::Witness => Seat::Witness,
            Self::Listener => Seat::Hub,
        }
    }
}

/// A place in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Seat {
    A,
    B,
    Witness,
    /// Where all the others are connected.
    Hub,
}

impl Seat {
    pub(super) const NODES: [Self; 3] = [Self::A, Self::B, Self::Witness];

    pub(super) fn letter(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::Witness => "w",
            Self::Hub => "h",
        }
    }
}

impl From<NodeName> for Seat {
    fn from(node: NodeName) -> Self {
        match node {
            NodeName::A => Self::A,
            NodeName::B => Self::B,
        }
    }
}
