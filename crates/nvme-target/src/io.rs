//! NVM commands: what one moves, whether it may, and the device requests it becomes (NVM Command
//! Set 3.3).

use ashlar_block::{
    BlockRange, Completion, Durability, IoBuffer, Operation, Provenance, Registrant, Request,
};
use ashlar_nvme::command::{DSM_RANGES_MAX, DataPointer, DsmRange, Fuse, NSID_BROADCAST};
use ashlar_nvme::reservation::ReservationStatus;
use ashlar_nvme::{Command, Status, opcode};

use crate::controller::Controller;
use crate::devices::Devices;
use crate::namespace::Namespace;
use crate::reservation::command;
use crate::slot::Slot;
use crate::status::from_error;
use crate::subsystem::Subsystem;

/// Which way a command's data goes, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    None,
    FromHost(usize),
    ToHost(usize),
}

/// Checks an I/O command as far as that needs no data.
pub(crate) fn plan(
    controller: &Controller,
    subsystem: &Subsystem,
    command: &Command,
) -> Result<Transfer, Status> {
    check_admission(controller, subsystem, command)?;
    if command.fuse() != Fuse::Normal {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let transfer = match command.opcode {
        opcode::io::FLUSH => {
            return Ok(Transfer::None);
        }
        opcode::io::WRITE if command.directive_type() != 0 => {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        opcode::io::READ => Transfer::ToHost(checked_bytes(subsystem, command)?),
        opcode::io::WRITE | opcode::io::COMPARE => {
            Transfer::FromHost(checked_bytes(subsystem, command)?)
        }
        opcode::io::VERIFY => {
            checked_bytes(subsystem, command)?;
            return Ok(Transfer::None);
        }
        opcode::io::WRITE_ZEROES => {
            let namespace = namespace(subsystem, command)?;
            check_protection(command)?;
            range(namespace, command)?;
            return Ok(Transfer::None);
        }
        opcode::io::DATASET_MANAGEMENT => {
            namespace(subsystem, command)?;
            Transfer::FromHost(range_list_bytes(command)?)
        }
        opcode if command::is_one(opcode) => {
            let transfer = command::plan(namespace(subsystem, command)?, command)?;
            check_size(subsystem, transfer)?;
            transfer
        }
        _ => return Err(Status::INVALID_OPCODE.with_dnr()),
    };
    check_data_pointer(command, transfer)?;
    Ok(transfer)
}

/// Bytes of a Dataset Management command's list. Linux always sends room for the most ranges, and
/// says in the command how many of them count.
fn range_list_bytes(command: &Command) -> Result<usize, Status> {
    let described = match command.data() {
        DataPointer::Transport { length } | DataPointer::InCapsule { length, .. } => length,
        _ => return Err(Status::SGL_TYPE_INVALID.with_dnr()),
    };
    let bytes = |ranges: usize| ranges * size_of::<DsmRange>();
    let legal = bytes(command.dsm_ranges())..=bytes(DSM_RANGES_MAX);
    if legal.contains(&(described as usize)) {
        Ok(described as usize)
    } else {
        Err(Status::SGL_LENGTH_INVALID.with_dnr())
    }
}

/// The data pointer must describe exactly the data that the command moves. In-capsule data is
/// checked where the capsule's length is known.
pub(crate) fn check_data_pointer(command: &Command, transfer: Transfer) -> Result<(), Status> {
    let described = match (command.data(), transfer) {
        (DataPointer::Transport { length }, _) => length,
        // Its offset is checked where the capsule's length is known.
        (DataPointer::InCapsule { length, .. }, Transfer::FromHost(_)) => length,
        _ => return Err(Status::SGL_TYPE_INVALID.with_dnr()),
    };
    match transfer {
        Transfer::FromHost(bytes) | Transfer::ToHost(bytes) if described as usize != bytes => {
            Err(Status::SGL_LENGTH_INVALID.with_dnr())
        }
        _ => Ok(()),
    }
}

/// The namespace that the command names.
fn namespace<'a>(subsystem: &'a Subsystem, command: &Command) -> Result<&'a Namespace, Status> {
    let namespace = subsystem.namespace(command.nsid.get());
    namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())
}

