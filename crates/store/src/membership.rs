//! What a node remembers of a pool's drives, so that exactly half of them may go on by themselves.
//!
//! After a power loss half of the drives may be all that is left. They hold everything that was acknowledged, unless the
//! others went on without them. The drives cannot tell; the node that served them can, if it wrote down which drives had
//! to hold a write before it was acknowledged. So the engine hands its node each [`Membership`], and writes no root,
//! and so acknowledges nothing, while what the node may have stored would let in drives that lack it.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use uuid::Uuid;

use crate::error::PoolError;
use crate::format::Root;

/// The drives that held everything that was acknowledged, from a root on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub pool: Uuid,
    /// The import that it is of, counted: another one elsewhere makes it void.
    pub term: u64,
    /// The first root that named these drives.
    pub generation: u64,
    /// The drives in service.
    pub drives: BTreeSet<Uuid>,
}

impl Membership {
    pub(crate) fn of(root: &Root) -> Self {
        let members = root.members.iter();
        let serving = members.filter(|member| member.state.in_service());
        Self {
            pool: root.pool,
            term: root.term,
            generation: root.generation,
            drives: serving.map(|member| member.drive).collect(),
        }
    }

    /// Whether no other drives went on without these, of which the newest root is this one's.
    fn vouches_for(&self, here: &BTreeSet<Uuid>, newest: &Self) -> bool {
        let is_last = self.is_like(newest) && self.generation <= newest.generation;
        // The engine was cut off before its root said so.
        let was_to_go_on = (self.pool, self.term) == (newest.pool, newest.term);
        is_last || (was_to_go_on && self.drives.is_subset(here))
    }

    /// Whether these went on, in a later import than any that those here know of, and too few of them are here.
    fn forbids(&self, here: &BTreeSet<Uuid>, newest: &Self) -> bool {
        let together = self.drives.intersection(here).count();
        let is_later = self.pool == newest.pool && self.term > newest.term;
        is_later && together * 2 <= self.drives.len() && together < self.drives.len()
    }

    /// Whether both are of the same drives, in the same import.
    fn is_like(&self, other: &Self) -> bool {
        (self.pool, self.term, &self.drives) == (other.pool, other.term, &other.drives)
    }

    /// Whether half of these drives are none of those that serve now. An import would let that half in.
    fn lets_in_without(&self, serving: &Self) -> bool {
        let gone = self.drives.difference(&serving.drives).count();
        gone > 0 && gone * 2 >= self.drives.len()
    }
}

/// What a node remembers of pools, during an import.
pub trait NodeMemory: fmt::Debug {
    /// What it has stored of a pool: several while it is storing, for any of them may be what counts after a crash.
    fn stored(&self, pool: Uuid) -> Vec<Membership>;

    /// Stores this durably in place of it.
    ///
    /// # Errors
    /// It cannot be, or not soon.
    fn store(&self, membership: &Membership) -> Result<(), PoolError>;

    /// Whether an order has removed this drive from the pool, or replaced it, though the pool's root may only say that
    /// it is out of service: one that is, stays out until another order brings it back.
    fn has_removed(&self, _pool: Uuid, _drive: Uuid) -> bool {
        false
    }
}

/// The memory of the node that imports, if it has one.
pub(crate) type ImportMemory = Option<Rc<dyn NodeMemory>>;

/// What a node's memory says of drives that are to be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Half of those that the newest root names have all there is.
    HalfIsEnough,
    /// Nothing: more than half are needed.
    Silent,
    /// Others went on without these.
    Forbidden,
}

/// What the node says of these drives, with this newest root.
pub(crate) fn word_on(memory: &ImportMemory, here: &BTreeSet<Uuid>, root: &Root) -> Word {
    let stored = memory.as_ref().map(|memory| memory.stored(root.pool));
    let stored = stored.unwrap_or_default();
    let newest = Membership::of(root);
    if stored.iter().any(|one| one.forbids(here, &newest)) {
        return Word::Forbidden;
    }
    let vouched = !stored.is_empty() && stored.iter().all(|one| one.vouches_for(here, &newest));
    match vouched {
        true => Word::HalfIsEnough,
        false => Word::Silent,
    }
}

/// Has the node store which drives go on by this root, before it is written. Returns what the node has stored, or may have.
///
/// # Errors
/// It cannot be stored, and the node would let in others without these: not even reads may be answered then.
pub(crate) fn store_before(
    memory: &ImportMemory,
    next: &Root,
) -> Result<Option<Vec<Membership>>, PoolError> {
    let Some(memory) = memory else {
        return Ok(None);
    };
    let (mut stored, next) = (memory.stored(next.pool), Membership::of(next));
    let is_needed = stored.iter().any(|one| one.lets_in_without(&next));
    match memory.store(&next) {
        Ok(()) => Ok(Some(vec![next])),
        Err(error) if is_needed => Err(error),
        Err(_) => {
            // It may still be.
            stored.push(next);
            Ok(Some(stored))
        }
    }
}

/// What the node of an engine has stored, and what it is to store.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// What may be stored: the first is, the others are on their way, in this order. `None`: no node remembers anything.
    known: Option<Vec<Membership>>,
}

impl Remembered {
    pub(crate) fn new(known: Option<Vec<Membership>>) -> Self {
        Self { known }
    }

    /// What the node is to store so that it knows these drives, if that is not what it was handed last.
    pub(crate) fn hand(&mut self, drives: Membership) -> Option<Membership> {
        let known = self.known.as_mut()?;
        if known.last().is_some_and(|last| last.is_like(&drives)) {
            return None;
        }
        known.push(drives.clone());
        Some(drives)
    }

    /// The node has stored it durably, and so nothing that it was handed before.
    pub(crate) fn stored(&mut self, membership: Membership) {
        if let Some(known) = &mut self.known {
            let place = known.iter().position(|known| *known == membership);
            known.drain(..place.unwrap_or(0));
        }
    }

    /// Whether the node may know half of a pool's drives that it would let in without any of these.
    pub(crate) fn lets_in_without(&self, serving: &Membership) -> bool {
        let mut known = self.known.iter().flatten();
        known.any(|known| known.lets_in_without(serving))
    }
}
