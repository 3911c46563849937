//! The frame of `ashlar node`: everything but what is behind the [`Control`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ashlar_node::model::ControlError;
use ashlar_node::{Config, Control, Daemon};
use clap::Args;

use crate::exit::Failure;
use crate::output::print;

/// Keeps pools and serves their volumes, until SIGINT or SIGTERM.
#[derive(Args)]
pub(crate) struct NodeArguments {
    /// Where the daemon keeps its state, its socket `api.sock` and its token `api.token`
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Settings (docs/api.md); what the command line says counts more
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where hosts connect; port 0 takes a free one [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Offer the API on TCP, too; callers need the token
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) api: Option<SocketAddr>,
}

/// Serves until SIGINT or SIGTERM. `assemble` imports the pools and begins to serve their volumes;
/// it comes after the directory is locked and before anything can be asked.
pub(crate) fn run(
    arguments: &NodeArguments,
    assemble: impl FnOnce(&Daemon) -> Result<Arc<dyn Control>, Failure>,
) -> Result<(), Failure> {
    let config = match &arguments.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let config = config.overridden(arguments.listen, arguments.api);
    let daemon = Daemon::open(&arguments.dir, config)?;
    let control = assemble(&daemon)?;
    // A closed standard output is no reason to stop serving; it is one not to start.
    let mut closed = None;
    let result = daemon.run(control, |ready| {
        print(&format!("{ready}\n")).map_err(|failure| {
            closed = Some(failure);
            ControlError::environment("standard output is closed")
        })
    });
    match closed {
        Some(failure) => Err(failure),
        None => Ok(result?),
    }
}
