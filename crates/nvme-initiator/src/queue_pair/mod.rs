//! One queue pair over one byte stream, without I/O: commands in, bytes out; bytes in, outcomes out.
//!
//! ```text
//! submit ─▶ slot ─▶ transmit(Gather) ═▶ stream     stream ═▶ receive(bytes) ─▶ finished()
//!                     │    ▲ sent(Gather)                    direct() / direct_done()
//!                     └────┘ buffers come home
//! ```
//!
//! # Invariants
//!
//! * Buffers have one owner: the slot, the batch being sent (until [`QueuePair::sent`]), or the
//!   receive being done (until [`QueuePair::direct_done`]). A command is finished only when its
//!   buffer is home, so a failed association can hand every request on for replay, data included.
//! * What the controller may do is checked against the slot before a byte is placed; anything else
//!   is a [`Failure::Protocol`], which is final and is answered with a terminate request.
//! * Nothing is allocated a command once the queues have grown to the depth.

mod inbound;
mod outbound;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use ashlar_block::{Gather, IoBuffer, Moment};
use ashlar_nvme::command::{SglDescriptor, opcode};
use ashlar_nvme::pdu::{Digests, Fatal, Framing, Role};
use ashlar_nvme::stream::{Limits, Receiver};
use ashlar_nvme::{Command, Completion};

use crate::failure::Failure;
use inbound::Inbound;
use slots::{Flow, Slots};

/// The in-capsule data that every controller takes with admin and Fabrics commands (TCP Transport
/// 3.3.2).
const ADMIN_IN_CAPSULE: u32 = 8192;

/// How a queue pair is to work.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Digests to insist on.
    pub digests: Digests,
    /// Commands outstanding, 1 to 1024.
    pub depth: u16,
    /// Longest wait for ICResp, and for the answer to a timed command.
    pub timeout: Duration,
    /// Most in-capsule data for I/O commands in bytes; admin and Fabrics commands may have 8192.
    pub in_capsule: u32,
    /// An admin queue.
    pub admin: bool,
}

/// What a command moves. The length of the buffer is the length of the transfer.
#[derive(Debug)]
pub enum Data {
    None,
    /// Into the buffer.
    ToHost(IoBuffer),
    /// From the buffer.
    ToController(IoBuffer),
}

/// A command to carry out.
#[derive(Debug)]
pub struct Submission {
    /// The owner's name for it.
    pub user: u64,
    /// The command; identifier and data pointer are set by the queue pair.
    pub command: Command,
    pub data: Data,
    /// Whether the queue's time-out applies; not to Asynchronous Event Requests.
    pub timed: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The controller answered.
    Answered(Completion),
    /// The connection ended first.
    Lost {
        /// The command may have reached the controller.
        sent: bool,
    },
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The submission's name.
    pub user: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The submission's buffer.
    pub buffer: Option<IoBuffer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// ICReq is to be sent.
    Fresh,
    /// ICResp is awaited.
    Initializing,
    Open,
}

/// The host's end of a queue pair. See the module's documentation.
#[derive(Debug)]
pub struct QueuePair {
    settings: Settings,
    phase: Phase,
    failure: Option<Failure>,
    receiver: Receiver,
    framing: Framing,
    max_h2c: u32,
    slots: Slots,
    /// Commands not yet sent, in order.
    to_send: VecDeque<u16>,
    /// Slots with an R2T not yet answered in full, in order.
    to_answer: VecDeque<u16>,
    /// Slots whose buffers are in the batch being sent, in the order in which it keeps them.
    lent: VecDeque<u16>,
    inbound: Option<Inbound>,
    /// Scratch for the data digests of one answer.
    digests: Vec<[u8; 4]>,
    terminate: Option<Fatal>,
    finished: VecDeque<Finished>,
    deadline: Option<Moment>,
}

impl QueuePair {
    /// A queue pair whose stream has just been connected.
    pub fn new(now: Moment, settings: Settings) -> Self {
        // What a transfer may be is checked against its command, so the framing need not limit it.
        let limits = Limits {
            in_capsule: 0,
            data: u32::MAX,
            pda: 0,
        };
        Self {
            settings,
            phase: Phase::Fresh,
            failure: None,
            receiver: Receiver::new(Role::Host, limits),
            framing: Framing::PLAIN,
            max_h2c: 0,
            slots: Slots::new(settings.depth),
            to_send: VecDeque::new(),
            to_answer: VecDeque::new(),
            lent: VecDeque::new(),
            inbound: None,
            digests: Vec::new(),
            terminate: None,
            finished: VecDeque::new(),
            deadline: Some(now + settings.timeout),
        }
    }

