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

use ashlar_block::{IoError, Moment};

pub(crate) use copy::{Copy, Published};
use copy::{Order, StagedPage};

use super::base::Base;
use super::identity::Identity;
use super::invariant::invariant;
use super::journal::logs::Logs;
use super::journal::{Journal, StagedChange, Then};
use super::manage::refuse;
use super::map::{Change, FIRST_VOLUME, Map, REPLICAS};
use crate::format::{PageId, PlaneShape, ReplicaEntry};
use crate::manage::Managed;
use crate::replica::{
    Committed, POSITIONS, ReplicaChange, ReplicaIdentity, ReplicaMark, ReplicaPromise, ReplicaSize,
    ReplicaTag,
};
use crate::sizes::GRANULE;
use crate::{Cage, Canary};

/// The part of a log that a copy may keep from being written again.
const HOLDS: u64 = 8;
/// The part of the map log that its unwritten planes may come to.
const PAGES: u64 = 16;
/// What has not changed for so long is written.
const IDLE: Duration = Duration::from_secs(1);
/// What copies remember of others waits so long for a batch of the map log that is written anyway; then it gets one, for
/// all of the pool that have something new. Hosts' writes that are sealed behind a batch wait for it.
const NEWS_WAIT: Duration = Duration::from_millis(50);

/// The pool's copies of replicated volumes.
#[derive(Debug)]
pub struct Replicas {
    /// Of the command that is taken in now.
    tag: Option<ReplicaTag>,
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
pub(super) struct Growing {
    pub(super) id: u64,
    pub(super) volume: u32,
    pub(super) granules: u64,
}

/// What the saving of copies may use.
pub(super) struct Around<'a> {
    pub(super) base: &'a mut Base,
    pub(super) identity: &'a Identity,
    pub(super) journal: &'a mut Journal,
    pub(super) logs: &'a Logs,
}

impl Around<'_> {
    fn stage(&mut self, page: StagedPage, then: Then) {
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

    /// Pages that are written together, beside those with marks of records.
    fn most_pages(&self) -> usize {
        let most = self.logs.map_bytes() / PAGES / GRANULE as u64;
        most.max(8) as usize
    }
}

/// Where the pages of a copy are to be.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) shape: PlaneShape,
    base: u32,
}

impl Copy {
    /// A new one.
    pub(super) fn made(entry: ReplicaEntry, place: Place, cage: Cage) -> Self {
        let mut copy = Self::found(entry, place.base, cage);
        copy.found_all();
        copy
    }
}

impl Place {
    fn pages(&self) -> Range<u32> {
        self.base..self.base + pages_of(self.shape)
    }
}

/// What there is to know of copies, and what the protocol lets them remember.
impl Replicas {
    /// Volumes that are copies, and who they are.
    pub fn list(&self) -> Vec<(u32, ReplicaIdentity)> {
        let copies = self.copies.iter();
        copies
            .map(|(&volume, copy)| (volume, copy.entry().identity))
            .collect()
    }

    /// Which copy of a replicated volume a volume is; none if it is no copy.
    pub fn identity(&self, volume: u32) -> Option<ReplicaIdentity> {
        self.copy(volume).map(|copy| copy.entry().identity)
    }

    /// What a volume's copy has durably promised; none if it is no copy.
    pub fn promise(&self, volume: u32) -> Option<ReplicaPromise> {
        self.copy(volume).map(Copy::promise)
    }

    /// How large a replicated volume was said to be, as its copy remembers.
    pub fn size(&self, volume: u32) -> Option<ReplicaSize> {
        self.copy(volume)?.entry().size
    }

    /// How far the pool had come when it was imported, or when this copy was last looked at in its life
    /// ([`Engine::replica_comes_to`](crate::Engine::replica_comes_to)): what the pool has written by itself since says
    /// nothing of the copy.
    pub fn head(&self, volume: u32) -> u64 {
        self.copy(volume).map_or(0, Copy::head)
    }

    /// What a volume's copy remembers of other copies' pools, by position.
    pub fn marks(&self, volume: u32) -> [ReplicaMark; POSITIONS] {
        let copy = self.copy(volume);
        copy.map_or_else(Default::default, |copy| copy.entry().marks)
    }

    /// This is remembered instead: durable soon, and with the next change of the promise.
    pub fn remember(&mut self, volume: u32, marks: [ReplicaMark; POSITIONS]) {
        if let Some(copy) = self.copies.get_mut(&volume) {
            copy.remember(marks);
        }
    }

    /// What may differ in a volume from other copies: ranges in any order, which may overlap.
    pub fn uncertain(&self, volume: u32) -> Vec<Range<u64>> {
        self.copy(volume).map_or_else(Vec::new, Copy::uncertain)
    }

