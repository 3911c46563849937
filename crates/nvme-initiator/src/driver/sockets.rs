//! Streams as sockets of a reactor.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use ashlar_block::Moment;
use ashlar_reactor::{File, Port, RecvFrame, SendBatch, What, stream_socket};
use rustix::net::connect_unspec;
use rustix::net::sockopt::set_socket_linger;

use crate::failure::Failure;
use crate::streams::{Streams, Wish};

/// Staging memory of a socket.
const STAGING_BYTES: usize = 64 << 10;
/// Payload remainders from here on are received in place; below, a copy costs less than a receive of
/// their own.
const DIRECT_LEAST: usize = 8 << 10;
/// Staging while a payload is received in place: what follows it is mostly the next header, and the
/// payload behind that header should go to its place too.
const STAGING_BEHIND_DIRECT: usize = 512;
/// Staging between large payloads: a few headers.
const STAGING_LARGE: usize = 4 << 10;
/// How long a terminate request may take to leave.
const LAST_WORDS: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Socket {
    file: Option<File>,
    connecting: bool,
    receiving: bool,
    sending: bool,
    frame: Option<Box<RecvFrame>>,
    batch: Option<Box<SendBatch>>,
    /// The last receive said that more is waiting.
    more: bool,
    /// Payloads have lately been large.
    large: bool,
    /// The last words are said; the socket is shut down by this moment.
    ending: Option<Moment>,
    /// The socket was shut down.
    ended: bool,
}

/// The sockets of a set of streams.
pub(super) struct Sockets {
    port: Port,
    /// One a path, each with as many streams.
    peers: Vec<SocketAddr>,
    sockets: Vec<Socket>,
}

impl Sockets {
    /// Sockets for `count` streams, the first of them to the first of `peers`, and so on.
    pub(super) fn new(port: Port, peers: Vec<SocketAddr>, count: usize) -> Self {
        Self {
            port,
            peers,
            sockets: (0..count).map(|_| Socket::default()).collect(),
        }
    }

    /// The streams of the path at this place, which may be a new one, are to this peer from now on.
    pub(super) fn set_peer(&mut self, path: usize, peer: SocketAddr) {
        let each = self.sockets.len() / self.peers.len().max(1);
        if let Some(known) = self.peers.get_mut(path) {
            *known = peer;
            return;
        }
        self.peers.push(peer);
        let count = each * self.peers.len();
        self.sockets.resize_with(count, Socket::default);
    }

    /// The peers, one a path.
    pub(super) fn peers(&self) -> &[SocketAddr] {
        &self.peers
    }

    /// Hands what has happened to the streams.
    pub(super) fn take_events(&mut self, now: Moment, streams: &mut impl Streams) {
        while let Some(event) = self.port.next() {
            let at = event.key as usize;
            let peer = self.peer_of(at);
            let Some(socket) = self.sockets.get_mut(at) else {
                continue;
            };
            match event.what {
                What::Received(result, frame, more) => {
                    socket.receiving = false;
                    socket.more = more;
                    received(streams, at, socket, result, frame);
                }
                What::Sent(result, mut batch) => {
                    socket.sending = false;
                    streams.sent(at, &mut batch.gather);
                    batch.gather.clear();
                    socket.batch = Some(batch);
                    if let Err(error) = result {
                        streams.lost(at, network(peer, "send to", &error));
                    }
                }
                What::Connected(result) => {
                    socket.connecting = false;
                    match result {
                        Ok(()) => streams.opened(now, at),
                        Err(error) => streams.lost(at, network(peer, "connect to", &error)),
                    }
                }
                What::File(..) | What::Accepted(_) | What::Readable(_) => {}
            }
        }
    }

    /// Opens, closes, sends and receives as the streams wish. True if a stream was lost or closed:
    /// the streams' owner then has something to do, and this is to be called again.
    pub(super) fn serve(&mut self, now: Moment, streams: &mut impl Streams) -> bool {
        let mut news = false;
        for at in 0..self.sockets.len() {
            news |= match streams.wish(at) {
                Wish::Open => self.open(streams, at),
                Wish::Close => self.close(now, streams, at),
                Wish::None => {
                    self.send(streams, at);
                    self.receive(streams, at)
                }
            };
        }
        news
    }

