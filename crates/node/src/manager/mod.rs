//! The [`Control`](crate::Control) of a real node: pools on the cores of a running target.

mod advice;
mod cache_class;
mod cache_end;
mod caches;
mod drives;
mod local;
mod memory;
mod pools;
mod replication;
mod reservations;
mod rules;
mod serve;
mod start;
mod status;
mod stop;
#[cfg(test)]
mod tests;
mod volumes;
mod wanted;
mod watch;
mod work;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ashlar_cluster::Cluster;
use ashlar_nvme_target::server::{self, Server};
use ashlar_reactor::Opener;
use ashlar_store::Manage;
use uuid::Uuid;

use crate::control::Control;
use crate::model::{
    AddDrive, CacheRule, ClusterEvent, ClusterMetrics, ClusterToken, ClusterView, ControlError,
    CreateCache, CreatePool, CreateVolume, DeleteVolume, DrainNode, DrainReply, DriveClass,
    ExportPool, FlushReply, ForgetNode, HostChange, ImportPool, MoveVolume, NewToken, NewerData,
    PoolStatus, ProofStatus, PutRule, RemoveDrive, RemoveRule, ReopenCache, ReplaceDrive,
    ReplaceNode, ReplaceReply, ReplicateVolume, ResizeVolume, RunAlone, SetFollow, SetReserve,
    SetWhenDegraded, VolumeName, VolumeStats, VolumeStatus, WhenDegraded,
};
use crate::pool::{OpenDrive, PoolLink, VolumeOpener};
use crate::service::{OneNode, Ownership, Services};
use crate::{Config, DriveEntry, Events, StateFile};
pub use caches::OpenDevice;
pub use local::{Dismissal, LocalRefusal, LocalUser, LocalWish, MakeLocal};

/// A pool that is in service, or should be.
pub(crate) enum Kept {
    /// On a core.
    Live(LivePool),
    /// It could not be imported at start: its name among those remembered, and why.
    Failed {
        id: Uuid,
        drives: Vec<String>,
        why: String,
        ending: Ending,
    },
}

impl Kept {
    fn id(&self) -> Uuid {
        match self {
            Self::Live(pool) => pool.id,
            Self::Failed { id, .. } => *id,
        }
    }
}

/// What brings a pool into service that is not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing has to be done.
    ByItself,
    /// An operator's order.
    ByOrder,
}

/// A pool on its core.
pub(crate) struct LivePool {
    pub(crate) id: Uuid,
    pub(crate) link: PoolLink,
    /// By member index, also those that are out of service.
    pub(crate) drives: Vec<KnownDrive>,
    /// Drives with its label of which it is not known whether they are members.
    pub(crate) joining: Vec<KnownDrive>,
    /// Volumes that are served, by number.
    pub(crate) volumes: BTreeMap<u32, Served>,
    /// Of its volumes those that cache a device, by number; in service or not.
    pub(crate) caches: BTreeMap<u32, caches::Cached>,
    pub(crate) since: Instant,
    /// Changes that it had made durable when it came into service, until that was compared with what the quorum knows.
    unjudged: Cell<Option<u64>>,
}

impl LivePool {
    /// Why its engine has stopped, if it has.
    pub(crate) fn failure(&self) -> Option<String> {
        self.link.view().ok()?.status.failure
    }
}

/// A drive by its name. The drive itself is the pool's alone, which closes it when it is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownDrive {
    pub(crate) id: Uuid,
    /// As it was named when it was here last; empty if it never was.
    pub(crate) spec: String,
    pub(crate) class: Option<DriveClass>,
    /// It was here at the import, or has come since.
    pub(crate) is_here: bool,
    /// An operator has had it removed or replaced.
    pub(crate) removed: bool,
}

impl KnownDrive {
    /// One that is here.
    pub(crate) fn open(id: Uuid, drive: &OpenDrive) -> Self {
        Self {
            id,
            spec: drive.spec.clone(),
            class: Some(class_of(drive.class)),
            is_here: true,
            removed: false,
        }
    }

