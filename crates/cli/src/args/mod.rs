//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use ashlar_reactor::Spin;
use clap::{ArgAction, Args, Parser, Subcommand};

pub(crate) use attach::{
    AttachArguments, DetachArguments, FileSystemWord, HelperArguments, ViaWord,
};
pub(crate) use cache::{CacheCommand, CacheOptions, RuleCommand};
pub(crate) use cluster::{GroupAction, GroupArguments};
pub(crate) use crash::{CrashImageArguments, TraceArguments};
pub(crate) use failover::FailoverArguments;
pub(crate) use ha::HaArguments;
pub(crate) use lab::{
    AgentArguments, ClientArguments, CompareArguments, LabCommand, RunArguments, SweepArguments,
};
pub(crate) use log::{LogFormat, LogOptions};
pub(crate) use node::{
    ApiOptions, CreateVolumeArguments, OnOff, PoolCommand, VolumeCommand, WhenDegraded,
};
pub(crate) use nodes::{
    ClusterCommand, EventsArguments, NodeCommand, PlaceArguments, WitnessArguments,
};
pub(crate) use oltp::{OltpAction, OltpArguments, ScanArguments, SqlLogic};
pub(crate) use server::{CommitWord, EngineWord, ServerAction, ServerArguments};
pub(crate) use service::{CreateServiceArguments, ServiceCommand, ServiceGuardArguments};
pub(crate) use torn::{TornPagesArguments, TornPart};

mod attach;
mod cache;
mod cluster;
mod crash;
mod failover;
mod ha;
mod lab;
mod log;
mod node;
mod nodes;
mod oltp;
mod server;
mod service;
mod torn;

/// Block storage for databases, served over standard NVMe/TCP, and the lab that measures it.
#[derive(Parser)]
#[command(name = "ashlar", version, about, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve devices as the namespaces of an NVMe/TCP subsystem
    Serve(ServeArguments),
    /// Keep pools and serve their volumes, until SIGINT or SIGTERM
    Node(crate::node::NodeArguments),
    /// Make drives into pools, and keep them
    #[command(subcommand)]
    Pool(Box<PoolCommand>),
    /// Make volumes of pools' space, and say who may use them
    #[command(subcommand)]
    Volume(Box<VolumeCommand>),
    /// Deal with devices whose cache is lost
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Keep databases up where their volumes are
    #[command(subcommand)]
    Service(Box<ServiceCommand>),
    /// Begin a cluster, let machines join, show it
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run a member of a cluster's etcd and nothing else: a third machine, so that two nodes are enough
    Witness(WitnessArguments),
    /// List what has happened to volumes, services and nodes
    Events(EventsArguments),
    /// Make a volume a disk of this machine, and mount it
    Attach(Box<AttachArguments>),
    /// Unmount an attached volume and let it go
    Detach(DetachArguments),
    #[command(hide = true)]
    AttachGuardian(HelperArguments),
    #[command(hide = true)]
    AttachServer(HelperArguments),
    #[command(hide = true)]
    ServiceGuard(ServiceGuardArguments),
    /// Ask an NVMe/TCP target what it is
    #[command(subcommand)]
    Nvme(NvmeCommand),
    /// Measure storage, compare runs, make reports
    #[command(subcommand)]
    Lab(Box<LabCommand>),
    /// Run seeded simulations of the code that ships
    #[command(subcommand)]
    Sim(SimCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// What a command that runs long logs.
    pub(crate) fn log_options(&self) -> Option<&LogOptions> {
        match self {
            Self::Serve(arguments) => Some(&arguments.log),
            Self::Node(arguments) => Some(&arguments.log),
            Self::Attach(arguments) => Some(&arguments.log),
            Self::AttachGuardian(arguments) | Self::AttachServer(arguments) => Some(&arguments.log),
            _ => None,
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum NvmeCommand {
    /// List the subsystems that a discovery service offers this host
    Discover {
        /// Address of the discovery service
        #[arg(value_name = "ADDR:PORT")]
        address: String,
        #[command(flatten)]
        options: NvmeOptions,
    },
    /// Show a subsystem's controller and namespaces
    Identify {
        /// Address of the subsystem
        #[arg(value_name = "ADDR:PORT")]
        address: String,
        /// NQN of the subsystem; without it, all that discovery lists
        nqn: Option<String>,
        #[command(flatten)]
        options: NvmeOptions,
    },
}

#[derive(Args)]
pub(crate) struct NvmeOptions {
    /// Who we are (default: an NQN that follows from this machine's identifier)
    #[arg(long, value_name = "NQN")]
    pub(crate) hostnqn: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// Target against initiator over a stream that splits, delays and breaks; exit 1 if a seed fails
    Wire(WireArguments),
    /// The storage engine over drives that lose power, die and lie; exit 1 if a seed fails
    Engine(EngineArguments),
    /// The replication protocol on nodes that crash, stop and are cut off; exit 1 if a seed fails
    Cluster(ClusterArguments),
}

#[derive(Args)]
pub(crate) struct WireArguments {
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    pub(crate) seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) first_seed: u64,
    /// Only this seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "first_seed"])]
    pub(crate) seed: Option<u64>,
    /// Tell everything that happens in it
    #[arg(long, requires = "seed")]
    pub(crate) trace: bool,
    /// What happens to the world: every (in turn, by seed), or one of them
    #[arg(long, default_value = "every")]
    pub(crate) profile: String,
}

#[derive(Args)]
pub(crate) struct EngineArguments {
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    pub(crate) seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) first_seed: u64,
    /// Only this seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "first_seed"])]
    pub(crate) seed: Option<u64>,
    /// Tell everything that happens in it
    #[arg(long, requires = "seed")]
    pub(crate) trace: bool,
    /// What befalls the pool: crash, bitrot, drive-loss, drive-swap, half, or all (in turn, by seed)
    #[arg(long, default_value = "all")]
    pub(crate) profile: String,
}

#[derive(Args)]
pub(crate) struct ClusterArguments {
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    pub(crate) seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) first_seed: u64,
    /// Only this seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "first_seed"])]
    pub(crate) seed: Option<u64>,
    /// Tell everything that happens in it
    #[arg(long, requires = "seed")]
    pub(crate) trace: bool,
    /// What befalls the cluster: crash, partition, drive-loss, clock, or all of these (in turn, by seed); steady,
    /// quorum-away, old-image, young-image, bad-blocks, drift, rights
    #[arg(long, default_value = "all")]
    pub(crate) profile: String,
}

