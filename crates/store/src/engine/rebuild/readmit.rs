//! Drives that were left out and are here again with what they had: only what is newer is written to them.
//!
//! The member stays left out until then, and roots say so: should the engine end, the next one begins anew. In
//! the meantime its columns are written like all others and not read. A walk ([`rebuild`](super)) over
//! the leaves of the map that have changed since the drive left verifies its copies of their slots, and mends
//! those that are old. Logs and the map's pages get their copies anew, for they are small.

use std::collections::VecDeque;

use super::{Phase, Rebuild};
use crate::Canary;
use crate::comeback::Returning;
use crate::engine::extents::Extents;
use crate::engine::identity::Identity;
use crate::engine::journal::Journal;
use crate::engine::journal::logs::Logs;
use crate::engine::map::Map;
use crate::engine::raw::Raw;
use crate::engine::space::Space;
use crate::engine::space::recount::Recount;
use crate::format::{ChunkCopy, PageId, Root};

/// Members that are on their way back, one at a time.
#[derive(Default)]
pub(crate) struct Returns {
    waiting: VecDeque<(Returning, Option<u64>)>,
    walking: Option<(Returning, Option<u64>)>,
    /// The drive that a walk is for has failed: the walk ends.
    is_cut: bool,
    /// Copies of the logs that there were before those on returning drives were given up.
    log_copies: usize,
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
    }

    /// A member is here again, by an order.
    pub(in crate::engine) fn push(&mut self, returning: Returning, id: u64) {
        self.waiting.push_back((returning, Some(id)));
    }

    /// Begins with the one that was left out last: what others lack may be on it alone.
    pub(in crate::engine) fn begin_newest(&mut self) -> Option<&Returning> {
        let all = self.waiting.iter().enumerate();
        let (newest, _) = all.max_by_key(|(_, (one, _))| one.generation)?;
        self.walking = self.waiting.remove(newest);
        self.walking.as_ref().map(|(one, _)| one)
    }

    /// The one that a walk is for takes part again; returns the order, if one has waited for it. Logs had so many copies.
    pub(in crate::engine) fn end(&mut self, log_copies: usize) -> Option<Option<u64>> {
        let (_, id) = self.walking.take()?;
        self.log_copies = log_copies;
        Some(id)
    }

    /// Whether a walk may leave out a leaf of the map: a drive that returns has all that it says.
    pub(in crate::engine) fn have_all_of(&self, leaf: PageId, around: Told<'_>) -> bool {
        if around.identity.sings(Canary::ReadmitWithoutWalk) {
            return self.is_walking();
        }
        let mut since = self.since();
        if around.identity.sings(Canary::ReadmitSinceNow) {
            since = since.map(|_| around.journal.next_sequence());
        }
        since.is_some_and(|since| !around.map.has_changed_since(leaf, since))
    }

    /// A drive has failed; whether it was on its way back, and who waits for it.
    pub(in crate::engine) fn drop(&mut self, drive: usize) -> Option<Option<u64>> {
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

/// What tells when leaves of the map have changed.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Told<'a> {
    pub(in crate::engine) identity: &'a Identity,
    pub(in crate::engine) journal: &'a Journal,
    pub(in crate::engine) map: &'a Map,
}

impl Rebuild {
    /// Ends a walk for a drive that has failed meanwhile, once nothing of it is under way; whether it has.
    pub(in crate::engine) fn end_cut_return(&mut self) -> bool {
        let walks = matches!(
            self.phase,
            Phase::AwaitingOlder | Phase::Walking | Phase::Recording
        );
        if !self.returns.is_cut || !walks || self.pending > 0 {
            return false;
        }
        self.returns.is_cut = false;
        self.end_return();
        true
    }

    /// The walk for a drive that returns is over.
    pub(in crate::engine) fn end_return(&mut self) {
        self.phase = Phase::Idle;
    }

    /// Whether this walk has found what no copy is good of, or could not see all slots.
    pub(in crate::engine) fn has_losses(&self) -> bool {
        self.unmended > 0 || !self.hidden.is_empty()
    }
}

/// What names extents beside segments of volumes with homes.
pub(in crate::engine) struct Named<'a> {
    pub(in crate::engine) root: &'a Root,
    pub(in crate::engine) logs: &'a Logs,
    pub(in crate::engine) raw: &'a Raw,
}

/// The free extents of a drive, by what its segments have and by all else that names it: that is little.
pub(in crate::engine) fn free_extents(
    mut count: Recount,
    space: &Space,
    named: &Named<'_>,
) -> Extents {
    let (sizes, root) = (space.sizes(), named.root);
    let chunks = named.logs.chunks();
    let chunks = chunks.chain(&root.ring.chunks).chain(&root.map.chunks);
    let chunks = chunks.flat_map(|chunk| &chunk.copies);
    let chunks = chunks.map(|&copy| (copy, sizes.chunk_extents));
    let meta = space.metadata.segments().iter().chain(&root.meta);
    let meta = meta.flat_map(|segment| &segment.columns);
    let whole = meta.copied().chain(named.raw.all_columns());
    let whole = whole.map(|copy| (copy, sizes.segment_extents()));
    let made = space.segments.coming().flat_map(|(class, columns)| {
        let extents = class.shape_of(columns.len()).extents(sizes);
        columns.iter().map(move |&copy| (copy, extents))
    });
    let freed = space.upkeep.release().columns_and_extents();
    for (copy, extents) in chunks.chain(whole).chain(made).chain(freed) {
        count.take(copy, extents);
    }
    count.free(space)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DriveClass;
    use ashlar_block::{BlockSize, Geometry};

    /// One that was back just before it was lost again has all to be looked at, and may have alone what others lack.
    #[test]
    fn the_drive_that_was_left_out_last_comes_first() {
        let returning = |member, since, generation| Returning {
            member,
            since,
            generation,
            geometry: Geometry::plain(BlockSize::B4096, 1 << 20),
            class: DriveClass::Nvme,
        };
        let found = vec![returning(1, 700, 8), returning(2, 0, 9), returning(3, 5, 4)];
        let mut returns = Returns::found(found);
        for member in [2, 1, 3] {
            assert_eq!(returns.begin_newest().map(|one| one.member), Some(member));
        }
    }
}