    fn peer_of(&self, at: usize) -> SocketAddr {
        let each = self.sockets.len() / self.peers.len().max(1);
        self.peers[(at / each.max(1)).min(self.peers.len() - 1)]
    }

    /// Starts to connect; true if that failed at once.
    fn open(&mut self, streams: &mut impl Streams, at: usize) -> bool {
        let peer = self.peer_of(at);
        let socket = &mut self.sockets[at];
        if socket.file.is_some() {
            return false;
        }
        match stream_socket(peer) {
            Ok(fd) => {
                let file = self.port.handle().adopt(fd);
                self.port.connect(&file, peer, at as u64);
                socket.file = Some(file);
                socket.connecting = true;
                socket.more = false;
                socket.ending = None;
                socket.ended = false;
                false
            }
            Err(error) => {
                streams.lost(at, Failure::Network(error.to_string()));
                true
            }
        }
    }

    /// Says the last words, then ends the connection; true when nothing of it is left.
    fn close(&mut self, now: Moment, streams: &mut impl Streams, at: usize) -> bool {
        if self.sockets[at].ending.is_none() {
            let stuck = self.sockets[at].sending;
            self.send(streams, at);
            let socket = &mut self.sockets[at];
            // Words that are only now on their way get a moment. A batch that was already stuck
            // gets none: the peer is not reading.
            let speaking = socket.sending && !stuck;
            socket.ending = Some(if speaking { now + LAST_WORDS } else { now });
        }
        let socket = &mut self.sockets[at];
        if let Some(file) = &socket.file
            && (!socket.sending || socket.ending.is_some_and(|end| end <= now))
        {
            abandon(file);
            file.shutdown();
            socket.ended = true;
        }
        if socket.connecting || socket.receiving || socket.sending {
            return false;
        }
        socket.file = None;
        streams.closed(at);
        true
    }

    /// When [`serve`](Self::serve) must be called next: a connection does not get longer to end.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let ending = |socket: &Socket| socket.ending.filter(|_| socket.sending && !socket.ended);
        self.sockets.iter().filter_map(ending).min()
    }

    fn send(&mut self, streams: &mut impl Streams, at: usize) {
        let socket = &mut self.sockets[at];
        let Some(file) = socket
            .file
            .as_ref()
            .filter(|_| !socket.sending && !socket.connecting)
        else {
            return;
        };
        let mut batch = socket.batch.take().unwrap_or_else(SendBatch::new);
        streams.transmit(at, &mut batch.gather);
        if batch.gather.is_empty() {
            socket.batch = Some(batch);
        } else {
            socket.sending = true;
            self.port.send(file, batch, at as u64);
        }
    }

    /// Starts to receive; true if the stream was lost for want of memory.
    fn receive(&mut self, streams: &mut impl Streams, at: usize) -> bool {
        let socket = &mut self.sockets[at];
        let Some(file) = socket
            .file
            .as_ref()
            .filter(|_| !socket.receiving && !socket.connecting)
        else {
            return false;
        };
        let frame = socket.frame.take().or_else(|| {
            let staging = self.port.handle().buffers().get(STAGING_BYTES)?;
            Some(RecvFrame::new(staging))
        });
        let Some(mut frame) = frame else {
            let why = "no buffer is left to receive into".to_owned();
            streams.lost(at, Failure::Network(why));
            return true;
        };
        frame.direct = streams.direct(at, DIRECT_LEAST);
        socket.large |= frame.direct.is_some();
        frame.staging_limit = match (&frame.direct, socket.large) {
            (Some(_), _) => STAGING_BEHIND_DIRECT,
            (None, true) => STAGING_LARGE,
            (None, false) => STAGING_BYTES,
        };
        frame.expect_idle = !socket.more;
        socket.receiving = true;
        self.port.recv(file, frame, at as u64);
        false
    }

    /// Sends what is left to say and lets go of the sockets without waiting; or lets go of them with what they hold.
    pub(super) fn leave(mut self, streams: &mut impl Streams, how: Leaving) {
        for at in 0..self.sockets.len() {
            match (how, &self.sockets[at].file) {
                (Leaving::InOrder, _) => self.send(streams, at),
                (Leaving::WithUnanswered, Some(file)) => abandon(file),
                (Leaving::WithUnanswered, None) => {}
            }
            let Some(file) = self.sockets[at].file.take() else {
                continue;
            };
            let second = file.as_fd().try_clone_to_owned();
            // Dropping the file submits what is queued, so the send precedes the shutdown, which
            // ends the receive that would keep the connection open.
            drop(file);
            if let Ok(second) = second {
                let _ = std::net::TcpStream::from(second).shutdown(std::net::Shutdown::Both);
            }
        }
    }
}

