//! Volumes: made, changed, deleted, shown.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ashlar_store::{Grain, HomeStatus, HotTier, Layout, Manage, Managed, VolumeInfo, VolumePlan};
use uuid::Uuid;

use super::pools::engine;
use super::serve::{access_of, nqn, served};
use super::{Dismissal, Kept, LivePool, PoolManager, class_of, live, stored_class};
use crate::VolumeAccess;
use crate::model::{
    ControlError, CreateVolume, DeleteVolume, ErrorKind, HostChange, HostList, HotSpec, IoCounters,
    LayoutSpec, ResizeVolume, TierStatus, VolumeName, VolumeState, VolumeStats, VolumeStatus,
    WhenDegraded, readable_bytes,
};
use crate::pool::{Operations, View, room_of};

pub(super) const GRANULE: u64 = 4096;
/// What a volume with copies on other nodes has besides what hosts see: its register.
pub(super) const REGISTER: u64 = 1;

/// What this version's engine can keep. A `stripe` that says no number is over `columns`: as many
/// drives as may be given more.
pub(super) fn layout(spec: LayoutSpec, columns: u8) -> Result<Layout, ControlError> {
    let layout = match spec {
        LayoutSpec::Mirror { copies } => Layout::Mirror { copies },
        LayoutSpec::Parity { data, parity } => Layout::Parity { data, parity },
        LayoutSpec::Stripe { columns: said } => Layout::Stripe {
            columns: said.unwrap_or(columns),
        },
    };
    if !layout.is_possible() {
        return Err(ControlError::usage(format!(
            "layout {spec}: data and parity take 8 drives at most, in this version"
        )));
    }
    Ok(layout)
}

/// A volume as the engine is asked for it.
pub(super) fn plan_of(
    request: &CreateVolume,
    uuid: Uuid,
    view: &View,
) -> Result<VolumePlan, ControlError> {
    Ok(VolumePlan {
        name: request.name.clone(),
        uuid,
        granules: request.bytes / GRANULE,
        layout: layout(request.layout, view.status.stripes.columns)?,
        // What there is not is refused before.
        grain: request
            .grain_bytes
            .and_then(|bytes| Grain::of_bytes(bytes.into())),
        stops: request.when_degraded == WhenDegraded::Stop,
        class: request.class.map(stored_class),
        is_cache: false,
        hot: request.hot_home()?.map(|(hot, share)| HotTier {
            copies: hot.copies,
            class: hot.class.map(stored_class),
            share,
        }),
    })
}

/// How long a new volume waits for a deleted one of its name, and how often that is looked at.
const NAME_WAIT: Duration = Duration::from_secs(10);
const NAME_LOOK: Duration = Duration::from_millis(20);

impl PoolManager {
    pub(super) fn make_volume(&self, request: &CreateVolume) -> Result<VolumeStatus, ControlError> {
        if request.replicas > 1 {
            return self.make_replicated(request);
        }
        self.await_name(&request.pool, &request.name);
        let mut pools = self.lock();
        let pool = live(&pools, &request.pool)?;
        let view = pool.link.view().map_err(engine)?;
        let plan = plan_of(request, Uuid::new_v4(), &view)?;
        let taken = |volume: &VolumeInfo| volume.name == request.name && !volume.deleting;
        if view.status.volumes.iter().any(taken) {
            let why = format!(
                "there is a volume {}/{} already",
                request.pool, request.name
            );
            return Err(ControlError::conflict(why));
        }
        let (id, uuid) = (pool.id, plan.uuid);
        // Who may connect is remembered before there is anything to connect to.
        let access = VolumeAccess::new(id, uuid, request.hosts());
        self.state
            .update(|state| state.put_volume(access.clone()))?;
        let made = pool
            .link
            .manage(Manage::CreateVolume(plan))
            .map_err(|error| no_room(engine(error), request.layout, request.bytes, &view));
        let number = match made {
            Ok(Managed::Volume(number)) => number,
            other => {
                self.state.update(|state| state.forget_volume(id, uuid))?;
                other?;
                return Err(ControlError::internal(
                    "an answer to another question".to_owned(),
                ));
            }
        };
        let full = format!("{}/{}", request.pool, request.name);
        if let Some(Kept::Live(pool)) = pools.get_mut(&request.pool) {
            self.serve(pool, number, &full, uuid, Some(&access))?;
        }
        let pool = live(&pools, &request.pool)?;
        self.status_of(pool, &request.pool, &request.name)
    }

