//! A pool as operators see it.

use ashlar_store::format::Reserve as Wished;
use ashlar_store::{DriveReplies, Grain, LostBlocks, MemberStatus, Status, VolumeInfo};

use super::drives::is_gone;
use super::pools::named;
use super::work::work;
use super::{Ending, Kept, KnownDrive, LivePool, PoolManager, class_of};
use crate::model::{
    DriveClass, DriveErrors, DriveState, DriveStatus, LayoutSpec, LayoutStatus, LogFill, LostRange,
    PoolCounters, PoolState, PoolStatus, Reserve, ReserveSpec, SpaceStatus, Survives,
};
use crate::pool::{Doubts, View, merged, room_of, scarcest};

const GRANULE: u64 = 4096;

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
            Some((drive_name(drive), why))
        });
        let troubles: Vec<(String, String)> = troubles.collect();
        let warnings = troubles.iter().map(|(name, why)| {
            let way_out = format!(
                "`pool replace {pool} --old '{name}' --new DEVICE` puts another in its place"
            );
            format!("drive {name}: {why}. {way_out}")
        });
        status.warnings.extend(warnings);
        if status.state == PoolState::Healthy && !troubles.is_empty() {
            let each = troubles
                .iter()
                .map(|(name, why)| format!("drive {name}: {why}"));
            status.state = PoolState::Degraded;
            status.reason = Some(each.collect::<Vec<_>>().join("; "));
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
        let homes = (
            LayoutSpec::from(home.layout),
            Some(home.grain),
            home.class.map(class_of),
        );
        layout_status(homes, home.used_bytes, room_of(&home), raw)
    });
    let stripes = &status.stripes;
    let stripe = (LayoutSpec::Stripe { columns: None }, None, None);
    let stripe = layout_status(stripe, stripes.used_bytes, stripes.free_bytes, raw);
    let layouts: Vec<LayoutStatus> = homes.chain([stripe]).collect();
    let (state, reason) = state(pool, view);
    let drives = drives(pool, view);
    let space = space(raw, &layouts, status);
    let warnings = warnings(name, view, &drives, &space);
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

fn layout_status(
    (layout, grain, class): (LayoutSpec, Option<Grain>, Option<DriveClass>),
    used: u64,
    free: u64,
    raw: u64,
) -> LayoutStatus {
    let advertised = used + free;
    LayoutStatus {
        layout,
        class,
        grain_bytes: grain.map_or(0, |grain| grain.bytes() as u32),
        advertised_bytes: advertised,
        free_bytes: free,
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
        }
    };
    members(pool, view).map(drive).collect()
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

fn warnings(name: &str, view: &View, drives: &[DriveStatus], space: &SpaceStatus) -> Vec<String> {
    let status = &view.status;
    let mut warnings = Vec::new();
    if status.counters.lost > 0 {
        let lost = status.counters.lost * GRANULE;
        warnings.push(format!(
            "{lost} bytes have no good copy left: they read as errors"
        ));
    }
    if status.waits_for_node {
        warnings.push(
            "writes wait until the daemon has stored in state.toml which drives are left: if that does not end, its file \
             system takes no writes, and the log says why"
                .into(),
        );
    }
    for volume in &status.volumes {
        if let Some(why) = &volume.trouble {
            warnings.push(format!("volume {}: {why}", volume.name));
        }
    }
    warnings.extend(drives.iter().filter_map(drive_warning));
    warnings.extend(drives.iter().filter_map(|drive| way_out(name, drive)));
    for drive in drives {
        let mut members = status.members.iter().rev();
        if let Some(member) = members.find(|member| member.drive == drive.id) {
            warnings.extend(silence(drive, member));
            warnings.extend(wait_warning(drive, member));
        }
    }
    warnings.extend(repair_warning(status));
    if let Some(home) = scarcest(&status.homes) {
        warnings.push(format!(
            "the pool is nearly full: {} bytes are left as {}. Writes will fail when there are none: add a \
             drive, or delete something",
            room_of(home),
            LayoutSpec::from(home.layout)
        ));
    }
    warnings.extend(promise_warning(status, space));
    warnings
}

