//! `ashlar cache`, and what `ashlar volume` says of caches.

use ashlar_node::model::{CacheMode, VolumeName};
use clap::{Args, Subcommand, ValueEnum};

use super::ApiOptions;

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
    /// for byte. A disk, a partition, file:/p, nvme-tcp://… or rbd:POOL/IMAGE. It has no copies on other nodes
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["size", "grain", "when_degraded", "replicas", "nodes"])]
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
        /// The device: /dev/x, file:/p, nvme-tcp://… or rbd:POOL/IMAGE
        device: String,
        /// Lose what only the cache had
        #[arg(long)]
        accept_data_loss: bool,
    },
    /// Keep files out of the cache of a volume
    #[command(subcommand)]
    Rule(RuleCommand),
}

/// Files that are kept out of a cache: reads of them do not enter, and what is written there is absorbed and leaves
/// soon. Where they lie is looked up on this machine, which must have the file system mounted.
#[derive(Subcommand)]
pub(crate) enum RuleCommand {
    /// Keep files out from now on, also while they are not written back
    Add {
        /// POOL/VOLUME
        volume: VolumeName,
        /// Which files: a whole path, in which * and ? stand for what is in one name, and ** for any folders
        #[arg(long, value_name = "PATTERN")]
        exclude: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Show what is kept out, and how often that was met
    List {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Keep files out no more
    Remove {
        /// POOL/VOLUME
        volume: VolumeName,
        /// As it was given
        #[arg(long, value_name = "PATTERN")]
        exclude: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Look up every few seconds where the files of this machine's rules lie, until SIGINT or SIGTERM: for a machine
    /// other than the daemon's, which does it by itself
    Renew {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        api: ApiOptions,
    },
}
