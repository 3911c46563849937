//! Serves a stack in this process, for configurations that are remote.

use std::net::IpAddr;

use ashlar_lab::{LabError, PoolStack, PrepareOptions, Service, Services};
use ashlar_nvme_target::server::{CoreDeath, Export, Server, ServerConfig};
use ashlar_nvme_target::{HostAccess, Timeouts};
use ashlar_reactor::{Options, available_cores};

use super::pools;
use super::replicated::{self, Ground};
use super::stacks::LocalStacks;

const NQN: &str = "nqn.2026-11.io.ashlar:lab";

/// Servers in this process, and pools of daemons of their own.
pub struct LocalServices<'a> {
    stacks: &'a LocalStacks,
    /// Where they are reached.
    on: IpAddr,
    ground: Ground<'a>,
}

impl<'a> LocalServices<'a> {
    /// Serves these, reached at this address, and nodes on this ground.
    pub fn new(stacks: &'a LocalStacks, on: IpAddr, ground: Ground<'a>) -> Self {
        Self { stacks, on, ground }
    }
}

impl Services for LocalServices<'_> {
    fn pool(&self, pool: &PoolStack) -> Result<Box<dyn Service>, LabError> {
        if pool.pool.nodes() == 1 {
            return Ok(Box::new(pools::serve(pool, self.on)?));
        }
        let volume = replicated::serve(pool, self.ground)?;
        self.stacks.reach_from(volume.url(), volume.network());
        Ok(Box::new(volume))
    }

    fn serve(&self, spec: &str, _: &PrepareOptions) -> Result<Box<dyn Service>, LabError> {
        let export = Export {
            nqn: NQN.into(),
            devices: vec![self.stacks.opener(spec)?],
            identities: Vec::new(),
            access: HostAccess::Any,
            advertise: None,
            reservations: Vec::new(),
            shared: None,
        };
        // Load threads are pinned from the first core up; the server takes the last, or shares it.
        let cores: Vec<usize> = available_cores().into_iter().rev().take(1).collect();
        let config = ServerConfig {
            listen: (self.on, 0).into(),
            cores,
            reactor: Options::default(),
            exports: vec![export],
            timeouts: Timeouts::default(),
            hold: false,
            on_core_death: CoreDeath::Report,
        };
        let server =
            Server::start(config).map_err(|error| LabError::environment(error.to_string()))?;
        let url = format!("nvme-tcp://{}/{NQN}?ns=1", server.address());
        Ok(Box::new(Running {
            url,
            server: Some(server),
        }))
    }
}

struct Running {
    url: String,
    server: Option<Server>,
}

impl Service for Running {
    fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else {
            return;
        };
        server.stopper()();
        if let Err(error) = server.wait() {
            eprintln!("ashlar: the lab's server: {error}");
        }
    }
}
