//! `ashlar attach` and `ashlar detach`.

use std::path::PathBuf;

use ashlar_reactor::Spin;
use clap::{Args, ValueEnum};

use super::{ApiOptions, LogOptions};

/// A file system that can be made.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FileSystemWord {
    /// XFS
    Xfs,
    /// ext4
    Ext4,
}

/// A means of attaching.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ViaWord {
    /// The best that there is
    Auto,
    /// The kernel's own nvme-tcp
    Nvme,
    /// A FUSE file under a loop device, served in process if the volume's daemon is here
    Fuse,
    /// The same, served through our initiator even then
    Initiator,
}

/// Where attachments are remembered.
#[derive(Args)]
pub(crate) struct AttachFolder {
    /// Where attachments are remembered
    #[arg(
        long = "state",
        value_name = "DIR",
        env = "ASHLAR_ATTACH_STATE",
        hide_env_values = true,
        default_value = ashlar_attach::DEFAULT_FOLDER
    )]
    pub(crate) base: PathBuf,
}

#[derive(Args)]
pub(crate) struct AttachArguments {
    /// POOL/VOLUME, or nvme-tcp://ADDR:PORT[,ADDR:PORT…]/NQN?ns=N
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    pub(crate) volume: Option<String>,
    /// Where its file system is mounted: an empty folder
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "list",
        conflicts_with = "list"
    )]
    pub(crate) mount: Option<PathBuf>,
    /// Show what is attached
    #[arg(long)]
    pub(crate) list: bool,
    /// Make this file system if the volume is empty; without it, mount the one that is there
    #[arg(long, value_name = "KIND")]
    pub(crate) fs: Option<FileSystemWord>,
    /// Destroy what the volume holds
    #[arg(long, requires = "fs")]
    pub(crate) destroy_data: bool,
    /// Mount options, as for mount -o
    #[arg(long, short, value_name = "OPTIONS")]
    pub(crate) options: Option<String>,
    /// By what means
    #[arg(long, value_name = "MEANS", default_value = "auto")]
    pub(crate) via: ViaWord,
    /// How long I/O waits for a volume that does not answer before it fails: 30s, 10m, or never
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(crate) timeout: String,
    /// Send flushes even if the volume keeps what it has acknowledged without them
    #[arg(long)]
    pub(crate) always_flush: bool,
    /// Even if a host is connected to the volume, and without reserving it: two file systems on one volume destroy
    /// each other
    #[arg(long)]
    pub(crate) shared: bool,
    /// Take a volume with copies on several nodes over from the host that has reserved it: that host can write no more
    #[arg(long, conflicts_with_all = ["shared", "here"])]
    pub(crate) preempt: bool,
    /// Reach a replicated volume through this node only: while another node owns it, I/O waits, at most --timeout, and
    /// does not follow it
    #[arg(long)]
    pub(crate) here: bool,
    /// Write every request down: its number, kind, offset and length
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// When to spin before sleeping: auto (where a sleep would cost more, as measured), off, or for so many
    /// microseconds after every event
    #[arg(long, default_value_t = Spin::Auto, value_name = "auto|off|USEC")]
    pub(crate) spin: Spin,
    /// Who we are to the volume (default: an NQN that follows from this machine's identifier)
    #[arg(long, value_name = "NQN")]
    pub(crate) hostnqn: Option<String>,
    #[command(flatten)]
    pub(crate) folder: AttachFolder,
    #[command(flatten)]
    pub(crate) log: LogOptions,
    #[command(flatten)]
    pub(crate) api: ApiOptions,
}

#[derive(Args)]
pub(crate) struct DetachArguments {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    pub(crate) mount: PathBuf,
    /// Even if it is in use or does not answer: a program that uses it gets errors, and what was not
    /// written back is lost
    #[arg(long)]
    pub(crate) force: bool,
    /// How long a volume may leave everything unanswered while what is cached is saved, in seconds;
    /// then it stays attached
    #[arg(long = "timeout", default_value_t = 30, value_name = "SECONDS")]
    pub(crate) timeout_s: u64,
    #[command(flatten)]
    pub(crate) folder: AttachFolder,
}

/// A process behind an attachment; started by `attach`.
#[derive(Args)]
pub(crate) struct HelperArguments {
    /// The attachment's folder
    pub(crate) folder: PathBuf,
    /// Another server was there before
    #[arg(long)]
    pub(crate) takes_over: bool,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}
