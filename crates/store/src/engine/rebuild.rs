//! Walks over everything that is mapped: a *scrub* verifies every copy and mends bad ones; a *rebuild*
//! does that with the slots of segments that have lost a column, and fills one that replaces it: of a part of them
//! in each walk, so that the next engine need not begin anew. Slot by slot, under the slot's
//! lock. A new column is written to from the beginning of the rebuild, and read only when the
//! segment's entry with it is durable.
//!
//! How fast it goes is in [`pace`](pace), what is particular to scrubs in [`scrub`](scrub), the map's
//! own pages in [`renew`](renew).

mod asked;
mod columns;
pub(super) mod pace;
pub(super) mod readmit;
mod renew;
mod scrub;

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::{Durability, IoError, Moment, Request};
use tracing::trace;

use super::access::locks::SlotKey;
use super::class::{Class, Redundancy};
use super::invariant::invariant;
use super::journal::Then;
use super::manage::segment_change;
use super::map::{LeafView, SEGMENTS, leaf_id};
use super::parity::{For, Gathered, Wish, strips_with};
use super::salvage::{Reader, Strip};
use super::segment_table::Columns;
use super::space::{DriveByte, segment_and_slot};
use super::state::Joining;
use super::{Engine, Owner, Waiter};
use crate::Canary;
use crate::engine::upkeep::reserve::Users;
use crate::format::{ChunkCopy, ScrubAt, SegmentEntry, VolumeEntry, VolumeState};
use crate::ring::GranuleKey;
use crate::sizes::{GRANULE, LEAF_GRANULES, UNIT_BYTES, UNIT_GRANULES};
use columns::{columns_with, lacks_column};
use pace::{Next, Pace};
use readmit::{Returns, Told};
use renew::Renewal;
use scrub::Scrub;

/// Bytes of slots worked on at a time, and in a round.
pub(super) const AT_A_TIME: u64 = 8 * UNIT_BYTES;
/// Leaves that are not there that one turn skips, and as how many one counts that is.
const LEAVES: usize = 1024;
const A_LEAF: usize = 16;

/// What the walk is at.
#[derive(Default)]
pub(crate) struct Rebuild {
    /// When the columns of lost drives are to be made again: some time after the loss.
    due: Option<Moment>,
    /// How long after a loss that is.
    repair_after: Duration,
    /// Columns that are being filled, by segment: they are written, not read.
    joining: BTreeMap<u32, Joining>,
    returns: Returns,
    scrub: Scrub,
    renewal: Renewal,
    phase: Phase,
    /// Commands older than this may have written without the new columns.
    stamp: u64,
    /// So may rounds of destage up to this one.
    round: u64,
    volume: u32,
    /// The granule that it has come to.
    at: u64,
    jobs: Vec<Option<Job>>,
    pending: usize,
    pace: Pace,
    unpublished: usize,
    /// Columns that were filled since something began to lack some, and those with what is to be filled, as the
    /// walk began.
    filled: usize,
    wanted: usize,
    /// Granules of which no copy was good, in this walk.
    lost: u64,
    /// Of these, what this walk has found.
    unmended: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// Waiting for commands that know nothing of the new columns.
    AwaitingOlder,
    Walking,
    Flushing,
    /// The segments' new entries are on their way.
    Recording,
}

/// A write that the walk has found to be needed: drive, byte, bytes.
pub(super) type Mend = (usize, u64, Vec<u8>);

struct Job {
    key: SlotKey,
    location: u32,
    /// What each copy holds: `None` when it cannot be read.
    copies: Vec<(ChunkCopy, Option<Strip>)>,
    pending: usize,
}

/// Which I/O of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) enum WalkIo {
    Write { job: usize },
    Flush,
}

impl Engine {
    /// A drive was lost: its columns are wanted elsewhere, when the time for it has come.
    pub(super) fn rebuild_wanted(&mut self) {
        let at = self.base.now + self.rebuild.repair_after;
        self.rebuild.due = Some(self.rebuild.due.map_or(at, |due| due.min(at)));
    }

    /// An operator has acted: repair begins at once.
    pub(super) fn repair_now(&mut self) {
        self.heal();
        self.rebuild.due = Some(self.base.now);
    }

