//! Checkpoints: dirty pages go to fresh places, then the tables that name them, then, flushed, a
//! root. Only a root that is durable on every member lets anything be reused: places that it
//! superseded, and the logs below its tails.

use std::time::Duration;

use ashlar_block::{Durability, ErrorKind, IoBuffer, IoError, Moment, Request};
use tracing::{trace, warn};

use super::destage::LOW;
use super::invariant::invariant;
use super::logs::{Numbers, Positions};
use super::map::{Content, FIRST_VOLUME};
use super::space::{place, segment_and_slot, segment_and_unit, unit_at};
use super::state::Retired;
use super::{Engine, Owner, Waiter};
use crate::Canary;
use crate::error::lost_page;
use crate::format::{ChunkCopy, Leaf, LogId, PLACE_NONE, PageId, Root, TableEntry};
use crate::sizes::GRANULE;

/// How full the map log may get before its oldest changes are brought to pages: the longer they wait,
/// the more of them a page takes with it.
const MAP_HIGH: f64 = 0.75;
/// Chunks of it that are kept free for changes that come while pages are written, if that is more.
const MAP_FREE: f64 = 1.25;
/// The part of the map log that one checkpoint lets go of; at least a chunk.
const MAP_STEP: f64 = 0.125;
/// Copies of pages on their way at a time.
const PAGES: usize = 256;
/// Most pages of level 0 of one checkpoint: their old places come back when its root is durable.
pub(super) const MOST_PAGES: usize = 65_536;

/// After this long without a change, what an import would have to read again is brought to pages:
/// once, and then the pool is quiet.
const IDLE: Duration = Duration::from_secs(3);
/// How much of the map log is worth it.
const WORTH: f64 = 0.02;

/// What the checkpoint is at.
#[derive(Default)]
pub(crate) struct Checkpoint {
    phase: Phase,
    pending: usize,
    /// Pages of level 0 with changes below this sequence are written, and how many more at most.
    until: u64,
    left: usize,
    /// Places that the next root supersedes.
    superseded: Vec<u64>,
    /// Columns of metadata segments that the root being written names no more.
    dropped: Vec<ChunkCopy>,
    /// Some metadata segment holds nothing any more and will hold nothing more: only a root that does
    /// not name it lets a drive that is to leave go.
    droppable: bool,
    /// Where the logs begin by the root being written.
    tails: Option<Positions>,
    /// What the last durable root named.
    rooted: Option<Positions>,
    /// Numbers of the next batches of both logs, and since when they are that.
    seen: Numbers,
    since: Moment,
    /// What deleted volumes have left is to be cleared away.
    clearing: bool,
    /// Metadata segments may have been closed that are empty already.
    look: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// Writing pages of a level.
    Pages(u8),
    Flushing,
    Root,
}

/// What a checkpoint is to do.
enum Due {
    /// A root with the tails of this moment.
    Root,
    /// The same, with pages that hold the changes below this sequence.
    Pages(u64),
}

impl Engine {
    /// Begins a checkpoint when a log needs it or an order asks for it, and there is something to gain.
    pub(super) fn advance_checkpoint(&mut self) {
        if self.is_checkpointing() || self.failed.is_some() || self.lacks_places() {
            return;
        }
        self.trim_ring();
        let numbers = self.logs.next_numbers();
        if self.checkpoint.seen != numbers {
            (self.checkpoint.seen, self.checkpoint.since) = (numbers, self.now);
        }
        if std::mem::take(&mut self.checkpoint.look) {
            self.checkpoint.droppable |= self.metadata.has_emptied();
        }
        match self.checkpoint_due() {
            Some(Due::Pages(until)) => {
                self.checkpoint.clearing = false;
                self.checkpoint.phase = Phase::Pages(0);
                trace!(phase = ?self.checkpoint.phase, "checkpoint");
                (self.checkpoint.until, self.checkpoint.left) = (until, MOST_PAGES);
                self.write_pages();
            }
            Some(Due::Root) => {
                self.checkpoint.phase = Phase::Root;
                trace!(phase = ?self.checkpoint.phase, "checkpoint");
                self.root_due();
            }
            None => {}
        }
    }

    /// Whether a checkpoint is under way.
    pub(super) fn is_checkpointing(&self) -> bool {
        self.checkpoint.phase != Phase::Idle
    }

