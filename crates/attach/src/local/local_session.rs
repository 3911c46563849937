use std::os::fd::OwnedFd;
use std::sync::Arc;

use ashlar_block::{ErrorKind, IoError, Moment};
use ashlar_reactor::{Handle, Opener};

use super::{Over, Session};
use crate::fuse::carrier::Carrier;
use crate::fuse::exchange::Exchange;
use crate::system::memory::join_io_path;

/// Most memory for data on its way.
const POOL_BYTES: usize = 128 << 20;

/// An attachment on the core of its volume: reads the kernel's messages, submits, replies. It never blocks;
/// the core's reactor polls it in every turn.
pub struct LocalSession {
    carrier: Carrier,
    session: Arc<Session>,
    has_ended: bool,
}

impl LocalSession {
    /// Serves `opener`'s volume on the calling thread's reactor as the one file behind `fuse`, which does not
    /// block from now on, for any process.
    ///
    /// # Errors
    /// The volume cannot be opened, or `fuse` is not what it should be.
    pub fn new(
        handle: &Handle,
        opener: &dyn Opener,
        fuse: OwnedFd,
        takes_over: bool,
        session: Arc<Session>,
    ) -> Result<Self, IoError> {
        let device = opener.open(handle)?;
        let mut exchange = Exchange::new(device.geometry(), POOL_BYTES, session.counters().clone());
        if takes_over {
            exchange.ask_again();
        }
        let carrier = Carrier::new(handle, device, exchange, fuse);
        let unusable = |error| IoError::with_source(ErrorKind::InvalidRequest, "/dev/fuse", error);
        let carrier = carrier.map_err(unusable)?;
        join_io_path();
        session.set_waker(handle.waker());
        Ok(Self {
            carrier,
            session,
            has_ended: false,
        })
    }

    /// Deals with everything that has happened. Never blocks.
    pub fn poll(&mut self, now: Moment) {
        if self.has_ended {
            return;
        }
        if self.carrier.ending().is_none()
            && let Some(why) = self.session.asked()
        {
            self.carrier.stop(why);
        }
        self.carrier.poll(now);
        if let Some(why) = self.carrier.ended() {
            self.has_ended = true;
            self.session.ended(why.clone());
        }
    }

    /// When [`poll`](Self::poll) must be called next even if nothing wakes the core.
    pub fn next_deadline(&self) -> Option<Moment> {
        match self.has_ended {
            true => None,
            false => self.carrier.next_deadline(),
        }
    }

    /// Messages that were dealt with since the last call.
    pub fn take_handled(&mut self) -> usize {
        self.carrier.take_handled()
    }
}

impl Drop for LocalSession {
    fn drop(&mut self) {
        // Not in order, if it has not ended before: its core ends, or has died.
        self.session
            .ended(Over::ForNow("its core has ended".into()));
    }
}
