//! Reads that are not answered yet.

use bytes::Bytes;

use crate::extent::Extent;
use crate::ids::{CommandId, FetchId, Nonce, Positions, ReplicaSequence, Token};

/// How far a read is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Waits for changes of its range to be committed.
    Blocked,
    /// The local store reads.
    Reading(Token),
    /// Nothing good was found here: another copy is asked.
    Heals(FetchId),
    /// The data is here. It may show changes that began meanwhile, so their commit is waited for; and grants are
    /// looked at now.
    Arrived(Arrived),
}

/// Data, and what it waits for.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) data: Bytes,
    pub(crate) behind: Vec<ReplicaSequence>,
}

/// Who is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Command(CommandId),
    /// The owner itself: it is the register's first read in the epoch.
    Own,
}

#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) whose: Whose,
    pub(crate) extent: Extent,
    /// The newest question for grants when the read came: a confirmed read waits for answers to a newer one.
    pub(crate) after: Nonce,
    pub(crate) stage: Stage,
    /// Another copy was asked already.
    pub(crate) was_healed: bool,
    /// Those that were asked and have it no more than this one.
    pub(crate) lost: Positions,
}
