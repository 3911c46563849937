use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use crate::config::{SubsystemConfig, Timeouts};
use crate::controller::Instance;
use crate::roster::Roster;
use crate::subsystem::{Host, Subsystem};

/// A configuration that cannot be served.
#[derive(Debug)]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(why: String) -> Self {
        Self(why)
    }
}

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
    pub(crate) timeouts: Timeouts,
    pub(crate) roster: RwLock<Roster>,
    pub(crate) served: AtomicU64,
    hosts: Mutex<HashMap<HostKey, Weak<Host>>>,
    next_discovery_id: AtomicU16,
    /// Numbers the controllers; where it begins tells this target from its earlier selves.
    next_instance: AtomicU64,
}

impl Target {
    /// A target with these subsystems, or none. The devices of every core are numbered through the
    /// subsystems' namespaces in order.
    ///
    /// # Errors
    /// A subsystem makes no sense, or an NQN is used twice.
    pub fn new(subsystems: Vec<SubsystemConfig>, timeouts: Timeouts) -> Result<Self, ConfigError> {
        let target = Self {
            timeouts,
            roster: RwLock::default(),
            served: AtomicU64::new(0),
            hosts: Mutex::default(),
            next_discovery_id: AtomicU16::new(1),
            next_instance: AtomicU64::new(0),
        };
        for config in subsystems {
            // No host listens yet: no change of what was told.
            let listing = target.prepare(config)?;
            target.roster_mut().subsystems.push(listing.0);
        }
        Ok(target)
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

    pub(crate) fn subsystem(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        self.roster().find(nqn).cloned()
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

    /// An id for a discovery controller. None is looked up again, so wrapping around is harmless.
    pub(crate) fn discovery_id(&self) -> u16 {
        let id = self.next_discovery_id.fetch_add(1, Ordering::Relaxed);
        id.clamp(1, 0xffef)
    }

    pub(crate) fn count_connection(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}