/// No more than a buffer that is transferred at once.
fn check_size(subsystem: &Subsystem, transfer: Transfer) -> Result<(), Status> {
    match transfer {
        Transfer::ToHost(bytes) if bytes > subsystem.max_transfer_bytes() as usize => {
            Err(Status::INVALID_FIELD.with_dnr())
        }
        _ => Ok(()),
    }
}

/// Whether what the command names, a namespace or all of them, can be reached here, and the host may do this
/// to it. An opcode that is unknown is judged elsewhere.
pub(crate) fn check_admission(
    controller: &Controller,
    subsystem: &Subsystem,
    command: &Command,
) -> Result<(), Status> {
    if command.opcode == opcode::io::FLUSH && command.nsid.get() == NSID_BROADCAST {
        let mut all = subsystem.namespaces.iter();
        return all.try_for_each(|one| check_one(controller, one, command.opcode));
    }
    check_one(controller, namespace(subsystem, command)?, command.opcode)
}

fn check_one(controller: &Controller, namespace: &Namespace, opcode: u8) -> Result<(), Status> {
    if let Some(refusal) = namespace.path.refusal() {
        return Err(refusal);
    }
    match controller.may(namespace, opcode) {
        true => Ok(()),
        // To try again is no use.
        false => Err(Status::RESERVATION_CONFLICT.with_dnr()),
    }
}

/// Our namespaces are formatted without protection information.
fn check_protection(command: &Command) -> Result<(), Status> {
    if command.prinfo() & 0b1000 != 0 {
        Err(Status::INVALID_FIELD.with_dnr())
    } else {
        Ok(())
    }
}

fn range(namespace: &Namespace, command: &Command) -> Result<BlockRange, Status> {
    let range = BlockRange::new(command.slba(), command.blocks());
    if namespace.contains(range) {
        Ok(range)
    } else {
        Err(Status::LBA_OUT_OF_RANGE.with_dnr())
    }
}

/// Bytes of the command's range, if they lie in the namespace and within MDTS.
fn checked_bytes(subsystem: &Subsystem, command: &Command) -> Result<usize, Status> {
    let namespace = namespace(subsystem, command)?;
    check_protection(command)?;
    let range = range(namespace, command)?;
    let bytes = namespace.bytes_of(range.count);
    if bytes > subsystem.max_transfer_bytes() as usize {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    Ok(bytes)
}

/// Bytes of buffer that a planned command needs before it can start, beyond the host's data.
pub(crate) fn working_bytes(subsystem: &Subsystem, command: &Command) -> usize {
    match command.opcode {
        opcode::io::READ | opcode::io::COMPARE | opcode::io::VERIFY => {
            let namespace = subsystem.namespace(command.nsid.get());
            namespace.map_or(0, |n| n.bytes_of(command.blocks()))
        }
        opcode::io::RESERVATION_REPORT => {
            let (bytes, _) = ReservationStatus::asked(command);
            usize::try_from(bytes).unwrap_or(usize::MAX)
        }
        _ => 0,
    }
}

/// What turns a planned command into device requests.
pub(crate) struct Executor<'a> {
    pub(crate) devices: &'a mut Devices,
    pub(crate) controller: &'a Controller,
    pub(crate) subsystem: &'a Subsystem,
    /// Names the command in completions.
    pub(crate) tag: u64,
}

