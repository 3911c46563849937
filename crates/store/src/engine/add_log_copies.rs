//! More copies of the logs and the map, for the first volume that survives more losses than they do:
//! it is made once they are there, durably.

use ashlar_block::{ErrorKind, IoError};

use super::Engine;
use crate::format::{ChunkCopy, VolumeEntry, VolumeState};
use crate::manage::VolumePlan;

/// Volumes that wait for more copies of the logs.
#[derive(Default)]
pub(crate) struct AddLogCopies {
    /// Copies that the logs should have for the volumes that there are, or that wait, whatever they
    /// have had.
    wanted: usize,
    waiting: Vec<(u64, VolumePlan)>,
}

impl AddLogCopies {
    /// Copies that the logs should have for volumes.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Whether a volume waits for them.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Engine {
    /// Copies of logs and map that a layout's promise takes: one more than the losses it survives.
    fn copies_for(plan: &VolumePlan) -> usize {
        usize::from(plan.layout.survives()) + 1
    }

    /// Whether the logs have to be copied more often before a volume can be made. What volumes that
    /// there are promise already, the pool keeps or is mending.
    pub(super) fn needs_log_copies(&self, plan: &VolumePlan) -> bool {
        let copies = Self::copies_for(plan);
        let kept = copies <= self.add_log_copies.wanted || self.has_log_copies(copies);
        !kept || self.add_log_copies.is_waiting()
    }

    /// Makes a volume when the logs have the copies that it needs.
    pub(super) fn make_when_copied(&mut self, id: u64, plan: VolumePlan) {
        self.add_log_copies.waiting.push((id, plan));
        self.want_copies_of_volumes();
        self.heal();
    }

    /// What the volumes that there are need, and those that wait.
    pub(super) fn want_copies_of_volumes(&mut self) {
        let there = |entry: &&VolumeEntry| entry.state != VolumeState::Gone;
        let there = self.volumes.values().filter(there);
        let there = there.map(|entry| usize::from(entry.layout.survives()) + 1);
        let waiting = self.add_log_copies.waiting.iter();
        let waiting = waiting.map(|(_, plan)| Self::copies_for(plan));
        self.add_log_copies.wanted = there.chain(waiting).max().unwrap_or(0);
    }

    /// Makes the volumes whose copies are there; refuses them when no more can be made.
    pub(super) fn advance_log_copies(&mut self) {
        let moving = self.map.is_renewing() || self.roots.is_healing();
        if !self.add_log_copies.is_waiting() || moving || self.is_leaving_pages() {
            return;
        }
        let waiting = std::mem::take(&mut self.add_log_copies.waiting);
        // One that is refused wants nothing any more.
        self.want_copies_of_volumes();
        for (id, plan) in waiting {
            // What lacks copies finds no room for them, or nothing lacks any that a root would bring.
            let made = match self.has_log_copies(Self::copies_for(&plan)) {
                true => self.create_volume(id, plan),
                // A drive may have gone meanwhile.
                false => self.space.drives.check_layout(plan.layout, plan.class).and(Err(IoError::new(
                    ErrorKind::NoSpace,
                    format!(
                        "{} needs {} copies of the pool's logs: the drives have no room for them",
                        plan.layout,
                        Self::copies_for(&plan)
                    ),
                ))),
            };
            if let Err(error) = made {
                self.out.managed.push((id, Err(error)));
            }
        }
    }

    /// Whether pages that have moved are still read where they were.
    fn is_leaving_pages(&self) -> bool {
        let mut closed = self.space.metadata.closed();
        closed.any(|id| !self.space.metadata.is_emptied(id))
    }

    /// Whether every part of the logs and of the map has so many copies, by the durable root. It may
    /// still name metadata segments that hold nothing any more: those leave with the next one.
    fn has_log_copies(&self, wanted: usize) -> bool {
        let root = self.roots.durable();
        let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
        let chunks = chunks.map(|chunk| &chunk.copies[..]);
        let segments = root.meta.iter();
        let segments = segments.filter(|segment| !self.space.metadata.is_emptied(segment.id));
        let segments = segments.map(|segment| &segment.columns[..]);
        let enough = |copies: &[ChunkCopy]| self.space.drives.serving(copies).len() >= wanted;
        chunks.chain(segments).all(enough)
    }

    /// The engine has stopped: what waits is refused.
    pub(super) fn fail_log_copies(&mut self, why: &str) {
        for (id, _) in std::mem::take(&mut self.add_log_copies.waiting) {
            let error = IoError::new(ErrorKind::Latched, why.to_owned());
            self.out.managed.push((id, Err(error)));
        }
    }
}
