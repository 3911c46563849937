//! `ashlar pool` and `ashlar volume`.

use std::path::PathBuf;

use ashlar_node::model::{DriveClass, HotSpec, LayoutSpec, ReserveSpec, VolumeName};
use clap::{Args, Subcommand, ValueEnum};
use uuid::Uuid;

use super::CacheOptions;

/// Which daemon is asked.
#[derive(Args)]
pub(crate) struct ApiOptions {
    /// The daemon's API: the path of its socket, or http://HOST:PORT [default:
    /// /run/ashlar/api.sock]
    #[arg(
        long,
        env = "ASHLAR_API",
        value_name = "PATH|URL",
        hide_env_values = true
    )]
    pub(crate) api: Option<String>,
    /// The token for an API on TCP: a copy of the daemon's DIR/api.token
    #[arg(
        long,
        env = "ASHLAR_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool of drives
    Create {
        /// Its name
        pool: String,
        /// A drive, as devices are named: /dev/x, 'file:/p?size=8GiB&class=hdd'; several times
        #[arg(long = "drive", required = true, value_name = "DEVICE")]
        drives: Vec<String>,
        /// Destroy what is on the drives
        #[arg(long)]
        destroy_data: bool,
        /// How much to keep for repair in place: auto (the largest drive's worth, if a drive more is
        /// there than the narrowest volume takes), none, drives:N, or a size
        #[arg(long, value_name = "RESERVE", default_value = "auto")]
        reserve: ReserveSpec,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Show everything about a pool
    Status {
        /// Its name; without it, every pool
        pool: Option<String>,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// List the pools
    List {
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Take a pool up again, after a move or on another machine
    Import {
        /// Its name
        pool: String,
        /// Where to look (default: the drives that the daemon knows it by); several times
        #[arg(long = "drive", value_name = "DEVICE")]
        drives: Vec<String>,
        /// Which one, if several pools have this name
        #[arg(long, value_name = "UUID")]
        id: Option<Uuid>,
        /// The name it has from now on, if another pool has this one
        #[arg(long = "as", alias = "new-name", value_name = "NAME")]
        new_name: Option<String>,
        /// Even if half of its drives or more are missing, or one that is named cannot be recognised: they are left out
        /// for good. Only if you know that they were not in service later than those that are here
        #[arg(long)]
        degraded: bool,
        /// Even if of some blocks no copy is good on the drives that are here (without this the import is refused, and
        /// names them): they are errors until they are written. A drive that is brought along later is of no use then
        #[arg(long)]
        accept_data_loss: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Let a pool go, in order
    Export {
        /// Its name
        pool: String,
        /// Even if hosts are connected to its volumes; they lose them
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Add a drive to a pool, or take one in again that was left out
    Add {
        /// The pool
        pool: String,
        /// The drive
        #[arg(long, value_name = "DEVICE")]
        drive: String,
        /// Destroy what is on it
        #[arg(long)]
        destroy_data: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Put a drive in another's place and rebuild
    Replace {
        /// The pool
        pool: String,
        /// The drive that goes, by its device or its id
        #[arg(long, value_name = "DEVICE|ID")]
        old: String,
        /// The drive that comes
        #[arg(long, value_name = "DEVICE")]
        new: String,
        /// Destroy what is on the new one
        #[arg(long)]
        destroy_data: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Empty a drive, which then leaves the pool
    Remove {
        /// The pool
        pool: String,
        /// The drive, by its device or its id
        #[arg(long, value_name = "DEVICE|ID")]
        drive: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Say how much is kept for repair from now on
    Reserve {
        /// The pool
        pool: String,
        /// auto, none, drives:N, or a size
        reserve: ReserveSpec,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Make again at once what a lost drive held, instead of some minutes after the loss
    Repair {
        /// The pool
        pool: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Read everything and check it
    Scrub {
        /// The pool
        pool: String,
        #[command(flatten)]
        api: ApiOptions,
    },
}

/// Whether something is done.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    /// It is
    On,
    /// It is not
    Off,
}

/// What a volume does when a copy is missing.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum WhenDegraded {
    /// Goes on, loudly
    Continue,
    /// Takes no writes while a copy is missing that no drive can take
    Stop,
}

/// Who may connect. No host, unless the operator names it.
#[derive(Args)]
pub(crate) struct HostOptions {
    /// A host that may connect, by NQN; several times
    #[arg(
        long = "allow-host",
        value_name = "NQN",
        conflicts_with = "allow_any_host"
    )]
    pub(crate) allow_hosts: Vec<String>,
    /// Let every host connect
    #[arg(long)]
    pub(crate) allow_any_host: bool,
}

/// Hosts whose right to connect is changed.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct NamedHosts {
    /// A host, by its NQN; several times
    #[arg(long = "host", alias = "allow-host", value_name = "NQN")]
    pub(crate) hosts: Vec<String>,
    /// Every host, besides those on the list, which stays
    #[arg(long, alias = "allow-any-host")]
    pub(crate) any_host: bool,
}

/// A share as it is said: `20%`, `20`.
fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let share = number.parse().ok().filter(|share| (1..=90).contains(share));
    share.ok_or_else(|| format!("share `{text}`: say 1% to 90%"))
}

#[derive(Args)]
pub(crate) struct CreateVolumeArguments {
    /// POOL/VOLUME
    pub(crate) volume: VolumeName,
    /// Its size: 100GiB, 1.5TiB
    #[arg(long, required_unless_present = "backing")]
    pub(crate) size: Option<String>,
    /// mirror:1 to mirror:4, parity:K+1 or parity:K+2 (K+M at most 8), stripe or stripe:N. Of a cache: mirror:2, if the
    /// pool has two drives
    #[arg(
        long,
        value_name = "mirror:N|parity:K+M|stripe[:N]",
        required_unless_present = "backing"
    )]
    pub(crate) layout: Option<LayoutSpec>,
    /// Size of its slots, which parity is written in: 8k, 16k, 32k or 64k. Small ones for small random
    /// writes; without it what suits the layout
    #[arg(long, value_name = "SIZE")]
    pub(crate) grain: Option<String>,
    /// The class of drives that hold it: nvme, ssd or hdd. Without it, in a pool of several, the one with most
    /// room of those with drives enough; for a cache the fastest with drives and room enough
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<DriveClass>,
    /// Where what is small and hot of it lies, and the rest as --layout says: mirror:2@nvme; without @CLASS on the
    /// drives of the rest
    #[arg(long, value_name = "MIRROR", conflicts_with = "backing")]
    pub(crate) hot: Option<HotSpec>,
    /// How much of the volume may be there, 1% to 90% (default: 20%)
    #[arg(long, value_name = "PERCENT", requires = "hot", value_parser = percent)]
    pub(crate) hot_share: Option<u8>,
    /// What it does when a copy is missing
    #[arg(long, value_name = "WHAT", default_value = "continue")]
    pub(crate) when_degraded: WhenDegraded,
    /// How many nodes have a copy, each in its pool of this name: 1 to 3
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) replicas: u8,
    /// Which nodes, by their names in the cluster: a,b. Without it, this one and those whose pool has most room, none
    /// that is drained
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) nodes: Vec<String>,
    #[command(flatten)]
    pub(crate) cache: CacheOptions,
    #[command(flatten)]
    pub(crate) hosts: HostOptions,
    #[command(flatten)]
    pub(crate) api: ApiOptions,
}