/// What a drive that serves cannot do now.
fn wait_of(member: &MemberStatus) -> Option<String> {
    let wait = member.wait.as_ref()?;
    let seconds = wait.lasts.as_secs();
    Some(format!("waits for {seconds} s: {}", wait.why))
}

/// The same, with what there is to do.
fn wait_warning(drive: &DriveStatus, member: &MemberStatus) -> Option<String> {
    let why = wait_of(member)?;
    Some(format!(
        "drive {} {why}. It is asked again until it can; writes wait, nothing is lost. Make room on the file \
         system that it lies on, or memory on this machine",
        drive_name(drive)
    ))
}

/// For how long a drive has not answered a request, if that is worth a word.
fn silent_seconds(replies: &DriveReplies) -> Option<u64> {
    let seconds = replies.oldest.map(|oldest| oldest.as_secs());
    seconds.filter(|&seconds| seconds > 0)
}

/// A drive that does not answer.
fn silence(drive: &DriveStatus, member: &MemberStatus) -> Option<String> {
    let seconds = drive.silent_seconds?;
    let name = match drive.spec.is_empty() {
        true => drive.id.to_string(),
        false => drive.spec.clone(),
    };
    let what = match (member.in_service, member.replies.is_awaited) {
        (true, true) => {
            "the pool cannot do without it and waits. Look at the drive and its path; if it does not come back, \
             end the daemon, bring the drive to answer or take it away, and start again"
        }
        (true, false) => {
            "reads go to other copies; writes wait until it answers or counts as failed"
        }
        (false, _) => "it is out of service",
    };
    Some(format!(
        "drive {name} has not answered for {seconds} s: {what}"
    ))
}

/// A drive in service that does not do what it should.
fn drive_warning(drive: &DriveStatus) -> Option<String> {
    let DriveErrors {
        read,
        write,
        checksum,
    } = drive.errors;
    if !serves(drive) || read + write + checksum == 0 {
        return None;
    }
    let name = drive_name(drive);
    Some(format!(
        "drive {name} is in service and has errors since the import: {read} reads and {write} writes failed, \
         {checksum} copies were bad. `pool scrub` finds and mends what else is; if it goes on, replace it"
    ))
}

fn serves(drive: &DriveStatus) -> bool {
    matches!(drive.state, DriveState::Online | DriveState::Evacuating)
}

/// What to do about a drive that does not serve.
fn way_out(pool: &str, drive: &DriveStatus) -> Option<String> {
    let state = match drive.state {
        DriveState::Online | DriveState::Evacuating => return None,
        DriveState::Missing => "missing",
        DriveState::Failed => "failed",
    };
    let name = drive_name(drive);
    // Options behind ? would be a shell's.
    Some(format!(
        "drive {name} is {state}: `pool replace {pool} --old '{name}' --new DEVICE` puts another in its place, \
         and `pool remove {pool} --drive '{name}'` does without it"
    ))
}

fn drive_name(drive: &DriveStatus) -> String {
    match drive.spec.is_empty() {
        true => drive.id.to_string(),
        false => drive.spec.clone(),
    }
}

/// Volumes that could ask for more than there is.
fn promise_warning(status: &Status, space: &SpaceStatus) -> Option<String> {
    let live = status.volumes.iter().filter(|volume| !volume.deleting);
    let promised: u64 = live.map(|volume| volume.granules * GRANULE).sum();
    (promised > space.advertised_bytes).then(|| {
        format!(
            "the volumes are promised {promised} bytes in all, and the pool can hold {} of them: once \
             it is full, writes fail, to volumes with room of their own, too",
            space.advertised_bytes
        )
    })
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
