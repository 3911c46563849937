use std::net::SocketAddr;
use std::sync::Arc;

use ashlar_block::{BlockDevice, Completion, Description, Geometry, Moment, Request};
use ashlar_reactor::{Handle, Opener};
use tracing::{info, warn};

use super::portals::Portals;
use super::record::Record;
use super::remote::Remote;
use super::sockets::{Leaving, Sockets};
use super::watch::Watch;
use crate::reconnect::{PathInstance, Session};
use crate::streams::Streams;

/// A remote namespace on one reactor thread: an association of its own, made when it is opened and
/// shut down in order when it is dropped.
pub struct RemoteDevice {
    session: Session,
    /// Taken only when the device is dropped.
    sockets: Option<Sockets>,
    handle: Handle,
    description: Description,
    watch: Watch,
    record: Option<Arc<Record>>,
    /// Who is named in the record.
    named: Vec<PathInstance>,
    portals: Option<Portals>,
}

impl RemoteDevice {
    pub(super) fn open(handle: &Handle, remote: &Remote) -> Self {
        let now = handle.now();
        let config = remote.config.clone();
        let watch = Watch::new(config.clone(), remote.board.clone());
        let learns = config
            .discovers
            .then(|| Portals::learn(&config, handle.waker()));
        let portals = learns.flatten();
        let (facts, unflushed) = (remote.facts.clone(), remote.unflushed.clone());
        let session = Session::new(now, config, facts, unflushed, handle.buffers());
        let sockets = Sockets::new(handle.port(), remote.peers.clone(), session.streams());
        Self {
            session,
            sockets: Some(sockets),
            handle: handle.clone(),
            description: remote.describe(),
            watch,
            record: None,
            named: Vec::new(),
            portals,
        }
    }

    /// The same, which keeps a record of its association, and takes over from the one in it.
    pub(super) fn recorded_in(mut self, record: Option<Arc<Record>>) -> Self {
        if let Some(record) = &record {
            self.named = record.predecessors.clone();
            self.session.take_over(self.handle.now(), &self.named);
        }
        self.record = record;
        self
    }

    /// Polls the session. Whether anything may go out: who comes after us knows of its association
    /// before that. (Written over what is there, this does not fail for want of space; should it
    /// fail, nothing goes out, and the next poll tries again.)
    fn poll_session(&mut self, now: Moment, done: &mut Vec<Completion>) -> bool {
        self.session.poll(now, done);
        if let Some(seen) = self.watch.look(now, &mut self.session) {
            self.tell_where_to_ask(seen.path_is_lost);
        }
        let Some(record) = &self.record else {
            return true;
        };
        let instances = self.session.instances();
        if self.named != instances && record.write(&instances).is_ok() {
            self.named = instances;
            return true;
        }
        self.named == instances
    }

    /// Portals are learned from targets that reach the namespace.
    fn tell_where_to_ask(&self, path_is_lost: bool) {
        if let (Some(portals), Some(sockets)) = (&self.portals, &self.sockets) {
            let peers = sockets.peers().iter().enumerate();
            let best = self.session.best();
            let reached = peers.filter(|(at, _)| self.session.reaches(*at));
            let mut reached: Vec<(bool, SocketAddr)> = reached
                .map(|(at, peer)| (best != Some(at), *peer))
                .collect();
            reached.sort_by_key(|(is_other, _)| *is_other);
            let targets = reached.into_iter().map(|(_, peer)| peer);
            portals.ask_at(targets.collect(), path_is_lost);
        }
    }

    /// Takes up portals that are new, and lets go those that are gone.
    fn take_portals(&mut self, now: Moment) {
        let told = self.portals.as_ref().and_then(Portals::told);
        let (Some(told), Some(sockets)) = (told, &mut self.sockets) else {
            return;
        };
        let nqn = &self.watch.config().nqn;
        let known: Vec<SocketAddr> = sockets.peers().to_vec();
        let is_there = |at: &usize| self.session.has_portal(*at);
        let places: Vec<usize> = (0..known.len()).filter(is_there).collect();
        for portal in &told {
            if places.iter().any(|&at| known[at] == *portal) {
                continue;
            }
            match self.session.add_portal(now, &portal.to_string()) {
                Some(at) => {
                    sockets.set_peer(at, *portal);
                    info!("{nqn}: is served at {portal}, too");
                }
                None => warn!("{nqn}: is served at {portal}, too, and there are too many"),
            }
        }
        for at in places {
            if !told.contains(&known[at]) && self.session.drop_portal(at) {
                info!("{nqn}: is not served at {} any more", known[at]);
            }
        }
    }

    /// Moves bytes; true when the session has something to do again.
    fn serve_sockets(&mut self, now: Moment) -> bool {
        let sockets = self.sockets.as_mut();
        sockets.is_some_and(|sockets| sockets.serve(now, &mut self.session))
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
        if let Some(sockets) = &mut self.sockets {
            sockets.take_events(now, &mut self.session);
        }
        self.take_portals(now);
        while self.poll_session(now, done) && self.serve_sockets(now) {}
    }

    fn next_deadline(&self) -> Option<Moment> {
        let sockets = self.sockets.as_ref().and_then(Sockets::next_deadline);
        let watch = self.watch.next_deadline(&self.session);
        self.session
            .next_deadline()
            .into_iter()
            .chain(sockets)
            .chain(watch)
            .min()
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}

impl Drop for RemoteDevice {
    fn drop(&mut self) {
        // The reactor is not turned any more, so the answer to the shutdown is not awaited.
        if let Some(sockets) = self.sockets.take() {
            let how = match self.session.is_idle() {
                true => Leaving::InOrder,
                false => Leaving::WithUnanswered,
            };
            self.session.shutdown(self.handle.now());
            sockets.leave(&mut self.session, how);
        }
    }
}