    /// One that is missing: what is remembered of it.
    pub(crate) fn missing(id: Uuid, known: Option<&DriveEntry>) -> Self {
        Self {
            id,
            spec: known.map(|known| known.spec.clone()).unwrap_or_default(),
            class: known.and_then(|known| known.class),
            is_here: false,
            removed: known.is_some_and(|known| known.removed),
        }
    }

    /// What is to be remembered of it.
    pub(crate) fn entry(&self, pool: Uuid) -> DriveEntry {
        DriveEntry {
            pool,
            drive: self.id,
            spec: self.spec.clone(),
            class: self.class,
            removed: self.removed,
        }
    }

    /// How people know it.
    pub(crate) fn name(&self) -> String {
        match self.spec.is_empty() {
            true => self.id.to_string(),
            false => self.spec.clone(),
        }
    }
}

/// The class as the engine has it.
fn stored_class(class: DriveClass) -> ashlar_store::format::DriveClass {
    use ashlar_store::format::DriveClass as Class;
    match class {
        DriveClass::Nvme => Class::Nvme,
        DriveClass::Ssd => Class::Ssd,
        DriveClass::Hdd => Class::Hdd,
    }
}

fn class_of(class: ashlar_store::format::DriveClass) -> DriveClass {
    use ashlar_store::format::DriveClass as Class;
    match class {
        Class::Nvme => DriveClass::Nvme,
        Class::Ssd => DriveClass::Ssd,
        Class::Hdd => DriveClass::Hdd,
    }
}

/// A volume that hosts can connect to.
pub(crate) struct Served {
    pub(crate) nqn: String,
    pub(crate) opener: Arc<dyn Opener>,
    /// The same, of a volume that can get another size.
    pub(crate) volume: Option<Arc<VolumeOpener>>,
}

/// Keeps pools and serves their volumes.
pub struct PoolManager {
    state: Arc<StateFile>,
    target: server::Control,
    open_device: OpenDevice,
    address: SocketAddr,
    advertise: Option<SocketAddr>,
    /// How volumes know this machine when it attaches them.
    host: Option<String>,
    /// How long after a loss repair begins by itself.
    repair_after: Duration,
    /// How long a drive may take for a request.
    drive_timeout: Duration,
    /// How long a pool waits at start for drives that it lacks.
    drive_wait: Duration,
    /// The daemon ends: nothing more is brought up.
    stopping: AtomicBool,
    /// What changes pools or volumes holds this: such calls come one after another.
    pools: Mutex<BTreeMap<String, Kept>>,
    /// By pool, see [`look_of`](Self::look_of).
    looks: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    /// Taken after `pools`.
    local: Mutex<local::LocalUses>,
    watch: watch::Watch,
    /// Its part in its cluster, if it is in one.
    replication: Option<replication::Replication>,
    rules: rules::Rules,
    memory: memory::MemoryKeeper,
    events: Arc<Events>,
}

impl PoolManager {
    /// A manager over a running target, with the pools that are remembered or configured. A pool that
    /// cannot be imported is kept as failed, loudly: the others must not wait for it.
    /// `open_device` opens what volumes cache.
    ///
    /// # Errors
    /// Environment: a thread cannot be started.
    pub fn new(
        server: &Server,
        state: Arc<StateFile>,
        config: &Config,
        open_device: OpenDevice,
        cluster: Option<Cluster>,
    ) -> Result<Arc<Self>, ControlError> {
        let memory = memory::MemoryKeeper::start(state.clone())?;
        let joined = cluster.clone();
        let mut failed = None;
        let events = Arc::<Events>::default();
        let manager = Arc::new_cyclic(|manager| Self {
            state: state.clone(),
            target: server.control(),
            open_device,
            address: server.address(),
            advertise: config.advertise,
            host: config.host.clone(),
            repair_after: config.repair_after(),
            drive_timeout: config.drive_timeout(),
            drive_wait: config.drive_wait(),
            stopping: AtomicBool::new(false),
            pools: Mutex::default(),
            looks: Mutex::default(),
            local: Mutex::default(),
            watch: watch::Watch::default(),
            replication: cluster.and_then(|cluster| {
                let (state, events) = (state.clone(), events.clone());
                let joined = Self::join_cluster(manager, cluster, state, config.reads(), events);
                joined.map_err(|error| failed = Some(error)).ok()
            }),
            rules: rules::Rules::default(),
            memory,
            events,
        });
        if let Some(error) = failed {
            return Err(error);
        }
        manager.import_remembered(config);
        if let Some(cluster) = joined {
            cluster.serve(Arc::new(replication::Peers(Arc::downgrade(&manager))));
        }
        Ok(manager)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        // Each change of the map is a single insertion or removal; a panic leaves none half done.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool of this name, in service.
pub(crate) fn live<'a>(
    pools: &'a BTreeMap<String, Kept>,
    name: &str,
) -> Result<&'a LivePool, ControlError> {
    match pools.get(name) {
        Some(Kept::Live(pool)) => Ok(pool),
        Some(Kept::Failed { why, .. }) => Err(ControlError::environment(format!(
            "pool {name} is not in service: {why}"
        ))),
        None => Err(ControlError::not_found(format!("there is no pool {name}"))),
    }
}

