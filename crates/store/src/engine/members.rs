//! Members: drives that join, leave, fail, come back, or do not answer. One that fails a write is out: from then on
//! nothing is acknowledged until the others hold a root that says so, for it may come back with an older past.

mod holding;

use ashlar_block::{ErrorKind, Geometry, IoError, Operation};
use tracing::{debug, trace};
use uuid::Uuid;

use super::drive_io::Unsent;
use super::drive_io::deadline::not_sent;
use super::drive_io::flights::Slow;
use super::drive_io::waits::Refused;
use super::invariant::invariant;
use super::read::columns::StripsOf;
use super::rebuild::readmit::{Named, free_extents};
use super::space::recount::Recount;
use super::state::Drive;
use super::{Engine, Owner};
use crate::Canary;
use crate::comeback::Comeback;
use crate::engine::upkeep::reserve::Users;
use crate::format::{DriveClass, MAX_MEMBERS, Member, MemberState};
use holding::Holding;

/// Members of a pool that is to run out of numbers.
const FEW_MEMBERS: usize = 6;

const MINORITY: &str = "fewer than half of the drives are left, and the others may go on without these. Bring \
     them and import the pool again, or import it with --degraded only if you know that they have not";

/// A drive that is to be a member.
pub(super) struct NewDrive {
    pub(super) drive: Uuid,
    pub(super) geometry: Geometry,
    pub(super) class: DriveClass,
}

