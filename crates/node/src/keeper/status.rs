//! A pool as operators see it.

use std::time::Duration;

use ashlar_store::format::{DriveClass as Class, Reserve as Wished};
use ashlar_store::{Grain, HomeStatus, Status, VolumeInfo};

use super::volumes::spec;
use super::{Keeper, Kept, LivePool};
use crate::model::{
    DriveClass, DriveErrors, DriveState, DriveStatus, LayoutSpec, LayoutStatus, LogFill,
    PoolCounters, PoolState, PoolStatus, Reserve, ReserveSpec, SpaceStatus, Survives, WorkKind,
    WorkState, WorkStatus,
};
use crate::pool::View;

const GRANULE: u64 = 4096;

impl Keeper {
    pub(super) fn pool_status(&self, name: &str, kept: &Kept) -> PoolStatus {
        match kept {
            Kept::Live(pool) => match pool.link.view() {
                Ok(view) => live_status(name, pool, &view),
                Err(error) => failed_status(name, pool.id, error.to_string()),
            },
            Kept::Failed { id, why, .. } => failed_status(name, *id, why.clone()),
        }
    }
}

fn failed_status(name: &str, id: uuid::Uuid, why: String) -> PoolStatus {
    PoolStatus {
        name: name.to_owned(),
        id,
        state: PoolState::Failed,
        reason: Some(why),
        drives: Vec::new(),
        space: no_space(),
        layouts: Vec::new(),
        work: Vec::new(),
        log_fill: LogFill::default(),
        counters: PoolCounters::default(),
        warnings: Vec::new(),
    }
}

fn live_status(name: &str, pool: &LivePool, view: &View) -> PoolStatus {
    let status = &view.status;
    let raw: u64 = status
        .members
        .iter()
        .filter(|m| m.in_service)
        .map(|m| m.bytes)
        .sum();
    let homes = status.homes.iter().map(|home| {
        let free = home.free_bytes + home.growth_bytes;
        let homes = (spec(home.layout), Some(home.grain));
        layout_status(homes, home.used_bytes, free, raw)
    });
    let stripes = &status.stripes;
    let stripe = (LayoutSpec::Stripe { columns: None }, None);
    let stripe = layout_status(stripe, stripes.used_bytes, stripes.free_bytes, raw);
    let layouts: Vec<LayoutStatus> = homes.chain([stripe]).collect();
    let (state, reason) = state(view);
    PoolStatus {
        name: name.to_owned(),
        id: pool.id,
        state,
        reason,
        drives: drives(pool, view),
        space: space(raw, &layouts, status),
        layouts,
        work: work(view),
        log_fill: LogFill {
            data_ring: status.ring_fill,
            map_log: status.map_fill,
        },
        counters: PoolCounters {
            user_read_bytes: view.traffic.user_read_bytes,
            user_written_bytes: view.traffic.user_written_bytes,
            device_read_bytes: view.traffic.device_read_bytes,
            device_written_bytes: view.traffic.device_written_bytes,
            bad_copy_bytes: status.counters.bad_copies * GRANULE,
            repaired_bytes: status.counters.repaired * GRANULE,
            lost_bytes: status.counters.lost * GRANULE,
            scrubs: status.counters.scrubs,
        },
        warnings: warnings(view),
    }
}

fn layout_status(
    (layout, grain): (LayoutSpec, Option<Grain>),
    used: u64,
    free: u64,
    raw: u64,
) -> LayoutStatus {
    let advertised = used + free;
    LayoutStatus {
        layout,
        grain_bytes: grain.map_or(0, |grain| grain.bytes() as u32),
        advertised_bytes: advertised,
        free_bytes: free,
        efficiency_with_reserves: advertised as f64 / raw.max(1) as f64,
        efficiency_without_reserves: layout.efficiency(grain),
        survives: Survives::by(layout),
    }
}

fn state(view: &View) -> (PoolState, Option<String>) {
    let status = &view.status;
    if let Some(why) = &status.failure {
        return (PoolState::Failed, Some(why.clone()));
    }
    let out = status
        .members
        .iter()
        .filter(|member| !member.in_service)
        .count();
    if status.degraded {
        let what = if status.rebuilding {
            ", being made again"
        } else {
            ""
        };
        let why = format!("{out} drives are out of service, copies are missing{what}");
        return (PoolState::Degraded, Some(why));
    }
    (PoolState::Healthy, None)
}