impl Control for PoolManager {
    fn address(&self) -> SocketAddr {
        self.advertise.unwrap_or(self.address)
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let mut pools = self.lock();
        let pools = pools.iter_mut().map(|(name, kept)| {
            self.take_in(name, kept);
            self.pool_status(name, kept)
        });
        pools.collect()
    }

    fn pool(&self, name: &str) -> Result<PoolStatus, ControlError> {
        let mut pools = self.lock();
        let none = || ControlError::not_found(format!("there is no pool {name}"));
        let kept = pools.get_mut(name).ok_or_else(none)?;
        self.take_in(name, kept);
        Ok(self.pool_status(name, kept))
    }

    fn create_pool(&self, request: CreatePool) -> Result<PoolStatus, ControlError> {
        self.make_pool(&request)
    }

    fn import_pool(&self, name: &str, request: ImportPool) -> Result<PoolStatus, ControlError> {
        self.take_up_pool(name, &request)
    }

    fn export_pool(&self, name: &str, request: ExportPool) -> Result<(), ControlError> {
        self.let_go_pool(name, request.force)
    }

    fn add_drive(&self, pool: &str, request: AddDrive) -> Result<PoolStatus, ControlError> {
        self.grow_pool(pool, &request.drive, request.destroy_data)
    }

    fn replace_drive(&self, pool: &str, request: ReplaceDrive) -> Result<PoolStatus, ControlError> {
        self.swap_drive(pool, &request)
    }

    fn remove_drive(&self, pool: &str, request: RemoveDrive) -> Result<PoolStatus, ControlError> {
        self.empty_drive(pool, &request.drive)
    }

    fn scrub(&self, pool: &str) -> Result<PoolStatus, ControlError> {
        self.begin_scrub(pool)
    }

    fn repair(&self, pool: &str) -> Result<PoolStatus, ControlError> {
        self.order(pool, Manage::Repair)
    }

    fn set_reserve(&self, pool: &str, request: SetReserve) -> Result<PoolStatus, ControlError> {
        self.keep_for_repair(pool, request.reserve)
    }

    fn volumes(&self) -> Vec<VolumeStatus> {
        self.all_volumes()
    }

    fn volumes_with_owners(&self) -> Vec<VolumeStatus> {
        let mut all = self.all_volumes();
        self.complete_by_owners(&mut all);
        all
    }

    fn volume(&self, volume: &VolumeName) -> Result<VolumeStatus, ControlError> {
        self.one_volume(volume)
    }

    fn create_volume(&self, request: CreateVolume) -> Result<VolumeStatus, ControlError> {
        self.make_volume(&request)
    }

    fn resize_volume(
        &self,
        volume: &VolumeName,
        request: ResizeVolume,
    ) -> Result<VolumeStatus, ControlError> {
        self.change_size(volume, &request)
    }

    fn delete_volume(
        &self,
        volume: &VolumeName,
        request: DeleteVolume,
    ) -> Result<(), ControlError> {
        self.drop_volume(volume, &request)
    }

