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
mod slot;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ashlar_block::{IoBuffer, Moment, Request};
use tracing::trace;

use super::access::Access;
use super::access::locks::SlotKey;
use super::base::Base;
use super::class::{Class, Redundancy};
use super::destage::Destage;
use super::identity::Identity;
use super::invariant::invariant;
use super::journal::logs::Logs;
use super::journal::{Journal, Then};
use super::manage::segment_change;
use super::map::{LeafView, Map, SEGMENTS, leaf_id};
use super::parity::{Wish, strips_with};
use super::roots::Roots;
use super::salvage::{Reader, Strip};
use super::segment_table::Columns;
use super::space::{DriveByte, Space, segment_and_slot};
use super::state::Joining;
use super::volumes::VolumeTable;
use super::waiting::Waiting;
use super::{Owner, Waiter};
use crate::Canary;
use crate::engine::upkeep::reserve::Users;
use crate::format::{ChunkCopy, PageId, ScrubAt, SegmentEntry, VolumeEntry, VolumeState};
use crate::sizes::{LEAF_GRANULES, UNIT_BYTES};
use columns::{columns_with, gives_up_column, lacks_column};
use pace::Pace;
use readmit::{Returns, Told};
use renew::Renewal;
use scrub::Scrub;

/// Bytes of slots worked on at a time, and in a round.
pub(super) const AT_A_TIME: u64 = 8 * UNIT_BYTES;
/// Leaves that are not there that one turn skips, and as how many one counts that is.
const LEAVES: usize = 1024;
const A_LEAF: usize = 16;
/// After which time what could not be read of the map is looked at again for columns that wait for it.
const UNTIL_IT_PASSES: Duration = Duration::from_secs(60);

/// What the walk is at.
#[derive(Default)]
pub(crate) struct Rebuild {
    /// When the columns of lost drives are to be made again: some time after the loss.
    due: Option<Moment>,
    /// How long after a loss that is.
    repair_after: Duration,
    /// Columns that are being filled, by segment: they are written, not read.
    joining: BTreeMap<u32, Joining>,
    /// What of them this walk fills.
    fills: Fills,
    /// Leaves that could not be read when columns were filled that wait for that.
    unseen: BTreeSet<PageId>,
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
    /// Leaves that it has come to and that cannot be read: there may be slots that it has not seen.
    hidden: BTreeSet<PageId>,
    /// What follows from its steps for others.
    next: VecDeque<Next>,
}

/// What a walk fills of columns that are being filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fills {
    /// It is for something else: those that wait for leaves that could not be read go on waiting.
    #[default]
    Nothing,
    /// All of them have everything but what such leaves have.
    Unseen,
    /// There are new ones.
    All,
}

/// What is to be done next for walks.
pub(super) enum Next {
    /// A leaf of the map is wanted.
    Load(PageId),
    /// A slot is to be put together.
    Gather(Wish),
    /// A copy of a slot is to be read.
    Read {
        reader: Reader,
        at: DriveByte,
        buffer: IoBuffer,
    },
    /// A slot's lock is this one's now.
    Locked { key: SlotKey, waiter: Waiter },
    /// A drive that is here again gets what it has missed.
    BeginReturn,
    /// It has that, and takes part again.
    LetBackIn,
    /// Drives that hold nothing any more may go.
    LetGo,
    /// Nothing is to be walked over.
    Rest,
}

/// What the steps of walks may use.
pub(super) struct Around<'a> {
    pub(super) base: &'a mut Base,
    pub(super) identity: &'a Identity,
    pub(super) space: &'a mut Space,
    pub(super) roots: &'a mut Roots,
    pub(super) volumes: &'a mut VolumeTable,
    pub(super) journal: &'a mut Journal,
    pub(super) logs: &'a mut Logs,
    pub(super) map: &'a mut Map,
    pub(super) access: &'a mut Access,
}

