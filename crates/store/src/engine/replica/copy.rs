//! One copy of a replicated volume, as it is in memory: what its pages say, and what records of the logs say on top.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::plane::{Plane, Unsaved};
use crate::format::{PlanePage, PlaneShape, ReplicaEntry};
use crate::replica::{
    Committed, OwnPlane, POSITIONS, ReplicaChange, ReplicaMark, ReplicaPromise, ReplicaSize,
    ReplicaTag, Till,
};
use crate::{Cage, Canary};

/// Something that is published.
pub(crate) struct Published {
    pub(crate) granules: Range<u64>,
    pub(crate) sequence: u64,
    pub(crate) tag: Option<ReplicaTag>,
}

/// A record that is not known to be committed.
#[derive(Debug)]
struct Kept {
    /// Its oldest part in a log.
    oldest: u64,
    granules: Vec<Range<u64>>,
}

/// Pages and entry on their way: until they are published, the logs keep what is in them.
#[derive(Debug)]
struct Save {
    holds: Option<u64>,
    change: Option<ReplicaChange>,
    /// Nothing but what is remembered of other copies: what comes next need not wait for it.
    is_news: bool,
}

/// An order that the entry of the next save answers.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) id: u64,
    pub(super) change: Option<ReplicaChange>,
}

/// What is written together: planes, then the entry that relies on them.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) pages: Vec<StagedPage>,
    /// The order that it answers.
    pub(super) id: Option<u64>,
}

/// A page to be written.
#[derive(Debug)]
pub(super) struct StagedPage {
    /// Its place among the copy's pages.
    pub(super) index: u32,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Copy {
    cage: Cage,
    /// What was found is known: what is published now is new.
    is_replayed: bool,
    /// What is durable, or will be when all that is staged is; `saved` as it was staged last.
    entry: ReplicaEntry,
    /// The first of its pages in the table.
    pub(super) base: u32,
    /// What is promised, durably.
    promise: ReplicaPromise,
    committed: Committed,
    /// How long the own plane counts, but for what stays.
    till: Till,
    /// What stays uncertain, and is in the own plane, until this is committed.
    stays: Vec<Range<u64>>,
    stays_until: Committed,
    /// The own plane has more than what stays.
    has_more: bool,
    planes: [Plane; POSITIONS],
    records: BTreeMap<(u32, u64), Kept>,
    /// The oldest record with marks in planes that are not staged.
    marked: Option<u64>,
    saves: VecDeque<Save>,
    /// Orders whose marks are not all staged.
    waiting: VecDeque<Order>,
    /// Positions that the change on its way makes absent: they are marked already.
    coming: u8,
    /// Something was cleared or voided that the pages still have.
    is_stale: bool,
    /// The entry that was staged last does not have what is remembered of other copies.
    has_news: bool,
    /// How far the pool had come when this copy was last said to.
    head: u64,
}

impl Copy {
    /// As its entry says, before planes and logs are looked at.
    pub(crate) fn found(entry: ReplicaEntry, base: u32, cage: Cage) -> Self {
        Self {
            cage,
            is_replayed: false,
            entry,
            base,
            promise: entry.promise,
            committed: entry.committed,
            till: entry.till,
            stays: Vec::new(),
            stays_until: Committed::default(),
            has_more: false,
            planes: std::array::from_fn(|_| Plane::none(entry.shape)),
            records: BTreeMap::new(),
            marked: None,
            saves: VecDeque::new(),
            waiting: VecDeque::new(),
            coming: 0,
            is_stale: false,
            has_news: false,
            head: 0,
        }
    }

    /// A page of a plane, if it counts.
    pub(crate) fn found_page(&mut self, page: PlanePage) {
        let position = usize::from(page.position);
        let counts = position == self.own() || self.promise.absent >> position & 1 == 1;
        if counts && self.entry.numbers[position] == page.number {
            self.planes[position].found(page.page, page.words);
        }
    }

    /// Everything that was found is known.
    pub(crate) fn found_all(&mut self) {
        self.is_replayed = true;
        let committed = self.committed;
        self.records
            .retain(|&(epoch, sequence), _| !committed.covers(epoch, sequence));
        self.void();
    }

    /// Records below this sequence have nothing to say.
    pub(crate) const fn saved(&self) -> u64 {
        self.entry.saved
    }

    pub(crate) const fn entry(&self) -> &ReplicaEntry {
        &self.entry
    }

    pub(crate) const fn promise(&self) -> ReplicaPromise {
        self.promise
    }

    /// Pages of it in the table, the first its entry.
    pub(crate) fn pages(&self) -> Range<u32> {
        self.base..self.base + 1 + POSITIONS as u32 * self.entry.shape.pages()
    }

    fn own(&self) -> usize {
        usize::from(self.entry.identity.position)
    }

