use std::time::Duration;

use ashlar_block::{BlockRange, ErrorKind, Lba, Operation};

/// Which operations a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affects {
    Reads,
    /// Writes and zeroes.
    Writes,
    Flushes,
    /// All of these, and deallocates.
    All,
}

impl Affects {
    pub(super) fn includes(self, op: Operation) -> bool {
        match self {
            Self::Reads => op == Operation::Read,
            Self::Writes => matches!(op, Operation::Write(_) | Operation::WriteZeroes { .. }),
            Self::Flushes => op == Operation::Flush,
            Self::All => true,
        }
    }
}

/// When a rule strikes, among the operations it looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// Every time.
    Always,
    /// At random, with this probability.
    Chance(f64),
    /// At the nth from when the rule was added (1 is the next), and at no other.
    Nth(u64),
    /// At the nth and all that come after it.
    From(u64),
}

/// What happens instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// It is not done, and fails.
    Error(ErrorKind),
    /// It is done, and completes so much later.
    Delay(Duration),
    /// It is held back, undone, until the controls release it.
    Stall,
    /// It is never answered, and nothing is done.
    Hang,
    /// A write stores only its first so many blocks; it succeeds all the same if `silent`, and is a
    /// media error otherwise.
    Torn {
        /// Blocks that are stored.
        blocks: u32,
        /// The caller is not told.
        silent: bool,
    },
    /// A write or flush succeeds without being done.
    Drop,
    /// A write lands at this address (moved down where it would leave the device) and succeeds.
    Misdirect(Lba),
    /// A read has one bit wrong, where the seed says.
    FlipBit,
}

impl Action {
    /// Whether the action makes sense for the operation; a rule passes over others.
    pub(super) fn applies_to(self, op: Operation) -> bool {
        match self {
            Self::Error(_) | Self::Delay(_) | Self::Stall | Self::Hang => true,
            Self::Torn { .. } | Self::Misdirect(_) => matches!(op, Operation::Write(_)),
            Self::Drop => op != Operation::Read,
            Self::FlipBit => op == Operation::Read,
        }
    }
}

/// One way in which a device misbehaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// The operations it looks at.
    pub affects: Affects,
    /// Only those that touch this range; `None` looks everywhere. Flushes touch every range.
    pub within: Option<BlockRange>,
    /// When it strikes.
    pub trigger: Trigger,
    /// What happens then.
    pub action: Action,
}

impl Rule {
    /// A rule that strikes every such operation.
    pub fn always(affects: Affects, action: Action) -> Self {
        Self {
            affects,
            within: None,
            trigger: Trigger::Always,
            action,
        }
    }

    /// The same with another trigger.
    pub fn when(self, trigger: Trigger) -> Self {
        Self { trigger, ..self }
    }

    /// The same for operations that touch `range` only.
    pub fn within(self, range: BlockRange) -> Self {
        Self {
            within: Some(range),
            ..self
        }
    }

    pub(super) fn looks_at(&self, op: Operation, range: BlockRange) -> bool {
        let near = |within: BlockRange| op == Operation::Flush || within.overlaps(range);
        self.affects.includes(op) && self.action.applies_to(op) && self.within.is_none_or(near)
    }
}