fn drives(pool: &LivePool, view: &View) -> Vec<DriveStatus> {
    let members = view.status.members.iter().enumerate();
    members
        .map(|(index, member)| {
            let open = pool.drives.get(index).and_then(Option::as_ref);
            let (read, write) = view.traffic.errors.get(index).copied().unwrap_or_default();
            DriveStatus {
                spec: open.map(|open| open.spec.clone()).unwrap_or_default(),
                id: member.drive,
                class: match open.map(|open| open.class) {
                    Some(Class::Hdd) => DriveClass::Hdd,
                    Some(Class::Ssd) => DriveClass::Ssd,
                    _ => DriveClass::Nvme,
                },
                state: match (member.in_service, member.leaving, open) {
                    (true, true, _) => DriveState::Evacuating,
                    (true, false, _) => DriveState::Online,
                    (false, _, Some(_)) => DriveState::Failed,
                    (false, _, None) => DriveState::Missing,
                },
                reason: member.reason.clone(),
                bytes: member.bytes,
                used_bytes: member.used_bytes,
                errors: DriveErrors {
                    read,
                    write,
                    checksum: member.bad_copies,
                },
            }
        })
        .collect()
}

fn no_space() -> SpaceStatus {
    SpaceStatus {
        raw_bytes: 0,
        advertised_bytes: 0,
        used_bytes: 0,
        provisioned_bytes: 0,
        reserved_bytes: 0,
        reserves: Vec::new(),
        repair_reserve: ReserveSpec::default(),
        efficiency_with_reserves: 0.0,
        efficiency_without_reserves: 0.0,
    }
}

fn space(raw: u64, layouts: &[LayoutStatus], status: &Status) -> SpaceStatus {
    let homed: u64 = status.homes.iter().map(|home| home.used_bytes).sum();
    let used_bytes = homed + status.stripes.used_bytes;
    let mix = mix(layouts, status);
    let share = |of: &dyn Fn(&LayoutStatus) -> f64| -> f64 {
        // What a byte of each layout takes, added up.
        let costs = mix.iter().map(|(weight, layout)| weight / of(layout));
        1.0 / costs.sum::<f64>()
    };
    let free = share(&|layout| layout.free_bytes as f64);
    let advertised_bytes = used_bytes + free as u64;
    let reserve = |purpose: &str, bytes| Reserve {
        purpose: purpose.to_owned(),
        bytes,
    };
    SpaceStatus {
        raw_bytes: raw,
        advertised_bytes,
        used_bytes,
        provisioned_bytes: status
            .volumes
            .iter()
            .map(|volume| volume.granules * GRANULE)
            .sum(),
        reserved_bytes: status.kept_bytes + status.reserve_bytes,
        reserves: vec![
            reserve("metadata", status.kept_bytes),
            reserve("repair", status.reserve_bytes),
        ],
        repair_reserve: match status.reserve {
            Wished::None => ReserveSpec::None,
            Wished::Auto => ReserveSpec::Auto,
            Wished::Drives(drives) => ReserveSpec::Drives(drives),
            Wished::Extents(extents) => {
                ReserveSpec::Bytes(u64::from(extents) * status.label.sizes.extent_bytes())
            }
        },
        efficiency_with_reserves: advertised_bytes as f64 / raw.max(1) as f64,
        efficiency_without_reserves: share(&|layout| layout.efficiency_without_reserves),
    }
}

/// The layouts of the volumes, weighted by their sizes; without volumes what they are usually made
/// as, `mirror:2`, or `mirror:1` on a single drive.
fn mix<'a>(layouts: &'a [LayoutStatus], status: &Status) -> Vec<(f64, &'a LayoutStatus)> {
    let is_of = |volume: &VolumeInfo, homes: &LayoutStatus| match volume.grain {
        None => matches!(homes.layout, LayoutSpec::Stripe { .. }),
        Some(grain) => {
            spec(volume.layout) == homes.layout && grain.bytes() == u64::from(homes.grain_bytes)
        }
    };
    let bytes = |homes: &LayoutStatus| -> u64 {
        let volumes = status.volumes.iter().filter(|volume| !volume.deleting);
        let theirs = volumes.filter(|volume| is_of(volume, homes));
        theirs.map(|volume| volume.granules * GRANULE).sum()
    };
    let weights = layouts.iter().map(|layout| (bytes(layout) as f64, layout));
    let weights: Vec<(f64, &LayoutStatus)> = weights.filter(|(weight, _)| *weight > 0.0).collect();
    let all: f64 = weights.iter().map(|(weight, _)| weight).sum();
    if all > 0.0 {
        return weights
            .into_iter()
            .map(|(weight, layout)| (weight / all, layout))
            .collect();
    }
    let mirror = |copies| {
        let mut found = layouts.iter();
        let plain = Grain::K64.bytes();
        found.find(move |homes| {
            let is_plain = u64::from(homes.grain_bytes) == plain;
            is_plain && homes.layout == LayoutSpec::Mirror { copies }
        })
    };
    let usual = mirror(2).or_else(|| mirror(1));
    usual.map(|layout| (1.0, layout)).into_iter().collect()
}

