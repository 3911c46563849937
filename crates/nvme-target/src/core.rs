mod labels;
mod visitors;

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BlockDevice, BufferPool, Completion, Gather, IoBuffer, Moment};
use ashlar_nvme::Status;
use slab::Slab;

use crate::connection::{Connection, Context, Ends};
use crate::controller::{Controller, Role};
use crate::devices::Devices;
use crate::fabrics::{self, Verdict};
use crate::roster::Listing;
use crate::shares::{AccountId, Charge, Shares, UNLISTED};
use crate::target::Target;

/// How often idle connections are looked at.
const TICK: Duration = Duration::from_millis(500);
/// The same while some wait for buffers.
const STARVING_TICK: Duration = Duration::from_millis(100);
/// How often those that wait for buffers are tried although no more are free.
const FEED_RETRY: Duration = Duration::from_millis(10);
/// One that has waited for buffers for so long, and got none, takes them from those that hold theirs and
/// do not get on.
const HUNGER_LIMIT: Duration = Duration::from_millis(250);
/// Most connections that are closed for that in one tick.
const MOST_EVICTED: usize = 16;
/// How often a Connect or a reset that waits for old commands is looked at.
const CONNECT_RETRY: Duration = Duration::from_millis(1);

/// A connection's number on its core.
pub type ConnectionId = u32;

/// What the core wants its driver to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The connection has output, or takes input again.
    Attend(ConnectionId),
    /// A Connect has arrived: choose a core for its queue, then [`Core::connect`] it here, or
    /// [`Core::hand_off`] it and [`Core::adopt`] it there.
    Place(ConnectionId, Placing),
    /// Close the socket, then call [`Core::closed`].
    Close(ConnectionId),
    /// Tell every core, this one too.
    Notify(Notice),
}

/// What a core is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing {
    /// The queue's number: 0 for an admin queue.
    pub queue: u16,
    /// The only core that an I/O queue may go to, if there is one ([`Shared::core`](crate::Shared::core)).
    pub only: Option<usize>,
}

/// News between cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An association has ended or was reset: look for queues that must go.
    Reap,
    /// Asynchronous events wait to be delivered.
    Events,
}

/// How long a connection that the target ends may take to answer what devices have.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection on its way from one core to another.
pub struct Handoff(Box<Connection>);

/// One thread's share of the target: its connections and its opened devices. A state machine: its
/// driver moves bytes and owns the clock.
pub struct Core {
    target: Arc<Target>,
    devices: Devices,
    buffers: BufferPool,
    share: usize,
    shares: Shares,
    connections: Slab<Box<Connection>>,
    actions: VecDeque<Action>,
    /// Connections that wait for buffers.
    starving: Vec<ConnectionId>,
    /// Free bytes of buffers with which none of those could be served.
    too_few: usize,
    starving_accounts: BTreeSet<AccountId>,
    /// When they are tried again all the same.
    next_feed: Moment,
    /// Connections whose Connect waits for the host's old commands.
    waiting: Vec<ConnectionId>,
    /// Connections with Cross-Controller Resets that wait for another association's end.
    resetting: Vec<ConnectionId>,
    done: Vec<Completion>,
    /// Device requests completed since the driver last asked.
    finished: usize,
    next_tick: Moment,
    /// No host gets in any more.
    turns_away: bool,
    /// The last tick judged no host.
    overslept: bool,
}

impl Core {
    /// A core of `target` with its own opened `devices`, in the order of the namespaces.
    pub fn new(
        target: Arc<Target>,
        devices: Vec<Box<dyn BlockDevice>>,
        buffers: BufferPool,
    ) -> Self {
        let capacity = buffers.max_regions() * ashlar_block::REGION_BYTES;
        Self {
            target,
            devices: Devices::new(devices),
            share: (capacity / 8).max(4 << 20),
            shares: Shares::new(capacity),
            buffers,
            connections: Slab::new(),
            actions: VecDeque::new(),
            starving: Vec::new(),
            too_few: 0,
            starving_accounts: BTreeSet::new(),
            next_feed: Moment::ORIGIN,
            waiting: Vec::new(),
            resetting: Vec::new(),
            done: Vec::new(),
            finished: 0,
            next_tick: Moment::ORIGIN,
            turns_away: false,
            overslept: false,
        }
    }

