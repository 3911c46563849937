//! A pool as operators see it.

use ashlar_store::format::Reserve as Wished;
use ashlar_store::{Grain, LostBlocks, MemberStatus, Status, VolumeInfo};

use super::advice::{
    drive_name, file_advice, serves, silent_seconds, unmatched, wait_of, warnings,
};
use super::drives::is_gone;
use super::pools::named;
use super::work::work;
use super::{Ending, Kept, KnownDrive, LivePool, PoolManager, class_of};
use crate::model::{
    DriveClass, DriveErrors, DriveState, DriveStatus, LayoutSpec, LayoutStatus, LogFill, LostRange,
    PoolCounters, PoolState, PoolStatus, Reserve, ReserveSpec, SpaceStatus, Survives,
};
use crate::pool::{Doubts, View, merged, room_of};

pub(super) const GRANULE: u64 = 4096;

impl PoolManager {
    pub(super) fn pool_status(&self, name: &str, kept: &Kept) -> PoolStatus {
        match kept {
            Kept::Live(pool) => match pool.link.view() {
                Ok(view) => {
                    let mut status = live_status(name, pool, &view);
                    self.tell_of_files(&mut status);
                    status
                }
                Err(error) => failed_status(name, pool.id, error.to_string()),
            },
            Kept::Failed {
                id, why, ending, ..
            } => {
                let mut status = failed_status(name, *id, why.clone());
                if *ending == Ending::ByItself {
                    status.warnings.clear();
                }
                status
            }
        }
    }

    /// A pool whose drives have lost their files is not healthy: what serves yet does not come back after a restart.
    fn tell_of_files(&self, status: &mut PoolStatus) {
        let pool = &status.name;
        let serving = status.drives.iter().filter(|drive| serves(drive));
        let troubles = serving.filter_map(|drive| {
            let why = self.watch.trouble(drive.id)?;
            let way_out = file_advice(pool, drive);
            let why = format!("drive {}: {why}", drive_name(drive));
            Some((format!("{why}. {way_out}"), why))
        });
        let (warnings, troubles): (Vec<String>, Vec<String>) = troubles.unzip();
        status.warnings.extend(warnings);
        if status.state == PoolState::Healthy && !troubles.is_empty() {
            status.state = PoolState::Degraded;
            status.reason = Some(troubles.join("; "));
        }
    }
}

fn pool_name(view: &View) -> &str {
    &view.status.label.pool_name
}

/// Why a pool has stopped, and which orders end that.
fn with_advice(why: &str, name: &str) -> String {
    format!(
        "{why}. `pool import {name}` tries again, without a restart; `pool export --force {name}` lets go of it"
    )
}

/// A pool that could not be imported, or whose core does not answer.
fn failed_status(name: &str, id: uuid::Uuid, why: String) -> PoolStatus {
    let way_out = format!(
        "once that is mended, `pool import {name}` brings it into service (`--degraded`: without the drives that are \
         missing, for good); `pool export {name}` lets it go"
    );
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
        features: Vec::new(),
        counters: PoolCounters::default(),
        lost: Vec::new(),
        warnings: vec![way_out],
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
    let homes = merged(&status.homes).into_iter().map(|home| {
        let homes = Homes {
            layout: home.layout.into(),
            grain: Some(home.grain),
            class: home.class.map(class_of),
            used: home.used_bytes,
            free: room_of(&home),
        };
        layout_status(homes, raw)
    });
    let stripe = Homes {
        layout: LayoutSpec::Stripe { columns: None },
        grain: None,
        class: None,
        used: status.stripes.used_bytes,
        free: status.stripes.free_bytes,
    };
    let stripe = layout_status(stripe, raw);
    let layouts: Vec<LayoutStatus> = homes.chain([stripe]).collect();
    let (state, reason) = state(pool, view);
    let drives = drives(pool, view);
    let space = space(raw, &layouts, status);
    let warnings = warnings(pool, view, &drives, &space);
    PoolStatus {
        name: name.to_owned(),
        id: pool.id,
        state,
        reason,
        drives,
        space,
        layouts,
        work: work(pool, view),
        log_fill: LogFill {
            data_ring: status.ring_fill,
            map_log: status.map_fill,
        },
        features: status.features.names(),
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
        lost: lost(status),
        warnings,
    }
}

/// What is lost of each volume.
fn lost(status: &Status) -> Vec<LostRange> {
    let name = |number: u32| {
        let mut volumes = status.volumes.iter();
        let volume = volumes.find(|volume| volume.number == number);
        volume.map_or_else(String::new, |volume| volume.name.clone())
    };
    let range = |one: &LostBlocks| LostRange {
        volume: name(one.volume),
        offset_bytes: one.first * GRANULE,
        bytes: one.blocks * GRANULE,
        lost_bytes: one.lost * GRANULE,
    };
    status.lost.iter().map(range).collect()
}

/// Homes of a layout, and their bytes.
struct Homes {
    layout: LayoutSpec,
    grain: Option<Grain>,
    class: Option<DriveClass>,
    used: u64,
    free: u64,
}