    fn checkpoint_due(&self) -> Option<Due> {
        let healing = self.is_healing();
        let droppable = self.checkpoint.droppable;
        let asked = self.waiting.is_draining() || self.checkpoint.clearing;
        let wanted = asked || droppable || self.map.has_changed_losses();
        if wanted || healing || self.has_many_terms() {
            let clean = self.map.dirty_pages() == 0 && !self.map.has_dirty_tables();
            let useless = clean && self.checkpoint.rooted == Some(self.tails());
            return (!useless || healing || droppable)
                .then_some(Due::Pages(self.journal.published() + 1));
        }
        if self.map.has_many_dirty_leaves() {
            return Some(Due::Pages(self.journal.published() + 1));
        }
        // Only whole chunks are any use.
        let rooted = self.rooted_tails();
        if self.logs.fill(LogId::Map) > self.map_high() {
            let until = self.map_cut();
            let kept = self.ring_sequence().min(self.replica_hold());
            let tail = self.logs.map_tail(until.min(kept));
            if self.logs.frees_a_chunk(LogId::Map, rooted.map, tail) {
                return Some(Due::Pages(until));
            }
        }
        if let Some(until) = self.renewal_due() {
            return Some(Due::Pages(until));
        }
        if self.now >= self.checkpoint.since + IDLE && self.is_idle_worth_a_checkpoint() {
            return Some(Due::Pages(self.journal.published() + 1));
        }
        // A record of the ring goes with its home and the map log's record of it: no page is needed.
        let ring = self.logs.fill(LogId::Ring) > LOW;
        let frees = || {
            let tail = self.logs.ring_tail();
            self.logs.frees_a_chunk(LogId::Ring, rooted.ring, tail)
        };
        (ring && frees()).then_some(Due::Root)
    }

    /// Tables that name nothing any more are to leave the root soon.
    pub(super) fn clear_remains(&mut self) {
        self.checkpoint.clearing = true;
    }

    /// Whether nothing is on its way to a log, and one has more than a root would leave in it.
    fn is_idle_worth_a_checkpoint(&self) -> bool {
        let quiet = self.logs.is_all_home() && self.journal.is_quiet();
        let tails = self.rooted_tails();
        let is_worth = |log| self.logs.part_behind(log, tails.of(log)) > WORTH;
        quiet && (is_worth(LogId::Ring) || is_worth(LogId::Map))
    }

    /// Where the logs begin, by the last durable root.
    fn rooted_tails(&self) -> Positions {
        let rooted = self.checkpoint.rooted;
        rooted.unwrap_or_else(|| self.logs.free_below())
    }

    /// When a checkpoint of an idle pool begins, if one will.
    pub(super) fn checkpoint_deadline(&self) -> Option<Moment> {
        let at = self.checkpoint.since + IDLE;
        let waits = self.checkpoint.phase == Phase::Idle && self.now < at;
        (waits && self.is_idle_worth_a_checkpoint()).then_some(at)
    }

    fn map_high(&self) -> f64 {
        let chunks = self.logs.map_chunks() as f64;
        MAP_HIGH.min(1.0 - MAP_FREE / chunks)
    }

    /// The map log is to let go of what is older than this sequence when it is too full.
    fn map_cut(&self) -> u64 {
        let step = MAP_STEP.max(1.0 / self.logs.map_chunks() as f64);
        let kept = (self.logs.map_bytes() as f64 * (self.map_high() - step)) as u64;
        let published = self.journal.published();
        let first = self.logs.map_sequence_within(kept);
        first.map_or(published, |first| first.min(published))
    }

    /// Whether records of the ring keep the map log from letting go of what it soon should.
    pub(super) fn ring_holds_map(&self) -> bool {
        self.logs.fill(LogId::Map) > self.map_high() - MAP_STEP
            && self.ring_sequence() < self.map_cut()
    }

    /// Sequence of the oldest record that recovery would find in the ring.
    fn ring_sequence(&self) -> u64 {
        let ring = self.logs.oldest_in_ring();
        let ring = ring.filter(|_| !self.identity.sings(Canary::MapPastRing));
        ring.unwrap_or(u64::MAX)
    }

    /// Drops batches from the front whose granules all have newer records or homes.
    fn trim_ring(&mut self) {
        let published = self.journal.published();
        self.logs.trim_ring(published.min(self.replica_hold()));
    }

