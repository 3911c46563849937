//! Volumes that are one of several copies: what of them is uncertain, what absent copies miss, and what was promised.
//!
//! Changes carry their tags in the logs' records. What follows from records is kept in memory, and the logs keep the
//! records (`hold`) until it is in pages of a table of its own, the *replicas*: an entry a copy, and behind it its
//! planes. Pages go through the map log, as every change of a system table; planes before the entry that relies on them.
//! So an import that takes the pages, and then what records from the entry's `saved` on say, knows at least what
//! the last process knew. It may think more of it uncertain, which is harmless, and never less.

mod copy;
mod plane;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use ashlar_block::{ErrorKind, IoError, Moment, Request};

pub(crate) use copy::{Copy, Published};
use copy::{Order, StagedPage};

use super::invariant::invariant;
use super::journal::{StagedChange, Then};
use super::manage::{check_granules, refuse};
use super::map::{Change, FIRST_VOLUME, LeafView, REPLICAS};
use super::{Engine, Op};
use crate::format::{Feature, Features, PageId, PlaneShape, ReplicaEntry};
use crate::replica::{
    Committed, POSITIONS, ReplicaChange, ReplicaIdentity, ReplicaMark, ReplicaPromise, ReplicaSize,
    ReplicaTag, Till,
};
use crate::ring::GranuleKey;
use crate::sizes::{GRANULE, LEAF_GRANULES};
use crate::{Canary, Manage};

/// The part of a log that a copy may keep from being written again.
const HOLDS: u64 = 8;
/// The part of the map log that its unwritten planes may come to.
const PAGES: u64 = 16;
/// What has not changed for so long is written.
const IDLE: Duration = Duration::from_secs(1);
/// What copies remember of others waits so long for a batch of the map log that is written anyway; then it gets one, for
/// all of the pool that have something new. Hosts' writes that are sealed behind a batch wait for it.
const NEWS_WAIT: Duration = Duration::from_millis(50);

/// What a volume becomes.
pub(super) struct NewReplica {
    pub(super) identity: ReplicaIdentity,
    /// Its size from then on, if that is another.
    pub(super) granules: Option<u64>,
}

/// The pool's copies of replicated volumes.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    copies: BTreeMap<u32, Copy>,
    /// What the logs keep for all of them, and since when that is so.
    seen: (Option<u64>, bool),
    since: Moment,
    /// Since when a copy remembers something of others that is not on its way.
    news_since: Option<Moment>,
    /// Pages that a canary writes too late.
    late: Vec<StagedPage>,
    /// Volumes that are to grow once nothing is on its way of what their copies remember of others.
    growing: Vec<Growing>,
}

/// A wish for a larger volume.
#[derive(Debug)]
struct Growing {
    id: u64,
    volume: u32,
    granules: u64,
}

impl Replicas {
    /// Those of a pool that had come so far.
    pub(crate) fn found(mut copies: BTreeMap<u32, Copy>, published: u64) -> Self {
        copies
            .values_mut()
            .for_each(|copy| copy.comes_to(published));
        Self {
            copies,
            ..Self::default()
        }
    }

    /// Sequence of the oldest record that must stay in the logs.
    fn hold(&self) -> u64 {
        let holds = self.copies.values().filter_map(Copy::holds);
        holds.min().unwrap_or(u64::MAX)
    }

    /// Pages of the table that a volume's copy may come to have.
    pub(super) fn pages(&self, volume: u32) -> u64 {
        let pages = self.copies.get(&volume).map(Copy::pages);
        pages.map_or(0, |pages| pages.len() as u64)
    }

    /// Where so many pages fit.
    fn gap(&self, pages: u32) -> Option<u32> {
        let mut taken: Vec<Range<u32>> = self.copies.values().map(Copy::pages).collect();
        taken.sort_by_key(|range| range.start);
        let mut from = 0u32;
        for range in taken {
            if from.checked_add(pages)? <= range.start {
                break;
            }
            from = from.max(range.end);
        }
        from.checked_add(pages)?;
        Some(from)
    }

    /// Where a copy may have so many pages: where it is, if the next one leaves it so many, or elsewhere.
    fn place_for(&self, volume: u32, pages: u32) -> Option<u32> {
        let base = self.copies.get(&volume)?.pages().start;
        let starts = self.copies.values().map(|copy| copy.pages().start);
        let next = starts.filter(|&start| start > base).min();
        match next.unwrap_or(u32::MAX) - base >= pages {
            true => Some(base),
            false => self.gap(pages),
        }
    }