    fn cluster(&self) -> Result<ClusterView, ControlError> {
        self.cluster_view()
    }

    fn cluster_token(&self, request: NewToken) -> Result<ClusterToken, ControlError> {
        self.new_token(&request)
    }

    fn forget_node(&self, request: ForgetNode) -> Result<(), ControlError> {
        self.forget_member(&request)
    }

    fn replace_node(&self, request: ReplaceNode) -> Result<ReplaceReply, ControlError> {
        self.replace_by(&request)
    }

    fn leave_cluster(&self) -> Result<(), ControlError> {
        self.leave_for_good()
    }

    fn drain(&self, request: DrainNode) -> Result<DrainReply, ControlError> {
        self.drain_node(&request)
    }

    fn events(&self, after: u64) -> Vec<ClusterEvent> {
        self.events.after(after)
    }

    fn replicate_volume(
        &self,
        volume: &VolumeName,
        request: ReplicateVolume,
    ) -> Result<VolumeStatus, ControlError> {
        self.replicate(volume, &request)
    }

    fn run_alone(
        &self,
        volume: &VolumeName,
        request: RunAlone,
    ) -> Result<VolumeStatus, ControlError> {
        self.run_alone(volume, &request)
    }

    fn move_volume(
        &self,
        volume: &VolumeName,
        request: MoveVolume,
    ) -> Result<VolumeStatus, ControlError> {
        self.move_replicated(volume, &request)
    }

    fn verify_volume(&self, volume: &VolumeName) -> Result<ProofStatus, ControlError> {
        self.verify_replicated(volume)
    }

    fn create_cache(&self, request: CreateCache) -> Result<VolumeStatus, ControlError> {
        self.make_cache(&request)
    }

    fn flush_volume(&self, volume: &VolumeName) -> Result<FlushReply, ControlError> {
        self.write_back(volume)
    }

    fn reopen_volume(
        &self,
        volume: &VolumeName,
        request: ReopenCache,
    ) -> Result<VolumeStatus, ControlError> {
        self.reopen_cache(volume, &request)
    }

    fn newer_data(&self, volume: &VolumeName) -> Result<NewerData, ControlError> {
        self.newer_in_cache(volume)
    }

    fn cache_rules(&self, volume: &VolumeName) -> Result<Vec<CacheRule>, ControlError> {
        self.rules_of(volume)
    }

    fn put_cache_rule(
        &self,
        volume: &VolumeName,
        request: PutRule,
    ) -> Result<CacheRule, ControlError> {
        self.put_rule(volume, &request)
    }

    fn remove_cache_rule(
        &self,
        volume: &VolumeName,
        request: RemoveRule,
    ) -> Result<(), ControlError> {
        self.drop_rule(volume, &request)
    }

    fn change_hosts(
        &self,
        volume: &VolumeName,
        change: HostChange,
    ) -> Result<VolumeStatus, ControlError> {
        self.change_who_may(volume, &change)
    }

    fn set_when_degraded(
        &self,
        volume: &VolumeName,
        request: SetWhenDegraded,
    ) -> Result<VolumeStatus, ControlError> {
        self.change_stops(volume, request.when_degraded == WhenDegraded::Stop)
    }

    fn set_follow(
        &self,
        volume: &VolumeName,
        request: SetFollow,
    ) -> Result<VolumeStatus, ControlError> {
        self.change_follow(volume, request)
    }

    fn volume_stats(&self, volume: &VolumeName) -> Result<VolumeStats, ControlError> {
        self.traffic_of(volume)
    }

    fn cluster_metrics(&self) -> Option<ClusterMetrics> {
        self.metrics_of_cluster()
    }

    fn ownership(self: Arc<Self>) -> Arc<dyn Ownership> {
        match self.replication {
            Some(_) => Arc::new(replication::ClusterNodes::of(self)),
            None => {
                let events = self.events.clone();
                Arc::new(OneNode::new(self, events))
            }
        }
    }

    fn keep_services(&self, services: &Arc<Services>) {
        self.hear_for(services);
    }

    fn stop(&self) -> Result<(), ControlError> {
        self.stop_all()
    }
}
