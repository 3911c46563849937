//! A fast device that has no room: its pool is written full, by this cache or by other volumes. The cache steps aside: what
//! cannot be kept goes to the backing device, what only it has stays, and a little of what is clean goes to make room.
//!
//! Without room for what the mark replaces, or for the page that says that it is there, no mark is put for a while, and
//! writes go around. They may change what begins the device then, so the header says first that this is not known.

use std::time::Duration;

use ashlar_block::{ErrorKind, IoError, Moment};

use super::Cache;
use crate::layout::{HEAD, Mark, Mode};

/// Blocks that go when there was no room: those of the mark's head, and as many more.
const GIVES_UP: usize = HEAD as usize;
/// How long no mark is put after there was no room for it: each try holds writes up for a moment.
const ASIDE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub(super) struct Space {
    /// What the fast device has said last, until it takes something new.
    pub(super) refusal: Option<String>,
    /// Until then writes go around without a mark.
    aside_until: Option<Moment>,
    /// Blocks that are to go.
    pub(super) wanted: usize,
}

/// Whether an error is about room.
pub(super) fn is_about_room(error: &IoError) -> bool {
    error.kind() == ErrorKind::NoSpace
}

impl Cache {
    /// The fast device has refused something new.
    pub(super) fn has_no_room(&mut self, error: &IoError) {
        self.space.refusal = Some(error.context().to_owned());
        self.space.wanted = GIVES_UP;
    }

    /// It has taken something new.
    pub(super) fn has_room_again(&mut self) {
        self.space.refusal = None;
    }

    /// For want of room no mark is put for a while.
    pub(super) fn step_aside(&mut self) {
        self.space.aside_until = Some(self.now + ASIDE);
    }

    fn is_aside(&self) -> bool {
        self.space.aside_until.is_some_and(|until| self.now < until)
    }

    fn mark(&self) -> Option<Mark> {
        let header = self.header.as_ref();
        let header = header.filter(|header| header.mode == Mode::WriteBack);
        header.map(|header| header.mark)
    }

    /// Whether writes wait for a mark on the backing device.
    pub(super) fn must_arm(&self) -> bool {
        match self.mark() {
            None | Some(Mark::On) => false,
            Some(Mark::Off) => !self.is_aside(),
            Some(Mark::Arming | Mark::Restoring) => true,
        }
    }

    /// Whether what is written may be newer here than on the backing device.
    pub(super) fn may_be_newer(&self) -> bool {
        self.mark() == Some(Mark::On) && !self.draining
    }
}
