use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ashlar_nvme::fabrics::{DISCOVERY_NQN, Nqn};

use crate::config::{SubsystemConfig, Timeouts};
use crate::controller::Instance;
use crate::subsystem::{Host, Subsystem};

/// A configuration that cannot be served.
#[derive(Debug)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// A host's NQN and identifier.
type HostKey = (String, [u8; 16]);

/// What all cores share: subsystems, their controllers, and the hosts.
pub struct Target {
    pub(crate) subsystems: Vec<Arc<Subsystem>>,
    pub(crate) timeouts: Timeouts,
    hosts: Mutex<HashMap<HostKey, Weak<Host>>>,
    next_discovery_id: AtomicU16,
    /// Numbers the controllers; where it begins tells this target from its earlier selves.
    next_instance: AtomicU64,
    served: AtomicU64,
}

impl Target {
    /// A target with these subsystems. The devices of every core are numbered through the
    /// subsystems' namespaces in order.
    pub fn new(subsystems: Vec<SubsystemConfig>, timeouts: Timeouts) -> Result<Self, ConfigError> {
        let mut built: Vec<Arc<Subsystem>> = Vec::new();
        let mut devices = 0;
        for config in subsystems {
            let invalid = |why: String| ConfigError(format!("subsystem {:?}: {why}", config.nqn));
            Nqn::lenient(&config.nqn).map_err(|error| invalid(error.to_string()))?;
            if config.nqn == DISCOVERY_NQN {
                return Err(invalid("this NQN is reserved for discovery".into()));
            }
            if built.iter().any(|other| other.config.nqn == config.nqn) {
                return Err(invalid("the NQN is used twice".into()));
            }
            if config.namespaces.is_empty() {
                return Err(invalid("it has no namespace".into()));
            }
            let first = devices;
            devices += config.namespaces.len();
            built.push(Arc::new(Subsystem::new(config, first)));
        }
        Ok(Self {
            subsystems: built,
            timeouts,
            hosts: Mutex::default(),
            next_discovery_id: AtomicU16::new(1),
            next_instance: AtomicU64::new(0),
            served: AtomicU64::new(0),
        })
    }

    /// The same, told from every earlier run of it: a host that asks for the end of a controller of an
    /// earlier run must not meet one of this run that has the same id. `run` differs between runs by
    /// more than the number of controllers that a run makes; a random number does.
    #[must_use]
    pub fn with_run(self, run: u64) -> Self {
        self.next_instance.store(run, Ordering::Relaxed);
        self
    }

    /// The number of a new controller.
    pub(crate) fn next_instance(&self) -> Instance {
        Instance::new(self.next_instance.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn subsystem(&self, nqn: &str) -> Option<&Arc<Subsystem>> {
        self.subsystems
            .iter()
            .find(|subsystem| subsystem.config.nqn == nqn)
    }

    /// The host of this identity, the same object for all its associations.
    pub(crate) fn host(&self, nqn: &str, id: [u8; 16]) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (nqn.to_owned(), id);
        if let Some(host) = hosts.get(&key).and_then(Weak::upgrade) {
            return host;
        }
        // Hosts come and go: forget the gone ones now and then.
        if hosts.len().is_power_of_two() {
            hosts.retain(|_, host| host.strong_count() > 0);
        }
        let host = Arc::new(Host::new(key.0.clone(), id));
        hosts.insert(key, Arc::downgrade(&host));
        host
    }

    /// An id for a discovery controller. Nobody looks one up again, so wrapping around is harmless.
    pub(crate) fn discovery_id(&self) -> u16 {
        let id = self.next_discovery_id.fetch_add(1, Ordering::Relaxed);
        id.clamp(1, 0xffef)
    }

    pub(crate) fn count_connection(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections accepted since the start.
    pub fn connections_served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}