    /// Whether a command can be submitted now.
    pub fn has_room(&self) -> bool {
        self.failure.is_none() && self.slots.has_room()
    }

    /// Commands that have not finished.
    pub fn outstanding(&self) -> usize {
        self.slots.outstanding()
    }

    /// Takes a command; gives it back if the queue is full or has failed.
    ///
    /// # Errors
    /// The submission itself.
    pub fn submit(&mut self, now: Moment, submission: Submission) -> Result<(), Submission> {
        if self.failure.is_some() {
            return Err(submission);
        }
        let index = self.slots.fill(now, submission)?;
        let limits = (self.settings.admin, self.settings.in_capsule);
        let slot = self.slots.get(index);
        let limit = match (slot.command.opcode, limits) {
            (opcode::FABRICS, _) | (_, (true, _)) => ADMIN_IN_CAPSULE,
            (_, (false, in_capsule)) => in_capsule,
        };
        if slot.flow == Flow::OnRequest && slot.len <= limit {
            slot.flow = Flow::InCapsule;
        }
        slot.command.sgl1 = match slot.flow {
            Flow::InCapsule => SglDescriptor::in_capsule(slot.len),
            _ => SglDescriptor::transport(slot.len),
        };
        self.to_send.push_back(index);
        if self.deadline.is_none() {
            self.deadline = Some(now + self.settings.timeout);
        }
        Ok(())
    }

    /// The next command that has ended.
    pub fn finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Why the connection is to be closed, once it is.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Whether [`transmit`](Self::transmit) has something to say.
    pub fn has_output(&self) -> bool {
        if self.terminate.is_some() {
            return true;
        }
        match self.phase {
            _ if self.failure.is_some() => false,
            Phase::Fresh => true,
            Phase::Initializing => false,
            Phase::Open => !self.to_send.is_empty() || !self.to_answer.is_empty(),
        }
    }

    /// When [`check_time`](Self::check_time) must be called next.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.deadline.filter(|_| self.failure.is_none())
    }

    /// Fails the connection if ICResp or the oldest timed command is overdue.
    pub fn check_time(&mut self, now: Moment) {
        if self.failure.is_some() || self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let after = self.settings.timeout;
        if self.phase != Phase::Open {
            let what = "the request to initialize the connection";
            return self.fail(Failure::Timeout { what, after });
        }
        // Looking only when the oldest may be due costs nothing while answers come in time.
        match self.slots.oldest() {
            None => self.deadline = None,
            Some((_, issued)) if now < issued + after => self.deadline = Some(issued + after),
            Some((command, _)) => {
                let what = self.command_name(command);
                self.fail(Failure::Timeout { what, after });
            }
        }
    }

    fn command_name(&self, command: &Command) -> &'static str {
        match command.opcode {
            opcode::FABRICS => opcode::fabrics::name(command.fctype()),
            code if self.settings.admin => opcode::admin::name(code),
            code => opcode::io::name(code),
        }
    }

    /// Ends the connection for a reason from outside: closed by the peer, a network error.
    pub fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.failure = Some(failure);
        }
    }

    /// Takes every unfinished command out of a failed connection. To be called when no batch and no
    /// direct receive is out any more, or its buffer is lost.
    pub fn abandon(&mut self, mut each: impl FnMut(Finished)) {
        while let Some(finished) = self.finished.pop_front() {
            each(finished);
        }
        let busy: Vec<u16> = self.slots.busy().collect();
        for index in busy {
            let slot = self.slots.get(index);
            let outcome = match slot.answer.take() {
                Some(answer) => Outcome::Answered(answer),
                None => Outcome::Lost { sent: slot.sent },
            };
            let (user, buffer) = self.slots.release(index);
            each(Finished {
                user,
                outcome,
                buffer,
            });
        }
    }

    /// Gives the batch's buffers back to their commands, after it was sent or has failed.
    pub fn sent(&mut self, batch: &mut Gather) {
        for (buffer, index) in batch.reclaim().zip(self.lent.drain(..)) {
            let slot = self.slots.get(index);
            slot.buffer = Some(buffer);
            slot.lent = false;
            if let Some(answer) = slot.answer.take() {
                let (user, buffer) = self.slots.release(index);
                let outcome = Outcome::Answered(answer);
                self.finished.push_back(Finished {
                    user,
                    outcome,
                    buffer,
                });
            }
        }
    }
}
