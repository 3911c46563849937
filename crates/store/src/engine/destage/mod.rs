//! From the ring to the homes, oldest first. A granule's checksum is its own, so a home may be
//! written at any time while the ring still has the record: a read of the granule meanwhile
//! reads the record. The home's bytes, flushed, and the map's change, published, together let the
//! record go.

mod choose;
mod whole;

use std::collections::BTreeSet;
use std::time::Duration;

use ashlar_block::{Durability, IoBuffer, IoError, Moment, Request};
use tracing::{trace, warn};

use super::access::guard::Guard;
use super::access::locks::SlotKey;
use super::class::Class;
use super::invariant::invariant;
use super::journal::{StagedChange, Then};
use super::map::Change;
use super::space::{location, segment_and_slot};
use super::tier::walk::Way;
use super::{DestageIo, Engine, Owner, Waiter};
use crate::Canary;
use crate::format::{LOST_CRC, LogId};
use crate::ring::{GranuleKey, LogBatch, Newest, Span};
use crate::sizes::{GRANULE, UNIT_BYTES, UNIT_GRANULES};
use choose::{Awaited, Chosen};
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

impl Engine {
    pub(super) fn destage_deadline(&self) -> Option<Moment> {
        let waits = self.destage.phase == Phase::Idle && !self.logs.is_all_home();
        let at = self.destage.last_write + IDLE;
        // Once it has come, whatever still stands in the way will end with an event.
        (waits && self.base.now < at).then_some(at)
    }

    pub(super) fn destage_is_idle(&self) -> bool {
        self.destage.phase == Phase::Idle
    }

    /// Number of the round that is under way, or of the next: rounds below it are over.
    pub(super) fn destage_round(&self) -> u64 {
        self.destage.round + u64::from(self.destage.phase == Phase::Idle)
    }

    /// Begins a round when a log fills up, when nothing else happens, or when an order asks for it.
    pub(super) fn advance_destage(&mut self) {
        if self.destage.seen != self.logs.next_of_ring() {
            self.destage.seen = self.logs.next_of_ring();
            self.destage.last_write = self.base.now;
        }
        if self.destage.phase != Phase::Idle {
            return;
        }
        let idle = self.base.now >= self.destage.last_write + IDLE;
        let filling = self.logs.fill(LogId::Ring) > LOW || self.ring_holds_map();
        let asked =
            self.waiting.is_draining() || self.roots.is_healing() || self.logs.has_many_terms();
        if self.may_move() {
            self.collect_moves();
        }
        let wanted = !self.logs.is_all_home() && (idle || filling || asked);
        if wanted || !self.destage.awaited.is_empty() {
            self.collect_jobs();
        }
        self.read_jobs();
    }

    fn collect_job(&mut self, key: SlotKey) {
        let home = self.map.location(key.volume, key.slot);
        let Some(home) = home else {
            return self.load_leaf_of(key);
        };
        // What else the slot has may be on a drive alone that is on its way back. The ring keeps what it has.
        if home != 0
            && self
                .rebuild
                .may_be_readable_again(segment_and_slot(home).0, &self.space)
        {
            return;
        }
        if self.destage.awaits_drive.contains(&key) {
            if home != 0
                && self
                    .rebuild
                    .has_coming_column(segment_and_slot(home).0, &self.space)
            {
                return;
            }
            self.destage.awaits_drive.remove(&key);
        }
        if !self.access.try_lock(key) {
            return;
        }
        self.map.pin_slot(key);
        // Its reservation, which counted on it, ends before it is changed.
        self.map.hold(self.map.leaf_of(key));
        // It had one when its records were let in, and no leaf said so when that was lost.
        self.reserving().reserve_if_needed(key);
        let Some(class) = self.class_of(key.volume) else {
            invariant!(self, "volume {} has records, but no homes", key.volume);
            return self.let_job_go(key, true);
        };
        let is_hot =
            self.space.is_hot_home(home) && self.space.is_readable(segment_and_slot(home).0);
        let stays = self.destage.in_place.remove(&key) || is_hot;
        let fresh = if stays { None } else { self.take_hot(key) };
        if let Some(fresh) = fresh {
            let way = Way {
                from: home,
                to: fresh,
            };
            return self.collect_whole(key, way, true);
        }
        if class.has_parity() && !is_hot {
            return match self.take_fresh(key) {
                Some(fresh) => self.collect_whole(
                    key,
                    Way {
                        from: home,
                        to: fresh,
                    },
                    true,
                ),
                None => self.let_job_go(key, true),
            };
        }
        // A home whose drives are all gone is none: what the ring has goes to a fresh one.
        let is_lost = home != 0 && !self.space.is_readable(segment_and_slot(home).0);
        let lost = if is_lost { home } else { 0 };
        let home = if home == 0 || is_lost {
            self.take_home(key, class)
        } else {
            Some(home)
        };
        let Some(home) = home else {
            return self.let_job_go(key, true);
        };
        let Some(buffer) = self.buffer(self.map.grain(key.volume).bytes() as usize) else {
            return;
        };
        self.destage.jobs.push(Job {
            key,
            location: home,
            lost,
            buffer,
            granules: self.recorded(key),
            has_lost: false,
            whole: None,
        });
    }

