//! The engine, as the protocol asks of a store.

use std::ops::Range;

use ashlar_block::{IoBuffer, Moment};
use ashlar_replica::{
    Content, EntryChange, Extent, ExtentSet, Head, Heads, Known, Leaf, Local, OwnPlane, Position,
    Tag, Token,
};
use ashlar_store::{
    Committed, Engine, Event, Manage, Outbox, OwnPlane as StoredPlane, ReplicaChange, ReplicaMark,
    ReplicaPromise,
};

use crate::copy::{Copy, GRANULE, PIECE};
use crate::proof::{Found, Proof};

/// What a turn may cost that has something to prove, in leaves that are not written: about a tenth of a millisecond.
const SLICE: u32 = 512;
/// What one costs that is written.
const WRITTEN: u32 = 128;

/// An engine as one copy's store, for one call of its replica. What that asks for is posted: [`Engine::handle`] must
/// follow in the same turn.
pub struct EngineLocal<'a> {
    engine: &'a mut Engine,
    copy: &'a mut Copy,
    now: Moment,
    out: &'a mut Outbox,
    /// Where a direct read is to be put.
    lent: Option<IoBuffer>,
}

impl<'a> EngineLocal<'a> {
    /// The store of `copy`. What the engine wants done is left in `out`.
    pub const fn new(
        engine: &'a mut Engine,
        copy: &'a mut Copy,
        now: Moment,
        out: &'a mut Outbox,
    ) -> Self {
        Self {
            engine,
            copy,
            now,
            out,
            lent: None,
        }
    }

    /// Lends a buffer for a direct read: of a host's command, so that none of the copy's own memory waits for hosts.
    pub fn lend(&mut self, buffer: IoBuffer) {
        self.lent = Some(buffer);
    }

    /// The buffer, if no direct read has begun.
    pub const fn take_back(&mut self) -> Option<IoBuffer> {
        self.lent.take()
    }

    /// Posts what has waited for buffers, as far as there are some, and does a slice of what is to be proven. Whether
    /// anything was posted, or is left to be proven in another turn.
    pub fn resume(&mut self) -> bool {
        self.prove();
        self.post() || self.copy.has_proofs()
    }

    fn prove(&mut self) {
        let mut left = SLICE;
        while left > 0
            && let Some(proof) = self.copy.next_proof()
        {
            let found = self.look_at(&proof);
            left = left.saturating_sub(match found {
                Found::Unwritten => 1,
                _ => WRITTEN,
            });
            self.copy.found(proof, found);
        }
    }

    /// What is known of the leaf that a proof has come to.
    fn look_at(&self, proof: &Proof) -> Found {
        let volume = self.copy.volume();
        let granules = proof.leaf().granules();
        if self.engine.is_unwritten(volume, granules.clone()) {
            return Found::Unwritten;
        }
        match self.engine.plain_checksums(volume, granules) {
            Some(sums) => Found::Sums(sums),
            None => Found::Elsewhere,
        }
    }

    fn post(&mut self) -> bool {
        let volume = self.copy.volume();
        let mut any = false;
        while let Some(command) = self.copy.next_command() {
            let request = command.request;
            let event = match command.tag {
                Some(tag) => Event::Record {
                    volume,
                    request,
                    tag,
                },
                None => Event::Command { volume, request },
            };
            self.engine.post(self.now, event, self.out);
            any = true;
        }
        any
    }
}

impl Local for EngineLocal<'_> {
    fn apply(&mut self, token: Token, extent: Extent, content: Content, tag: Option<Tag>) {
        if let Content::Data(bytes) = &content {
            let expected = extent.count() as usize * GRANULE;
            assert_eq!(bytes.len(), expected, "bytes of {extent}");
        }
        self.copy.apply(token, extent, &content, tag);
        self.post();
    }

    fn read(&mut self, token: Token, extent: Extent) {
        self.copy.read(token, extent);
        self.post();
    }

    fn read_directly(&mut self, token: Token, extent: Extent) -> bool {
        let bytes = extent.count() as usize * GRANULE;
        let fits = |buffer: &mut IoBuffer| buffer.len() == bytes && extent.count() <= PIECE;
        let Some(buffer) = self.lent.take_if(fits) else {
            return false;
        };
        let volume = self.copy.volume();
        let request = self.copy.read_directly(token, extent, buffer);
        let event = Event::Command { volume, request };
        self.engine.post(self.now, event, self.out);
        true
    }

    fn persist(&mut self, token: Token, change: EntryChange) {
        self.copy.note_members(change.members);
        let name = self.copy.order(token, change.entry);
        let what = Manage::ChangeReplica {
            volume: self.copy.volume(),
            change: stored(&change),
        };
        let event = Event::Manage { id: name, what };
        self.engine.post(self.now, event, self.out);
    }

    fn digest(&mut self, token: Token, extent: Extent) {
        self.copy.prove(token, extent);
    }

    fn matches(&self, extent: Extent, content: &Content) -> Option<bool> {
        matches(self.engine, self.copy.volume(), extent, content)
    }

    fn unwritten(&self, leaf: Leaf, most: u32) -> u32 {
        unwritten(self.engine, self.copy, leaf, most)
    }

    fn learn(&mut self, known: Known) {
        let volume = self.copy.volume();
        self.engine.replicas_mut().learn(volume, committed(known));
    }

    fn uncertain(&self) -> ExtentSet {
        uncertain(self.engine, self.copy.volume())
    }

    fn plane(&self, position: Position) -> ExtentSet {
        plane(self.engine, self.copy.volume(), position)
    }

    fn mark(&mut self, position: Position, extent: Extent) {
        let (volume, position) = (self.copy.volume(), position.index() as u8);
        let granules = extent.granules();
        self.engine.replicas_mut().mark(volume, position, &granules);
    }

    fn clear(&mut self, position: Position, extent: Extent) {
        let (volume, position) = (self.copy.volume(), position.index() as u8);
        let granules = extent.granules();
        self.engine
            .replicas_mut()
            .clear(volume, position, &granules);
    }

    fn head(&mut self) -> Head {
        Head(self.engine.replica_comes_to(self.copy.volume()))
    }

    fn remember(&mut self, heads: Heads) {
        let marks = heads.marks().map(|mark| ReplicaMark {
            uuid: mark.replica.0,
            head: mark.head.0,
        });
        self.engine
            .replicas_mut()
            .remember(self.copy.volume(), marks);
    }

    fn is_drained(&self) -> bool {
        self.copy.is_drained()
    }

    fn free(&self) -> u64 {
        self.engine.free_granules(self.copy.volume())
    }
}