/// How a device lets go of its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Everything is answered.
    InOrder,
    /// Something is not: who opens the device next must not have it arrive after what is written then.
    WithUnanswered,
}

/// Ends the connection, and with it what the kernel has not got across. A write of a link that was silent would else
/// arrive once the link is back: after newer ones, which have gone by another path. This does not wait for the socket's
/// last user, as closing it would.
fn abandon(socket: impl AsFd) {
    // An error means that the connection has ended already, or that the kernel cannot do it now.
    if connect_unspec(&socket).is_err() {
        let _ = set_socket_linger(&socket, Some(Duration::ZERO));
    }
}

fn received(
    streams: &mut impl Streams,
    at: usize,
    socket: &mut Socket,
    result: std::io::Result<usize>,
    mut frame: Box<RecvFrame>,
) {
    let bytes = *result.as_ref().unwrap_or(&0);
    let in_place = frame.direct_part(bytes);
    let staged = bytes - in_place;
    if let Some((buffer, _)) = frame.direct.take() {
        streams.direct_done(at, buffer, in_place);
    } else if socket.large && staged == frame.staging_limit {
        socket.large = false;
    }
    match result {
        Ok(0) => streams.lost(at, Failure::Closed),
        Ok(_) => streams.receive(at, &frame.staging[..staged]),
        Err(error) => streams.lost(at, Failure::Network(format!("cannot receive: {error}"))),
    }
    socket.frame = Some(frame);
}

fn network(peer: SocketAddr, what: &str, error: &std::io::Error) -> Failure {
    Failure::Network(format!("cannot {what} {peer}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// How much arrives of what a socket was given before it was let go, and how that ends.
    fn arrives(lets_go: impl FnOnce(&TcpStream)) -> (usize, usize, Option<ErrorKind>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut host = TcpStream::connect(address).expect("connected");
        let (mut target, _) = listener.accept().expect("accepted");
        host.set_nonblocking(true).expect("set");
        let mut given = 0;
        // Until the target, which does not read, takes nothing more.
        while let Ok(bytes) = host.write(&[7; 65536]) {
            given += bytes;
        }
        lets_go(&host);
        // As a request of a ring would.
        let _held = host.try_clone().expect("another");
        let _ = host.shutdown(std::net::Shutdown::Both);
        drop(host);
        let (mut arrived, mut buffer) = (0, vec![0; 65536]);
        loop {
            match target.read(&mut buffer) {
                Ok(0) => return (given, arrived, None),
                Ok(bytes) => arrived += bytes,
                Err(error) => return (given, arrived, Some(error.kind())),
            }
        }
    }

    #[test]
    fn what_has_not_left_when_a_connection_is_given_up_never_arrives() {
        let (given, arrived, end) = arrives(|_| {});
        assert_eq!((arrived, end), (given, None), "sockets get it all across");
        let (given, arrived, end) = arrives(|socket: &TcpStream| abandon(socket));
        assert!(arrived < given, "{arrived} of {given} arrived");
        assert_eq!(end, Some(ErrorKind::ConnectionReset));
    }
}