    /// Waits a while for a deleted volume of this name to be gone: it keeps its name until its space is free.
    pub(super) fn await_name(&self, pool: &str, name: &str) {
        let begun = Instant::now();
        let goes = |volume: &VolumeInfo| volume.name == name && volume.deleting;
        let is_going = || {
            let pools = self.lock();
            let view = live(&pools, pool).ok()?.link.view().ok()?;
            Some(view.status.volumes.iter().any(goes))
        };
        while is_going() == Some(true) && begun.elapsed() < NAME_WAIT {
            std::thread::sleep(NAME_LOOK);
        }
    }

    /// A volume by its name, and its pool's view.
    pub(super) fn find(
        &self,
        pool: &LivePool,
        name: &VolumeName,
    ) -> Result<(VolumeInfo, View), ControlError> {
        let view = pool.link.view().map_err(engine)?;
        let mut named = view
            .status
            .volumes
            .iter()
            .filter(|volume| volume.name == name.name);
        let found = named
            .clone()
            .find(|volume| !volume.deleting)
            .or_else(|| named.next());
        let none =
            || ControlError::not_found(format!("there is no volume {}/{}", name.pool, name.name));
        let found = found.cloned().ok_or_else(none)?;
        Ok((found, view))
    }

    pub(super) fn status_of(
        &self,
        pool: &LivePool,
        pool_name: &str,
        name: &str,
    ) -> Result<VolumeStatus, ControlError> {
        let name = VolumeName::new(pool_name, name)?;
        let (volume, view) = self.find(pool, &name)?;
        Ok(self.volume_status(pool, pool_name, &volume, &view))
    }

    /// How much hosts see of a volume. What a copy's pool has is not that once the volume has grown.
    fn hosts_bytes(&self, pool: &LivePool, volume: &VolumeInfo) -> u64 {
        if volume.replica.is_none() {
            return volume.granules * GRANULE;
        }
        let own = || volume.granules.saturating_sub(REGISTER) * GRANULE;
        self.bytes_of_copy(pool, volume.number).unwrap_or_else(own)
    }

    pub(super) fn volume_status(
        &self,
        pool: &LivePool,
        pool_name: &str,
        volume: &VolumeInfo,
        view: &View,
    ) -> VolumeStatus {
        let nqn = nqn(volume.uuid);
        let access = self.state.read().access(pool.id, volume.uuid).cloned();
        let shape = view
            .traffic
            .geometries
            .iter()
            .find(|(number, _)| *number == volume.number);
        let shape = shape.map(|(_, geometry)| *geometry);
        let replication = self.replication_of(pool, volume.number, volume.uuid);
        let (state, reason) = match state_of(volume, view) {
            (VolumeState::Online | VolumeState::Degraded, _)
                if volume.replica.is_some() && replication.is_none() =>
            {
                (VolumeState::Failed, Some(self.why_no_copy(volume.uuid)))
            }
            told => told,
        };
        let status = VolumeStatus {
            pool: pool_name.to_owned(),
            name: volume.name.clone(),
            connected_hosts: self.connected(&nqn),
            cache: None,
            replication,
            warnings: no_room_for(volume, view)
                .into_iter()
                .chain(self.behind_on_hosts(volume.uuid))
                .collect(),
            nqn,
            nsid: 1,
            uuid: volume.uuid,
            address: self.advertise.unwrap_or(self.address).to_string(),
            layout: volume.layout.into(),
            class: volume.class.map(class_of),
            tier: volume.tier.map(tier_of),
            bytes: self.hosts_bytes(pool, volume),
            used_bytes: volume.used_bytes,
            block_bytes: GRANULE as u32,
            grain_bytes: volume.grain.map_or(0, |grain| grain.bytes() as u32),
            atomic_bytes: shape.map_or(0, |shape| shape.atomic_blocks * GRANULE as u32),
            volatile_cache: shape.is_some_and(|shape| shape.volatile_cache),
            state,
            reason,
            when_degraded: match volume.stops {
                true => WhenDegraded::Stop,
                false => WhenDegraded::Continue,
            },
            allow_hosts: access
                .as_ref()
                .map(|a| a.allow_hosts.clone())
                .unwrap_or_default(),
            allow_any_host: access.is_some_and(|access| access.allow_any_host),
        };
        match volume.is_cache {
            true => self.as_cache(status, pool, volume, view),
            false => status,
        }
    }

