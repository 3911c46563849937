//! Drives that were left out and are here again with what they had: only what is newer is written to them.
//!
//! The member stays left out until then, and roots say so: should the engine end, the next one begins anew. In
//! the meantime its columns are written like all others and not read. A walk ([`rebuild`](super)) over
//! the leaves of the map that have changed since the drive left verifies its copies of their slots, and mends
//! those that are old. Logs and the map's pages get their copies anew, for they are small.

use std::collections::VecDeque;

use ashlar_block::{ErrorKind, IoError};
use tracing::{debug, trace};

use super::Phase;
use super::recount::{A_TURN, Recount};
use crate::Canary;
use crate::comeback::{Comeback, Returning};
use crate::engine::Engine;
use crate::engine::extents::Extents;
use crate::engine::invariant::invariant;
use crate::engine::state::Drive;
use crate::engine::upkeep::reserve::Users;
use crate::format::{ChunkCopy, MemberState, PageId, Root};

/// Members that are on their way back, one at a time.
#[derive(Default)]
pub(crate) struct Returns {
    waiting: VecDeque<(Returning, Option<u64>)>,
    walking: Option<(Returning, Option<u64>)>,
    /// The drive that a walk is for has failed: the walk ends.
    is_cut: bool,
    /// Copies of the logs that there were before those on returning drives were given up.
    log_copies: usize,
    /// What the drive has in use, while it is counted.
    recount: Option<Recount>,
    /// Segments from this one on may take new slots again that could not be read.
    reopens_from: Option<u32>,
}

impl Returns {
    /// Members that an import has found.
    pub(in crate::engine) fn found(found: Vec<Returning>) -> Self {
        Self {
            waiting: found.into_iter().map(|one| (one, None)).collect(),
            ..Self::default()
        }
    }

    /// Whether a walk for one is to begin.
    pub(in crate::engine) fn is_wanted(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one is on its way back, or waits for that.
    pub(in crate::engine) fn is_busy(&self) -> bool {
        self.walking.is_some() || self.is_wanted()
    }

    /// Whether a walk is for one.
    pub(in crate::engine) fn is_walking(&self) -> bool {
        self.walking.is_some()
    }

    /// The member that a walk is for: it is written to, and not read but by the walk.
    pub(in crate::engine) fn member(&self) -> Option<usize> {
        self.walking.as_ref().map(|(one, _)| one.member)
    }

    /// Whether it is this one.
    pub(in crate::engine) fn is(&self, drive: usize) -> bool {
        self.member() == Some(drive)
    }

    /// Whether a member is on its way back, or waits for that.
    pub(in crate::engine) fn knows(&self, drive: usize) -> bool {
        self.is(drive) || self.waiting.iter().any(|(one, _)| one.member == drive)
    }

    /// Whether segments are about to take new slots again.
    pub(in crate::engine) fn is_reopening(&self) -> bool {
        self.reopens_from.is_some()
    }

    /// The sequence below which the member that a walk is for has every change.
    pub(in crate::engine) fn since(&self) -> Option<u64> {
        self.walking.as_ref().map(|(one, _)| one.since)
    }

    /// Copies that the logs should have, because they had them.
    pub(in crate::engine) fn log_copies(&self) -> usize {
        self.log_copies
    }

    /// A walk begins: what a failed drive has cut is over.
    pub(in crate::engine) fn walk_begins(&mut self) {
        self.is_cut = false;
        self.recount = None;
    }

    /// The one that was left out last: what others lack may be on it alone.
    fn take_newest(&mut self) -> Option<(Returning, Option<u64>)> {
        let all = self.waiting.iter().enumerate();
        let (newest, _) = all.max_by_key(|(_, (one, _))| one.since)?;
        self.waiting.remove(newest)
    }

    /// A drive has failed; whether it was on its way back, and who waits for it.
    fn drop(&mut self, drive: usize) -> Option<Option<u64>> {
        if self.is(drive) {
            self.is_cut = true;
            return self.walking.take().map(|(_, id)| id);
        }
        let at = self
            .waiting
            .iter()
            .position(|(one, _)| one.member == drive)?;
        self.waiting.remove(at).map(|(_, id)| id)
    }

    /// The engine has stopped: who waits.
    pub(in crate::engine) fn take_asked(&mut self) -> Vec<u64> {
        let walking = self.walking.take();
        let all = self.waiting.drain(..).chain(walking);
        all.filter_map(|(_, id)| id).collect()
    }
}

impl Engine {
    /// A drive that was left out is here again.
    pub(in crate::engine) fn readmit_drive(
        &mut self,
        id: u64,
        back: &Comeback,
    ) -> Result<(), IoError> {
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
        self.rebuild
            .returns
            .waiting
            .push_back((returning, Some(id)));
        self.base.again = true;
        Ok(())
    }

