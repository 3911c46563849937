//! The target: its cores, driven as the real worker drives them, over simulated connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BlockDevice, BufferPool, Gather, IoBuffer, Moment, REGION_BYTES};
use ashlar_nvme_target::{
    Action, ConnectionId, Core, Ends, Handoff, HostAccess, NamespaceConfig, Notice,
    SubsystemConfig, Target, Timeouts,
};
use uuid::Uuid;

use crate::env::{Env, Receive, Sending};
use crate::medium::{Shared, SimDevice};
use crate::net::LinkId;
use crate::profile::Canary;

/// The subsystem of every world.
pub(crate) const NQN: &str = "nqn.2026-11.sim.ashlar:one";
const TIMEOUTS: Timeouts = Timeouts {
    handshake: Duration::from_secs(2),
    stall: Duration::from_secs(3),
};
/// Longest time that mail between cores takes.
const MAIL_DELAY: Duration = Duration::from_millis(2);

struct Socket {
    link: LinkId,
    staged: Vec<u8>,
    receive: Option<Receive>,
    sending: Option<Sending>,
    moving: Option<usize>,
}

enum Mail {
    Adopt(LinkId, Handoff, Vec<u8>),
    Notice(Notice),
}

struct Worker {
    core: Core,
    pool: BufferPool,
    sockets: BTreeMap<ConnectionId, Socket>,
    mail: BTreeMap<(Moment, u64), Mail>,
    paused: Moment,
}

/// A running target process.
pub(crate) struct Cores {
    workers: Vec<Worker>,
    medium: Shared,
    posted: u64,
    leaked: Vec<IoBuffer>,
}

impl Cores {
    /// Starts a target over `medium`.
    pub(crate) fn start(env: &mut Env<'_>, medium: &Shared, count: usize) -> Result<Self, String> {
        let subsystem = SubsystemConfig {
            nqn: NQN.into(),
            namespaces: vec![NamespaceConfig {
                geometry: medium.borrow().geometry,
                uuid: Uuid::from_u128(0x000a_51a6),
                reservations: None,
            }],
            access: HostAccess::Any,
            advertise: None,
            shared: None,
        };
        let target = Target::new(vec![subsystem], TIMEOUTS).map_err(|error| error.to_string())?;
        // Runs begin at different times, and none makes as many controllers as it lasts nanoseconds.
        let target = Arc::new(target.with_run(env.now.as_nanos()));
        let worker = |index| {
            let pool = BufferPool::new(env.profile.pool_regions * REGION_BYTES);
            let device = SimDevice::new(medium.clone(), index, env.chance.fork());
            let devices: Vec<Box<dyn BlockDevice>> = vec![Box::new(device)];
            Worker {
                core: Core::new(target.clone(), devices, pool.clone()),
                pool,
                sockets: BTreeMap::new(),
                mail: BTreeMap::new(),
                paused: Moment::ORIGIN,
            }
        };
        let workers = (0..count).map(worker).collect();
        Ok(Self {
            workers,
            medium: medium.clone(),
            posted: 0,
            leaked: Vec::new(),
        })
    }

    /// Connections that the cores still know.
    pub(crate) fn connections(&self) -> usize {
        let mail = |worker: &Worker| {
            let adopt = |mail: &&Mail| matches!(mail, Mail::Adopt(..));
            worker.mail.values().filter(adopt).count()
        };
        self.workers
            .iter()
            .map(|worker| worker.core.connections() + mail(worker))
            .sum()
    }

    /// Bytes of buffers that have not come back.
    pub(crate) fn outstanding_bytes(&self) -> usize {
        self.workers
            .iter()
            .map(|worker| worker.pool.outstanding_bytes())
            .sum()
    }

    /// The links that are open here.
    pub(crate) fn links(&self) -> Vec<LinkId> {
        let sockets = self
            .workers
            .iter()
            .flat_map(|worker| worker.sockets.values());
        let mails = self.workers.iter().flat_map(|worker| worker.mail.values());
        let adopted = mails.filter_map(|mail| match mail {
            Mail::Adopt(link, ..) => Some(*link),
            Mail::Notice(_) => None,
        });
        sockets.map(|socket| socket.link).chain(adopted).collect()
    }

    /// A core gets no processor for a while.
    pub(crate) fn pause(&mut self, env: &mut Env<'_>) {
        let index = env.chance.below(self.workers.len() as u64) as usize;
        let until = env.now + env.chance.time(Duration::from_secs(4));
        env.trace.say(env.now, || format!("core {index} pauses"));
        self.workers[index].paused = until;
    }

