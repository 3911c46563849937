//! What hosts and operators wait for: writes that are to be let in, clears, and orders to bring everything home.

pub(super) mod admission;

use admission::Admission;

/// Commands and orders that have no answer yet.
#[derive(Default)]
pub(super) struct Waiting {
    writes: Admission,
    clears: Vec<usize>,
    /// Orders to bring everything home.
    draining: Vec<u64>,
    /// Number of the last command, to know older from younger.
    serial: u64,
    /// Hosts' writes that have no answer yet.
    writing: usize,
}

impl Waiting {
    /// Nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.clears.is_empty() && self.draining.is_empty()
    }

    /// What waits, for a message.
    pub(super) fn describe(&self, first: &str) -> String {
        let (writes, clears, orders) = (self.writes.len(), self.clears.len(), self.draining.len());
        format!("{writes} writes (first: {first}), {clears} clears and {orders} orders wait")
    }

    /// The number of a command that has come.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A write of a volume has come.
    pub(super) fn push_write(&mut self, volume: u32, serial: u64, op: usize) {
        self.writing += 1;
        self.writes.push(volume, serial, op);
    }

    /// Writes that are to be let in.
    pub(super) fn writes(&self) -> &Admission {
        &self.writes
    }

    /// The first write of a volume waits no more to be let in.
    pub(super) fn pop_write(&mut self, volume: u32) {
        self.writes.pop(volume);
    }

    /// No write waits any more to be let in.
    pub(super) fn forget_writes(&mut self) {
        self.writes.clear();
    }

    /// A write has its answer.
    pub(super) fn write_answered(&mut self) {
        self.writing -= 1;
    }

    /// Hosts' writes that have no answer yet.
    pub(super) fn writing(&self) -> usize {
        self.writing
    }

    pub(super) fn push_clear(&mut self, op: usize) {
        self.clears.push(op);
    }

    pub(super) fn clears(&self) -> &[usize] {
        &self.clears
    }

    pub(super) fn clear_is_over(&mut self, op: usize) {
        self.clears.retain(|&other| other != op);
    }

    pub(super) fn take_clears(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.clears)
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
