//! Drives that join a pool, are replaced or leave it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ashlar_device::Spec;
use ashlar_store::format::DriveClass;
use ashlar_store::{HomeStatus, Layout, Manage, MemberStatus, Status};
use tracing::warn;

use super::pools::engine;
use super::status::{members, name_of};
use super::{Kept, KnownDrive, LivePool, PoolManager, live};
use crate::model::{ControlError, PoolStatus, ReplaceDrive, readable_bytes};
use crate::pool::{CreatedFiles, Joined, View, add, fit, open_drives, readmit, split_class};

/// What the engine says where a removal only lacks another drive.
const LACKS_A_DRIVE: &str = "add one first";

impl PoolManager {
    pub(super) fn refuse_drives_in_use(
        &self,
        pools: &BTreeMap<String, Kept>,
        wanted: &[String],
    ) -> Result<(), ControlError> {
        for (name, kept) in pools {
            let Kept::Live(pool) = kept else { continue };
            let view = pool.link.view().ok();
            // One that is out of service is closed, and free for something else.
            let is_out = |index: usize| {
                let member = view
                    .as_ref()
                    .and_then(|view| view.status.members.get(index));
                member.is_some_and(|member| !member.in_service && !member.returning)
            };
            let theirs = pool.drives.iter().enumerate();
            let theirs = theirs.filter(|(index, drive)| drive.is_here && !is_out(*index));
            let theirs = theirs.map(|(_, drive)| drive).chain(&pool.joining);
            let theirs: Vec<_> = theirs.map(|drive| &drive.spec).collect();
            if let Some(drive) = wanted.iter().find(|drive| theirs.contains(drive)) {
                return Err(ControlError::conflict(format!(
                    "drive {drive} is in pool {name}"
                )));
            }
        }
        Ok(())
    }

    /// Learns what has become of drives whose joining was not answered in time.
    pub(super) fn take_in(&self, name: &str, kept: &mut Kept) {
        let Kept::Live(pool) = kept else { return };
        if pool.joining.is_empty() {
            return;
        }
        // As long as it does not answer, that is unknown.
        let Ok(view) = pool.link.view() else { return };
        pool.take_in(&view.status.members);
        if let Err(error) = self.remember(name, pool) {
            warn!(pool = name, "pool {name}: {}", error.message);
        }
    }

    fn take_in_all(&self, pools: &mut BTreeMap<String, Kept>) {
        for (name, kept) in pools {
            self.take_in(name, kept);
        }
    }

    pub(super) fn grow_pool(
        &self,
        name: &str,
        spec: &str,
        destroy_data: bool,
    ) -> Result<PoolStatus, ControlError> {
        let mut pools = self.lock();
        self.take_in_all(&mut pools);
        let new = [spec.to_owned()];
        self.refuse_drives_in_use(&pools, &new)?;
        let pool = live(&pools, name)?;
        let created = CreatedFiles::watch(&pools, &new);
        let drives = open_drives(&new, self.opening(false))?;
        if !destroy_data && let Some(id) = readmit(&pool.link, &drives)? {
            created.keep();
            let is_it = |known: &&mut KnownDrive| known.id == id;
            if let Some(Kept::Live(pool)) = pools.get_mut(name)
                && let (Some(known), Some(drive)) =
                    (pool.drives.iter_mut().find(is_it), drives.first())
            {
                *known = KnownDrive::open(id, drive);
                self.remember(name, pool)?;
            }
            return Ok(self.pool_status(name, &pools[name]));
        }
        // Before it is a member: after a crash the pool must be found with it.
        let enlisted = || self.remember_with(name, pool, Some(spec));
        let joined = match add(&pool.link, &drives, destroy_data, enlisted) {
            Ok(joined) => joined,
            Err(error) => {
                self.remember(name, pool)?;
                return Err(error);
            }
        };
        created.keep();
        let (id, late) = match joined {
            Joined::Member(id) => (id, None),
            Joined::Unknown(id, error) => (id, Some(error)),
        };
        if let (Some(Kept::Live(pool)), Some(drive)) = (pools.get_mut(name), drives.first()) {
            pool.joining.push(KnownDrive::open(id, drive));
            if let Some(mut error) = late {
                error.message = format!(
                    "{}: drive {spec} may become a member of pool {name} yet, and is kept for it; `pool status` \
                     tells",
                    error.message
                );
                return Err(error);
            }
            let view = pool.link.view().map_err(engine)?;
            pool.take_in(&view.status.members);
            self.remember(name, pool)?;
        }
        Ok(self.pool_status(name, &pools[name]))
    }

    /// Adds a drive and removes another. A removal that would be refused is refused before the new
    /// drive is touched.
    pub(super) fn swap_drive(
        &self,
        name: &str,
        request: &ReplaceDrive,
    ) -> Result<PoolStatus, ControlError> {
        let member = self.member(name, &request.old)?;
        let smaller = self.refuse_unfit(name, member, request)?;
        let mut status = self.exchange(name, member, request)?;
        if let Some(smaller) = smaller {
            warn!(pool = name, "pool {name}: {smaller}");
            status.warnings.insert(0, smaller);
        }
        Ok(status)
    }

