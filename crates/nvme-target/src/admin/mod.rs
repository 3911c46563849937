//! Admin commands (Base 2.1, section 5).

pub(crate) mod cross_reset;
mod feature;
mod identify;
mod log;
mod reservation;

use std::sync::Arc;

use ashlar_nvme::command::Fuse;
use ashlar_nvme::identify::BYTES as IDENTIFY_BYTES;
use ashlar_nvme::{Command, Status, opcode};

use crate::connection::{Connection, Context};
use crate::controller::{Controller, Role};
use crate::io::{Transfer, check_data_pointer};
use crate::reservation::Waits;
use crate::slot::Stage;
use crate::subsystem::MAX_TRANSFER_BYTES;

/// Most asynchronous event requests outstanding.
const EVENT_REQUESTS: usize = 4;

/// What became of an admin command.
pub(crate) enum Outcome {
    /// It ends with this status.
    Done(Status),
    /// It succeeded, with DW0 and DW1.
    Result(u64),
    /// It succeeded, with data of the length that the host asked for.
    Data(Vec<u8>),
    /// It is an event request: it ends when there is an event.
    Parked,
    /// It ends when there is nothing left to wait for, with DW0 and DW1.
    Waits(Waits, u64),
}

/// Checks an admin command as far as that needs no data.
pub(crate) fn plan(command: &Command) -> Result<Transfer, Status> {
    if command.fuse() != Fuse::Normal {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let transfer = match command.opcode {
        opcode::admin::IDENTIFY => Transfer::ToHost(IDENTIFY_BYTES),
        opcode::admin::GET_LOG_PAGE => {
            let bytes = command.log_page_parameters().bytes;
            if bytes > u64::from(MAX_TRANSFER_BYTES) {
                return Err(Status::INVALID_FIELD.with_dnr());
            }
            Transfer::ToHost(bytes as usize)
        }
        opcode::admin::GET_FEATURES if feature::has_data(command) => Transfer::ToHost(16),
        opcode::admin::GET_FEATURES
        | opcode::admin::SET_FEATURES
        | opcode::admin::ABORT
        | opcode::admin::ASYNC_EVENT_REQUEST
        | opcode::admin::KEEP_ALIVE
        | cross_reset::OPCODE => return Ok(Transfer::None),
        _ => return Err(Status::INVALID_OPCODE.with_dnr()),
    };
    check_data_pointer(command, transfer)?;
    Ok(transfer)
}

/// Executes a planned admin command in slot `index` of `connection`, which is an admin queue's.
pub(crate) fn execute(
    ctx: &Context<'_>,
    controller: &Arc<Controller>,
    connection: &mut Connection,
    index: u16,
) -> Outcome {
    let command = connection.command_of(index);
    let data = match command.opcode {
        opcode::admin::IDENTIFY => identify::page(controller, &command),
        opcode::admin::GET_LOG_PAGE => log::page(ctx, controller, connection, &command),
        opcode::admin::GET_FEATURES => return feature::get(controller, &command),
        opcode::admin::SET_FEATURES => return feature::set(controller, &command),
        opcode::admin::ABORT => return abort(connection, &command),
        opcode::admin::ASYNC_EVENT_REQUEST => return request_event(controller, connection),
        cross_reset::OPCODE => return cross_reset::execute(controller, connection, &command),
        // Any command on the admin queue is a sign of life.
        _ => return Outcome::Result(0),
    };
    match (data, plan(&command)) {
        (Ok(mut data), Ok(Transfer::ToHost(bytes))) => {
            // A host takes a short success for a broken controller.
            data.resize(bytes, 0);
            Outcome::Data(data)
        }
        (Err(status), _) | (_, Err(status)) => Outcome::Done(status),
        _ => Outcome::Done(Status::INTERNAL_ERROR),
    }
}

fn request_event(controller: &Controller, connection: &Connection) -> Outcome {
    if connection.event_requests.len() >= EVENT_REQUESTS {
        return Outcome::Done(Status::ASYNC_EVENT_LIMIT_EXCEEDED.with_dnr());
    }
    let outstanding = connection.event_requests.len() + 1;
    controller.pulse.request_received(outstanding);
    Outcome::Parked
}

/// Abort is best effort (5.1.1): only a waiting event request is ended; what a device has is
/// finished. DW0 bit 0 says that nothing was aborted.
fn abort(connection: &mut Connection, command: &Command) -> Outcome {
    const NOT_ABORTED: u64 = 1;
    let (sqid, cid) = command.abort_target();
    let waiting = |connection: &mut Connection, slot: u16| {
        connection.stage_of(slot) == Stage::Parked && connection.command_of(slot).cid.get() == cid
    };
    let requests: Vec<u16> = connection.event_requests.iter().copied().collect();
    let found = requests
        .into_iter()
        .find(|&slot| sqid == 0 && waiting(connection, slot));
    let Some(slot) = found else {
        return Outcome::Result(NOT_ABORTED);
    };
    connection.event_requests.retain(|&other| other != slot);
    connection.withdraw_event_request(slot);
    Outcome::Result(0)
}

/// Whether the controller is one of the discovery subsystem.
fn is_discovery(controller: &Controller) -> bool {
    matches!(controller.role, Role::Discovery)
}
