//! NVMe/TCP: one connection, one queue. Cuts the stream into commands, moves their data, and puts
//! responses into the output. Knows nothing of sockets.

mod command;
mod dues;
mod labels;
mod receive;
mod respond;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BufferPool, Completion, Gather, IoBuffer, Moment, REGION_BYTES};
use ashlar_nvme::pdu::{self, Fatal, Framing};
use ashlar_nvme::stream::{Limits, Receiver};
use ashlar_nvme::{Command, Status};

use self::dues::{Dues, LEAST_BYTES_PER_SECOND};
use self::labels::Labels;
use crate::controller::{Controller, Role};
use crate::core::Placing;
use crate::devices::Devices;
use crate::reservation::Waits;
use crate::shares::{AccountId, Charge, Shares, UNLISTED, Want};
use crate::slot::{Slots, Stage};
use crate::subsystem::HostWork;
use crate::target::Target;
use crate::{fabrics, io};

/// In-capsule data of I/O queues: writes up to this size need no R2T.
pub(crate) const IN_CAPSULE_BYTES: u32 = 64 << 10;
/// Most data of one H2CData PDU.
const MAXH2CDATA: u32 = 1 << 20;
/// A payload's missing rest of at least this size is received straight into its buffer.
const DIRECT_BYTES: usize = 4096;
/// Untaken responses of this size stop the connection from taking commands.
const OUTPUT_BYTES: usize = 64 << 10;
/// A host that takes answers, but not so many bytes of them a second, is slow.
const LEAST_TAKEN_BYTES_PER_SECOND: usize = 4 << 20;
/// A batch of answers may take this long besides.
const TAKE_LIMIT: Duration = Duration::from_millis(500);

/// What a connection needs of the core it is on, for the length of a call.
pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    pub(crate) target: &'a Target,
    pub(crate) devices: &'a mut Devices,
    pub(crate) buffers: &'a BufferPool,
    /// Most buffer bytes that one connection may hold.
    pub(crate) share: usize,
    /// What hosts may hold, and do.
    pub(crate) shares: &'a Shares,
}

/// A buffer that a command needs.
#[derive(Clone, Copy, Debug)]
struct Need {
    bytes: usize,
    /// Bytes that must be left of the connection's share.
    spare: usize,
    purpose: Use,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Data in a capsule: what stands behind it in the stream waits for it.
    Capsule,
    /// All else: the host holds it until it has sent, or taken, what it is for.
    Loan,
}

impl Need {
    fn of_capsule(bytes: usize) -> Self {
        Self {
            bytes,
            spare: 0,
            purpose: Use::Capsule,
        }
    }

    fn of_loan(bytes: usize) -> Self {
        Self {
            bytes,
            spare: 0,
            purpose: Use::Loan,
        }
    }
}

impl Context<'_> {
    fn capacity(&self) -> usize {
        self.buffers.max_regions() * REGION_BYTES
    }

    /// Bytes of buffers that nothing holds.
    fn free(&self) -> usize {
        let outstanding = self.buffers.outstanding_bytes();
        self.capacity().saturating_sub(outstanding)
    }

    /// Whether buffers of `bytes` may be given to data that a host has yet to send: some of the
    /// pool stays for what needs no host to go on.
    fn may_solicit(&self, bytes: usize) -> bool {
        let capacity = self.capacity();
        let outstanding = self.buffers.outstanding_bytes();
        let spare = (capacity / 4).min(REGION_BYTES);
        outstanding == 0 || outstanding + bytes.next_power_of_two() + spare <= capacity
    }
}

/// The queue that a connection carries once Connect has succeeded.
pub(crate) struct Queue {
    pub(crate) controller: Arc<Controller>,
    pub(crate) id: u16,
    size: u16,
    head: u16,
    /// The controller's resets when it was connected.
    resets: u32,
}

impl Queue {
    pub(crate) fn new(controller: Arc<Controller>, id: u16, size: u16) -> Self {
        Self {
            resets: controller.resets(),
            controller,
            id,
            size,
            head: 0,
        }
    }

    /// Whether its association has ended, or the host has reset the controller since.
    pub(crate) fn must_go(&self) -> bool {
        self.is_reset() || !self.controller.is_alive()
    }

