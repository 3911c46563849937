//! Extents that are free are discarded on their drives: a file loses its blocks, flash need not keep what
//! nothing reads. One request at a time, paced, and only where the drive gives space back.
//!
//! Free means here what it means to what takes an extent next: nothing durable refers to it, no reader is
//! left. While a drive discards a run, it is taken like any other; it comes back when the drive has answered, so
//! nothing is written there meanwhile. What needs all the room there is waits for it: it takes a moment. None begins
//! while a volume waits for copies of the logs, for which a drive that discards all it has free would have no room.
//!
//! What a crash leaves undiscarded, the next import finds among all that is free.

use std::collections::VecDeque;
use std::time::Duration;

use ashlar_block::{BlockRange, IoError, Moment, Operation, Request};

use crate::Canary;
use crate::engine::{Engine, Owner};
use crate::format::ChunkCopy;
use crate::manage::Manage;

/// Most bytes of a request: a drive must answer it in its time.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes a second that are discarded.
const PACE: u64 = 2 << 30;
/// Least time between two requests.
const BREATH: Duration = Duration::from_millis(2);

/// Extents side by side on a drive.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Run {
    drive: usize,
    first: u32,
    count: u32,
}

/// What is to be discarded.
#[derive(Default)]
pub(crate) struct Discards {
    waiting: VecDeque<Run>,
    /// The one that a drive has.
    on_way: Option<Run>,
    due: Option<Moment>,
    /// Wishes that need all the room there is.
    held: Vec<(u64, Manage)>,
    /// Bytes discarded since the import.
    bytes: u64,
}

impl Discards {
    /// Extents of a drive that are free, and with the drive.
    pub(in crate::engine) fn taken(&self, drive: usize) -> u32 {
        let on_way = self.on_way.filter(|run| run.drive == drive);
        on_way.map_or(0, |run| run.count)
    }

    /// Whether room will come back.
    pub(in crate::engine) fn is_under_way(&self) -> bool {
        self.on_way.is_some()
    }

    /// When there is something to do.
    pub(in crate::engine) fn deadline(&self) -> Option<Moment> {
        let idle = self.on_way.is_none() && !self.waiting.is_empty();
        self.due.filter(|_| idle)
    }
}

impl Engine {
    /// Extents are free.
    pub(in crate::engine) fn give_extents_of(&mut self, copy: ChunkCopy, count: u32) {
        let drive = usize::from(copy.drive);
        if self.space.drives.give(drive, copy.extent, count) {
            self.recount_gives(copy);
            self.discard_later(drive, copy.extent, count);
        }
    }

    /// After an import: all that is free.
    pub(in crate::engine) fn discard_all_free(&mut self) {
        for drive in 0..self.space.drives.count() {
            for (first, count) in self.space.drives.free(drive).runs() {
                self.discard_later(drive, first, count);
            }
        }
    }

    fn discard_later(&mut self, drive: usize, first: u32, count: u32) {
        let geometry = self.space.drives.geometry(drive);
        let can = geometry.is_some_and(|geometry| geometry.deallocates);
        if !can || !self.space.drives.in_service(drive as u16) {
            return;
        }
        let most = (MOST_BYTES / self.identity.sizes().extent_bytes()).max(1) as u32;
        let mut at = 0;
        while at < count {
            let part = most.min(count - at);
            self.space.upkeep.discards_mut().waiting.push_back(Run {
                drive,
                first: first + at,
                count: part,
            });
            at += part;
        }
        if self.space.upkeep.discards().due.is_none() {
            self.space.upkeep.discards_mut().due = Some(self.now + BREATH);
        }
    }

    /// Whether a wish waits until the room is there that a drive is discarding.
    pub(in crate::engine) fn holds_for_discard(&mut self, id: u64, what: &Manage) -> bool {
        let needs_room = matches!(
            what,
            Manage::CreateVolume(_) | Manage::ResizeVolume { .. } | Manage::RemoveDrive { .. }
        );
        let holds = needs_room && self.space.upkeep.discards().is_under_way();
        if holds {
            self.space
                .upkeep
                .discards_mut()
                .held
                .push((id, what.clone()));
        }
        holds
    }

    /// Wishes that wait for a discard.
    pub(in crate::engine) fn take_held_for_discard(&mut self) -> Vec<u64> {
        let held = std::mem::take(&mut self.space.upkeep.discards_mut().held);
        held.into_iter().map(|(id, _)| id).collect()
    }

    /// Discards the next run, if it is time and the run is still free.
    pub(in crate::engine) fn advance_discards(&mut self) {
        let due = self.space.upkeep.discards().due;
        let due = due.is_some_and(|due| due <= self.now) && !self.add_log_copies.is_waiting();
        while due && self.space.upkeep.discards().on_way.is_none() {
            let Some(run) = self.space.upkeep.discards_mut().waiting.pop_front() else {
                self.space.upkeep.discards_mut().due = None;
                return;
            };
            if !self.space.drives.in_service(run.drive as u16) {
                continue;
            }
            if self.identity.sings(Canary::DiscardInUse) {
                self.send_discard(run);
                return;
            }
            if self.space.drives.claim(run.drive, run.first, run.count) {
                self.discard(run);
            } else if run.count > 1 {
                // A part of it is in use again.
                let half = run.count / 2;
                let (first, rest) = (run.first + half, run.count - half);
                let parts = [
                    Run { count: half, ..run },
                    Run {
                        first,
                        count: rest,
                        ..run
                    },
                ];
                parts
                    .into_iter()
                    .rev()
                    .for_each(|part| self.space.upkeep.discards_mut().waiting.push_front(part));
            }
        }
    }

    fn discard(&mut self, run: Run) {
        let bytes = u64::from(run.count) * self.identity.sizes().extent_bytes();
        self.space.upkeep.discards_mut().on_way = Some(run);
        let pace = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / PACE);
        self.space.upkeep.discards_mut().due = Some(self.now + pace.max(BREATH));
        self.space.upkeep.discards_mut().bytes += bytes;
        self.send_discard(run);
    }

    fn send_discard(&mut self, run: Run) {
        let at = self.identity.sizes().extent_at(run.first);
        let bytes = u64::from(run.count) * self.identity.sizes().extent_bytes();
        let shift = self.space.drives.shift(run.drive);
        let range = BlockRange::new(at >> shift, (bytes >> shift) as u32);
        self.send(run.drive, Owner::Discard, |tag| Request {
            tag,
            op: Operation::Deallocate,
            range,
            buffer: None,
        });
    }

    /// A drive has discarded a run, or could not: then it keeps what it had, which harms nothing.
    pub(in crate::engine) fn discarded(&mut self, drive: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            // What has not been answered may still be under way: nothing may be put there.
            if error.kind() == ashlar_block::ErrorKind::Timeout {
                self.drive_failed(drive, &error);
            }
            self.space
                .upkeep
                .discards_mut()
                .waiting
                .retain(|run| run.drive != drive);
        }
        // The defect takes none.
        if let Some(run) = self.space.upkeep.discards_mut().on_way.take() {
            self.space.drives.give(run.drive, run.first, run.count);
        }
        for (id, what) in std::mem::take(&mut self.space.upkeep.discards_mut().held) {
            self.manage(id, what);
        }
        if self.space.upkeep.discards().waiting.is_empty() {
            // Repairs that found no room meanwhile have ended without it.
            self.look_for_repairs();
        }
        self.base.again = true;
    }
}
