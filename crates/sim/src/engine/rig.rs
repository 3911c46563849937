//! What all drives of a node share: the clock, the power, and a count of what changes media.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::Moment;

/// What becomes of the write or flush at which the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It does not happen.
    Before,
    /// A random part of it happens.
    Torn,
}

/// Shared by the drives and the world.
#[derive(Default)]
pub(crate) struct Rig {
    now: Cell<u64>,
    off: Cell<bool>,
    fuse: Cell<Option<(u64, Cut)>>,
    changes: Cell<u64>,
    violation: RefCell<Option<String>>,
    noted: RefCell<Vec<String>>,
    listening: Cell<bool>,
}

impl Rig {
    pub(crate) fn new(listening: bool) -> Rc<Self> {
        let rig = Self::default();
        rig.listening.set(listening);
        Rc::new(rig)
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(self.now.get())
    }

    /// Lets time go on; it never goes back.
    pub(crate) fn advance(&self, to: Moment) {
        self.now.set(self.now.get().max(to.as_nanos()));
    }

    /// Lets time go on by `by`.
    pub(crate) fn pass(&self, by: Duration) {
        self.advance(self.now() + by);
    }

    /// Whether the power is off: nothing happens on any drive.
    pub(crate) fn is_off(&self) -> bool {
        self.off.get()
    }

    /// The power comes back, and no fuse is in.
    pub(crate) fn restore(&self) {
        self.off.set(false);
        self.fuse.set(None);
    }

    /// The power will fail at the `after`th write or flush from now on, 0 for the next.
    pub(crate) fn set_fuse(&self, after: u64, cut: Cut) {
        self.fuse.set(Some((after, cut)));
    }

    /// How many writes and flushes have been done on all drives.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// A write or flush is about to be done: whether the power fails at it.
    pub(crate) fn change(&self) -> Option<Cut> {
        match self.fuse.get() {
            Some((0, cut)) => {
                self.fuse.set(None);
                self.off.set(true);
                return Some(cut);
            }
            Some((left, cut)) => self.fuse.set(Some((left - 1, cut))),
            None => {}
        }
        self.changes.set(self.changes.get() + 1);
        None
    }

    /// The engine has broken the rules of a device; the first time counts.
    pub(crate) fn violate(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    /// What was broken.
    pub(crate) fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// Notes a line for the trace, if there is a listener.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.listening.get() {
            let line = format!("{:>10} us  {}", self.now.get() / 1000, what());
            self.noted.borrow_mut().push(line);
        }
    }

    /// The lines noted since the last time.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.noted.borrow_mut())
    }
}