impl Around<'_> {
    fn buffer(&mut self, bytes: usize) -> Option<IoBuffer> {
        self.base.buffer(self.logs, bytes)
    }
}

/// What a walk waits for before it begins, and for whom it goes slower.
pub(super) struct Others<'a> {
    pub(super) waiting: &'a mut Waiting,
    pub(super) destage: &'a Destage,
    pub(super) hosts_are_here: bool,
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

impl Rebuild {
    /// A drive was lost: its columns are wanted elsewhere, when the time for it has come.
    pub(super) fn want_columns(&mut self, now: Moment) {
        self.due_by(now + self.repair_after);
    }

    fn due_by(&mut self, at: Moment) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// An operator has acted: repair begins at once.
    pub(super) fn want_columns_at_once(&mut self, now: Moment) {
        self.due = Some(now);
    }

    /// When repair begins by itself, if it waits.
    pub(super) fn deadline(&self, now: Moment) -> Option<Moment> {
        let waits = self.phase == Phase::Idle || self.fills == Fills::Nothing;
        self.due.filter(|&due| waits && due > now)
    }

    /// Whether copies are missing that the walk is making, or is about to.
    pub(super) fn is_rebuilding(&self, now: Moment) -> bool {
        self.is_due(now) || !self.joining.is_empty() || self.returns.is_busy()
    }

    fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// How far a walk has come, 0 to 1.
    pub(super) fn progress(&self, now: Moment, volumes: &VolumeTable) -> Option<f64> {
        if self.phase == Phase::Idle {
            return None;
        }
        let live = |entry: &&VolumeEntry| entry.state == VolumeState::Live;
        let all = volumes.values().filter(live);
        let all: u64 = all.map(|entry| entry.granules).sum();
        let before = volumes.range(..self.volume).map(|(_, entry)| entry);
        let walked: u64 = before.filter(live).map(|entry| entry.granules).sum();
        let walked = ((walked + self.at) as f64 / all.max(1) as f64).min(1.0);
        if !self.is_rebuilding(now) || self.returns.is_walking() {
            return Some(walked);
        }
        // One of several walks, which may be a scrub as well, or still be one only.
        let kept = self.joining.values().filter(|joining| joining.is_filled);
        let kept = kept.count();
        let filling = (self.joining.len() - kept) as f64;
        let filled = (self.filled + kept) as f64;
        Some(((filled + filling * walked) / self.wanted.max(1) as f64).min(1.0))
    }

    /// What is to be done next.
    pub(super) fn take_next(&mut self) -> Option<Next> {
        self.next.pop_front()
    }

    pub(super) fn advance(&mut self, others: &mut Others<'_>, around: &mut Around<'_>) {
        if self.end_cut_return() {
            around.base.again = true;
            return;
        }
        let due = self.is_due(around.base.now);
        match self.phase {
            Phase::Idle if self.returns.is_wanted() => {
                self.next.push_back(Next::BeginReturn);
                around.base.again = true;
            }
            Phase::Recording if self.returns.is_walking() => self.next.push_back(Next::LetBackIn),
            Phase::Idle if due || self.scrub.is_wanted() => {
                self.begin_walk(others, around);
                around.base.again = true;
            }
            Phase::Idle => self.next.push_back(Next::Rest),
            // A scrub may take days: what lacks copies does not wait for its end.
            Phase::AwaitingOlder | Phase::Walking
                if (due || self.returns.is_wanted())
                    && self.fills == Fills::Nothing
                    && !self.returns.is_walking() =>
            {
                self.interrupt_scrub(around);
            }
            Phase::AwaitingOlder if self.older_are_over(others) => {
                self.phase = Phase::Walking;
                trace!(phase = ?self.phase, "rebuild");
                self.walk(others, around);
            }
            Phase::Walking => self.walk(others, around),
            _ => {}
        }
    }

