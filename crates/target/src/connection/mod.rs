//! NVMe/TCP: one connection, one queue. Cuts the stream into commands, moves their data, and puts
//! responses into the output. Knows nothing of sockets.

mod command;
mod receive;
mod respond;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use ashlar_block::{BufferPool, Completion, Gather, IoBuffer, Moment};
use ashlar_nvme::pdu::{self, Fatal, Framing, Role};
use ashlar_nvme::stream::{Limits, Receiver};
use ashlar_nvme::{Command, Status};

use crate::controller::Controller;
use crate::devices::Devices;
use crate::io;
use crate::slot::{Slots, Stage};
use crate::target::Target;

/// In-capsule data of I/O queues: writes up to this size need no R2T.
pub(crate) const IN_CAPSULE_BYTES: u32 = 64 << 10;
/// Most data of one H2CData PDU.
const MAXH2CDATA: u32 = 1 << 20;
/// A payload's missing rest of at least this size is received straight into its buffer.
const DIRECT_BYTES: usize = 4096;

/// What a connection needs of the core it is on, for the length of a call.
pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    pub(crate) target: &'a Target,
    pub(crate) devices: &'a mut Devices,
    pub(crate) buffers: &'a BufferPool,
    /// See [`Connection::reserve_in_capsule`].
    pub(crate) spare: &'a BufferPool,
    /// Most buffer bytes that one connection may hold.
    pub(crate) share: usize,
}

/// The queue that a connection carries once Connect has succeeded.
pub(crate) struct Queue {
    pub(crate) controller: Arc<Controller>,
    pub(crate) id: u16,
    size: u16,
    head: u16,
}

