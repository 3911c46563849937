//! What a replica asks of the store that holds its copy: the engine, or the simulator's.
//!
//! Operations are submitted with a token, and end as an [`Event`](crate::Event) with that token. They may take effect
//! in any order, overlapping ones too; a crash may leave those on their way done in part, granule by granule.
//!
//! What a store keeps, durably, besides content:
//!
//! * the **entry**: which epoch was promised, who is absent (this copy, too);
//! * for each **record** applied: epoch, sequence and `low`, until its node knows that it is committed;
//! * a **plane** (a bit a granule) for each absent position: what that copy misses. *Everything applied, copies too,
//!   marks the planes of absent positions in the same durable step*;
//! * the **own plane**: what is uncertain here apart from the records. While the entry names this copy itself
//!   absent, records mark it, and copies do not.

use ashlar_block::IoError;

use crate::extent::{Extent, ExtentSet};
use crate::heads::Heads;
use crate::ids::{
    Epoch, Head, Known, Leaf, Low, Position, Positions, ReplicaSequence, SessionId, Token,
};
use crate::key::Size;
use crate::message::Content;

/// What makes a change a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The owner's number for it.
    pub sequence: ReplicaSequence,
    /// The lowest sequence not committed when it was sent.
    pub low: Low,
}

/// What the volume's entry says, as far as replicas change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Owners of older epochs are refused.
    pub promised: Epoch,
    /// The newest session begun here in that epoch: an older JOIN, late, says who *was* absent.
    pub session: SessionId,
    /// Who is not in sync, this copy too.
    pub absent: Positions,
}

/// What becomes of the own plane when an entry changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnPlane {
    /// It stays; and if this copy was absent and is not any more, only until all below is known to be committed.
    Until(Known),
    /// It becomes all that is uncertain here, until another change says how long; the records may go.
    TakeUncertain,
    /// It stays, and this with it, whatever of the promised epoch is known to be committed: until a change says `Keep`
    /// again, or the base of a later epoch is committed.
    Keep(ExtentSet),
    /// It is emptied, and the records may go. No rule of the protocol asks for this; a canary does.
    Forget,
}

/// A change of the entry: one durable step with the marks that go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChange {
    /// The entry afterwards.
    pub entry: Entry,
    /// Whether what is uncertain here *when the change is published* is marked for positions that are newly absent.
    pub marks_uncertain: bool,
    /// What is marked for them besides.
    pub marks: ExtentSet,
    /// What becomes of the own plane.
    pub own: OwnPlane,
    /// Who has copies by the owner's account. Not durable.
    pub members: Positions,
}

/// What an import found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub entry: Entry,
    /// The copy is an older image than what the cluster has seen of it: its content counts for nothing.
    pub is_old_image: bool,
    /// The size that the volume's key said, as it was heard last: a key that says less is from before that.
    pub size: Option<Size>,
    /// How far the copy's pool had come when it was imported, or when it was last asked since: what the pool writes by itself
    /// does not count, for an older image does that, too.
    pub head: Head,
    /// What was remembered of other copies.
    pub heads: Heads,
}

/// The store of one copy of one shard, and of its volume's entry.
pub trait Local {
    /// Writes content, durably. With a tag it is a record: it is kept (rule `hold`) until [`learn`](Self::learn), or a
    /// record's `low`, covers it, or is moved to the own plane. Ends as [`Event::Applied`](crate::Event::Applied).
    fn apply(&mut self, token: Token, extent: Extent, content: Content, tag: Option<Tag>);

    /// Reads what is there, durable or not. Ends as [`Event::Read`](crate::Event::Read).
    fn read(&mut self, token: Token, extent: Extent);

    /// The same, for [`Replica::begin_direct`](crate::Replica::begin_direct): as quickly as the store can. Whether it does
    /// so now; if not, nothing follows.
    fn read_directly(&mut self, token: Token, extent: Extent) -> bool {
        self.read(token, extent);
        true
    }

    /// Whether this is what was written here last, by the checksums that are kept of it, so that what cannot be read can be
    /// put right; none if they do not tell.
    fn matches(&self, extent: Extent, content: &Content) -> Option<bool>;

    /// Changes the entry. Ends as [`Event::Persisted`](crate::Event::Persisted); a store that cannot say so stops.
    fn persist(&mut self, token: Token, change: EntryChange);

    /// Digest of what the volume has of a run of leaves: of the plain checksums of its granules as they are now. Ends as
    /// [`Event::Digested`](crate::Event::Digested).
    fn digest(&mut self, token: Token, extent: Extent);

    /// How many leaves from this one on are known to hold nothing, of so many: what can be said at next to no cost.
    fn unwritten(&self, leaf: Leaf, most: u32) -> u32;

    /// All below is committed: its records may go. Volatile; an import finds what durable records say.
    fn learn(&mut self, known: Known);

    /// What may differ here from other copies: records not known to be committed, and the own plane.
    fn uncertain(&self) -> ExtentSet;

    /// What an absent position misses.
    fn plane(&self, position: Position) -> ExtentSet;

    /// Sets bits in an absent position's plane, durable before the next [`persist`](Self::persist) is.
    fn mark(&mut self, position: Position, extent: Extent);

    /// Clears bits in an absent position's plane, durable at some time.
    fn clear(&mut self, position: Position, extent: Extent);

    /// How far the copy's pool has come, durably. What an import finds after this is no less.
    fn head(&mut self) -> Head;

    /// What is remembered of other copies from now on: durable soon, and with the next [`persist`](Self::persist) that
    /// begins after this.
    fn remember(&mut self, heads: Heads);

    /// Whether no operation is on its way that changes content or entry, on any shard of the volume.
    fn is_drained(&self) -> bool;

    /// Granules that may still be written.
    fn free(&self) -> u64;
}

/// How an operation of the store ended.
pub type Applied = Result<(), IoError>;