    /// Repair has come due while a scrub walks, which goes on after it. What is under way ends first.
    fn interrupt_scrub(&mut self, around: &mut Around<'_>) {
        if self.pending > 0 {
            return;
        }
        self.phase = Phase::Idle;
        trace!(phase = ?self.phase, "rebuild");
        self.scrub_interrupted();
        self.next.push_back(Next::LetGo);
        around.base.again = true;
    }

    fn begin_walk(&mut self, others: &mut Others<'_>, around: &mut Around<'_>) {
        if self.scrub.begins_map() {
            around.map.leave_places();
        }
        around.map.begin_renewal();
        around.base.again = true;
        let repairs = self.is_due(around.base.now);
        if repairs {
            self.due = None;
            self.choose_columns(around.space);
            around.space.spread_reserve(Users {
                volumes: around.volumes,
                rebuild: self,
            });
            around.volumes.stops_admission_check(around.space, self);
        }
        if self.joining.is_empty() && !self.scrub.is_wanted() {
            return;
        }
        // New columns are filled from the beginning. A scrub would have them wait for all that it reads: it goes on
        // when nothing is to be filled.
        let fills = match self.joining.values().any(|joining| !joining.is_filled) {
            _ if !repairs || self.joining.is_empty() => Fills::Nothing,
            true => Fills::All,
            false => Fills::Unseen,
        };
        let from = match fills {
            Fills::Nothing => self.begin_scrub(around.base.now, around.roots),
            Fills::Unseen | Fills::All => None,
        };
        if from.is_none() && self.scrub.looks_at_all() {
            self.lost = 0;
        }
        self.begin_walk_at(from, others, around.space);
        self.fills = fills;
    }

    /// A walk begins there: first what knows nothing of it goes through.
    pub(super) fn begin_walk_at(
        &mut self,
        from: Option<ScrubAt>,
        others: &mut Others<'_>,
        space: &mut Space,
    ) {
        self.returns.walk_begins();
        // Those that wait for the map may have lost their drives: what such a drive has is counted without them.
        let drives = &space.drives;
        self.joining
            .retain(|_, joining| drives.in_service(joining.column.drive));
        space.forget_recount();
        (self.unmended, self.fills) = (0, Fills::Nothing);
        self.hidden.clear();
        self.stamp = others.waiting.next_serial();
        self.round = others.destage.round();
        (self.volume, self.at) = from.map_or((0, 0), |at| (at.volume, at.granule));
        self.phase = Phase::AwaitingOlder;
        trace!(phase = ?self.phase, "rebuild");
    }

    fn older_are_over(&self, others: &Others<'_>) -> bool {
        let stamp = self.stamp;
        // What goes through the ring, or waits to come in, has chosen no columns; and it may wait for the drive
        // that returns, if the ring is full of what can go home only then.
        let older = others.waiting.writes().pass_ring_before(stamp);
        // A destage under way has chosen its columns, too. Under a constant load there is always one.
        let destaged = others.destage.is_idle() || others.destage.round() > self.round;
        destaged && !older
    }

