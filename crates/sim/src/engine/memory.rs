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

    /// How many drives serve, as far as it knows.
    pub(crate) fn drives(&self) -> Option<usize> {
        Some(self.stored.borrow().as_ref()?.drives.len())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stored.fmt(f)
    }
}

impl NodeMemory for Memory {
    fn stored(&self, _: Uuid) -> Option<Membership> {
        self.stored.borrow().clone()
    }

    fn store(&self, membership: &Membership) -> Result<(), PoolError> {
        if self.rig.is_off() {
            return Err(PoolError::Refused("the power is off".into()));
        }
        self.keep(membership.clone());
        Ok(())
    }
}