    /// After an import: what the members left behind need.
    pub(super) fn begin_repairs(&mut self) {
        self.space.spread_reserve(Users {
            volumes: &self.volumes,
            rebuild: &self.rebuild,
        });
        self.rebuild.scrub.resume(self.roots.durable().scrub);
        self.heal();
        self.look_for_repairs();
    }

    /// Takes up the repairs there are room for by now. A drive that is being emptied goes on with that.
    pub(super) fn look_for_repairs(&mut self) {
        let mut drives = self.space.drives.numbers();
        if drives.any(|d| self.space.drives.in_service(d) && !self.space.drives.stays(d)) {
            self.repair_now();
        } else if self.is_degraded() {
            self.heal();
            self.rebuild_wanted();
        }
    }

    /// When repair begins by itself, if it waits.
    pub(super) fn repair_deadline(&self) -> Option<Moment> {
        let waits = self.rebuild.phase == Phase::Idle || self.rebuild.joining.is_empty();
        self.rebuild.due.filter(|&due| waits && due > self.base.now)
    }

    /// Whether copies are missing that the walk is making, or is about to.
    pub fn is_rebuilding(&self) -> bool {
        let is_due = self.rebuild.due.is_some_and(|due| due <= self.base.now);
        is_due || !self.rebuild.joining.is_empty() || self.rebuild.returns.is_busy()
    }

    /// How far a walk has come, 0 to 1.
    pub fn walk_progress(&self) -> Option<f64> {
        if self.rebuild.phase == Phase::Idle {
            return None;
        }
        let mirrored = |entry: &&VolumeEntry| entry.state == VolumeState::Live;
        let all: u64 = self
            .volumes
            .values()
            .filter(mirrored)
            .map(|entry| entry.granules)
            .sum();
        let before = self
            .volumes
            .range(..self.rebuild.volume)
            .map(|(_, entry)| entry);
        let walked: u64 = before.filter(mirrored).map(|entry| entry.granules).sum();
        let walked = ((walked + self.rebuild.at) as f64 / all.max(1) as f64).min(1.0);
        if !self.is_rebuilding() || self.rebuild.returns.is_walking() {
            return Some(walked);
        }
        // One of several walks, which may be a scrub as well, or still be one only.
        let (filled, now) = (
            self.rebuild.filled as f64,
            self.rebuild.joining.len() as f64,
        );
        Some(((filled + now * walked) / self.rebuild.wanted.max(1) as f64).min(1.0))
    }

    pub(super) fn advance_rebuild(&mut self) {
        self.advance_renewal();
        self.base.again |= self.space.reopen_segments();
        if self.rebuild.end_cut_return() {
            self.base.again = true;
            return;
        }
        let due = self.rebuild.due.is_some_and(|due| due <= self.base.now);
        match self.rebuild.phase {
            Phase::Idle if self.rebuild.returns.is_wanted() => {
                self.begin_return();
                self.base.again = true;
            }
            Phase::Recording if self.rebuild.returns.is_walking() => self.let_back_in(),
            Phase::Idle if due || self.rebuild.scrub.is_wanted() => {
                self.begin_walk();
                self.base.again = true;
            }
            Phase::Idle => {
                self.let_go_emptied();
                if !self.map.is_renewing() {
                    self.rebuild.answer_scrubs(&mut self.base, &mut self.roots);
                }
            }
            // A scrub may take days: what lacks copies does not wait for its end.
            Phase::AwaitingOlder | Phase::Walking
                if (due || self.rebuild.returns.is_wanted())
                    && self.rebuild.joining.is_empty()
                    && !self.rebuild.returns.is_walking() =>
            {
                self.interrupt_scrub();
            }
            Phase::AwaitingOlder if self.older_are_over() => {
                self.rebuild.phase = Phase::Walking;
                trace!(phase = ?self.rebuild.phase, "rebuild");
                self.walk();
            }
            Phase::Walking => self.walk(),
            _ => {}
        }
    }

    /// Repair has come due while a scrub walks: one walk does both, at a repair's pace. What is under way
    /// ends first.
    fn interrupt_scrub(&mut self) {
        if self.rebuild.pending > 0 {
            return;
        }
        self.rebuild.phase = Phase::Idle;
        trace!(phase = ?self.rebuild.phase, "rebuild");
        self.rebuild.scrub_interrupted();
        self.base.again = true;
    }