    /// Takes a new connection.
    pub(crate) fn accept(&mut self, env: &mut Env<'_>, link: LinkId) {
        let index = env.chance.below(self.workers.len() as u64) as usize;
        let worker = &mut self.workers[index];
        let ends = Ends {
            local: SocketAddr::from(([10, 0, 0, 1], 4420)),
            remote: [10, 0, 0, 2].into(),
        };
        let connection = worker.core.accept(env.now, ends);
        env.trace.say(env.now, || {
            format!("link {link} accepted by core {index}: {connection}")
        });
        self.medium.borrow_mut().closed.remove(&(index, connection));
        if env.profile.canary == Some(Canary::LeakedBuffer) && env.chance.happens(100) {
            self.leaked.extend(worker.pool.get(4096));
        }
        worker.insert(link, connection, Vec::new());
    }

    /// Gives every core a turn, in any order. True if anything happened.
    pub(crate) fn turn(&mut self, env: &mut Env<'_>) -> bool {
        let count = self.workers.len();
        let first = env.chance.below(count as u64) as usize;
        let mut news = false;
        for index in (0..count).map(|at| (at + first) % count) {
            if self.workers[index].paused <= env.now {
                news |= self.turn_one(env, index);
            }
        }
        news
    }

    fn turn_one(&mut self, env: &mut Env<'_>, index: usize) -> bool {
        let mut news = self.read_mail(env, index);
        let ids: Vec<ConnectionId> = self.workers[index].sockets.keys().copied().collect();
        for id in ids {
            news |= self.send(env, index, id);
            news |= self.receive(env, index, id);
        }
        self.workers[index].core.poll(env.now);
        while let Some(action) = self.workers[index].core.next_action() {
            news |= self.act(env, index, action);
        }
        news
    }

    fn read_mail(&mut self, env: &mut Env<'_>, index: usize) -> bool {
        let mut news = false;
        let worker = &mut self.workers[index];
        while let Some(first) = worker.mail.first_entry().filter(|e| e.key().0 <= env.now) {
            news = true;
            match first.remove() {
                Mail::Notice(notice) => worker.core.notice(notice),
                Mail::Adopt(link, handoff, early) => {
                    let connection = worker.core.adopt(env.now, handoff);
                    env.trace.say(env.now, || {
                        format!("link {link} on core {index}: {connection}")
                    });
                    self.medium.borrow_mut().closed.remove(&(index, connection));
                    worker.insert(link, connection, early);
                }
            }
        }
        news
    }

    fn post(&mut self, env: &mut Env<'_>, index: usize, mail: Mail) {
        let at = env.now + env.chance.time(MAIL_DELAY);
        self.posted += 1;
        self.workers[index].mail.insert((at, self.posted), mail);
    }

    /// Does what a core asks for. True if that changed anything.
    fn act(&mut self, env: &mut Env<'_>, index: usize, action: Action) -> bool {
        match action {
            Action::Attend(id) => return self.attend(env, index, id),
            Action::Place(id, placing) => self.place(env, index, id, placing.queue),
            Action::Close(id) => self.close(env, index, id),
            Action::Notify(notice) => {
                for to in 0..self.workers.len() {
                    self.post(env, to, Mail::Notice(notice));
                }
            }
        }
        true
    }

    fn attend(&mut self, env: &mut Env<'_>, index: usize, id: ConnectionId) -> bool {
        let worker = &mut self.workers[index];
        worker.core.attended(id);
        let fed = worker.feed(env.now, id);
        let sent = self.send(env, index, id);
        let finished = self.workers[index].core.is_finished(id);
        if finished {
            self.close(env, index, id);
        }
        fed || sent || finished
    }

    fn place(&mut self, env: &mut Env<'_>, index: usize, id: ConnectionId, qid: u16) {
        let to = env.chance.below(self.workers.len() as u64) as usize;
        let worker = &mut self.workers[index];
        let Some(socket) = worker.sockets.get_mut(&id) else {
            return;
        };
        let link = socket.link;
        env.trace.say(env.now, || {
            format!("link {link} is queue {qid}: to core {to}")
        });
        if to == index {
            return worker.core.connect(env.now, id);
        }
        socket.moving = Some(to);
        if socket.sending.is_none() {
            self.hand_over(env, index, id, to);
        }
    }

    fn hand_over(&mut self, env: &mut Env<'_>, index: usize, id: ConnectionId, to: usize) {
        let worker = &mut self.workers[index];
        let Some(socket) = worker.sockets.remove(&id) else {
            return;
        };
        if let Some(handoff) = worker.core.hand_off(id) {
            self.post(env, to, Mail::Adopt(socket.link, handoff, socket.staged));
        }
    }

