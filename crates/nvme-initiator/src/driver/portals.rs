//! Learns a subsystem's portals: a thread that listens to the discovery service of one of its targets.
//!
//! The service says when what it tells has changed. One that ends, or whose target no longer reaches the namespace, is
//! replaced by another target's, which tells all of it at once; so does one that is asked again, when a path was lost.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ashlar_block::{ErrorKind, IoError};
use ashlar_nvme::fabrics::{DISCOVERY_NQN, TransportType};
use ashlar_nvme::log::{DiscoveryEntry, SubsystemType};
use ashlar_reactor::Waker;
use tracing::debug;

use super::blocking::Short;
use crate::config::Config;
use crate::controller::Purpose;

/// How long until another service is asked when one has ended: at first, and at most if none is of use.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A notice may be lost; so long may that be unnoticed.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// A service that does not answer is left for the next one before long.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// What the thread is told.
#[derive(Default)]
struct Orders {
    /// Where it may ask, the best first.
    targets: Vec<SocketAddr>,
    /// It is to ask again.
    again: bool,
    ends: bool,
    /// Wakes it while it listens.
    waker: Option<Waker>,
}

#[derive(Default)]
struct Shared {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        // Each change is of single fields.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Learns portals; the thread ends when this is dropped.
pub(super) struct Portals {
    shared: Arc<Shared>,
    told: Receiver<Vec<SocketAddr>>,
}

impl Portals {
    /// Begins to learn those of `config`'s subsystem. `waker` wakes who is told.
    pub(super) fn learn(config: &Config, waker: Waker) -> Option<Self> {
        let shared = Arc::<Shared>::default();
        let (tell, told) = channel();
        let learner = Learner {
            config: Config {
                timeout: DISCOVERY_TIMEOUT,
                ..Config::new("", DISCOVERY_NQN, config.host.clone())
            },
            subsystem: config.nqn.clone(),
            shared: shared.clone(),
            tell,
            waker,
        };
        let thread = std::thread::Builder::new().name("portals".into());
        // Without one the portals stay as they are.
        thread.spawn(move || learner.run()).ok()?;
        Some(Self { shared, told })
    }

    /// By these targets the namespace is reached, the best first.
    pub(super) fn ask_at(&self, targets: Vec<SocketAddr>, path_is_lost: bool) {
        let mut orders = self.shared.orders();
        orders.targets = targets;
        orders.again |= path_is_lost;
        if let Some(waker) = &orders.waker {
            waker.wake();
        }
        drop(orders);
        self.shared.changed.notify_all();
    }

    /// The portals, if that is news.
    pub(super) fn told(&self) -> Option<Vec<SocketAddr>> {
        self.told.try_iter().last()
    }
}

impl Drop for Portals {
    fn drop(&mut self) {
        let mut orders = self.shared.orders();
        orders.ends = true;
        if let Some(waker) = &orders.waker {
            waker.wake();
        }
        drop(orders);
        self.shared.changed.notify_all();
    }
}

struct Learner {
    config: Config,
    subsystem: String,
    shared: Arc<Shared>,
    tell: Sender<Vec<SocketAddr>>,
    waker: Waker,
}

impl Learner {
    fn run(self) {
        let (mut failures, mut pause) = (0, PAUSE);
        while let Some(target) = self.next_target(failures) {
            match self.listen(target) {
                Ok(()) => (failures, pause) = (0, PAUSE),
                Err(error) => {
                    debug!("{}: discovery at {target}: {error}", self.subsystem);
                    failures += 1;
                }
            }
            self.shared.orders().waker = None;
            self.rest(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A target to ask, the best that has not failed; waits for one. `None` at the end.
    fn next_target(&self, failures: usize) -> Option<SocketAddr> {
        let orders = self.shared.orders();
        let has_none = |orders: &mut Orders| orders.targets.is_empty() && !orders.ends;
        let orders = self.shared.changed.wait_while(orders, has_none);
        let orders = orders.unwrap_or_else(PoisonError::into_inner);
        let count = orders.targets.len().max(1);
        let target = orders.targets.get(failures % count).copied();
        target.filter(|_| !orders.ends)
    }

    /// A lost path ends it: there may be news.
    fn rest(&self, pause: Duration) {
        let orders = self.shared.orders();
        let rests = |orders: &mut Orders| !orders.ends && !orders.again;
        let rested = self
            .shared
            .changed
            .wait_timeout_while(orders, PAUSE, |o| !o.ends);
        let (orders, _) = rested.unwrap_or_else(PoisonError::into_inner);
        let rest = pause.saturating_sub(PAUSE);
        drop(self.shared.changed.wait_timeout_while(orders, rest, rests));
    }

    /// Tells what a target's service says, and what it says later, as long as it is of use.
    fn listen(&self, target: SocketAddr) -> Result<(), IoError> {
        let config = self.config.path(&target.to_string());
        let mut service = Short::connect(config, target, Purpose::Discovery)?;
        self.shared.orders().waker = Some(service.waker());
        loop {
            self.shared.orders().again = false;
            let portals = self.portals(&service.discovery_log()?);
            // It must speak of the addresses that we use: it may see others than we do.
            if !portals.contains(&target) {
                service.finish();
                let why = "it does not name its own address, or does not serve the subsystem";
                return Err(IoError::new(ErrorKind::Unsupported, why));
            }
            if self.tell.send(portals).is_ok() {
                self.waker.wake();
            }
            let until = Instant::now() + READ_AGAIN;
            while !service.heard()? && Instant::now() < until {
                let orders = self.shared.orders();
                let (is_of_use, again) = (orders.targets.contains(&target), orders.again);
                if orders.ends || !is_of_use {
                    drop(orders);
                    service.finish();
                    return Ok(());
                }
                if again {
                    break;
                }
            }
        }
    }

    fn portals(&self, entries: &[DiscoveryEntry]) -> Vec<SocketAddr> {
        let is_meant = |entry: &&DiscoveryEntry| {
            entry.subnqn() == self.subsystem
                && entry.subtype == SubsystemType::Nvm as u8
                && entry.trtype == TransportType::Tcp as u8
        };
        let portal = |entry: &DiscoveryEntry| {
            let (ip, port) = (entry.traddr().parse().ok()?, entry.trsvcid().parse().ok()?);
            Some(SocketAddr::new(ip, port))
        };
        entries.iter().filter(is_meant).filter_map(portal).collect()
    }
}
