//! What is asked of a cluster of nodes.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ApiOptions;

/// Where a machine of a cluster is.
#[derive(Args)]
pub(crate) struct PlaceArguments {
    /// Where the node keeps its state: what `ashlar node --dir` is given
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// What it is called in the cluster [default: this machine's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Where others of the cluster reach it: an address of this machine, on a network of theirs [port: 7000]
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) address: String,
    /// Where its member of etcd listens for clients; for other members a port higher [default: ADDR:2379]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) etcd: Option<SocketAddr>,
}

/// A machine that runs a member of etcd and nothing else.
#[derive(Args)]
#[command(after_help = "Examples:
  ashlar witness --dir /var/lib/ashlar --join ashlar1-eyJ… --address 10.0.0.3
  ashlar witness --dir /var/lib/ashlar")]
pub(crate) struct WitnessArguments {
    /// Where the witness keeps its state
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Join a cluster first, by what `ashlar cluster token` has printed; once
    #[arg(long, value_name = "TOKEN", requires = "address")]
    pub(crate) join: Option<String>,
    /// What it is called in the cluster [default: this machine's name]
    #[arg(long, value_name = "NAME", requires = "join")]
    pub(crate) name: Option<String>,
    /// An address of this machine, on a network of the cluster
    #[arg(long, value_name = "ADDR", requires = "join")]
    pub(crate) address: Option<String>,
    /// Where its member of etcd listens for clients; for other members a port higher [default: ADDR:2379]
    #[arg(long, value_name = "ADDR:PORT", requires = "join")]
    pub(crate) etcd: Option<SocketAddr>,
    /// It is the witness of this name, which comes back: its directory was lost or is damaged, or it has another
    /// address
    #[arg(long, requires = "join")]
    pub(crate) rejoin: bool,
}

#[derive(Subcommand)]
#[command(after_help = "Examples:
  ashlar cluster init prod --dir /var/lib/ashlar --name a --address 10.0.0.1     # on the first node
  ashlar node --dir /var/lib/ashlar &
  ashlar cluster token                                                        # there, for each that is to join
  ashlar cluster join ashlar1-eyJ… --dir /var/lib/ashlar --name b --address 10.0.0.2
  ashlar witness --dir /var/lib/ashlar --join ashlar1-eyJ… --address 10.0.0.3")]
pub(crate) enum ClusterCommand {
    /// Begin a cluster with a first node, which `ashlar node --dir DIR` then starts
    Init {
        /// The cluster's name
        cluster: String,
        #[command(flatten)]
        place: PlaceArguments,
        /// Where hosts connect [default: ADDR:4420]
        #[arg(long, value_name = "ADDR:PORT")]
        listen: Option<SocketAddr>,
        /// Who decides when nodes cannot see each other: `local`, members of etcd that nodes bring with them, or
        /// `etcd://HOST:PORT[,HOST:PORT…]`, one that is there
        #[arg(long, value_name = "QUORUM", default_value = "local")]
        quorum: String,
    },
    /// Print a token with which one machine can join, once
    Token {
        /// How long it is good, in minutes
        #[arg(long, value_name = "MINUTES", default_value_t = 60)]
        minutes: u64,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Have this machine join a cluster as a node, which `ashlar node --dir DIR` then starts
    Join {
        /// What `ashlar cluster token` on a node of the cluster has printed
        token: String,
        #[command(flatten)]
        place: PlaceArguments,
        /// Where hosts connect [default: ADDR:4420]
        #[arg(long, value_name = "ADDR:PORT")]
        listen: Option<SocketAddr>,
        /// It is the node of this name, which comes back with its number: its directory was lost or is damaged, or it
        /// has another address. Its pools and their copies stay its own
        #[arg(long)]
        rejoin: bool,
    },
    /// Take the node that is asked out of its cluster, and end its daemon. Refused while it has copies of volumes
    Leave {
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Have the etcd of this machine go on without the others', when a majority of them is lost for good. Its node must
    /// not run, and is started afterwards
    Recover {
        /// The node's directory
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// The other machines of the quorum never start again with what they have: else there are two clusters, which
        /// serve the same volumes
        #[arg(long)]
        others_are_lost: bool,
    },
    /// Show the nodes, the quorum, and who serves which volume with which copies
    Status {
        #[command(flatten)]
        api: ApiOptions,
    },
}

#[derive(Subcommand)]
pub(crate) enum NodeCommand {
    /// Have others serve a node's volumes: before an upgrade, or to take it away. Volumes that no other node can serve
    /// now, or that have one copy and are in use, stay and are named: then the node is not drained (exit code 3)
    Drain {
        /// The node, by its name in the cluster
        node: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Take a node that is gone for good, or a witness, out of the cluster
    Forget {
        /// Its name
        node: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Have another node take a node's place: each copy of the old one goes to it, and is taken away there once that
    /// is in sync. Goes on until all is done; may be given again
    Replace {
        /// The node whose copies are to go
        node: String,
        /// The node that gets them; it has pools of the same names
        #[arg(long, value_name = "NODE")]
        with: String,
        #[command(flatten)]
        api: ApiOptions,
    },
    /// Let a node serve volumes again
    Undrain {
        /// The node
        node: String,
        #[command(flatten)]
        api: ApiOptions,
    },
}

/// What has happened, as the node that is asked knows.
#[derive(Args)]
pub(crate) struct EventsArguments {
    /// Go on with what happens from now on
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) api: ApiOptions,
}
