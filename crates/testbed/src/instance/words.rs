//! What a coordinator and an agent say to each other of the nodes of an instance. Nothing of it is a command: what is
//! started and with which words is the agent's to make of it. The nodes that are started take commands of all who have the
//! instance's secret.

use std::path::PathBuf;

use ashlar_lab::LabError;
use ashlar_oltp::faults::Fault;
use serde::{Deserialize, Serialize};

use crate::nodes::Site;

/// What such an order begins with: others are of a group.
pub(super) const OURS: &str = "instance ";

/// What an agent is to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Order {
    /// Say whether this host could have a part, and whether these could be done to it. It needs none.
    Able(Able),
    /// Have a part: a folder and ports are taken.
    Claim(Claim),
    /// Start its member of etcd.
    Etcd(Box<Plan>),
    /// Start its node.
    Node,
    /// Wait until the node is ready.
    Ready,
    /// Make the node's pool.
    Pool,
    /// Start the listener.
    Listener,
    /// Say what runs.
    Look,
    /// Something of it fails.
    Break(Fault),
    /// The fault is over.
    Mend,
    /// End all of it, and remove it.
    End,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Able {
    pub(super) host: Host,
    pub(super) faults: Vec<Fault>,
}

/// Which one a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Host {
    A,
    B,
    Witness,
}

impl Host {
    pub(super) const ALL: [Self; 3] = [Self::A, Self::B, Self::Witness];

    pub(super) fn number(self) -> usize {
        self as usize
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) host: Host,
    /// What the secret is made of, beside the token.
    pub(super) drawn: String,
}

/// What a host has taken.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Claimed {
    pub(super) site: Site,
    /// Where PostgreSQL's programs are, if it is to run one.
    pub(super) programs: Option<PathBuf>,
}

/// What all hosts know.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// In the order of [`Host::ALL`].
    pub(super) sites: [Site; 3],
    pub(super) drive_bytes: u64,
    pub(super) has_switches: bool,
}

/// # Errors
/// The other side speaks otherwise.
pub(super) fn read<'a, T: Deserialize<'a>>(words: &'a str) -> Result<T, LabError> {
    let failed = |error| LabError::caused("words of an instance that are not understood", error);
    serde_json::from_str(words).map_err(failed)
}

pub(super) fn text<T: Serialize>(words: &T) -> Result<String, LabError> {
    serde_json::to_string(words).map_err(|error| LabError::caused("words of an instance", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_not_known_are_refused() {
        for wrong in [
            "{\"run\":\"/bin/sh\"}",
            "{\"claim\":{\"host\":\"a\",\"drawn\":\"0\",\"dir\":\"/\"}}",
            "{\"claim\":{\"host\":\"c\",\"drawn\":\"0\"}}",
            "{\"break\":\"reboot\"}",
        ] {
            assert!(read::<Order>(wrong).is_err(), "{wrong}");
        }
        assert!(read::<Order>("{\"break\":\"stop-node\"}").is_ok());
    }
}
