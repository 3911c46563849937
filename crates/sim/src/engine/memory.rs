//! What a node has on a disk of its own: which drives serve. It outlives the node's power.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use ashlar_store::{Membership, NodeMemory, PoolError};
use uuid::Uuid;

use super::rig::Rig;

pub(crate) struct Memory {
    rig: Rc<Rig>,
    stored: RefCell<Option<Membership>>,
}

impl Memory {
    pub(crate) fn new(rig: &Rc<Rig>) -> Self {
        Self {
            rig: rig.clone(),
            stored: RefCell::default(),
        }
    }

    /// It is stored.
    pub(crate) fn keep(&self, membership: Membership) {
        self.rig
            .note(|| format!("the node remembers {membership:?}"));
        self.stored.replace(Some(membership));
    }

    /// Whether it knows of so many drives since the import of this term.
    pub(crate) fn knows(&self, drives: usize, term: u64) -> bool {
        let stored = self.stored.borrow();
        stored
            .as_ref()
            .is_some_and(|stored| stored.drives.len() == drives && stored.term == term)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stored.fmt(f)
    }
}

impl NodeMemory for Memory {
    fn stored(&self, _: Uuid) -> Vec<Membership> {
        self.stored.borrow().iter().cloned().collect()
    }

    fn store(&self, membership: &Membership) -> Result<(), PoolError> {
        if self.rig.is_off() {
            return Err(PoolError::Refused("the power is off".into()));
        }
        self.keep(membership.clone());
        Ok(())
    }
}
