//! A command's way from its capsule to its execution.

use ashlar_block::IoBuffer;
use ashlar_nvme::command::DataPointer;
use ashlar_nvme::pdu::{self, Fatal, FatalStatus, R2t};
use ashlar_nvme::{Command, Status};

use super::{Connection, Context, IN_CAPSULE_BYTES, Need, Queue, Sink, Use};
use crate::admin::{self, Outcome};
use crate::controller::Role;
use crate::fabrics;
use crate::io::{self, Executor, Transfer};
use crate::reservation::{Waits, command};
use crate::slot::Stage;

impl Connection {
    /// A command capsule's header with `in_capsule` bytes of data to follow.
    pub(super) fn command(
        &mut self,
        ctx: &mut Context<'_>,
        command: Command,
        in_capsule: usize,
    ) -> Result<(), Fatal> {
        if let Some(queue) = &mut self.queue {
            queue.advance();
            if queue.id == 0 {
                queue.controller.touch(ctx.now);
            }
        }
        let taken = self.slots.take(command);
        let index = taken.ok_or(Fatal::new(FatalStatus::PduSequenceError))?;
        self.slots.get_mut(index).label = self.label_of(ctx.devices, command.nsid.get());
        let planned = self.plan(&command).and_then(|transfer| {
            check_capsule(&command, transfer, in_capsule)?;
            Ok(transfer)
        });
        match planned {
            Ok(transfer) => {
                self.slots.get_mut(index).transfer = transfer;
                self.begin(ctx, index, in_capsule)
            }
            Err(status) => {
                self.slots.get_mut(index).fail(status);
                if in_capsule > 0 {
                    self.sink = Sink::Discard(Some(index));
                } else {
                    self.respond(index);
                }
                Ok(())
            }
        }
    }