impl Engine {
    pub(super) fn holding(&self) -> Holding<'_> {
        Holding {
            space: &self.space,
            logs: &self.logs,
            rebuild: &self.rebuild,
            raw: &self.raw,
            volumes: &self.volumes,
        }
    }

    /// Copies on a drive that did not verify, or could not be read, since the import.
    pub fn bad_copies(&self, member: usize) -> u64 {
        self.space.drives.record().bad_copies(member)
    }

    /// The number that the next drive gets: one more than there are, and when all have been given, that of a drive
    /// that is out and that nothing names any more.
    pub fn next_member(&self) -> Option<u16> {
        let most = match self.identity.sings(Canary::FewMembers) {
            true => FEW_MEMBERS,
            false => MAX_MEMBERS,
        };
        let count = self.space.drives.count();
        if count < most {
            return Some(count as u16);
        }
        if self.raw.is_making() {
            return None;
        }
        let referred = self.holding().drives();
        (0..count as u16).find(|&drive| {
            let index = usize::from(drive);
            // What the old drive still answers must not be taken for the new one's.
            let asked = self.uses(index) || self.base.drive_io.has_any(index);
            let is_free =
                !referred.contains(&drive) && self.space.upkeep.discards().taken(index) == 0;
            !asked && is_free && !self.roots.name(drive)
        })
    }

    /// A drive that has this pool's label becomes a member.
    pub(super) fn add_drive(&mut self, id: u64, number: u16, new: NewDrive) -> Result<(), IoError> {
        let NewDrive {
            drive,
            geometry,
            class,
        } = new;
        let refuse = |why: String| Err(IoError::new(ErrorKind::InvalidRequest, why));
        let mut members = self.space.drives.members().iter();
        if members.any(|member| member.drive == drive) {
            return refuse(format!("drive {drive} is in the pool already"));
        }
        if self.next_member() != Some(number) {
            return refuse(format!(
                "drive {drive} cannot be member {number}: the pool has {MAX_MEMBERS} drives, or what it has of one \
                 that is out is still being made again elsewhere"
            ));
        }
        self.check_move_budget(0)?;
        let extents = self.identity.sizes().drive_extents(geometry.bytes());
        debug!(member = number, %drive, "drive joins");
        let index = usize::from(number);
        let member = Member {
            drive,
            state: MemberState::Active,
            extents,
        };
        let class = Some(class);
        self.space
            .drives
            .join(index, member, Drive { geometry, class });
        self.space.drives_changed();
        self.space.restore_reserve(
            extents,
            Users {
                volumes: &self.volumes,
                rebuild: &self.rebuild,
            },
        );
        self.volumes
            .stops_admission_check(&self.space, &self.rebuild);
        self.roots.change_members_for(id);
        self.repair_now();
        Ok(())
    }

    /// Begins to empty a drive.
    pub(super) fn remove_drive(&mut self, id: u64, member: usize) -> Result<(), IoError> {
        let refuse = |why: String| Err(IoError::new(ErrorKind::InvalidRequest, why));
        let drive = member as u16;
        if member >= self.space.drives.count() {
            return refuse(format!("the pool has no drive {member}"));
        }
        if let Some(volume) = self.raw.volume_on(drive) {
            let name = self.volumes.get(&volume).map_or("", |entry| &entry.name);
            return refuse(format!(
                "drive {member} holds a part of volume {name}, of which nothing has a copy: \
                 delete the volume first"
            ));
        }
        let others = self.space.drives.numbers().filter(|&one| one != drive);
        let staying = others.filter(|&one| self.space.drives.stays(one)).count();
        let needed = self.holding().widest_on(None).max(self.log_copies());
        let media = self
            .space
            .drives
            .class(member)
            .filter(|_| self.space.drives.in_service(drive));
        let own = media.map_or(0, |_| self.holding().widest_on(media));
        if let Some(class) = media.filter(|_| self.space.drives.stays(drive))
            && self.space.drives.staying_of(media) <= own
        {
            let left = self.space.drives.staying_of(media) - 1;
            return refuse(format!(
                "without drive {member} the pool has {left} drives of class {class}, and what is on them \
                 needs {own}: add one first"
            ));
        }
        if self.space.drives.in_service(drive) && staying < needed {
            return refuse(format!(
                "without drive {member} the pool has {staying} drives, and what it holds needs {needed}: \
                 add one first"
            ));
        }
        if self.space.drives.in_service(drive) {
            self.check_move_budget(0)?;
            // Goes on after a restart, so it is answered when the root says so.
            debug!(member, "drive is to leave");
            self.space.drives.set_state(member, MemberState::Leaving);
            self.space.drives_changed();
            self.roots.change_members_for(id);
            self.space.spread_reserve(Users {
                volumes: &self.volumes,
                rebuild: &self.rebuild,
            });
            self.repair_now();
        } else {
            let removed = IoError::new(ErrorKind::Aborted, "it was removed");
            self.return_failed(member, &removed);
            self.base.answer(id, Ok(crate::manage::Managed::Done));
        }
        Ok(())
    }

    /// Drives that hold nothing any more leave the pool.
    pub(super) fn let_go_emptied(&mut self) {
        let all = self.space.drives.numbers();
        let leaves =
            |&drive: &u16| self.space.drives.in_service(drive) && !self.space.drives.stays(drive);
        let mut leaving: Vec<u16> = all.filter(leaves).collect();
        if leaving.is_empty() {
            return;
        }
        let referred = self.holding().drives();
        leaving.retain(|drive| !referred.contains(drive));
        for drive in leaving {
            debug!(member = drive, "drive is emptied and leaves");
            let why = "it was emptied and removed";
            let drive = usize::from(drive);
            self.space
                .drives
                .record_mut()
                .left_out(drive, why.to_owned());
            self.destage.drive_went(drive);
            self.space.drives.set_state(drive, MemberState::Excluded);
            self.roots.let_go(drive);
        }
        self.space.drives_changed();
    }

    /// A drive did not do what it was told: it is out.
    pub(super) fn drive_failed(&mut self, drive: usize, error: &IoError) {
        let Some(&member) = self.space.drives.member(drive) else {
            return invariant!(self.base, "member {drive} has failed, but there is none");
        };
        self.destage.drive_went(drive);
        if member.state == MemberState::Excluded {
            self.return_failed(drive, error);
            if self.roots.parting_failed(drive) && self.is_minority() {
                self.fail(format!(
                    "drive {drive} failed ({error}) as it left the pool: {MINORITY}"
                ));
            }
            return;
        }
        let (id, stayed) = (member.drive, member.state == MemberState::Active);
        let extents = if stayed { member.extents } else { 0 };
        self.space.drives.set_state(drive, MemberState::Excluded);
        debug!(member = drive, %error, "drive fails and is left out");
        self.space.drives_changed();
        self.space
            .drives
            .record_mut()
            .left_out(drive, error.to_string());
        if let Some(what) = self.holding().lost_for_good() {
            return self.fail(format!(
                "drive {id} failed ({error}), and it held the last copy of {what}: once it can be used again, \
                 import the pool again"
            ));
        }
        if self.is_minority() {
            return self.fail(format!("drive {id} failed ({error}): {MINORITY}"));
        }
        self.roots.change_members();
        self.heal();
        if self.space.close_lost_segments() {
            self.destage().1.reserve_for_lost_homes();
        }
        self.rebuild.want_columns(self.base.now);
        self.space.spend_reserve(
            extents,
            Users {
                volumes: &self.volumes,
                rebuild: &self.rebuild,
            },
        );
        self.volumes
            .stops_admission_check(&self.space, &self.rebuild);
    }

    /// Copies that log chunks and metadata segments should have.
    pub(super) fn log_copies(&self) -> usize {
        let had = self.rebuild.returns().log_copies();
        self.roots.copies().max(had)
    }
}

