//! What is said between cores, and by what runs the server.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use ashlar_block::IoError;
use ashlar_reactor::Opener;

use super::resident::MakeResident;
use crate::core::{Handoff, Notice};
use crate::roster::Listing;

/// Messages to a core.
pub(super) enum Mail {
    /// A connection whose Connect is to be decided here.
    Adopt {
        socket: OwnedFd,
        handoff: Handoff,
        early: Vec<u8>,
        placed: bool,
    },
    /// Hosts may connect from now on.
    Listen(OwnedFd),
    Notice(Notice),
    /// Open these devices under these numbers: all or none.
    Open(Vec<(usize, Arc<dyn Opener>)>, Reply<Result<(), IoError>>),
    /// Close a subsystem's devices; answered, true, when no connection to it is left, or false when
    /// that takes too long.
    Close(Listing, Reply<bool>),
    SettleIn(String, MakeResident, Reply<Result<(), IoError>>),
    MoveOut(String, Reply<()>),
    /// No host gets in any more; answered when the listener is closed.
    TurnAway(Reply<()>),
    /// Take no more commands; answered, true, when devices have nothing of hosts, or false when that
    /// takes too long.
    Quiesce(Reply<bool>),
    Stop,
}

/// Where a core's answer goes.
pub(super) struct Reply<T> {
    /// Which core answers: its index.
    pub(super) index: usize,
    pub(super) sender: Sender<(usize, T)>,
}

impl<T> Reply<T> {
    pub(super) fn send(self, answer: T) {
        // The asker may have given up.
        let _ = self.sender.send((self.index, answer));
    }
}
