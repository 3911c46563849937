//! One core's thread: moves bytes between sockets and the core's state machines.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BufferPool, IoError, Moment};
use ashlar_reactor::{
    Event, File, Handle, Mailbox, Opener, Port, Reactor, RecvFrame, SendBatch, What,
};
use rustix::net::sockopt;
use slab::Slab;

use super::mail::{Mail, Reply};
use super::placement::Placement;
use super::resident::{MakeResident, Residents};
use super::socket::{BUSY_QUEUE_BYTES, GREETING_BYTES, QUEUE_BYTES, Socket};
use crate::connection::Ends;
use crate::core::{Action, ConnectionId, Core, Handoff, Placing};
use crate::roster::Listing;

const ACCEPT_KEY: u64 = u64::MAX;
/// How long a listener rests after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long stopping waits for what devices have and for hosts to take the answers, before it closes
/// connections.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long stopping waits for devices.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Room for headers behind a payload that is received directly.
const DIRECT_STAGING: usize = 4 << 10;
/// Most staging memory of a core; it is taken as connections come.
const STAGING_LIMIT: usize = 256 << 20;

/// After how long a silence the kernel asks a host whether it is there, how often it does, and how many questions
/// without an answer end the connection.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// What a host has not acknowledged for so long ends the connection: while something is under way, the kernel asks nothing.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);

/// How often a core looks whether what it waits for has ended.
const DRAIN_CHECK: Duration = Duration::from_millis(10);
/// Most rounds in one turn for what residents and devices give each other to do; the rest is for
/// the next turn, after events were read.
const ROUNDS: usize = 4;

/// A subsystem that is being removed.
struct Clearing {
    listing: Listing,
    since: Moment,
    reply: Reply<bool>,
}

/// What the workers of a server share.
pub(super) struct Common {
    pub(super) placement: Placement,
    pub(super) mailboxes: Vec<Mailbox<Mail>>,
}

pub(super) struct Worker {
    index: usize,
    common: Arc<Common>,
    handle: Handle,
    port: Port,
    core: Core,
    /// Staging memory, apart from the core's buffers: connections hold it for as long as they live.
    staging: BufferPool,
    sockets: Slab<Socket>,
    /// Socket of each connection.
    by_connection: Vec<Option<usize>>,
    listener: Option<File>,
    accept_again: Option<Moment>,
    /// No host gets in any more.
    turns_away: bool,
    /// Since when this core takes no more commands, and who waits for the last to be answered.
    quiescing: Vec<(Moment, Reply<bool>)>,
    stopping: Option<Moment>,
    /// Connections were closed because the server stops.
    closed_all: bool,
    clearing: Vec<Clearing>,
    now: Moment,
    /// There is more to do in the next turn, which does not wait.
    busy: bool,
    /// After the core, whose devices may use them.
    residents: Residents,
}

impl Worker {
    pub(super) fn new(index: usize, common: Arc<Common>, handle: &Handle, core: Core) -> Self {
        Self {
            index,
            common,
            port: handle.port(),
            handle: handle.clone(),
            core,
            staging: BufferPool::new(STAGING_LIMIT),
            sockets: Slab::new(),
            by_connection: Vec::new(),
            listener: None,
            accept_again: None,
            turns_away: false,
            quiescing: Vec::new(),
            stopping: None,
            closed_all: false,
            clearing: Vec::new(),
            now: handle.now(),
            busy: false,
            residents: Residents::default(),
        }
    }

    /// Starts accepting.
    pub(super) fn listen(&mut self, listener: OwnedFd) {
        if self.turns_away {
            return;
        }
        let listener = self.handle.adopt(listener);
        self.port.accept(&listener, ACCEPT_KEY);
        self.listener = Some(listener);
    }

    /// Serves until told to stop.
    pub(super) fn run(&mut self, reactor: &mut Reactor) -> io::Result<()> {
        loop {
            self.now = self.handle.now();
            self.read_mail();
            while let Some(event) = self.port.next() {
                self.event(event);
            }
            self.work();
            self.clear();
            self.answer_quiet();
            self.accept_if_rested();
            if self.is_stopped() {
                return Ok(());
            }
            reactor.handled(self.core.take_finished() + self.residents.take_handled());
            reactor.turn(self.deadline())?;
        }
    }