/// How many leaves of a copy from this one on hold nothing, of so many.
pub fn unwritten(engine: &Engine, copy: &Copy, leaf: Leaf, most: u32) -> u32 {
    let shape = copy.shape();
    let leaves = (leaf.0..leaf.0.saturating_add(most.into())).map(Leaf);
    let is_unwritten = |leaf: &Leaf| {
        let extent = shape.leaf(*leaf);
        extent.is_some_and(|extent| engine.is_unwritten(copy.volume(), extent.granules()))
    };
    leaves.take_while(is_unwritten).count() as u32
}

/// What may differ in a pool's volume from other copies.
pub fn uncertain(engine: &Engine, volume: u32) -> ExtentSet {
    extents(&engine.replicas().uncertain(volume))
}

/// Whether this is what a pool's volume should have there, by the map's checksums; none if one of them does not tell, and
/// no other says that it is not.
pub fn matches(engine: &Engine, volume: u32, extent: Extent, content: &Content) -> Option<bool> {
    let sums = engine.plain_checksums(volume, extent.granules())?;
    let found: Vec<u32> = match content {
        Content::Zeroes => vec![crc32c::crc32c(&[0; GRANULE]); sums.len()],
        Content::Data(bytes) => bytes.chunks(GRANULE).map(crc32c::crc32c).collect(),
    };
    if found.len() != sums.len() {
        return None;
    }
    let each = || found.iter().zip(&sums);
    let differs = each().any(|(is, sum)| sum.is_some_and(|sum| sum != *is));
    let is_known = sums.iter().all(Option::is_some);
    (differs || is_known).then_some(!differs)
}

/// What an absent position misses of a pool's volume.
pub fn plane(engine: &Engine, volume: u32, position: Position) -> ExtentSet {
    extents(&engine.replicas().plane(volume, position.index() as u8))
}

/// How many granules an absent position misses of a pool's volume.
pub fn missed(engine: &Engine, volume: u32, position: Position) -> u64 {
    let position = position.index() as u8;
    engine.replicas().missed(volume, position)
}

fn committed(known: Known) -> Committed {
    Committed {
        epoch: known.epoch.0,
        low: known.low.0,
    }
}

fn stored(change: &EntryChange) -> ReplicaChange {
    ReplicaChange {
        promise: ReplicaPromise {
            epoch: change.entry.promised.0,
            session: change.entry.session.0,
            absent: change.entry.absent.bits(),
        },
        marks_uncertain: change.marks_uncertain,
        marks: change.marks.iter().map(Extent::granules).collect(),
        own: match &change.own {
            OwnPlane::Until(known) => StoredPlane::Until(committed(*known)),
            OwnPlane::Keep(these) => {
                StoredPlane::Keep(these.iter().map(Extent::granules).collect())
            }
            OwnPlane::TakeUncertain => StoredPlane::TakeUncertain,
            OwnPlane::Forget => StoredPlane::Forget,
        },
    }
}

/// Ranges in any order, which may overlap.
fn extents(ranges: &[Range<u64>]) -> ExtentSet {
    let mut set = ExtentSet::new();
    for range in ranges {
        let mut first = range.start;
        while first < range.end {
            let count = u32::try_from(range.end - first).unwrap_or(u32::MAX);
            if let Some(extent) = Extent::new(first, count) {
                set.insert(extent);
            }
            first += u64::from(count);
        }
    }
    set
}
