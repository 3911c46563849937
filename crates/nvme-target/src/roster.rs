//! Which subsystems there are, and how they come, change and go while hosts are connected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard, Weak};

use ashlar_block::Geometry;
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::fabrics::{DISCOVERY_NQN, Nqn};
use ashlar_nvme::log::AnaState;

use crate::config::{HostAccess, Shared, SubsystemConfig};
use crate::controller::Controller;
use crate::reservation::{News, Reservations, Table, command};
use crate::subsystem::{MAX_CNTLID, Subsystem};
use crate::target::{ConfigError, Target};

/// The subsystems that hosts can connect to.
pub(crate) struct Roster {
    pub(crate) subsystems: Vec<Arc<Subsystem>>,
    /// Counts the changes of what discovery tells: the log's GENCTR.
    pub(crate) generation: u64,
    /// Numbers of devices that some core has, or is about to have.
    numbers: BTreeSet<usize>,
    /// Discovery controllers, to be told of changes.
    listeners: Vec<Weak<Controller>>,
    /// Subsystems that are not here and are to come, by what they are expected for.
    expected: BTreeMap<String, Vec<String>>,
}

impl Default for Roster {
    fn default() -> Self {
        Self {
            subsystems: Vec::new(),
            generation: 1,
            numbers: BTreeSet::new(),
            listeners: Vec::new(),
            expected: BTreeMap::new(),
        }
    }
}

impl Roster {
    pub(crate) fn find(&self, nqn: &str) -> Option<&Arc<Subsystem>> {
        self.subsystems.iter().find(|s| s.nqn == nqn)
    }

    /// Whether a subsystem that is not here is to come.
    pub(crate) fn expects(&self, nqn: &str) -> bool {
        self.expected.values().flatten().any(|one| one == nqn)
    }

    /// A free device number, the lowest: cores keep a list by number.
    fn take_number(&mut self) -> usize {
        let expected = self.numbers.iter().enumerate();
        let gap = expected.take_while(|(at, number)| at == *number).count();
        self.numbers.insert(gap);
        gap
    }

    pub(crate) fn listen(&mut self, controller: &Arc<Controller>) {
        self.listeners.retain(|other| other.strong_count() > 0);
        self.listeners.push(Arc::downgrade(controller));
    }

    /// What discovery tells has changed.
    fn changed(&mut self) {
        self.generation += 1;
        for listener in self.listeners.iter().filter_map(Weak::upgrade) {
            listener.raise(AsyncEvent::DiscoveryLogChange);
        }
    }
}

/// A subsystem that hosts cannot connect to yet, or no more, and the devices that cores have for
/// it.
#[derive(Clone)]
pub struct Listing(pub(crate) Arc<Subsystem>);

impl Listing {
    /// The numbers of its namespaces' devices on every core, nsid 1 first.
    pub fn devices(&self) -> Vec<usize> {
        self.0.namespaces.iter().map(|n| n.device).collect()
    }
}

fn invalid(nqn: &str, why: impl std::fmt::Display) -> ConfigError {
    ConfigError::new(format!("subsystem {nqn:?}: {why}"))
}

/// Ids that a host takes for a controller's.
fn check_ids(nqn: &str, shared: &Shared) -> Result<(), ConfigError> {
    let ids = &shared.controller_ids;
    if ids.is_empty() || *ids.start() == 0 || *ids.end() > MAX_CNTLID {
        let (first, last) = (ids.start(), ids.end());
        let why = format!("controller ids {first} to {last}: they must lie within 1 and 65519");
        return Err(invalid(nqn, why));
    }
    Ok(())
}

impl Target {
    pub(crate) fn roster(&self) -> RwLockReadGuard<'_, Roster> {
        self.roster.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn roster_mut(&self) -> RwLockWriteGuard<'_, Roster> {
        self.roster.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The subsystem `nqn`, if hosts can connect to it.
    pub(crate) fn known(&self, nqn: &str) -> Result<Arc<Subsystem>, ConfigError> {
        let found = self.roster().find(nqn).cloned();
        found.ok_or_else(|| invalid(nqn, "there is none of this name"))
    }