    /// Whether it is an I/O queue, and the host has reset the controller since it was connected.
    fn is_reset(&self) -> bool {
        self.id > 0 && self.resets != self.controller.resets()
    }

    fn advance(&mut self) {
        self.head = (self.head + 1) % self.size.max(1);
    }
}

/// Where payload bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Slot(u16),
    /// Read and dropped; the slot, if any, is then answered with the status it has.
    Discard(Option<u16>),
}

/// Data that was asked for must be there within so many times the time for a stall.
const NEGLECT: u32 = 4;

/// How far a connection is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// What devices have is still answered; nothing more is received. It ends when it is told to.
    Quiet,
    /// What devices have is still answered; nothing more is received.
    Leaving,
    /// What is in the output may still be sent; nothing more is received.
    LastWords,
    /// The socket is gone; device requests are coming home.
    Closed,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The address that the host connected to.
    pub local: SocketAddr,
    /// Where it came from.
    pub remote: IpAddr,
}

pub(crate) struct Connection {
    /// Index in its core's list; names it in device requests' tags.
    pub(crate) id: u32,
    pub(crate) queue: Option<Queue>,
    pub(crate) ends: Ends,
    receiver: Receiver,
    framing: Framing,
    slots: Slots,
    labels: Labels,
    sink: Sink,
    /// Bytes of the current payload that stand before the slot's data.
    skip: usize,
    output: Gather,
    /// Bytes lent to a send in flight.
    sending: usize,
    /// There is payload among them.
    sends_payload: bool,
    /// Done, but the output was full.
    ready: VecDeque<u16>,
    /// Waiting for buffers, in order.
    starved: VecDeque<u16>,
    /// The slot whose in-capsule data cannot be received yet.
    blocked: Option<u16>,
    /// A Connect that is waiting to be placed on a core, or for the host's old commands.
    pub(crate) connect: Option<u16>,
    /// The driver has not been asked for a core for that Connect.
    unplaced: bool,
    /// Asynchronous event requests.
    pub(crate) event_requests: VecDeque<u16>,
    /// Commands that wait for the end of associations (Cross-Controller Reset, Preempt and Abort) or until a
    /// state is kept, and the result that they then have.
    resets: Vec<(u16, Waits, u64)>,
    /// Buffer bytes of commands that are not answered yet.
    held: usize,
    /// What devices have done for its host since the subsystem was told last.
    work: HostWork,
    /// Device requests outstanding.
    requests: usize,
    /// The host has disabled or shut down the controller.
    pub(crate) queues_must_go: bool,
    /// Hosts have something new to be told.
    pub(crate) news: bool,
    /// The core will look at this connection before it sleeps.
    pub(crate) noted: bool,
    pub(crate) born: Moment,
    /// Whose share its buffers count to.
    pub(crate) account: AccountId,
    /// What was counted there.
    charged: Charge,
    /// What the host owes of bytes.
    dues: Dues,
    /// The host has lately sent, or taken, all that it was lent a buffer for.
    pays: bool,
    /// Since when it has waited for a buffer without getting one.
    hungry: Option<Moment>,
    /// Since when the host has left a batch untaken.
    untaken: Option<Moment>,
    /// Since when, as far as a tick has seen, it has been leaving.
    leaving: Option<Moment>,
    /// Bytes of the output that are payload, which the share bounds.
    payload_queued: usize,
    life: Life,
}

impl Connection {
    pub(crate) fn new(id: u32, ends: Ends, now: Moment) -> Self {
        let mut slots = Slots::default();
        slots.set_limit(1);
        let limits = Limits {
            in_capsule: 8192,
            data: MAXH2CDATA,
            pda: 0,
        };
        Self {
            id,
            queue: None,
            ends,
            receiver: Receiver::new(pdu::Role::Controller, limits),
            framing: Framing::PLAIN,
            slots,
            labels: Labels::default(),
            sink: Sink::Discard(None),
            skip: 0,
            output: Gather::default(),
            sending: 0,
            sends_payload: false,
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            blocked: None,
            connect: None,
            unplaced: false,
            event_requests: VecDeque::new(),
            resets: Vec::new(),
            held: 0,
            work: HostWork::default(),
            requests: 0,
            queues_must_go: false,
            news: false,
            noted: false,
            born: now,
            account: UNLISTED,
            charged: Charge::default(),
            dues: Dues::default(),
            pays: false,
            hungry: None,
            untaken: None,
            leaving: None,
            payload_queued: 0,
            life: Life::Open,
        }
    }