    /// Granules of a slot that the ring has.
    fn recorded(&self, key: SlotKey) -> Vec<(usize, Newest)> {
        let volume = key.volume;
        let newest = |(i, granule)| {
            let found = self.logs.newest(GranuleKey { volume, granule });
            found.map(|newest| (i, newest))
        };
        let granules = self.map.granules_of(key);
        granules.enumerate().filter_map(newest).collect()
    }

    /// A fresh slot, on the reservation.
    fn take_home(&mut self, key: SlotKey, class: Class) -> Option<u32> {
        let (segment, slot) = self.space.take_slot(class)?;
        self.reserving().unreserve(key);
        Some(location(segment, slot))
    }

    fn read_jobs(&mut self) {
        if self.destage.jobs.is_empty() {
            return;
        }
        self.destage.phase = Phase::Reading;
        trace!(phase = ?self.destage.phase, "destage");
        self.destage.round += 1;
        self.destage.guard = Some(self.access.enter());
        for job in 0..self.destage.jobs.len() {
            for granule in 0..self.destage.jobs[job].granules.len() {
                self.read_record(job, granule, 0);
            }
            self.read_kept(job);
        }
        self.write_jobs_if_read();
    }

    fn read_record(&mut self, job: usize, granule: usize, tried: u64) {
        let (index, newest) = self.destage.jobs[job].granules[granule];
        let to = index * GRANULE;
        let into = &mut self.destage.jobs[job].buffer[to..to + GRANULE];
        if tried == 0 && self.logs.recall(newest.at, into) {
            if self.identity.salt().crc(into) == newest.crc
                || self.identity.sings(Canary::TrustMemory)
            {
                return;
            }
            self.base.distrust(&mut self.logs, newest.at);
        }
        let (copies, offset) = self.logs.locate(LogId::Ring, newest.at);
        let copies = self.space.drives.serving(copies);
        let Some(&place) = copies.iter().find(|copy| tried & 1 << copy.drive == 0) else {
            return self.record_lost(job, granule);
        };
        let drive = usize::from(place.drive);
        let range = self.space.drives.range(
            drive,
            self.identity.sizes().extent_at(place.extent) + offset,
            GRANULE,
        );
        let Some(buffer) = self.buffer(GRANULE) else {
            return;
        };
        self.destage.pending += 1;
        let owner = Owner::Destage(DestageIo::Read {
            job,
            granule,
            tried,
        });
        self.send(drive, owner, |tag| Request::read(tag, range, buffer));
    }

