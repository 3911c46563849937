use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ashlar_block::{BlockSize, Geometry};
use ashlar_nvme::Status;
use ashlar_nvme::event::AsyncEvent;
use uuid::Uuid;

use crate::config::SubsystemConfig;
use crate::controller::{Controller, Instance};

/// Largest controller id; the ones above are reserved.
const MAX_CNTLID: u16 = 0xffef;
/// Largest data transfer, in bytes: MDTS 8 of 4 KiB pages.
pub(crate) const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// A host as the target remembers it: its identity and its associations.
pub(crate) struct Host {
    pub(crate) nqn: String,
    pub(crate) id: [u8; 16],
    associations: Mutex<Vec<Weak<Controller>>>,
}

impl Host {
    pub(crate) fn new(nqn: String, id: [u8; 16]) -> Self {
        Self {
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

    /// Whether commands of ended connections may still be executing: a connection keeps its
    /// controller until the last of its device requests has completed. An association of which only
    /// I/O queues have ended counts too: the end of the others may be on its way, or never come.
    pub(crate) fn has_lingering(&self) -> bool {
        self.lock()
            .iter()
            .filter_map(Weak::upgrade)
            .any(|controller| !controller.is_alive() || controller.is_draining())
    }
}

/// A namespace as hosts see it.
pub(crate) struct Namespace {
    pub(crate) nsid: u32,
    pub(crate) geometry: Geometry,
    pub(crate) uuid: Uuid,
    /// Index of its device in every core's list.
    pub(crate) device: usize,
}

impl Namespace {
    pub(crate) fn block_size(&self) -> BlockSize {
        self.geometry.block_size
    }
}

/// A subsystem: what hosts connect to by NQN.
pub(crate) struct Subsystem {
    pub(crate) config: SubsystemConfig,
    pub(crate) namespaces: Vec<Namespace>,
    controllers: Mutex<Controllers>,
    degraded: AtomicBool,
}

#[derive(Default)]
struct Controllers {
    by_id: BTreeMap<u16, Arc<Controller>>,
    last: u16,
}

impl Subsystem {
    pub(crate) fn new(config: SubsystemConfig, first_device: usize) -> Self {
        let namespace = |(index, namespace): (usize, &crate::NamespaceConfig)| Namespace {
            nsid: index as u32 + 1,
            geometry: namespace.geometry,
            uuid: namespace.uuid,
            device: first_device + index,
        };
        let namespaces = config
            .namespaces
            .iter()
            .enumerate()
            .map(namespace)
            .collect();
        Self {
            config,
            namespaces,
            controllers: Mutex::default(),
            degraded: AtomicBool::new(false),
        }
    }

    /// The namespace `nsid`, if it exists.
    pub(crate) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces.get((nsid as usize).checked_sub(1)?)
    }

    /// Serial number: 20 characters that differ between subsystems and stay the same.
    pub(crate) fn serial(&self) -> String {
        let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, self.config.nqn.as_bytes());
        uuid.simple().to_string()[..20].to_uppercase()
    }

    /// Whether any namespace loses completed writes when the power goes.
    pub(crate) fn volatile_cache(&self) -> bool {
        self.namespaces
            .iter()
            .any(|namespace| namespace.geometry.volatile_cache)
    }

    /// Largest transfer that every namespace takes, in bytes: a power of two of 4 KiB pages.
    pub(crate) fn max_transfer_bytes(&self) -> u32 {
        let bytes = |n: &Namespace| u64::from(n.geometry.max_blocks) << n.block_size().shift();
        let least = self.namespaces.iter().map(bytes).min().unwrap_or(u64::MAX);
        let pages = (least.min(u64::from(MAX_TRANSFER_BYTES)) / 4096).max(1) as u32;
        4096 << pages.ilog2()
    }

    /// Whether a device has failed a write.
    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Relaxed)
    }

    /// A device has failed a write: tells the hosts, the first time. True if there is news.
    pub(crate) fn degrade(&self) -> bool {
        let first = !self.degraded.swap(true, Ordering::Relaxed);
        if first {
            let controllers = self.lock();
            let event = AsyncEvent::SubsystemReliability;
            controllers
                .by_id
                .values()
                .for_each(|controller| controller.raise(event));
        }
        first
    }

    fn lock(&self) -> MutexGuard<'_, Controllers> {
        self.controllers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a controller made by `make` under a free id, not one used lately.
    pub(crate) fn add_controller(
        &self,
        make: impl FnOnce(u16) -> Controller,
    ) -> Result<Arc<Controller>, Status> {
        let mut controllers = self.lock();
        let after = controllers.last;
        let free = (after + 1..=MAX_CNTLID)
            .chain(1..=after)
            .find(|id| !controllers.by_id.contains_key(id));
        let id = free.ok_or(Status::CONNECT_CONTROLLER_BUSY)?;
        controllers.last = if id == MAX_CNTLID { 0 } else { id };
        let controller = Arc::new(make(id));
        controllers.by_id.insert(id, controller.clone());
        Ok(controller)
    }

    pub(crate) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.lock().by_id.get(&id).cloned()
    }

    pub(crate) fn remove_controller(&self, id: u16) {
        self.lock().by_id.remove(&id);
    }
}
