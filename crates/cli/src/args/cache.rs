//! `ashlar cache`, and what `ashlar volume` says of caches.

use ashlar_node::model::CacheMode;
use clap::{Args, Subcommand, ValueEnum};

/// How writes of a cached volume go.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum ModeWord {
    /// To the pool, and later to the device
    #[default]
    #[value(name = "write-back")]
    Back,
    /// To the device; the pool keeps a copy for reads
    #[value(name = "write-through")]
    Through,
    /// To the device only; reads are cached
    #[value(name = "write-around")]
    Around,
}

impl From<ModeWord> for CacheMode {
    fn from(word: ModeWord) -> Self {
        match word {
            ModeWord::Back => Self::WriteBack,
            ModeWord::Through => Self::WriteThrough,
            ModeWord::Around => Self::WriteAround,
        }
    }
}

/// A volume that caches a device.
#[derive(Args)]
pub(crate) struct CacheOptions {
    /// Cache this device, instead of making an empty volume: what the volume holds is what the device holds, byte
    /// for byte. A disk, a partition, file:/p or nvme-tcp://…
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["size", "grain", "when_degraded"])]
    pub(crate) backing: Option<String>,
    /// How much of the pool it may take for that: 100GiB (default: nine tenths of the room there is, or the whole
    /// device)
    #[arg(long, value_name = "SIZE", requires = "backing")]
    pub(crate) cache: Option<String>,
    /// How writes go
    #[arg(
        long,
        value_name = "MODE",
        requires = "backing",
        default_value = "write-back"
    )]
    pub(crate) mode: ModeWord,
}

#[derive(Subcommand)]
pub(crate) enum CacheCommand {
    /// Take the mark of a lost cache off the device that it cached. What only the cache had is lost
    GiveUp {
        /// The device: /dev/x, file:/p or nvme-tcp://…
        device: String,
        /// Lose what only the cache had
        #[arg(long)]
        accept_data_loss: bool,
    },
}