    /// Whether a walk may leave out a leaf of the map: a drive that returns has all that it says.
    pub(in crate::engine) fn is_old_to_returning(&self, leaf: PageId) -> bool {
        if self.identity.sings(Canary::ReadmitWithoutWalk) {
            return self.rebuild.returns.is_walking();
        }
        let mut since = self.rebuild.returns.since();
        if self.identity.sings(Canary::ReadmitSinceNow) {
            since = since.map(|_| self.journal.next_sequence());
        }
        since.is_some_and(|since| !self.map.has_changed_since(leaf, since))
    }

    /// A walk for the next drive that returns begins.
    pub(in crate::engine) fn begin_return(&mut self) {
        let Some((returning, id)) = self.rebuild.returns.take_newest() else {
            return invariant!(self, "no drive waits to return");
        };
        let member = returning.member;
        trace!(member, since = returning.since, "drive returns");
        let drive = Drive {
            geometry: returning.geometry,
            class: Some(returning.class),
        };
        self.space.drives.is_here(member, drive);
        self.rebuild.returns.walking = Some((returning, id));
        self.begin_walk_at(None);
    }

    /// Ends a walk for a drive that has failed meanwhile, once nothing of it is under way; whether it has.
    pub(in crate::engine) fn end_cut_return(&mut self) -> bool {
        let walks = matches!(
            self.rebuild.phase,
            Phase::AwaitingOlder | Phase::Walking | Phase::Recording
        );
        if !self.rebuild.returns.is_cut || !walks || self.rebuild.pending > 0 {
            return false;
        }
        self.rebuild.returns.is_cut = false;
        self.end_return();
        true
    }

    /// A drive on its way back has failed.
    pub(in crate::engine) fn return_failed(&mut self, drive: usize, error: &IoError) {
        let Some(asked) = self.rebuild.returns.drop(drive) else {
            return;
        };
        self.destage.drive_went(drive);
        debug!(member = drive, %error, "drive fails on its way back");
        self.space
            .drives
            .record_mut()
            .left_out(drive, error.to_string());
        if let Some(id) = asked {
            let kind = error.kind();
            let why = IoError::new(
                kind,
                format!("drive {drive} failed on its way back: {error}"),
            );
            self.out.managed.push((id, Err(why)));
        }
        self.base.again = true;
    }

    /// Everything newer is on the drive, flushed: it is a member like any other, once no root is on its way that
    /// names what it had of logs and pages.
    pub(in crate::engine) fn let_back_in(&mut self) {
        if !self.roots.is_idle() || self.raw.is_making() {
            return;
        }
        let Some(member) = self.rebuild.returns.member() else {
            return invariant!(self, "no drive is on its way back");
        };
        if self.rebuild.unmended > 0 {
            self.end_return();
            // Its columns are old there, and parity's have no checksum that would tell.
            let why = "what it lacks cannot be read from the others";
            let error = IoError::new(ErrorKind::Corrupt, why);
            return self.return_failed(member, &error);
        }
        if let Some(count) = self.recount(member as u16) {
            self.takes_part_again(member, count);
        }
    }

