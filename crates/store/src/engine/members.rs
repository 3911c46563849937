//! Roots, and the members they name. A drive that fails a write is out: from then on nothing is
//! acknowledged until the others hold a root that says so, for it may come back with an older past.

use std::collections::BTreeSet;

use ashlar_block::{Durability, ErrorKind, Geometry, IoError, Request};
use tracing::{debug, trace};
use uuid::Uuid;

use super::features::FeatureRoots;
use super::invariant::invariant;
use super::readmit::root_without;
use super::space::DriveStates;
use super::state::Drive;
use super::{Engine, Owner};
use crate::Canary;
use crate::format::{ChunkCopy, DriveClass, LogId, MAX_MEMBERS, Member, MemberState, Root};
use crate::membership::{Membership, Remembered};
use crate::sizes::ROOT_AT;

/// Members of a pool that is to run out of numbers.
const FEW_MEMBERS: usize = 6;

const MINORITY: &str = "fewer than half of the drives are left, and the others may go on without these. Bring \
     them and import the pool again, or import it with --degraded only if you know that they have not";

/// What roots are at.
pub(crate) struct Roots {
    /// The last one that every member in service holds.
    durable: Root,
    writing: Option<Writing>,
    members_due: bool,
    checkpoint_due: bool,
    scrub_due: bool,
    /// Drives that were emptied and let go, until a root that says so is durable, on them too: should another
    /// drive be lost meanwhile, they still count, or the rest would be a minority of those that the root before names.
    parting: Vec<usize>,
    /// A log chunk lacks copies that another drive could hold.
    healing: bool,
    /// Who waits for the members to be durable.
    pub(super) waiting: Vec<u64>,
    remembered: Remembered,
    /// What roots say that the pool uses.
    pub(super) features: FeatureRoots,
}

struct Writing {
    root: Root,
    purpose: Purpose,
    pending: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Checkpoint,
    Members,
    /// How far a scrub has come: nothing waits for it.
    Scrub,
    /// What the pool is to use: only that waits for it.
    Features,
}

impl Roots {
    pub(crate) fn new(durable: Root, remembered: Option<Vec<Membership>>) -> Self {
        Self {
            features: FeatureRoots::new(durable.features),
            durable,
            writing: None,
            members_due: false,
            checkpoint_due: false,
            scrub_due: false,
            parting: Vec::new(),
            healing: false,
            waiting: Vec::new(),
            remembered: Remembered::new(remembered),
        }
    }

    /// Whether no root is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.writing.is_none()
    }

    /// The next root names other members.
    pub(super) fn change_members(&mut self) {
        self.members_due = true;
    }

    /// What a drive had of logs and pages is named by no later root.
    pub(super) fn leave_drive(&mut self, drive: u16) {
        root_without(&mut self.durable, drive);
    }

    /// The last one that every member in service holds.
    pub(super) fn durable(&self) -> &Root {
        &self.durable
    }

    /// Copies that every log chunk should have.
    fn copies(&self) -> usize {
        let chunks = self
            .durable
            .ring
            .chunks
            .iter()
            .chain(&self.durable.map.chunks);
        chunks.map(|chunk| chunk.copies.len()).max().unwrap_or(1)
    }
}

/// A drive that is to be a member.
pub(super) struct NewDrive {
    pub(super) drive: Uuid,
    pub(super) geometry: Geometry,
    pub(super) class: DriveClass,
}

/// Whether a root names copies on a drive.
fn names(root: &Root, drive: u16) -> bool {
    let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
    let chunks = chunks.flat_map(|chunk| &chunk.copies);
    let meta = root.meta.iter().flat_map(|segment| &segment.columns);
    chunks.chain(meta).any(|copy| copy.drive == drive)
}

impl Engine {
    /// Whether what is written now may be acknowledged: no drive has left without the others
    /// knowing it durably.
    pub(super) fn membership_is_durable(&self) -> bool {
        let writing = self.roots.writing.as_ref();
        !self.roots.members_due && writing.is_none_or(|w| w.purpose != Purpose::Members)
    }

    /// Whether no root is written, and so nothing acknowledged, until the node has stored which drives are left: it would
    /// let in the others.
    pub fn waits_for_its_node(&self) -> bool {
        self.roots.members_due
            && self
                .roots
                .remembered
                .lets_in_without(&self.next_membership())
            && !self.identity.sings(Canary::AcknowledgeBeforeRemembered)
    }

    /// The drives that the next root names.
    fn next_membership(&self) -> Membership {
        Membership {
            generation: self.drives.generation() + 1,
            ..Membership::of(&Root {
                members: self.drives.members().to_vec(),
                ..self.roots.durable.clone()
            })
        }
    }

