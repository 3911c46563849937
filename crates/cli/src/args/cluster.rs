//! `ashlar lab cluster`'s part of the command line.

use std::path::PathBuf;

use ashlar_failover::GroupPlace;
use ashlar_lab::Agents;
use ashlar_oltp::group::Tuning;
use clap::{Args, ValueEnum};

/// What to do with a group, an instance, or nodes of Ashlar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupAction {
    /// Nodes of Ashlar and an etcd in an empty directory, each in a network namespace, each with a pool `tank`
    Up,
    /// End all processes of that and remove all that was made: also what a starter that was killed has left
    Down,
    /// Say what is in the directory, nodes of Ashlar or a group of PostgreSQL
    Status,
    /// A group of PostgreSQL: make it in an empty directory, start it, wait until it is ready, print the listener's URL.
    /// With --host it is on these hosts, and ends with this command, whatever ends that; --dir has what it is at
    Start,
    /// A failover cluster instance: a PostgreSQL as a service on a replicated volume of two nodes of Ashlar, in an empty
    /// directory; print the listener's URL. `status`, `move` and `stop` are of it, too. Needs root; with --host, as `start`,
    /// its agents do
    Fci,
    /// End all processes of a group or an instance, and remove all that was made
    Stop,
    /// Have the other node of a group or an instance be the primary, in order
    Move,
}

/// How fast a group notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TuningWord {
    /// Patroni's own: ttl 30 s, loop 10 s, no failsafe mode
    Default,
    /// ttl 5 s, loop 1 s, failsafe mode: without etcd a primary stays one while its standby answers
    Fast,
}

impl From<TuningWord> for Tuning {
    fn from(word: TuningWord) -> Self {
        match word {
            TuningWord::Default => Self::Default,
            TuningWord::Fast => Self::Fast,
        }
    }
}

/// On whose hosts a group or an instance is.
#[derive(Args)]
pub(crate) struct HostArguments {
    /// Address of an agent (`ashlar lab agent`) on a host that has a part of a group or an instance, instead of a network
    /// namespace of this machine; three times: two databases or nodes with a member of etcd each, then etcd's third and the
    /// listener. Each host needs etcd, PostgreSQL and HAProxy; for a group Patroni, for an instance an agent that is root's.
    /// The hosts reach each other by these addresses
    #[arg(
        long = "host",
        value_name = "ADDR",
        value_delimiter = ',',
        requires = "token_file"
    )]
    hosts: Vec<String>,

    /// File with the agents' token
    #[arg(long, value_name = "FILE", requires = "hosts")]
    token_file: Option<PathBuf>,
}

impl HostArguments {
    pub(crate) fn are_given(&self) -> bool {
        !self.hosts.is_empty()
    }

    pub(crate) fn agents(&self) -> Agents {
        Agents {
            addresses: self.hosts.clone(),
            token_file: self.token_file.clone().unwrap_or_default(),
            ..Agents::default()
        }
    }
}

/// Which cluster, and what it lies on.
#[derive(Args)]
#[command(after_help = "Examples:
  ashlar lab cluster up --dir /tmp/cluster
  ashlar volume create tank/db --size 1GiB --layout mirror:2 --replicas 2 --api /tmp/cluster/a/state/api.sock
  ashlar lab cluster down --dir /tmp/cluster
  ashlar lab cluster start --dir /tmp/group
  ashlar lab oltp --db 'postgres:///tpcc?host=/tmp/group/run&user=owner' --users 4 --out /tmp/run
  ashlar lab cluster start --dir /tmp/group --place-a /mnt/nvme --place-b volume:tank/b --tuning fast
  ashlar lab cluster stop --dir /tmp/group
  ashlar lab cluster start --dir /tmp/group --host 10.0.0.1:7420,10.0.0.2:7420,10.0.0.3:7420 --token-file lab.token
  ashlar lab cluster fci --dir /tmp/fci
  ashlar lab cluster fci --dir /tmp/fci --host 10.0.0.1:7420,10.0.0.2:7420,10.0.0.3:7420 --token-file lab.token
  ashlar lab cluster stop --dir /tmp/fci")]
pub(crate) struct GroupArguments {
    /// What to do
    #[arg(value_enum)]
    pub(crate) action: GroupAction,

    /// Its directory: to begin with empty, or not there; a short path
    #[arg(long)]
    pub(crate) dir: PathBuf,

    /// With up: how many nodes, 1 to 7 [default: 2]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,

    /// With up: members of etcd, 1 or 3 [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) etcd: Option<usize>,

    /// With up and fci: the size of each node's two drives, 64 MiB at least. They are sparse files; an instance's volume
    /// has half of it
    /// [default: 2GiB; fci: 8GiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) drive_size: Option<String>,

    /// With start: where node a has its database: a directory, volume:POOL/VOLUME of the node that ASHLAR_API names, or
    /// nvme-tcp://ADDR:PORT/NQN?ns=N. A volume is attached, gets XFS if it is empty, and is let go by stop; it keeps
    /// nothing of the group [default: --dir]
    #[arg(long, value_name = "PLACE")]
    pub(crate) place_a: Option<GroupPlace>,

    /// The same of node b
    #[arg(long, value_name = "PLACE")]
    pub(crate) place_b: Option<GroupPlace>,

    /// With start: how fast it notices
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) tuning: TuningWord,

    /// With start and fci: a setting of postgresql.conf, name=value, of both; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// Ports of 127.0.0.1 instead of network namespaces, which only root may make
    #[arg(long)]
    pub(crate) loopback: bool,

    #[command(flatten)]
    pub(crate) hosts: HostArguments,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl GroupArguments {
    /// Why not, if an action is given what another takes.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let [starts, ups, is_fci] =
            [GroupAction::Start, GroupAction::Up, GroupAction::Fci].map(|one| one == self.action);
        let is_hosted = self.hosts.are_given();
        let of_group = self.place_a.is_some() || self.place_b.is_some();
        let of_nodes = (self.nodes, self.etcd) != (None, None);
        for (is_wrong, why) in [
            (!starts && of_group, "--place-a and --place-b are for start"),
            (
                !starts && !is_fci && is_hosted,
                "--host is for start and fci",
            ),
            (
                is_hosted && (of_group || self.loopback),
                "--host: each agent has its own place and address: without --place-a, --place-b and --loopback",
            ),
            (
                !starts && !is_fci && !self.set.is_empty(),
                "--set is for start and fci",
            ),
            (
                !starts && !ups && self.loopback,
                "--loopback is for up and start",
            ),
            (!ups && of_nodes, "--nodes and --etcd are for up"),
            (
                !ups && !is_fci && self.drive_size.is_some(),
                "--drive-size is for up and fci",
            ),
        ] {
            if is_wrong {
                return Err(why);
            }
        }
        Ok(())
    }
}
