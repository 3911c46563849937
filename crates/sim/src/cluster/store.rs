//! A node's store as far as replicas know it: content by granule, records, planes, entry. What was submitted
//! becomes durable in any order and in pieces, when the world says; a crash forgets what is not.

use std::collections::BTreeSet;

use ashlar_block::{ErrorKind, IoError};
use ashlar_replica::{
    Cage, Canary, Content, Entry, EntryChange, Epoch, Event, Extent, ExtentSet, Head, Heads, Known,
    Leaf, Local, Low, MAX_MEMBERS, OwnPlane, Position, ReplicaSequence, Shape, Tag, Token,
};
use bytes::Bytes;

use super::model::Value;
use crate::chance::Chance;

/// Bytes of a granule here: enough for the name of a write.
pub(crate) const GRANULE_BYTES: usize = 4;
/// What a store with space says that is free.
const FREE: u64 = 1000;

/// Until when the own plane counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Till {
    /// Until all below is committed.
    Known(Known),
    /// Until the entry says that this copy is in sync.
    Added,
}

#[derive(Clone, Debug)]
struct Kept {
    epoch: Epoch,
    sequence: ReplicaSequence,
    granules: ExtentSet,
}

#[derive(Clone, Debug)]
enum Doing {
    Apply {
        left: ExtentSet,
        extent: Extent,
        content: Content,
        tag: Option<Tag>,
    },
    Persist(EntryChange),
    Read(Extent),
    Digest(Extent),
}

#[derive(Clone, Debug)]
struct Pending {
    token: Token,
    doing: Doing,
}

