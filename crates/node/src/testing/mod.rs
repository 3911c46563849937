//! A [`Control`] in memory, for tests of what speaks to one. It keeps names and numbers, no data.

mod make;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::Control;
use crate::model::{
    AddDrive, CacheRule, ClusterEvent, ClusterToken, ClusterView, ControlError, CreateCache,
    CreatePool, CreateVolume, DeleteVolume, DrainNode, DrainReply, DriveState, ExportPool,
    FlushReply, ForgetNode, HostChange, ImportPool, IoCounters, LayoutSpec, MoveVolume, NewToken,
    NewerData, PoolStatus, ProofStatus, PutRule, RemoveDrive, RemoveRule, ReopenCache,
    ReplaceDrive, ReplaceNode, ReplaceReply, ReplicateVolume, ResizeVolume, RunAlone, SetFollow,
    SetReserve, SetWhenDegraded, VolumeName, VolumeStats, VolumeStatus, WorkKind,
};
use crate::service::{OneNode, Ownership};
use make::{cached, drive, pool, recount, ruled, volume, work};

/// Pools and volumes that exist by name only.
#[derive(Debug, Default)]
pub struct FakeControl {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    pools: BTreeMap<String, PoolStatus>,
    exported: BTreeMap<String, PoolStatus>,
    volumes: BTreeMap<VolumeName, VolumeStatus>,
    rules: BTreeMap<(VolumeName, String), CacheRule>,
    full_drives: BTreeSet<String>,
    panics: bool,
    stop_takes: Duration,
    stops: usize,
}

impl FakeControl {
    /// No pools yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on this drive holds something.
    pub fn fill_drive(&self, spec: &str) {
        self.inner().full_drives.insert(spec.into());
    }

    /// A host has connected to a volume and written to it.
    pub fn use_volume(&self, name: &VolumeName, host: &str, bytes: u64) {
        if let Some(volume) = self.inner().volumes.get_mut(name) {
            volume.connected_hosts.push(host.into());
            volume.used_bytes = bytes;
        }
    }

    /// The next scrub panics.
    pub fn panic_next(&self) {
        self.inner().panics = true;
    }

    /// Stopping will take this long.
    pub fn slow_stop(&self, time: Duration) {
        self.inner().stop_takes = time;
    }

    /// How often it was stopped.
    pub fn stops(&self) -> usize {
        self.inner().stops
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a pool.
    fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut PoolStatus) -> Result<(), ControlError>,
    ) -> Result<PoolStatus, ControlError> {
        let mut inner = self.inner();
        let pool = inner.pools.get_mut(name).ok_or_else(|| no_pool(name))?;
        change(pool)?;
        recount(pool);
        Ok(pool.clone())
    }
}

fn no_pool(name: &str) -> ControlError {
    ControlError::not_found(format!("there is no pool {name}"))
}

fn no_cache(name: &VolumeName) -> ControlError {
    ControlError::conflict(format!("volume {name} caches nothing"))
}

fn no_volume(name: &VolumeName) -> ControlError {
    ControlError::not_found(format!("there is no volume {name}"))
}

impl Inner {
    fn check_empty(&self, drive: &str, destroy: bool) -> Result<(), ControlError> {
        if destroy || !self.full_drives.contains(drive) {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "drive {drive} holds a file system; say --destroy-data if that is meant"
        )))
    }
}

fn no_cluster() -> ControlError {
    ControlError::usage("this node is in no cluster")
}