    fn begin_walk(&mut self) {
        if self.rebuild.scrub.begins_map() {
            self.map.leave_places();
        }
        self.want_renewal();
        if self.rebuild.due.is_some_and(|due| due <= self.base.now) {
            self.rebuild.due = None;
            self.rebuild.choose_columns(&mut self.space);
            self.space.spread_reserve(Users {
                volumes: &self.volumes,
                rebuild: &self.rebuild,
            });
            self.volumes
                .stops_admission_check(&self.space, &self.rebuild);
        }
        if self.rebuild.joining.is_empty() && !self.rebuild.scrub.is_wanted() {
            return;
        }
        // New columns are filled from the beginning.
        let from = self.rebuild.begin_scrub(self.base.now, &mut self.roots);
        let from = from.filter(|_| self.rebuild.joining.is_empty());
        if from.is_none() {
            self.rebuild.lost = 0;
        }
        self.begin_walk_at(from);
    }

    /// A walk begins there: first what knows nothing of it goes through.
    pub(super) fn begin_walk_at(&mut self, from: Option<ScrubAt>) {
        self.rebuild.returns.walk_begins();
        self.space.forget_recount();
        self.rebuild.unmended = 0;
        self.rebuild.stamp = self.waiting.next_serial();
        self.rebuild.round = self.destage.round();
        (self.rebuild.volume, self.rebuild.at) = from.map_or((0, 0), |at| (at.volume, at.granule));
        self.rebuild.phase = Phase::AwaitingOlder;
        trace!(phase = ?self.rebuild.phase, "rebuild");
    }

    fn older_are_over(&self) -> bool {
        let stamp = self.rebuild.stamp;
        // What goes through the ring, or waits to come in, has chosen no columns; and it may wait for the drive
        // that returns, if the ring is full of what can go home only then.
        let older = self.waiting.writes().pass_ring_before(stamp);
        // A destage under way has chosen its columns, too. Under a constant load there is always one.
        let destaged = self.destage.is_idle() || self.destage.round() > self.rebuild.round;
        destaged && !older
    }

    /// Takes on slots until enough are under way.
    fn walk(&mut self) {
        let all = self.rebuild.scrub.is_walking();
        let mut leaves = 0;
        while leaves < LEAVES {
            let Some(end) = self.walked_volume() else {
                return self.flush_walked();
            };
            let (volume, at) = (self.rebuild.volume, self.rebuild.at);
            let grain = self.map.grain(volume);
            if at >= end {
                (self.rebuild.volume, self.rebuild.at) = (volume + 1, 0);
                continue;
            }
            let leaf = at / LEAF_GRANULES;
            let told = Told {
                identity: &self.identity,
                journal: &self.journal,
                map: &self.map,
            };
            let returns = &self.rebuild.returns;
            if returns.have_all_of(leaf_id(volume, leaf), told) {
                leaves += 1;
                self.rebuild.at = (leaf + 1) * LEAF_GRANULES;
                continue;
            }
            match self.map.leaf(volume, leaf) {
                LeafView::OnDisk => {
                    self.load(leaf_id(volume, leaf), Waiter::Walk);
                    return;
                }
                LeafView::Absent => {
                    leaves += 1;
                    self.rebuild.at = (leaf + 1) * LEAF_GRANULES;
                    continue;
                }
                LeafView::Loaded(_) => {}
            }
            let slot = grain.slot_of(at);
            let location = self.map.location(volume, slot).unwrap_or(0);
            if all && location == 0 {
                let lost = u64::from(self.map.lost_in(SlotKey { volume, slot }));
                self.base.counters.lost += lost;
                self.rebuild.lost += lost;
            }
            let lacks = |segment| {
                all || self.rebuild.joining.contains_key(&segment)
                    || self.rebuild.has_returning_column(segment, &self.space)
            };
            if location != 0 && lacks(segment_and_slot(location).0) {
                let next = Next {
                    now: self.base.now,
                    bytes: grain.bytes(),
                    is_shared: self.hosts_are_here(),
                };
                let is_remembered = self.rebuild.remember_scrub(self.base.now, &mut self.roots);
                if !is_remembered || !self.rebuild.may_take_up(next) {
                    return;
                }
                let key = SlotKey { volume, slot };
                self.take_up(key);
            }
            self.rebuild.at = grain.first(slot + 1);
            if self.rebuild.at.is_multiple_of(LEAF_GRANULES) {
                leaves += A_LEAF;
            }
        }
        self.base.again = true;
    }

