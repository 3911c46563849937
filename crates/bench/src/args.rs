//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::failure::Failure;

/// Measures ratios: the target against the bare socket limit, remote against local, idle cost, two
/// cores against one, and a peer if one is given.
#[derive(Parser)]
#[command(
    name = "ashlar-bench",
    version,
    about,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) hidden: Option<Hidden>,
}

/// What to measure, and how long. A peer is named by ASHLAR_PEER_TARGET and ASHLAR_PEER_PERF in the
/// environment.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The ashlar binary to measure
    #[arg(long, default_value = "target/release/ashlar", value_name = "FILE")]
    pub(crate) ashlar: PathBuf,

    /// Parts to measure (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PART,…")]
    pub(crate) only: Vec<Part>,

    /// Pairs of measurements; a figure is their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// Length of a measurement in seconds
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,

    /// Directory for bench.json, logs and the file that `local` measures
    #[arg(long, default_value = "bench-out", value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Size in MiB of the file that `local` measures
    #[arg(long, default_value_t = 1024, value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    pub(crate) file_mib: u64,

    /// Size in MiB of each drive of `cost`
    #[arg(long, default_value_t = 1024, value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(256..=1 << 20))]
    pub(crate) cost_mib: u64,

    /// Layouts of `cost`, as its table names them; all without it
    #[arg(long, value_delimiter = ',', value_name = "LAYOUT,…")]
    pub(crate) cost_layouts: Vec<String>,

    /// Percents of the capacity that the volumes of `cost` hold
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", default_values_t = [50, 75, 90],
          value_parser = clap::value_parser!(u64).range(1..=95))]
    pub(crate) cost_fills: Vec<u64>,

    /// Seconds of `write-cache`, in the drives' time
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=36_000))]
    pub(crate) write_cache_seconds: u64,

    /// Directory of the block traces of `policy`; without it, made-up ones
    #[arg(long, value_name = "DIR")]
    pub(crate) traces: Option<PathBuf>,

    /// Bytes of a slot of `policy`
    #[arg(long, value_name = "BYTES", default_value_t = 8192,
          value_parser = clap::value_parser!(u64).range(512..=1 << 20))]
    pub(crate) slot: u64,

    /// Sizes of the cache of `policy`, in slots; shares of each trace without it
    #[arg(long, value_delimiter = ',', value_name = "N,…",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(64..=1 << 28))]
    pub(crate) slots: Vec<usize>,
}

impl Options {
    /// What `cost` is to measure.
    pub(crate) fn cost(&self) -> crate::engine::CostOptions {
        crate::engine::CostOptions {
            drive_bytes: self.cost_mib << 20,
            layouts: self.cost_layouts.clone(),
            fills: self.cost_fills.clone(),
        }
    }

    /// What `policy` is to compare.
    pub(crate) fn policy(&self) -> crate::policy::PolicyOptions<'_> {
        crate::policy::PolicyOptions {
            traces: self.traces.as_deref(),
            slot: self.slot,
            slots: &self.slots,
        }
    }

    /// Whether a part was asked for that measures the binary.
    pub(crate) fn wants_the_binary(&self) -> bool {
        let alone = |part: &Part| {
            matches!(
                part,
                Part::Policy | Part::Slow | Part::WriteCache | Part::Disks
            )
        };
        self.only.is_empty() || !self.only.iter().all(alone)
    }

    /// The measured time of a round.
    pub(crate) fn length(&self) -> Result<Duration, Failure> {
        if !(0.05..=3600.0).contains(&self.seconds) {
            return Err(Failure::usage("--seconds: from 0.05 to 3600"));
        }
        Ok(Duration::from_secs_f64(self.seconds))
    }

    /// Whether a part was asked for.
    pub(crate) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Target against a server without a protocol
    Bare,
    /// Remote against local on a file
    Local,
    /// Processor time of a target that no host uses
    Idle,
    /// Two cores and two connections against one
    Cores,
    /// A host beside others that take all buffers and give none back
    Hoarders,
    /// A volume of two copies against one of one, on a cluster that this machine is
    Replicas,
    /// What a write of such volumes costs: processor time, bytes between nodes and on drives
    ReplicaCost,
    /// Against a peer's target
    Peer,
    /// What the storage engine costs, counted
    Cost,
    /// What a volume with a hot home loses when writes are spread over more than that may hold
    Tiers,
    /// How often the arms of disks move for parity, with small and large slots
    Disks,
    /// Writes of several databases with the ring on faster drives than their homes
    WriteCache,
    /// How long the storage engine takes to come back, and its memory
    Recovery,
    /// Reads through the storage engine against its drives
    Reads,
    /// Hit ratios of the cache's policy beside others, on traces
    Policy,
    /// A cache beside the disk that it caches, in the time of a model
    Slow,
}

#[derive(Subcommand)]
pub(crate) enum Hidden {
    /// Answers requests of one size with answers of one size
    #[command(hide = true)]
    BareServer(BareShape),
    /// Becomes a program that ends with its parent
    #[command(hide = true)]
    Spawn(Spawn),
}

/// What a bare server answers.
#[derive(Args, Clone, Debug)]
pub(crate) struct BareShape {
    /// Bytes of an access
    #[arg(long)]
    pub(crate) block: u32,
    /// Requests carry the data; otherwise answers do
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) write: bool,
    /// Longest time to spin for the next request before sleeping
    #[arg(long, default_value_t = 50)]
    pub(crate) spin_us: u64,
}

/// A program, and where it runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct Spawn {
    /// The process that must live
    #[arg(long)]
    pub(crate) parent: i32,
    /// The only core to run on
    #[arg(long)]
    pub(crate) core: Option<usize>,
    /// Program and arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}
