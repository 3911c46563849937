//! What hosts and operators wait for: reads, writes, clears, and orders to bring everything home.

pub(super) mod admission;

use super::clear::{Clear, Clears};
use super::journal::Then;
use super::read::Reads;
use super::write::{Write, Writes};
use crate::ReplicaTag;

/// Commands and orders that have no answer yet, but for pass-through volumes' I/O.
#[derive(Default)]
pub(super) struct Waiting {
    reads: Reads,
    writes: Writes,
    clears: Clears,
    /// Orders to bring everything home.
    draining: Vec<u64>,
    /// Number of the last command, to know older from younger.
    serial: u64,
}

impl Waiting {
    /// Nothing waits to begin.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.queue().is_empty() && self.clears.is_empty() && self.draining.is_empty()
    }

    /// Whether commands of hosts are under way, or clears that no host waits for.
    pub(super) fn has_commands(&self) -> bool {
        !self.reads.is_empty() || !self.writes.is_empty() || !self.clears.is_empty()
    }

    /// What waits, for a message.
    pub(super) fn describe(&self) -> String {
        let (first, writes) = (self.writes.describe_first(), self.writes.queue().len());
        let (clears, orders) = (self.clears.len(), self.draining.len());
        format!("{writes} writes (first: {first}), {clears} clears and {orders} orders wait")
    }

    /// The number of a command that has come.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn begin_write(&mut self, write: Write) {
        let serial = self.next_serial();
        self.writes.begin(serial, write);
    }

    pub(super) fn begin_clear(&mut self, clear: Clear) {
        let serial = self.next_serial();
        self.clears.begin(serial, clear);
    }

    pub(super) const fn reads_mut(&mut self) -> &mut Reads {
        &mut self.reads
    }

    pub(super) const fn writes(&self) -> &Writes {
        &self.writes
    }

    pub(super) const fn clears(&self) -> &Clears {
        &self.clears
    }

    /// Writes and clears, for steps of one that look at the other.
    pub(super) const fn commands(&mut self) -> (&mut Writes, &mut Clears) {
        (&mut self.writes, &mut self.clears)
    }

    /// The tag of the command that a change of the map belongs to.
    pub(super) fn tag_of(&self, then: Then) -> Option<ReplicaTag> {
        match then {
            Then::Bypass(op) => self.writes.tag_of_bypass(op),
            Then::Clear(op, _) => self.clears.tag(op),
            _ => None,
        }
    }

    /// An order to bring everything home.
    pub(super) fn push_drain(&mut self, id: u64) {
        self.draining.push(id);
    }

    pub(super) fn is_draining(&self) -> bool {
        !self.draining.is_empty()
    }

    pub(super) fn take_draining(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.draining)
    }
}
