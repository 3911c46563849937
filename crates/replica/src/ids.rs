//! Identifiers that must not be mixed, each a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! identifiers { ($($(#[$doc:meta])* $name:ident($of:ty), $shown:literal;)*) => { $(
    $(#[$doc])*
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
    )]
    #[serde(transparent)]
    pub struct $name(pub $of);

    impl fmt::Display for $name {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {}", $shown, self.0)
        }
    }
)* } }

identifiers! {
    /// A term of one owner; the store hands each out once.
    Epoch(u32), "epoch";
    /// An owner's number for a record, from 1 in each epoch.
    ReplicaSequence(u64), "record";
    /// The lowest sequence that is not known to be committed; 0 while the epoch's base is not committed.
    Low(u64), "low";
    /// A node of the cluster.
    NodeId(u32), "node";
    /// A life of a node's process.
    Incarnation(u64), "incarnation";
    /// The store's number for a change of a key; 0: the key is not there.
    Revision(u64), "revision";
    /// An owner's number for a session with a member, never used twice in an epoch.
    SessionId(u32), "session";
    /// A part of a volume with its own line of operations, on a core of its own.
    ShardId(u16), "shard";
    /// A replicated volume in the cluster.
    VolumeId(u64), "volume";
    /// A unit of the map: 512 granules, or what [`Shape`](crate::Shape) says.
    Leaf(u64), "leaf";
    /// An owner's number for a question for a grant.
    Nonce(u64), "nonce";
    /// A host's command, named by what handed it in.
    CommandId(u64), "command";
    /// An operation of the local store, named by the replica.
    Token(u64), "token";
    /// How many changes a pool has made durable; it never has fewer, unless it is an older image of itself. 0 says nothing.
    Head(u64), "change";
    /// A question to the quorum, named by the replica.
    Ask(u64), "question";
    /// A command that a member has sent to its owner, named by the member; never used twice in a process's life.
    ForwardId(u64), "forward";
    /// An owner's number for what it wants to have from a member.
    FetchId(u32), "fetch";
    /// A copy, or proof, of resync in a session.
    CopyId(u32), "copy";
}

impl Epoch {
    /// The one after; `None` when all are used up.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }
}

impl Low {
    /// The base of the epoch is not committed.
    pub const BASE_OPEN: Self = Self(0);
    /// Nothing but the base is known to be committed.
    pub const BASE: Self = Self(1);
}

/// Identity of one copy of a volume.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ReplicaUuid(pub [u8; 16]);

impl ReplicaUuid {
    /// A copy that was never in sync: nothing it holds counts.
    pub const NEW: Self = Self([0; 16]);
}

/// Everything below is committed: all records of older epochs, and those of `epoch` below `low`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Known {
    pub epoch: Epoch,
    /// The lowest sequence that is not included.
    pub low: Low,
}

impl Known {
    /// Whether a record is included.
    pub fn covers(self, epoch: Epoch, sequence: ReplicaSequence) -> bool {
        (epoch.0, sequence.0) < (self.epoch.0, self.low.0)
    }
}

/// Members of a volume, at most.
pub const MAX_MEMBERS: usize = 3;

/// A member's place in the volume's list, 0 to 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u8);

impl Position {
    /// The place `index`; `None` beyond [`MAX_MEMBERS`].
    pub const fn new(index: usize) -> Option<Self> {
        if index < MAX_MEMBERS {
            Some(Self(index as u8))
        } else {
            None
        }
    }

    /// All places.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_MEMBERS as u8).map(Self)
    }

    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// A set of positions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Positions(u8);

impl Positions {
    pub const NONE: Self = Self(0);

    /// The first `count` places.
    pub fn first(count: usize) -> Self {
        Position::all().take(count).collect()
    }

    /// As bits, the lowest for position 0.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From bits; `None` if a bit beyond [`MAX_MEMBERS`] is set.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits >> MAX_MEMBERS == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Whether `position` is in it.
    pub const fn has(self, position: Position) -> bool {
        self.0 >> position.0 & 1 == 1
    }

    /// With `position`.
    #[must_use]
    pub const fn with(self, position: Position) -> Self {
        Self(self.0 | 1 << position.0)
    }

    /// Without `position`.
    #[must_use]
    pub const fn without(self, position: Position) -> Self {
        Self(self.0 & !(1 << position.0))
    }

    /// All of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is here and not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of these are in `other`.
    pub const fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn iter(self) -> impl Iterator<Item = Position> {
        Position::all().filter(move |&position| self.has(position))
    }
}

impl FromIterator<Position> for Positions {
    fn from_iter<I: IntoIterator<Item = Position>>(from: I) -> Self {
        from.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|p| p.0)).finish()
    }
}