/// A repair that waits for its time, or that has found no room.
fn waiting_repair(status: &Status) -> Option<WorkStatus> {
    let waiting = |state, reason: &str, eta: Option<Duration>| WorkStatus {
        what: WorkKind::Rebuild,
        subject: None,
        state,
        reason: Some(reason.to_owned()),
        progress: 0.0,
        eta_seconds: eta.map(|eta| eta.as_secs() + u64::from(eta.subsec_nanos() > 0)),
    };
    if status.repair_in.is_some() {
        let why = "a lost drive may be replaced first; `pool repair` begins at once";
        return Some(waiting(WorkState::Waiting, why, status.repair_in));
    }
    let is_stuck = status.degraded && !status.rebuilding && status.walk.is_none();
    is_stuck.then(|| {
        let why = "no drive has room for the copies that are missing: add one";
        waiting(WorkState::Stuck, why, None)
    })
}

fn work(view: &View) -> Vec<WorkStatus> {
    let status = &view.status;
    let what = if status.rebuilding {
        WorkKind::Rebuild
    } else {
        WorkKind::Scrub
    };
    let walk = status.walk.map(|progress| WorkStatus {
        what,
        subject: None,
        state: WorkState::Running,
        reason: None,
        progress,
        eta_seconds: None,
    });
    let waiting = waiting_repair(status);
    let deleting = status.volumes.iter().filter(|volume| volume.deleting);
    let deleting = deleting.map(|volume| WorkStatus {
        what: WorkKind::Reclaim,
        subject: Some(volume.name.clone()),
        state: WorkState::Running,
        reason: None,
        progress: 0.0,
        eta_seconds: None,
    });
    walk.into_iter().chain(waiting).chain(deleting).collect()
}

fn warnings(view: &View) -> Vec<String> {
    let status = &view.status;
    let mut warnings = Vec::new();
    if status.counters.lost > 0 {
        let lost = status.counters.lost * GRANULE;
        warnings.push(format!(
            "{lost} bytes have no good copy left: they read as errors"
        ));
    }
    for volume in &status.volumes {
        if let Some(why) = &volume.trouble {
            warnings.push(format!("volume {}: {why}", volume.name));
        }
    }
    warnings.extend(repair_warning(status));
    let nearly = |home: &&HomeStatus| {
        let free = home.free_bytes + home.growth_bytes;
        home.used_bytes > 0 && free < (home.used_bytes + free) / 10
    };
    let fullest = status.homes.iter().filter(nearly);
    if let Some(home) = fullest.min_by_key(|home| home.free_bytes + home.growth_bytes) {
        let free = home.free_bytes + home.growth_bytes;
        warnings.push(format!(
            "the pool is nearly full: {free} bytes are left as {}",
            spec(home.layout)
        ));
    }
    warnings
}

/// What a loss would mean, where no space is kept for it or none would help.
fn repair_warning(status: &Status) -> Option<String> {
    let staying = status.members.iter().filter(|m| m.in_service && !m.leaving);
    let drives = staying.count();
    let until = "until a drive is added";
    match (status.reserve, status.reserve_can_serve, status.full_width) {
        (Wished::None, _, _) => Some(
            "no space is kept for repair: after the loss of a drive, copies are made again only as \
             far as there is room"
                .to_owned(),
        ),
        (_, false, _) => Some(format!(
            "no space is kept for repair, for with {drives} drives none could serve: what was on a lost \
             drive has no other to go to. After a loss, new data has fewer copies, or narrower stripes, \
             {until}"
        )),
        (_, true, true) => Some(format!(
            "some volumes take all {drives} drives: the space kept for repair cannot serve them. After a \
             loss, their new data has fewer copies, or narrower stripes, {until}"
        )),
        (_, true, false) => None,
    }
}