    fn hand(&mut self, membership: Membership) {
        let next = self.roots.remembered.hand(membership);
        self.out.membership = next.or(self.out.membership.take());
    }

    /// Hands the node what it is to remember now that a root is durable; of the import's it has been told.
    fn hand_membership(&mut self) {
        if self.membership_is_durable() {
            self.hand(Membership::of(&self.roots.durable));
        }
    }

    /// The node has stored it.
    pub(super) fn membership_stored(&mut self, membership: Membership) {
        self.roots.remembered.stored(membership);
    }

    fn answer_members_durable(&mut self) {
        if self.membership_is_durable() {
            let waiting = std::mem::take(&mut self.roots.waiting).into_iter();
            let done = waiting.map(|id| (id, Ok(crate::manage::Managed::Done)));
            self.out.managed.extend(done);
        }
    }

    pub(super) fn in_service(&self, drive: u16) -> bool {
        self.drives.in_service(drive)
    }

    /// Whether a drive may still be asked for something: one that was let go is, until that is durable.
    pub fn uses(&self, member: usize) -> bool {
        self.serves(member) || self.rebuild.returns.knows(member)
    }

    /// The same, but for one that is on its way back.
    pub(super) fn serves(&self, member: usize) -> bool {
        self.in_service(member as u16) || self.roots.parting.contains(&member)
    }

    /// Those copies whose drives are in service.
    pub(super) fn serving(&self, copies: &[ChunkCopy]) -> Vec<ChunkCopy> {
        let copies = copies.iter().copied();
        copies.filter(|copy| self.in_service(copy.drive)).collect()
    }

    /// Whether a drive is in service and not being emptied.
    pub(super) fn stays(&self, drive: u16) -> bool {
        self.drives.stays(drive)
    }

    /// Those copies whose drives stay.
    pub(super) fn staying(&self, copies: &[ChunkCopy]) -> Vec<ChunkCopy> {
        let copies = copies.iter().copied();
        copies.filter(|copy| self.stays(copy.drive)).collect()
    }

    /// A copy on this drive did not verify, or could not be read.
    pub(super) fn note_bad(&mut self, drive: usize) {
        if !self.in_service(drive as u16) {
            // What it did not answer says nothing of what it holds.
            return;
        }
        self.counters.bad_copies += 1;
        self.drives.record_mut().note_bad(drive);
    }

    /// Copies on a drive that did not verify, or could not be read, since the import.
    pub fn bad_copies(&self, member: usize) -> u64 {
        self.drives.record().bad_copies(member)
    }

