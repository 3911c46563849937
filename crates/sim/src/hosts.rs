//! A host's sockets: what the initiator's driver does, over simulated connections.

use ashlar_block::Gather;
use ashlar_nvme_initiator::{Failure, Streams, Wish};

use crate::env::{Env, Receive, Sending};
use crate::net::{Caller, LinkId};
use crate::pipe::End;
use crate::profile::Canary;

#[derive(Default)]
struct Socket {
    link: Option<LinkId>,
    connecting: bool,
    receive: Option<Receive>,
    sending: Option<Sending>,
}

/// The sockets of one set of streams.
pub(crate) struct Sockets {
    sockets: Vec<Socket>,
    name: usize,
    digests: bool,
}

impl Sockets {
    pub(crate) fn new(name: usize, streams: usize, digests: bool) -> Self {
        Self {
            sockets: (0..streams).map(|_| Socket::default()).collect(),
            name,
            digests,
        }
    }

    /// Hands what has happened to the streams. True if anything has.
    pub(crate) fn take_events(&mut self, env: &mut Env<'_>, streams: &mut impl Streams) -> bool {
        let mut news = false;
        for at in 0..self.sockets.len() {
            let socket = &mut self.sockets[at];
            let Some(id) = socket.link else { continue };
            if socket.connecting {
                news |= socket.connected(env, streams, at, id);
            } else {
                news |= socket.pump(env, streams, at, id);
                news |= socket.received(env, streams, at, id);
            }
        }
        news
    }

    /// Does what the streams wish. True if a stream was lost or closed.
    pub(crate) fn serve(&mut self, env: &mut Env<'_>, streams: &mut impl Streams) -> bool {
        let mut news = false;
        for at in 0..self.sockets.len() {
            let socket = &mut self.sockets[at];
            match (streams.wish(at), socket.link) {
                (Wish::Open, None) => {
                    let delay = env.profile.delay;
                    let name = self.name;
                    let caller = Caller {
                        owner: name,
                        digests: self.digests,
                    };
                    let link = env.net.dial(env.now, &mut env.chance, delay, caller);
                    env.trace.say(env.now, || {
                        format!("session {name} dials {at}: link {link}")
                    });
                    socket.link = Some(link);
                    socket.connecting = true;
                }
                (Wish::Open, Some(_)) => {}
                (Wish::Close, _) => {
                    socket.close(env, streams, at);
                    let name = self.name;
                    env.trace
                        .say(env.now, || format!("session {name} closes {at}"));
                    news = true;
                }
                (Wish::None, Some(link)) if !socket.connecting => {
                    socket.send(env, streams, at, link);
                    socket.start_receive(env, streams, at);
                }
                (Wish::None, _) => {}
            }
        }
        news
    }
}

impl Socket {
    fn connected(
        &mut self,
        env: &mut Env<'_>,
        streams: &mut impl Streams,
        at: usize,
        id: LinkId,
    ) -> bool {
        match env.net.link(id) {
            Some(link) if !link.accepted => false,
            Some(_) => {
                self.connecting = false;
                streams.opened(env.now, at);
                true
            }
            None => {
                self.connecting = false;
                self.link = None;
                streams.lost(at, Failure::Network("refused".into()));
                true
            }
        }
    }

    /// Sends on.
    fn pump(
        &mut self,
        env: &mut Env<'_>,
        streams: &mut impl Streams,
        at: usize,
        id: LinkId,
    ) -> bool {
        let Some(sending) = &mut self.sending else {
            return false;
        };
        let room = env
            .net
            .link(id)
            .map_or(usize::MAX, |link| link.to_target.room());
        let mut bytes = sending.next(room);
        if env.profile.canary == Some(Canary::LivingPredecessor) {
            misname_predecessor(&mut bytes);
        }
        if let Some(link) = env.net.link(id) {
            link.to_target.send(env.now, &mut env.chance, &bytes);
        }
        if sending.is_done() {
            streams.sent(at, &mut sending.batch);
            self.sending = None;
            return true;
        }
        !bytes.is_empty()
    }

    fn send(
        &mut self,
        env: &mut Env<'_>,
        streams: &mut impl Streams,
        at: usize,
        id: LinkId,
    ) -> bool {
        if self.sending.is_none() {
            let mut batch = Gather::default();
            streams.transmit(at, &mut batch);
            if batch.is_empty() {
                return false;
            }
            self.sending = Some(Sending::new(batch));
        }
        self.pump(env, streams, at, id)
    }

    fn start_receive(&mut self, env: &mut Env<'_>, streams: &mut impl Streams, at: usize) {
        if self.receive.is_none() {
            let least = env.chance.size(8 << 10);
            let direct = if env.chance.happens(800) {
                streams.direct(at, least)
            } else {
                None
            };
            self.receive = Some(Receive { direct });
        }
    }

    fn received(
        &mut self,
        env: &mut Env<'_>,
        streams: &mut impl Streams,
        at: usize,
        id: LinkId,
    ) -> bool {
        let readable = env
            .net
            .link(id)
            .is_none_or(|link| link.to_host.is_readable());
        if !readable {
            return false;
        }
        let Some(mut receive) = self.receive.take() else {
            return false;
        };
        let staging = env.chance.size(64 << 10);
        let Some(link) = env.net.link(id) else {
            self.receive = Some(receive);
            return false;
        };
        let end = link.to_host.ended();
        let bytes = link.to_host.take(receive.room() + staging);
        let shifted = env.profile.canary == Some(Canary::ShiftedPayload) && env.chance.happens(50);
        let placed = receive.place(&bytes, if shifted { 16 } else { 0 });
        if let Some((buffer, _)) = receive.direct {
            streams.direct_done(at, buffer, placed);
        }
        match end {
            Some(End::Fin) => streams.lost(at, Failure::Closed),
            Some(End::Reset) => streams.lost(at, Failure::Network("reset".into())),
            None => streams.receive(at, &bytes[placed..]),
        }
        true
    }

    fn close(&mut self, env: &mut Env<'_>, streams: &mut impl Streams, at: usize) {
        if let Some(id) = self.link.take() {
            if self.connecting {
                self.connecting = false;
            } else {
                self.send(env, streams, at, id);
            }
            env.net.close_host(env.now, &mut env.chance, id);
        }
        // What has not left by now never will.
        if let Some(mut sending) = self.sending.take() {
            streams.sent(at, &mut sending.batch);
        }
        if let Some((buffer, _)) = self.receive.take().and_then(|receive| receive.direct) {
            streams.direct_done(at, buffer, 0);
        }
        streams.closed(at);
    }
}

/// Makes Cross-Controller Resets name a controller that never was, where no digest forbids it.
fn misname_predecessor(bytes: &mut [u8]) {
    /// A command capsule without digest and data, with the command's opcode.
    const CAPSULE: [u8; 9] = [4, 0, 72, 0, 72, 0, 0, 0, 0x38];
    /// Where such a capsule has the last byte of CDW13.
    const NUMBER: usize = 8 + 55;
    for at in 0..bytes.len().saturating_sub(NUMBER) {
        if bytes[at..].starts_with(&CAPSULE) {
            bytes[at + NUMBER] ^= 0x80;
        }
    }
}