    /// First step of adding a subsystem: checks it and numbers its devices. Give every core its
    /// devices with [`Core::attach`](crate::Core::attach), then [`admit`](Self::admit) it, or
    /// [`forget`](Self::forget) it.
    ///
    /// # Errors
    /// The configuration makes no sense, or the NQN is taken.
    pub fn prepare(&self, config: SubsystemConfig) -> Result<Listing, ConfigError> {
        let nqn = config.nqn.clone();
        Nqn::lenient(&nqn).map_err(|error| invalid(&nqn, error))?;
        if nqn == DISCOVERY_NQN {
            return Err(invalid(&nqn, "this NQN is reserved for discovery"));
        }
        if config.namespaces.is_empty() {
            return Err(invalid(&nqn, "it has no namespace"));
        }
        for reservations in config.namespaces.iter().flat_map(|one| &one.reservations) {
            let Reservations::Kept(kept) = reservations else {
                continue;
            };
            let table = kept
                .kept
                .as_deref()
                .map_or(Ok(Table::default()), Table::decode);
            table.map_err(|error| invalid(&nqn, error))?;
        }
        if let Some(shared) = &config.shared {
            check_ids(&nqn, shared)?;
        }
        let mut roster = self.roster_mut();
        if roster.find(&nqn).is_some() {
            return Err(invalid(&nqn, "the NQN is used twice"));
        }
        let number = |_| roster.take_number();
        let numbers: Vec<usize> = config.namespaces.iter().map(number).collect();
        Ok(Listing(Arc::new(Subsystem::new(config, &numbers))))
    }

    /// Lets hosts connect to it. Tell every core of [`Notice::Events`](crate::Notice::Events)
    /// afterwards.
    ///
    /// # Errors
    /// The NQN was taken meanwhile.
    pub fn admit(&self, listing: &Listing) -> Result<(), ConfigError> {
        let mut roster = self.roster_mut();
        if roster.find(&listing.0.nqn).is_some() {
            return Err(invalid(&listing.0.nqn, "the NQN is used twice"));
        }
        roster.subsystems.push(listing.0.clone());
        roster.changed();
        Ok(())
    }