    /// No copy of a record verifies: its block is lost, and the ring lets it go all the same, or it would be full
    /// soon. What goes home in its place is never served, for nothing verifies against such a checksum.
    fn record_lost(&mut self, job: usize, granule: usize) {
        let (index, newest) = self.destage.jobs[job].granules[granule];
        let leaf = self.map.leaf_of(self.destage.jobs[job].key);
        let state = &mut self.destage.jobs[job];
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
        self.base.counters.lost += 1;
        self.map.expect_lost(leaf);
    }

    pub(super) fn destage_io_done(
        &mut self,
        io: DestageIo,
        drive: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        self.destage.pending -= 1;
        match (io, result) {
            (
                DestageIo::Read {
                    job,
                    granule,
                    tried,
                },
                result,
            ) => {
                let buffer = buffer.filter(|_| result.is_ok());
                let read = Record {
                    job,
                    granule,
                    tried,
                };
                self.record_read(read, drive, buffer);
                self.write_jobs_if_read();
            }
            (io, result) => {
                if let Err(error) = result {
                    self.drive_failed(drive, &error);
                }
                match io {
                    DestageIo::Write => self.flush_if_written(),
                    _ => self.finish_if_home(),
                }
            }
        }
    }

    /// The copy of a record on `drive` was read, and those on `tried` before.
    fn record_read(&mut self, record: Record, drive: usize, buffer: Option<IoBuffer>) {
        let Record {
            job,
            granule,
            tried,
        } = record;
        let (index, newest) = self.destage.jobs[job].granules[granule];
        match buffer {
            Some(buffer) if self.identity.salt().crc(&buffer) == newest.crc => {
                let to = index * GRANULE;
                self.destage.jobs[job].buffer[to..to + GRANULE].copy_from_slice(&buffer);
            }
            _ => {
                self.space.note_bad(drive, &mut self.base.counters);
                self.read_record(job, granule, tried | 1 << drive);
            }
        }
    }

    fn write_jobs_if_read(&mut self) {
        if self.destage.phase != Phase::Reading
            || self.destage.pending > 0
            || self.base.failed.is_some()
        {
            return;
        }
        self.destage.phase = Phase::Writing;
        trace!(phase = ?self.destage.phase, "destage");
        if let Some(guard) = self.destage.guard.take() {
            self.access.leave(guard);
        }
        for job in 0..self.destage.jobs.len() {
            if self.destage.jobs[job].whole.is_some() {
                continue;
            }
            for run in self.destage.jobs[job].runs() {
                self.write_run(job, run.clone());
                self.stage_run(job, run);
            }
        }
        self.write_wholes();
        self.flush_if_written();
    }

    /// Writes a run of granules to every copy of the home.
    fn write_run(&mut self, job: usize, run: std::ops::Range<usize>) {
        let (segment, slot) = segment_and_slot(self.destage.jobs[job].location);
        let Some(shape) = self.space.shape(segment) else {
            return invariant!(
                self,
                "a slot goes home to segment {segment}, which is not there"
            );
        };
        for copy in self.rebuild.written_columns(segment, &self.space) {
            let drive = usize::from(copy.drive);
            let Some(mut buffer) = self.buffer(run.len() * GRANULE) else {
                return;
            };
            let from = run.start * GRANULE;
            buffer.copy_from_slice(&self.destage.jobs[job].buffer[from..run.end * GRANULE]);
            let at = shape.strip_at(self.identity.sizes(), copy, slot) + from as u64;
            self.destage.written.insert(copy.drive);
            let range = self.space.drives.range(drive, at, buffer.len());
            self.destage.pending += 1;
            self.send(drive, Owner::Destage(DestageIo::Write), |tag| {
                Request::write(tag, range, buffer, Durability::Cached)
            });
        }
    }

    fn stage_run(&mut self, job: usize, run: std::ops::Range<usize>) {
        let first = self.map.granules_of(self.destage.jobs[job].key).start + run.start as u64;
        let job = &mut self.destage.jobs[job];
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
        self.destage.unpublished += 1;
        self.journal.stage_first(StagedChange {
            change,
            then: Then::Destage,
            more: false,
        });
    }