    /// Map records below this sequence are in pages that are written (or being written in this
    /// round), and no ring record that recovery would replay is older.
    pub(super) fn map_sequence(&self) -> u64 {
        let dirty = self.map.oldest_dirty().unwrap_or(u64::MAX);
        let kept = self.ring_sequence().min(self.replica_hold());
        self.journal.published().min(kept).min(dirty)
    }

    /// Where the logs would begin by a root of this moment.
    fn tails(&self) -> Positions {
        Positions {
            ring: self.logs.ring_tail(),
            map: self.logs.map_tail(self.map_sequence()),
        }
    }

    /// Writes dirty pages of level 0, oldest first, as many at a time as may be on their way.
    fn write_pages(&mut self) {
        while self.checkpoint.pending < PAGES && self.checkpoint.left > 0 {
            let until = self.checkpoint.until;
            if self.map.oldest_dirty().is_none_or(|oldest| oldest >= until) {
                break;
            }
            let sequence = self.map.sequence_of_next(self.journal.published());
            let Some((id, bytes)) = self.map.take_dirty() else {
                break;
            };
            self.checkpoint.left -= 1;
            self.write_page(id, bytes, sequence);
        }
        self.next_level_if_written();
    }

    /// Writes a page, with the changes below this sequence, to a fresh place on every copy, or notes that there is
    /// none any more.
    fn write_page(&mut self, id: PageId, bytes: Option<Vec<u8>>, sequence: u64) {
        let entry = match bytes {
            None => TableEntry::NONE,
            Some(bytes) => {
                let Some((segment, unit)) = self.take_place() else {
                    return self.fail("no space is left for the pool's own map".into());
                };
                self.counters.pages += 1;
                for copy in self.meta_columns(segment) {
                    self.write_page_copy(id, copy, unit, &bytes);
                }
                TableEntry {
                    place: place(segment, unit),
                    crc: id.crc(self.identity.salt(), &bytes),
                    sequence,
                    slots: self.map.slots_of(id),
                    lost: self.map.lost_of(id),
                }
            }
        };
        let old = self.map.set_entry(id, entry);
        if old.place != PLACE_NONE {
            if self.identity.sings(Canary::ReuseBeforeRoot) {
                return self.access.retire(Retired::Place(old.place));
            }
            self.checkpoint.superseded.push(old.place);
        }
    }

    fn write_page_copy(&mut self, id: PageId, copy: ChunkCopy, unit: u32, bytes: &[u8]) {
        let drive = usize::from(copy.drive);
        let Some(mut buffer) = self.buffer(GRANULE) else {
            return;
        };
        buffer.copy_from_slice(bytes);
        let range = self.range(
            drive,
            unit_at(self.identity.sizes(), copy, unit, GRANULE as u64),
            GRANULE,
        );
        self.checkpoint.pending += 1;
        // Its new place is not to be read before it is written.
        self.map.pin_page(id);
        self.send(drive, Owner::Page { id }, |tag| {
            Request::write(tag, range, buffer, Durability::Cached)
        });
    }

    fn take_place(&mut self) -> Option<(u32, u32)> {
        if self.metadata.free_places() == 0 {
            self.add_meta_segment(false);
        }
        let (usable, wanted) = (self.usable(), self.meta_copies());
        let staying = |copy: &&ChunkCopy| usable.get(usize::from(copy.drive)) == Some(&true);
        let good = |columns: &[ChunkCopy]| columns.iter().filter(staying).count() >= wanted;
        self.metadata.take(good)
    }

    /// Columns of a metadata segment that are in service.
    pub(super) fn meta_columns(&self, segment: u32) -> Vec<ChunkCopy> {
        self.serving(self.metadata.columns_of(segment))
    }