impl Queue {
    pub(crate) fn new(controller: Arc<Controller>, id: u16, size: u16) -> Self {
        Self {
            controller,
            id,
            size,
            head: 0,
        }
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

/// How far a connection is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// What is in the output may still be sent; nothing more is received.
    LastWords,
    /// The socket is gone; device requests are coming home.
    Closed,
}

pub(crate) struct Connection {
    /// Index in its core's list; names it in device requests' tags.
    pub(crate) id: u32,
    pub(crate) queue: Option<Queue>,
    /// The address that the host connected to.
    pub(crate) local: SocketAddr,
    receiver: Receiver,
    framing: Framing,
    slots: Slots,
    sink: Sink,
    output: Gather,
    /// Bytes lent to a send in flight.
    sending: usize,
    /// Done, but the output was full.
    ready: VecDeque<u16>,
    /// Waiting for buffers, in order.
    starved: VecDeque<u16>,
    /// The slot whose in-capsule data cannot be received yet.
    blocked: Option<u16>,
    /// A Connect that is waiting to be placed on a core, or for the host's old commands.
    pub(crate) connect: Option<u16>,
    /// Asynchronous event requests.
    pub(crate) event_requests: VecDeque<u16>,
    /// Buffer bytes of commands that are not answered yet.
    held: usize,
    /// Device requests outstanding.
    requests: usize,
    /// The host has disabled or shut down the controller.
    pub(crate) queues_must_go: bool,
    /// Hosts have something new to be told.
    pub(crate) news: bool,
    /// The core will look at this connection before it sleeps.
    pub(crate) noted: bool,
    born: Moment,
    progress: Moment,
    life: Life,
}

impl Connection {
    pub(crate) fn new(id: u32, local: SocketAddr, now: Moment) -> Self {
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
            local,
            receiver: Receiver::new(Role::Controller, limits),
            framing: Framing::PLAIN,
            slots,
            sink: Sink::Discard(None),
            output: Gather::default(),
            sending: 0,
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            blocked: None,
            connect: None,
            event_requests: VecDeque::new(),
            held: 0,
            requests: 0,
            queues_must_go: false,
            news: false,
            noted: false,
            born: now,
            progress: now,
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

    /// The connection is moving to another core's list.
    pub(crate) fn renumber(&mut self, id: u32) {
        self.id = id;
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
        self.life == Life::Open && self.blocked.is_none() && self.connect.is_none()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.life == Life::Open
    }

    /// A device request of this connection is done. True when the connection is closed and this was
    /// the last.
    pub(crate) fn completed(&mut self, completion: Completion) -> bool {
        self.requests -= 1;
        let index = completion.tag as u16;
        let slot = self.slots.get_mut(index);
        io::absorb(slot, completion);
        if slot.requests == 0 {
            if self.life == Life::Closed {
                self.release(index);
            } else {
                self.respond(index);
            }
        }
        self.is_gone()
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_gone(&self) -> bool {
        self.life == Life::Closed && self.requests == 0
    }

    /// The socket is gone. Commands in devices go on; everything else is dropped.
    pub(crate) fn close(&mut self) {
        self.life = Life::Closed;
        self.output.clear();
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
            .head(|out| pdu::term_req(out, Role::Controller, fatal, offending));
        self.life = Life::LastWords;
    }

    /// Ends the connection once the output is sent.
    pub(crate) fn finish(&mut self) {
        if self.life == Life::Open {
            self.life = Life::LastWords;
        }
    }

    /// Whether the socket can be closed now.
    pub(crate) fn is_finished(&self) -> bool {
        self.life == Life::LastWords && self.output.is_empty() && self.sending == 0
    }

    /// Swaps the output against an empty batch, if there is any and none is in flight.
    pub(crate) fn take_output(&mut self, empty: &mut Gather) -> bool {
        if self.sending > 0 || self.output.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.output, empty);
        self.sending = empty.len();
        true
    }

    /// Whether [`take_output`](Self::take_output) would give something.
    pub(crate) fn has_output(&self) -> bool {
        self.sending == 0 && !self.output.is_empty()
    }

    /// The batch that was taken has been sent.
    pub(crate) fn sent(&mut self, now: Moment) {
        self.sending = 0;
        self.progress = now;
        while !self.output.is_full() {
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            self.respond(index);
        }
    }

    /// Whether the host has owed bytes, or left ours untaken, since before `since`.
    pub(crate) fn is_stalled(&self, since: Moment) -> bool {
        let owes = self.receiver.is_inside_pdu() || self.slots.iter().any(|(_, s)| s.solicited);
        let starved = self.blocked.is_some();
        ((owes && !starved) || self.sending > 0) && self.progress < since
    }

    /// Whether Connect has not come although the connection is older than `since`.
    pub(crate) fn is_loitering(&self, since: Moment) -> bool {
        self.queue.is_none() && self.connect.is_none() && self.born < since
    }

    fn release(&mut self, index: u16) {
        let slot = self.slots.get_mut(index);
        let bytes = slot.held;
        self.held -= bytes;
        self.slots.release(index);
    }

    /// A buffer of `bytes` for slot `index`, within the connection's share.
    fn reserve(&mut self, ctx: &Context<'_>, index: u16, bytes: usize) -> Option<IoBuffer> {
        let in_use = self.held + self.sending + self.output.len();
        if in_use > 0 && in_use + bytes > ctx.share {
            return None;
        }
        let buffer = ctx.buffers.get(bytes)?;
        self.slots.get_mut(index).held += bytes;
        self.held += bytes;
        Some(buffer)
    }

    /// A buffer for data in a capsule. Such data stands in the way of everything behind it: if that
    /// includes data that was asked for, for which buffers are held, waiting for a buffer could
    /// mean waiting for ourselves. Then it comes from a supply that only such data uses, and that
    /// devices, not hosts, give back.
    fn reserve_in_capsule(
        &mut self,
        ctx: &Context<'_>,
        index: u16,
        bytes: usize,
    ) -> Option<IoBuffer> {
        if let Some(buffer) = self.reserve(ctx, index, bytes) {
            return Some(buffer);
        }
        if !self.slots.iter().any(|(_, slot)| slot.solicited) {
            return None;
        }
        // All of one class, so that the supply does not fragment.
        let mut buffer = ctx.spare.get(bytes.max(IN_CAPSULE_BYTES as usize))?;
        buffer.truncate(bytes);
        self.slots.get_mut(index).held += bytes;
        self.held += bytes;
        Some(buffer)
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