    fn close(&mut self, env: &mut Env<'_>, index: usize, id: ConnectionId) {
        let worker = &mut self.workers[index];
        let Some(socket) = worker.sockets.remove(&id) else {
            return;
        };
        let link = socket.link;
        env.trace
            .say(env.now, || format!("link {link} closed by the target"));
        env.net.close_target(env.now, &mut env.chance, link);
        if env.profile.canary == Some(Canary::NoDrain) {
            self.medium.borrow_mut().closed.insert((index, id));
        }
        let forget = env.profile.canary == Some(Canary::ForgottenClose);
        if !(forget && env.chance.happens(100)) {
            worker.core.closed(id);
        }
    }

    fn send(&mut self, env: &mut Env<'_>, index: usize, id: ConnectionId) -> bool {
        let worker = &mut self.workers[index];
        let Some(socket) = worker.sockets.get_mut(&id) else {
            return false;
        };
        if socket.sending.is_none() {
            let mut batch = Gather::default();
            if socket.moving.is_some() || !worker.core.take_output(id, &mut batch) {
                return false;
            }
            socket.sending = Some(Sending::new(batch));
        }
        let (Some(sending), Some(link)) = (&mut socket.sending, env.net.link(socket.link)) else {
            return false;
        };
        let bytes = sending.next(link.to_host.room());
        link.to_host.send(env.now, &mut env.chance, &bytes);
        if sending.is_done() {
            socket.sending = None;
            let moving = socket.moving;
            worker.core.sent(env.now, id);
            if let Some(to) = moving {
                self.hand_over(env, index, id, to);
            }
        }
        !bytes.is_empty()
    }

    fn receive(&mut self, env: &mut Env<'_>, index: usize, id: ConnectionId) -> bool {
        let worker = &mut self.workers[index];
        worker.start_receive(env, id);
        let Some(socket) = worker.sockets.get_mut(&id) else {
            return false;
        };
        let Some(link) = env.net.link(socket.link) else {
            self.close(env, index, id);
            return true;
        };
        if socket.receive.is_none() || !link.to_target.is_readable() {
            return false;
        }
        let Some(mut receive) = socket.receive.take() else {
            return false;
        };
        if link.to_target.ended().is_some() {
            self.close(env, index, id);
            return true;
        }
        let staging = env.chance.size(32 << 10);
        let bytes = link.to_target.take(receive.room() + staging);
        let placed = receive.place(&bytes, 0);
        if let Some((buffer, _)) = receive.direct {
            worker.core.direct_done(id, buffer, placed);
        }
        socket.staged = bytes[placed..].to_vec();
        worker.feed(env.now, id);
        true
    }

    /// When a core must have a turn.
    pub(crate) fn next(&self, now: Moment) -> Option<Moment> {
        let worker = |worker: &Worker| {
            let mail = worker.mail.keys().next().map(|(at, _)| *at);
            let core = worker.core.next_deadline(now);
            let due = [mail, core].into_iter().flatten().min();
            let paused = Some(worker.paused).filter(|until| *until > now);
            [due.map(|at| at.max(worker.paused)), paused]
                .into_iter()
                .flatten()
                .min()
        };
        self.workers.iter().filter_map(worker).min()
    }
}

impl Worker {
    fn insert(&mut self, link: LinkId, connection: ConnectionId, staged: Vec<u8>) {
        let socket = Socket {
            link,
            staged,
            receive: None,
            sending: None,
            moving: None,
        };
        self.sockets.insert(connection, socket);
    }

    /// Gives staged bytes to the connection. True if it took some.
    fn feed(&mut self, now: Moment, id: ConnectionId) -> bool {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return false;
        };
        if socket.receive.is_some() {
            return false;
        }
        let mut input = &socket.staged[..];
        self.core.receive(now, id, &mut input);
        let taken = socket.staged.len() - input.len();
        socket.staged.drain(..taken);
        taken > 0
    }

    fn start_receive(&mut self, env: &mut Env<'_>, id: ConnectionId) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        let idle = socket.receive.is_none() && socket.moving.is_none();
        if idle && !socket.staged.is_empty() {
            self.feed(env.now, id);
        }
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        if !idle || !socket.staged.is_empty() || !self.core.accepts_input(id) {
            return;
        }
        let direct = if env.chance.happens(800) {
            self.core.direct(id)
        } else {
            None
        };
        socket.receive = Some(Receive { direct });
    }
}
