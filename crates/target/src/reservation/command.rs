//! Reservation commands of the NVM command set.

use std::sync::Arc;

use ashlar_nvme::reservation::{Ask, ReservationStatus, data_bytes};
use ashlar_nvme::{Command, Status, opcode};

use super::Waits;
use crate::controller::Controller;
use crate::io::Transfer;
use crate::namespace::Namespace;
use crate::subsystem::Subsystem;

/// What becomes of a reservation command.
pub(crate) enum Outcome {
    Done(Status),
    /// Reservation Report: the structure.
    Report(Vec<u8>),
    /// It is done when nothing of these is left to wait for; hosts have something to be told.
    Waits(Waits),
}

/// Whether the command is one.
pub(crate) fn is_one(opcode: u8) -> bool {
    opcode == opcode::io::RESERVATION_REPORT || data_bytes(opcode).is_some()
}

/// What the command moves, or why it is refused.
pub(crate) fn plan(namespace: &Namespace, command: &Command) -> Result<Transfer, Status> {
    if namespace.guard.is_none() {
        return Err(Status::INVALID_OPCODE.with_dnr());
    }
    if let Some(bytes) = data_bytes(command.opcode) {
        return Ok(Transfer::FromHost(bytes));
    }
    match ReservationStatus::asked(command) {
        // Over fabrics host identifiers have 128 bits, for which the shorter structure has no room.
        (_, false) => Err(Status::HOST_ID_INCONSISTENT.with_dnr()),
        (bytes, true) => Ok(Transfer::ToHost(
            usize::try_from(bytes).unwrap_or(usize::MAX),
        )),
    }
}

/// Executes a planned command whose data is there.
pub(crate) fn execute(
    (controller, subsystem): (&Arc<Controller>, &Subsystem),
    command: &Command,
    data: &[u8],
) -> Outcome {
    let namespace = subsystem.namespace(command.nsid.get());
    let Some((namespace, guard)) = namespace.and_then(|one| Some((one, one.guard.as_ref()?)))
    else {
        return Outcome::Done(Status::INVALID_OPCODE.with_dnr());
    };
    if command.opcode == opcode::io::RESERVATION_REPORT {
        return Outcome::Report(guard.status().to_page());
    }
    let Some(ask) = Ask::parse(command, data) else {
        return Outcome::Done(Status::INVALID_FIELD.with_dnr());
    };
    match guard.execute(controller.host.id, ask) {
        Ok((news, mut waits)) => {
            for (host, what) in news.told {
                subsystem.notify(&host, namespace.nsid, what);
            }
            waits.ends = subsystem.end_hosts(&news.ended);
            Outcome::Waits(waits)
        }
        Err(status) => Outcome::Done(with_finality(status)),
    }
}

/// A conflict lasts until a host does something about it: to try again is no use.
fn with_finality(status: Status) -> Status {
    match status.is(Status::RESERVATION_CONFLICT) {
        true => status.with_dnr(),
        false => status,
    }
}