#[derive(Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume and serve it
    Create(CreateVolumeArguments),
    /// List the volumes
    List {
        /// Only those of this pool
        pool: Option<String>,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Show everything about a volume
    Show {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Give a volume another size
    Resize {
        /// POOL/VOLUME
        volume: VolumeName,
        /// The new size: 200GiB
        #[arg(long)]
        size: String,
        /// Destroy what lies behind a nearer end
        #[arg(long)]
        destroy_data: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Say what a volume does from now on
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true)
        .args(["when_degraded", "follow"]))]
    Set {
        /// POOL/VOLUME
        volume: VolumeName,
        /// When a copy is missing that no drive can take
        #[arg(long, value_name = "WHAT")]
        when_degraded: Option<WhenDegraded>,
        /// Whether ownership follows the hosts of a volume with copies on several nodes, to the node by which most
        /// of their commands come
        #[arg(long, value_name = "WHETHER")]
        follow: Option<OnOff>,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Give a volume of this node copies on others, in service; its hosts come back to several portals
    Replicate {
        /// POOL/VOLUME
        volume: VolumeName,
        /// How many nodes have a copy then: 1 to 3
        #[arg(long, value_name = "N")]
        replicas: u8,
        /// Which nodes, by their names in the cluster: a,b. Without it, those that have one, and others that are up
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        nodes: Vec<String>,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Have the node that is asked serve a replicated volume although its copy is not in sync: all that were are lost
    RunAlone {
        /// POOL/VOLUME
        volume: VolumeName,
        /// What was written since this copy was in sync is lost for good
        #[arg(long)]
        accept_data_loss: bool,
        /// Although another node answers that serves the volume, or has a copy in sync: it was cut from its hosts
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Have another node serve a replicated volume
    Move {
        /// POOL/VOLUME
        volume: VolumeName,
        /// The node, by its name in the cluster
        #[arg(long, value_name = "NODE")]
        to: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Compare the copies of a replicated volume that are in sync, now
    Verify {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// List the hosts that may connect, and those that are connected
    Hosts {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Let more hosts connect; those that may already go on
    Allow {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        hosts: NamedHosts,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Let some hosts connect no more
    Deny {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        hosts: NamedHosts,
        /// Even if that cuts off hosts that are connected; they lose the volume
        #[arg(long)]
        disconnect: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Delete a volume and what it holds
    Delete {
        /// POOL/VOLUME
        volume: VolumeName,
        /// Destroy what it holds
        #[arg(long)]
        destroy_data: bool,
        /// Even if hosts are connected, or a service has it; they lose it
        #[arg(long)]
        force: bool,
        /// Of a cached volume: lose what only the cache has, and print what that is. What is on the device stays
        #[arg(long)]
        accept_data_loss: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Write back everything that only the cache of a volume has: its device is then as if there were no cache
    Flush {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Take up a cached volume that is not in service
    Reopen {
        /// POOL/VOLUME
        volume: VolumeName,
        /// How the device that it caches is called now (default: as before)
        #[arg(long, value_name = "DEVICE")]
        backing: Option<String>,
        /// It may be another device than the one that is cached, or have changed: what is cached is forgotten then.
        /// While the device has the mark of a write-back cache, it has to be a whole copy of it, and nothing is
        /// forgotten
        #[arg(long)]
        other_device: bool,
        /// A device with the mark, of which no name says whether it is the one that is cached, is taken for that though
        /// it has other data somewhere: what is cached goes there again, and what it lacks besides is lost
        #[arg(long, requires = "other_device")]
        accept_data_loss: bool,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// List what only the cache of a volume has: offset and bytes, a line a range
    Newer {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Show what a volume has done
    Stats {
        /// POOL/VOLUME
        volume: VolumeName,
        #[command(flatten)]
        api: ApiOptions,
    },
}