    /// What an absent position misses of a volume: ranges in order.
    pub fn plane(&self, volume: u32, position: u8) -> Vec<Range<u64>> {
        let plane = |copy: &Copy| copy.plane(position.into());
        self.copy(volume).map_or_else(Vec::new, plane)
    }

    /// How many granules an absent position misses of a volume: told at once, however many they are.
    pub fn missed(&self, volume: u32, position: u8) -> u64 {
        let missed = |copy: &Copy| copy.missed(position.into());
        self.copy(volume).into_iter().map(missed).sum()
    }

    /// All records of a volume below this are committed: the logs may let them go.
    pub fn learn(&mut self, volume: u32, committed: Committed) {
        if let Some(copy) = self.copies.get_mut(&volume) {
            copy.learn(committed);
        }
    }

    /// An absent position misses these granules: durable with the next change of the promise.
    pub fn mark(&mut self, volume: u32, position: u8, granules: &Range<u64>) {
        if let Some(copy) = self.copies.get_mut(&volume) {
            copy.mark(position.into(), granules);
        }
    }

    /// An absent position has these granules: durable at some time.
    pub fn clear(&mut self, volume: u32, position: u8, granules: &Range<u64>) {
        if let Some(copy) = self.copies.get_mut(&volume) {
            copy.clear(position.into(), granules);
        }
    }

    /// The volume's copy.
    fn copy(&self, volume: u32) -> Option<&Copy> {
        self.copies.get(&volume)
    }
}

/// What the engine asks, and what follows from records.
impl Replicas {
    /// Those of a pool that had come so far.
    pub(crate) fn found(mut copies: BTreeMap<u32, Copy>, published: u64) -> Self {
        copies
            .values_mut()
            .for_each(|copy| copy.comes_to(published));
        Self {
            tag: None,
            copies,
            seen: (None, false),
            since: Moment::default(),
            news_since: None,
            late: Vec::new(),
            growing: Vec::new(),
        }
    }

    /// Whether a volume is a copy.
    pub(super) fn has(&self, volume: u32) -> bool {
        self.copies.contains_key(&volume)
    }

    /// A command that is taken in is a record with this tag, or, without one, none.
    pub(super) fn set_tag(&mut self, tag: Option<ReplicaTag>) {
        self.tag = tag;
    }

    /// The tag of the command that is taken in now.
    pub(super) fn tag(&self) -> Option<ReplicaTag> {
        self.tag
    }

    /// Sequence of the oldest record that must stay in the logs for a copy.
    pub(super) fn hold(&self, identity: &Identity) -> u64 {
        if identity.sings(Canary::TrimUncertain) {
            return u64::MAX;
        }
        let holds = self.copies.values().filter_map(Copy::holds);
        holds.min().unwrap_or(u64::MAX)
    }

    /// Pages of the table that a volume's copy may come to have.
    pub(super) fn pages(&self, volume: u32) -> u64 {
        let pages = self.copies.get(&volume).map(Copy::pages);
        pages.map_or(0, |pages| pages.len() as u64)
    }

    /// Counts on places for all pages that copies may come to have.
    pub(super) fn hold_pages(&self, map: &mut Map) {
        let pages = self.copies.values().flat_map(Copy::pages);
        pages.for_each(|index| map.hold(page(index)));
    }

    /// A change of what a volume holds is published.
    pub(super) fn changed(&mut self, volume: u32, change: &Published) {
        if self.copies.is_empty() {
            return;
        }
        if let Some(copy) = self.copies.get_mut(&volume) {
            copy.published(change);
        }
    }

    /// A copy has made something durable: how far the pool has come.
    pub(super) fn comes_to(&mut self, volume: u32, published: u64) {
        if let Some(copy) = self.copies.get_mut(&volume) {
            copy.comes_to(published);
        }
    }

    /// A copy's entry is durable, and with it what an order has asked for.
    pub(super) fn entry_published(&mut self, volume: u32, id: Option<u64>, base: &mut Base) {
        if let Some(copy) = self.copies.get_mut(&volume) {
            copy.saved_entry();
        }
        if let Some(id) = id {
            base.answer(id, Ok(Managed::Done));
        }
    }

    /// The volume is a copy no more.
    pub(super) fn end(&mut self, volume: u32, map: &mut Map, base: &mut Base) {
        if let Some(mut copy) = self.copies.remove(&volume) {
            copy.pages().for_each(|index| map.let_go(page(index)));
            for id in copy.take_asked() {
                base.answer(id, Err(refuse(format!("volume {volume} was deleted"))));
            }
        }
    }

