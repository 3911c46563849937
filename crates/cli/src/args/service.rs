//! `ashlar service`.

use std::path::PathBuf;

use ashlar_node::model::{ServiceAddress, VolumeName};
use clap::{Args, Subcommand, value_parser};

use super::{ApiOptions, FileSystemWord};

#[derive(Subcommand)]
pub(crate) enum ServiceCommand {
    /// Keep a service up where its volumes are: attached, mounted, started, watched
    ///
    /// The node that has the volumes mounts them and starts the service in a cgroup of its own. A service that ends is
    /// started again; one whose volumes are lost, stuck or read-only is stopped within seconds. On volumes that are
    /// not replicated it has one node only, and `service show` says so.
    Create(Box<CreateServiceArguments>),
    /// List the services
    List {
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Show everything about a service
    Show {
        /// Its name
        service: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Have it run again, after it was stopped or has failed too often
    Start {
        /// Its name
        service: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Stop it in order and unmount its volumes; it stays so until it is started
    Stop {
        /// Its name
        service: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Stop it in order here, and have it run on another node
    Move {
        /// Its name
        service: String,
        /// The node [default: any other]
        #[arg(long, value_name = "NODE")]
        to: Option<String>,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Forget a service that is stopped; its volumes stay as they are
    Delete {
        /// Its name
        service: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Print a configuration of HAProxy that leads clients to the node where a service runs
    Haproxy {
        /// Its name
        service: String,
        /// Where clients connect
        #[arg(long, default_value = "*:5000", value_name = "ADDR:PORT")]
        listen: String,
        /// A node: the address of its API, and the port of the service there; several times. Without, all nodes that
        /// can have it, as the daemon knows them
        #[arg(long = "node", value_name = "HOST:APIPORT:PORT")]
        nodes: Vec<String>,
        /// The service's port, where no node is said
        #[arg(long, default_value_t = 5432, conflicts_with = "nodes", value_parser = value_parser!(u16).range(1..))]
        port: u16,
        #[command(flatten)]
        api: ApiOptions,
    },
}

/// Takes a replicated service down when its daemon is gone; started by the daemon.
#[derive(Args)]
pub(crate) struct ServiceGuardArguments {
    /// The service's cgroup
    pub(crate) group: PathBuf,
    /// Where its volumes are mounted
    #[arg(required = true)]
    pub(crate) mounts: Vec<PathBuf>,
    /// Its address
    #[arg(long)]
    pub(crate) address: Option<ServiceAddress>,
}

/// What is kept up.
#[derive(Args)]
#[command(after_help = "Examples:
  ashlar service create pg --postgres --volume tank/data --mount /srv/pg
  ashlar service create pg --volume tank/data --volume tank/wal --mount /srv/pg/data --mount /srv/pg/wal --user postgres \\
      --start 'pg_ctl -D /srv/pg/data/db -w start' --stop 'pg_ctl -D /srv/pg/data/db -m fast stop' \\
      --ready 'pg_isready -q -h /srv/pg/data'")]
pub(crate) struct CreateServiceArguments {
    /// Its name
    pub(crate) service: String,
    /// A volume; several times
    #[arg(long = "volume", required = true, value_name = "POOL/VOLUME")]
    pub(crate) volumes: Vec<VolumeName>,
    /// Where the volume is mounted, in the same order
    #[arg(long = "mount", required = true, value_name = "DIR")]
    pub(crate) mounts: Vec<PathBuf>,
    /// Whose its commands are [default: root; with --postgres: postgres]
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Starts it: a command of sh, which may stay or leave processes behind
    #[arg(long, value_name = "CMD", required_unless_present = "postgres")]
    pub(crate) start: Option<String>,
    /// Stops it in order [default: SIGTERM to its processes]
    #[arg(long, value_name = "CMD")]
    pub(crate) stop: Option<String>,
    /// Given while it still serves, before it is stopped in order or moved: what makes the stop short [default:
    /// nothing; with --postgres: two checkpoints]
    #[arg(long, value_name = "CMD")]
    pub(crate) drain: Option<String>,
    /// Ends with 0 when it is ready; run every second [default: ready when it has lived for 0.2 s]
    #[arg(long, value_name = "CMD")]
    pub(crate) ready: Option<String>,
    /// A PostgreSQL: its data directory is `db` on the first volume, made if it is not there; its log (pg_wal) is on
    /// the second, if there is one. What is said besides counts more
    #[arg(long)]
    pub(crate) postgres: bool,
    /// Port of --postgres, on all addresses
    #[arg(long, default_value_t = 5432, requires = "postgres", value_parser = value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// The file system that an empty volume is given
    #[arg(long, value_enum, default_value = "xfs")]
    pub(crate) fs: FileSystemWord,
    /// An address that goes where the service goes. The interface may be left out where one has a network that the
    /// address is in
    #[arg(long, value_name = "ADDRESS/PREFIX[%INTERFACE]")]
    pub(crate) address: Option<ServiceAddress>,
    #[command(flatten)]
    pub(crate) api: ApiOptions,
}