/// Drives that come back.
impl Engine {
    /// A drive that was left out is here again.
    pub(super) fn readmit_drive(&mut self, id: u64, back: &Comeback) -> Result<(), IoError> {
        let drive = back.label.drive;
        let refuse = |why: String| {
            let why = format!("drive {drive} cannot take part again with what it has: {why}");
            IoError::new(ErrorKind::InvalidRequest, why)
        };
        let returning = back.returning(self.roots.durable()).map_err(refuse)?;
        let member = returning.member;
        if self.uses(member) || self.base.drive_io.has_any(member) {
            return Err(refuse(
                "it still has requests that it has not answered".into(),
            ));
        }
        debug!(member, %drive, since = returning.since, "drive is here again");
        self.rebuild.returns_mut().push(returning, id);
        self.base.again = true;
        Ok(())
    }

    /// A walk for the next drive that returns begins.
    pub(super) fn begin_return(&mut self) {
        let Some(returning) = self.rebuild.returns_mut().begin_newest() else {
            return invariant!(self.base, "no drive waits to return");
        };
        let member = returning.member;
        trace!(member, since = returning.since, "drive returns");
        let drive = Drive {
            geometry: returning.geometry,
            class: Some(returning.class),
        };
        self.space.drives.is_here(member, drive);
        self.map.look_again();
        self.walk_step(|rebuild, others, around| {
            rebuild.begin_walk_at(None, others, around.space);
        });
    }

    /// A drive on its way back has failed.
    fn return_failed(&mut self, drive: usize, error: &IoError) {
        let Some(asked) = self.rebuild.returns_mut().drop(drive) else {
            return;
        };
        self.destage.drive_went(drive);
        debug!(member = drive, %error, "drive fails on its way back");
        let record = self.space.drives.record_mut();
        record.left_out(drive, error.to_string());
        if let Some(id) = asked {
            let why = format!("drive {drive} failed on its way back: {error}");
            self.base.answer(id, Err(IoError::new(error.kind(), why)));
        }
        self.base.again = true;
    }

    /// Everything newer is on the drive, flushed: it is a member like any other, once no root is on its way that
    /// names what it had of logs and pages.
    pub(super) fn let_back_in(&mut self) {
        if !self.roots.is_idle() || self.raw.is_making() {
            return;
        }
        let Some(member) = self.rebuild.returns().member() else {
            return invariant!(self.base, "no drive is on its way back");
        };
        if self.rebuild.has_losses() {
            self.rebuild.end_return();
            // Its columns are old there, and parity's have no checksum that would tell.
            let why = "what it lacks cannot be read from the others";
            let error = IoError::new(ErrorKind::Corrupt, why);
            return self.return_failed(member, &error);
        }
        if let Some(count) = self.space.recount(member as u16, &mut self.base) {
            self.takes_part_again(member, count);
        }
    }

    fn takes_part_again(&mut self, member: usize, count: Recount) {
        let (drive, copies) = (member as u16, self.log_copies());
        self.rebuild.end_return();
        self.base.again = true;
        let Some(id) = self.rebuild.returns_mut().end(copies) else {
            return invariant!(self.base, "the drive on its way back is gone");
        };
        // What it had of the logs and of the map's pages is old.
        self.logs.leave_drive(drive);
        self.space.metadata.leave_drive(drive);
        self.roots.leave_drive(drive);
        let named = Named {
            root: self.roots.durable(),
            logs: &self.logs,
            raw: &self.raw,
        };
        let free = free_extents(count, &self.space, &named);
        self.space.drives.set_free(member, free);
        let extents = self.space.drives.extents(member);
        self.space.drives.set_state(member, MemberState::Active);
        debug!(member, "drive takes part again");
        self.raw.drive_returned(drive, &self.space.drives);
        self.space.drives.record_mut().is_back(member);
        self.space.drives_changed();
        self.space.begin_reopening();
        self.space.restore_reserve(
            extents,
            Users {
                volumes: &self.volumes,
                rebuild: &self.rebuild,
            },
        );
        self.volumes
            .stops_admission_check(&self.space, &self.rebuild);
        match id {
            Some(id) => self.roots.change_members_for(id),
            None => self.roots.change_members(),
        }
        self.space.look_at_empty();
        self.repair_now();
    }
}