    /// The volume that the walk is in (or the next one), and its end in granules.
    fn walked_volume(&mut self) -> Option<u64> {
        let homed = |entry: &VolumeEntry| Class::of_volume(entry).is_some();
        let next = self
            .volumes
            .range(self.rebuild.volume..)
            .find(|(_, entry)| entry.state == VolumeState::Live && homed(entry));
        let (&volume, entry) = next?;
        if volume != self.rebuild.volume {
            (self.rebuild.volume, self.rebuild.at) = (volume, 0);
        }
        Some(entry.granules)
    }

    /// Takes a slot on, in line with others that want it.
    fn take_up(&mut self, key: SlotKey) {
        self.rebuild.pending += 1;
        self.map.pin_slot(key);
        if self.access.lock_or_wait(key, Waiter::Walk) {
            self.walk_slot(key);
        }
    }

    fn let_slot_go(&mut self, key: SlotKey) {
        self.rebuild.pending -= 1;
        self.map.unpin_slot(key);
        self.unlock(key);
    }

    /// The slot is locked.
    pub(super) fn walk_slot(&mut self, key: SlotKey) {
        match self.map.location(key.volume, key.slot) {
            // It was given up meanwhile.
            None | Some(0) => self.let_slot_go(key),
            Some(location) => self.read_slot(key, location),
        }
    }