    fn exchange(
        &self,
        name: &str,
        member: usize,
        request: &ReplaceDrive,
    ) -> Result<PoolStatus, ControlError> {
        if !self.may_carry_stripe(name, member)? {
            self.grow_pool(name, &request.new, request.destroy_data)?;
            return self.evacuate(name, member);
        }
        // Only the engine knows where such a volume is, and it is asked by an order: one that it
        // takes is carried out.
        match self.evacuate(name, member) {
            Err(error) if error.message.contains(LACKS_A_DRIVE) => {
                self.grow_pool(name, &request.new, request.destroy_data)?;
                self.evacuate(name, member)
            }
            Err(error) => Err(error),
            Ok(_) => self
                .grow_pool(name, &request.new, request.destroy_data)
                .map_err(|mut error| {
                    error.message = format!(
                        "{} (drive {} is being emptied all the same)",
                        error.message, request.old
                    );
                    error
                }),
        }
    }

    /// Refuses what can be told to fail without a change of anything. Says so if the new drive is smaller than the old.
    fn refuse_unfit(
        &self,
        name: &str,
        member: usize,
        request: &ReplaceDrive,
    ) -> Result<Option<String>, ControlError> {
        let mut pools = self.lock();
        self.take_in_all(&mut pools);
        let new = [request.new.clone()];
        self.refuse_drives_in_use(&pools, &new)?;
        // A file that is made for this look goes with it: another order may come before the drive joins.
        let _created = CreatedFiles::watch(&pools, &new);
        let drives = open_drives(&new, self.opening(false))?;
        fit(&drives, request.destroy_data)?;
        let status = live(&pools, name)?.link.view().map_err(engine)?.status;
        refuse_too_few(&status, member, &request.old)?;
        let (Some(old), Some(new)) = (status.members.get(member), drives.first()) else {
            return Ok(None);
        };
        let sizes = &status.label.sizes;
        let extents = sizes.drive_extents(new.opener.geometry().bytes());
        let bytes = u64::from(extents) * sizes.extent_bytes();
        let room = Room {
            bytes,
            class: Some(new.class),
        };
        if old.in_service && !holds_the_rest(&status, member, room) {
            return Err(ControlError::usage(format!(
                "drive {} has {} for the pool, and with it in place of drive {} what the pool holds has no room: \
                 take a larger one, or delete something first. Nothing was changed",
                request.new,
                readable_bytes(bytes),
                request.old
            )));
        }
        Ok((bytes < old.bytes).then(|| {
            format!(
                "drive {} is smaller than drive {}, which it replaces: {} instead of {}. The pool can hold less than \
                 before",
                request.new,
                request.old,
                readable_bytes(bytes),
                readable_bytes(old.bytes)
            )
        }))
    }

    /// Whether a part of a pass-through volume may be on a drive, from which nothing takes it away.
    fn may_carry_stripe(&self, name: &str, member: usize) -> Result<bool, ControlError> {
        let status = live(&self.lock(), name)?.link.view();
        let status = status.map_err(engine)?.status;
        let mut volumes = status.volumes.iter();
        let has_some = volumes.any(|volume| matches!(volume.layout, Layout::Stripe { .. }));
        Ok(has_some && status.members.get(member).is_some_and(|one| one.holds))
    }

    pub(super) fn empty_drive(&self, name: &str, drive: &str) -> Result<PoolStatus, ControlError> {
        let member = self.member(name, drive)?;
        self.evacuate(name, member)
    }

    fn evacuate(&self, name: &str, member: usize) -> Result<PoolStatus, ControlError> {
        if let Err(mut error) = self.order(name, Manage::RemoveDrive { member }) {
            if let Ok(pool) = live(&self.lock(), name) {
                error.message = with_name(&error.message, member, &name_of(pool, member));
            }
            return Err(error);
        }
        let mut pools = self.lock();
        if let Some(Kept::Live(pool)) = pools.get_mut(name) {
            if let Some(drive) = pool.drives.get_mut(member) {
                drive.removed = true;
            }
            self.remember_drives(pool)?;
        }
        match pools.get(name) {
            Some(kept) => Ok(self.pool_status(name, kept)),
            None => Err(ControlError::not_found(format!("there is no pool {name}"))),
        }
    }

    /// The member that a text names: by identity, or as the drive was named.
    fn member(&self, name: &str, drive: &str) -> Result<usize, ControlError> {
        let mut pools = self.lock();
        self.take_in_all(&mut pools);
        let pool = live(&pools, name)?;
        let view = pool.link.view().map_err(engine)?;
        let is_named = |(index, member): &(usize, &MemberStatus)| {
            let known = pool.drives.get(*index);
            member.drive.to_string() == drive || known.is_some_and(|known| known.spec == drive)
        };
        // A drive that was removed and added again has been a member twice.
        let found = members(pool, &view).filter(is_named);
        let found = found.max_by_key(|(index, member)| (member.in_service, *index));
        let found = found.map(|(index, _)| index);
        found
            .or_else(|| by_path(pool, &view, drive))
            .ok_or_else(|| {
                let theirs = members(pool, &view).map(|(index, _)| name_of(pool, index));
                let theirs = theirs.collect::<Vec<_>>().join(", ");
                ControlError::not_found(format!(
                    "pool {name} has no drive {drive}; it has {theirs}"
                ))
            })
    }
}

