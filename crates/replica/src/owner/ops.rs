//! Changes that are not committed yet.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_block::Moment;

use super::line::Place;
use crate::extent::{Extent, ExtentSet};
use crate::ids::{CommandId, Low, Position, Positions, ReplicaSequence};
use crate::message::{Content, RecordKind};

/// What acknowledgements count for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Those of the record with this sequence.
    As(ReplicaSequence),
    /// None: the write has failed here, and the content to restore is being read.
    Restoring,
}

/// A change that is not committed.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) kind: RecordKind,
    pub(crate) recorded: Recorded,
    /// The host's command; a base has none.
    pub(crate) command: Option<CommandId>,
    pub(crate) extent: Extent,
    pub(crate) content: Content,
    /// Its range in the line; only a canary goes without.
    pub(crate) place: Place,
    /// Whether it is durable here.
    pub(crate) is_local: bool,
    pub(crate) acks: Positions,
    pub(crate) since: Moment,
}

impl Op {
    /// Whether it is durable here and at all of these.
    pub(crate) fn is_committed(&self, needed: Positions) -> bool {
        self.is_local && needed.within(self.acks)
    }
}

/// All of them, by the sequence that counts for the lowest uncommitted.
#[derive(Debug)]
pub(crate) struct Ops {
    open: BTreeMap<ReplicaSequence, Op>,
    /// Those of them that began as a base.
    bases: BTreeSet<ReplicaSequence>,
    next: ReplicaSequence,
    /// What all of them carry.
    granules: u64,
}

impl Ops {
    pub(crate) const fn new(first: ReplicaSequence) -> Self {
        Self {
            open: BTreeMap::new(),
            bases: BTreeSet::new(),
            next: first,
            granules: 0,
        }
    }

    /// A sequence that was not used before.
    pub(crate) fn number(&mut self) -> ReplicaSequence {
        let sequence = self.next;
        self.next = ReplicaSequence(sequence.0 + 1);
        sequence
    }

    pub(crate) fn insert(&mut self, sequence: ReplicaSequence, op: Op) {
        if op.kind == RecordKind::Base {
            self.bases.insert(sequence);
        }
        self.granules += u64::from(op.extent.count());
        let old = self.open.insert(sequence, op);
        assert!(old.is_none(), "{sequence} twice");
    }

    pub(crate) fn get_mut(&mut self, sequence: ReplicaSequence) -> Option<&mut Op> {
        self.open.get_mut(&sequence)
    }

    pub(crate) fn get(&self, sequence: ReplicaSequence) -> Option<&Op> {
        self.open.get(&sequence)
    }

    pub(crate) fn remove(&mut self, sequence: ReplicaSequence) -> Option<Op> {
        self.bases.remove(&sequence);
        let op = self.open.remove(&sequence)?;
        self.granules -= u64::from(op.extent.count());
        Some(op)
    }

    /// Granules of all of them.
    pub(crate) const fn granules(&self) -> u64 {
        self.granules
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ReplicaSequence, &Op)> {
        self.open.iter().map(|(&sequence, op)| (sequence, op))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Op> {
        self.open.values_mut()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether a base is among them.
    pub(crate) fn has_base(&self) -> bool {
        let is_base = |op: &Op| op.kind == RecordKind::Base;
        self.bases
            .iter()
            .any(|&sequence| self.get(sequence).is_some_and(is_base))
    }

    /// The lowest sequence that is not committed, once there is a base.
    pub(crate) fn low(&self) -> Low {
        let lowest = self.open.keys().next().copied().unwrap_or(self.next);
        Low(lowest.0)
    }

    /// The operation that a record's acknowledgement is for.
    pub(crate) fn recorded_as(&mut self, record: ReplicaSequence) -> Option<&mut Op> {
        let is_it = |op: &Op| op.recorded == Recorded::As(record);
        // A record's number is its operation's, but for what is restored.
        let sequence = match self.get(record).is_some_and(is_it) {
            true => record,
            false => *self.open.iter().find(|(_, op)| is_it(op))?.0,
        };
        self.get_mut(sequence)
    }

    /// Whether a record belongs to one of them.
    pub(crate) fn has_record(&self, record: ReplicaSequence) -> bool {
        let is_it = |op: &Op| op.recorded == Recorded::As(record);
        self.open.values().any(is_it)
    }

    /// One that is durable here and at all of these.
    pub(crate) fn committed(&self, needed: Positions) -> Option<ReplicaSequence> {
        let found = self.open.iter().find(|(_, op)| op.is_committed(needed));
        found.map(|(&sequence, _)| sequence)
    }

    /// Since when the oldest waits that a member has not acknowledged.
    pub(crate) fn owed_since(&self, position: Position) -> Option<Moment> {
        let owed = self.open.values().filter(|op| {
            let is_sent = op.recorded != Recorded::Restoring;
            is_sent && !op.acks.has(position)
        });
        owed.map(|op| op.since).min()
    }

    /// What all of them cover.
    pub(crate) fn extents(&self) -> ExtentSet {
        self.open.values().map(|op| op.extent).collect()
    }
}