    /// Opens the device of this number here ([`Listing::devices`]). One that was there is replaced:
    /// it finishes what it has.
    pub fn attach(&mut self, number: usize, device: Box<dyn BlockDevice>) {
        self.devices.attach(number, device);
    }

    /// Takes the device of this number away; it finishes what it has.
    pub fn detach(&mut self, number: usize) {
        self.devices.detach(number);
    }

    /// From now on no host gets in. A connection that is no queue's yet is closed without an answer: a
    /// host that hears nothing comes again, and one that is told of a subsystem that has gone does not.
    pub fn turn_away(&mut self) {
        self.turns_away = true;
        let strangers = self.connections.iter().filter(|(_, c)| c.queue.is_none());
        let ids = strangers.map(|(id, _)| id as ConnectionId);
        self.actions.extend(ids.map(Action::Close));
    }

    /// From now on no command is taken. What devices have is answered; connections stay until they are
    /// closed.
    pub fn quiesce(&mut self) {
        for (_, connection) in &mut self.connections {
            connection.quiesce();
        }
    }

    /// Whether devices have nothing of any host, and every answer was sent.
    pub fn is_quiet(&self) -> bool {
        self.connections.iter().all(|(_, one)| one.is_quiet())
    }

    /// Whether nothing is left here of a subsystem: no connection, and no device.
    pub fn is_clear_of(&self, listing: &Listing) -> bool {
        let belongs = |connection: &Connection| {
            connection.queue.as_ref().is_some_and(
                |queue| matches!(&queue.controller.role, Role::Io(s) if Arc::ptr_eq(s, &listing.0)),
            )
        };
        let mut numbers = listing.devices().into_iter();
        numbers.all(|number| self.devices.is_vacant(number))
            && !self.connections.iter().any(|(_, c)| belongs(c))
    }

    /// Whether devices were given something since the last call.
    pub fn take_submitted(&mut self) -> bool {
        self.devices.take_submitted()
    }

    /// Whether devices were given something since they were last polled.
    pub fn has_unpolled(&self) -> bool {
        self.devices.unpolled()
    }

    /// A new connection.
    pub fn accept(&mut self, now: Moment, ends: Ends) -> ConnectionId {
        self.target.count_connection();
        let entry = self.connections.vacant_entry();
        let id = entry.key() as ConnectionId;
        entry.insert(Box::new(Connection::new(id, ends, now)));
        self.bound_visitors(ends.remote);
        id
    }

    /// How many connections there are, closed ones with commands in devices included.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Takes a connection off this core, its Connect undecided.
    pub fn hand_off(&mut self, id: ConnectionId) -> Option<Handoff> {
        let mut connection = self.connections.try_remove(id as usize)?;
        connection.noted = false;
        let charged = connection.set_charged(Charge::default());
        self.shares
            .charge(connection.account, charged, Charge::default());
        self.forget_actions(id);
        Some(Handoff(connection))
    }

    /// Takes a connection over and decides its Connect.
    pub fn adopt(&mut self, now: Moment, handoff: Handoff) -> ConnectionId {
        let entry = self.connections.vacant_entry();
        let id = entry.key() as ConnectionId;
        let mut connection = handoff.0;
        connection.renumber(id);
        entry.insert(connection);
        self.connect(now, id);
        // What it has had to say since before the move.
        self.after(id);
        id
    }

    /// Decides a Connect here.
    pub fn connect(&mut self, now: Moment, id: ConnectionId) {
        if !self.try_connect(now, id) && !self.waiting.contains(&id) {
            self.waiting.push(id);
        }
    }

