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
    /// All of the owner's drives fail, and are well again when another node serves
    DrivesDie,
    /// The same; they do not answer
    DrivesHang,
    /// All of a member's drives fail, and are well again
    DrivesDieMember,
    /// The same; they do not answer
    DrivesHangMember,
    /// All of etcd is killed, and started again
    Etcd,
    /// One member of etcd is killed, and started again
    EtcdMember,
    /// All members of etcd but one are killed, and started again a minute later
    EtcdMajority,
    /// The volume is moved to another node
    Move,
    /// A member's copy is taken away, and given again: all of it is copied
    Copies,
    /// All nodes are killed at once, and started again
    KillAll,
    /// A member's drives are copied; later all nodes are killed at once, and it is started with that old image
    OldImage,
    /// The owner's daemon is told to end, and started again, as an upgrade does it
    Restart,
    /// The same of a member's
    RestartMember,
    /// Node after node: its daemon ends in order, and is started anew from the program of --upgrade-to
    Upgrade,
    /// All nodes and all of etcd are killed at once, as if the power failed; then all is started at once
    Power,
}

/// What a cluster goes through under a checking load.
#[derive(Args)]
#[command(after_help = "Examples:
  ashlar lab ha --out demo-ha
  ashlar lab ha --fault kill,stop,cut,cut-in,cut-out --rounds 10 --out /tmp/run
  ashlar lab ha --fault upgrade --upgrade-to /opt/next/ashlar --out /tmp/run
  ashlar lab ha --soak --seed 7 --faults 500 --out /tmp/run")]
pub(crate) struct HaArguments {
    /// Where the cluster is made, and removed afterwards: a short path to an empty directory, or none
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// What fails, one after the other, in every round [default: kill; with --soak all that can here]
    #[arg(long = "fault", value_enum, value_delimiter = ',')]
    pub(crate) kinds: Vec<HaFault>,

    /// How often
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) rounds: u32,

    /// Faults as the seed draws them, under two hosts that load two volumes, with an etcd of three members
    #[arg(long, conflicts_with = "rounds")]
    pub(crate) soak: bool,

    /// With --soak: how many
    #[arg(long, default_value_t = 20, value_name = "N", requires = "soak")]
    pub(crate) faults: u32,

    /// Nodes: 2 to 7
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) nodes: usize,

    /// Copies of the volume: 2 or 3
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) replicas: u8,

    /// Members of etcd, 1 or 3 [default: 1; with --soak 3]
    #[arg(long, value_name = "N")]
    pub(crate) etcd: Option<usize>,

    /// Bytes of the volume, all of which are written and checked
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    pub(crate) size: String,

    /// The program that `--fault upgrade` starts nodes from [default: this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) upgrade_to: Option<PathBuf>,

    /// Ports of 127.0.0.1 instead of network namespaces, which only root may make
    #[arg(long)]
    pub(crate) loopback: bool,

    /// Seed of the load, and of what --soak draws
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Directory for result.json, and the logs of nodes if something is wrong
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