    /// What the command moves, or why it is refused.
    fn plan(&self, command: &Command) -> Result<Transfer, Status> {
        let Some(queue) = &self.queue else {
            return fabrics::plan_unconnected(command);
        };
        if command.is_fabrics() {
            return fabrics::plan(command);
        }
        if !command.uses_sgl() {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        // Its core may not have heard of it yet.
        if queue.is_reset() {
            return Err(Status::ABORTED_SQ_DELETION);
        }
        if !queue.controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        match &queue.controller.role {
            Role::Io(subsystem) if queue.id > 0 => io::plan(&queue.controller, subsystem, command),
            _ => admin::plan(command),
        }
    }

    fn begin(&mut self, ctx: &mut Context<'_>, index: u16, in_capsule: usize) -> Result<(), Fatal> {
        let Transfer::FromHost(bytes) = self.slots.get_mut(index).transfer else {
            return self.start(ctx, index);
        };
        if in_capsule == 0 {
            if self.starved.is_empty() && self.solicit(ctx, index, bytes) {
                return Ok(());
            }
            self.starve(index);
            return Ok(());
        }
        self.sink = Sink::Slot(index);
        // What `check_capsule` has let through: the data is the last that the capsule has.
        self.skip = in_capsule - bytes;
        if !self.provide(ctx, index, Need::of_capsule(bytes)) {
            self.blocked = Some(index);
        }
        Ok(())
    }

    /// Gives a command all the buffers that it will need: one that held some while it waited for
    /// others could wait for its own kind for ever. False if they are not there.
    fn provide(&mut self, ctx: &Context<'_>, index: u16, need: Need) -> bool {
        let working = self.working_bytes(index);
        let data = Need {
            spare: need.spare + working,
            ..need
        };
        let Some(buffer) = self.reserve(ctx, index, data) else {
            return false;
        };
        if working > 0 {
            let working = Need {
                bytes: working,
                ..need
            };
            let Some(working) = self.reserve(ctx, index, working) else {
                self.unreserve(index);
                return false;
            };
            self.slots.get_mut(index).working = Some(working);
        }
        self.slots.get_mut(index).buffer = Some(buffer);
        true
    }

    /// Bytes that a command needs beyond the host's data before it can be executed.
    fn working_bytes(&mut self, index: u16) -> usize {
        let Some(Queue { controller, id, .. }) = &self.queue else {
            return 0;
        };
        match &controller.role {
            Role::Io(subsystem) if *id > 0 => {
                io::working_bytes(subsystem, &self.slots.get_mut(index).command)
            }
            _ => 0,
        }
    }

    /// Asks the host for a command's data. False without a buffer.
    ///
    /// Some is always left over for data in a capsule: that may stand in the stream before the data
    /// that is asked for here, and would wait for it.
    fn solicit(&mut self, ctx: &Context<'_>, index: u16, bytes: usize) -> bool {
        let spare = 2 * IN_CAPSULE_BYTES as usize;
        let working = self.working_bytes(index);
        let need = Need {
            bytes,
            spare,
            purpose: Use::Loan,
        };
        // One that gives nothing back is lent nothing more.
        let is_lent = !self.owes_slowly()
            && ctx.may_solicit(bytes + working)
            && self.provide(ctx, index, need);
        if !is_lent {
            return false;
        }
        let framing = self.framing;
        let slot = self.slots.get_mut(index);
        slot.stage = Stage::Receiving;
        slot.solicited = true;
        let cid = slot.command.cid.get();
        let request = R2t {
            cid,
            ttag: index,
            offset: 0,
            length: bytes as u32,
        };
        self.output.head(|out| pdu::r2t(out, framing, &request));
        true
    }

    /// Executes a command whose data, if any, has arrived.
    pub(super) fn start(&mut self, ctx: &mut Context<'_>, index: u16) -> Result<(), Fatal> {
        let Some(queue) = &self.queue else {
            self.connect = Some(index);
            self.unplaced = true;
            self.slots.get_mut(index).stage = Stage::Parked;
            return Ok(());
        };
        let is_io = queue.id > 0 && matches!(queue.controller.role, Role::Io(_));
        if self.slots.get_mut(index).command.is_fabrics() {
            let controller = queue.controller.clone();
            fabrics::execute(self, &controller, index);
        } else if !is_io {
            self.administer(ctx, index);
        } else if !self.execute(ctx, index) {
            self.starve(index);
        }
        Ok(())
    }

    /// Hands an I/O command to the devices. False without a buffer.
    fn execute(&mut self, ctx: &mut Context<'_>, index: u16) -> bool {
        let bytes = self.working_bytes(index);
        let mut working = self.slots.get_mut(index).working.take();
        if bytes > 0 && working.is_none() {
            // Only what needs nothing more may overtake those that wait: they may wait for it.
            let first = self.starved.front().is_none_or(|&front| front == index);
            if first {
                working = self.reserve(ctx, index, Need::of_loan(bytes));
            }
            if working.is_none() {
                return false;
            }
        }
        if command::is_one(self.slots.get_mut(index).command.opcode) {
            self.reserve_namespace(index, working);
            return true;
        }
        let tag = self.tag(index);
        let Some(Queue { controller, .. }) = &self.queue else {
            return true;
        };
        let Role::Io(subsystem) = &controller.role else {
            return true;
        };
        let slot = self.slots.get_mut(index);
        slot.stage = Stage::Executing;
        let mut executor = Executor {
            devices: ctx.devices,
            controller,
            subsystem,
            tag,
        };
        executor.start(slot, working);
        let requests = usize::from(slot.requests);
        self.requests += requests;
        if requests == 0 {
            self.respond(index);
        }
        true
    }

    /// Executes a reservation command; `working` is for its answer.
    fn reserve_namespace(&mut self, index: u16, working: Option<IoBuffer>) {
        let Some(Queue { controller, .. }) = &self.queue else {
            return;
        };
        let controller = controller.clone();
        let Role::Io(subsystem) = &controller.role else {
            return;
        };
        let slot = self.slots.get_mut(index);
        let (asked, label, data) = (slot.command, slot.label, slot.buffer.take());
        if let Err(status) = io::check_admission(&controller, subsystem, &asked) {
            return self.complete(index, status, 0);
        }
        let data = data.as_deref().unwrap_or_default();
        match command::execute(&controller, subsystem, &asked, label, data) {
            command::Outcome::Done(status) => self.complete(index, status, 0),
            command::Outcome::Report(page) => {
                self.slots.get_mut(index).buffer = working.map(|buffer| filled(buffer, &page));
                self.respond(index);
            }
            command::Outcome::Waits(waits) => {
                self.news = true;
                self.queues_must_go |= !waits.ends.is_empty();
                self.slots.get_mut(index).working = working;
                self.park(index, waits, 0);
            }
        }
    }

    /// Takes what was decided elsewhere for a command that waits.
    fn take_verdicts(&mut self, index: u16, waits: &mut Waits) {
        for verdict in waits.take_verdicts() {
            let slot = self.slots.get_mut(index);
            let nsid = slot.command.nsid.get();
            let working = slot.working.take().filter(|_| verdict.status.is_success());
            slot.buffer = working.map(|buffer| filled(buffer, &verdict.report));
            let Some(Queue { controller, .. }) = &self.queue else {
                continue;
            };
            if let Role::Io(subsystem) = &controller.role {
                waits
                    .ends
                    .extend(command::tell(subsystem, nsid, &verdict.news));
            }
            self.news = true;
            self.queues_must_go |= !waits.ends.is_empty();
        }
    }

    /// The command is answered when there is nothing left to wait for.
    fn park(&mut self, index: u16, waits: Waits, result: u64) {
        if let Some(status) = waits.outcome() {
            return self.complete(index, status, result);
        }
        self.slots.get_mut(index).stage = Stage::Parked;
        self.resets.push((index, waits, result));
    }

    fn administer(&mut self, ctx: &mut Context<'_>, index: u16) {
        let Some(Queue { controller, .. }) = &self.queue else {
            return;
        };
        let controller = controller.clone();
        match admin::execute(ctx, &controller, self, index) {
            Outcome::Done(status) => self.complete(index, status, 0),
            Outcome::Result(result) => self.complete(index, Status::SUCCESS, result),
            Outcome::Data(data) => self.respond_with(index, &data),
            Outcome::Parked => {
                self.slots.get_mut(index).stage = Stage::Parked;
                self.event_requests.push_back(index);
            }
            Outcome::Waits(waits, result) => self.park(index, waits, result),
        }
        // A log page that was read, or a feature that was set, may have armed an event again.
        self.deliver_events();
    }

    /// Answers commands that wait, for the end of associations or for what is to be kept, and need not any
    /// more. True if some wait on.
    pub(crate) fn answer_resets(&mut self) -> bool {
        let mut resets = std::mem::take(&mut self.resets);
        for (index, waits, _) in &mut resets {
            self.take_verdicts(*index, waits);
        }
        let over = |(_, waits, _): &mut (u16, Waits, u64)| waits.outcome().is_some();
        let done: Vec<_> = resets.extract_if(.., over).collect();
        self.resets = resets;
        for (index, waits, result) in done {
            let status = waits.outcome().unwrap_or(Status::INTERNAL_ERROR);
            let opcode = self.command_of(index).opcode;
            let status = admin::cross_reset::told(opcode, status);
            let result = waits.told().unwrap_or(result);
            let result = if status.is_success() { result } else { 0 };
            self.complete(index, status, result);
        }
        !self.resets.is_empty()
    }

    /// How many such commands wait.
    pub(crate) fn waiting_resets(&self) -> usize {
        self.resets.len()
    }

    /// Ends all event requests: the controller is reset, the host will send new ones.
    pub(crate) fn abort_event_requests(&mut self) {
        while let Some(index) = self.event_requests.pop_front() {
            self.withdraw_event_request(index);
        }
    }

    /// Ends an event request that was taken off the list, and that the host does not want any more.
    pub(crate) fn withdraw_event_request(&mut self, index: u16) {
        if let Some(queue) = &self.queue {
            queue.controller.pulse.request_withdrawn();
        }
        self.complete(index, Status::ABORT_REQUESTED, 0);
    }

    /// Answers event requests for which there is an event.
    pub(crate) fn deliver_events(&mut self) {
        let Some(Queue { controller, .. }) = &self.queue else {
            return;
        };
        let controller = controller.clone();
        while !self.event_requests.is_empty() {
            let Some(event) = controller.take_event() else {
                return;
            };
            if let Some(index) = self.event_requests.pop_front() {
                controller.pulse.request_ended();
                self.complete(index, Status::SUCCESS, u64::from(event.dw0()));
            }
        }
    }

    /// Tries again the first that lacks buffers. True if it has got them.
    pub(crate) fn feed(&mut self, ctx: &mut Context<'_>) -> bool {
        let served = match (self.blocked, self.starved.front()) {
            (Some(index), _) => self.unblock(ctx, index),
            (None, Some(&index)) => self.serve_starved(ctx, index),
            (None, None) => return false,
        };
        if served {
            self.hungry = None;
        }
        served
    }

    fn unblock(&mut self, ctx: &Context<'_>, index: u16) -> bool {
        if let Transfer::FromHost(bytes) = self.slots.get_mut(index).transfer
            && !self.provide(ctx, index, Need::of_capsule(bytes))
        {
            return false;
        }
        self.blocked = None;
        true
    }

    fn serve_starved(&mut self, ctx: &mut Context<'_>, index: u16) -> bool {
        let slot = self.slots.get_mut(index);
        let served = match slot.transfer {
            Transfer::FromHost(bytes) if slot.received < bytes => self.solicit(ctx, index, bytes),
            _ => self.execute(ctx, index),
        };
        if served {
            self.starved.pop_front();
        }
        served
    }
}

/// A buffer with this in it, as far as there is room, and zeroes.
fn filled(mut buffer: IoBuffer, page: &[u8]) -> IoBuffer {
    let bytes = page.len().min(buffer.len());
    buffer.fill(0);
    buffer[..bytes].copy_from_slice(&page[..bytes]);
    buffer
}

/// In-capsule data must be what the command and its data pointer say.
fn check_capsule(command: &Command, transfer: Transfer, bytes: usize) -> Result<(), Status> {
    let offset = match command.data() {
        DataPointer::InCapsule { offset, .. } => Some(offset),
        _ => None,
    };
    match (transfer, offset) {
        (Transfer::FromHost(_), Some(offset)) if offset > bytes as u64 => {
            Err(Status::SGL_OFFSET_INVALID.with_dnr())
        }
        (Transfer::FromHost(wanted), Some(offset)) if offset + wanted as u64 == bytes as u64 => {
            Ok(())
        }
        (Transfer::FromHost(_), None) if bytes == 0 => Ok(()),
        (Transfer::FromHost(_), _) => Err(Status::SGL_LENGTH_INVALID.with_dnr()),
        _ if bytes > 0 => Err(Status::INVALID_FIELD.with_dnr()),
        _ => Ok(()),
    }
}