/// `ashlar serve` of a device that several targets share.
#[derive(Args)]
pub(crate) struct SharedArguments {
    /// Other targets serve the same devices under this NQN, too: ids of the controllers made here,
    /// which no other of them may use (1-65519). Hosts then get ANA, and use several paths
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) controller_ids: Option<String>,

    /// How hosts reach the devices here: optimized, non-optimized, inaccessible, persistent-loss or
    /// change
    #[arg(
        long,
        value_name = "STATE",
        default_value = "optimized",
        requires = "controller_ids"
    )]
    pub(crate) path: String,

    /// Where another target serves them, as discovery tells hosts; may be given several times
    #[arg(long = "portal", value_name = "ADDR:PORT", requires = "controller_ids")]
    pub(crate) portals: Vec<SocketAddr>,

    /// Change paths and portals while serving, by lines of standard input: `path STATE [NSID]` and
    /// `portals [ADDR:PORT …]`; each is answered by a line "done …" or "refused …"
    #[arg(long, action = ArgAction::SetTrue, requires = "controller_ids")]
    pub(crate) orders: bool,
}

/// What is served is the device itself, with its own volatile cache if it has one: no redundancy, no
/// checksums.
#[derive(Args)]
pub(crate) struct ServeArguments {
    /// A device to serve; the first becomes nsid 1, the next nsid 2, …:
    /// memory:512MiB, file:/path?size=4GiB, /dev/x, stripe:file:/a,file:/b, null:1TiB
    #[arg(long = "device", required = true, value_name = "DEVICE")]
    pub(crate) devices: Vec<String>,

    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:4420", value_name = "ADDR:PORT")]
    pub(crate) listen: SocketAddr,

    /// NQN of the subsystem
    #[arg(long)]
    pub(crate) nqn: String,

    /// Cores to run on, one thread each (default: the first core this process may use)
    #[arg(long, value_delimiter = ',', value_name = "CORE,…")]
    pub(crate) cores: Vec<usize>,

    /// A host that may connect, by NQN; may be given several times
    #[arg(
        long = "allow-host",
        value_name = "NQN",
        conflicts_with = "allow_any_host"
    )]
    pub(crate) allow_hosts: Vec<String>,

    /// Let every host connect
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) allow_any_host: bool,

    /// Size of a logical block in bytes, 512 or 4096
    #[arg(long, default_value_t = 4096, value_name = "BYTES")]
    pub(crate) block: u32,

    /// The address that discovery tells hosts, if it differs from the one they used
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) advertise: Option<SocketAddr>,

    /// Offer hosts reservations, kept in files of this directory, which is made: they outlive
    /// restarts and power losses. Only for devices that no other target serves
    #[arg(long, value_name = "DIR", conflicts_with = "controller_ids")]
    pub(crate) reservations: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) shared: SharedArguments,

    /// When to spin before sleeping: auto (where a sleep would cost more, as measured), off, or for so many
    /// microseconds after every event, on cores that have nothing else to do; an idle target sleeps whatever this says
    #[arg(long, default_value_t = Spin::Auto, value_name = "auto|off|USEC")]
    pub(crate) spin: Spin,

    /// Most memory for I/O buffers, in MiB a core
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    pub(crate) buffer_mib: usize,

    #[command(flatten)]
    pub(crate) log: LogOptions,
}