    /// Takes on slots until enough are under way.
    fn walk(&mut self, others: &Others<'_>, around: &mut Around<'_>) {
        let all = self.scrub.looks_at_all();
        let mut leaves = 0;
        while leaves < LEAVES {
            self.go_to_unseen();
            let Some(end) = self.walked_volume(around) else {
                return self.flush_walked(around);
            };
            let (volume, at) = (self.volume, self.at);
            let grain = around.map.grain(volume);
            if at >= end {
                (self.volume, self.at) = (volume + 1, 0);
                continue;
            }
            let leaf = at / LEAF_GRANULES;
            let told = Told {
                identity: around.identity,
                journal: around.journal,
                map: around.map,
            };
            let returns = &self.returns;
            if returns.have_all_of(leaf_id(volume, leaf), told) {
                leaves += 1;
                self.at = (leaf + 1) * LEAF_GRANULES;
                continue;
            }
            match around.map.leaf(volume, leaf) {
                LeafView::OnDisk => {
                    let page = leaf_id(volume, leaf);
                    return self.next.push_back(Next::Load(page));
                }
                LeafView::Absent => {
                    leaves += 1;
                    self.at = (leaf + 1) * LEAF_GRANULES;
                    continue;
                }
                LeafView::Loaded(_) if around.map.hides_slots(leaf_id(volume, leaf)) => {
                    self.hidden.insert(leaf_id(volume, leaf));
                }
                LeafView::Loaded(_) => {}
            }
            let slot = grain.slot_of(at);
            let location = around.map.location(volume, slot).unwrap_or(0);
            if all && location == 0 {
                let lost = u64::from(around.map.lost_in(SlotKey { volume, slot }));
                self.count_lost(lost, around);
            }
            let lacks = |segment| {
                all || self
                    .column_to_fill(segment, leaf_id(volume, leaf))
                    .is_some()
                    || self.has_returning_column(segment, around.space)
            };
            if location != 0 && lacks(segment_and_slot(location).0) {
                let next = pace::Next {
                    now: around.base.now,
                    bytes: grain.bytes(),
                    is_shared: others.hosts_are_here,
                };
                let is_remembered = self.remember_scrub(around.base.now, around.roots);
                if !is_remembered || !self.may_take_up(next) {
                    return;
                }
                let key = SlotKey { volume, slot };
                self.take_up(key, around);
            }
            self.at = grain.first(slot + 1);
            if self.at.is_multiple_of(LEAF_GRANULES) {
                leaves += A_LEAF;
            }
        }
        around.base.again = true;
    }

    /// Where all columns have everything but what could not be read, that alone is looked at.
    fn go_to_unseen(&mut self) {
        let leaf = leaf_id(self.volume, self.at / LEAF_GRANULES);
        if self.fills != Fills::Unseen || self.unseen.contains(&leaf) {
            return;
        }
        let next = self.unseen.range(leaf..).next();
        let start = |leaf: &PageId| (leaf.node, u64::from(leaf.index) * LEAF_GRANULES);
        (self.volume, self.at) = next.map_or((u32::MAX, 0), start);
    }

    /// The volume that the walk is in (or the next one), and its end in granules.
    fn walked_volume(&mut self, around: &mut Around<'_>) -> Option<u64> {
        let homed = |entry: &VolumeEntry| Class::of_volume(entry).is_some();
        let next = around
            .volumes
            .range(self.volume..)
            .find(|(_, entry)| entry.state == VolumeState::Live && homed(entry));
        let (&volume, entry) = next?;
        if volume != self.volume {
            (self.volume, self.at) = (volume, 0);
        }
        Some(entry.granules)
    }

    /// Takes a slot on, in line with others that want it.
    fn take_up(&mut self, key: SlotKey, around: &mut Around<'_>) {
        self.pending += 1;
        around.map.pin_slot(key);
        if around.access.lock_or_wait(key, Waiter::Walk) {
            self.slot_locked(key, around);
        }
    }

    fn let_slot_go(&mut self, key: SlotKey, around: &mut Around<'_>) {
        self.pending -= 1;
        around.map.unpin_slot(key);
        let waiter = around.access.unlock(key);
        let locked = waiter.map(|waiter| Next::Locked { key, waiter });
        self.next.extend(locked);
        // What was put together at once has made room for another.
        around.base.again = true;
    }

    /// A slot is locked.
    pub(super) fn slot_locked(&mut self, key: SlotKey, around: &mut Around<'_>) {
        match around.map.location(key.volume, key.slot) {
            // It was given up meanwhile.
            None | Some(0) => self.let_slot_go(key, around),
            Some(location) => self.read_slot(key, location, around),
        }
    }

