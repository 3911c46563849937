//! `ashlar lab ha`'s part of the command line.

use std::path::PathBuf;

use ashlar_failover::HaFault;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// What fails, by its word.
fn faults() -> impl TypedValueParser<Value = HaFault> {
    let words = HaFault::ALL.iter();
    let words = words.map(|fault| PossibleValue::new(fault.word()).help(fault.told()));
    PossibleValuesParser::new(words).try_map(|word| word.parse::<HaFault>())
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
    #[arg(long = "fault", value_parser = faults(), value_delimiter = ',')]
    pub(crate) kinds: Vec<HaFault>,

    /// How often
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) rounds: u32,

    /// Faults as the seed draws them, under three hosts that load two volumes, with an etcd of three members
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
