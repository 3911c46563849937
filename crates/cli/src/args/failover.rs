//! `ashlar lab failover`'s part of the command line.

use std::path::PathBuf;

use ashlar_oltp::faults::{Fault, Limit, Topology};
use clap::Args;

use super::cluster::{HostArguments, TuningWord};
use super::oltp::SqlLogic;
use super::server::CommitWord;

/// A primary and its standby, and when the primary dies; or a topology, and what fails.
#[derive(Args)]
#[command(after_help = "Examples:
  ashlar lab failover --out /tmp/run
  ashlar lab failover --topology group --fault kill-node,cut-network,move --tuning fast --rounds 10 --out /tmp/run
  ashlar lab failover --topology fci,group --tuning default,fast --fault kill-node,move --rounds 10 --out /tmp/run
  ashlar lab failover --topology standalone,group --fault kill-database --rounds 20 --out /tmp/run
  ashlar lab failover --topology group --fault kill-node,cut-network,move --host 10.0.0.1:7420,10.0.0.2:7420,10.0.0.3:7420 \
                      --token-file lab.token --out /tmp/run")]
pub(crate) struct FailoverArguments {
    /// Where the primary's folder is made, and removed afterwards; every user must be able to enter it
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// The same for the standby [default: that of the primary]
    #[arg(long, value_name = "DIR")]
    pub(crate) standby: Option<PathBuf>,

    /// How the database is kept up: standalone, group, group-fast, fci. With --fault: clients work through the listener
    /// while something fails, and everything that they were told is looked for
    #[arg(
        long,
        value_delimiter = ',',
        requires = "faults",
        value_name = "WORD,…"
    )]
    pub(crate) topology: Vec<Topology>,

    /// What fails: kill-database, kill-daemon, kill-node, stop-node, cut-network, drive-dies, drive-hangs, etcd-down,
    /// move
    #[arg(
        long = "fault",
        value_delimiter = ',',
        requires = "topology",
        value_name = "WORD,…"
    )]
    pub(crate) faults: Vec<Fault>,

    /// How often each fault, with --fault
    #[arg(long, default_value_t = 3, value_name = "N", requires = "faults")]
    pub(crate) rounds: u32,

    /// How many seconds clients may not be served, as the median of a fault's rounds; exit code 1 if it is longer
    #[arg(
        long,
        value_delimiter = ',',
        requires = "faults",
        value_name = "FAULT=SECONDS,…"
    )]
    pub(crate) at_most: Vec<Limit>,

    /// Transactions a second that are due, by all clients together, with --fault
    #[arg(long, default_value_t = 50.0, value_name = "N", requires = "faults")]
    pub(crate) rate: f64,

    /// How long etcd is down, with --fault etcd-down, and a group's drive at most, with drive-dies and drive-hangs
    #[arg(long, default_value = "60s", value_name = "TIME", requires = "faults")]
    pub(crate) hold: String,

    /// How fast a group notices, with --topology group: `fast` makes it group-fast, and both words one after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "default",
        requires = "faults",
        value_name = "WORD,…"
    )]
    pub(crate) tuning: Vec<TuningWord>,

    #[command(flatten)]
    pub(crate) hosts: HostArguments,

    /// Warehouses, about 100 MB each
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) warehouses: i32,

    /// Users
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub(crate) users: usize,

    /// Load from the first order to the death of the primary, or before the fault
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub(crate) before: String,

    /// How long before its death the standby receives nothing any more [default: 1s with --commit local, so
    /// that there is something to be lost; otherwise 0s]
    #[arg(long, value_name = "TIME")]
    pub(crate) cut_off: Option<String>,

    /// Load on the promoted server, or after what failed is mended
    #[arg(long, default_value = "5s", value_name = "TIME")]
    pub(crate) after: String,

    /// What commits wait for. With local, which is no availability group, orders are lost, and
    /// must be found missing (exit code 1)
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) commit: CommitWord,

    /// Where the logic of a transaction runs
    #[arg(long, value_enum, default_value = "functions")]
    pub(crate) sql: SqlLogic,

    /// A setting of postgresql.conf, name=value, of both; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// Seed of data and inputs
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Directory for result.json and report.html
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