    fn is_stale(&self) -> bool {
        self.copies.values().any(Copy::is_stale)
    }
}

/// Pages of a copy, its entry with them.
const fn pages_of(shape: PlaneShape) -> u32 {
    1 + POSITIONS as u32 * shape.pages()
}

const fn page(index: u32) -> PageId {
    PageId {
        node: REPLICAS,
        level: 0,
        index,
    }
}

impl Engine {
    /// A record of a replicated volume comes.
    pub(super) fn record(&mut self, volume: u32, request: Request, tag: ReplicaTag) {
        if !self.replicas.copies.contains_key(&volume) {
            let why = format!("volume {volume} is no copy of a replicated one");
            let refusal = IoError::new(ErrorKind::InvalidRequest, why);
            self.out.done.push(request.complete(Err(refusal)));
            return;
        }
        self.tag = Some(tag);
        self.command(volume, request);
        self.tag = None;
    }

    /// The tag of the command that a change belongs to.
    pub(super) fn tag_of(&self, then: Then) -> Option<ReplicaTag> {
        match then {
            Then::Bypass(op) => match self.ops.get(op)? {
                Op::Bypass(bypass) => self.tag_of_write(bypass.parent()),
                _ => None,
            },
            Then::Clear(op, _) => match self.ops.get(op)? {
                Op::Clear(clear) => clear.tag,
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn tag_of_write(&self, op: usize) -> Option<ReplicaTag> {
        match self.ops.get(op)? {
            Op::Write(write) => write.tag,
            _ => None,
        }
    }

    /// A change of what a volume holds is published.
    pub(super) fn replica_changed(&mut self, volume: u32, change: &Published) {
        if self.replicas.copies.is_empty() {
            return;
        }
        if let Some(copy) = self.replicas.copies.get_mut(&volume) {
            copy.published(change);
        }
    }

    /// Counts on places for all pages that copies may come to have.
    pub(super) fn hold_replica_pages(&mut self) {
        let pages = self.replicas.copies.values().flat_map(Copy::pages);
        for index in pages.collect::<Vec<u32>>() {
            self.map.hold(page(index));
        }
    }

    /// A volume becomes one of several copies.
    pub(super) fn make_replica(
        &mut self,
        id: u64,
        volume: u32,
        new: NewReplica,
    ) -> Result<(), IoError> {
        let NewReplica { identity, granules } = new;
        let mut live = self.live(volume)?;
        if self.is_raw(volume) {
            return Err(refuse(format!(
                "volume {volume} is passed through: it keeps no logs that a replica needs"
            )));
        }
        if usize::from(identity.position) >= POSITIONS {
            let why = format!("a volume has {POSITIONS} copies at most");
            return Err(refuse(why));
        }
        if self.replicas.copies.contains_key(&volume) {
            return Err(refuse(format!("volume {volume} is a copy already")));
        }
        if self.volumes.is_changing(volume) {
            return Err(refuse(format!("volume {volume} is still being changed")));
        }
        let before = live.granules;
        live.granules = granules.unwrap_or(before);
        if live.granules < before {
            return Err(refuse(format!(
                "volume {volume} would be smaller as a copy than it is"
            )));
        }
        check_granules(live.granules)?;
        if live.granules > before {
            self.check_not_shrinking(volume)?;
        }
        let shape = PlaneShape::of(live.granules);
        let pages = 1 + POSITIONS as u32 * shape.pages();
        self.check_replica_budget((live.layout, live.granules), volume, pages)?;
        let Some(base) = self.replicas.gap(pages) else {
            return Err(refuse("the pool has no room for another replica".into()));
        };
        if !self.has_places_for(u64::from(pages)) {
            let why = format!("volume {volume}: the pool has no room for {pages} pages of planes");
            return Err(IoError::new(ErrorKind::NoSpace, why));
        }
        let features = Features::NONE.with(Feature::Replicas);
        if !self.roots.features.have(features) {
            let what = Manage::MakeReplica {
                volume,
                identity,
                granules,
            };
            self.roots.features.keep(features, (id, what));
            return Ok(());
        }
        let entry = ReplicaEntry {
            volume,
            shape,
            identity,
            promise: ReplicaPromise::default(),
            numbers: [1; POSITIONS],
            till: Till::Committed(Committed::default()),
            committed: Committed::default(),
            saved: 0,
            size: None,
            marks: [ReplicaMark::default(); POSITIONS],
        };
        let mut copy = Copy::found(entry, base, self.identity.cage());
        copy.found_all();
        copy.comes_to(self.journal.published());
        copy.pages().for_each(|index| self.map.hold(page(index)));
        copy.ask(Order { id, change: None });
        self.replicas.copies.insert(volume, copy);
        if live.granules > before {
            self.volumes.begin_change(volume, live.granules);
            self.stage_volume(volume, &live, None);
            self.join_staged();
        }
        self.save_replica(volume);
        Ok(())
    }

    /// A copy becomes larger, in one durable step with its planes.
    pub(super) fn grow_replica(
        &mut self,
        id: u64,
        volume: u32,
        granules: u64,
    ) -> Result<(), IoError> {
        check_granules(granules)?;
        let mut live = self.live(volume)?;
        if granules < live.granules {
            return Err(refuse(format!(
                "volume {volume} is a copy of a replicated one: it cannot be made smaller"
            )));
        }
        if granules == live.granules {
            self.out.managed.push((id, Ok(crate::Managed::Done)));
            return Ok(());
        }
        if self.copy(volume).is_some_and(Copy::saves_news) {
            // Its entry is of the old size, and where that has it.
            let wish = Growing {
                id,
                volume,
                granules,
            };
            self.replicas.growing.push(wish);
            return Ok(());
        }
        let says_nothing = self.copy(volume).is_some_and(Copy::says_nothing);
        if self.volumes.is_changing(volume) || !says_nothing {
            return Err(refuse(format!(
                "volume {volume} keeps what another copy misses, or is still being changed: it grows when all are in sync"
            )));
        }
        live.granules = granules;
        let shape = PlaneShape::of(granules);
        let before = self.copy(volume).map_or(0..0, Copy::pages);
        self.check_replica_budget((live.layout, granules), volume, pages_of(shape))?;
        let Some(base) = self.replicas.place_for(volume, pages_of(shape)) else {
            return Err(refuse("the pool has no room for a larger replica".into()));
        };
        let now = base..base + pages_of(shape);
        let more: Vec<u32> = now.filter(|index| !before.contains(index)).collect();
        if !self.has_places_for(more.len() as u64) {
            let more = more.len();
            let why =
                format!("volume {volume}: the pool has no room for {more} more pages of planes");
            return Err(IoError::new(ErrorKind::NoSpace, why));
        }
        let Some(copy) = self.replicas.copies.get_mut(&volume) else {
            return Err(refuse(format!("volume {volume} is no copy")));
        };
        copy.grow(shape, base);
        copy.ask(Order { id, change: None });
        let now = copy.pages();
        more.into_iter()
            .for_each(|index| self.map.hold(page(index)));
        // What they say counts for a volume of the old size, until the new one is durable, and for none then.
        before
            .filter(|index| !now.contains(index))
            .for_each(|index| self.map.let_go(page(index)));
        self.volumes.begin_change(volume, granules);
        self.stage_volume(volume, &live, None);
        self.join_staged();
        self.save_replica(volume);
        Ok(())
    }

    /// A copy remembers how large the volume was said to be.
    pub(super) fn note_size(
        &mut self,
        id: u64,
        volume: u32,
        size: ReplicaSize,
    ) -> Result<(), IoError> {
        let has = self.live(volume)?.granules;
        let fits = size.register < size.granules && size.granules <= has;
        let copy = self.replicas.copies.get_mut(&volume).filter(|_| fits);
        let Some(copy) = copy else {
            return Err(refuse(format!(
                "volume {volume} has {has} granules, or is no copy: it cannot be one of {}",
                size.granules
            )));
        };
        copy.note(size, Order { id, change: None });
        if !copy.is_saving() {
            self.save_replica(volume);
        }
        Ok(())
    }

    /// What a copy has promised changes.
    pub(super) fn change_replica(
        &mut self,
        id: u64,
        volume: u32,
        change: ReplicaChange,
    ) -> Result<(), IoError> {
        let Some(copy) = self.replicas.copies.get_mut(&volume) else {
            return Err(refuse(format!(
                "volume {volume} is no copy of a replicated one"
            )));
        };
        let change = Some(change);
        copy.ask(Order { id, change });
        if !copy.is_saving() {
            self.save_replica(volume);
        }
        Ok(())
    }

    /// The volume is a copy no more.
    pub(super) fn end_replica(&mut self, volume: u32) {
        if let Some(mut copy) = self.replicas.copies.remove(&volume) {
            copy.pages().for_each(|index| self.map.let_go(page(index)));
            for id in copy.take_asked() {
                let why = refuse(format!("volume {volume} was deleted"));
                self.out.managed.push((id, Err(why)));
            }
        }
    }

    /// Orders that wait for copies to be saved: the engine has stopped.
    pub(super) fn take_asked_of_replicas(&mut self) -> Vec<u64> {
        let growing = std::mem::take(&mut self.replicas.growing);
        let copies = self.replicas.copies.values_mut();
        let asked = copies.flat_map(Copy::take_asked);
        asked
            .chain(growing.into_iter().map(|wish| wish.id))
            .collect()
    }

    /// Obeys what has waited for what copies remember of others to be durable.
    fn grow_now(&mut self) {
        for Growing {
            id,
            volume,
            granules,
        } in std::mem::take(&mut self.replicas.growing)
        {
            self.manage(id, Manage::ResizeVolume { volume, granules });
        }
    }

    /// Stages what a copy's pages do not say, or a part of it.
    fn save_replica(&mut self, volume: u32) {
        let most = self.most_pages();
        for late in std::mem::take(&mut self.replicas.late) {
            self.stage_page(late, Then::Plane);
        }
        let published = self.journal.published();
        let Some(copy) = self.replicas.copies.get_mut(&volume) else {
            return invariant!(self, "volume {volume} is saved as a copy, but is none");
        };
        let part = copy.stage(published, most);
        let (mut staged, id) = (part.pages, part.id);
        let entry = copy.pages().start;
        if self.identity.sings(Canary::MarksAfterEntry) {
            let planes = staged.extract_if(.., |one| one.index != entry);
            self.replicas.late.extend(planes);
        }
        for one in staged {
            let then = match one.index == entry {
                true => Then::Replica(volume, id),
                false => Then::Plane,
            };
            self.stage_page(one, then);
        }
    }

    fn stage_page(&mut self, page: StagedPage, then: Then) {
        self.journal.stage(StagedChange {
            change: Change::Entry {
                table: REPLICAS,
                index: page.index,
                bytes: page.bytes,
            },
            then,
            more: false,
        });
    }

    /// A copy's entry is durable.
    pub(super) fn replica_published(&mut self, volume: u32, id: Option<u64>) {
        if let Some(copy) = self.replicas.copies.get_mut(&volume) {
            copy.saved_entry();
        }
        if let Some(id) = id {
            self.out.managed.push((id, Ok(crate::Managed::Done)));
        }
    }

    /// Sequence of the oldest record that must stay in the logs for a copy.
    pub(super) fn replica_hold(&self) -> u64 {
        match self.identity.sings(Canary::TrimUncertain) {
            true => u64::MAX,
            false => self.replicas.hold(),
        }
    }

    /// Writes what the logs have kept for too long.
    pub(super) fn advance_replicas(&mut self) {
        self.grow_now();
        if self.replicas.copies.is_empty() {
            // Times of a copy that was deleted would go by, and stay the next deadline.
            (self.replicas.seen, self.replicas.news_since) = Default::default();
            return;
        }
        let hold = self.replica_hold();
        let seen = ((hold != u64::MAX).then_some(hold), self.replicas.is_stale());
        if self.replicas.seen != seen {
            (self.replicas.seen, self.replicas.since) = (seen, self.now);
        }
        let waits = seen.0.is_some() || seen.1;
        let is_idle = waits && self.now >= self.replicas.since + IDLE;
        let all = is_idle || waits && self.waiting.is_draining();
        let has_room = !self.logs.is_map_busy();
        let held = |copy: &Copy| {
            let holds = copy.holds();
            holds.is_some_and(|hold| self.is_far_behind(hold))
                || has_room && self.has_many_pages(copy)
        };
        let copies = self.replicas.copies.iter();
        let due = copies.filter(|(_, copy)| {
            let anything = copy.holds().is_some() || copy.is_stale();
            let goes_on = has_room && copy.is_asked();
            !copy.is_saving() && (goes_on || all && anything || held(copy))
        });
        for volume in due.map(|(&volume, _)| volume).collect::<Vec<u32>>() {
            if let Some(copy) = self.replicas.copies.get_mut(&volume) {
                copy.spill();
            }
            self.save_replica(volume);
        }
        self.save_news();
    }

    /// When what is remembered of other copies is written at the latest. While the map log makes room it waits for that.
    fn news_due(&self) -> Option<Moment> {
        let since = self.replicas.news_since?;
        (!self.logs.is_map_busy()).then(|| since + NEWS_WAIT)
    }

    /// Writes what is remembered of other copies, if it is time, or a batch is sealed anyway.
    fn save_news(&mut self) {
        if !self.replicas.copies.values().any(Copy::has_news) {
            self.replicas.news_since = None;
            return;
        }
        self.replicas.news_since.get_or_insert(self.now);
        let is_due = self.news_due().is_some_and(|at| at <= self.now);
        let has_batch = self.journal.has_changes() && !self.logs.is_map_busy();
        if !is_due && !has_batch {
            return;
        }
        self.replicas.news_since = None;
        let copies = self.replicas.copies.iter_mut();
        let due = copies.filter(|(_, copy)| copy.has_news());
        let due: Vec<(u32, StagedPage)> = due
            .map(|(&volume, copy)| (volume, copy.stage_news()))
            .collect();
        for (volume, page) in due {
            self.stage_page(page, Then::Replica(volume, None));
        }
    }

    /// When copies are to be looked at even if nothing happens.
    pub(super) fn replica_deadline(&self) -> Option<Moment> {
        let (hold, stale) = self.replicas.seen;
        let saving = self.replicas.copies.values().any(Copy::is_saving);
        let waits = (hold.is_some() || stale) && !saving;
        let idle = waits.then(|| self.replicas.since + IDLE);
        [idle, self.news_due()].into_iter().flatten().min()
    }

    fn is_far_behind(&self, sequence: u64) -> bool {
        self.logs.is_far_behind(sequence, HOLDS)
    }

    fn has_many_pages(&self, copy: &Copy) -> bool {
        copy.dirty() > self.most_pages()
    }

    /// Pages that are written together, beside those with marks of records.
    fn most_pages(&self) -> usize {
        let most = self.logs.map_bytes() / PAGES / GRANULE as u64;
        most.max(8) as usize
    }

    /// The volume's copy.
    fn copy(&self, volume: u32) -> Option<&Copy> {
        self.replicas.copies.get(&volume)
    }

    /// Volumes of the pool that are copies, and who they are.
    pub fn replicas(&self) -> Vec<(u32, ReplicaIdentity)> {
        let copies = self.replicas.copies.iter();
        copies
            .map(|(&volume, copy)| (volume, copy.entry().identity))
            .collect()
    }

    /// Which copy of a replicated volume a volume is; none if it is no copy.
    pub fn replica_identity(&self, volume: u32) -> Option<ReplicaIdentity> {
        self.copy(volume).map(|copy| copy.entry().identity)
    }

    /// What a volume's copy has durably promised; none if it is no copy.
    pub fn replica_promise(&self, volume: u32) -> Option<ReplicaPromise> {
        self.copy(volume).map(Copy::promise)
    }

    /// How large a replicated volume was said to be, as its copy remembers.
    pub fn replica_size(&self, volume: u32) -> Option<ReplicaSize> {
        self.copy(volume)?.entry().size
    }

    /// How far the pool had come when it was imported, or when this copy was last looked at in its life
    /// ([`replica_comes_to`](Self::replica_comes_to)): what the pool has written by itself since says nothing of the copy.
    pub fn replica_head(&self, volume: u32) -> u64 {
        self.copy(volume).map_or(0, Copy::head)
    }

    /// This copy has made something durable: how far the pool has come.
    pub fn replica_comes_to(&mut self, volume: u32) -> u64 {
        let published = self.journal.published();
        if let Some(copy) = self.replicas.copies.get_mut(&volume) {
            copy.comes_to(published);
        }
        published
    }

    /// What a volume's copy remembers of other copies' pools, by position.
    pub fn replica_marks(&self, volume: u32) -> [ReplicaMark; POSITIONS] {
        let copy = self.copy(volume);
        copy.map_or_else(Default::default, |copy| copy.entry().marks)
    }

    /// This is remembered instead: durable soon, and with the next change of the promise.
    pub fn replica_remember(&mut self, volume: u32, marks: [ReplicaMark; POSITIONS]) {
        if let Some(copy) = self.replicas.copies.get_mut(&volume) {
            copy.remember(marks);
        }
    }

    /// What may differ in a volume from other copies: ranges in any order, which may overlap.
    pub fn replica_uncertain(&self, volume: u32) -> Vec<Range<u64>> {
        self.copy(volume).map_or_else(Vec::new, Copy::uncertain)
    }

    /// What an absent position misses of a volume: ranges in order.
    pub fn replica_plane(&self, volume: u32, position: u8) -> Vec<Range<u64>> {
        let plane = |copy: &Copy| copy.plane(position.into());
        self.copy(volume).map_or_else(Vec::new, plane)
    }

    /// All records of a volume below this are committed: the logs may let them go.
    pub fn replica_learn(&mut self, volume: u32, committed: Committed) {
        if let Some(copy) = self.replicas.copies.get_mut(&volume) {
            copy.learn(committed);
        }
    }

    /// An absent position misses these granules: durable with the next change of the promise.
    pub fn replica_mark(&mut self, volume: u32, position: u8, granules: &Range<u64>) {
        if let Some(copy) = self.replicas.copies.get_mut(&volume) {
            copy.mark(position.into(), granules);
        }
    }

    /// An absent position has these granules: durable at some time.
    pub fn replica_clear(&mut self, volume: u32, position: u8, granules: &Range<u64>) {
        if let Some(copy) = self.replicas.copies.get_mut(&volume) {
            copy.clear(position.into(), granules);
        }
    }

    /// Checksums of granules as they are visible now, seeded with the pool's salt, 0 for what reads as zeroes; none while
    /// a leaf of the map that has some of them is not in memory.
    pub fn checksums(&self, volume: u32, granules: Range<u64>) -> Option<Vec<u32>> {
        let sum = |granule| match self.logs.newest(GranuleKey { volume, granule }) {
            Some(newest) => Some(newest.crc),
            None => self.map.granule(volume, granule).map(|(_, crc)| crc),
        };
        granules.map(sum).collect()
    }

    /// The same, as they would be without a seed; none for a granule of which the stored checksum does not tell: two
    /// values are stored as the same.
    pub fn plain_checksums(&self, volume: u32, granules: Range<u64>) -> Option<Vec<Option<u32>>> {
        let zeroes = crc32c::crc32c(&[0; GRANULE]);
        // The checksum of so many bytes is the plain one with something on top that only depends on the seed.
        let seeded = crc32c::crc32c_append(self.identity.salt().0, &[0; GRANULE]) ^ zeroes;
        let plain = |sum| match sum {
            0 => Some(zeroes),
            u32::MAX => None,
            sum => Some(sum ^ seeded),
        };
        let sums = match self.identity.sings(Canary::DigestWithoutRing) {
            true => {
                let sum = |granule| self.map.granule(volume, granule).map(|(_, crc)| crc);
                granules.map(sum).collect()
            }
            false => self.checksums(volume, granules),
        };
        sums.map(|sums: Vec<u32>| sums.into_iter().map(plain).collect())
    }

    /// Whether nothing is written of granules of one leaf of the map: they read as zeroes. What has been written may
    /// read so, too.
    pub fn is_unwritten(&self, volume: u32, granules: Range<u64>) -> bool {
        let leaf = granules.start / LEAF_GRANULES;
        let in_ring = self.logs.has_of_leaf(volume, leaf);
        let ignored = self.identity.sings(Canary::DigestWithoutRing);
        (!in_ring || ignored) && matches!(self.map.leaf(volume, leaf), LeafView::Absent)
    }

    /// Everything below this sequence is published: it grows with each change that can be seen.
    pub const fn published(&self) -> u64 {
        self.journal.published()
    }

    /// Granules that a volume can still be given, as far as can be told: slots that are free, and segments that can be
    /// made.
    pub fn free_granules(&self, volume: u32) -> u64 {
        let Some(class) = self.class_of(volume) else {
            return 0;
        };
        let more = self.growth(class) * u64::from(self.identity.sizes().slots(class.grain));
        (self.spare_slots(class) + more) * class.grain.granules()
    }
}

const _: () = assert!(REPLICAS < FIRST_VOLUME);
