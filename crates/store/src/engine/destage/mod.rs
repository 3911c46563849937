//! From the ring to the homes, oldest first. A granule's checksum is its own, so a home may be
//! written at any time while the ring still has the record: a read of the granule meanwhile
//! reads the record. The home's bytes, flushed, and the map's change, published, together let the
//! record go.

mod around;
mod choose;
mod moves;
mod whole;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ashlar_block::{Durability, IoBuffer, Moment, Request};
use tracing::{trace, warn};

use super::access::guard::Guard;
use super::access::locks::SlotKey;
use super::invariant::invariant;
use super::journal::logs::Logs;
use super::journal::{StagedChange, Then};
use super::map::Change;
use super::parity::Wish;
use super::space::segment_and_slot;
use super::tier::walk::Way;
use super::{DestageIo, Owner, Waiter};
use crate::Canary;
use crate::format::{LOST_CRC, LogId, PageId};
use crate::ring::{GranuleKey, Newest};
use crate::sizes::{GRANULE, UNIT_BYTES, UNIT_GRANULES};
pub(super) use around::Around;
use choose::Awaited;
use whole::Whole;

/// How full the ring may get before its oldest records are moved home: below, overwrites are merged.
pub(super) const LOW: f64 = 0.25;
/// After this long without a write, the ring is emptied.
const IDLE: Duration = Duration::from_secs(1);
/// Bytes of the slots moved together, with one flush.
const ROUND: u64 = 64 * UNIT_BYTES;

/// What destage is at.
#[derive(Default)]
pub(crate) struct Destage {
    jobs: Vec<Job>,
    /// Slots of the next round, if their leaves are being read: these stay here until it begins.
    awaited: Vec<Awaited>,
    phase: Phase,
    /// While records are read: they may be superseded meanwhile, and their place in the ring must
    /// not be written to again before they have been.
    guard: Option<Guard>,
    /// Slots whose homes keep what cannot be read now: what the ring has goes to these homes next.
    in_place: BTreeSet<SlotKey>,
    /// Slots that keep what only a drive on its way back may have: the ring has theirs until it is back, or out.
    awaits_drive: BTreeSet<SlotKey>,
    /// I/Os on their way in this phase.
    pending: usize,
    /// Map changes that are not published yet.
    unpublished: usize,
    /// Whole slots of this round have not been placed yet.
    may_place: bool,
    /// Drives to which homes were written in place in this round: the map may say so before they are there.
    written: BTreeSet<u16>,
    /// One of these has gone since, even if it is back.
    has_lost_written: bool,
    /// Number of this round, or of the last.
    round: u64,
    /// When the ring was last written to.
    last_write: Moment,
    /// The next write of the ring has been seen up to this batch number.
    seen: u64,
    /// What follows from its steps for others.
    next: VecDeque<Next>,
}

/// What is to be done next for destage.
pub(super) enum Next {
    /// A page of the map is wanted.
    Load { page: PageId, waiter: Waiter },
    /// A slot is to be put together.
    Gather(Wish),
    /// A slot's lock is this one's now.
    Locked { key: SlotKey, waiter: Waiter },
    /// A round is over, and the moves between homes that were in it.
    RoundEnded,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Reading,
    Writing,
    Flushing,
}

/// A slot on its way home.
struct Job {
    key: SlotKey,
    location: u32,
    /// The home that it had, if all drives of that are gone: free when another is journalled.
    lost: u32,
    buffer: IoBuffer,
    /// Granules of the slot and the records they are taken from.
    granules: Vec<(usize, Newest)>,
    /// Of some of these no copy verifies.
    has_lost: bool,
    /// Of a slot that is written as a whole, with parity.
    whole: Option<Whole>,
}

impl Destage {
    /// A drive is out. It may be on its way back before the round ends.
    pub(super) fn drive_went(&mut self, drive: usize) {
        self.has_lost_written |= self.written.remove(&(drive as u16));
    }