    fn flush_if_written(&mut self) {
        if self.destage.pending > 0 || self.base.failed.is_some() {
            return;
        }
        self.destage.phase = Phase::Flushing;
        self.destage.may_place = true;
        trace!(phase = ?self.destage.phase, "destage");
        if self.identity.sings(Canary::TailBeforeFlush) {
            return self.finish_if_home();
        }
        let locations = self
            .destage
            .jobs
            .iter()
            .map(|job| segment_and_slot(job.location).0);
        let columns =
            locations.flat_map(|segment| self.rebuild.written_columns(segment, &self.space));
        let drives: BTreeSet<u16> = columns.map(|copy| copy.drive).collect();
        for drive in drives {
            self.destage.pending += 1;
            self.send(
                usize::from(drive),
                Owner::Destage(DestageIo::Flush),
                Request::flush,
            );
        }
        if self.destage.pending == 0 {
            self.finish_if_home();
        }
    }

    /// A drive has gone that may have held back what went home. The map has said that before, and the drive may have
    /// newer roots than that: it is said again, so that the drive gets it when it returns.
    fn place_again(&mut self) {
        for job in 0..self.destage.jobs.len() {
            if self.destage.jobs[job].whole.is_some() {
                continue;
            }
            for run in self.destage.jobs[job].runs() {
                self.stage_run(job, run);
            }
        }
        if self.destage.unpublished == 0 {
            self.finish_if_home();
        }
    }

    pub(super) fn destage_published(&mut self) {
        self.destage.unpublished = self.destage.unpublished.saturating_sub(1);
        self.finish_if_home();
    }

    fn finish_if_home(&mut self) {
        // Once a round: each change that is published comes here, and a round has hundreds.
        let is_flushed = self.destage.phase == Phase::Flushing && self.destage.pending == 0;
        if is_flushed && std::mem::take(&mut self.destage.may_place) {
            self.place_whole();
        }
        let destage = &self.destage;
        let unpublished = destage.unpublished > 0 && !self.identity.sings(Canary::TailBeforeMove);
        if destage.phase != Phase::Flushing || destage.pending > 0 || unpublished {
            return;
        }
        if std::mem::take(&mut self.destage.has_lost_written) {
            return self.place_again();
        }
        self.destage.written.clear();
        self.destage.phase = Phase::Idle;
        trace!(phase = ?self.destage.phase, "destage");
        for job in std::mem::take(&mut self.destage.jobs) {
            if job.whole.as_ref().is_some_and(|whole| !whole.placed) {
                self.give_up_whole(&job);
                continue;
            }
            self.tell_tier_of(&job);
            if !self.space.is_readable(segment_and_slot(job.location).0) {
                // It never arrived: the ring keeps it.
                self.reserving().reserve_if_kept(job.key);
                self.let_job_go(job.key, job.is_locked());
                continue;
            }
            let first = self.map.granules_of(job.key).start;
            for &(i, newest) in &job.granules {
                let key = GranuleKey {
                    volume: job.key.volume,
                    granule: first + i as u64,
                };
                self.base.counters.destaged += 1;
                self.logs.supersede(key, newest.sequence + 1);
            }
            self.reserving().unreserve_if_homed(job.key);
            if job.has_lost {
                // It may have had no leaf before.
                self.map.expect_lost(self.map.leaf_of(job.key));
            }
            self.let_job_go(job.key, job.is_locked());
        }
        self.moves_ended();
    }
}

impl Engine {
    /// Takes on the slots of the oldest records, once all their leaves are here.
    fn collect_jobs(&mut self) {
        if !self.rebuild.returns().is_busy() {
            self.destage.awaits_drive.clear();
        }
        let mut chosen = None;
        if self.destage.awaited.is_empty() {
            let first = self.choose_slots();
            self.await_leaves(&first);
            chosen = Some(first);
        }
        if self.lacks_awaited_leaf() {
            return;
        }
        // Records may have been superseded while leaves were read.
        let chosen = chosen.unwrap_or_else(|| self.choose_slots());
        for key in chosen.keys() {
            self.collect_job(key);
        }
        for Awaited { key, granules } in std::mem::take(&mut self.destage.awaited) {
            self.map.unpin(key.volume, granules);
        }
    }