    pub(super) fn all_volumes(&self) -> Vec<VolumeStatus> {
        let pools = self.lock();
        let mut all = Vec::new();
        for (name, kept) in pools.iter() {
            let Kept::Live(pool) = kept else { continue };
            let Ok(view) = pool.link.view() else { continue };
            let volumes = view.status.volumes.iter();
            all.extend(volumes.map(|volume| self.volume_status(pool, name, volume, &view)));
        }
        all
    }

    pub(in crate::manager) fn one_volume(
        &self,
        name: &VolumeName,
    ) -> Result<VolumeStatus, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let mut status = self.status_of(pool, &name.pool, &name.name)?;
        // The owner may be asked, and asks here.
        drop(pools);
        if let Some(own) = status.replication.take() {
            status.replication = Some(self.completed_by_owner(status.uuid, own));
        }
        Ok(status)
    }

    pub(super) fn change_size(
        &self,
        name: &VolumeName,
        request: &ResizeVolume,
    ) -> Result<VolumeStatus, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let (volume, view) = self.find(pool, name)?;
        if volume.is_cache {
            return Err(ControlError::conflict(format!(
                "volume {name} has the size of the device that it caches"
            )));
        }
        if volume.replica.is_some() {
            drop(pools);
            return self.grow_replicated(name, request);
        }
        request.allowed_on(&self.volume_status(pool, &name.pool, &volume, &view))?;
        let granules = request.bytes / GRANULE;
        let wish = Manage::ResizeVolume {
            volume: volume.number,
            granules,
        };
        let more = request.bytes.saturating_sub(volume.granules * GRANULE);
        let layout = volume.layout.into();
        let done = pool.link.manage(wish);
        done.map_err(|error| no_room(engine(error), layout, more, &view))?;
        if let Some(served_volume) = pool.volumes.get(&volume.number) {
            if let Some(opener) = &served_volume.volume {
                opener.refresh().map_err(engine)?;
            }
            self.target.resized(&served_volume.nqn).map_err(served)?;
        }
        self.status_of(pool, &name.pool, &name.name)
    }

    pub(super) fn drop_volume(
        &self,
        name: &VolumeName,
        request: &DeleteVolume,
    ) -> Result<(), ControlError> {
        let mut pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let (volume, view) = self.find(pool, name)?;
        if volume.is_cache && !volume.deleting {
            drop(pools);
            return self.drop_cache(name, request);
        }
        if volume.replica.is_some() && !volume.deleting {
            drop(pools);
            return self.drop_replicated(name, request);
        }
        request.allowed_on(&self.volume_status(pool, &name.pool, &volume, &view))?;
        let (id, link) = (pool.id, pool.link.clone());
        if let Some(Kept::Live(pool)) = pools.get_mut(&name.pool) {
            let why = format!("volume {name} was deleted");
            self.withdraw(pool, volume.number, Dismissal::ForGood(why))?;
        }
        link.manage(Manage::DeleteVolume {
            volume: volume.number,
        })
        .map_err(engine)?;
        self.forget_reservations(volume.uuid)?;
        self.state
            .update(|state| state.forget_volume(id, volume.uuid))
    }

    pub(super) fn change_who_may(
        &self,
        name: &VolumeName,
        change: &HostChange,
    ) -> Result<VolumeStatus, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let (volume, view) = self.find(pool, name)?;
        if volume.replica.is_none() {
            let status = self.volume_status(pool, &name.pool, &volume, &view);
            return self.set_hosts(&pools, name, change.applied_to(&status)?);
        }
        // A peer may be asking this node.
        drop(pools);
        self.change_hosts_of_copies(name, volume.uuid, change)
    }

    /// Lets these hosts connect here, and no others.
    pub(super) fn set_hosts(
        &self,
        pools: &BTreeMap<String, Kept>,
        name: &VolumeName,
        list: HostList,
    ) -> Result<VolumeStatus, ControlError> {
        let pool = live(pools, &name.pool)?;
        let (volume, _) = self.find(pool, name)?;
        let access = self.state.update(|state| {
            let known = state.access(pool.id, volume.uuid).cloned();
            let access = match known.filter(|_| self.replication.is_some()) {
                // One that was turned away must not come back by a copy that is made of it.
                Some(mut known) => {
                    known.change_to(list);
                    known
                }
                None => VolumeAccess::new(pool.id, volume.uuid, list),
            };
            state.put_volume(access.clone());
            access
        })?;
        self.admit_by(pool, name, volume.number, &access)?;
        self.status_of(pool, &name.pool, &name.name)
    }

    /// Has a volume that is served let in those that may connect now, and no others.
    pub(super) fn admit_by(
        &self,
        pool: &LivePool,
        name: &VolumeName,
        number: u32,
        access: &VolumeAccess,
    ) -> Result<(), ControlError> {
        let Some(volume) = pool.volumes.get(&number) else {
            return Ok(());
        };
        let allowed = access_of(Some(access));
        self.send_away_unless_allowed(name, &volume.nqn, |host| allowed.allows(host))?;
        self.target.allow(&volume.nqn, allowed).map_err(served)
    }

    pub(super) fn change_stops(
        &self,
        name: &VolumeName,
        stops: bool,
    ) -> Result<VolumeStatus, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let (found, _) = self.find(pool, name)?;
        if found.replica.is_some() && self.is_copy(found.uuid) {
            // A peer may be asking this node.
            drop(pools);
            return self.change_stops_of_copies(name, found.uuid, stops);
        }
        let volume = found.number;
        let wish = Manage::SetStops { volume, stops };
        pool.link.manage(wish).map_err(engine)?;
        self.status_of(pool, &name.pool, &name.name)
    }

    pub(super) fn traffic_of(&self, name: &VolumeName) -> Result<VolumeStats, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let (volume, view) = self.find(pool, name)?;
        let traffic = view
            .traffic
            .volumes
            .get(&volume.number)
            .copied()
            .unwrap_or_default();
        // What its hosts do is not what the cache does with the pool.
        let cache = pool.caches.get(&volume.number);
        let cache = cache.and_then(|cached| cached.link.as_ref()?.view().ok());
        let traffic = cache.map_or(traffic, |cache| cache.traffic);
        Ok(VolumeStats {
            since_seconds: pool.since.elapsed().as_secs(),
            in_flight: traffic.in_flight,
            read: counters(traffic.read),
            write: counters(traffic.write),
            flush: counters(traffic.flush),
            deallocate: counters(traffic.deallocate),
        })
    }

    /// The hosts that are connected to a subsystem, and this one if it is used here without a connection.
    pub(super) fn connected(&self, nqn: &str) -> Vec<String> {
        let mut hosts = self.target.target().hosts_of(nqn);
        hosts.extend(self.local_host(nqn));
        hosts
    }
}