impl Executor<'_> {
    /// Hands a planned command, its data complete, to the devices. `working` is the buffer that
    /// [`working_bytes`] asked for. A slot without requests afterwards is done.
    pub(crate) fn start(&mut self, slot: &mut Slot, working: Option<IoBuffer>) {
        let command = slot.command;
        // Both may have changed while its data, or a buffer, was waited for.
        if let Err(status) = check_admission(self.controller, self.subsystem, &command) {
            return slot.fail(status);
        }
        let durability = self.durability(&command);
        match command.opcode {
            opcode::io::FLUSH => self.flush(slot),
            opcode::io::WRITE => {
                let data = slot.buffer.take();
                self.on_range(slot, Operation::Write(durability), data);
            }
            opcode::io::WRITE_ZEROES => {
                let deallocate = command.deac();
                self.on_range(
                    slot,
                    Operation::WriteZeroes {
                        durability,
                        deallocate,
                    },
                    None,
                );
            }
            opcode::io::DATASET_MANAGEMENT => self.manage(slot),
            _ => self.on_range(slot, Operation::Read, working),
        }
    }

    fn on_range(&mut self, slot: &mut Slot, op: Operation, buffer: Option<IoBuffer>) {
        let range = BlockRange::new(slot.command.slba(), slot.command.blocks());
        match self.subsystem.namespace(slot.command.nsid.get()) {
            Some(namespace) => {
                slot.worked_bytes = namespace.bytes_of(range.count);
                let request = Request {
                    tag: self.tag,
                    op,
                    range,
                    buffer,
                };
                self.submit(slot, namespace, request);
            }
            None => slot.fail(Status::INVALID_NAMESPACE.with_dnr()),
        }
    }

    fn submit(&mut self, slot: &mut Slot, namespace: &Namespace, request: Request) {
        slot.requests += 1;
        let provenance = Provenance {
            host: self.controller.host.name,
            registrant: Registrant(self.controller.host.id),
            association: self.controller.association(),
            label: slot.label,
            here_only: self.controller.here_only(),
        };
        self.devices.submit(namespace.device, request, provenance);
    }

    fn flush(&mut self, slot: &mut Slot) {
        let nsid = slot.command.nsid.get();
        for namespace in &self.subsystem.namespaces {
            if nsid == namespace.nsid || nsid == NSID_BROADCAST {
                self.submit(slot, namespace, Request::flush(self.tag));
            }
        }
    }

    /// Dataset Management. Every range is checked before any has an effect; hints are ignored.
    fn manage(&mut self, slot: &mut Slot) {
        let data = slot.buffer.take();
        let ranges = data
            .as_deref()
            .and_then(|d| DsmRange::list(d, slot.command.dsm_ranges()));
        let namespace = self.subsystem.namespace(slot.command.nsid.get());
        let (Some(ranges), Some(namespace)) = (ranges, namespace) else {
            return slot.fail(Status::INVALID_FIELD.with_dnr());
        };
        let block_range = |r: &DsmRange| BlockRange::new(r.slba.get(), r.blocks.get());
        if ranges.iter().any(|r| !namespace.contains(block_range(r))) {
            return slot.fail(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        if !slot.command.dsm_deallocate() {
            return;
        }
        for range in ranges
            .iter()
            .map(block_range)
            .filter(|range| range.count > 0)
        {
            let op = Operation::Deallocate;
            self.submit(
                slot,
                namespace,
                Request {
                    tag: self.tag,
                    op,
                    range,
                    buffer: None,
                },
            );
        }
    }

    /// A write is durable before it is acknowledged if the host asks, or has switched the cache off.
    fn durability(&self, command: &Command) -> Durability {
        if command.fua() || !self.controller.write_cache() {
            Durability::Durable
        } else {
            Durability::Cached
        }
    }
}

/// Takes one of the command's completions. The command is done when no request is left.
pub(crate) fn absorb(slot: &mut Slot, completion: Completion) {
    slot.requests -= 1;
    let opcode = slot.command.opcode;
    if let Err(error) = &completion.result {
        let is_write = !matches!(
            opcode,
            opcode::io::READ | opcode::io::COMPARE | opcode::io::VERIFY
        );
        return slot.fail(from_error(error.kind(), is_write));
    }
    match opcode {
        opcode::io::READ => slot.buffer = completion.buffer,
        opcode::io::COMPARE if slot.buffer.take().as_deref() != completion.buffer.as_deref() => {
            slot.fail(Status::COMPARE_FAILURE);
        }
        _ => {}
    }
}