    /// The connection now carries `queue` of `entries` commands.
    pub(crate) fn attach(&mut self, queue: Queue) {
        self.slots.set_limit(usize::from(queue.size).max(1));
        if queue.id > 0 {
            self.receiver.set_limits(Limits {
                in_capsule: IN_CAPSULE_BYTES,
                data: MAXH2CDATA,
                pda: 0,
            });
        }
        self.queue = Some(queue);
    }

    pub(crate) fn carries_io(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.id > 0)
    }

    /// The connection is moving to another core's list.
    pub(crate) fn renumber(&mut self, id: u32) {
        self.id = id;
    }

    /// What a core is to be chosen by for a Connect that has just arrived; told once.
    pub(crate) fn take_placement(&mut self, target: &Target) -> Option<Placing> {
        if !std::mem::take(&mut self.unplaced) {
            return None;
        }
        let (_, command, data) = self.pending_connect()?;
        Some(Placing {
            queue: command.connect_parameters().qid,
            only: fabrics::only_core(target, data),
        })
    }

    /// The command in slot `index`.
    pub(crate) fn command_of(&mut self, index: u16) -> Command {
        self.slots.get_mut(index).command
    }

    /// Where the command in slot `index` is.
    pub(crate) fn stage_of(&mut self, index: u16) -> Stage {
        self.slots.get_mut(index).stage
    }

    /// A waiting Connect: its slot, command and data.
    pub(crate) fn pending_connect(&mut self) -> Option<(u16, Command, &[u8])> {
        let index = self.connect?;
        let slot = self.slots.get_mut(index);
        Some((
            index,
            slot.command,
            slot.buffer.as_deref().unwrap_or_default(),
        ))
    }

    fn tag(&self, slot: u16) -> u64 {
        u64::from(self.id) << 32 | u64::from(slot)
    }

    /// Whether more bytes may be given to [`receive`](Self::receive).
    pub(crate) fn accepts_input(&self) -> bool {
        let untaken = self.output.len() - self.payload_queued;
        self.life == Life::Open
            && self.blocked.is_none()
            && self.connect.is_none()
            && untaken < OUTPUT_BYTES
    }

    pub(crate) fn is_open(&self) -> bool {
        self.life == Life::Open
    }

    /// Whether the host can still be told something.
    pub(crate) fn may_answer(&self) -> bool {
        matches!(self.life, Life::Open | Life::Quiet | Life::Leaving)
    }

    /// A device request of this connection is done. True when the connection is closed and this was
    /// the last.
    pub(crate) fn completed(&mut self, completion: Completion) -> bool {
        self.requests -= 1;
        let index = completion.tag as u16;
        let slot = self.slots.get_mut(index);
        io::absorb(slot, completion);
        if slot.requests == 0 {
            self.work.count(slot);
            if self.life == Life::Closed {
                self.release(index);
            } else {
                self.respond(index);
            }
        }
        self.is_gone()
    }

    /// Adds what it has done since the last call to what its subsystem tells of itself.
    pub(crate) fn report_work(&mut self) {
        let Some(queue) = &self.queue else { return };
        if let Role::Io(subsystem) = &queue.controller.role {
            subsystem.add_work(std::mem::take(&mut self.work));
        }
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_gone(&self) -> bool {
        self.life == Life::Closed && self.requests == 0
    }

    /// The socket is gone. Commands in devices go on; everything else is dropped.
    pub(crate) fn close(&mut self) {
        self.life = Life::Closed;
        self.drop_waiting();
        self.ready.clear();
        self.event_requests.clear();
        self.resets.clear();
        self.connect = None;
        self.clear_output();
        let idle: Vec<u16> = self
            .slots
            .iter()
            .filter(|(_, s)| s.requests == 0)
            .map(|(i, _)| i)
            .collect();
        for index in idle {
            self.release(index);
        }
    }

    /// Says why the connection ends, and ends it when that is sent.
    pub(crate) fn terminate(&mut self, fatal: Fatal) {
        let offending = self.receiver.offending_header();
        self.output
            .head(|out| pdu::term_req(out, pdu::Role::Controller, fatal, offending));
        self.finish();
    }

    /// Commands that have not begun for want of buffers never will.
    fn drop_waiting(&mut self) {
        self.starved.clear();
        self.blocked = None;
    }

    fn clear_output(&mut self) {
        self.output.clear();
        self.payload_queued = 0;
    }

    /// Ends the connection once the output is sent.
    pub(crate) fn finish(&mut self) {
        if self.life == Life::Open {
            self.life = Life::LastWords;
            self.drop_waiting();
        }
    }

    /// Takes no more commands; ends once those that devices have are answered.
    pub(crate) fn leave(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Leaving;
            self.drop_waiting();
        }
    }

    /// Takes no more commands, and stays until it is closed.
    pub(crate) fn quiesce(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Quiet;
            self.drop_waiting();
        }
    }

    /// Whether devices have nothing of it, and the host was sent every answer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.requests == 0 && self.ready.is_empty() && self.output.is_empty() && self.sending == 0
    }

    /// Whether it has been leaving for `limit`. Time counts from the first call that finds it so.
    pub(crate) fn is_overdue(&mut self, now: Moment, limit: Duration) -> bool {
        self.life == Life::Leaving && now.since(*self.leaving.get_or_insert(now)) > limit
    }

    /// Whether the socket can be closed now.
    pub(crate) fn is_finished(&self) -> bool {
        let has_spoken = match self.life {
            Life::LastWords => true,
            Life::Leaving => self.requests == 0 && self.ready.is_empty(),
            Life::Open | Life::Quiet | Life::Closed => false,
        };
        has_spoken && self.output.is_empty() && self.sending == 0
    }

    /// Swaps the output against an empty batch, if there is any and none is in flight.
    pub(crate) fn take_output(&mut self, empty: &mut Gather) -> bool {
        if self.sending > 0 || self.output.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.output, empty);
        self.sends_payload = self.payload_queued > 0;
        self.payload_queued = 0;
        self.sending = empty.len();
        self.untaken = None;
        true
    }

    /// Whether [`take_output`](Self::take_output) would give something.
    pub(crate) fn has_output(&self) -> bool {
        self.sending == 0 && !self.output.is_empty()
    }

    /// The batch that was taken has been sent.
    pub(crate) fn sent(&mut self, now: Moment) {
        self.pays |= self.sends_payload && !self.takes_slowly(now);
        self.sending = 0;
        self.untaken = None;
        while !self.output.is_full() {
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            self.respond(index);
        }
    }

    /// Whether the host has owed bytes, or left ours untaken, for `limit`. Time counts from the
    /// first call that finds it so: a device may be slow, the host is then given its full time.
    pub(crate) fn is_stalled(&mut self, now: Moment, limit: Duration) -> bool {
        let owes = self.accepts_input() && self.owes_bytes();
        self.dues.look(now, owes);
        if self.sending > 0 {
            self.untaken.get_or_insert(now);
        }
        if self.is_slow(now) {
            self.pays = false;
        }
        self.leaves_untaken(now, limit, LEAST_BYTES_PER_SECOND)
            || self.dues.slow_for(now) > limit
            || self.slots.has_neglected(now, NEGLECT * limit)
    }

    fn owes_bytes(&self) -> bool {
        self.receiver.is_inside_pdu() || self.slots.iter().any(|(_, s)| s.solicited)
    }

    /// Time has passed in which the host was not listened to.
    pub(crate) fn excuse(&mut self) {
        self.dues.restart();
    }

    fn takes_slowly(&self, now: Moment) -> bool {
        self.leaves_untaken(now, TAKE_LIMIT, LEAST_TAKEN_BYTES_PER_SECOND)
    }

    /// Whether the host has left a batch untaken for `limit`, and the time that its bytes take at this rate.
    fn leaves_untaken(&self, now: Moment, limit: Duration, bytes_per_second: usize) -> bool {
        let allowed = self.sending as u64 * 1000 / bytes_per_second as u64;
        let limit = limit + Duration::from_millis(allowed);
        self.untaken.is_some_and(|since| now.since(since) > limit)
    }

    /// Whether the host gives nothing back of what it was lent, or too slowly.
    pub(crate) fn is_slow(&self, now: Moment) -> bool {
        self.owes_slowly() || self.takes_slowly(now)
    }

    /// Whether the host still owes something of which it sent too little when that was judged last.
    fn owes_slowly(&self) -> bool {
        self.dues.is_slow() && self.owes_bytes()
    }

    /// Whether the host has lately given back what it was lent.
    pub(crate) fn pays(&self) -> bool {
        self.pays
    }

    /// For how long it has waited for a buffer without getting one. Time counts from the first call.
    pub(crate) fn hungry_for(&mut self, now: Moment) -> Duration {
        if !self.is_starved() {
            self.hungry = None;
            return Duration::ZERO;
        }
        now.since(*self.hungry.get_or_insert(now))
    }

    /// Buffer bytes that its host has the use of.
    pub(crate) fn in_use(&self) -> usize {
        self.held + self.sending + self.output.len()
    }

    /// What its account is to be charged.
    pub(crate) fn charge(&self) -> Charge {
        Charge {
            bytes: self.in_use(),
            pays: self.pays,
        }
    }

    /// What its account was charged; from now on that is `now`.
    pub(crate) fn set_charged(&mut self, now: Charge) -> Charge {
        std::mem::replace(&mut self.charged, now)
    }

    /// Refuses a waiting Connect if the connection was accepted before `since`; the host may then
    /// try again, with all the time of a new connection.
    pub(crate) fn refuse_if_older(&mut self, now: Moment, since: Moment) -> bool {
        if self.born >= since {
            return false;
        }
        if let Some(index) = self.connect.take() {
            self.born = now;
            self.complete(index, Status::CONNECT_CONTROLLER_BUSY, 0);
        }
        true
    }

    /// Whether it carries no queue of a subsystem.
    pub(crate) fn is_visitor(&self) -> bool {
        let queue = self.queue.as_ref();
        queue.is_none_or(|queue| matches!(queue.controller.role, Role::Discovery))
    }

    /// Whether Connect has not come although the connection is older than `since`.
    pub(crate) fn is_loitering(&self, since: Moment) -> bool {
        self.queue.is_none() && self.connect.is_none() && self.born < since
    }

    fn release(&mut self, index: u16) {
        self.unreserve(index);
        self.slots.release(index);
        self.count_answer();
    }

    /// A buffer of `bytes` for slot `index`, within the connection's share less `spare`, and its host's.
    fn reserve(&mut self, ctx: &Context<'_>, index: u16, need: Need) -> Option<IoBuffer> {
        let Need {
            bytes,
            spare,
            purpose,
        } = need;
        let in_use = self.in_use();
        if in_use > 0 && in_use + bytes + spare > ctx.share {
            return None;
        }
        let want = Want {
            bytes,
            spare,
            now: self.charge(),
            charged: self.charged,
        };
        if purpose == Use::Loan && !ctx.shares.may_lend(self.account, ctx.free(), &want) {
            return None;
        }
        let buffer = ctx.buffers.get(bytes)?;
        self.slots.get_mut(index).held += bytes;
        self.held += bytes;
        Some(buffer)
    }

    /// Takes back what a slot holds of the share.
    fn unreserve(&mut self, index: u16) {
        self.held -= std::mem::take(&mut self.slots.get_mut(index).held);
    }

    /// Puts the slot in line for a buffer.
    fn starve(&mut self, index: u16) {
        self.slots.get_mut(index).stage = Stage::Starved;
        self.starved.push_back(index);
    }

    /// Whether commands wait for buffers.
    pub(crate) fn is_starved(&self) -> bool {
        self.blocked.is_some() || !self.starved.is_empty()
    }

    /// Ends a command without data.
    pub(crate) fn complete(&mut self, index: u16, status: Status, result: u64) {
        let slot = self.slots.get_mut(index);
        slot.fail(status);
        slot.result = result;
        self.respond(index);
    }
}