impl Pending {
    /// How it ends on a medium that has failed, unless it has begun already, or is of the entry: a store that cannot
    /// change that stops, as if its process had died.
    fn broken(&self) -> Option<Event> {
        let token = self.token;
        let error = IoError::new(ErrorKind::Media, "the store is broken");
        match &self.doing {
            Doing::Apply { left, extent, .. } => {
                let is_whole = *left == ExtentSet::from(*extent);
                is_whole.then_some(Event::Applied {
                    token,
                    result: Err(error),
                })
            }
            Doing::Read(_) => Some(Event::Read {
                token,
                result: Err(error),
            }),
            Doing::Digest(_) => Some(Event::Digested {
                token,
                result: Err(error),
            }),
            Doing::Persist(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    position: Position,
    shape: Shape,
    cage: Cage,
    content: Vec<Value>,
    entry: Entry,
    records: Vec<Kept>,
    /// What is known to be committed, and what of that an import would find.
    known: Known,
    written: Known,
    own: ExtentSet,
    till: Till,
    /// What is uncertain besides, until that is committed.
    stays: ExtentSet,
    stays_until: Known,
    planes: [ExtentSet; MAX_MEMBERS],
    pending: Vec<Pending>,
    /// Submitted, and not yet given a time.
    fresh: Vec<Token>,
    pub(crate) is_full: bool,
    pub(crate) is_broken: bool,
    /// Granules that cannot be read until they are written.
    pub(crate) bad: BTreeSet<u64>,
    /// Counts changes of what the invariants look at.
    version: u64,
    /// Counts what has become durable; a crash takes nothing of it back.
    head: Head,
    /// What is remembered of other copies.
    heads: Heads,
}

impl Store {
    pub(crate) fn new(position: Position, shape: Shape, entry: Entry, cage: Cage) -> Self {
        let known = Known {
            epoch: entry.promised,
            low: Low::BASE,
        };
        Self {
            position,
            shape,
            cage,
            content: vec![0; shape.granules as usize],
            entry,
            records: Vec::new(),
            known,
            written: known,
            own: ExtentSet::new(),
            till: Till::Known(Known::default()),
            stays: ExtentSet::new(),
            stays_until: Known::default(),
            planes: Default::default(),
            pending: Vec::new(),
            fresh: Vec::new(),
            is_full: false,
            is_broken: false,
            bad: BTreeSet::new(),
            version: 0,
            head: Head(1),
            heads: Heads::default(),
        }
    }

    /// It has so many granules from now on, or more.
    pub(crate) fn grow(&mut self, granules: u64) {
        let granules = granules.max(self.shape.granules);
        self.shape.granules = granules;
        self.content.resize(granules as usize, 0);
        self.version += 1;
    }

    pub(crate) const fn entry(&self) -> Entry {
        self.entry
    }

    /// Its drives as they are now: what is on its way is not there.
    pub(crate) fn image(&self) -> Self {
        Self {
            pending: Vec::new(),
            fresh: Vec::new(),
            ..self.clone()
        }
    }

    pub(crate) const fn found(&self) -> Head {
        self.head
    }

    pub(crate) const fn heads(&self) -> Heads {
        self.heads
    }

    /// What the invariants look at has changed more often than that.
    pub(crate) const fn count_from(&mut self, version: u64) {
        self.version = version;
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn content(&self) -> &[Value] {
        &self.content
    }

    /// A bit of a granule changes by itself.
    pub(crate) fn flip(&mut self, granule: usize) {
        self.content[granule] ^= 1 << 30;
        self.version += 1;
    }

    /// What was submitted since the last time.
    pub(crate) fn take_fresh(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }

    /// Some of what a change covers becomes durable, before the rest of it.
    pub(crate) fn tear(&mut self, token: Token, chance: &mut Chance) {
        let Some(at) = self
            .pending
            .iter()
            .position(|pending| pending.token == token)
        else {
            return;
        };
        if self.is_full {
            return;
        }
        if let Doing::Apply { left, .. } = &self.pending[at].doing {
            let granules: Vec<u64> = left.iter().flat_map(Extent::granules).collect();
            let some: ExtentSet = granules
                .into_iter()
                .filter(|_| chance.happens(500))
                .filter_map(|granule| Extent::new(granule, 1))
                .collect();
            self.publish(at, &some);
        }
    }

    /// An operation is done.
    pub(crate) fn finish(&mut self, token: Token) -> Option<Event> {
        let at = self
            .pending
            .iter()
            .position(|pending| pending.token == token)?;
        if self.is_broken
            && let Some(event) = self.pending[at].broken()
        {
            self.pending.remove(at);
            return Some(event);
        }
        if let Doing::Apply { left, extent, .. } = &self.pending[at].doing {
            if self.is_full && *left == ExtentSet::from(*extent) {
                self.pending.remove(at);
                let result = Err(IoError::new(ErrorKind::NoSpace, "the store is full"));
                return Some(Event::Applied { token, result });
            }
            let left = left.clone();
            self.publish(at, &left);
        }
        let done = self.pending.remove(at);
        Some(match done.doing {
            Doing::Apply { .. } => {
                let result = Ok(());
                Event::Applied { token, result }
            }
            Doing::Persist(change) => {
                self.enter(change);
                Event::Persisted { token }
            }
            Doing::Read(extent) if extent.granules().any(|granule| self.bad.contains(&granule)) => {
                let result = Err(IoError::new(ErrorKind::Corrupt, "a block is lost"));
                Event::Read { token, result }
            }
            Doing::Read(extent) => {
                let values = extent
                    .granules()
                    .map(|granule| self.content[granule as usize]);
                let bytes: Vec<u8> = values.flat_map(Value::to_le_bytes).collect();
                let result = Ok(Bytes::from(bytes));
                Event::Read { token, result }
            }
            Doing::Digest(extent) => {
                let result = Ok(self.hash(extent));
                Event::Digested { token, result }
            }
        })
    }

    /// Granules of a change become durable, with its record and the marks.
    fn publish(&mut self, at: usize, granules: &ExtentSet) {
        let Doing::Apply {
            left,
            extent,
            content,
            tag,
        } = &mut self.pending[at].doing
        else {
            return;
        };
        if granules.is_empty() {
            return;
        }
        self.version += 1;
        self.head.0 += 1;
        for granule in granules.iter().flat_map(Extent::granules) {
            let value = match content {
                Content::Zeroes => 0,
                Content::Data(bytes) => {
                    let from = (granule - extent.first()) as usize * GRANULE_BYTES;
                    let mut word = [0; GRANULE_BYTES];
                    word.copy_from_slice(&bytes[from..from + GRANULE_BYTES]);
                    Value::from_le_bytes(word)
                }
            };
            self.content[granule as usize] = value;
            self.bad.remove(&granule);
        }
        granules.iter().for_each(|extent| left.remove(extent));
        let tag = *tag;
        if let Some(tag) = tag {
            self.keep(tag, granules);
        }
        let marks = tag.is_some() || !self.cage.sings(Canary::CopyNoMark);
        for position in self.entry.absent.without(self.position).iter() {
            if marks {
                self.planes[position.index()].add(granules);
            }
        }
    }

    fn keep(&mut self, tag: Tag, granules: &ExtentSet) {
        let same = |kept: &&mut Kept| (kept.epoch, kept.sequence) == (tag.epoch, tag.sequence);
        match self.records.iter_mut().find(same) {
            Some(kept) => kept.granules.add(granules),
            None => self.records.push(Kept {
                epoch: tag.epoch,
                sequence: tag.sequence,
                granules: granules.clone(),
            }),
        }
        let known = Known {
            epoch: tag.epoch,
            low: tag.low,
        };
        if tag.low != Low::BASE_OPEN {
            self.written = self.written.max(known);
            self.note(known);
        }
        if self.entry.absent.has(self.position) {
            self.own.add(granules);
            self.till = Till::Added;
        }
    }

    fn note(&mut self, known: Known) {
        if known.low != Low::BASE_OPEN && known > self.known {
            self.known = known;
            self.version += 1;
            self.void();
        }
    }

    /// The own plane has served when what was in flight when it was written is committed.
    fn void(&mut self) {
        if self.known >= self.stays_until {
            self.stays = ExtentSet::new();
        }
        let is_over = match self.till {
            Till::Known(till) => self.known >= till,
            Till::Added => false,
        };
        if is_over && !self.entry.absent.has(self.position) {
            self.own = ExtentSet::new();
        }
    }

    fn enter(&mut self, change: EntryChange) {
        self.version += 1;
        self.head.0 += 1;
        let before = self.entry.absent;
        let after = change.entry.absent;
        let uncertain = self.uncertain();
        for position in Position::all().filter(|&position| position != self.position) {
            let plane = &mut self.planes[position.index()];
            match (before.has(position), after.has(position)) {
                (false, true) => {
                    plane.add(&change.marks);
                    if change.marks_uncertain {
                        plane.add(&uncertain);
                    }
                }
                (true, false) => *plane = ExtentSet::new(),
                _ => {}
            }
        }
        match change.own {
            OwnPlane::Until(known) => {
                if before.has(self.position) && !after.has(self.position) {
                    self.till = Till::Known(known);
                }
            }
            OwnPlane::TakeUncertain => {
                self.own = uncertain;
                self.stays = ExtentSet::new();
                self.till = Till::Added;
                self.records.clear();
            }
            OwnPlane::Keep(these) => {
                self.stays = these;
                self.stays_until = Known {
                    epoch: change.entry.promised,
                    low: Low(u64::MAX),
                };
            }
            OwnPlane::Forget => {
                self.own = ExtentSet::new();
                self.stays = ExtentSet::new();
                self.till = Till::Known(Known::default());
                self.records.clear();
            }
        }
        self.entry = change.entry;
        self.void();
    }

    /// Lets its records go, and marks them in the own plane.
    pub(crate) fn spill(&mut self) {
        if self.entry.absent.has(self.position) || self.records.is_empty() {
            return;
        }
        let last = self.records.iter().map(|kept| Known {
            epoch: kept.epoch,
            low: Low(kept.sequence.0 + 1),
        });
        let last = last.max().unwrap_or_default();
        let before = match self.till {
            Till::Known(known) if !self.own.is_empty() => known,
            _ => Known::default(),
        };
        self.own = self.uncertain();
        self.till = Till::Known(last.max(before));
        self.records.clear();
        self.version += 1;
        self.void();
    }

    /// Lets go of what is known to be committed.
    pub(crate) fn trim(&mut self) {
        let known = self.known;
        self.records
            .retain(|kept| !known.covers(kept.epoch, kept.sequence));
    }

    /// The process dies: what is on its way happens in part.
    pub(crate) fn crash(&mut self, chance: &mut Chance) {
        for token in self.pending.iter().map(|p| p.token).collect::<Vec<_>>() {
            match chance.below(4) {
                0 => self.tear(token, chance),
                1 => drop(self.finish(token)),
                _ => {}
            }
        }
        self.pending.clear();
        self.fresh.clear();
        self.known = self.written;
        if self.cage.sings(Canary::TailLost) {
            self.records.clear();
        }
        self.version += 1;
    }

    fn hash(&self, extent: Extent) -> u128 {
        let values = extent.granules();
        values.fold(
            0x6c62_272e_07bb_0142_62b8_2175_6295_c58d,
            |hash, granule| {
                let value = u128::from(self.content[granule as usize]);
                (hash ^ value).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            },
        )
    }

    fn submit(&mut self, token: Token, doing: Doing) {
        self.fresh.push(token);
        self.pending.push(Pending { token, doing });
    }
}

impl Local for Store {
    fn apply(&mut self, token: Token, extent: Extent, content: Content, tag: Option<Tag>) {
        assert!(self.shape.contains(extent), "{extent} is beyond the volume");
        if let Content::Data(bytes) = &content {
            let bytes = bytes.len();
            assert_eq!(
                bytes,
                extent.count() as usize * GRANULE_BYTES,
                "bytes of {extent}"
            );
        }
        let left = ExtentSet::from(extent);
        self.submit(
            token,
            Doing::Apply {
                left,
                extent,
                content,
                tag,
            },
        );
    }

    fn read(&mut self, token: Token, extent: Extent) {
        assert!(self.shape.contains(extent), "{extent} is beyond the volume");
        self.submit(token, Doing::Read(extent));
    }

    fn persist(&mut self, token: Token, change: EntryChange) {
        assert!(
            change.entry.promised >= self.entry.promised,
            "a promise is taken back: {change:?} after {:?}",
            self.entry
        );
        self.submit(token, Doing::Persist(change));
    }

    fn digest(&mut self, token: Token, extent: Extent) {
        self.submit(token, Doing::Digest(extent));
    }

    fn matches(&self, extent: Extent, content: &Content) -> Option<bool> {
        let values = extent
            .granules()
            .map(|granule| self.content[granule as usize]);
        Some(match content {
            Content::Zeroes => values.into_iter().all(|value| value == 0),
            Content::Data(bytes) => {
                let all: Vec<u8> = values.flat_map(Value::to_le_bytes).collect();
                all == bytes[..]
            }
        })
    }

    fn unwritten(&self, leaf: Leaf, most: u32) -> u32 {
        let leaves = (leaf.0..self.shape.leaves()).map(Leaf).take(most as usize);
        let is_zero = |granule: u64| self.content[granule as usize] == 0;
        let is_empty = |leaf: &Leaf| {
            let extent = self.shape.leaf(*leaf);
            extent.is_some_and(|extent| extent.granules().all(is_zero))
        };
        leaves.take_while(is_empty).count() as u32
    }

    fn learn(&mut self, known: Known) {
        self.note(known);
    }

    fn uncertain(&self) -> ExtentSet {
        let mut uncertain = self.own.clone();
        uncertain.add(&self.stays);
        let open = |kept: &&Kept| !self.known.covers(kept.epoch, kept.sequence);
        for kept in self.records.iter().filter(open) {
            uncertain.add(&kept.granules);
        }
        uncertain
    }

    fn plane(&self, position: Position) -> ExtentSet {
        self.planes[position.index()].clone()
    }

    fn mark(&mut self, position: Position, extent: Extent) {
        self.version += 1;
        self.planes[position.index()].insert(extent);
    }

    fn clear(&mut self, position: Position, extent: Extent) {
        self.version += 1;
        self.planes[position.index()].remove(extent);
    }

    fn head(&mut self) -> Head {
        self.head
    }

    fn remember(&mut self, heads: Heads) {
        self.head.0 += 1;
        self.heads = heads;
    }

    fn is_drained(&self) -> bool {
        let changes = |p: &Pending| matches!(p.doing, Doing::Apply { .. } | Doing::Persist(_));
        !self.pending.iter().any(changes)
    }

    fn free(&self) -> u64 {
        if self.is_full { 0 } else { FREE }
    }
}