    fn is_absent(&self) -> bool {
        self.promise.absent >> self.own() & 1 == 1
    }

    /// A change is published, or found in a log.
    pub(crate) fn published(&mut self, change: &Published) {
        if let Some(tag) = change.tag {
            self.keep(tag, change);
        }
        let forgets = !self.is_replayed && self.cage.sings(Canary::ReplayWithoutMarks);
        let absent = match forgets {
            true => 0,
            false => (self.promise.absent | self.coming) & !(1 << self.own()),
        };
        for position in (0..POSITIONS).filter(|position| absent >> position & 1 == 1) {
            self.planes[position].record(&change.granules);
            self.mark_from(change.sequence);
        }
    }

    /// The logs keep what is from this sequence on until it is staged. Not only if a bit was clear: the page with the
    /// bit may be on its way, and never arrive.
    fn mark_from(&mut self, sequence: u64) {
        let oldest = self.marked.map_or(sequence, |marked| marked.min(sequence));
        self.marked = Some(oldest);
    }

    fn keep(&mut self, tag: ReplicaTag, change: &Published) {
        let granules = change.granules.clone();
        if self.is_absent() {
            let own = self.own();
            self.planes[own].record(&granules);
            self.has_more = true;
            if let Till::Committed(_) = self.till {
                self.till = Till::Added(Committed::default());
            }
            self.mark_from(change.sequence);
        }
        let kept = self.records.entry((tag.epoch, tag.sequence));
        let kept = kept.or_insert_with(|| Kept {
            oldest: change.sequence,
            granules: Vec::new(),
        });
        kept.oldest = kept.oldest.min(change.sequence);
        kept.granules.push(granules);
        let (epoch, low) = (tag.epoch, tag.low);
        self.learn(Committed { epoch, low });
    }

    /// All below is committed.
    pub(crate) fn learn(&mut self, committed: Committed) {
        if committed.low == 0 || committed <= self.committed {
            return;
        }
        self.committed = committed;
        let after = (committed.epoch, committed.low);
        self.records = self.records.split_off(&after);
        self.void();
    }

    /// The own plane has served when what was in flight when it was written is committed.
    fn void(&mut self) {
        if self.committed >= self.stays_until {
            self.stays.clear();
        }
        let is_over = match self.till {
            Till::Committed(till) => self.committed >= till,
            Till::Added(_) => false,
        };
        if is_over && !self.is_absent() {
            self.empty_own();
        }
    }

    fn empty_own(&mut self) {
        let own = self.own();
        if self.stays.is_empty() {
            if !self.planes[own].has_no_page() {
                self.renew(own);
            }
        } else if self.has_more {
            // Not by another number: pages with that are written before the entry, and say nothing until then.
            let plane = &mut self.planes[own];
            let all = plane.ranges();
            all.iter().for_each(|granules| plane.clear(granules));
            self.stays.iter().for_each(|granules| plane.set(granules));
            self.is_stale = true;
        }
        self.has_more = false;
    }

    /// From now on this stays, until that is committed.
    fn stay(&mut self, granules: &[Range<u64>], until: Committed) {
        let own = self.own();
        let plane = &mut self.planes[own];
        self.has_more = !plane.is_empty();
        granules.iter().for_each(|these| plane.record(these));
        (self.stays, self.stays_until) = (granules.to_vec(), until);
        self.void();
    }

    /// How long the own plane counts, with what stays.
    fn till_with_stays(&self, till: Till) -> Till {
        if self.stays.is_empty() {
            return till;
        }
        match till {
            Till::Committed(till) => Till::Committed(till.max(self.stays_until)),
            Till::Added(least) => Till::Added(least.max(self.stays_until)),
        }
    }

    /// What a position's plane says is void.
    fn renew(&mut self, position: usize) {
        self.planes[position] = Plane::none(self.entry.shape);
        self.entry.numbers[position] = self.entry.numbers[position].wrapping_add(1);
        self.is_stale = true;
    }

    /// What may differ here from other copies.
    pub(crate) fn uncertain(&self) -> Vec<Range<u64>> {
        let records = self.records.values().flat_map(|kept| &kept.granules);
        let mut ranges = self.planes[self.own()].ranges();
        ranges.extend(records.cloned());
        ranges
    }

    /// What an absent position misses.
    pub(crate) fn plane(&self, position: usize) -> Vec<Range<u64>> {
        self.planes
            .get(position)
            .map_or_else(Vec::new, Plane::ranges)
    }

    /// How many granules that is.
    pub(crate) fn missed(&self, position: usize) -> u64 {
        let plane = self.planes.get(position).into_iter();
        plane.map(Plane::granules).sum()
    }