    fn read_slot(&mut self, key: SlotKey, location: u32) {
        let (segment, slot) = segment_and_slot(location);
        let Some(shape) = self.space.shape(segment) else {
            return invariant!(
                self,
                "a walk has come to a slot of segment {segment}, which is not there"
            );
        };
        let is_cut = !shape.is_mirror();
        let columns = if is_cut {
            Vec::new()
        } else {
            self.rebuild.walked_columns(segment, &self.space)
        };
        let job = Job {
            key,
            location,
            copies: columns.iter().map(|&column| (column, None)).collect(),
            pending: columns.len(),
        };
        let place = self.rebuild.jobs.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.rebuild.jobs.push(None);
            self.rebuild.jobs.len() - 1
        });
        self.rebuild.jobs[place] = Some(job);
        if is_cut {
            return self.gather(Wish {
                who: For::Walk { job: place },
                key,
                location,
                granules: u16::MAX,
                bad: 0,
                crcs: [0; UNIT_GRANULES as usize],
            });
        }
        for (copy, column) in columns.iter().enumerate() {
            let drive = usize::from(column.drive);
            let Some(buffer) = self.buffer(shape.strip_bytes()) else {
                return;
            };
            let at = shape.strip_at(self.identity.sizes(), *column, slot);
            let at = DriveByte { drive, byte: at };
            self.read_strip(Reader::Walk { job: place, copy }, at, buffer);
        }
        if columns.is_empty() {
            self.end_job(place);
        }
    }

    pub(super) fn copy_read(&mut self, job: usize, copy: usize, strip: Option<Strip>) {
        let Some(Some(state)) = self.rebuild.jobs.get_mut(job) else {
            return invariant!(self, "job {job} of a walk is not there in copy_read");
        };
        state.copies[copy].1 = strip;
        state.pending -= 1;
        if state.pending == 0 {
            self.mend_slot(job);
        }
    }

    pub(super) fn walk_io_done(&mut self, io: WalkIo, drive: usize, result: Result<(), IoError>) {
        match io {
            WalkIo::Write { job } => {
                if let Err(error) = result {
                    self.drive_failed(drive, &error);
                }
                let Some(Some(state)) = self.rebuild.jobs.get_mut(job) else {
                    return invariant!(self, "job {job} of a walk is not there in walk_io_done");
                };
                state.pending -= 1;
                if state.pending == 0 {
                    self.end_job(job);
                }
            }
            WalkIo::Flush => {
                if let Err(error) = result {
                    self.drive_failed(drive, &error);
                }
                self.rebuild.pending -= 1;
                if self.rebuild.pending == 0 {
                    self.record_columns();
                }
            }
        }
    }

    /// A slot with parity has been put together: writes what was bad, and the new column.
    pub(super) fn slot_gathered(&mut self, place: usize, found: &Gathered) {
        let lost = found.lost() as u64;
        self.base.counters.lost += lost;
        self.rebuild.lost += lost;
        self.rebuild.unmended += lost;
        let bad = found.bad().count() as u64;
        self.base.counters.repaired += bad;
        let Some(mends) = found.mends(&self.space, &self.rebuild) else {
            return invariant!(
                self,
                "a slot was put together of a segment that is not there"
            );
        };
        self.write_mended(place, mends);
    }

    /// Every copy has been read: writes good granules over bad ones, and the new column.
    fn mend_slot(&mut self, place: usize) {
        let Some(Some(job)) = self.rebuild.jobs.get_mut(place) else {
            return invariant!(self, "job {place} of a walk is not there to be mended");
        };
        let (key, location) = (job.key, job.location);
        let copies = std::mem::take(&mut job.copies);
        let (segment, slot) = segment_and_slot(location);
        let Some(shape) = self.space.shape(segment) else {
            return invariant!(
                self,
                "a slot of segment {segment} is to be mended, which is not there"
            );
        };
        let salt = self.identity.salt();
        let mut whole = vec![0; shape.strip_bytes()];
        let mut bad: Vec<(ChunkCopy, usize)> = Vec::new();
        for (inner, granule) in self.map.granules_of(key).enumerate() {
            let Some((_, crc)) = self.map.granule(key.volume, granule) else {
                continue;
            };
            let recorded = self.logs.has(GranuleKey {
                volume: key.volume,
                granule,
            });
            if crc == 0 || recorded {
                // Nothing, or the ring has it and will write it to every column.
                continue;
            }
            let bytes = inner * GRANULE..(inner + 1) * GRANULE;
            let good = |copy: &(ChunkCopy, Option<Strip>)| {
                let granule = copy.1.as_ref().and_then(|strip| strip.granule(inner));
                granule.is_some_and(|granule| salt.crc(granule) == crc)
            };
            let strip = copies.iter().find(|copy| good(copy));
            let strip = strip.and_then(|(_, strip)| strip.as_ref()?.granule(inner));
            let Some(granule) = strip else {
                for (column, _) in &copies {
                    self.space
                        .note_bad(usize::from(column.drive), &mut self.base.counters);
                }
                self.base.counters.lost += 1;
                self.rebuild.lost += 1;
                self.rebuild.unmended += 1;
                continue;
            };
            whole[bytes].copy_from_slice(granule);
            let others = copies.iter().filter(|copy| !good(copy));
            bad.extend(others.map(|&(column, _)| (column, inner)));
        }
        drop(copies);
        for (column, _) in &bad {
            self.space
                .note_bad(usize::from(column.drive), &mut self.base.counters);
        }
        let mend = |column: ChunkCopy, bytes: std::ops::Range<usize>| {
            let at = shape.strip_at(self.identity.sizes(), column, slot) + bytes.start as u64;
            (usize::from(column.drive), at, whole[bytes].to_vec())
        };
        let granule = |inner: usize| inner * GRANULE..(inner + 1) * GRANULE;
        let bad = bad.into_iter();
        let mut writes: Vec<Mend> = bad
            .map(|(column, inner)| mend(column, granule(inner)))
            .collect();
        let repaired = writes.len() as u64;
        if let Some(&joining) = self.rebuild.joining.get(&segment) {
            writes.push(mend(joining.column, 0..whole.len()));
        }
        self.base.counters.repaired += repaired;
        self.write_mended(place, writes);
    }

    fn write_mended(&mut self, place: usize, writes: Vec<Mend>) {
        if let Some(Some(job)) = self.rebuild.jobs.get_mut(place) {
            job.pending = writes.len();
        }
        if writes.is_empty() {
            return self.end_job(place);
        }
        let joining = self.joining_drive(place);
        for (drive, at, bytes) in writes {
            // How far a scrub has come is remembered without a flush; new columns are flushed, all at
            // once, before the map names them.
            let is_new = joining.is_some_and(|new| usize::from(new) == drive);
            let durability = match is_new || self.rebuild.returns.is(drive) {
                true => Durability::Cached,
                false => Durability::Durable,
            };
            let Some(mut buffer) = self.buffer(bytes.len()) else {
                return;
            };
            buffer.copy_from_slice(&bytes);
            let range = self.space.drives.range(drive, at, buffer.len());
            self.send(drive, Owner::Walk(WalkIo::Write { job: place }), |tag| {
                Request::write(tag, range, buffer, durability)
            });
        }
    }

    /// The drive of the new column that a slot's segment gets: the segment has no other column there.
    fn joining_drive(&self, place: usize) -> Option<u16> {
        let job = self.rebuild.jobs.get(place)?.as_ref()?;
        let (segment, _) = segment_and_slot(job.location);
        Some(self.rebuild.joining.get(&segment)?.column.drive)
    }

    fn end_job(&mut self, place: usize) {
        if let Some(job) = self.rebuild.jobs.get_mut(place).and_then(Option::take) {
            self.let_slot_go(job.key);
        }
    }

    fn flush_walked(&mut self) {
        if self.rebuild.pending > 0 {
            return;
        }
        self.rebuild.phase = Phase::Flushing;
        trace!(phase = ?self.rebuild.phase, "rebuild");
        if self.identity.sings(Canary::ReadmitBeforeFlush) && self.rebuild.returns.is_walking() {
            return self.record_columns();
        }
        let mut drives = self.space.drives.active();
        drives.extend(self.rebuild.returns.member());
        self.rebuild.pending = drives.len();
        for drive in drives {
            self.send(drive, Owner::Walk(WalkIo::Flush), Request::flush);
        }
    }

    /// The new columns are filled and flushed: their segments' entries say so.
    fn record_columns(&mut self) {
        self.rebuild.phase = Phase::Recording;
        trace!(phase = ?self.rebuild.phase, "rebuild");
        if self.rebuild.returns.is_walking() {
            return self.let_back_in();
        }
        let joining: Vec<(u32, Joining)> =
            self.rebuild.joining.iter().map(|(&s, &j)| (s, j)).collect();
        for (segment, join) in joining {
            if !self.space.drives.in_service(join.column.drive) {
                // Lost in its turn: the next walk chooses again.
                self.rebuild.joining.remove(&segment);
                continue;
            }
            let Some(found) = self.space.segments.get(segment) else {
                return invariant!(
                    self,
                    "segment {segment} is given a column, but is not there"
                );
            };
            let entry = match found.class.redundancy {
                Redundancy::Mirror(_) => {
                    let columns = columns_with(found, join, &self.space);
                    found.class.entry(&columns, found.shape)
                }
                Redundancy::Parity(..) => {
                    let (columns, shape) = strips_with(found, join);
                    found.class.entry(&columns, shape)
                }
            };
            self.rebuild.unpublished += 1;
            let change = segment_change(segment, &entry, Then::Columns(segment));
            self.journal.stage_first(change);
        }
        self.end_walk_if_recorded();
    }

    pub(super) fn columns_published(&mut self, segment: u32) {
        self.rebuild.unpublished -= 1;
        self.rebuild.filled += 1;
        self.rebuild.joining.remove(&segment);
        let bytes = self
            .map
            .entry_bytes(SEGMENTS, segment)
            .map(SegmentEntry::decode);
        let Some(Ok(entry)) = bytes else {
            return self.fail(format!("the entry of segment {segment} did not take"));
        };
        // One that is being given a column is not given back before that is done.
        let is_there = self
            .space
            .segments
            .set_columns(segment, Columns::of(&entry));
        invariant!(
            self,
            is_there,
            "segment {segment} was given a column, but is not there"
        );
        self.space.recount_changes(segment);
        self.end_walk_if_recorded();
    }

    fn end_walk_if_recorded(&mut self) {
        if self.rebuild.phase != Phase::Recording || self.rebuild.unpublished > 0 {
            return;
        }
        self.rebuild.phase = Phase::Idle;
        trace!(phase = ?self.rebuild.phase, "rebuild");
        self.rebuild.scrub_walked(&mut self.roots);
        let segments = self.space.segments.ids();
        if segments.iter().any(|&segment| {
            self.rebuild
                .drive_for_column(segment, &self.space)
                .is_some()
        }) {
            self.rebuild.due = Some(self.base.now);
        } else if !segments
            .iter()
            .any(|&segment| lacks_column(segment, &self.space))
        {
            self.rebuild.filled = 0;
        }
        self.volumes
            .stops_admission_check(&self.space, &self.rebuild);
        self.base.again = true;
    }
}
