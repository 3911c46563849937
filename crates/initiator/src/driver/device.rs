use std::net::SocketAddr;
use std::sync::Arc;

use ashlar_block::{BlockDevice, Completion, Description, Geometry, Moment, Request};
use ashlar_reactor::Handle;

use super::sockets::Sockets;
use crate::config::Config;
use crate::controller::NamespaceFacts;
use crate::reconnect::{Session, Unflushed};
use crate::streams::Streams;

/// A remote namespace on one reactor thread: an association of its own, made when it is opened and
/// shut down in order when it is dropped.
pub struct RemoteDevice {
    session: Session,
    /// Taken only when the device is dropped.
    sockets: Option<Sockets>,
    handle: Handle,
    description: Description,
}

impl RemoteDevice {
    pub(super) fn open(
        handle: &Handle,
        config: Arc<Config>,
        peer: SocketAddr,
        (facts, unflushed): (NamespaceFacts, Arc<Unflushed>),
        description: Description,
    ) -> Self {
        let now = handle.now();
        let session = Session::new(now, config, facts, unflushed, handle.buffers());
        let sockets = Sockets::new(handle.port(), peer, session.streams());
        Self {
            session,
            sockets: Some(sockets),
            handle: handle.clone(),
            description,
        }
    }

    /// How often an established association was lost.
    pub fn losses(&self) -> u64 {
        self.session.losses()
    }

    /// Whether requests are being carried out, rather than waiting for a connection.
    pub fn is_connected(&self) -> bool {
        self.session.is_ready()
    }
}

impl BlockDevice for RemoteDevice {
    fn geometry(&self) -> Geometry {
        self.session.geometry()
    }

    fn submit(&mut self, request: Request) {
        self.session.submit(request);
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        let Some(sockets) = &mut self.sockets else {
            return;
        };
        sockets.take_events(now, &mut self.session);
        self.session.poll(now, done);
        while sockets.serve(now, &mut self.session) {
            self.session.poll(now, done);
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        let sockets = self.sockets.as_ref().and_then(Sockets::next_deadline);
        self.session
            .next_deadline()
            .into_iter()
            .chain(sockets)
            .min()
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}

impl Drop for RemoteDevice {
    fn drop(&mut self) {
        // Nobody turns the reactor for us any more, so the answer to the shutdown is not awaited.
        if let Some(sockets) = self.sockets.take() {
            self.session.shutdown(self.handle.now());
            sockets.leave(&mut self.session);
        }
    }
}
