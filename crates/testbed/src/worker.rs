//! A load thread's event loop: a reactor, and a device opened on it.

use ashlar_block::{BlockDevice, BufferPool, Checked, Moment};
use ashlar_lab::{LabError, Worker};
use ashlar_reactor::{Opener, Options, Reactor};

/// What connections and odd sizes need besides the load's own buffers.
const SPARE_BYTES: usize = 16 << 20;

/// A device on a reactor of its own.
pub struct ReactorWorker {
    // Dropped first: the device lets go of what it has lent to the reactor's ring.
    device: Checked<Box<dyn BlockDevice>>,
    reactor: Reactor,
}

impl ReactorWorker {
    /// Opens `opener` on a reactor of the calling thread with room for `buffer_bytes`.
    pub fn open(opener: &dyn Opener, buffer_bytes: usize) -> Result<Self, LabError> {
        let pool_bytes = buffer_bytes.saturating_mul(2).saturating_add(SPARE_BYTES);
        let options = Options {
            pool_bytes,
            ..Options::default()
        };
        let reactor = Reactor::new(&options).map_err(|e| LabError::environment(e.to_string()))?;
        let device = opener
            .open(reactor.handle())
            .map_err(|error| LabError::environment(error.to_string()))?;
        Ok(Self {
            device: Checked::new(device),
            reactor,
        })
    }
}

impl Worker for ReactorWorker {
    fn device(&mut self) -> &mut dyn BlockDevice {
        &mut self.device
    }

    fn buffers(&self) -> BufferPool {
        self.reactor.handle().buffers()
    }

    fn now(&self) -> Moment {
        self.reactor.handle().now()
    }

    fn turn(&mut self, deadline: Option<Moment>) -> Result<(), LabError> {
        self.reactor
            .turn(deadline)
            .map_err(|error| LabError::environment(format!("io_uring: {error}")))
    }
}
