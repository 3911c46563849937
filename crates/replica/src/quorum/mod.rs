//! What is asked of the cluster's store: one key a volume, linearizable reads, and changes that hold only if nothing
//! has changed since. That the outcome may be unknown is an answer of its own.

mod memory;

pub use memory::{Asked, MemoryQuorum, Weather};

use ashlar_block::Moment;

use crate::ids::{Ask, Revision, VolumeId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What the key holds now: a linearizable read.
    Read,
    /// Change the key if its revision is still this one.
    Swap {
        /// The revision that was read.
        revision: Revision,
        /// What it is to hold.
        value: Vec<u8>,
    },
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Grows with each change.
    pub revision: Revision,
    /// What it holds.
    pub value: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The key holds this, or is not there: for a read, or a swap whose revision was not the key's.
    Holds(Option<Held>),
    /// The swap was made, and this is the key's revision now.
    Swapped(Revision),
    /// It is not known whether the swap was, or will be, made; or a read had no answer.
    Unknown,
}

/// A store of keys on several machines, of which a majority decides.
pub trait Quorum {
    /// Asks. Each question is answered once, in the end: with [`Reply::Unknown`] if nothing else is known.
    fn ask(&mut self, now: Moment, ask: Ask, volume: VolumeId, question: Question);

    /// Answers that have come, in any order.
    fn poll(&mut self, now: Moment, answers: &mut Vec<Answer>);

    /// When to poll next, if nothing wakes its user before.
    fn next_deadline(&self) -> Option<Moment>;
}

/// An answer, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub ask: Ask,
    pub reply: Reply,
}
