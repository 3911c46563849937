use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ashlar_block::{Geometry, HostId as HostName};
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::log::AnaState;
use ashlar_nvme::reservation::Notification;
use ashlar_nvme::{Status, opcode};
use uuid::Uuid;

use crate::config::{HostAccess, SubsystemConfig};
use crate::controller::{Controller, Instance, Role};
use crate::namespace::Namespace;
use crate::path::{Path, Paths};
use crate::reservation::HostId;
use crate::slot::Slot;

/// Largest controller id; the ones above are reserved.
pub(crate) const MAX_CNTLID: u16 = 0xffef;
/// Largest data transfer, in bytes: MDTS 8 of 4 KiB pages.
pub(crate) const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// A host as the target remembers it: its identity and its associations.
pub(crate) struct Host {
    pub(crate) nqn: String,
    pub(crate) id: [u8; 16],
    /// What devices know it by.
    pub(crate) name: HostName,
    associations: Mutex<Vec<Weak<Controller>>>,
}

impl Host {
    pub(crate) fn new(nqn: String, id: [u8; 16]) -> Self {
        Self {
            name: name_of(&nqn, id),
            nqn,
            id,
            associations: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Controller>>> {
        self.associations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an association for as long as any of its connections exists.
    pub(crate) fn remember(&self, controller: &Arc<Controller>) {
        let mut associations = self.lock();
        associations.retain(|association| association.strong_count() > 0);
        associations.push(Arc::downgrade(controller));
    }

    /// The association of this host with controller `id` of this instance, if it exists or if commands
    /// of it may still be executing.
    pub(crate) fn association(&self, id: u16, instance: Instance) -> Option<Arc<Controller>> {
        let mut associations = self
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect::<Vec<_>>();
        let at = associations
            .iter()
            .position(|one| one.id == id && one.instance == instance);
        at.map(|at| associations.swap_remove(at))
    }

    /// Whether commands of ended connections to subsystem `nqn` may still be executing: a
    /// connection keeps its controller until the last of its device requests has completed. An
    /// association of which only I/O queues have ended counts too: the end of the others may be on
    /// its way, or never come. So does one with an earlier subsystem of that name: the devices may
    /// be the same.
    pub(crate) fn has_lingering(&self, nqn: &str) -> bool {
        let of_it = |controller: &Arc<Controller>| match &controller.role {
            Role::Io(subsystem) => subsystem.nqn == nqn,
            Role::Discovery => false,
        };
        self.lock()
            .iter()
            .filter_map(Weak::upgrade)
            .filter(of_it)
            .any(|controller| !controller.is_alive() || controller.is_draining())
    }
}

/// The same number on every node and in every release: nodes compare them (FNV-1a).
fn name_of(nqn: &str, id: [u8; 16]) -> HostName {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = id.iter().chain(nqn.as_bytes());
    HostName(bytes.fold(0xcbf2_9ce4_8422_2325, add))
}

/// What was done for hosts, as the SMART log counts it (NVM Command Set 1.0, 4.1.4.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostWork {
    /// Read and Compare commands.
    pub(crate) reads: u64,
    /// Write commands.
    pub(crate) writes: u64,
    /// Bytes of Read, Compare and Verify commands.
    pub(crate) read_bytes: u64,
    /// Bytes of Write commands.
    pub(crate) written_bytes: u64,
}

impl HostWork {
    /// Counts a command that devices have completed.
    pub(crate) fn count(&mut self, slot: &Slot) {
        if !slot.status.is_success() {
            return;
        }
        let bytes = slot.worked_bytes as u64;
        match slot.command.opcode {
            opcode::io::READ | opcode::io::COMPARE => {
                self.reads += 1;
                self.read_bytes += bytes;
            }
            opcode::io::VERIFY => self.read_bytes += bytes,
            opcode::io::WRITE => {
                self.writes += 1;
                self.written_bytes += bytes;
            }
            _ => {}
        }
    }

    fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// A subsystem: what hosts connect to by NQN.
pub(crate) struct Subsystem {
    pub(crate) nqn: String,
    pub(crate) advertise: Option<SocketAddr>,
    pub(crate) namespaces: Vec<Namespace>,
    /// How they are reached here, if other targets serve them too.
    pub(crate) paths: Option<Paths>,
    /// The only core that its I/O queues may go to.
    pub(crate) core: Option<usize>,
    /// CQT.
    pub(crate) quiesce: Duration,
    /// Where those do.
    portals: Mutex<Vec<SocketAddr>>,
    guests: Mutex<Guests>,
    max_transfer_bytes: AtomicU32,
    work: Mutex<HostWork>,
    degraded: AtomicBool,
}

/// Who is here and who may come.
struct Guests {
    access: HostAccess,
    /// No host may come any more.
    shut: bool,
    by_id: BTreeMap<u16, Arc<Controller>>,
    ids: RangeInclusive<u16>,
    next: u16,
}

impl Subsystem {
    /// A subsystem whose namespaces' devices have these `numbers` on every core.
    pub(crate) fn new(config: SubsystemConfig, numbers: &[usize]) -> Self {
        let shared = config.shared.as_ref();
        let state = shared.map_or(AnaState::Optimized, |shared| shared.state);
        let ids = shared.map_or(1..=MAX_CNTLID, |shared| shared.controller_ids.clone());
        let numbered = config.namespaces.iter().zip(numbers).zip(1..);
        let namespaces: Vec<Namespace> = numbered
            .map(|((namespace, &number), nsid)| {
                Namespace::new(nsid, namespace, number, Path::new(state))
            })
            .collect();
        let guests = Guests {
            access: config.access,
            shut: false,
            by_id: BTreeMap::new(),
            next: *ids.start(),
            ids,
        };
        Self {
            nqn: config.nqn,
            advertise: config.advertise,
            max_transfer_bytes: AtomicU32::new(max_transfer_bytes(&namespaces)),
            namespaces,
            guests: Mutex::new(guests),
            paths: shared.map(|_| Paths::new()),
            core: shared.and_then(|shared| shared.core),
            quiesce: shared.map_or(Duration::ZERO, |shared| shared.quiesce),
            portals: Mutex::new(config.shared.map_or_else(Vec::new, |shared| shared.portals)),
            work: Mutex::default(),
            degraded: AtomicBool::new(false),
        }
    }

    /// The namespace `nsid`, if it exists.
    pub(crate) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces.get((nsid as usize).checked_sub(1)?)
    }

    /// Serial number: 20 characters that differ between subsystems and stay the same.
    pub(crate) fn serial(&self) -> String {
        let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, self.nqn.as_bytes());
        uuid.simple().to_string()[..20].to_uppercase()
    }

    /// Whether any namespace loses completed writes when the power goes.
    pub(crate) fn volatile_cache(&self) -> bool {
        let volatile = |namespace: &Namespace| namespace.geometry().volatile_cache;
        self.namespaces.iter().any(volatile)
    }

    /// Largest transfer that every namespace takes, in bytes: a power of two of 4 KiB pages.
    pub(crate) fn max_transfer_bytes(&self) -> u32 {
        self.max_transfer_bytes.load(Ordering::Relaxed)
    }

    /// The namespaces have new geometries; hosts are told of those that `changed`.
    pub(crate) fn reshape(&self, geometries: &[Geometry], changed: &[u32]) {
        for (namespace, &geometry) in self.namespaces.iter().zip(geometries) {
            namespace.reshape(geometry);
        }
        self.max_transfer_bytes
            .store(max_transfer_bytes(&self.namespaces), Ordering::Relaxed);
        for controller in self.lock().by_id.values() {
            controller.note_changed(changed);
        }
    }

    fn lock_work(&self) -> MutexGuard<'_, HostWork> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done for its hosts since the start; queues report it now and then.
    pub(crate) fn work(&self) -> HostWork {
        *self.lock_work()
    }

    pub(crate) fn add_work(&self, work: HostWork) {
        self.lock_work().add(work);
    }

    /// Whether a device has failed a write.
    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Relaxed)
    }

    /// A device has failed a write: tells the hosts, the first time. True if there is news.
    pub(crate) fn degrade(&self) -> bool {
        let first = !self.degraded.swap(true, Ordering::Relaxed);
        if first {
            for controller in self.lock().by_id.values() {
                controller.raise(AsyncEvent::SubsystemReliability);
            }
        }
        first
    }

    fn lock(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the host with this NQN may connect.
    pub(crate) fn allows(&self, host_nqn: &str) -> bool {
        self.lock().access.allows(host_nqn)
    }

    /// Whether the host with this NQN is one that may connect by name.
    pub(crate) fn names(&self, host_nqn: &str) -> bool {
        self.lock().access.names(host_nqn)
    }

    /// Adds a controller for `host_nqn` made by `make` under a free id, not one used lately. Access
    /// is decided under the lock that [`allow`](Self::allow) takes: no host slips in.
    pub(crate) fn add_controller(
        &self,
        host_nqn: &str,
        make: impl FnOnce(u16) -> Controller,
    ) -> Result<Arc<Controller>, Status> {
        let mut guests = self.lock();
        if guests.shut {
            return Err(Status::CONNECT_CONTROLLER_BUSY);
        }
        if !guests.access.allows(host_nqn) {
            return Err(Status::CONNECT_INVALID_HOST.with_dnr());
        }
        let (first, last, next) = (*guests.ids.start(), *guests.ids.end(), guests.next);
        let free = (next..=last)
            .chain(first..next)
            .find(|id| !guests.by_id.contains_key(id));
        let id = free.ok_or(Status::CONNECT_CONTROLLER_BUSY)?;
        guests.next = if id == last { first } else { id + 1 };
        let controller = Arc::new(make(id));
        guests.by_id.insert(id, controller.clone());
        Ok(controller)
    }

    /// Whether controllers of this id are made here, rather than by another target of the subsystem.
    pub(crate) fn makes(&self, id: u16) -> bool {
        self.lock().ids.contains(&id)
    }

    pub(crate) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.lock().by_id.get(&id).cloned()
    }

    pub(crate) fn remove_controller(&self, id: u16) {
        self.lock().by_id.remove(&id);
    }

    /// Changes who may connect, and ends the controllers of hosts that may not.
    pub(crate) fn allow(&self, access: HostAccess) {
        let mut guests = self.lock();
        guests.access = access;
        guests.send_away();
    }

    /// Lets no host connect any more, and ends all controllers.
    pub(crate) fn shut(&self) {
        let mut guests = self.lock();
        guests.shut = true;
        guests.send_away();
    }

    /// Whether hosts can reserve any of its namespaces.
    pub(crate) fn has_reservations(&self) -> bool {
        self.namespaces.iter().any(|one| one.guard.is_some())
    }

    /// Another host has done something to a host's registration with a namespace, or its reservation.
    pub(crate) fn notify(&self, host: &HostId, nsid: u32, what: Notification) {
        let guests = self.lock();
        let its = guests.by_id.values().filter(|one| one.host.id == *host);
        its.for_each(|one| one.notify(nsid, what));
    }

    /// Ends the associations of these hosts, what devices have of them unanswered: what there is to wait for.
    pub(crate) fn end_hosts(&self, hosts: &[HostId]) -> Vec<Weak<Controller>> {
        let mut ended = Vec::new();
        self.lock().by_id.retain(|_, controller| {
            let stays = !hosts.contains(&controller.host.id);
            if !stays {
                controller.end();
                ended.push(Arc::downgrade(controller));
            }
            stays
        });
        ended
    }

    /// Ends all controllers; their hosts may come again.
    pub(crate) fn send_all_away(&self) {
        let mut guests = self.lock();
        guests.by_id.values().for_each(|one| one.dismiss());
        guests.by_id.clear();
    }

    /// The path of namespace `nsid`, or of all, is `state` from now on; hosts are told. True if that is
    /// news.
    pub(crate) fn set_path(&self, nsid: Option<u32>, state: AnaState) -> bool {
        let concerned = |namespace: &&Namespace| nsid.is_none_or(|nsid| namespace.nsid == nsid);
        let concerned = self.namespaces.iter().filter(concerned);
        let is_news = self
            .paths
            .as_ref()
            .is_some_and(|all| all.set(concerned, state));
        if is_news {
            // Behind the change: a host that is told, and asks, is told of it.
            for controller in self.lock().by_id.values() {
                controller.raise(AsyncEvent::AnaChange);
            }
        }
        is_news
    }

    /// Where other targets serve it.
    pub(crate) fn portals(&self) -> Vec<SocketAddr> {
        let portals = self.portals.lock();
        portals.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Other targets serve it there. True if that is news.
    pub(crate) fn set_portals(&self, new: Vec<SocketAddr>) -> bool {
        let mut portals = self.portals.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *portals != new;
        *portals = new;
        is_news
    }

    /// The hosts' NQNs, one for each controller.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let guests = self.lock();
        guests.by_id.values().map(|c| c.host.nqn.clone()).collect()
    }
}

impl Guests {
    /// Ends the controllers of hosts that may not be here.
    fn send_away(&mut self) {
        let (access, shut) = (&self.access, self.shut);
        self.by_id.retain(|_, controller| {
            let stays = !shut && access.allows(&controller.host.nqn);
            if !stays {
                controller.dismiss();
            }
            stays
        });
    }
}

fn max_transfer_bytes(namespaces: &[Namespace]) -> u32 {
    let bytes = |n: &Namespace| u64::from(n.geometry().max_blocks) << n.block_size().shift();
    let least = namespaces.iter().map(bytes).min().unwrap_or(u64::MAX);
    let pages = (least.min(u64::from(MAX_TRANSFER_BYTES)) / 4096).max(1) as u32;
    4096 << pages.ilog2()
}
