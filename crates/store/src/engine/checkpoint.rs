//! Checkpoints: dirty pages go to fresh places, then the tables that name them, then, flushed, a
//! root. Only a root that is durable on every member lets anything be reused: places that it
//! superseded, and the logs below its tails.

use std::time::Duration;

use ashlar_block::{Durability, Moment, Request};
use tracing::trace;

use super::Owner;
use super::access::Access;
use super::base::{Base, To};
use super::destage::LOW;
use super::identity::Identity;
use super::invariant::invariant;
use super::journal::Journal;
use super::journal::logs::{Logs, Numbers, Positions};
use super::journal::tails::Tails;
use super::map::Map;
use super::space::{DriveByte, Space, place, unit_at};
use super::state::Retired;
use crate::Canary;
use crate::format::{ChunkCopy, LogId, PLACE_NONE, PageId, TableEntry};
use crate::sizes::GRANULE;

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

/// What a checkpoint may use.
pub(super) struct Around<'a> {
    pub(super) identity: &'a Identity,
    pub(super) base: &'a mut Base,
    pub(super) space: &'a mut Space,
    pub(super) journal: &'a Journal,
    pub(super) logs: &'a mut Logs,
    pub(super) map: &'a mut Map,
    pub(super) access: &'a mut Access,
    /// Copies that the logs should have.
    pub(super) copies: usize,
}

impl Around<'_> {
    /// Where the logs would begin by a root of this moment, if they keep what has this sequence.
    fn tails(&self, hold: u64) -> Tails<'_> {
        Tails {
            identity: self.identity,
            journal: self.journal,
            logs: self.logs,
            map: self.map,
            hold,
        }
    }

    fn send(&mut self, drive: usize, owner: Owner, request: impl FnOnce(u64) -> Request) {
        let to = To::of(&self.space.drives, drive, owner);
        self.base.send(to, request);
    }
}

/// What other parts want of checkpoints.
#[derive(Clone, Copy)]
pub(super) struct Wishes {
    /// The logs keep what has this sequence, whatever roots say.
    pub(super) hold: u64,
    /// An order waits until everything is home.
    pub(super) is_draining: bool,
    /// Logs are to be emptied, so that their chunks get the copies that they lack.
    pub(super) is_healing: bool,
    /// Pages with changes below this sequence are to lie elsewhere.
    pub(super) renewal: Option<u64>,
}

/// What follows from a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    /// Nothing, or drives have been asked for something.
    GoesOn,
    /// The root with the tails of this moment may be written.
    RootIsDue,
}

impl Checkpoint {
    /// Begins a checkpoint when a log needs it or another part wants it, and there is something to gain.
    pub(super) fn begin(&mut self, wishes: Wishes, around: &mut Around<'_>) -> Step {
        if self.is_under_way() || around.space.lacks_places(around.map, around.access) {
            return Step::GoesOn;
        }
        trim_ring(wishes.hold, around);
        let numbers = around.logs.next_numbers();
        if self.seen != numbers {
            (self.seen, self.since) = (numbers, around.base.now);
        }
        if std::mem::take(&mut self.look) {
            self.droppable |= around.space.metadata.has_emptied();
        }
        match self.due(wishes, around) {
            Some(Due::Pages(until)) => {
                self.clearing = false;
                self.enter(Phase::Pages(0));
                (self.until, self.left) = (until, MOST_PAGES);
                self.write_pages(around);
                Step::GoesOn
            }
            Some(Due::Root) => {
                self.enter(Phase::Root);
                Step::RootIsDue
            }
            None => Step::GoesOn,
        }
    }