    fn takes_part_again(&mut self, member: usize, count: Recount) {
        self.end_return();
        let Some((_, id)) = self.rebuild.returns.walking.take() else {
            return invariant!(self, "the drive on its way back is gone");
        };
        self.rebuild.returns.log_copies = self.log_copies();
        self.give_up_copies(member as u16);
        let free = self.free_extents(count);
        self.space.drives.set_free(member, free);
        let extents = self.space.drives.extents(member);
        self.space.drives.set_state(member, MemberState::Active);
        debug!(member, "drive takes part again");
        self.raw_returned(member as u16);
        self.space.drives.record_mut().is_back(member);
        self.space.drives_changed();
        self.rebuild.returns.reopens_from = Some(0);
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

    fn end_return(&mut self) {
        self.rebuild.phase = Phase::Idle;
        self.base.again = true;
    }

    /// What a drive had of the logs and of the map's pages is old.
    fn give_up_copies(&mut self, drive: u16) {
        self.logs.leave_drive(drive);
        self.space.metadata.leave_drive(drive);
        self.roots.leave_drive(drive);
    }

    /// Counts some segments more for a drive that returns; what they have there, once all are counted.
    pub(in crate::engine) fn recount(&mut self, drive: u16) -> Option<Recount> {
        let begun = self.rebuild.returns.recount.take();
        let begun = begun.filter(|count| count.drive == drive);
        let mut count = begun.unwrap_or_else(|| Recount::of(drive));
        let is_done = self.recount_segments(&mut count, A_TURN);
        if !is_done {
            self.rebuild.returns.recount = Some(count);
            self.base.again = true;
            return None;
        }
        if cfg!(debug_assertions) {
            let mut at_once = Recount::of(drive);
            self.recount_segments(&mut at_once, usize::MAX);
            // Those whose free entry is not durable are counted by themselves.
            for (copy, extents) in self.space.upkeep.release().columns_and_extents() {
                count.take(copy, extents);
                at_once.take(copy, extents);
            }
            invariant!(
                self,
                count.taken == at_once.taken,
                "{:?} were counted on drive {drive}, but {:?} are in use",
                count.taken,
                at_once.taken
            );
        }
        Some(count)
    }

    /// Counts up to so many segments; whether there are no more.
    fn recount_segments(&self, count: &mut Recount, most: usize) -> bool {
        let mut left = self.space.segments.iter_from(count.next);
        for (id, _) in left.by_ref().take(most) {
            count.next = id + 1;
            self.recount_segment(count, id);
        }
        left.next().is_none()
    }

    fn recount_segment(&self, count: &mut Recount, id: u32) {
        if let Some(found) = self.space.segments.get(id) {
            let extents = found.shape.extents(self.identity.sizes());
            count.segment_changes(id, found.columns, extents);
        }
    }

    /// A segment has come into being, or has other columns.
    pub(in crate::engine) fn recount_changes(&mut self, id: u32) {
        if let Some(mut count) = self.rebuild.returns.recount.take() {
            self.recount_segment(&mut count, id);
            self.rebuild.returns.recount = Some(count);
        }
    }

    /// Extents are free that may have been counted.
    pub(in crate::engine) fn recount_gives(&mut self, copy: ChunkCopy) {
        if let Some(count) = &mut self.rebuild.returns.recount {
            count.give(copy);
        }
    }

    /// The free extents of a drive, by what its segments have and by all else that names it: that is little.
    pub(in crate::engine) fn free_extents(&self, mut count: Recount) -> Extents {
        let sizes = self.identity.sizes();
        let root = self.roots.durable();
        let chunks = self.logs.chunks();
        let chunks = chunks.chain(&root.ring.chunks).chain(&root.map.chunks);
        let chunks = chunks.flat_map(|chunk| &chunk.copies);
        let chunks = chunks.map(|&copy| (copy, sizes.chunk_extents));
        let meta = self.space.metadata.segments().iter().chain(&root.meta);
        let meta = meta.flat_map(|segment| &segment.columns);
        let raw = self.raw.all_columns();
        let whole = meta.copied().chain(raw);
        let whole = whole.map(|copy| (copy, sizes.segment_extents()));
        let made = self.space.segments.coming().flat_map(|(class, columns)| {
            let extents = class.shape_of(columns.len()).extents(sizes);
            columns.iter().map(move |&copy| (copy, extents))
        });
        let freed = self.space.upkeep.release().columns_and_extents();
        for (copy, extents) in chunks.chain(whole).chain(made).chain(freed) {
            count.take(copy, extents);
        }
        let mut extents = Extents::new(self.space.drives.extents(usize::from(count.drive)));
        for (first, length) in count.taken {
            extents.claim(first, length);
        }
        extents
    }

    /// Some more of the segments that could not be read without the drive that is back take new slots again.
    pub(in crate::engine) fn reopen_segments(&mut self) {
        if let Some(from) = self.rebuild.returns.reopens_from.take() {
            self.reopen_segments_from(from);
        }
    }

    fn reopen_segments_from(&mut self, from: u32) {
        let ids = self.space.segments.iter_from(from).take(A_TURN);
        let ids: Vec<u32> = ids.map(|(id, _)| id).collect();
        if let (Some(last), A_TURN) = (ids.last(), ids.len()) {
            self.rebuild.returns.reopens_from = Some(last + 1);
            self.base.again = true;
        }
        for id in ids {
            if self.space.is_readable(id) {
                self.space.segments.reopen(id);
            }
        }
    }
}

/// Takes a drive's copy out, unless it is the only one.
pub(in crate::engine) fn without(copies: &mut Vec<ChunkCopy>, drive: u16) {
    if copies.len() > 1 {
        copies.retain(|copy| copy.drive != drive);
    }
}

/// The same in all that a root names.
pub(in crate::engine) fn root_without(root: &mut Root, drive: u16) {
    let chunks = root.ring.chunks.iter_mut().chain(&mut root.map.chunks);
    chunks.for_each(|chunk| without(&mut chunk.copies, drive));
    root.meta
        .iter_mut()
        .for_each(|segment| without(&mut segment.columns, drive));
}