    /// Orders that wait for copies to be saved: the engine has stopped.
    pub(super) fn take_asked(&mut self) -> Vec<u64> {
        let growing = std::mem::take(&mut self.growing);
        let asked = self.copies.values_mut().flat_map(Copy::take_asked);
        asked
            .chain(growing.into_iter().map(|wish| wish.id))
            .collect()
    }
}

/// Copies that are made and grow.
impl Replicas {
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

    /// Where the pages of a new copy may be.
    pub(super) fn place_for_new(&self, granules: u64) -> Result<Place, IoError> {
        let shape = PlaneShape::of(granules);
        match self.gap(pages_of(shape)) {
            Some(base) => Ok(Place { shape, base }),
            None => Err(refuse("the pool has no room for another replica".into())),
        }
    }

    /// Where those of a larger one may be.
    pub(super) fn place_for_larger(&self, volume: u32, granules: u64) -> Result<Place, IoError> {
        let shape = PlaneShape::of(granules);
        match self.base_for(volume, pages_of(shape)) {
            Some(base) => Ok(Place { shape, base }),
            None => Err(refuse("the pool has no room for a larger replica".into())),
        }
    }

    /// Where a copy may have so many pages: where it is, if the next one leaves it so many, or elsewhere.
    fn base_for(&self, volume: u32, pages: u32) -> Option<u32> {
        let base = self.copy(volume)?.pages().start;
        let starts = self.copies.values().map(|copy| copy.pages().start);
        let next = starts.filter(|&start| start > base).min();
        match next.unwrap_or(u32::MAX) - base >= pages {
            true => Some(base),
            false => self.gap(pages),
        }
    }

    /// Pages of such a place that a volume's copy does not have.
    pub(super) fn more_pages(&self, volume: u32, place: Place) -> impl Iterator<Item = u32> {
        let before = self.copy(volume).map_or(0..0, Copy::pages);
        place.pages().filter(move |index| !before.contains(index))
    }

    /// A copy comes into being, in a pool that has come so far; it has yet to be saved.
    pub(super) fn add(&mut self, id: u64, mut copy: Copy, map: &mut Map, published: u64) {
        copy.comes_to(published);
        copy.pages().for_each(|index| map.hold(page(index)));
        copy.ask(Order { id, change: None });
        self.copies.insert(copy.entry().volume, copy);
    }

    /// Whether a wish for a larger copy waits, for an entry of the old size is on its way, and to where that has it.
    pub(super) fn holds_growth(&mut self, wish: Growing) -> bool {
        let holds = self.copy(wish.volume).is_some_and(Copy::saves_news);
        if holds {
            self.growing.push(wish);
        }
        holds
    }

    /// Wishes that need not wait any more.
    pub(super) fn take_growing(&mut self) -> Vec<Growing> {
        std::mem::take(&mut self.growing)
    }

    /// Whether a copy says nothing of what another misses.
    pub(super) fn says_nothing(&self, volume: u32) -> bool {
        self.copy(volume).is_some_and(Copy::says_nothing)
    }

    /// A copy has larger planes; it has yet to be saved.
    pub(super) fn grow(
        &mut self,
        id: u64,
        volume: u32,
        place: Place,
        map: &mut Map,
    ) -> Result<(), IoError> {
        let more: Vec<u32> = self.more_pages(volume, place).collect();
        let Some(copy) = self.copies.get_mut(&volume) else {
            return Err(refuse(format!("volume {volume} is no copy")));
        };
        let before = copy.pages();
        copy.grow(place.shape, place.base);
        copy.ask(Order { id, change: None });
        more.into_iter().for_each(|index| map.hold(page(index)));
        // What they say counts for a volume of the old size, until the new one is durable, and for none then.
        let now = copy.pages();
        let gone = before.filter(|index| !now.contains(index));
        gone.for_each(|index| map.let_go(page(index)));
        Ok(())
    }
}

/// How copies are saved.
impl Replicas {
    /// A copy remembers how large the volume was said to be, which has so many granules.
    pub(super) fn note_size(
        &mut self,
        id: u64,
        volume: u32,
        size: ReplicaSize,
        has: u64,
        around: &mut Around<'_>,
    ) -> Result<(), IoError> {
        let fits = size.register < size.granules && size.granules <= has;
        let copy = self.copies.get_mut(&volume).filter(|_| fits);
        let Some(copy) = copy else {
            return Err(refuse(format!(
                "volume {volume} has {has} granules, or is no copy: it cannot be one of {}",
                size.granules
            )));
        };
        copy.note(size, Order { id, change: None });
        if !copy.is_saving() {
            self.save(volume, around);
        }
        Ok(())
    }