    pub(crate) fn mark(&mut self, position: usize, granules: &Range<u64>) {
        if let Some(plane) = self.planes.get_mut(position) {
            plane.set(granules);
        }
    }

    pub(crate) fn clear(&mut self, position: usize, granules: &Range<u64>) {
        if let Some(plane) = self.planes.get_mut(position) {
            plane.clear(granules);
            self.is_stale = true;
        }
    }

    /// An order is to be answered. A change of the promise begins: from now on, what it makes absent is marked.
    pub(super) fn ask(&mut self, order: Order) {
        if let Some(change) = &order.change {
            self.begin(change);
        }
        self.waiting.push_back(order);
    }

    /// The volume was said to be so large: the next entry has it.
    pub(super) fn note(&mut self, size: ReplicaSize, order: Order) {
        // What the key said last stays, in whichever order it is heard.
        let is_older = |known: &ReplicaSize| known.granules >= size.granules;
        if !self.entry.size.as_ref().is_some_and(is_older) {
            self.entry.size = Some(size);
        }
        self.ask(order);
    }

    /// The pool has come so far.
    pub(super) const fn comes_to(&mut self, head: u64) {
        self.head = head;
    }

    /// How far it had come then.
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// This is remembered of other copies from now on: the next entry has it.
    pub(super) fn remember(&mut self, marks: [ReplicaMark; POSITIONS]) {
        self.has_news |= self.entry.marks != marks;
        self.entry.marks = marks;
    }

    /// Whether something is remembered that no entry has, and none is on its way.
    pub(super) fn has_news(&self) -> bool {
        self.has_news && self.saves.is_empty()
    }

    /// The entry as it was staged last, with what is remembered since. It lets the logs go of nothing, and needs no planes.
    pub(super) fn stage_news(&mut self) -> StagedPage {
        self.has_news = false;
        self.saves.push_back(Save {
            holds: None,
            change: None,
            is_news: true,
        });
        StagedPage {
            index: self.base,
            bytes: self.entry.encode(),
        }
    }

    /// Whether no plane has a bit, and none is on its way.
    pub(super) fn says_nothing(&self) -> bool {
        let is_quiet = self.saves.is_empty() && !self.is_asked() && self.coming == 0;
        is_quiet && self.planes.iter().all(Plane::is_empty)
    }

    /// The volume is larger from now on. No page of before counts, wherever it is.
    pub(super) fn grow(&mut self, shape: PlaneShape, base: u32) {
        (self.entry.shape, self.base) = (shape, base);
        (0..POSITIONS).for_each(|position| self.renew(position));
    }

    /// Whether an order waits for a save.
    pub(super) fn is_asked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The orders that wait, which will not be obeyed.
    pub(super) fn take_asked(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|order| order.id)
    }

    fn begin(&mut self, change: &ReplicaChange) {
        let news = change.promise.absent & !self.promise.absent & !(1 << self.own());
        self.coming = news;
        let uncertain = match change.marks_uncertain {
            true => self.uncertain(),
            false => Vec::new(),
        };
        for position in (0..POSITIONS).filter(|position| news >> position & 1 == 1) {
            // What was marked before stays: it is for this change.
            for granules in change.marks.iter().chain(&uncertain) {
                self.planes[position].set(granules);
            }
        }
    }

    /// A change of the promise is staged, with what it makes of the own plane: the entries before say nothing of that.
    fn change_own(&mut self, change: &ReplicaChange) {
        match &change.own {
            OwnPlane::TakeUncertain => {
                // It is like all else that is uncertain.
                self.stays.clear();
                self.spill_records();
            }
            OwnPlane::Forget => {
                self.records.clear();
                self.stays.clear();
                let own = self.own();
                self.renew(own);
            }
            OwnPlane::Keep(granules) => {
                self.stay(granules, Committed::all_of(change.promise.epoch));
            }
            OwnPlane::Until(_) => {}
        }
    }

    /// Records become bits of the own plane; the logs keep them until that is durable.
    fn spill_records(&mut self) {
        let own = self.own();
        if let Some(oldest) = self.oldest_record() {
            self.mark_from(oldest);
            self.has_more = true;
        }
        for kept in std::mem::take(&mut self.records).values() {
            for granules in &kept.granules {
                self.planes[own].record(granules);
            }
        }
    }

    /// Lets records go, and marks them in the own plane, until all of them are known to be committed.
    pub(crate) fn spill(&mut self) {
        if let Some((&(epoch, sequence), _)) = self.records.last_key_value() {
            let low = sequence + 1;
            self.spill_until(Committed { epoch, low });
        }
    }

    fn spill_until(&mut self, last: Committed) {
        self.till = match self.till {
            Till::Committed(till) if !self.planes[self.own()].is_empty() => {
                Till::Committed(till.max(last))
            }
            Till::Committed(_) => Till::Committed(last),
            // Once it is added, the plane goes, but not what was uncertain then.
            Till::Added(least) => Till::Added(least.max(last)),
        };
        self.spill_records();
    }