/// The one member whose file or device is at the path that a text names, whatever options its own text has.
fn by_path(pool: &LivePool, view: &View, text: &str) -> Option<usize> {
    let path = path_of(text)?;
    let is_there = |(index, _): &(usize, &MemberStatus)| {
        let known = pool.drives.get(*index);
        known.and_then(|known| path_of(&known.spec)).as_ref() == Some(&path)
    };
    let mut found = members(pool, view).filter(is_there);
    let (index, _) = found.next()?;
    found.next().is_none().then_some(index)
}

/// The path of a drive that is one file or device.
fn path_of(text: &str) -> Option<PathBuf> {
    let (plain, _) = split_class(text).ok()?;
    match plain.parse().ok()? {
        Spec::File(options) => Some(options.path),
        _ => None,
    }
}

impl LivePool {
    /// Puts drives that have become members among those that are known by index. The engine takes
    /// or refuses a drive at once, so that an answer to a later question settles it.
    pub(super) fn take_in(&mut self, members: &[MemberStatus]) {
        let joining = std::mem::take(&mut self.joining);
        for (index, member) in members.iter().enumerate() {
            let place = self.drives.get_mut(index);
            if place.as_ref().is_some_and(|known| known.id == member.drive) {
                continue;
            }
            let known = joining.iter().find(|known| known.id == member.drive);
            let known = known.cloned();
            let known = known.unwrap_or_else(|| KnownDrive::missing(member.drive, None));
            match place {
                // The number was another's, which is out.
                Some(place) => *place = known,
                None => self.drives.push(known),
            }
        }
    }
}

/// Whether a drive was removed as it was to be: nothing is on it any more, and it is not shown.
pub(super) fn is_gone(pool: &LivePool, index: usize, member: &MemberStatus) -> bool {
    let removed = pool.drives.get(index).is_some_and(|drive| drive.removed);
    removed && !member.in_service && !member.holds
}

/// What a drive has for a pool.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) bytes: u64,
    pub(super) class: Option<DriveClass>,
}

/// Whether what a pool holds may fit with a drive of such room in place of a member's. No where it cannot: each layout
/// has its columns on different drives, of its class if it has one, and all of them have what is in use now.
pub(super) fn holds_the_rest(status: &Status, member: usize, new: Room) -> bool {
    let members = status.members.iter().enumerate();
    let others = members.filter(|(index, one)| *index != member && one.in_service && !one.leaving);
    let mut room: Vec<Room> = others
        .map(|(_, one)| Room {
            bytes: one.bytes,
            class: one.class,
        })
        .collect();
    room.push(new);
    let served = status.members.iter().filter(|one| one.in_service);
    let used: u64 = served.map(|one| one.used_bytes).sum();
    let fits = |home: &HomeStatus| {
        let (columns, parts) = match home.layout {
            Layout::Mirror { copies } => (copies, 1),
            Layout::Parity { data, parity } => (data + parity, data),
            Layout::Stripe { .. } => return true,
        };
        let column = home.used_bytes / u64::from(parts.max(1));
        let may_be = |room: &&Room| home.class.is_none() || room.class == home.class;
        let theirs = room.iter().filter(may_be);
        let there: u64 = theirs.map(|room| room.bytes.min(column)).sum();
        there >= column * u64::from(columns)
    };
    used <= room.iter().map(|room| room.bytes).sum() && status.homes.iter().all(fits)
}

/// Refuses a replacement after which the pool would have fewer drives than what it holds takes. One
/// that is out of service may always be replaced.
pub(super) fn refuse_too_few(
    status: &Status,
    member: usize,
    old: &str,
) -> Result<(), ControlError> {
    if !status.members.get(member).is_some_and(|one| one.in_service) {
        return Ok(());
    }
    let others = status.members.iter().enumerate();
    let others = others.filter(|(index, one)| *index != member && one.in_service && !one.leaving);
    let staying = others.count() + 1;
    let homes = status.homes.iter().filter(|home| home.used_bytes > 0);
    let columns = homes.map(|home| match home.layout {
        Layout::Mirror { copies } => usize::from(copies),
        Layout::Parity { data, parity } => usize::from(data) + usize::from(parity),
        Layout::Stripe { .. } => 1,
    });
    let needed = columns.max().unwrap_or(1).max(status.log_copies.into());
    if staying >= needed {
        return Ok(());
    }
    Err(ControlError::usage(format!(
        "with another in place of drive {old} the pool has {staying} drives, and what it holds needs \
         {needed}: add one first"
    )))
}

/// A text of the engine, which knows drives by their indices, with a drive's name.
fn with_name(text: &str, member: usize, name: &str) -> String {
    text.replace(&format!("drive {member} "), &format!("drive {name} "))
}