    /// Reads the leaves of these slots that are not here, and keeps all of them here.
    fn await_leaves(&mut self, chosen: &Chosen) {
        for key in chosen.keys() {
            let granules = self.map.granules_of(key);
            self.map.pin(key.volume, granules.clone());
            self.destage.awaited.push(Awaited { key, granules });
            if self.map.location(key.volume, key.slot).is_none() {
                self.load_leaf_of(key);
            }
        }
    }

    /// Whether a leaf is still to come.
    fn lacks_awaited_leaf(&self) -> bool {
        let mut awaited = self.destage.awaited.iter();
        awaited.any(|Awaited { key, .. }| self.map.location(key.volume, key.slot).is_none())
    }

    /// Reads the leaf of a slot.
    fn load_leaf_of(&mut self, key: SlotKey) {
        self.load(self.map.leaf_of(key), Waiter::Destage);
    }

    fn choose_slots(&self) -> Chosen {
        let mut chosen = Chosen::default();
        let mut bytes = 0;
        for (place, batch) in self.logs.live_batches().enumerate() {
            for span in &batch.spans {
                for key in self.live_slots(batch, span) {
                    let is_new = match place {
                        0 => chosen.oldest.insert(key),
                        _ => !chosen.oldest.contains(&key) && chosen.others.insert(key),
                    };
                    if is_new {
                        bytes += self.map.grain(key.volume).bytes();
                    }
                }
            }
            if bytes >= ROUND {
                break;
            }
        }
        chosen
    }

    /// Slots of a span of which a batch has the newest record of some granule.
    fn live_slots(&self, batch: &LogBatch, span: &Span) -> impl Iterator<Item = SlotKey> {
        let volume = span.volume;
        let grain = self.map.grain(volume);
        let granules = span.first..span.first + u64::from(span.granules);
        let in_batch = move |granule| {
            let key = GranuleKey { volume, granule };
            self.logs.is_newest_in(batch, key)
        };
        let slots = grain.slots_of(granules.clone()).filter(move |&slot| {
            let slot = grain.range(slot);
            (granules.start.max(slot.start)..granules.end.min(slot.end)).any(in_batch)
        });
        slots.map(move |slot| SlotKey { volume, slot })
    }

    /// Homes were lost: what the ring has of their slots, or is about to have, counts on others. Where the leaf is not
    /// here, the home may be one of them; a slot counted on in vain is given back when destage has come to it.
    pub(super) fn reserve_for_lost_homes(&mut self) {
        let mut slots = BTreeSet::new();
        for batch in self.logs.live_batches() {
            for span in &batch.spans {
                slots.extend(self.live_slots(batch, span));
            }
        }
        slots.extend(self.journal.slots_on_their_way(&self.map));
        for key in slots {
            if self.space.lacks_home(&self.map, key) != Some(false) {
                self.reserving().reserve(key);
            }
        }
    }

    /// Nothing is to be done with a slot any more.
    pub(super) fn let_job_go(&mut self, key: SlotKey, is_locked: bool) {
        self.map.let_go(self.map.leaf_of(key));
        self.map.unpin_slot(key);
        if is_locked {
            self.unlock(key);
        }
    }

    /// A slot with a tier is home.
    fn tell_tier_of(&mut self, job: &Job) {
        if !self.tiers.has(job.key.volume) {
            return;
        }
        if let Some(whole) = &job.whole {
            let way = Way {
                from: whole.old,
                to: job.location,
            };
            self.slot_moved(job.key.volume, way);
        }
        let segment = segment_and_slot(job.location).0;
        let slot = self.rebuild.slot_cost(segment, &self.space);
        let granules = self.map.grain(job.key.volume).granules();
        let bytes = match job.whole {
            Some(_) => slot,
            None => slot * job.granules.len() as u64 / granules,
        };
        self.tiers.spent_on(job.key.volume, bytes);
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
