//! What is asked of the cluster's store: one key a volume, linearizable reads, and changes that hold only if nothing
//! has changed since. That the outcome may be unknown is an answer of its own.

mod memory;

pub use memory::{Asked, MemoryQuorum, Weather};

use crate::ids::{Ask, Revision};

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

/// An answer, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub ask: Ask,
    pub reply: Reply,
}