impl Control for FakeControl {
    fn ownership(self: Arc<Self>) -> Arc<dyn Ownership> {
        Arc::new(OneNode::new(self, Arc::default()))
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 4420))
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.inner().pools.values().cloned().collect()
    }

    fn pool(&self, name: &str) -> Result<PoolStatus, ControlError> {
        self.inner()
            .pools
            .get(name)
            .cloned()
            .ok_or_else(|| no_pool(name))
    }

    fn create_pool(&self, request: CreatePool) -> Result<PoolStatus, ControlError> {
        let mut inner = self.inner();
        if inner.pools.contains_key(&request.name) {
            return Err(ControlError::conflict(format!(
                "there is a pool {} already",
                request.name
            )));
        }
        for drive in &request.drives {
            inner.check_empty(drive, request.destroy_data)?;
        }
        let made = pool(&request);
        inner.pools.insert(request.name, made.clone());
        Ok(made)
    }

    fn import_pool(&self, name: &str, request: ImportPool) -> Result<PoolStatus, ControlError> {
        let mut inner = self.inner();
        if let Some(pool) = inner.pools.get(name) {
            return Ok(pool.clone());
        }
        let mut pool = inner.exported.remove(name).ok_or_else(|| no_pool(name))?;
        if let Some(new) = request.new_name {
            pool.name = new;
        }
        inner.pools.insert(pool.name.clone(), pool.clone());
        Ok(pool)
    }

    fn export_pool(&self, name: &str, request: ExportPool) -> Result<(), ControlError> {
        let mut inner = self.inner();
        let busy = inner
            .volumes
            .values()
            .find(|v| v.pool == name && !v.connected_hosts.is_empty());
        if let (Some(volume), false) = (busy, request.force) {
            return Err(ControlError::refused(format!(
                "volume {name}/{} is in use by {}: disconnect it, or say --force",
                volume.name, volume.connected_hosts[0]
            )));
        }
        let pool = inner.pools.remove(name).ok_or_else(|| no_pool(name))?;
        inner.volumes.retain(|volume, _| volume.pool != name);
        inner.exported.insert(name.into(), pool);
        Ok(())
    }

    fn add_drive(&self, name: &str, request: AddDrive) -> Result<PoolStatus, ControlError> {
        self.inner()
            .check_empty(&request.drive, request.destroy_data)?;
        self.change(name, |pool| {
            pool.drives.push(drive(&request.drive));
            Ok(())
        })
    }

    fn replace_drive(&self, name: &str, request: ReplaceDrive) -> Result<PoolStatus, ControlError> {
        self.inner()
            .check_empty(&request.new, request.destroy_data)?;
        self.change(name, |pool| {
            let old = find(pool, &request.old)?;
            pool.drives[old] = drive(&request.new);
            pool.work.push(work(WorkKind::Evacuate, &request.old));
            Ok(())
        })
    }

    fn remove_drive(&self, name: &str, request: RemoveDrive) -> Result<PoolStatus, ControlError> {
        self.change(name, |pool| {
            let old = find(pool, &request.drive)?;
            if pool.drives.len() == 1 {
                return Err(ControlError::conflict(format!(
                    "drive {} is the last of pool {}",
                    request.drive, pool.name
                )));
            }
            pool.drives[old].state = DriveState::Evacuating;
            pool.work.push(work(WorkKind::Evacuate, &request.drive));
            Ok(())
        })
    }

    fn scrub(&self, name: &str) -> Result<PoolStatus, ControlError> {
        if std::mem::take(&mut self.inner().panics) {
            panic!("a planted defect");
        }
        self.change(name, |pool| {
            let begun = pool.work.iter().any(|work| work.what == WorkKind::Scrub);
            if !begun {
                pool.work.push(work(WorkKind::Scrub, name));
            }
            Ok(())
        })
    }

    fn repair(&self, name: &str) -> Result<PoolStatus, ControlError> {
        self.change(name, |pool| {
            pool.work.push(work(WorkKind::Rebuild, name));
            Ok(())
        })
    }

    fn set_reserve(&self, name: &str, request: SetReserve) -> Result<PoolStatus, ControlError> {
        self.change(name, |pool| {
            pool.space.repair_reserve = request.reserve;
            Ok(())
        })
    }

    fn volumes(&self) -> Vec<VolumeStatus> {
        self.inner().volumes.values().cloned().collect()
    }

    fn volume(&self, name: &VolumeName) -> Result<VolumeStatus, ControlError> {
        self.inner()
            .volumes
            .get(name)
            .cloned()
            .ok_or_else(|| no_volume(name))
    }

    fn create_volume(&self, request: CreateVolume) -> Result<VolumeStatus, ControlError> {
        let name = VolumeName::new(&request.pool, &request.name)?;
        let mut inner = self.inner();
        let drives = inner.pools.get(&name.pool).map(|pool| pool.drives.len());
        let drives = drives.ok_or_else(|| no_pool(&name.pool))?;
        if drives < request.layout.min_drives() {
            return Err(ControlError::usage(format!(
                "{} needs {} drives; pool {} has {drives}",
                request.layout,
                request.layout.min_drives(),
                name.pool
            )));
        }
        if inner.volumes.contains_key(&name) {
            return Err(ControlError::conflict(format!(
                "there is a volume {name} already"
            )));
        }
        let made = volume(request);
        inner.volumes.insert(name, made.clone());
        Ok(made)
    }

    fn resize_volume(
        &self,
        name: &VolumeName,
        request: ResizeVolume,
    ) -> Result<VolumeStatus, ControlError> {
        let mut inner = self.inner();
        let volume = inner.volumes.get_mut(name).ok_or_else(|| no_volume(name))?;
        request.allowed_on(volume)?;
        volume.bytes = request.bytes;
        Ok(volume.clone())
    }

    fn delete_volume(&self, name: &VolumeName, request: DeleteVolume) -> Result<(), ControlError> {
        let mut inner = self.inner();
        request.allowed_on(inner.volumes.get(name).ok_or_else(|| no_volume(name))?)?;
        inner.volumes.remove(name);
        Ok(())
    }

    fn create_cache(&self, request: CreateCache) -> Result<VolumeStatus, ControlError> {
        let name = VolumeName::new(&request.pool, &request.name)?;
        let layout = LayoutSpec::Mirror { copies: 1 };
        let plain = self.create_volume(CreateVolume::new(&name, 1 << 30, layout))?;
        let made = cached(plain, &request);
        self.inner().volumes.insert(name, made.clone());
        Ok(made)
    }

    fn flush_volume(&self, name: &VolumeName) -> Result<FlushReply, ControlError> {
        let mut inner = self.inner();
        let volume = inner.volumes.get_mut(name).ok_or_else(|| no_volume(name))?;
        let cache = volume.cache.as_mut().ok_or_else(|| no_cache(name))?;
        cache.newer_bytes = 0;
        cache.is_marked = false;
        Ok(FlushReply {
            done: true,
            volume: volume.clone(),
        })
    }

    fn reopen_volume(
        &self,
        name: &VolumeName,
        request: ReopenCache,
    ) -> Result<VolumeStatus, ControlError> {
        let mut inner = self.inner();
        let volume = inner.volumes.get_mut(name).ok_or_else(|| no_volume(name))?;
        let cache = volume.cache.as_mut().ok_or_else(|| no_cache(name))?;
        cache.backing = request
            .backing
            .unwrap_or(std::mem::take(&mut cache.backing));
        Ok(volume.clone())
    }

    fn newer_data(&self, name: &VolumeName) -> Result<NewerData, ControlError> {
        let volume = self.volume(name)?;
        let cache = volume.cache.ok_or_else(|| no_cache(name))?;
        Ok(NewerData::of(&[(0, cache.newer_bytes)]))
    }

    fn cluster(&self) -> Result<ClusterView, ControlError> {
        Err(no_cluster())
    }

    fn cluster_token(&self, _request: NewToken) -> Result<ClusterToken, ControlError> {
        Err(no_cluster())
    }

    fn forget_node(&self, _request: ForgetNode) -> Result<(), ControlError> {
        Err(no_cluster())
    }

    fn replace_node(&self, _request: ReplaceNode) -> Result<ReplaceReply, ControlError> {
        Err(no_cluster())
    }

    fn leave_cluster(&self) -> Result<(), ControlError> {
        Err(no_cluster())
    }

    fn drain(&self, _request: DrainNode) -> Result<DrainReply, ControlError> {
        Err(no_cluster())
    }

    fn events(&self, _after: u64) -> Vec<ClusterEvent> {
        Vec::new()
    }

    fn replicate_volume(
        &self,
        _name: &VolumeName,
        _request: ReplicateVolume,
    ) -> Result<VolumeStatus, ControlError> {
        Err(no_cluster())
    }

    fn run_alone(
        &self,
        _name: &VolumeName,
        _request: RunAlone,
    ) -> Result<VolumeStatus, ControlError> {
        Err(no_cluster())
    }

    fn verify_volume(&self, _name: &VolumeName) -> Result<ProofStatus, ControlError> {
        Err(no_cluster())
    }

    fn move_volume(
        &self,
        name: &VolumeName,
        _request: MoveVolume,
    ) -> Result<VolumeStatus, ControlError> {
        let inner = self.inner();
        inner.volumes.get(name).ok_or_else(|| no_volume(name))?;
        Err(ControlError::conflict(format!(
            "volume {name} has one copy, on this node: it cannot move"
        )))
    }

    fn cache_rules(&self, name: &VolumeName) -> Result<Vec<CacheRule>, ControlError> {
        let inner = self.inner();
        let rules = inner.rules.iter().filter(|((of, _), _)| of == name);
        Ok(rules.map(|(_, rule)| rule.clone()).collect())
    }

    fn put_cache_rule(
        &self,
        name: &VolumeName,
        request: PutRule,
    ) -> Result<CacheRule, ControlError> {
        let volume = self.volume(name)?;
        volume.cache.ok_or_else(|| no_cache(name))?;
        let rule = ruled(&request);
        let key = (name.clone(), request.exclude);
        self.inner().rules.insert(key, rule.clone());
        Ok(rule)
    }

    fn remove_cache_rule(
        &self,
        name: &VolumeName,
        request: RemoveRule,
    ) -> Result<(), ControlError> {
        let none = || ControlError::not_found(format!("volume {name} has no such rule"));
        let removed = self.inner().rules.remove(&(name.clone(), request.exclude));
        removed.map(drop).ok_or_else(none)
    }

    fn change_hosts(
        &self,
        name: &VolumeName,
        change: HostChange,
    ) -> Result<VolumeStatus, ControlError> {
        let mut inner = self.inner();
        let volume = inner.volumes.get_mut(name).ok_or_else(|| no_volume(name))?;
        let list = change.applied_to(volume)?;
        volume.allow_hosts = list.hosts;
        volume.allow_any_host = list.any_host;
        let allowed = |host: &String| volume.allow_any_host || volume.allow_hosts.contains(host);
        volume.connected_hosts.retain(allowed);
        Ok(volume.clone())
    }

    fn set_when_degraded(
        &self,
        name: &VolumeName,
        request: SetWhenDegraded,
    ) -> Result<VolumeStatus, ControlError> {
        let mut inner = self.inner();
        let volume = inner.volumes.get_mut(name).ok_or_else(|| no_volume(name))?;
        volume.when_degraded = request.when_degraded;
        Ok(volume.clone())
    }

    fn set_follow(
        &self,
        _name: &VolumeName,
        _request: SetFollow,
    ) -> Result<VolumeStatus, ControlError> {
        Err(no_cluster())
    }

    fn volume_stats(&self, name: &VolumeName) -> Result<VolumeStats, ControlError> {
        self.volume(name)?;
        let counters = |operations, bytes| IoCounters {
            operations,
            bytes,
            errors: 0,
            latency_total_us: operations * 100,
        };
        Ok(VolumeStats {
            since_seconds: 60,
            in_flight: 2,
            read: counters(10, 81_920),
            write: counters(5, 40_960),
            flush: counters(1, 0),
            deallocate: counters(0, 0),
        })
    }

    fn stop(&self) -> Result<(), ControlError> {
        let takes = self.inner().stop_takes;
        std::thread::sleep(takes);
        self.inner().stops += 1;
        Ok(())
    }
}

fn find(pool: &PoolStatus, drive: &str) -> Result<usize, ControlError> {
    let id: Option<Uuid> = drive.parse().ok();
    pool.drives
        .iter()
        .position(|known| known.spec == drive || Some(known.id) == id)
        .ok_or_else(|| ControlError::not_found(format!("pool {} has no drive {drive}", pool.name)))
}
