//! What a node remembers of a pool's drives, so that exactly half of them may go on by themselves.
//!
//! After a power loss half of the drives may be all that is left. They hold everything that was acknowledged, unless the
//! others went on without them. The drives cannot tell; the node that served them can, if it wrote down which drives had
//! to hold a write before it was acknowledged. So the engine hands its node each [`Membership`], and acknowledges nothing
//! while what the node has stored would let in drives that lack it.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use uuid::Uuid;

use crate::error::PoolError;
use crate::format::Root;

/// The drives that held everything that was acknowledged, from a root on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The pool.
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

    /// Whether these drives have all there is, although they are but half of those that their newest root names: no others
    /// went on without them. An import that stored which drives it goes on with may have been cut off before its root.
    fn vouches_for(&self, here: &BTreeSet<Uuid>, root: &Root) -> bool {
        let theirs = Self::of(root);
        let is_last = self.is_like(&theirs) && self.generation <= theirs.generation;
        let was_cut_off = self.pool == root.pool && self.term == root.term + 1;
        is_last || (was_cut_off && self.drives.is_subset(here))
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
    /// What it has stored of a pool.
    fn stored(&self, pool: Uuid) -> Option<Membership>;

    /// Stores this durably in place of it.
    ///
    /// # Errors
    /// It cannot be: the import is refused.
    fn store(&self, membership: &Membership) -> Result<(), PoolError>;
}

/// The memory of the node that imports, if it has one.
pub(crate) type ImportMemory = Option<Rc<dyn NodeMemory>>;

/// Whether the node knows that these drives, half of those that their newest root names, have all there is.
pub(crate) fn half_is_enough(memory: &ImportMemory, here: &BTreeSet<Uuid>, root: &Root) -> bool {
    let stored = memory.as_ref().and_then(|memory| memory.stored(root.pool));
    stored.is_some_and(|stored| stored.vouches_for(here, root))
}

/// Has the node store which drives go on by this root, before it is written, if it would let in others without them: not
/// even reads may be answered from either half then. Returns what the node has stored.
pub(crate) fn store_before(
    memory: &ImportMemory,
    next: &Root,
) -> Result<Option<Membership>, PoolError> {
    let Some(memory) = memory else {
        return Ok(None);
    };
    let (stored, next) = (memory.stored(next.pool), Membership::of(next));
    match stored {
        Some(stored) if stored.lets_in_without(&next) => {
            memory.store(&next)?;
            Ok(Some(next))
        }
        stored => Ok(stored),
    }
}

/// What the node of an engine has stored, and what it is to store.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    stored: Option<Membership>,
    /// The last that it was handed.
    handed: Option<Membership>,
}

impl Remembered {
    pub(crate) fn new(stored: Option<Membership>) -> Self {
        Self {
            stored,
            handed: None,
        }
    }

    /// What the node is to store now that this root is durable, if it has not been handed that.
    pub(crate) fn next(&mut self, durable: &Root) -> Option<Membership> {
        let now = Membership::of(durable);
        if self
            .handed
            .as_ref()
            .is_some_and(|handed| handed.is_like(&now))
        {
            return None;
        }
        self.handed = Some(now.clone());
        Some(now)
    }

    /// The node has stored it durably.
    pub(crate) fn stored(&mut self, membership: Membership) {
        self.stored = Some(membership);
    }

    /// Whether the node would let in half of the drives that it knows, with none of those that serve by this root.
    pub(crate) fn forbids_answers(&self, durable: &Root) -> bool {
        let stored = self.stored.as_ref();
        stored.is_some_and(|stored| stored.lets_in_without(&Membership::of(durable)))
    }
}