    fn flush_walked(&mut self, around: &mut Around<'_>) {
        if self.pending > 0 {
            return;
        }
        self.phase = Phase::Flushing;
        trace!(phase = ?self.phase, "rebuild");
        if around.identity.sings(Canary::ReadmitBeforeFlush) && self.returns.is_walking() {
            return self.record_columns(around);
        }
        let mut drives = around.space.drives.active();
        drives.extend(self.returns.member());
        self.pending = drives.len();
        for drive in drives {
            self.send(drive, Owner::Walk(WalkIo::Flush), around, Request::flush);
        }
    }

    /// The new columns are filled and flushed: their segments' entries say so.
    fn record_columns(&mut self, around: &mut Around<'_>) {
        self.phase = Phase::Recording;
        trace!(phase = ?self.phase, "rebuild");
        if self.returns.is_walking() {
            return self.next.push_back(Next::LetBackIn);
        }
        if self.fills == Fills::Nothing {
            return self.end_walk_if_recorded(around);
        }
        self.unseen = std::mem::take(&mut self.hidden);
        let joining: Vec<(u32, Joining)> = self.joining.iter().map(|(&s, &j)| (s, j)).collect();
        for (segment, join) in joining {
            if !around.space.drives.in_service(join.column.drive) {
                // Lost in its turn: the next walk chooses again.
                self.joining.remove(&segment);
                continue;
            }
            let hides = !self.unseen.is_empty() && !around.space.segments.is_empty(segment);
            if hides && gives_up_column(segment, around.space) {
                // It goes on being written, and lacks nothing but what those leaves have.
                let filled = Joining {
                    is_filled: true,
                    ..join
                };
                self.joining.insert(segment, filled);
                continue;
            }
            let Some(found) = around.space.segments.get(segment) else {
                return invariant!(
                    around.base,
                    "segment {segment} is given a column, but is not there"
                );
            };
            let entry = match found.class.redundancy {
                Redundancy::Mirror(_) => {
                    let columns = columns_with(found, join, around.space);
                    found.class.entry(&columns, found.shape)
                }
                Redundancy::Parity(..) => {
                    let (columns, shape) = strips_with(found, join);
                    found.class.entry(&columns, shape)
                }
            };
            self.unpublished += 1;
            let change = segment_change(segment, &entry, Then::Columns(segment));
            around.journal.stage_first(change);
        }
        self.end_walk_if_recorded(around);
    }

    pub(super) fn columns_published(&mut self, segment: u32, around: &mut Around<'_>) {
        self.unpublished -= 1;
        self.filled += 1;
        self.joining.remove(&segment);
        let bytes = around
            .map
            .entry_bytes(SEGMENTS, segment)
            .map(SegmentEntry::decode);
        let Some(Ok(entry)) = bytes else {
            return around
                .base
                .fail(format!("the entry of segment {segment} did not take"));
        };
        // One that is being given a column is not given back before that is done.
        let is_there = around
            .space
            .segments
            .set_columns(segment, Columns::of(&entry));
        invariant!(
            around.base,
            is_there,
            "segment {segment} was given a column, but is not there"
        );
        around.space.recount_changes(segment);
        self.end_walk_if_recorded(around);
    }

    fn end_walk_if_recorded(&mut self, around: &mut Around<'_>) {
        if self.phase != Phase::Recording || self.unpublished > 0 {
            return;
        }
        (self.phase, self.fills) = (Phase::Idle, Fills::Nothing);
        trace!(phase = ?self.phase, "rebuild");
        self.scrub_walked(around.roots);
        let segments = around.space.segments.ids();
        if segments
            .iter()
            .any(|&segment| self.drive_for_column(segment, around.space).is_some())
        {
            self.due = Some(around.base.now);
        } else if !self.joining.is_empty() {
            self.due_by(around.base.now + UNTIL_IT_PASSES);
        } else if !segments
            .iter()
            .any(|&segment| lacks_column(segment, around.space))
        {
            self.filled = 0;
        }
        self.next.push_back(Next::LetGo);
        // Segments that are empty have waited for their columns.
        around.space.look_at_empty();
        around.volumes.stops_admission_check(around.space, self);
        around.base.again = true;
    }
}
