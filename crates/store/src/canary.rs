//! What can be broken on purpose, to show that the simulator notices. Only builds with the feature
//! `canary` can: without it [`Canary::sings`] is always false, and the compiler leaves it all out.

/// A defect, one for each promise that the engine's order of steps keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A batch counts as durable when its first copy is.
    AcknowledgeBeforeSecondCopy,
    /// A batch is published when it is sealed.
    PublishBeforeDurable,
    /// An import does not raise the term.
    NoTermBump,
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
    /// A slot is used again while its last reader still reads.
    FreeUnderReader,
    /// Places and log chunks are used again before the root that frees them is durable.
    ReuseBeforeRoot,
    /// A copy is mended without another look at what it should be.
    MendWithoutLook,
    /// A write past the ring does not wait for the slot's lock.
    BypassWithoutLock,
    /// Writes are acknowledged before a drive's exclusion is durable.
    AcknowledgeBeforeExclusion,
    /// Damage in the middle of a log is taken for its end.
    TruncateDamage,
    /// A rebuilt column is read before everything is on it.
    ReadWhileJoining,
}

impl Canary {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::AcknowledgeBeforeSecondCopy,
        Self::PublishBeforeDurable,
        Self::NoTermBump,
        Self::NoTailRewrite,
        Self::TailBeforeFlush,
        Self::TailBeforeMove,
        Self::MapPastRing,
        Self::MoveVoidsRecords,
        Self::FreeUnderReader,
        Self::ReuseBeforeRoot,
        Self::MendWithoutLook,
        Self::BypassWithoutLock,
        Self::AcknowledgeBeforeExclusion,
        Self::TruncateDamage,
        Self::ReadWhileJoining,
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