    /// First step of removing a subsystem: no host can connect to it any more, and its controllers
    /// end. Tell every core of [`Notice::Reap`](crate::Notice::Reap) and
    /// [`Notice::Events`](crate::Notice::Events), take the devices away with
    /// [`Core::detach`](crate::Core::detach), and when every core
    /// [is clear of it](crate::Core::is_clear_of), [`forget`](Self::forget) it.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn expel(&self, nqn: &str) -> Result<Listing, ConfigError> {
        let subsystem = self.known(nqn)?;
        let mut roster = self.roster_mut();
        roster.subsystems.retain(|s| !Arc::ptr_eq(s, &subsystem));
        roster.changed();
        drop(roster);
        subsystem.shut();
        Ok(Listing(subsystem))
    }

    /// Last step of removing a subsystem: no core has its devices; their numbers are used again.
    pub fn forget(&self, listing: Listing) {
        let mut roster = self.roster_mut();
        for number in listing.devices() {
            roster.numbers.remove(&number);
        }
    }

    /// These subsystems are not here, and are to come: a host that wants one is told to try again, where
    /// it would take a subsystem that nothing is known of for one that has gone for good. `reason` names
    /// what they come with; what was expected for it before is not any more.
    pub fn expect(&self, reason: &str, nqns: Vec<String>) {
        self.roster_mut().expected.insert(reason.to_owned(), nqns);
    }

    /// What was expected for `reason` has come, or will not come.
    pub fn expect_no_more(&self, reason: &str) {
        self.roster_mut().expected.remove(reason);
    }

    /// The numbers of the devices of subsystem `nqn`, nsid 1 first.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn devices_of(&self, nqn: &str) -> Result<Vec<usize>, ConfigError> {
        Ok(Listing(self.known(nqn)?).devices())
    }

    /// Which of `geometries`, one a namespace, differ from what hosts are told, by nsid.
    ///
    /// # Errors
    /// There is no such subsystem, their number is not that of its namespaces, or a block size
    /// has changed, which no host would survive.
    pub fn changes(&self, nqn: &str, geometries: &[Geometry]) -> Result<Vec<u32>, ConfigError> {
        let subsystem = self.known(nqn)?;
        if geometries.len() != subsystem.namespaces.len() {
            return Err(invalid(nqn, "the number of its namespaces is fixed"));
        }
        let pairs = || subsystem.namespaces.iter().zip(geometries);
        if pairs().any(|(namespace, new)| namespace.block_size() != new.block_size) {
            return Err(invalid(nqn, "the block size of a namespace is fixed"));
        }
        let changed = pairs().filter(|(namespace, new)| namespace.geometry() != **new);
        Ok(changed.map(|(namespace, _)| namespace.nsid).collect())
    }

    /// The namespaces of subsystem `nqn` have these geometries from now on. Every core must have
    /// devices of that shape already ([`Core::attach`](crate::Core::attach) replaces them); tell
    /// every core of [`Notice::Events`](crate::Notice::Events) afterwards.
    ///
    /// # Errors
    /// As for [`changes`](Self::changes); then nothing has changed.
    pub fn reshape(&self, nqn: &str, geometries: &[Geometry]) -> Result<(), ConfigError> {
        let changed = self.changes(nqn, geometries)?;
        self.known(nqn)?.reshape(geometries, &changed);
        Ok(())
    }

    /// Changes who may connect to subsystem `nqn`; controllers of other hosts end. Tell every core
    /// of [`Notice::Reap`](crate::Notice::Reap) and [`Notice::Events`](crate::Notice::Events)
    /// afterwards.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn allow(&self, nqn: &str, access: HostAccess) -> Result<(), ConfigError> {
        self.known(nqn)?.allow(access);
        self.roster_mut().changed();
        Ok(())
    }

    /// How namespace `nsid` of the shared subsystem `nqn` is reached here from now on, or all of them with
    /// `None`. Commands are answered by it at once, those too whose data is still on its way; what devices
    /// have is theirs to answer. Tell every core of [`Notice::Events`](crate::Notice::Events) afterwards,
    /// if this returns true: it is news.
    ///
    /// # Errors
    /// There is no such subsystem or namespace, or the subsystem is not shared.
    pub fn set_path(
        &self,
        nqn: &str,
        nsid: Option<u32>,
        state: AnaState,
    ) -> Result<bool, ConfigError> {
        let subsystem = self.known(nqn)?;
        if subsystem.paths.is_none() {
            return Err(invalid(nqn, "it is not shared: it has one path"));
        }
        if let Some(nsid) = nsid.filter(|&nsid| subsystem.namespace(nsid).is_none()) {
            return Err(invalid(nqn, format!("it has no namespace {nsid}")));
        }
        Ok(subsystem.set_path(nsid, state))
    }

    /// How the namespaces of subsystem `nqn` are reached here, nsid 1 first.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn paths(&self, nqn: &str) -> Result<Vec<AnaState>, ConfigError> {
        let subsystem = self.known(nqn)?;
        Ok(subsystem
            .namespaces
            .iter()
            .map(|one| one.path.state())
            .collect())
    }

    /// Hosts of subsystem `nqn` are told what has become of their reservations of its first namespace, and those whose
    /// commands are to end lose their associations. Tell every core of [`Notice::Reap`](crate::Notice::Reap) and
    /// [`Notice::Events`](crate::Notice::Events) afterwards.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn tell_reserved(&self, nqn: &str, news: &News) -> Result<(), ConfigError> {
        command::tell(&*self.known(nqn)?, 1, news);
        Ok(())
    }

    /// Where other targets serve subsystem `nqn`: discovery tells hosts of these portals, too. Tell every
    /// core of [`Notice::Events`](crate::Notice::Events) afterwards.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn set_portals(&self, nqn: &str, portals: Vec<SocketAddr>) -> Result<(), ConfigError> {
        let subsystem = self.known(nqn)?;
        if subsystem.set_portals(portals) {
            self.roster_mut().changed();
        }
        Ok(())
    }

    /// Ends the controllers of all hosts of subsystem `nqn`; they may come again. What their connections
    /// have not been read of never will be. Tell every core of [`Notice::Reap`](crate::Notice::Reap)
    /// afterwards.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn send_away(&self, nqn: &str) -> Result<(), ConfigError> {
        self.known(nqn)?.send_all_away();
        Ok(())
    }

    /// The NQNs that hosts can connect to.
    pub fn subsystems(&self) -> Vec<String> {
        let roster = self.roster();
        roster.subsystems.iter().map(|s| s.nqn.clone()).collect()
    }

    /// Hosts that are connected to subsystem `nqn` with a controller, by NQN, one for each
    /// controller.
    pub fn hosts_of(&self, nqn: &str) -> Vec<String> {
        self.known(nqn).map_or_else(|_| Vec::new(), |s| s.hosts())
    }

    /// How many hosts are registered for reservations of subsystem `nqn`'s namespaces, connected or not.
    pub fn registrants_of(&self, nqn: &str) -> usize {
        self.known(nqn).map_or(0, |subsystem| {
            let guards = subsystem.namespaces.iter();
            let guards = guards.filter_map(|one| one.guard.as_ref());
            guards.map(|guard| guard.status().registrants.len()).sum()
        })
    }

    /// Connections accepted since the start.
    pub fn connections_served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}