    /// Lets the core and the residents get on, until neither has given the other more to do.
    fn work(&mut self) {
        self.busy = false;
        for _ in 0..ROUNDS {
            self.core.take_submitted();
            self.residents.poll(self.now);
            self.core.poll(self.now);
            self.act();
            let again = if self.residents.is_empty() {
                // Input that `act` has fed may have gone to devices that were polled before.
                self.core.has_unpolled()
            } else {
                self.core.take_submitted()
            };
            if !again {
                return;
            }
        }
        self.busy = true;
    }

    fn deadline(&self) -> Option<Moment> {
        let drains =
            self.stopping.is_some() || !self.clearing.is_empty() || !self.quiescing.is_empty();
        let check = drains.then(|| self.now + DRAIN_CHECK);
        let at_once = self.busy.then_some(self.now);
        let core = self.core.next_deadline(self.now);
        let residents = self.residents.next_deadline();
        [core, residents, self.accept_again, check, at_once]
            .into_iter()
            .flatten()
            .min()
    }

    /// Answers for subsystems of which nothing is left here, or not in time.
    fn clear(&mut self) {
        for clearing in std::mem::take(&mut self.clearing) {
            let clear = self.core.is_clear_of(&clearing.listing);
            if clear || self.now.since(clearing.since) > STOP_LIMIT {
                clearing.reply.send(clear);
            } else {
                self.clearing.push(clearing);
            }
        }
    }

    /// Opens devices: all, or none.
    fn open(&mut self, devices: Vec<(usize, Arc<dyn Opener>)>) -> Result<(), IoError> {
        let handle = &self.handle;
        let open = |(number, opener): (usize, Arc<dyn Opener>)| Ok((number, opener.open(handle)?));
        let opened: Result<Vec<_>, IoError> = devices.into_iter().map(open).collect();
        for (number, device) in opened? {
            self.core.attach(number, device);
        }
        Ok(())
    }

    fn close_devices(&mut self, listing: Listing, reply: Reply<bool>) {
        for number in listing.devices() {
            self.core.detach(number);
        }
        self.clearing.push(Clearing {
            listing,
            since: self.now,
            reply,
        });
    }

    fn settle_in(&mut self, name: String, make: MakeResident) -> Result<(), IoError> {
        let resident = make(&self.handle)?;
        self.residents.settle(name, resident);
        Ok(())
    }

    /// Answers when nothing of hosts is with devices here, or not in time.
    fn answer_quiet(&mut self) {
        for (since, reply) in std::mem::take(&mut self.quiescing) {
            let quiet = self.core.is_quiet();
            if quiet || self.now.since(since) > STOP_LIMIT {
                reply.send(quiet);
            } else {
                self.quiescing.push((since, reply));
            }
        }
    }

    fn is_stopped(&mut self) -> bool {
        let Some(since) = self.stopping else {
            return false;
        };
        let waited = self.now.since(since);
        if !self.closed_all && (self.core.is_quiet() || waited > ANSWER_LIMIT) {
            self.close_all();
        }
        (self.closed_all && self.sockets.is_empty() && self.core.connections() == 0)
            || waited > STOP_LIMIT
    }

    fn read_mail(&mut self) {
        let mailbox = self.common.mailboxes[self.index].clone();
        while let Some(mail) = mailbox.take() {
            match mail {
                Mail::Adopt {
                    socket,
                    handoff,
                    early,
                    placed,
                } => {
                    self.adopt(socket, handoff, &early, placed);
                }
                Mail::Listen(listener) => self.listen(listener),
                Mail::Notice(notice) => self.core.notice(notice),
                Mail::Open(devices, reply) => reply.send(self.open(devices)),
                Mail::Close(listing, reply) => self.close_devices(listing, reply),
                Mail::SettleIn(name, make, reply) => reply.send(self.settle_in(name, make)),
                Mail::MoveOut(name, reply) => {
                    self.residents.leave(&name);
                    reply.send(());
                }
                Mail::TurnAway(reply) => {
                    self.turn_away();
                    reply.send(());
                }
                Mail::Quiesce(reply) => {
                    self.core.quiesce();
                    self.quiescing.push((self.now, reply));
                }
                Mail::Stop => self.stop(),
            }
        }
    }

