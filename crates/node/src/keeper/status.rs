//! A pool as operators see it.

use ashlar_store::Grain;
use ashlar_store::format::DriveClass as Class;

use super::volumes::spec;
use super::{Keeper, Kept, LivePool};
use crate::model::{
    DriveClass, DriveErrors, DriveState, DriveStatus, LayoutSpec, LayoutStatus, LogFill,
    PoolCounters, PoolState, PoolStatus, Reserve, SpaceStatus, Survives, WorkKind, WorkState,
    WorkStatus,
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
        space: space(0, &[], 0, 0, 0),
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
    let homed: u64 = status.homes.iter().map(|home| home.used_bytes).sum();
    let used = homed + stripes.used_bytes;
    let provisioned = status
        .volumes
        .iter()
        .map(|volume| volume.granules * GRANULE)
        .sum();
    let (state, reason) = state(view);
    PoolStatus {
        name: name.to_owned(),
        id: pool.id,
        state,
        reason,
        drives: drives(pool, view),
        space: space(raw, &layouts, used, provisioned, status.kept_bytes),
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

fn space(
    raw: u64,
    layouts: &[LayoutStatus],
    used: u64,
    provisioned: u64,
    kept: u64,
) -> SpaceStatus {
    // What volumes are usually made as: mirror:2, or mirror:1 on a single drive.
    let plain = Grain::K64.bytes();
    let mut mirrors = layouts.iter();
    let usual = mirrors.rfind(|status| {
        let usual = matches!(status.layout, LayoutSpec::Mirror { copies: 1..=2 });
        usual && u64::from(status.grain_bytes) == plain
    });
    SpaceStatus {
        raw_bytes: raw,
        advertised_bytes: usual.map_or(0, |layout| layout.advertised_bytes),
        used_bytes: used,
        provisioned_bytes: provisioned,
        reserved_bytes: kept,
        reserves: vec![Reserve {
            purpose: "metadata".into(),
            bytes: kept,
        }],
        efficiency_with_reserves: usual.map_or(0.0, |layout| layout.efficiency_with_reserves),
        efficiency_without_reserves: usual.map_or(0.0, |layout| layout.efficiency_without_reserves),
    }
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
    let deleting = status.volumes.iter().filter(|volume| volume.deleting);
    let deleting = deleting.map(|volume| WorkStatus {
        what: WorkKind::Reclaim,
        subject: Some(volume.name.clone()),
        state: WorkState::Running,
        reason: None,
        progress: 0.0,
        eta_seconds: None,
    });
    walk.into_iter().chain(deleting).collect()
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
    let used: u64 = status.homes.iter().map(|home| home.used_bytes).sum();
    let free = status
        .homes
        .iter()
        .map(|home| home.free_bytes + home.growth_bytes)
        .min()
        .unwrap_or(0);
    if free < (used + free) / 10 {
        warnings.push(format!("the pool is nearly full: {free} bytes are left"));
    }
    warnings
}