    /// What a copy has promised changes.
    pub(super) fn change(
        &mut self,
        id: u64,
        volume: u32,
        change: ReplicaChange,
        around: &mut Around<'_>,
    ) -> Result<(), IoError> {
        let Some(copy) = self.copies.get_mut(&volume) else {
            return Err(refuse(format!(
                "volume {volume} is no copy of a replicated one"
            )));
        };
        let change = Some(change);
        copy.ask(Order { id, change });
        if !copy.is_saving() {
            self.save(volume, around);
        }
        Ok(())
    }

    /// Stages what a copy's pages do not say, or a part of it.
    pub(super) fn save(&mut self, volume: u32, around: &mut Around<'_>) {
        for late in std::mem::take(&mut self.late) {
            around.stage(late, Then::Plane);
        }
        let Some(copy) = self.copies.get_mut(&volume) else {
            return invariant!(
                around.base,
                "volume {volume} is saved as a copy, but is none"
            );
        };
        let part = copy.stage(around.journal.published(), around.most_pages());
        let (mut staged, id) = (part.pages, part.id);
        let entry = copy.pages().start;
        if around.identity.sings(Canary::MarksAfterEntry) {
            let planes = staged.extract_if(.., |one| one.index != entry);
            self.late.extend(planes);
        }
        for one in staged {
            let then = match one.index == entry {
                true => Then::Replica(volume, id),
                false => Then::Plane,
            };
            around.stage(one, then);
        }
    }

    /// Writes what the logs have kept for too long, or all if everything is to be home.
    pub(super) fn advance(&mut self, is_draining: bool, around: &mut Around<'_>) {
        if self.copies.is_empty() {
            // Times of a copy that was deleted would go by, and stay the next deadline.
            (self.seen, self.news_since) = Default::default();
            return;
        }
        let now = around.base.now;
        let hold = self.hold(around.identity);
        let is_stale = self.copies.values().any(Copy::is_stale);
        let seen = ((hold != u64::MAX).then_some(hold), is_stale);
        if self.seen != seen {
            (self.seen, self.since) = (seen, now);
        }
        let waits = seen.0.is_some() || seen.1;
        let is_idle = waits && now >= self.since + IDLE;
        let all = is_idle || waits && is_draining;
        let has_room = !around.logs.is_map_busy();
        let held = |copy: &Copy| {
            let is_far = |hold| around.logs.is_far_behind(hold, HOLDS);
            copy.holds().is_some_and(is_far) || has_room && copy.dirty() > around.most_pages()
        };
        let due = self.copies.iter().filter(|(_, copy)| {
            let anything = copy.holds().is_some() || copy.is_stale();
            let goes_on = has_room && copy.is_asked();
            !copy.is_saving() && (goes_on || all && anything || held(copy))
        });
        for volume in due.map(|(&volume, _)| volume).collect::<Vec<u32>>() {
            if let Some(copy) = self.copies.get_mut(&volume) {
                copy.spill();
            }
            self.save(volume, around);
        }
        self.save_news(around);
    }

    /// When what is remembered of other copies is written at the latest. While the map log makes room it waits for that.
    fn news_due(&self, logs: &Logs) -> Option<Moment> {
        let since = self.news_since?;
        (!logs.is_map_busy()).then(|| since + NEWS_WAIT)
    }

    /// Writes what is remembered of other copies, if it is time, or a batch is sealed anyway.
    fn save_news(&mut self, around: &mut Around<'_>) {
        if !self.copies.values().any(Copy::has_news) {
            self.news_since = None;
            return;
        }
        let now = around.base.now;
        self.news_since.get_or_insert(now);
        let is_due = self.news_due(around.logs).is_some_and(|at| at <= now);
        let has_batch = around.journal.has_changes() && !around.logs.is_map_busy();
        if !is_due && !has_batch {
            return;
        }
        self.news_since = None;
        let copies = self.copies.iter_mut();
        for (&volume, copy) in copies.filter(|(_, copy)| copy.has_news()) {
            around.stage(copy.stage_news(), Then::Replica(volume, None));
        }
    }

    /// When copies are to be looked at even if nothing happens.
    pub(super) fn deadline(&self, logs: &Logs) -> Option<Moment> {
        let (hold, stale) = self.seen;
        let saving = self.copies.values().any(Copy::is_saving);
        let waits = (hold.is_some() || stale) && !saving;
        let idle = waits.then(|| self.since + IDLE);
        [idle, self.news_due(logs)].into_iter().flatten().min()
    }
}

/// Pages of a copy, its entry with them.
pub(super) const fn pages_of(shape: PlaneShape) -> u32 {
    1 + POSITIONS as u32 * shape.pages()
}

const fn page(index: u32) -> PageId {
    PageId {
        node: REPLICAS,
        level: 0,
        index,
    }
}

const _: () = assert!(REPLICAS < FIRST_VOLUME);