/// Drives that do not answer. A read goes to another copy before the drive's time is over. A drive whose time is over is
/// out, as after a failed write. Only a drive that the pool cannot do without is waited for.
impl Engine {
    /// Does what there is to do about requests that drives have had for long.
    pub(super) fn watch_drives(&mut self) {
        while let Some(unsent) = self.base.drive_io.next_unsent() {
            self.answer_unsent(unsent);
        }
        self.base.drive_io.look_at_clock(self.base.now);
        while let Some(unsent) = self.ask_again() {
            self.answer_unsent(unsent);
        }
        while let Some(Slow { tag, drive, asked }) = self.base.drive_io.next_slow(self.base.now) {
            // A read of a host looks for another copy; everything else waits.
            if let Some(asked) = asked
                && self.read_elsewhere(asked.owner, drive)
            {
                self.base.drive_io.has_gone_elsewhere(tag, &asked, drive);
            }
        }
        while let Some(drive) = self.base.drive_io.overdue(self.base.now) {
            self.time_is_over(drive);
        }
    }

    fn ask_again(&mut self) -> Option<Unsent> {
        let (roots, returns) = (&self.roots, self.rebuild.returns());
        let drives = &self.space.drives;
        let uses = |drive| roots.serves(drive, drives) || returns.knows(drive);
        self.base.ask_again(uses)
    }

    fn answer_unsent(&mut self, unsent: Unsent) {
        let error = not_sent(unsent.drive);
        self.answered(unsent.drive, unsent.owner, unsent.buffer, Err(error));
    }

    /// Has a host's read go on without a drive; false if it is something else, or cannot.
    fn read_elsewhere(&mut self, owner: Owner, drive: usize) -> bool {
        match owner {
            Owner::ReadPart { op, at } => {
                self.read_step(|reads, around| reads.part_elsewhere(op, at, around))
            }
            Owner::ReadStrips { op, first } => {
                let of = StripsOf { op, first, drive };
                self.read_step(|reads, around| reads.strips_elsewhere(of, around))
            }
            _ => false,
        }
    }

    fn time_is_over(&mut self, drive: usize) {
        let may_leave = self.base.failed.is_some() || self.can_do_without(drive);
        if !may_leave {
            return self.base.drive_io.await_drive(drive, self.base.now);
        }
        let seconds = self.base.drive_io.timeout().as_secs_f64();
        let error = || IoError::new(ErrorKind::Timeout, format!("no answer for {seconds} s"));
        let ignores = self.identity.sings(Canary::TimeoutCountsAsDone);
        if self.base.failed.is_none() && !ignores {
            self.drive_failed(drive, &error());
        }
        for asked in self.base.drive_io.give_up(drive) {
            let owner = asked.owner;
            let result = match ignores && !owner.is_read() {
                true => Ok(()),
                false => Err(error()),
            };
            self.answered(drive, owner, None, result);
        }
    }

    /// A drive could not do something now. A host's read goes to another copy.
    pub(super) fn wait_out(&mut self, refused: Refused, error: &IoError) {
        let (owner, drive, op) = (refused.asked.owner, refused.drive, refused.asked.op);
        if self.read_elsewhere(owner, drive) {
            return self.base.drive_io.is_over(&refused.asked, drive);
        }
        if self.identity.sings(Canary::NoSpaceCountsAsDone) && op != Operation::Read {
            return self.answered(drive, owner, refused.buffer, Ok(()));
        }
        if let Err(error) = self.base.ask_later(refused, error) {
            self.answered(drive, owner, None, Err(error));
        }
    }

    /// Whether the pool can go on without a drive. What only that drive has is not reached either way.
    fn can_do_without(&mut self, drive: usize) -> bool {
        // As if it were out.
        let Some(state) = self.space.drives.set_state(drive, MemberState::Excluded) else {
            return true;
        };
        let can = state == MemberState::Excluded
            || self.holding().lost_for_good().is_none() && !self.is_minority();
        self.space.drives.set_state(drive, state);
        can
    }
}