    /// What is to be done next.
    pub(super) fn take_next(&mut self) -> Option<Next> {
        self.next.pop_front()
    }

    /// Whether slots of a range are on their way home.
    pub(super) fn has_any_of(&self, range: std::ops::Range<SlotKey>) -> bool {
        self.jobs.iter().any(|job| range.contains(&job.key))
    }
}

/// A record of the ring that is read for a slot.
#[derive(Clone, Copy)]
struct Record {
    job: usize,
    granule: usize,
    /// Drives whose copies were read before, as bits.
    tried: u64,
}

impl Destage {
    /// When the ring is emptied, if it is not written to before.
    pub(super) fn deadline(&self, now: Moment, logs: &Logs) -> Option<Moment> {
        let waits = self.phase == Phase::Idle && !logs.is_all_home();
        let at = self.last_write + IDLE;
        // Once it has come, whatever still stands in the way will end with an event.
        (waits && now < at).then_some(at)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Number of the round that is under way, or of the next: rounds below it are over.
    pub(super) fn round(&self) -> u64 {
        self.round + u64::from(self.phase == Phase::Idle)
    }

    /// Begins a round when a log fills up, when nothing else happens, or when it is asked for: an order wants
    /// everything home, or logs are to be emptied.
    pub(super) fn advance(&mut self, is_asked: bool, around: &mut Around<'_>) {
        if self.seen != around.logs.next_of_ring() {
            self.seen = around.logs.next_of_ring();
            self.last_write = around.base.now;
        }
        if self.phase != Phase::Idle {
            return;
        }
        let idle = around.base.now >= self.last_write + IDLE;
        let filling = around.logs.fill(LogId::Ring) > LOW || around.ring_holds_map();
        let asked = is_asked || around.logs.has_many_terms();
        if around.may_move() && !asked {
            self.collect_moves(around);
        }
        let wanted = !around.logs.is_all_home() && (idle || filling || asked);
        if wanted || !self.awaited.is_empty() {
            self.collect_jobs(around);
        }
        self.read_jobs(around);
    }

    fn collect_job(&mut self, key: SlotKey, around: &mut Around<'_>) {
        let home = around.map.location(key.volume, key.slot);
        let Some(home) = home else {
            return self.load_leaf_of(key, around);
        };
        // What else the slot has may be on a drive alone that is on its way back. The ring keeps what it has.
        if home != 0
            && around
                .rebuild
                .may_be_readable_again(segment_and_slot(home).0, around.space)
        {
            return;
        }
        if self.awaits_drive.contains(&key) {
            if home != 0
                && around
                    .rebuild
                    .has_coming_column(segment_and_slot(home).0, around.space)
            {
                return;
            }
            self.awaits_drive.remove(&key);
        }
        if !around.access.try_lock(key) {
            return;
        }
        around.map.pin_slot(key);
        // Its reservation, which counted on it, ends before it is changed.
        let leaf = around.map.leaf_of(key);
        around.map.hold(leaf);
        // It had one when its records were let in, and no leaf said so when that was lost.
        around.reserving().reserve_if_needed(key);
        let Some(class) = around.volumes.class_of(key.volume) else {
            invariant!(
                around.base,
                "volume {} has records, but no homes",
                key.volume
            );
            return self.let_job_go(key, true, around);
        };
        let is_hot =
            around.space.is_hot_home(home) && around.space.is_readable(segment_and_slot(home).0);
        let stays = self.in_place.remove(&key) || is_hot;
        let fresh = if stays { None } else { around.take_hot(key) };
        if let Some(fresh) = fresh {
            let way = Way {
                from: home,
                to: fresh,
            };
            return self.collect_whole(key, way, true, around);
        }
        if class.has_parity() && !is_hot {
            let Some(fresh) = around.take_fresh(key) else {
                return self.let_job_go(key, true, around);
            };
            let way = Way {
                from: home,
                to: fresh,
            };
            return self.collect_whole(key, way, true, around);
        }
        // A home whose drives are all gone is none: what the ring has goes to a fresh one.
        let is_lost = home != 0 && !around.space.is_readable(segment_and_slot(home).0);
        let lost = if is_lost { home } else { 0 };
        let home = if home == 0 || is_lost {
            around.take_home(key, class)
        } else {
            Some(home)
        };
        let Some(home) = home else {
            return self.let_job_go(key, true, around);
        };
        let bytes = around.map.grain(key.volume).bytes() as usize;
        let Some(buffer) = around.buffer(bytes) else {
            return;
        };
        self.jobs.push(Job {
            key,
            location: home,
            lost,
            buffer,
            granules: around.recorded(key),
            has_lost: false,
            whole: None,
        });
    }

    fn read_jobs(&mut self, around: &mut Around<'_>) {
        if self.jobs.is_empty() {
            return;
        }
        self.phase = Phase::Reading;
        trace!(phase = ?self.phase, "destage");
        self.round += 1;
        self.guard = Some(around.access.enter());
        for job in 0..self.jobs.len() {
            for granule in 0..self.jobs[job].granules.len() {
                self.read_record(job, granule, 0, around);
            }
            self.read_kept(job, around);
        }
        self.write_jobs_if_read(around);
    }

    fn read_record(&mut self, job: usize, granule: usize, tried: u64, around: &mut Around<'_>) {
        let (index, newest) = self.jobs[job].granules[granule];
        let to = index * GRANULE;
        let into = &mut self.jobs[job].buffer[to..to + GRANULE];
        if tried == 0 && around.logs.recall(newest.at, into) {
            if around.identity.salt().crc(into) == newest.crc
                || around.identity.sings(Canary::TrustMemory)
            {
                return;
            }
            around.base.distrust(around.logs, newest.at);
        }
        let (copies, offset) = around.logs.locate(LogId::Ring, newest.at);
        let copies = around.space.drives.serving(copies);
        let Some(&place) = copies.iter().find(|copy| tried & 1 << copy.drive == 0) else {
            return self.record_lost(job, granule, around);
        };
        let drive = usize::from(place.drive);
        let range = around.space.drives.range(
            drive,
            around.identity.sizes().extent_at(place.extent) + offset,
            GRANULE,
        );
        let Some(buffer) = around.buffer(GRANULE) else {
            return;
        };
        self.pending += 1;
        let owner = Owner::Destage(DestageIo::Read {
            job,
            granule,
            tried,
        });
        around.send(drive, owner, |tag| Request::read(tag, range, buffer));
    }

    /// No copy of a record verifies: its block is lost, and the ring lets it go all the same, or it would be full
    /// soon. What goes home in its place is never served, for nothing verifies against such a checksum.
    fn record_lost(&mut self, job: usize, granule: usize, around: &mut Around<'_>) {
        let (index, newest) = self.jobs[job].granules[granule];
        let leaf = around.map.leaf_of(self.jobs[job].key);
        let state = &mut self.jobs[job];
        state.buffer[index * GRANULE..(index + 1) * GRANULE].fill(0);
        state.granules[granule].1.crc = LOST_CRC;
        state.has_lost = true;
        if let Some(whole) = &mut state.whole {
            whole.lose(index);
        }
        let (volume, at) = (state.key.volume, newest.at);
        warn!(
            "volume {volume}: no copy of a record at ring position {at} verifies, its block is lost"
        );
        around.base.counters.lost += 1;
        around.map.expect_lost(leaf);
    }

    /// A drive has answered.
    pub(super) fn io_done(
        &mut self,
        io: DestageIo,
        drive: usize,
        buffer: Option<IoBuffer>,
        around: &mut Around<'_>,
    ) {
        self.pending -= 1;
        match io {
            DestageIo::Read {
                job,
                granule,
                tried,
            } => {
                let read = Record {
                    job,
                    granule,
                    tried,
                };
                self.record_read(read, drive, buffer, around);
                self.write_jobs_if_read(around);
            }
            DestageIo::Write => self.flush_if_written(around),
            DestageIo::Flush => self.finish_if_home(around),
        }
    }

    /// The copy of a record on `drive` was read, and those on `tried` before.
    fn record_read(
        &mut self,
        record: Record,
        drive: usize,
        buffer: Option<IoBuffer>,
        around: &mut Around<'_>,
    ) {
        let Record {
            job,
            granule,
            tried,
        } = record;
        let (index, newest) = self.jobs[job].granules[granule];
        match buffer {
            Some(buffer) if around.identity.salt().crc(&buffer) == newest.crc => {
                let to = index * GRANULE;
                self.jobs[job].buffer[to..to + GRANULE].copy_from_slice(&buffer);
            }
            _ => {
                around.space.note_bad(drive, &mut around.base.counters);
                self.read_record(job, granule, tried | 1 << drive, around);
            }
        }
    }

    fn write_jobs_if_read(&mut self, around: &mut Around<'_>) {
        if self.phase != Phase::Reading || self.pending > 0 || around.base.failed.is_some() {
            return;
        }
        self.phase = Phase::Writing;
        trace!(phase = ?self.phase, "destage");
        if let Some(guard) = self.guard.take() {
            around.access.leave(guard);
        }
        for job in 0..self.jobs.len() {
            if self.jobs[job].whole.is_some() {
                continue;
            }
            for run in self.jobs[job].runs() {
                self.write_run(job, run.clone(), around);
                self.stage_run(job, run, around);
            }
        }
        self.write_wholes(around);
        self.flush_if_written(around);
    }

    /// Writes a run of granules to every copy of the home.
    fn write_run(&mut self, job: usize, run: std::ops::Range<usize>, around: &mut Around<'_>) {
        let (segment, slot) = segment_and_slot(self.jobs[job].location);
        let Some(shape) = around.space.shape(segment) else {
            return invariant!(
                around.base,
                "a slot goes home to segment {segment}, which is not there"
            );
        };
        for copy in around.rebuild.written_columns(segment, around.space) {
            let drive = usize::from(copy.drive);
            let Some(mut buffer) = around.buffer(run.len() * GRANULE) else {
                return;
            };
            let from = run.start * GRANULE;
            buffer.copy_from_slice(&self.jobs[job].buffer[from..run.end * GRANULE]);
            let at = shape.strip_at(around.identity.sizes(), copy, slot) + from as u64;
            self.written.insert(copy.drive);
            let range = around.space.drives.range(drive, at, buffer.len());
            self.pending += 1;
            around.send(drive, Owner::Destage(DestageIo::Write), |tag| {
                Request::write(tag, range, buffer, Durability::Cached)
            });
        }
    }

    fn stage_run(&mut self, job: usize, run: std::ops::Range<usize>, around: &mut Around<'_>) {
        let first = around.map.granules_of(self.jobs[job].key).start + run.start as u64;
        let job = &mut self.jobs[job];
        let mut crcs = [0; UNIT_GRANULES as usize];
        let records = job.granules.iter().filter(|(i, _)| run.contains(i));
        for (crc, (_, newest)) in crcs.iter_mut().zip(records) {
            *crc = newest.crc;
        }
        let change = Change::Place {
            moved: true,
            volume: job.key.volume,
            first,
            granules: run.len() as u16,
            new: job.location,
            old: std::mem::take(&mut job.lost),
            crcs,
        };
        self.unpublished += 1;
        around.journal.stage_first(StagedChange {
            change,
            then: Then::Destage,
            more: false,
        });
    }

    fn flush_if_written(&mut self, around: &mut Around<'_>) {
        if self.pending > 0 || around.base.failed.is_some() {
            return;
        }
        self.phase = Phase::Flushing;
        self.may_place = true;
        trace!(phase = ?self.phase, "destage");
        if around.identity.sings(Canary::TailBeforeFlush) {
            return self.finish_if_home(around);
        }
        let locations = self.jobs.iter().map(|job| segment_and_slot(job.location).0);
        let columns =
            locations.flat_map(|segment| around.rebuild.written_columns(segment, around.space));
        let drives: BTreeSet<u16> = columns.map(|copy| copy.drive).collect();
        for drive in drives {
            self.pending += 1;
            around.send(
                usize::from(drive),
                Owner::Destage(DestageIo::Flush),
                Request::flush,
            );
        }
        if self.pending == 0 {
            self.finish_if_home(around);
        }
    }

    /// A drive has gone that may have held back what went home. The map has said that before, and the drive may have
    /// newer roots than that: it is said again, so that the drive gets it when it returns.
    fn place_again(&mut self, around: &mut Around<'_>) {
        for job in 0..self.jobs.len() {
            if self.jobs[job].whole.is_some() {
                continue;
            }
            for run in self.jobs[job].runs() {
                self.stage_run(job, run, around);
            }
        }
        if self.unpublished == 0 {
            self.finish_if_home(around);
        }
    }

    /// One of its changes of the map is published.
    pub(super) fn published(&mut self, around: &mut Around<'_>) {
        self.unpublished = self.unpublished.saturating_sub(1);
        self.finish_if_home(around);
    }

    fn finish_if_home(&mut self, around: &mut Around<'_>) {
        // Once a round: each change that is published comes here, and a round has hundreds.
        let is_flushed = self.phase == Phase::Flushing && self.pending == 0;
        if is_flushed && std::mem::take(&mut self.may_place) {
            self.place_whole(around);
        }
        let unpublished = self.unpublished > 0 && !around.identity.sings(Canary::TailBeforeMove);
        if self.phase != Phase::Flushing || self.pending > 0 || unpublished {
            return;
        }
        if std::mem::take(&mut self.has_lost_written) {
            return self.place_again(around);
        }
        self.written.clear();
        self.phase = Phase::Idle;
        trace!(phase = ?self.phase, "destage");
        for job in std::mem::take(&mut self.jobs) {
            if job.whole.as_ref().is_some_and(|whole| !whole.placed) {
                self.give_up_whole(&job, around);
                continue;
            }
            around.tell_tier_of(&job);
            if !around.space.is_readable(segment_and_slot(job.location).0) {
                // It never arrived: the ring keeps it.
                around.reserving().reserve_if_kept(job.key);
                self.let_job_go(job.key, job.is_locked(), around);
                continue;
            }
            let first = around.map.granules_of(job.key).start;
            for &(i, newest) in &job.granules {
                let key = GranuleKey {
                    volume: job.key.volume,
                    granule: first + i as u64,
                };
                around.base.counters.destaged += 1;
                around.logs.supersede(key, newest.sequence + 1);
            }
            around.reserving().unreserve_if_homed(job.key);
            if job.has_lost {
                // It may have had no leaf before.
                let leaf = around.map.leaf_of(job.key);
                around.map.expect_lost(leaf);
            }
            self.let_job_go(job.key, job.is_locked(), around);
        }
        self.next.push_back(Next::RoundEnded);
    }

    /// Nothing is to be done with a slot any more.
    pub(super) fn let_job_go(&mut self, key: SlotKey, is_locked: bool, around: &mut Around<'_>) {
        let leaf = around.map.leaf_of(key);
        around.map.let_go(leaf);
        around.map.unpin_slot(key);
        if is_locked {
            let waiter = around.access.unlock(key);
            self.next
                .extend(waiter.map(|waiter| Next::Locked { key, waiter }));
        }
    }
}

impl Job {
    /// Whether the slot is locked for it: a canary's is not.
    fn is_locked(&self) -> bool {
        self.whole.as_ref().is_none_or(|whole| whole.is_locked)
    }

    /// Runs of neighbouring granules.
    fn runs(&self) -> Vec<std::ops::Range<usize>> {
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for &(i, _) in &self.granules {
            match runs.last_mut() {
                Some(run) if run.end == i => run.end += 1,
                _ => runs.push(i..i + 1),
            }
        }
        runs
    }
}