fn layout_status(homes: Homes, raw: u64) -> LayoutStatus {
    let Homes { layout, grain, .. } = homes;
    let advertised = homes.used + homes.free;
    LayoutStatus {
        layout,
        class: homes.class,
        grain_bytes: grain.map_or(0, |grain| grain.bytes() as u32),
        advertised_bytes: advertised,
        free_bytes: homes.free,
        efficiency_with_reserves: advertised as f64 / raw.max(1) as f64,
        efficiency_without_reserves: layout.efficiency(grain),
        survives: Survives::by(layout),
    }
}

fn state(pool: &LivePool, view: &View) -> (PoolState, Option<String>) {
    let status = &view.status;
    if let Some(why) = &status.failure {
        let known = pool.drives.iter().map(|drive| (drive.id, &drive.spec[..]));
        let why = named(why.clone(), known);
        return (PoolState::Failed, Some(with_advice(&why, pool_name(view))));
    }
    if !status.degraded {
        return match doubt(pool, view) {
            Some(why) => (PoolState::Degraded, Some(why)),
            None => (PoolState::Healthy, None),
        };
    }
    let out = members(pool, view).filter(|(_, member)| !member.in_service);
    let out: Vec<String> = out.map(|(index, _)| name_of(pool, index)).collect();
    let who = match &out[..] {
        [] => String::new(),
        [one] => format!("drive {one} is out of service, "),
        many => format!(
            "{} drives are out of service ({}), ",
            many.len(),
            many.join(", ")
        ),
    };
    let again = if status.rebuilding {
        ", being made again"
    } else {
        ""
    };
    let why = format!("{who}copies are missing{again}");
    (PoolState::Degraded, Some(why))
}

/// Why a pool that lacks no copy is not healthy all the same: what is bad may be all that there is.
fn doubt(pool: &LivePool, view: &View) -> Option<String> {
    let Doubts { bad_copies, lost } = &view.doubts;
    let known: u64 = view.status.lost.iter().map(|one| one.lost).sum();
    if known > 0 {
        return Some(format!(
            "{} bytes are lost, which `lost` lists by volume: they read as errors until they are written again. Restore \
             them from a backup, or write or deallocate them",
            known * GRANULE
        ));
    }
    if *lost > 0 {
        let lost = lost * GRANULE;
        return Some(format!(
            "{lost} bytes have no good copy left: they read as errors until they are written again, and \
             `pool scrub` says when none are left"
        ));
    }
    let drives: Vec<String> = bad_copies
        .iter()
        .map(|(&drive, bad)| format!("{bad} on drive {}", name_of(pool, drive)))
        .collect();
    (!drives.is_empty()).then(|| {
        format!(
            "bad copies were found, {}: `pool scrub` finds and mends what else is bad",
            drives.join(", ")
        )
    })
}

/// The drives that an operator is shown: one that was removed as it was to be is not among them.
pub(super) fn members<'a>(
    pool: &'a LivePool,
    view: &'a View,
) -> impl Iterator<Item = (usize, &'a MemberStatus)> {
    let members = view.status.members.iter().enumerate();
    members.filter(move |(index, member)| !is_gone(pool, *index, member))
}

/// How people know a drive.
pub(super) fn name_of(pool: &LivePool, index: usize) -> String {
    pool.drives
        .get(index)
        .map(KnownDrive::name)
        .unwrap_or_default()
}

fn drives(pool: &LivePool, view: &View) -> Vec<DriveStatus> {
    let drive = |(index, member): (usize, &MemberStatus)| {
        let known = pool.drives.get(index);
        let failed = view.traffic.errors.get(index).copied();
        let failed = failed.unwrap_or_default();
        DriveStatus {
            spec: known.map(|known| known.spec.clone()).unwrap_or_default(),
            id: member.drive,
            class: known.and_then(|known| known.class),
            state: match (member.in_service, member.leaving) {
                (true, true) => DriveState::Evacuating,
                (true, false) => DriveState::Online,
                (false, _) if known.is_some_and(|known| known.is_here) => DriveState::Failed,
                (false, _) => DriveState::Missing,
            },
            reason: member.reason.clone().or_else(|| wait_of(member)),
            bytes: member.bytes,
            used_bytes: member.used_bytes,
            errors: DriveErrors {
                read: failed.reads,
                write: failed.writes,
                checksum: member.bad_copies,
            },
            slow_requests: member.replies.slow,
            silent_seconds: silent_seconds(&member.replies),
            unmatched_bytes: 0,
        }
    };
    let mut drives: Vec<DriveStatus> = members(pool, view).map(drive).collect();
    let staying = drives.iter_mut();
    let mut staying: Vec<_> = staying
        .filter(|drive| drive.state == DriveState::Online)
        .collect();
    let sizes: Vec<u64> = staying.iter().map(|drive| drive.bytes).collect();
    let largest = staying.iter_mut().max_by_key(|drive| drive.bytes);
    if let (Some(left), Some(largest)) = (unmatched(&sizes), largest) {
        largest.unmatched_bytes = left;
    }
    drives
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
            LayoutSpec::from(volume.layout) == homes.layout
                && grain.bytes() == u64::from(homes.grain_bytes)
                && volume.class.map(class_of) == homes.class
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
