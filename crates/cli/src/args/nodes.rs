//! What is asked of a cluster of nodes.

use clap::{Args, Subcommand};

use super::ApiOptions;

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes, the quorum, and who serves which volume with which copies
    Status {
        #[command(flatten)]
        api: ApiOptions,
    },
}

#[derive(Subcommand)]
pub(crate) enum NodeCommand {
    /// Have others serve a node's volumes: before an upgrade, or to take it away. Refused for volumes of which no
    /// other copy is in sync; those stay, and are named
    Drain {
        /// The node, by its name in the cluster's configuration
        node: String,
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

/// What has happened in the cluster, as the node that is asked knows.
#[derive(Args)]
pub(crate) struct EventsArguments {
    /// Go on with what happens from now on
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) api: ApiOptions,
}