    /// How the own plane ends once a change is published.
    fn till_after(&self, change: &ReplicaChange) -> Till {
        let stays_absent = change.promise.absent >> self.own() & 1 == 1;
        match &change.own {
            &OwnPlane::Until(committed) if self.is_absent() && !stays_absent => match self.till {
                Till::Added(least) => Till::Committed(committed.max(least)),
                Till::Committed(_) => Till::Committed(committed),
            },
            OwnPlane::Until(_) | OwnPlane::Keep(_) => self.till,
            OwnPlane::TakeUncertain => Till::Added(Committed::default()),
            OwnPlane::Forget => Till::Committed(Committed::default()),
        }
    }

    /// Whether what the logs keep for it, or pages that say too much, should be staged.
    pub(crate) const fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Pages of planes that are not staged.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty_but(Unsaved::No)
    }

    fn dirty_but(&self, reason: Unsaved) -> usize {
        let planes = self.planes.iter();
        planes.map(|plane| plane.dirty_but(reason)).sum()
    }

    fn oldest_record(&self) -> Option<u64> {
        self.records.values().map(|kept| kept.oldest).min()
    }

    /// Sequence of the oldest record that only the logs have.
    pub(crate) fn holds(&self) -> Option<u64> {
        let saves = self.saves.iter().filter_map(|save| save.holds);
        let others = self.oldest_record().into_iter().chain(self.marked);
        saves.chain(others).min()
    }

    /// Whether a save is on its way that others wait for.
    pub(crate) fn is_saving(&self) -> bool {
        self.saves.iter().any(|save| !save.is_news)
    }

    /// Whether what is remembered of other copies is on its way, and nothing else.
    pub(super) fn saves_news(&self) -> bool {
        !self.saves.is_empty() && !self.is_saving()
    }

    /// Everything that must be written for the logs to let go of what is below `published`, in order: planes, then the
    /// entry that relies on them. Of pages that only orders have changed, up to `most`: an order that waits goes with
    /// the last of them.
    pub(super) fn stage(&mut self, published: u64, most: usize) -> Part {
        let is_last = self.dirty_but(Unsaved::Recorded) <= most;
        let order = is_last.then(|| self.waiting.pop_front()).flatten();
        let (id, change) = order.map_or((None, None), |order| (Some(order.id), order.change));
        if let Some(change) = &change {
            self.change_own(change);
        }
        let holds = self.marked.take();
        self.entry.saved = match self.cage.sings(Canary::SavedTooFar) {
            true => published,
            false => self.oldest_record().unwrap_or(published).min(published),
        };
        self.entry.committed = self.committed;
        let mut till = self.till;
        if let Some(change) = &change {
            self.entry.promise = change.promise;
            till = self.till_after(change);
        }
        self.entry.till = self.till_with_stays(till);
        self.is_stale = !is_last;
        self.has_news = false;
        let mut left = most;
        let mut staged = Vec::new();
        let pages = self.entry.shape.pages();
        let (volume, numbers, base) = (self.entry.volume, self.entry.numbers, self.base);
        for (position, plane) in self.planes.iter_mut().enumerate() {
            for (page, words) in plane.take_unsaved(&mut left) {
                let one = PlanePage {
                    volume,
                    position: position as u8,
                    number: numbers[position],
                    page,
                    words,
                };
                staged.push(StagedPage {
                    index: base + 1 + position as u32 * pages + page,
                    bytes: one.encode(),
                });
            }
        }
        staged.push(StagedPage {
            index: base,
            bytes: self.entry.encode(),
        });
        self.saves.push_back(Save {
            holds,
            change,
            is_news: false,
        });
        Part { pages: staged, id }
    }

    /// The entry that was staged first is durable.
    pub(super) fn saved_entry(&mut self) {
        let change = self.saves.pop_front().and_then(|save| save.change);
        if let Some(change) = change {
            self.changed(&change);
        }
    }

    /// A change of the promise is durable.
    fn changed(&mut self, change: &ReplicaChange) {
        let before = self.promise.absent;
        let till = self.till_after(change);
        self.promise = change.promise;
        self.till = till;
        self.coming = 0;
        let added = before & !self.promise.absent & !(1 << self.own());
        for position in (0..POSITIONS).filter(|position| added >> position & 1 == 1) {
            self.renew(position);
        }
        match change.own {
            // What was published since it was staged.
            OwnPlane::TakeUncertain => self.spill_records(),
            OwnPlane::Forget => {
                self.records.clear();
                self.empty_own();
            }
            OwnPlane::Until(_) | OwnPlane::Keep(_) => {}
        }
        self.void();
    }
}