    /// Hosts that come are refused by the kernel, and come again.
    fn turn_away(&mut self) {
        self.turns_away = true;
        if let Some(listener) = self.listener.take() {
            listener.shutdown();
        }
        self.core.turn_away();
        self.act();
    }

    /// What devices have is answered, then connections are closed.
    fn stop(&mut self) {
        if self.stopping.is_none() {
            self.stopping = Some(self.now);
        }
        self.turn_away();
        self.core.quiesce();
    }

    fn close_all(&mut self) {
        self.closed_all = true;
        let open: Vec<ConnectionId> = self.sockets.iter().map(|(_, s)| s.connection).collect();
        open.into_iter()
            .for_each(|connection| self.close(connection));
    }

    fn event(&mut self, event: Event) {
        let key = event.key as usize;
        match event.what {
            What::Accepted(Ok(socket)) => self.accepted(socket),
            What::Accepted(Err(_)) => self.accept_again = Some(self.now + ACCEPT_PAUSE),
            What::Received(result, frame, more) => self.received(key, result, frame, more),
            What::Sent(result, batch) => self.sent(key, result, batch),
            What::File(..) | What::Connected(_) | What::Readable(_) => {}
        }
    }

    fn accept_if_rested(&mut self) {
        if self.accept_again.is_some_and(|at| at <= self.now) {
            self.accept_again = None;
            if let Some(listener) = &self.listener {
                self.port.accept(listener, ACCEPT_KEY);
            }
        }
    }

    fn accepted(&mut self, socket: OwnedFd) {
        if self.turns_away {
            return;
        }
        let Ok(ends) = ends(&socket) else {
            return;
        };
        if watch_for_end(&socket).is_err() {
            return;
        }
        let file = self.handle.adopt(socket);
        let connection = self.core.accept(self.now, ends);
        if let Some(key) = self.insert(file, connection, GREETING_BYTES) {
            self.receive(key, true);
        }
    }

    /// Adds a socket, for [`receive`](Self::receive) to begin with. Without memory the connection
    /// is closed.
    fn insert(&mut self, file: File, connection: ConnectionId, staging: usize) -> Option<usize> {
        let Some(socket) = Socket::new(file, connection, &self.staging, staging) else {
            self.core.closed(connection);
            return None;
        };
        let key = self.sockets.insert(socket);
        let place = connection as usize;
        if self.by_connection.len() <= place {
            self.by_connection.resize(place + 1, None);
        }
        self.by_connection[place] = Some(key);
        Some(key)
    }

    fn adopt(&mut self, socket: OwnedFd, handoff: Handoff, early: &[u8], placed: bool) {
        let file = self.handle.adopt(socket);
        let connection = self.core.adopt(self.now, handoff);
        let Some(key) = self.insert(file, connection, QUEUE_BYTES.max(early.len())) else {
            if placed {
                self.common.placement.leave(self.index);
            }
            return;
        };
        let socket = &mut self.sockets[key];
        socket.placed = placed;
        if let Some(frame) = socket.frame.as_mut().filter(|_| !early.is_empty()) {
            frame.staging[..early.len()].copy_from_slice(early);
            socket.staged = 0..early.len();
        }
        if self.turns_away {
            return self.close(connection);
        }
        self.feed(key, true);
    }

