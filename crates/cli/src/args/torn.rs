//! `ashlar lab torn-pages`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What is tried, how often, and where.
#[derive(Args)]
pub(crate) struct TornPagesArguments {
    /// Where everything is made (about 4 GiB), and removed afterwards
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Power cuts of each
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) images: u64,

    /// What the load and all chance follow from
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// How long the recorded load runs, in seconds: above 0, at most a day
    #[arg(long, default_value_t = 15.0)]
    pub(crate) seconds: f64,

    /// Measured time of a step of what it costs, in seconds
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    pub(crate) cost_seconds: f64,

    /// How often each of on and off is measured
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) repeat: u32,

    /// Warehouses of about 100 MB; 0: a schema of a few MB, which is no TPROC-C
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) warehouses: i32,

    /// Virtual users
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) users: usize,

    /// What a drive writes whole when the power fails: 512 or 4k
    #[arg(long, default_value = "4k", value_name = "SIZE")]
    pub(crate) tear: String,

    /// Only one part
    #[arg(long, value_name = "PART")]
    pub(crate) only: Option<TornPart>,

    /// Keep everything in --dir
    #[arg(long)]
    pub(crate) keep: bool,

    /// Directory for result.json
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// A part of it.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TornPart {
    /// What torn-page protection costs
    Cost,
    /// The plain disk's power cuts
    Disk,
    /// The volume's power cuts
    Volume,
}