/// A volume's hot home as it is shown.
fn tier_of(tier: ashlar_store::TierStatus) -> TierStatus {
    let tally = tier.tally;
    let ratio = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
    TierStatus {
        hot: HotSpec {
            copies: tier.layout.drives() as u8,
            class: tier.class.map(class_of),
        },
        share_percent: tier.share.percent(),
        share_bytes: tier.limit_bytes,
        hot_bytes: tier.hot_bytes,
        demoting: tier.is_demoting,
        reads: tally.reads,
        read_hits: tally.hits,
        hit_ratio: ratio(tally.hits, tally.reads),
        promoted_bytes: tally.promoted_bytes,
        demoted_bytes: tally.demoted_bytes,
        device_bytes_per_user_byte: ratio(tally.device_bytes, tally.user_bytes),
    }
}

/// What the pool has room for of a thin volume.
pub(super) fn home_room(volume: &VolumeInfo, view: &View) -> Option<u64> {
    let grain = volume.grain.filter(|_| !volume.deleting)?;
    let ours = |home: &&HomeStatus| {
        let is_alike = home.layout == volume.layout && home.grain == grain;
        is_alike && home.class == volume.class && home.hot_of.is_none()
    };
    Some(view.status.homes.iter().find(ours).map_or(0, room_of))
}