    fn received(
        &mut self,
        key: usize,
        result: io::Result<usize>,
        mut frame: Box<RecvFrame>,
        more: bool,
    ) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        let connection = socket.connection;
        let direct_bytes = result.as_ref().map_or(0, |&bytes| frame.direct_part(bytes));
        let direct = frame.direct.take();
        // Only where the whole staging was on offer: a small one behind a payload fills easily.
        socket.cramped =
            direct.is_none() && result.as_ref().is_ok_and(|&n| n == frame.staging.len());
        socket.frame = Some(frame);
        if socket.closed {
            return self.forget_if_idle(key);
        }
        let bytes = match result {
            Ok(bytes) if bytes > 0 => bytes,
            _ => return self.close(connection),
        };
        if let Some((buffer, _)) = direct {
            self.core.direct_done(connection, buffer, direct_bytes);
        }
        self.sockets[key].staged = 0..bytes - direct_bytes;
        self.feed(key, !more);
    }

    /// Gives staged bytes to the connection, and receives more once it has taken them all.
    fn feed(&mut self, key: usize, expect_idle: bool) {
        let socket = &mut self.sockets[key];
        let connection = socket.connection;
        let Some(frame) = &socket.frame else { return };
        let mut input = &frame.staging[socket.staged.clone()];
        self.core.receive(self.now, connection, &mut input);
        socket.staged.start = socket.staged.end - input.len();
        self.receive(key, expect_idle);
    }

    fn receive(&mut self, key: usize, expect_idle: bool) {
        let socket = &mut self.sockets[key];
        let ready = socket.staged.is_empty() && !socket.closed && socket.moving.is_none();
        if !ready || !self.core.accepts_input(socket.connection) {
            return;
        }
        if std::mem::take(&mut socket.cramped) {
            self.make_room(key);
        }
        let socket = &mut self.sockets[key];
        let Some(mut frame) = socket.frame.take() else {
            return;
        };
        frame.direct = self.core.direct(socket.connection);
        let limit = frame.staging.len();
        frame.staging_limit = if frame.direct.is_some() {
            limit.min(DIRECT_STAGING)
        } else {
            limit
        };
        frame.expect_idle = expect_idle;
        self.port.recv(&socket.file, frame, key as u64);
    }

    fn sent(&mut self, key: usize, result: io::Result<()>, mut batch: Box<SendBatch>) {
        batch.gather.clear();
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        socket.batch = Some(batch);
        if socket.closed {
            return self.forget_if_idle(key);
        }
        let connection = socket.connection;
        if result.is_err() {
            return self.close(connection);
        }
        self.core.sent(self.now, connection);
        if let Some(to) = socket.moving {
            self.hand_over(key, to);
        }
    }

    /// Does what the core asks for, until it asks for nothing more.
    fn act(&mut self) {
        while let Some(action) = self.core.next_action() {
            match action {
                Action::Attend(connection) => self.attend(connection),
                Action::Place(connection, placing) => self.place(connection, placing),
                Action::Close(connection) => self.close(connection),
                Action::Notify(notice) => {
                    for mailbox in &self.common.mailboxes {
                        mailbox.post(Mail::Notice(notice));
                    }
                }
            }
        }
    }

    fn socket_of(&self, connection: ConnectionId) -> Option<usize> {
        *self.by_connection.get(connection as usize)?
    }

    fn attend(&mut self, connection: ConnectionId) {
        self.core.attended(connection);
        let Some(key) = self.socket_of(connection) else {
            return;
        };
        let socket = &mut self.sockets[key];
        if let Some(mut batch) = socket.batch.take() {
            if self.core.take_output(connection, &mut batch.gather) {
                self.port.send(&socket.file, batch, key as u64);
            } else {
                socket.batch = Some(batch);
            }
        }
        if self.core.is_finished(connection) {
            return self.close(connection);
        }
        if self.sockets[key].frame.is_some() {
            self.feed(key, true);
        }
    }

    fn place(&mut self, connection: ConnectionId, placing: Placing) {
        let Some(key) = self.socket_of(connection) else {
            return;
        };
        let socket = &mut self.sockets[key];
        if std::mem::take(&mut socket.placed) {
            // An earlier Connect of this connection was refused.
            self.common.placement.leave(self.index);
        }
        let core = self.common.placement.place(placing);
        socket.placed = placing.queue > 0;
        if core != self.index {
            socket.moving = Some(core);
            if socket.batch.is_some() {
                self.hand_over(key, core);
            }
            return;
        }
        if placing.queue > 0 {
            self.enlarge_staging(key);
        }
        self.core.connect(self.now, connection);
    }

    /// An I/O queue gets room for batches. Without memory it keeps what it has.
    fn enlarge_staging(&mut self, key: usize) {
        let socket = &mut self.sockets[key];
        // One whose Connect was refused before has had it.
        let frame = socket.frame.as_deref();
        let Some(frame) = frame.filter(|frame| frame.staging.len() < QUEUE_BYTES) else {
            return;
        };
        let Some(mut larger) = self.staging.get(QUEUE_BYTES) else {
            return;
        };
        larger[..frame.staging.len()].copy_from_slice(&frame.staging);
        socket.frame = Some(RecvFrame::new(larger));
    }

    /// An I/O queue that has filled its staging, now empty, gets more, while others can have some too.
    fn make_room(&mut self, key: usize) {
        let socket = &mut self.sockets[key];
        if !self.core.carries_io(socket.connection) {
            return;
        }
        let is_small = |frame: &&mut Box<RecvFrame>| frame.staging.len() == QUEUE_BYTES;
        let Some(frame) = socket.frame.as_mut().filter(is_small) else {
            return;
        };
        if self.staging.outstanding_bytes() > STAGING_LIMIT / 2 {
            return;
        }
        if let Some(larger) = self.staging.get(BUSY_QUEUE_BYTES) {
            *frame = RecvFrame::new(larger);
        }
    }

    fn hand_over(&mut self, key: usize, to: usize) {
        let socket = self.sockets.remove(key);
        self.by_connection[socket.connection as usize] = None;
        let early = match &socket.frame {
            Some(frame) => frame.staging[socket.staged.clone()].to_vec(),
            None => Vec::new(),
        };
        let duplicate = socket.file.duplicate();
        match (duplicate, self.core.hand_off(socket.connection)) {
            (Ok(fd), Some(handoff)) => {
                let placed = socket.placed;
                let mail = Mail::Adopt {
                    socket: fd,
                    handoff,
                    early,
                    placed,
                };
                self.common.mailboxes[to].post(mail);
            }
            // Without a descriptor the connection ends here.
            _ if socket.placed => self.common.placement.leave(to),
            _ => {}
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        let Some(key) = self.socket_of(connection) else {
            return;
        };
        self.by_connection[connection as usize] = None;
        let socket = &mut self.sockets[key];
        socket.closed = true;
        socket.file.shutdown();
        if std::mem::take(&mut socket.placed) {
            let core = socket.moving.unwrap_or(self.index);
            self.common.placement.leave(core);
        }
        self.core.closed(connection);
        self.forget_if_idle(key);
    }

    fn forget_if_idle(&mut self, key: usize) {
        if self.sockets[key].is_idle() {
            self.sockets.remove(key);
        }
    }
}

/// Has the kernel find out that a host is gone: a controller without a keep-alive does not.
fn watch_for_end(socket: &impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_keepidle(socket, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_tcp_user_timeout(socket, ACKNOWLEDGED_WITHIN.as_millis() as u32)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(())
}

fn ends(socket: &impl AsFd) -> io::Result<Ends> {
    let remote = SocketAddr::try_from(
        rustix::net::getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?,
    )?;
    Ok(Ends {
        local: SocketAddr::try_from(rustix::net::getsockname(socket)?)?,
        remote: remote.ip().to_canonical(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A host whose machine is gone with an answer under way is asked nothing.
    #[test]
    fn a_host_that_acknowledges_nothing_is_given_up_as_one_that_says_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let _host = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (socket, _) = listener.accept().expect("accepted");
        watch_for_end(&socket).expect("set");
        assert_eq!(sockopt::socket_keepalive(&socket), Ok(true));
        let silent = PROBE_AFTER + PROBE_INTERVAL * PROBES;
        let given_up = sockopt::tcp_user_timeout(&socket).expect("read");
        assert_eq!(Duration::from_millis(given_up.into()), silent);
    }
}