    pub(super) fn page_written(&mut self, id: PageId, drive: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.drive_failed(
                drive,
                &IoError::with_source(ErrorKind::Media, format!("{id:?}"), error),
            );
        }
        self.checkpoint.pending -= 1;
        self.map.unpin_page(id);
        match self.checkpoint.phase {
            Phase::Pages(0) => self.write_pages(),
            _ => self.next_level_if_written(),
        }
    }

    fn next_level_if_written(&mut self) {
        while let Phase::Pages(level) = self.checkpoint.phase
            && self.checkpoint.pending == 0
            && self.failed.is_none()
        {
            if level == 2 {
                return self.flush_pages();
            }
            self.checkpoint.phase = Phase::Pages(level + 1);
            trace!(phase = ?self.checkpoint.phase, "checkpoint");
            for (id, bytes) in self.map.take_dirty_tables(level + 1) {
                self.write_page(id, bytes, self.journal.published());
            }
        }
    }

    fn flush_pages(&mut self) {
        self.checkpoint.phase = Phase::Flushing;
        trace!(phase = ?self.checkpoint.phase, "checkpoint");
        for drive in self.active() {
            self.checkpoint.pending += 1;
            self.send(drive, Owner::CheckpointFlush, Request::flush);
        }
    }

    pub(super) fn checkpoint_flushed(&mut self, drive: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        self.checkpoint.pending -= 1;
        if self.checkpoint.pending == 0 && self.failed.is_none() {
            self.checkpoint.phase = Phase::Root;
            trace!(phase = ?self.checkpoint.phase, "checkpoint");
            self.root_due();
        }
    }

    /// The root of this moment.
    fn root(&self) -> Root {
        let (map_sequence, tails) = (self.map_sequence(), self.tails());
        Root {
            features: self.roots.features.wanted(),
            pool: self.identity.label().pool,
            generation: self.drives.generation(),
            term: self.drives.term(),
            next_sequence: self.journal.next_sequence(),
            map_sequence,
            members: self.drives.members().to_vec(),
            reserve: self.upkeep.kept().wish(),
            ring: self.logs.state(LogId::Ring, tails.ring),
            map: self.logs.state(LogId::Map, tails.map),
            meta: self.metadata.segments().to_vec(),
            tops: self.map.tops(),
            scrub: self.scrub_at(),
        }
    }

    /// The root on its way names these pages: from here to its end nothing else may.
    pub(super) fn checkpoint_root(&mut self) -> Root {
        self.checkpoint.droppable = false;
        self.checkpoint.dropped.extend(self.metadata.drop_emptied());
        self.trim_ring();
        self.checkpoint.tails = Some(self.tails());
        self.root()
    }

    /// The checkpoint's root is durable.
    pub(super) fn checkpoint_rooted(&mut self) {
        self.checkpoint.phase = Phase::Idle;
        trace!(phase = ?self.checkpoint.phase, "checkpoint");
        for place in std::mem::take(&mut self.checkpoint.superseded) {
            self.access.retire(Retired::Place(place));
        }
        // They were empty: no page is read there any more, either.
        for copy in std::mem::take(&mut self.checkpoint.dropped) {
            let extents = self.identity.sizes().segment_extents();
            self.give_extents_of(copy, extents);
            // Pages that found no room to move to may find it now.
            self.want_renewal();
        }
        let Some(tails) = self.checkpoint.tails.take() else {
            return invariant!(self, "a checkpoint's root is durable, but named no tails");
        };
        self.checkpoint.rooted = Some(tails);
        self.part_renewed();
        self.logs.rooted(tails);
        for log in [LogId::Ring, LogId::Map] {
            self.access.retire(Retired::Log(log, tails.of(log)));
        }
    }

    /// Metadata segments may have been closed.
    pub(super) fn look_for_emptied(&mut self) {
        self.checkpoint.look = true;
    }

    fn free_slot(&mut self, location: u32) {
        let (segment, slot) = segment_and_slot(location);
        let class = self.segments.release(segment, slot);
        invariant!(
            self,
            class.is_some(),
            "a slot of segment {segment} is free, which is not there"
        );
        self.slot_freed(segment);
    }

    /// Whether many short-lived engines have left their terms in a log: a root has room for only so
    /// many, and a tail that moves on forgets them.
    pub(super) fn has_many_terms(&self) -> bool {
        const MANY: usize = 8;
        self.logs.terms() > MANY
    }

    /// Takes back what no reader uses any more.
    pub(super) fn reclaim(&mut self) {
        while let Some(free) = self.access.next_free() {
            match free {
                Retired::Slot(location) => self.free_slot(location),
                Retired::Place(place) => {
                    let (segment, unit) = segment_and_unit(place);
                    self.metadata.release(segment, unit);
                    self.checkpoint.droppable |= self.metadata.is_emptied(segment);
                }
                Retired::Log(log, at) => self.logs.free(log, at),
            }
        }
    }

    /// Reads a page of level 0; what waits goes on when it is here.
    pub(super) fn load(&mut self, id: PageId, waiter: Waiter) {
        if self.access.want_page(id, waiter) {
            // A second read could return when the page has long been changed and moved.
            self.read_page(id, 0);
        }
    }

    /// Reads a page from a drive that has not been `tried`.
    fn read_page(&mut self, id: PageId, tried: u64) {
        let (segment, unit) = segment_and_unit(self.map.entry(id).place);
        let columns = self.meta_columns(segment);
        let mut untried = columns.iter().filter(|copy| tried & 1 << copy.drive == 0);
        let quick = |copy: &&ChunkCopy| !self.drive_io.is_slow(usize::from(copy.drive));
        let Some(&place) = untried.clone().find(quick).or_else(|| untried.next()) else {
            return self.page_lost(id);
        };
        let drive = usize::from(place.drive);
        let Some(buffer) = self.buffer(GRANULE) else {
            return;
        };
        let range = self.range(
            drive,
            unit_at(self.identity.sizes(), place, unit, GRANULE as u64),
            GRANULE,
        );
        self.send(drive, Owner::LoadPage { id, tried }, |tag| {
            Request::read(tag, range, buffer)
        });
    }

    pub(super) fn page_read(
        &mut self,
        (id, tried): (PageId, u64),
        drive: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        let crc = self.map.entry(id).crc;
        let salt = self.identity.salt();
        let good = buffer.filter(|buffer| result.is_ok() && id.crc(salt, buffer) == crc);
        match good.map(|buffer| Leaf::decode(&buffer)) {
            Some(Ok(leaf)) if leaf.grain() != self.map.grain(id.node) => {
                self.fail(format!(
                    "the map's {id:?} has another grain than its volume"
                ));
            }
            Some(Ok(leaf)) => {
                self.counters.loaded += 1;
                self.map.loaded(id, Content::Leaf(leaf));
                self.wake_waiters(id);
            }
            Some(Err(error)) => self.fail(error.to_string()),
            None => {
                self.note_bad(drive);
                self.read_page(id, tried | 1 << drive);
            }
        }
    }

    /// No copy of a leaf can be read. Without the system's pages nothing works; without a leaf all else does.
    fn page_lost(&mut self, id: PageId) {
        let (segment, _) = segment_and_unit(self.map.entry(id).place);
        let places = self.meta_columns(segment);
        let places = places.iter().map(|copy| {
            let member = self.drives.member(copy.drive.into());
            member.map_or_else(String::new, |member| format!("drive {}", member.drive))
        });
        let lost = lost_page(id, places);
        if id.node < FIRST_VOLUME {
            self.fail(format!(
                "{lost}. Nothing is written any more. If that may pass, import the pool again"
            ));
        } else {
            warn!("{lost}: its blocks are errors until they are written");
            self.map.lose(id);
        }
        self.wake_waiters(id);
    }

    fn wake_waiters(&mut self, id: PageId) {
        for waiter in self.access.take_waiters(id) {
            match waiter {
                Waiter::Read(op) if self.failed.is_none() => self.plan_read(op),
                Waiter::Read(op) => self.fail_read(op),
                Waiter::Renew => self.renew_page(id),
                Waiter::ClearPage(op) => self.clear_page_loaded(op),
                // The others look again at every turn.
                _ => {}
            }
        }
    }

    /// Answers those who asked for everything to be home.
    pub(super) fn answer_drained(&mut self) {
        if !self.waiting.is_draining() || !self.has_drained() {
            return;
        }
        for id in self.waiting.take_draining() {
            self.out
                .managed
                .push((id, Ok(crate::manage::Managed::Done)));
        }
    }

    fn has_drained(&self) -> bool {
        let quiet = self.replica_hold() == u64::MAX && self.journal.is_quiet();
        quiet
            && self.waiting.writes().is_empty()
            && self.waiting.clears().is_empty()
            && self.raw.is_idle()
            && self.logs.is_all_home()
            && self.destage_is_idle()
            && self.map.dirty_pages() == 0
            && !self.map.has_dirty_tables()
            && self.checkpoint.phase == Phase::Idle
            && self.checkpoint.rooted == Some(self.tails())
    }
}
