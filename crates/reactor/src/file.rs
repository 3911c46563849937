//! Files and sockets as the ring knows them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::ring::Target;
use crate::turn::Handle;

/// An open file or socket, registered with the ring where there was room.
///
/// Dropping it closes the descriptor; operations in flight hold the file themselves and complete.
/// For a socket, [`shutdown`](Self::shutdown) first ends them.
pub struct File {
    fd: OwnedFd,
    slot: Option<u32>,
    handle: Handle,
}

impl File {
    pub(crate) fn new(fd: OwnedFd, slot: Option<u32>, handle: Handle) -> Self {
        Self { fd, slot, handle }
    }

    pub(crate) fn target(&self) -> Target {
        match self.slot {
            Some(slot) => Target::Registered(slot),
            None => Target::Plain(self.fd.as_raw_fd()),
        }
    }

    /// Another descriptor of the same file, for another thread's reactor.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Ends both directions of a socket: pending receives complete, the peer sees the end.
    pub fn shutdown(&self) {
        // An error means that the connection has ended already, which is what is wanted.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // What is queued names it, and would find another file under its number.
        self.handle.submit_queued();
        if let Some(slot) = self.slot {
            self.handle.unregister_file(slot);
        }
    }
}
