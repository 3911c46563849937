//! A device that misbehaves on demand, for tests and simulation: `rule` says how, `control` holds
//! the rules of a running device and its random numbers, `queue` carries them out.

mod control;
mod queue;
mod rule;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ashlar_block::{BlockDevice, Description, Geometry, IoError};
use ashlar_reactor::{Handle, Opener};

pub use control::{FaultControl, FaultPlan, RuleId};
pub use queue::FaultyDevice;
pub use rule::{Action, Affects, Rule, Trigger};

/// A device under the control of a [`FaultControl`].
pub struct Faulty {
    child: Arc<dyn Opener>,
    control: FaultControl,
}

impl Faulty {
    /// `child`, misbehaving as `control` says.
    pub fn new(child: Arc<dyn Opener>, control: FaultControl) -> Arc<Self> {
        Arc::new(Self { child, control })
    }
}

impl Opener for Faulty {
    fn geometry(&self) -> Geometry {
        self.child.geometry()
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        let child = self.child.open(reactor)?;
        Ok(Box::new(FaultyDevice::new(child, self.control.clone())))
    }

    fn describe(&self) -> Description {
        Description::over("faulty", vec![self.child.describe()])
    }

    fn names(&self) -> Vec<String> {
        self.child.names()
    }
}
