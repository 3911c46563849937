//! `ashlar lab ha`'s part of the command line.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What fails. Of the owner, if it does not say member, which is a node with a copy that does not own the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HaFault {
    /// The owner's daemon is killed with -9, and started again when another node serves
    Kill,
    /// The same of all its processes at once, as if the machine died: no parent is left to tell the others
    KillNode,
    /// All its processes are stopped, and go on when another node serves
    Stop,
    /// The owner is cut off, and connected again when another node serves
    Cut,
    /// The same; only what it sends is lost
    CutOut,
    /// The same; only what is sent to it is lost
    CutIn,
    /// What it sends to other nodes and to etcd is lost, and hosts still reach it
    CutPeers,
    /// A member's daemon is killed with -9, and started again
    KillMember,
    /// A member's processes are stopped, and go on
    StopMember,
    /// A member is cut off, and connected again
    CutMember,
    /// A member: what it sends is lost
    CutMemberOut,
    /// A member: what is sent to it is lost
    CutMemberIn,
    /// etcd is killed, and started again
    Etcd,
    /// The volume is moved to another node
    Move,
    /// All nodes are killed at once, and started again
    KillAll,
}

/// What a cluster goes through under a checking load.
#[derive(Args)]
#[command(after_help = "Examples:
  ashlar lab ha --out demo-ha
  ashlar lab ha --fault kill,stop,cut,cut-in,cut-out --rounds 10 --out /tmp/run")]
pub(crate) struct HaArguments {
    /// Where the cluster is made, and removed afterwards: a short path to an empty directory, or none
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// What fails, one after the other, in every round
    #[arg(
        long = "fault",
        value_enum,
        value_delimiter = ',',
        default_value = "kill"
    )]
    pub(crate) faults: Vec<HaFault>,

    /// How often
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) rounds: u32,

    /// Nodes: 2 to 7
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) nodes: usize,

    /// Copies of the volume: 2 or 3
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) replicas: u8,

    /// Bytes of the volume, all of which are written and checked
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    pub(crate) size: String,

    /// Ports of 127.0.0.1 instead of network namespaces, which only root may make
    #[arg(long)]
    pub(crate) loopback: bool,

    /// Seed of the load
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Directory for result.json, and the logs of nodes if something is wrong
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
