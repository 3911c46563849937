//! What a coordinator and an agent say to each other of the programs of a group. Nothing of it is a command: what is
//! started, as whom and with which words is the agent's to make of it. The database that is started takes commands of
//! its superuser, who has the group's password.

use std::net::SocketAddr;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use crate::faults::Fault;
use crate::group::Tuning;
use crate::group::network::Port;
use crate::group::node::{Member, Seat};

/// What an agent is to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Order {
    /// Be a seat: a folder and ports are taken.
    Claim(Claim),
    Start(Box<Start>),
    /// Say what runs.
    Look,
    /// Say whether this host could have a seat, and whether these could be done to it. It needs none.
    Able(Vec<Fault>),
    Break(Break),
    /// The fault is over.
    Mend,
    /// End all of it, and remove it.
    End,
}

/// Something of the seat fails.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Break {
    pub(super) fault: Fault,
    /// So long after this it is over, whatever becomes of the one who has ordered it.
    pub(super) seconds: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) seat: Seat,
    /// What the group's password is made of, beside the token.
    pub(super) drawn: String,
}

/// A program of the group that this seat has.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    pub(super) member: Member,
    pub(super) sites: Sites,
    pub(super) tuning: Tuning,
    /// Settings of PostgreSQL, of those that are known.
    pub(super) set: Vec<String>,
}

/// Where a seat listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Site {
    pub(super) etcd_peers: SocketAddr,
    pub(super) etcd_clients: SocketAddr,
    pub(super) database: SocketAddr,
    pub(super) keeper: SocketAddr,
    pub(super) listener: SocketAddr,
}

impl Site {
    pub(super) fn ports(&self) -> [u16; 5] {
        let all = [
            self.etcd_peers,
            self.etcd_clients,
            self.database,
            self.keeper,
            self.listener,
        ];
        all.map(|at| at.port())
    }
}

/// All seats, in the order of [`Seat::NODES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sites(pub(super) [Site; 3]);

impl Sites {
    pub(super) fn of(&self, seat: Seat) -> &Site {
        let [a, b, witness] = &self.0;
        match seat {
            Seat::A => a,
            Seat::B => b,
            // The listener is at the witness's.
            Seat::Witness | Seat::Hub => witness,
        }
    }

    pub(super) fn address(&self, seat: Seat, port: Port) -> String {
        let site = self.of(seat);
        let at = match port {
            Port::EtcdPeers => site.etcd_peers,
            Port::EtcdClients => site.etcd_clients,
            Port::Database => site.database,
            Port::Keeper => site.keeper,
        };
        at.to_string()
    }
}

/// Settings that a group on given hosts may be told. Of others some name commands, files or libraries, which would be
/// run or read by the hosts.
const MAY_BE_SET: [&str; 24] = [
    "autovacuum",
    "bgwriter_delay",
    "checkpoint_completion_target",
    "checkpoint_timeout",
    "commit_delay",
    "commit_siblings",
    "effective_cache_size",
    "effective_io_concurrency",
    "fsync",
    "full_page_writes",
    "huge_pages",
    "jit",
    "log_checkpoints",
    "maintenance_work_mem",
    "max_wal_size",
    "min_wal_size",
    "random_page_cost",
    "shared_buffers",
    "synchronous_commit",
    "wal_buffers",
    "wal_compression",
    "wal_init_zero",
    "wal_writer_delay",
    "work_mem",
];

/// # Errors
/// A usage error that names a setting that may not be told.
pub fn check_settings(set: &[String]) -> Result<(), LabError> {
    for setting in set {
        let known = setting.split_once('=').is_some_and(|(name, value)| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            MAY_BE_SET.contains(&name.trim()) && value.trim().chars().all(is_plain)
        });
        if !known {
            return Err(LabError::usage(format!(
                "--set {setting}: given hosts take name=value, of {}",
                MAY_BE_SET.join(", ")
            )));
        }
    }
    Ok(())
}

/// # Errors
/// The other side speaks otherwise.
pub(super) fn read<'a, T: Deserialize<'a>>(words: &'a str) -> Result<T, LabError> {
    let failed = |error| LabError::caused("words of a group that are not understood", error);
    serde_json::from_str(words).map_err(failed)
}

pub(super) fn text<T: Serialize>(words: &T) -> Result<String, LabError> {
    serde_json::to_string(words).map_err(|error| LabError::caused("words of a group", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_names_a_command_a_file_or_a_library() {
        let check = |setting: &str| check_settings(&[setting.to_owned()]);
        assert_eq!(check("shared_buffers=256MB"), Ok(()));
        for wrong in [
            "archive_command=true",
            "shared_preload_libraries=x",
            "unix_socket_directories=/",
            "work_mem",
            "work_mem=1MB'\nrestore_command='x",
            "",
        ] {
            let refused = check(wrong).expect_err(wrong);
            assert_eq!(refused.exit_code(), 2);
        }
    }

    #[test]
    fn words_that_are_not_known_are_refused() {
        for wrong in [
            "{\"run\":\"/bin/sh\"}",
            "{\"claim\":{\"seat\":\"a\",\"drawn\":\"0\",\"dir\":\"/\"}}",
            "{\"claim\":{\"seat\":\"c\",\"drawn\":\"0\"}}",
            "{\"start\":{\"member\":\"shell\"}}",
            "{\"break\":{\"fault\":\"reboot\",\"seconds\":1}}",
            "{\"break\":{\"fault\":\"stop-node\"}}",
        ] {
            assert!(read::<Order>(wrong).is_err(), "{wrong}");
        }
        assert!(read::<Order>("\"look\"").is_ok());
    }
}