    fn try_connect(&mut self, now: Moment, id: ConnectionId) -> bool {
        if self.turns_away {
            self.actions.push_back(Action::Close(id));
            return true;
        }
        let Some((connection, ctx)) = self.split(id, now) else {
            return true;
        };
        let Some((index, command, data)) = connection.pending_connect() else {
            return true;
        };
        match fabrics::connect(&ctx, &command, data) {
            Verdict::Wait => return false,
            Verdict::Connected(queue) => {
                let cntlid = u64::from(queue.controller.id);
                let host = queue.controller.clone();
                host.join();
                connection.attach(queue);
                connection.ask_first_labels(ctx.devices);
                connection.complete(index, Status::SUCCESS, cntlid);
                connection.connect = None;
                self.open_account(id, &host);
                self.note(id);
                return true;
            }
            Verdict::Refused(status, result) => {
                connection.complete(index, status, result);
            }
        }
        connection.connect = None;
        self.note(id);
        true
    }

    /// From now on the connection's buffers count to its host's share, if a list names it.
    fn open_account(&mut self, id: ConnectionId, controller: &Controller) {
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return;
        };
        let host = &controller.host.nqn;
        let is_named = match &controller.role {
            Role::Io(subsystem) => subsystem.names(host),
            Role::Discovery => false,
        };
        if !is_named {
            return;
        }
        let charged = connection.set_charged(Charge::default());
        self.shares.charge(UNLISTED, charged, Charge::default());
        connection.account = self.shares.open(host);
        self.recharge(id);
    }

    /// Counts what the connection holds.
    fn recharge(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id as usize) {
            let now = connection.charge();
            let before = connection.set_charged(now);
            self.shares.charge(connection.account, before, now);
            if now.bytes < before.bytes && self.starving_accounts.contains(&connection.account) {
                self.too_few = 0;
            }
        }
    }

    /// Whether more bytes of the connection may be received now.
    pub fn accepts_input(&self, id: ConnectionId) -> bool {
        self.connections
            .get(id as usize)
            .is_some_and(|connection| connection.accepts_input())
    }

    /// Whether a connection has an I/O queue: one whose Connect was refused has none.
    pub fn carries_io(&self, id: ConnectionId) -> bool {
        let connection = self.connections.get(id as usize);
        connection.is_some_and(|one| one.carries_io())
    }

    /// Gives received bytes to a connection, which takes from `input` what it can.
    pub fn receive(&mut self, now: Moment, id: ConnectionId, input: &mut &[u8]) {
        let Some((connection, mut ctx)) = self.split(id, now) else {
            return;
        };
        if let Err(fatal) = connection.receive(&mut ctx, input) {
            connection.terminate(fatal);
        }
        if let Some(placing) = connection.take_placement(ctx.target) {
            self.actions.push_back(Action::Place(id, placing));
        }
        self.after(id);
    }

    /// Looks at what a connection's state machine has left to do for the core.
    fn after(&mut self, id: ConnectionId) {
        self.recharge(id);
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return;
        };
        if std::mem::take(&mut connection.queues_must_go) {
            self.actions.push_back(Action::Notify(Notice::Reap));
        }
        let wants_proof = connection.ask_for_proof(&mut self.devices);
        if std::mem::take(&mut connection.news) || wants_proof {
            self.actions.push_back(Action::Notify(Notice::Events));
        }
        if connection.is_starved() && !self.starving.contains(&id) {
            self.starving.push(id);
            // It has not been tried among the others.
            self.too_few = 0;
        }
        if connection.waiting_resets() > 0 && !self.resetting.contains(&id) {
            self.resetting.push(id);
        }
        // While a batch is in flight there is nothing for the driver to do: `sent` comes back here.
        if connection.has_output() || connection.is_finished() {
            self.note(id);
        }
    }

    /// Asks the driver to look at the connection, once.
    fn note(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return;
        };
        if !std::mem::replace(&mut connection.noted, true) {
            self.actions.push_back(Action::Attend(id));
        }
    }

    /// A large payload's destination, to be received into directly, and the missing part of it.
    pub fn direct(&mut self, id: ConnectionId) -> Option<(IoBuffer, Range<usize>)> {
        self.connections.get_mut(id as usize)?.direct()
    }

    /// `bytes` were received into the buffer that [`direct`](Self::direct) gave.
    pub fn direct_done(&mut self, id: ConnectionId, buffer: IoBuffer, bytes: usize) {
        if let Some(connection) = self.connections.get_mut(id as usize) {
            connection.direct_done(buffer, bytes);
        }
    }

    /// Swaps the connection's output against the empty `batch`; false if there is nothing to send
    /// or a batch is in flight.
    pub fn take_output(&mut self, id: ConnectionId, batch: &mut Gather) -> bool {
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return false;
        };
        connection.take_output(batch)
    }

    /// The driver is looking at the connection: later changes ask for attention again.
    pub fn attended(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id as usize) {
            connection.noted = false;
        }
    }

    /// The batch was sent.
    pub fn sent(&mut self, now: Moment, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return;
        };
        connection.sent(now);
        if connection.is_finished() {
            self.actions.push_back(Action::Close(id));
        }
        self.after(id);
    }

    /// Whether the connection has said its last words.
    pub fn is_finished(&self, id: ConnectionId) -> bool {
        self.connections
            .get(id as usize)
            .is_some_and(|connection| connection.is_finished())
    }

    /// The socket is closed.
    pub fn closed(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return;
        };
        connection.close();
        connection.report_work();
        self.recharge(id);
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return;
        };
        if let Some(queue) = &connection.queue {
            let controller = &queue.controller;
            if queue.id > 0 {
                controller.drain_queue(queue.id);
            } else if controller.end() {
                if let Role::Io(subsystem) = &controller.role {
                    subsystem.remove_controller(controller.id);
                }
                self.actions.push_back(Action::Notify(Notice::Reap));
            }
        }
        self.remove_if_gone(id);
    }

    fn remove_if_gone(&mut self, id: ConnectionId) {
        if !self
            .connections
            .get(id as usize)
            .is_some_and(|connection| connection.is_gone())
        {
            return;
        }
        let mut connection = self.connections.remove(id as usize);
        connection.report_work();
        let charged = connection.set_charged(Charge::default());
        self.shares
            .charge(connection.account, charged, Charge::default());
        self.shares.close(connection.account);
        if let Some(queue) = &connection.queue {
            Self::leave(&mut self.devices, queue);
        }
        self.starving.retain(|&other| other != id);
        self.waiting.retain(|&other| other != id);
        self.resetting.retain(|&other| other != id);
        self.forget_actions(id);
    }

    /// Numbers are used again: what was asked for one connection must not befall the next.
    fn forget_actions(&mut self, id: ConnectionId) {
        self.actions.retain(|action| match *action {
            Action::Attend(other) | Action::Place(other, _) | Action::Close(other) => other != id,
            Action::Notify(_) => true,
        });
    }

    /// Polls the devices, answers what is done, feeds what waits, and looks at the clock.
    pub fn poll(&mut self, now: Moment) {
        loop {
            let mut done = std::mem::take(&mut self.done);
            self.devices.poll(now, &mut done);
            let idle = done.is_empty();
            self.finished += done.len();
            for completion in done.drain(..) {
                self.completed(completion);
            }
            self.done = done;
            self.feed(now);
            if idle && !self.devices.unpolled() {
                break;
            }
        }
        self.retry_connects(now);
        self.answer_resets();
        if now >= self.next_tick {
            self.tick(now);
        }
    }

    /// How many device requests have completed since the last call.
    pub fn take_finished(&mut self) -> usize {
        std::mem::take(&mut self.finished)
    }

    fn completed(&mut self, completion: Completion) {
        let id = (completion.tag >> 32) as ConnectionId;
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return;
        };
        if connection.completed(completion) {
            self.remove_if_gone(id);
        } else {
            self.after(id);
        }
    }

    /// Serves those that wait for buffers, in rounds of one command each: first those that give back what
    /// they are lent, then whose host holds least, then who holds least itself.
    fn feed(&mut self, now: Moment) {
        let free = self.free();
        let is_worth_it = free > self.too_few || now >= self.next_feed;
        if self.starving.is_empty() || !is_worth_it {
            return;
        }
        loop {
            let mut line = std::mem::take(&mut self.starving);
            line.retain(|&id| self.connections.contains(id as usize));
            line.sort_by_cached_key(|&id| {
                let one = &self.connections[id as usize];
                (!one.pays(), self.shares.in_use(one.account), one.in_use())
            });
            let mut served = false;
            for id in line {
                served |= self.feed_one(now, id);
            }
            if !served || self.starving.is_empty() {
                break;
            }
        }
        let accounts = self.starving.iter();
        let accounts = accounts.filter_map(|&id| self.connections.get(id as usize));
        self.starving_accounts = accounts.map(|one| one.account).collect();
        self.too_few = self.free();
        self.next_feed = now + FEED_RETRY;
        self.next_tick = self.next_tick.min(now + STARVING_TICK);
    }

    /// Serves one command of a connection; true if that could be done. It stays in line if it has more.
    fn feed_one(&mut self, now: Moment, id: ConnectionId) -> bool {
        let Some((connection, mut ctx)) = self.split(id, now) else {
            return false;
        };
        let had_to_wait = !connection.accepts_input();
        let served = connection.feed(&mut ctx);
        let takes_input_again = had_to_wait && connection.accepts_input();
        if connection.is_starved() {
            connection.hungry_for(now);
            self.starving.push(id);
        }
        if takes_input_again {
            self.note(id);
        }
        self.after(id);
        served
    }

    /// Bytes of buffers that nothing holds.
    fn free(&self) -> usize {
        let capacity = self.buffers.max_regions() * ashlar_block::REGION_BYTES;
        capacity.saturating_sub(self.buffers.outstanding_bytes())
    }

    /// Closes connections that hold buffers and do not get on, if another has waited too long for one: the
    /// one that holds most first.
    fn evict(&mut self, now: Moment) {
        let mut accounts = BTreeSet::new();
        for &id in &self.starving {
            if let Some(connection) = self.connections.get_mut(id as usize)
                && connection.hungry_for(now) > HUNGER_LIMIT
                && !connection.is_slow(now)
            {
                accounts.insert(connection.account);
            }
        }
        if accounts.is_empty() {
            return;
        }
        let scarce = self.shares.is_scarce(self.free());
        let holds = |(id, one): (usize, &Connection)| {
            let matters = scarce || accounts.contains(&one.account);
            (matters && one.in_use() > 0 && one.is_slow(now))
                .then(|| (Reverse(one.in_use()), id as ConnectionId))
        };
        let connections = self.connections.iter().map(|(id, one)| (id, &**one));
        let mut slow: Vec<_> = connections.filter_map(holds).collect();
        slow.sort_unstable();
        for &(Reverse(bytes), id) in slow.iter().take(MOST_EVICTED) {
            self.log_eviction(id, bytes);
            self.actions.push_back(Action::Close(id));
        }
    }

    fn log_eviction(&self, id: ConnectionId, bytes: usize) {
        let connection = self.connections.get(id as usize);
        let host = connection.and_then(|one| one.queue.as_ref());
        let host = host.map_or("", |queue| queue.controller.host.nqn.as_str());
        tracing::warn!(
            host,
            bytes,
            "a connection of host {host:?} is closed: it holds {bytes} bytes of buffers, sends or takes \
             next to nothing, and others wait for them"
        );
    }

    fn retry_connects(&mut self, now: Moment) {
        for id in std::mem::take(&mut self.waiting) {
            if !self.try_connect(now, id) {
                self.waiting.push(id);
            }
        }
    }

    fn answer_resets(&mut self) {
        for id in std::mem::take(&mut self.resetting) {
            let Some(connection) = self.connections.get_mut(id as usize) else {
                continue;
            };
            if connection.answer_resets() {
                self.resetting.push(id);
            }
            self.after(id);
        }
    }

    /// Closes connections that keep the target waiting, and associations that have gone silent.
    fn tick(&mut self, now: Moment) {
        let overslept = self.has_overslept(now);
        let pause = match self.starving.is_empty() {
            true => TICK,
            false => STARVING_TICK,
        };
        self.next_tick = now + pause;
        if overslept {
            // What they have sent meanwhile was not read.
            self.connections
                .iter_mut()
                .for_each(|(_, one)| one.excuse());
            return;
        }
        let timeouts = self.target.timeouts;
        let before = |age: Duration| {
            Moment::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64))
        };
        self.ask_labels();
        self.refuse_waiting(now, before(timeouts.handshake));
        self.evict(now);
        for (id, connection) in &mut self.connections {
            connection.report_work();
            let expired = connection.queue.as_ref().is_some_and(|queue| {
                // One that is not listened to cannot give a sign of life.
                connection.is_open()
                    && queue.id == 0
                    && queue.controller.expires().is_some_and(|at| at < now)
            });
            if expired
                || connection.is_loitering(before(timeouts.handshake))
                || connection.is_stalled(now, timeouts.stall)
                || connection.is_overdue(now, FAREWELL)
                || connection.lacks_proof(now)
            {
                self.actions.push_back(Action::Close(id as ConnectionId));
            }
        }
    }

    /// Whether this core was away itself (stopped, or without a processor): what hosts sent meanwhile
    /// may not have been read yet, a keep-alive among it. They are judged at the next tick then,
    /// however late that one is.
    fn has_overslept(&mut self, now: Moment) -> bool {
        self.overslept = !self.overslept && now > self.next_tick + TICK;
        self.overslept
    }

    /// A host whose old commands do not end is told to come again: it may have left meanwhile, and
    /// a connection that waits does not notice.
    fn refuse_waiting(&mut self, now: Moment, since: Moment) {
        for id in std::mem::take(&mut self.waiting) {
            let Some(connection) = self.connections.get_mut(id as usize) else {
                continue;
            };
            if connection.refuse_if_older(now, since) {
                self.note(id);
            } else {
                self.waiting.push(id);
            }
        }
    }

    /// Takes news from any core.
    pub fn notice(&mut self, notice: Notice) {
        if notice == Notice::Events {
            // Paths may have changed, and labels with them: hosts prove themselves by what they are told now.
            self.ask_labels();
        }
        let ids: Vec<ConnectionId> = self.connections.iter().map(|(id, _)| id as u32).collect();
        for id in ids {
            let Some(connection) = self.connections.get_mut(id as usize) else {
                continue;
            };
            let Some(queue) = &connection.queue else {
                continue;
            };
            match notice {
                Notice::Reap => {
                    if queue.must_go() && connection.is_open() {
                        if queue.controller.is_dismissed() {
                            connection.leave();
                            self.after(id);
                        } else {
                            self.actions.push_back(Action::Close(id));
                        }
                    }
                }
                Notice::Events => {
                    connection.deliver_events();
                    self.after(id);
                }
            }
        }
    }

    /// The next thing for the driver to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`poll`](Self::poll) must be called even if nothing happens.
    pub fn next_deadline(&self, now: Moment) -> Option<Moment> {
        // A driver that was asked to look may have given input that became requests.
        let unpolled = self.devices.unpolled().then_some(now);
        let tick = (!self.connections.is_empty()).then_some(self.next_tick);
        let waits = !self.waiting.is_empty() || !self.resetting.is_empty();
        let retry = waits.then_some(now + CONNECT_RETRY);
        let feed = (!self.starving.is_empty()).then_some(self.next_feed);
        [unpolled, self.devices.next_deadline(), tick, retry, feed]
            .into_iter()
            .flatten()
            .min()
    }

    fn split(&mut self, id: ConnectionId, now: Moment) -> Option<(&mut Connection, Context<'_>)> {
        let connection = self.connections.get_mut(id as usize)?;
        let ctx = Context {
            now,
            target: &self.target,
            devices: &mut self.devices,
            buffers: &self.buffers,
            share: self.share,
            shares: &self.shares,
        };
        Some((connection, ctx))
    }
}