/// What of a volume's bytes the pool has no room for, as it is now. It is thin: that shows when it is written.
fn no_room_for(volume: &VolumeInfo, view: &View) -> Option<String> {
    let room = home_room(volume, view)?;
    let bytes = volume.granules * GRANULE;
    let unwritten = bytes.saturating_sub(volume.used_bytes);
    (unwritten > room).then(|| {
        format!(
            "{} of its {} are not written yet, and the pool has room for {} of them as {}: writes fail when \
             that is full. Add a drive (`pool add`), or make it smaller",
            readable_bytes(unwritten),
            readable_bytes(bytes),
            readable_bytes(room),
            LayoutSpec::from(volume.layout)
        )
    })
}

/// A stripe has its space from the beginning: what there is not is refused, in the volume's bytes.
fn no_room(mut error: ControlError, layout: LayoutSpec, bytes: u64, view: &View) -> ControlError {
    let free = view.status.stripes.free_bytes;
    if matches!(layout, LayoutSpec::Stripe { .. }) && error.kind == ErrorKind::Environment {
        error.message = format!(
            "{}. {} more are asked for, and {} are free as a stripe over all drives",
            error.message,
            readable_bytes(bytes),
            readable_bytes(free)
        );
    }
    error
}

fn state_of(volume: &VolumeInfo, view: &View) -> (VolumeState, Option<String>) {
    let is_redundant = volume.layout.survives() > 0;
    match (&view.status.failure, &volume.trouble) {
        (Some(why), _) => (VolumeState::Failed, Some(why.clone())),
        _ if volume.deleting => (VolumeState::Deleting, None),
        (None, Some(why)) => {
            let why = format!(
                "{why}. What can be read can be copied away; then `volume delete`, and make it anew"
            );
            (VolumeState::Failed, Some(why))
        }
        (None, None) if volume.stopped.is_some() => {
            let why = volume.stopped.as_deref().unwrap_or_default();
            let why = format!(
                "{why}: `pool add` or `pool replace` a drive, or `volume set --when-degraded continue`"
            );
            (VolumeState::Stopped, Some(why))
        }
        (None, None) if view.status.degraded && is_redundant => (
            VolumeState::Degraded,
            Some("a copy of something is missing".to_owned()),
        ),
        (None, None) => (VolumeState::Online, None),
    }
}

fn counters(of: Operations) -> IoCounters {
    IoCounters {
        operations: of.count,
        bytes: of.bytes,
        errors: of.errors,
        latency_total_us: of.nanos / 1000,
    }
}
