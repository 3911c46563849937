//! What can be broken on purpose, to show that the simulator notices. Only builds with the feature
//! `canary` can: without it [`Cage::sings`] is always false, and the compiler leaves it all out.
//!
//! Not here, because nothing would come of them where the simulator looks:
//!
//! * A slot that is used again while its last reader still reads, a column that is read before it is
//!   filled, a copy that is mended without another look: checksums a granule make them harmless as long as
//!   another copy is good (tried, and unnoticed by the simulator). The one reader whom nothing
//!   tells better is destage, of a record of the ring: the engine would stop. In the simulator what an
//!   engine has written is still in its memory, so it would take a lap of the ring during one read, soon
//!   after an import.
//! * A term that does not grow: with one append in flight a log, its numbers and chain refuse what an
//!   old term left, unless an import cannot read a copy that the next one can: it may hold a batch that
//!   the others lacked, with the number of one that was written since. The simulator's drives cannot
//!   be read until they are written, or are left out. Terms are for that, and for the replication to come.
//! * Damage that is taken for a log's end needs every copy damaged, which no layout survives: a test of its
//!   own has it.

/// A defect, one for each promise that the engine's order of steps keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A batch counts as durable when its first copy is.
    AcknowledgeBeforeSecondCopy,
    /// A batch is published when it is sealed.
    PublishBeforeDurable,
    /// An import does not write what one copy of a log holds to the others.
    NoTailRewrite,
    /// Records leave the ring when their homes are written, not flushed.
    TailBeforeFlush,
    /// Records leave the ring before the map's change is durable.
    TailBeforeMove,
    /// The map log's tail does not wait for older records of the ring.
    MapPastRing,
    /// What was on its way home when the node crashed counts as home.
    MoveVoidsRecords,
    /// Places and log chunks are used again before the root that frees them is durable.
    ReuseBeforeRoot,
    /// A write past the ring does not wait for the slot's lock.
    BypassWithoutLock,
    /// The map says that a slot with parity has moved before its columns are flushed.
    PlaceBeforeColumns,
    /// Writes are acknowledged before a drive's exclusion is durable.
    AcknowledgeBeforeExclusion,
    /// Writes are acknowledged before the node has stored which drives are left.
    AcknowledgeBeforeRemembered,
    /// Places of slots that one write has written past the ring are in batches of their own.
    SplitUnit,
    /// Extents of an empty segment are used again before its free entry is durable, which it never is.
    ReleaseBeforeDurable,
    /// A volume is made under the number of one that is being deleted, whose slots are still there.
    NumberInUse,
    /// Extents are discarded that were free, and may be in use again.
    DiscardInUse,
    /// What the map log says again does not wait for changes that are on their way.
    RelogTooEarly,
    /// Of a leaf's changes only some are said again, and the log lets go of all.
    RelogLess,
    /// What has changed under a read is read where it is now, and the rest stays what it was.
    MixVersions,
    /// A bit of each remembered batch of the ring flips, and what is taken from there is not checked.
    TrustMemory,
    /// A slot that moves between a volume's homes is not locked: a newer write may come between.
    MoveWithoutLock,
    /// The home that a slot moves from is free before the map's change is durable.
    MoveFreesEarly,
    /// Such bits flip, and nothing is broken: nothing may come of it.
    FlipMemory,
    /// A pool can number a few dozen segments only: it is full soon, and says so.
    FewSegments,
    /// A pool has numbers for a few drives only: those of drives that are out are used again.
    FewMembers,
    /// An answer that comes after its request was given up is taken for the request that has its tag now.
    TagWithoutGeneration,
    /// A write that a drive has not answered in its time counts as done.
    TimeoutCountsAsDone,
    /// A write that a drive has no space or memory for counts as done.
    NoSpaceCountsAsDone,
    /// The logs let go of a replica's records that are not known to be committed, and are in no plane.
    TrimUncertain,
    /// What is uncertain, or missed, is written with the next entry, not before the one that relies on it.
    MarksAfterEntry,
    /// An import does not mark what absent copies miss of the logs' records.
    ReplayWithoutMarks,
    /// An import looks at no record that was published when the entry was written.
    SavedTooFar,
    /// A leaf's digest knows nothing of what is in the ring.
    DigestWithoutRing,
    /// Blocks whose leaf of the map is lost read as zeroes.
    LostReadsAsZeroes,
    /// A drive that was left out and is here again counts before what is newer was written to it.
    ReadmitWithoutWalk,
    /// It gets what is newer than its return, not than its loss.
    ReadmitSinceNow,
    /// It counts before what was written to it is flushed.
    ReadmitBeforeFlush,
    /// Its strips with parity are taken for what they should be.
    ReadmitStaleParity,
}

impl Canary {
    /// Those of replicated volumes: worlds of clusters are to notice them.
    pub const REPLICATED: [Self; 5] = [
        Self::TrimUncertain,
        Self::MarksAfterEntry,
        Self::ReplayWithoutMarks,
        Self::SavedTooFar,
        Self::DigestWithoutRing,
    ];

    /// All that are to be noticed in worlds of one pool.
    pub const ALL: [Self; 30] = [
        Self::AcknowledgeBeforeSecondCopy,
        Self::PublishBeforeDurable,
        Self::NoTailRewrite,
        Self::TailBeforeFlush,
        Self::TailBeforeMove,
        Self::MapPastRing,
        Self::MoveVoidsRecords,
        Self::ReuseBeforeRoot,
        Self::BypassWithoutLock,
        Self::PlaceBeforeColumns,
        Self::AcknowledgeBeforeExclusion,
        Self::AcknowledgeBeforeRemembered,
        Self::SplitUnit,
        Self::ReleaseBeforeDurable,
        Self::NumberInUse,
        Self::DiscardInUse,
        Self::RelogTooEarly,
        Self::RelogLess,
        Self::MixVersions,
        Self::TrustMemory,
        Self::TagWithoutGeneration,
        Self::TimeoutCountsAsDone,
        Self::NoSpaceCountsAsDone,
        Self::MoveWithoutLock,
        Self::MoveFreesEarly,
        Self::LostReadsAsZeroes,
        Self::ReadmitWithoutWalk,
        Self::ReadmitSinceNow,
        Self::ReadmitBeforeFlush,
        Self::ReadmitStaleParity,
    ];
}

/// The canary of an engine, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cage(Option<Canary>);

impl Cage {
    /// A cage with this canary in it; empty in builds without the feature.
    pub const fn new(canary: Option<Canary>) -> Self {
        Self(canary)
    }

    /// Whether this defect is wanted.
    pub(crate) fn sings(self, canary: Canary) -> bool {
        cfg!(feature = "canary") && self.0 == Some(canary)
    }
}
