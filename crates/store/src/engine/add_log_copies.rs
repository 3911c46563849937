//! More copies of the logs and the map, for the first volume that survives more losses than they do:
//! it is made once they are there, durably.

use ashlar_block::{ErrorKind, IoError};

use super::roots::Roots;
use super::space::Space;
use super::volumes::VolumeTable;
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

    /// A volume is to be made when the logs have the copies that it needs.
    pub(super) fn push(&mut self, id: u64, plan: VolumePlan) {
        self.waiting.push((id, plan));
    }

    /// What the volumes that there are need, and those that wait.
    pub(super) fn want_those_of(&mut self, volumes: &VolumeTable) {
        let there = |entry: &&VolumeEntry| entry.state != VolumeState::Gone;
        let there = volumes.values().filter(there);
        let there = there.map(|entry| usize::from(entry.layout.survives()) + 1);
        let waiting = self.waiting.iter().map(|(_, plan)| copies_for(plan));
        self.wanted = there.chain(waiting).max().unwrap_or(0);
    }

    /// The volumes that wait, which then want nothing any more.
    pub(super) fn take_waiting(&mut self, volumes: &VolumeTable) -> Vec<(u64, VolumePlan)> {
        let waiting = std::mem::take(&mut self.waiting);
        self.want_those_of(volumes);
        waiting
    }

    /// The engine has stopped: who waits.
    pub(super) fn take_asked(&mut self) -> Vec<u64> {
        self.waiting.drain(..).map(|(id, _)| id).collect()
    }
}

impl Roots {
    /// Whether the logs have to be copied more often before a volume can be made. What volumes that
    /// there are promise already, the pool keeps or is mending.
    pub(super) fn needs_log_copies(&self, plan: &VolumePlan, space: &Space) -> bool {
        let copies = copies_for(plan);
        let kept = copies <= self.add_log_copies.wanted() || self.have_log_copies(copies, space);
        !kept || self.add_log_copies.is_waiting()
    }

    /// Refuses a volume that needs more copies of the logs than there are.
    pub(super) fn check_log_copies(&self, plan: &VolumePlan, space: &Space) -> Result<(), IoError> {
        let copies = copies_for(plan);
        if self.have_log_copies(copies, space) {
            return Ok(());
        }
        // A drive may have gone meanwhile.
        space.drives.check_layout(plan.layout, plan.class)?;
        let why = format!(
            "{} needs {copies} copies of the pool's logs: the drives have no room for them",
            plan.layout,
        );
        Err(IoError::new(ErrorKind::NoSpace, why))
    }

    /// Whether every part of the logs and of the map has so many copies, by the durable root. It may
    /// still name metadata segments that hold nothing any more: those leave with the next one.
    fn have_log_copies(&self, wanted: usize, space: &Space) -> bool {
        let root = self.durable();
        let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
        let chunks = chunks.map(|chunk| &chunk.copies[..]);
        let segments = root.meta.iter();
        let segments = segments.filter(|segment| !space.metadata.is_emptied(segment.id));
        let segments = segments.map(|segment| &segment.columns[..]);
        let enough = |copies: &[ChunkCopy]| space.drives.serving(copies).len() >= wanted;
        chunks.chain(segments).all(enough)
    }
}

/// Copies of logs and map that a layout's promise takes: one more than the losses it survives.
fn copies_for(plan: &VolumePlan) -> usize {
    usize::from(plan.layout.survives()) + 1
}
