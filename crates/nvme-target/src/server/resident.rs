use ashlar_block::{IoError, Moment};
use ashlar_reactor::Handle;

/// Something that lives on a core and needs turns of its own: a pool's engine, say.
///
/// In every turn of its core it is polled after events were read and before the core's devices
/// are, and again when the core has given devices something: what a command submits goes out in the
/// same turn.
pub trait Resident {
    /// Makes progress. Never blocks.
    fn poll(&mut self, now: Moment);

    /// When [`poll`](Self::poll) must be called next even if nothing wakes the core.
    fn next_deadline(&self) -> Option<Moment>;

    /// How many requests of others it has dealt with since the last call, if it deals with any: many
    /// share the cost of a wake-up.
    fn take_handled(&mut self) -> usize {
        0
    }
}

/// Makes a resident on the core's thread.
pub type MakeResident = Box<dyn FnOnce(&Handle) -> Result<Box<dyn Resident>, IoError> + Send>;

/// A core's residents, by name.
#[derive(Default)]
pub(super) struct Residents(Vec<(String, Box<dyn Resident>)>);

impl Residents {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn settle(&mut self, name: String, resident: Box<dyn Resident>) {
        self.0.push((name, resident));
    }

    pub(super) fn leave(&mut self, name: &str) {
        self.0.retain(|(other, _)| other != name);
    }

    pub(super) fn poll(&mut self, now: Moment) {
        for (_, resident) in &mut self.0 {
            resident.poll(now);
        }
    }

    pub(super) fn take_handled(&mut self) -> usize {
        self.0.iter_mut().map(|(_, r)| r.take_handled()).sum()
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let residents = self.0.iter();
        residents.filter_map(|(_, r)| r.next_deadline()).min()
    }
}