    /// Whether one is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.phase != Phase::Idle
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        trace!(phase = ?self.phase, "checkpoint");
    }

    fn due(&self, wishes: Wishes, around: &Around<'_>) -> Option<Due> {
        let (map, logs) = (&*around.map, &*around.logs);
        let all = Due::Pages(around.journal.published() + 1);
        let tails = around.tails(wishes.hold);
        let forced = wishes.is_healing || self.droppable;
        let wanted = forced || wishes.is_draining || self.clearing || map.has_changed_losses();
        if wanted || logs.has_many_terms() {
            let clean = map.dirty_pages() == 0 && !map.has_dirty_tables();
            let useless = clean && self.rooted == Some(tails.now());
            return (!useless || forced).then_some(all);
        }
        if map.has_many_dirty_leaves() {
            return Some(all);
        }
        // Only whole chunks are any use.
        let rooted = self.rooted_tails(logs);
        if tails.is_map_high() {
            let until = tails.map_cut();
            let kept = tails.ring_sequence().min(wishes.hold);
            let tail = logs.map_tail(until.min(kept));
            if logs.frees_a_chunk(LogId::Map, rooted.map, tail) {
                return Some(Due::Pages(until));
            }
        }
        if let Some(until) = wishes.renewal {
            return Some(Due::Pages(until));
        }
        if around.base.now >= self.since + IDLE && self.is_idle_worth_it(around.journal, logs) {
            return Some(all);
        }
        // A record of the ring goes with its home and the map log's record of it: no page is needed.
        let ring = logs.fill(LogId::Ring) > LOW;
        let frees = || logs.frees_a_chunk(LogId::Ring, rooted.ring, logs.ring_tail());
        (ring && frees()).then_some(Due::Root)
    }

    /// Tables that name nothing any more are to leave the root soon.
    pub(super) fn clear_remains(&mut self) {
        self.clearing = true;
    }

    /// Whether nothing is on its way to a log, and one has more than a root would leave in it.
    fn is_idle_worth_it(&self, journal: &Journal, logs: &Logs) -> bool {
        let quiet = logs.is_all_home() && journal.is_quiet();
        let tails = self.rooted_tails(logs);
        let is_worth = |log| logs.part_behind(log, tails.of(log)) > WORTH;
        quiet && (is_worth(LogId::Ring) || is_worth(LogId::Map))
    }

    /// Where the logs begin, by the last durable root.
    fn rooted_tails(&self, logs: &Logs) -> Positions {
        self.rooted.unwrap_or_else(|| logs.free_below())
    }

    /// Whether none is under way, and the last root said that the logs begin there.
    pub(super) fn is_done_to(&self, tails: Positions) -> bool {
        self.phase == Phase::Idle && self.rooted == Some(tails)
    }

    /// When one of an idle pool begins, if one will.
    pub(super) fn deadline(&self, now: Moment, journal: &Journal, logs: &Logs) -> Option<Moment> {
        let at = self.since + IDLE;
        let waits = self.phase == Phase::Idle && now < at;
        (waits && self.is_idle_worth_it(journal, logs)).then_some(at)
    }

    /// Writes dirty pages of level 0, oldest first, as many at a time as may be on their way.
    fn write_pages(&mut self, around: &mut Around<'_>) {
        while self.pending < PAGES && self.left > 0 {
            let oldest = around.map.oldest_dirty();
            if oldest.is_none_or(|oldest| oldest >= self.until) {
                break;
            }
            let sequence = around.map.sequence_of_next(around.journal.published());
            let Some((id, bytes)) = around.map.take_dirty() else {
                break;
            };
            self.left -= 1;
            self.write_page(Changed { id, sequence }, bytes, around);
        }
        self.next_level_if_written(around);
    }

    /// Writes a page to a fresh place on every copy, or notes that there is none any more.
    fn write_page(&mut self, page: Changed, bytes: Option<Vec<u8>>, around: &mut Around<'_>) {
        let Changed { id, sequence } = page;
        let entry = match bytes {
            None => TableEntry::NONE,
            Some(bytes) => {
                let Some((segment, unit)) = around.space.take_place(around.copies) else {
                    let why = "no space is left for the pool's own map";
                    return around.base.fail(why.into());
                };
                around.base.counters.pages += 1;
                for copy in around.space.meta_columns(segment) {
                    self.write_copy(id, at(copy, unit, around.identity), &bytes, around);
                }
                TableEntry {
                    place: place(segment, unit),
                    crc: id.crc(around.identity.salt(), &bytes),
                    sequence,
                    slots: around.map.slots_of(id),
                    lost: around.map.lost_of(id),
                }
            }
        };
        let old = around.map.set_entry(id, entry);
        if old.place != PLACE_NONE {
            if around.identity.sings(Canary::ReuseBeforeRoot) {
                return around.access.retire(Retired::Place(old.place));
            }
            self.superseded.push(old.place);
        }
    }

    fn write_copy(&mut self, id: PageId, at: DriveByte, bytes: &[u8], around: &mut Around<'_>) {
        let Some(mut buffer) = around.base.buffer(around.logs, GRANULE) else {
            return;
        };
        buffer.copy_from_slice(bytes);
        let range = around.space.drives.range(at.drive, at.byte, GRANULE);
        self.pending += 1;
        // Its new place is not to be read before it is written.
        around.map.pin_page(id);
        around.send(at.drive, Owner::Page { id }, |tag| {
            Request::write(tag, range, buffer, Durability::Cached)
        });
    }

    /// A copy of a page is written, or its drive is out.
    pub(super) fn page_written(&mut self, id: PageId, around: &mut Around<'_>) {
        self.pending -= 1;
        around.map.unpin_page(id);
        match self.phase {
            Phase::Pages(0) => self.write_pages(around),
            _ => self.next_level_if_written(around),
        }
    }

    fn next_level_if_written(&mut self, around: &mut Around<'_>) {
        while let Phase::Pages(level) = self.phase
            && self.pending == 0
            && around.base.failed.is_none()
        {
            if level == 2 {
                return self.flush_pages(around);
            }
            self.enter(Phase::Pages(level + 1));
            let sequence = around.journal.published();
            for (id, bytes) in around.map.take_dirty_tables(level + 1) {
                self.write_page(Changed { id, sequence }, bytes, around);
            }
        }
    }

    fn flush_pages(&mut self, around: &mut Around<'_>) {
        self.enter(Phase::Flushing);
        for drive in around.space.drives.active() {
            self.pending += 1;
            around.send(drive, Owner::CheckpointFlush, Request::flush);
        }
    }

    /// A drive is flushed, or out.
    pub(super) fn flushed(&mut self, base: &Base) -> Step {
        self.pending -= 1;
        if self.pending > 0 || base.failed.is_some() {
            return Step::GoesOn;
        }
        self.enter(Phase::Root);
        Step::RootIsDue
    }

    /// The root on its way names what is there now, and these tails: from here to its end nothing else may.
    pub(super) fn root_begins(&mut self, hold: u64, around: &mut Around<'_>) {
        self.droppable = false;
        self.dropped.extend(around.space.metadata.drop_emptied());
        trim_ring(hold, around);
        self.tails = Some(around.tails(hold).now());
    }

    /// Its root is durable: what that names no more may be used again. Returns columns of metadata segments that are
    /// not there any more; they were empty, so no page is read there.
    pub(super) fn is_rooted(&mut self, around: &mut Around<'_>) -> Vec<ChunkCopy> {
        self.enter(Phase::Idle);
        for place in std::mem::take(&mut self.superseded) {
            around.access.retire(Retired::Place(place));
        }
        let dropped = std::mem::take(&mut self.dropped);
        let Some(tails) = self.tails.take() else {
            invariant!(
                around.base,
                "a checkpoint's root is durable, but named no tails"
            );
            return dropped;
        };
        self.rooted = Some(tails);
        around.logs.rooted(tails);
        for log in [LogId::Ring, LogId::Map] {
            around.access.retire(Retired::Log(log, tails.of(log)));
        }
        dropped
    }

    /// Metadata segments may have been closed.
    pub(super) fn look_for_emptied(&mut self) {
        self.look = true;
    }

    /// A place of a page is free: its segment may hold nothing any more.
    pub(super) fn place_freed(&mut self, is_emptied: bool) {
        self.droppable |= is_emptied;
    }
}

/// A page that is newer here than on the drives, with the changes below a sequence.
#[derive(Clone, Copy)]
struct Changed {
    id: PageId,
    sequence: u64,
}

/// Where a unit of a column of a metadata segment is.
fn at(copy: ChunkCopy, unit: u32, identity: &Identity) -> DriveByte {
    DriveByte {
        drive: copy.drive.into(),
        byte: unit_at(identity.sizes(), copy, unit, GRANULE as u64),
    }
}

/// Drops batches from the front whose granules all have newer records or homes.
fn trim_ring(hold: u64, around: &mut Around<'_>) {
    around.logs.trim_ring(around.journal.published().min(hold));
}
