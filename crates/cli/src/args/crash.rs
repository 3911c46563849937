//! `ashlar lab trace` and `ashlar lab crash-image`.

use std::path::PathBuf;

use clap::Args;

/// Counts what was recorded by a device with `?record=TRACE`.
#[derive(Args)]
pub(crate) struct TraceArguments {
    /// The trace
    pub(crate) trace: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Everything that a completed flush covers, and every completed durable write, is there; of the rest each
/// write by itself is there, missing or torn, as the seed says. The same seed gives the same images. Several
/// devices that one process recorded are cut at one moment: give --trace, --base and --out for each, in
/// the same order.
#[derive(Args)]
pub(crate) struct CrashImageArguments {
    /// A device's trace; several times
    #[arg(long = "trace", required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// What the device held when recording began (default: zeroes); once for each trace
    #[arg(long = "base", value_name = "IMAGE")]
    pub(crate) bases: Vec<PathBuf>,
    /// The image to be made; once for each trace
    #[arg(long = "out", required = true, value_name = "IMAGE")]
    pub(crate) outs: Vec<PathBuf>,
    /// What chance follows from, the moment included unless it is given
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// The moment: a stamp of the trace (nanoseconds of CLOCK_MONOTONIC), or `end`
    #[arg(long, value_name = "STAMP|end")]
    pub(crate) at: Option<String>,
    /// What a drive writes whole: 512 or 4k
    #[arg(long, default_value = "4k", value_name = "SIZE")]
    pub(crate) tear: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
