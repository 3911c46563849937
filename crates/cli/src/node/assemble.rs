//! What is behind `ashlar node`: a running target, and the pool manager of the pools on its cores.

use std::sync::Arc;

use ashlar_cluster::Cluster;
use ashlar_node::{Config, Control, Daemon, PoolManager};
use ashlar_nvme_target::Timeouts;
use ashlar_nvme_target::server::{CoreDeath, Server, ServerConfig};
use ashlar_reactor::{Options, available_cores, raise_file_limit};

use super::local;
use crate::exit::Failure;

/// Imports the pools and serves their volumes. Hosts that come meanwhile wait.
pub(crate) fn assemble(
    daemon: &Daemon,
    cluster: Option<Cluster>,
) -> Result<Arc<dyn Control>, Failure> {
    raise_file_limit();
    let config = daemon.config();
    let server = Server::start(ServerConfig {
        listen: config.listen(),
        cores: cores(config)?,
        reactor: Options {
            files: 8192,
            spin: config.spin(),
            ..Options::default()
        },
        exports: Vec::new(),
        timeouts: Timeouts::default(),
        hold: true,
        on_core_death: CoreDeath::EndProcess,
    });
    let server = server.map_err(Failure::environment)?;
    let open = Box::new(crate::stack::open);
    let manager = PoolManager::new(&server, daemon.state(), config, open, cluster)?;
    let no_thread = |error| Failure::environment(format!("cannot start a thread: {error}"));
    manager.watch_files(&daemon.alarm()).map_err(no_thread)?;
    manager.watch_rules(&daemon.alarm()).map_err(no_thread)?;
    server.control().welcome();
    local::listen(daemon, &manager)?;
    let wait = move || server.wait().map_err(|error| error.to_string());
    let thread = daemon.alarm().spawn("target", wait);
    thread.map_err(no_thread)?;
    Ok(manager)
}

fn cores(config: &Config) -> Result<Vec<usize>, Failure> {
    let available = available_cores();
    if config.cores.is_empty() {
        return Ok(available.into_iter().take(1).collect());
    }
    match config.cores.iter().find(|core| !available.contains(core)) {
        Some(core) => Err(Failure::usage(format!(
            "core {core} is not among those this process may use ({available:?})"
        ))),
        None => Ok(config.cores.clone()),
    }
}