    /// The number that the next drive gets: one more than there are, and when all have been given, that of a drive
    /// that is out and that nothing names any more.
    pub fn next_member(&self) -> Option<u16> {
        let most = match self.identity.sings(Canary::FewMembers) {
            true => FEW_MEMBERS,
            false => MAX_MEMBERS,
        };
        let count = self.drives.count();
        if count < most {
            return Some(count as u16);
        }
        if self.raw.is_making() {
            return None;
        }
        let referred = self.referred();
        let durable = self.roots.durable();
        (0..count as u16).find(|&drive| {
            let index = usize::from(drive);
            // What the old drive still answers must not be taken for the new one's.
            let asked = self.uses(index) || self.drive_io.has_any(index);
            let is_free = !referred.contains(&drive) && self.upkeep.discards().taken(index) == 0;
            !asked && is_free && !names(durable, drive) && self.roots.is_idle()
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
        let mut members = self.drives.members().iter();
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
        self.drives.join(index, member, Drive { geometry, class });
        self.drives_changed();
        self.restore_reserve(extents);
        self.stops_admission_check();
        self.members_changed(id);
        self.repair_now();
        Ok(())
    }

    /// What the next root says of the members is to be durable before an order is answered.
    pub(super) fn members_changed(&mut self, id: u64) {
        self.roots.members_due = true;
        self.roots.waiting.push(id);
    }

    /// Begins to empty a drive.
    pub(super) fn remove_drive(&mut self, id: u64, member: usize) -> Result<(), IoError> {
        let refuse = |why: String| Err(IoError::new(ErrorKind::InvalidRequest, why));
        let drive = member as u16;
        if member >= self.drives.count() {
            return refuse(format!("the pool has no drive {member}"));
        }
        if let Some(volume) = self.raw.volume_on(drive) {
            let name = self.volumes.get(&volume).map_or("", |entry| &entry.name);
            return refuse(format!(
                "drive {member} holds a part of volume {name}, of which nothing has a copy: \
                 delete the volume first"
            ));
        }
        let others = self.drives.numbers().filter(|&one| one != drive);
        let staying = others.filter(|&one| self.stays(one)).count();
        let needed = self.widest_on(None).max(self.log_copies());
        let media = self.media_of(member).filter(|_| self.in_service(drive));
        let own = media.map_or(0, |_| self.widest_on(media));
        if let Some(class) = media.filter(|_| self.stays(drive))
            && self.staying_of(media) <= own
        {
            let left = self.staying_of(media) - 1;
            return refuse(format!(
                "without drive {member} the pool has {left} drives of class {class}, and what is on them \
                 needs {own}: add one first"
            ));
        }
        if self.in_service(drive) && staying < needed {
            return refuse(format!(
                "without drive {member} the pool has {staying} drives, and what it holds needs {needed}: \
                 add one first"
            ));
        }
        if self.in_service(drive) {
            self.check_move_budget(0)?;
            // Goes on after a restart, so it is answered when the root says so.
            debug!(member, "drive is to leave");
            self.drives.set_state(member, MemberState::Leaving);
            self.drives_changed();
            self.members_changed(id);
            self.spread_reserve();
            self.repair_now();
        } else {
            let removed = IoError::new(ErrorKind::Aborted, "it was removed");
            self.return_failed(member, &removed);
            self.out
                .managed
                .push((id, Ok(crate::manage::Managed::Done)));
        }
        Ok(())
    }

    /// Drives that segments of volumes have columns on.
    pub(super) fn homes_on(&self) -> BTreeSet<u16> {
        self.segments.drives().collect()
    }

    /// Drives that anything is on, or was until just now.
    pub(super) fn referred(&self) -> BTreeSet<u16> {
        let chunks = self.logs.chunks().flat_map(|chunk| &chunk.copies);
        let meta = self.metadata.segments().iter();
        let meta = meta.flat_map(|segment| &segment.columns);
        let made = self.segments.coming().flat_map(|(_, columns)| columns);
        let copies = chunks.chain(meta).chain(made).copied();
        let copies = copies.chain(self.upkeep.release().columns());
        let mut drives = self.homes_on();
        drives.extend(copies.map(|copy| copy.drive));
        drives.extend(self.rebuild.joining.values().map(|join| join.column.drive));
        let all = self.drives.numbers();
        let raw = all.filter(|&drive| self.raw.is_on(drive));
        drives.extend(raw);
        drives
    }

    /// Drives that hold nothing any more leave the pool.
    pub(super) fn let_go_emptied(&mut self) {
        let all = self.drives.numbers();
        let leaves = |&drive: &u16| self.in_service(drive) && !self.stays(drive);
        let mut leaving: Vec<u16> = all.filter(leaves).collect();
        if leaving.is_empty() {
            return;
        }
        let referred = self.referred();
        leaving.retain(|drive| !referred.contains(drive));
        for drive in leaving {
            debug!(member = drive, "drive is emptied and leaves");
            let why = "it was emptied and removed";
            let drive = usize::from(drive);
            self.drives.record_mut().left_out(drive, why.to_owned());
            self.destage.drive_went(drive);
            self.drives.set_state(drive, MemberState::Excluded);
            self.roots.parting.push(drive);
            self.roots.members_due = true;
        }
        self.drives_changed();
    }

    /// A drive that was let go has failed before that was durable.
    fn parting_failed(&mut self, drive: usize, error: &IoError) {
        let parting = self.roots.parting.len();
        self.roots.parting.retain(|&one| one != drive);
        if self.roots.parting.len() < parting && self.is_minority() {
            self.fail(format!(
                "drive {drive} failed ({error}) as it left the pool: {MINORITY}"
            ));
        }
    }

    /// A drive did not do what it was told: it is out.
    pub(super) fn drive_failed(&mut self, drive: usize, error: &IoError) {
        let Some(&member) = self.drives.member(drive) else {
            return invariant!(self, "member {drive} has failed, but there is none");
        };
        self.destage.drive_went(drive);
        if member.state == MemberState::Excluded {
            self.return_failed(drive, error);
            return self.parting_failed(drive, error);
        }
        let (id, stayed) = (member.drive, member.state == MemberState::Active);
        let extents = if stayed { member.extents } else { 0 };
        self.drives.set_state(drive, MemberState::Excluded);
        debug!(member = drive, %error, "drive fails and is left out");
        self.drives_changed();
        self.drives.record_mut().left_out(drive, error.to_string());
        if let Some(what) = self.lost_for_good() {
            return self.fail(format!(
                "drive {id} failed ({error}), and it held the last copy of {what}: once it can be used again, \
                 import the pool again"
            ));
        }
        if self.is_minority() {
            return self.fail(format!("drive {id} failed ({error}): {MINORITY}"));
        }
        self.roots.members_due = true;
        self.heal();
        if self.close_lost_segments() {
            self.reserve_for_lost_homes();
        }
        self.rebuild_wanted();
        self.spend_reserve(extents);
        self.stops_admission_check();
    }

    /// Whether an import of the drives that have gone, without those that are left, would be let
    /// through: then nothing may be acknowledged here any more.
    pub(super) fn is_minority(&self) -> bool {
        let members = self.roots.durable.members.iter().enumerate();
        let known = members.filter(|(_, member)| member.state.in_service());
        let known: Vec<usize> = known.map(|(drive, _)| drive).collect();
        // One that has just joined is in no root that those have.
        let here = known.iter().filter(|&&drive| self.serves(drive));
        here.count() * 2 < known.len()
    }

    /// Nothing more is put where too few columns are left to read it; whether there is such a place that is new.
    pub(super) fn close_lost_segments(&mut self) -> bool {
        let mut any = false;
        for id in self.segments.ids() {
            any |= self.close_if_lost(id);
        }
        any
    }

    /// The same of one segment.
    pub(super) fn close_if_lost(&mut self, id: u32) -> bool {
        !self.is_readable(id) && self.segments.close(id)
    }

    /// Drives have come, gone, or are to leave: what counts segments by their drives is told.
    pub(super) fn drives_changed(&mut self) {
        let all = self.drives.numbers();
        let states = DriveStates {
            serving: all.map(|drive| self.in_service(drive)).collect(),
            staying: self.usable(),
        };
        self.segments.set_drives(&states);
    }

    /// Segments that were looked at for whatever there was to do, since the import.
    #[doc(hidden)]
    pub fn segment_steps(&self) -> u64 {
        self.segments.steps() + self.raw.steps()
    }

    /// What the pool cannot go on without and has no copy of any more.
    pub(super) fn lost_for_good(&self) -> Option<&'static str> {
        let lost = |copies: &[ChunkCopy]| !copies.iter().any(|copy| self.in_service(copy.drive));
        for (name, log) in [("the data ring", LogId::Ring), ("the map log", LogId::Map)] {
            let mut chunks = self.logs.chunks_of(log).iter();
            if chunks.any(|chunk| lost(&chunk.copies)) {
                return Some(name);
            }
        }
        let mut segments = self.metadata.segments().iter();
        segments
            .any(|segment| lost(&segment.columns) && !self.metadata.is_emptied(segment.id))
            .then_some("the map")
    }

    /// Copies that log chunks and metadata segments should have.
    pub(super) fn log_copies(&self) -> usize {
        let had = self.rebuild.returns.log_copies();
        self.roots
            .copies()
            .max(self.add_log_copies.wanted())
            .max(had)
    }

    /// Logs and map get back the copies that they lack, at once: they are small, and the pool cannot
    /// go on without them.
    pub(super) fn heal(&mut self) {
        self.roots.healing = self.needs_healing();
        self.want_renewal();
        self.look_for_emptied();
    }

    /// A checkpoint's pages are flushed: its root may be written.
    pub(super) fn root_due(&mut self) {
        self.roots.checkpoint_due = true;
    }

    /// Writes the next root, if one is due and none is on its way.
    pub(super) fn advance_roots(&mut self) {
        if self.roots.writing.is_some() {
            return;
        }
        if self.waits_for_its_node() {
            return self.hand(self.next_membership());
        }
        if std::mem::take(&mut self.roots.members_due) {
            let root = Root {
                next_sequence: self.journal.next_sequence(),
                members: self.drives.members().to_vec(),
                reserve: self.upkeep.kept().wish(),
                scrub: self.scrub_at(),
                ..self.roots.durable.clone()
            };
            self.write_root(root, Purpose::Members);
        } else if std::mem::take(&mut self.roots.checkpoint_due) {
            self.heal_logs();
            let root = self.checkpoint_root();
            self.write_root(root, Purpose::Checkpoint);
        } else if std::mem::take(&mut self.roots.scrub_due) {
            let root = Root {
                next_sequence: self.journal.next_sequence(),
                scrub: self.scrub_at(),
                ..self.roots.durable.clone()
            };
            self.write_root(root, Purpose::Scrub);
        } else if self.roots.features.are_due() {
            let root = Root {
                next_sequence: self.journal.next_sequence(),
                ..self.roots.durable.clone()
            };
            self.write_root(root, Purpose::Features);
        }
    }

    /// How far a scrub has come is to be remembered.
    pub(super) fn remember_scrub(&mut self) {
        self.roots.scrub_due = true;
    }

    fn write_root(&mut self, mut root: Root, purpose: Purpose) {
        let generation = self.drives.next_generation();
        self.counters.roots += 1;
        trace!(generation, ?purpose, "root written");
        root.generation = generation;
        root.features = self.roots.features.wanted();
        let bytes = match root.encode(self.identity.salt()) {
            Ok(bytes) => bytes,
            Err(error) => return self.fail(error.to_string()),
        };
        let mut drives = self.active();
        drives.extend(&self.roots.parting);
        let at = ROOT_AT[(generation % 2) as usize];
        self.roots.writing = Some(Writing {
            root,
            purpose,
            pending: drives.len(),
        });
        for drive in drives {
            let Some(mut buffer) = self.buffer(bytes.len()) else {
                return;
            };
            buffer.copy_from_slice(&bytes);
            let range = self.range(drive, at, bytes.len());
            self.send(drive, Owner::Root, |tag| {
                Request::write(tag, range, buffer, Durability::Durable)
            });
        }
    }

    pub(super) fn root_written(&mut self, drive: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        let Some(writing) = &mut self.roots.writing else {
            return invariant!(self, "a root is written, but none was on its way");
        };
        writing.pending -= 1;
        if writing.pending > 0 || self.failed.is_some() {
            return;
        }
        let Some(Writing { root, purpose, .. }) = self.roots.writing.take() else {
            return invariant!(self, "a root has gone while it was looked at");
        };
        let stays = |drive: &usize| {
            root.members
                .get(*drive)
                .is_some_and(|m| m.state.in_service())
        };
        self.roots.parting.retain(stays);
        trace!(generation = root.generation, ?purpose, "root durable");
        self.roots.features.are_durable(root.features);
        // What drives are given that join.
        self.identity.set_features(root.features);
        self.roots.durable = root;
        self.logs.go_on();
        self.hand_membership();
        self.answer_members_durable();
        if purpose == Purpose::Checkpoint {
            self.checkpoint_rooted();
            self.roots.healing = self.needs_healing();
        }
        self.advance_roots();
        self.publish_durable();
    }

    pub(super) fn active(&self) -> Vec<usize> {
        let all = self.drives.numbers();
        let active = all.filter(|&drive| self.in_service(drive));
        active.map(usize::from).collect()
    }

    /// Whether logs should be emptied and rooted, so that their chunks get back the copies they
    /// lack.
    pub(super) fn is_healing(&self) -> bool {
        self.roots.healing
    }

    fn needs_healing(&self) -> bool {
        let copies = self.log_copies();
        self.logs.chunks().any(|chunk| {
            let few = self.staying(&chunk.copies).len() < copies;
            few && self.spare_for(&chunk.copies).is_some()
        })
    }

    /// A drive in service without one of these copies and with room for another chunk.
    fn spare_for(&self, copies: &[ChunkCopy]) -> Option<usize> {
        let extents = self.identity.sizes().chunk_extents;
        let free = |&drive: &usize| {
            self.stays(drive as u16)
                && self.drives.free(drive).free() >= self.map_extents(drive) + extents
                && self.drives.free(drive).has_run(extents)
                && !copies.iter().any(|copy| usize::from(copy.drive) == drive)
        };
        self.best_for_logs(self.active().into_iter().filter(free))
    }

    /// Gives chunks that hold nothing the copies they lack. They are in force with the root that is
    /// about to be written, and until then nothing new is appended.
    fn heal_logs(&mut self) {
        if !self.roots.healing {
            return;
        }
        for log in [LogId::Ring, LogId::Map] {
            for chunk in self.logs.hold(log) {
                self.heal_chunk(log, chunk);
            }
        }
    }

    fn heal_chunk(&mut self, log: LogId, chunk: usize) {
        let wanted = self.log_copies();
        let old = self.logs.chunks_of(log)[chunk].copies.clone();
        let mut copies = self.staying(&old);
        while copies.len() < wanted {
            let Some(drive) = self.spare_for(&copies) else {
                break;
            };
            let Some(extent) = self.drives.take(drive, self.identity.sizes().chunk_extents) else {
                break;
            };
            copies.push(ChunkCopy {
                drive: drive as u16,
                extent,
            });
        }
        // Better on a drive that is to leave than nowhere.
        for copy in self.serving(&old) {
            if copies.len() < wanted && !copies.contains(&copy) {
                copies.push(copy);
            }
        }
        if !copies.is_empty() {
            self.logs.set_copies(log, chunk, copies);
        }
    }
}
