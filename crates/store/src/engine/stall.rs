//! Commands wait for what is under way: an I/O, a moment, another turn. When nothing is, no event will ever
//! come, and what still waits would wait for ever.

use super::invariant::invariant;
use super::{Engine, Op};

impl Engine {
    /// Whether commands wait although no I/O is on its way and no other turn is due.
    pub(super) fn waits_for_itself(&self) -> bool {
        let nothing_asked = self.flights.is_empty() && self.waits.is_empty();
        let idle = self.failed.is_none() && !self.again && nothing_asked;
        idle && (!self.admission.is_empty() || !self.clears.is_empty() || !self.settling.is_empty())
    }

    /// A command that waits although nothing at all is under way has been forgotten.
    pub(super) fn check_stall(&mut self) {
        if !self.waits_for_itself() || self.next_deadline().is_some() {
            return;
        }
        let writes = self.admission.len();
        let first = self.admission.fronts().next();
        let first = first.and_then(|op| self.ops.get(op));
        let first = match first {
            Some(Op::Write(write)) => write.describe(),
            _ => "none".into(),
        };
        invariant!(
            self,
            "nothing is under way, but {writes} writes (first: {first}), {} clears and {} orders wait",
            self.clears.len(),
            self.settling.len()
        );
    }
}
