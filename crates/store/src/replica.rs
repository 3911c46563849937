//! What a pool keeps of a volume that is one of several copies: words for what is durable here. What they are for
//! is another room's to know.

use std::ops::Range;

/// Copies of a volume, at most; each has a position below this.
pub const POSITIONS: usize = 3;

/// What makes a change a record of a replicated volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaTag {
    /// The owner's epoch, from 1 on.
    pub epoch: u32,
    /// The owner's number for it, from 1 on in each epoch.
    pub sequence: u64,
    /// The lowest number that was not committed when it was sent; 0 while the epoch's base is open.
    pub low: u64,
}

/// All records below this are committed: those of older epochs, and those with a lower number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Committed {
    pub epoch: u32,
    /// The lowest number that is not included. 0 says nothing of older epochs either.
    pub low: u64,
}

impl Committed {
    /// All records of an epoch, and of those before it.
    pub const fn all_of(epoch: u32) -> Self {
        let low = u64::MAX;
        Self { epoch, low }
    }

    /// Whether a record is included.
    pub const fn covers(self, epoch: u32, sequence: u64) -> bool {
        epoch < self.epoch || epoch == self.epoch && sequence < self.low
    }
}

/// How long the own plane counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Till {
    /// Until all below is known to be committed.
    Committed(Committed),
    /// Until the entry says that this copy is in sync, and all below is known to be committed.
    Added(Committed),
}

/// What a volume's copy has promised, and who is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaPromise {
    /// Owners of older epochs are refused.
    pub epoch: u32,
    /// The newest session begun here in that epoch.
    pub session: u32,
    /// Who is not in sync, this copy too: a bit a position.
    pub absent: u8,
}

/// Who a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaIdentity {
    /// Its place among the volume's copies, below [`POSITIONS`].
    pub position: u8,
    /// Its own identity.
    pub uuid: uuid::Uuid,
}

/// How large a replicated volume was said to be: by who decides that, and not by what the pool has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSize {
    /// Granules of the volume, at most those that it has in the pool.
    pub granules: u64,
    /// Which of them is the register.
    pub register: u64,
}

/// What is remembered of another copy's pool: how many changes it had made durable, at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaMark {
    /// Which copy.
    pub uuid: [u8; 16],
    /// How many; 0 says nothing.
    pub head: u64,
}

/// What becomes of the own plane when the promise changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnPlane {
    /// It stays; and if this copy was absent and is not any more, only until all below is committed.
    Until(Committed),
    /// It becomes all that is uncertain here, until another change says how long; the records may go.
    TakeUncertain,
    /// It stays, and these granules with it, whatever of the promised epoch is committed: until a change says `Keep`
    /// again, or a later epoch is said to be committed.
    Keep(Vec<Range<u64>>),
    /// It is emptied, and the records may go.
    Forget,
}

/// A change of what is promised: one durable step with the marks that go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaChange {
    /// What is promised afterwards.
    pub promise: ReplicaPromise,
    /// Whether what is uncertain here when the change is published is marked for positions that are newly absent.
    pub marks_uncertain: bool,
    /// Granules that are marked for them besides.
    pub marks: Vec<Range<u64>>,
    /// What becomes of the own plane.
    pub own: OwnPlane,
}
