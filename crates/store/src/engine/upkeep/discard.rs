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

use ashlar_block::{BlockRange, Moment, Operation, Request};

use crate::Canary;
use crate::engine::Owner;
use crate::engine::base::{Base, To};
use crate::engine::identity::Identity;
use crate::engine::space::Space;
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

    /// Whether nothing is left to be discarded but what a drive has.
    pub(in crate::engine) fn none_wait(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a wish waits until the room is there that a drive is discarding.
    pub(in crate::engine) fn holds(&mut self, id: u64, what: &Manage) -> bool {
        let needs_room = matches!(
            what,
            Manage::CreateVolume(_) | Manage::ResizeVolume { .. } | Manage::RemoveDrive { .. }
        );
        let holds = needs_room && self.is_under_way();
        if holds {
            self.held.push((id, what.clone()));
        }
        holds
    }

    /// The engine has stopped: whose wishes wait for a discard.
    pub(in crate::engine) fn take_asked(&mut self) -> Vec<u64> {
        self.held.drain(..).map(|(id, _)| id).collect()
    }

    /// A run waits, in parts of no more than so many extents.
    fn add(&mut self, run: Run, most: u32, now: Moment) {
        let mut at = 0;
        while at < run.count {
            let part = most.min(run.count - at);
            self.waiting.push_back(Run {
                first: run.first + at,
                count: part,
                ..run
            });
            at += part;
        }
        self.due.get_or_insert(now + BREATH);
    }

    /// The next run, if it is time for one.
    fn take_due(&mut self, now: Moment) -> Option<Run> {
        if self.due.is_none_or(|due| due > now) || self.is_under_way() {
            return None;
        }
        let run = self.waiting.pop_front();
        if run.is_none() {
            self.due = None;
        }
        run
    }

    /// A drive gets a run of so many bytes.
    fn begin(&mut self, run: Run, bytes: u64, now: Moment) {
        let pace = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / PACE);
        self.on_way = Some(run);
        self.due = Some(now + pace.max(BREATH));
    }

    /// Both halves of a run wait instead of it.
    fn halve(&mut self, run: Run) {
        let half = run.count / 2;
        let (first, count) = (run.first + half, run.count - half);
        self.waiting.push_front(Run {
            first,
            count,
            ..run
        });
        self.waiting.push_front(Run { count: half, ..run });
    }
}

impl Space {
    /// Extents are free.
    pub(in crate::engine) fn give_extents(&mut self, copy: ChunkCopy, count: u32, now: Moment) {
        let drive = usize::from(copy.drive);
        if self.drives.give(drive, copy.extent, count) {
            self.recount_gives(copy);
            let run = Run {
                drive,
                first: copy.extent,
                count,
            };
            self.discard_later(run, now);
        }
    }

    /// After an import: all that is free.
    pub(in crate::engine) fn discard_all_free(&mut self, now: Moment) {
        for drive in 0..self.drives.count() {
            for (first, count) in self.drives.free(drive).runs() {
                let run = Run {
                    drive,
                    first,
                    count,
                };
                self.discard_later(run, now);
            }
        }
    }

    fn discard_later(&mut self, run: Run, now: Moment) {
        let geometry = self.drives.geometry(run.drive);
        let can = geometry.is_some_and(|geometry| geometry.deallocates);
        if !can || !self.drives.in_service(run.drive as u16) {
            return;
        }
        let most = (MOST_BYTES / self.sizes().extent_bytes()).max(1) as u32;
        self.upkeep.discards_mut().add(run, most, now);
    }

    /// Discards the next run, if it is time and the run is still free.
    pub(in crate::engine) fn advance_discards(&mut self, base: &mut Base, identity: &Identity) {
        while let Some(run) = self.upkeep.discards_mut().take_due(base.now) {
            if !self.drives.in_service(run.drive as u16) {
                continue;
            }
            if identity.sings(Canary::DiscardInUse) {
                return self.send_discard(run, base);
            }
            if self.drives.claim(run.drive, run.first, run.count) {
                let bytes = u64::from(run.count) * self.sizes().extent_bytes();
                self.upkeep.discards_mut().begin(run, bytes, base.now);
                self.send_discard(run, base);
            } else if run.count > 1 {
                // A part of it is in use again.
                self.upkeep.discards_mut().halve(run);
            }
        }
    }

    fn send_discard(&self, run: Run, base: &mut Base) {
        let at = self.sizes().extent_at(run.first);
        let bytes = u64::from(run.count) * self.sizes().extent_bytes();
        let shift = self.drives.shift(run.drive);
        let range = BlockRange::new(at >> shift, (bytes >> shift) as u32);
        let to = To::of(&self.drives, run.drive, Owner::Discard);
        base.send(to, |tag| Request {
            tag,
            op: Operation::Deallocate,
            range,
            buffer: None,
        });
    }

    /// A drive has discarded a run, or could not: then it keeps what it had, which harms nothing. Returns the wishes that
    /// have waited for it.
    pub(in crate::engine) fn discarded(&mut self, drive: usize, can: bool) -> Vec<(u64, Manage)> {
        let discards = self.upkeep.discards_mut();
        if !can {
            discards.waiting.retain(|run| run.drive != drive);
        }
        let held = std::mem::take(&mut discards.held);
        // The defect takes none.
        if let Some(run) = discards.on_way.take() {
            self.drives.give(run.drive, run.first, run.count);
        }
        held
    }
}
