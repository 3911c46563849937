//! Reservation commands of the NVM command set.

use std::sync::Weak;

use ashlar_block::{Label, Provenance, Registrant};
use ashlar_nvme::reservation::{Ask, ReservationStatus, data_bytes};
use ashlar_nvme::{Command, Status, opcode};

use super::decide::{Petition, Wants};
use super::{News, Waits};
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

/// A controller's petition; `label` says how old its command may be.
pub(crate) fn petition(controller: &Controller, label: Option<Label>, wants: Wants) -> Petition {
    Petition {
        provenance: Provenance {
            host: controller.host.name,
            registrant: Registrant(controller.host.id),
            association: controller.association(),
            label,
            here_only: controller.here_only(),
        },
        wants,
    }
}

/// Executes a planned command whose data is there; `label` says how old it may be.
pub(crate) fn execute(
    controller: &Controller,
    subsystem: &Subsystem,
    command: &Command,
    label: Option<Label>,
    data: &[u8],
) -> Outcome {
    let namespace = subsystem.namespace(command.nsid.get());
    let Some((namespace, guard)) = namespace.and_then(|one| Some((one, one.guard.as_ref()?)))
    else {
        return Outcome::Done(Status::INVALID_OPCODE.with_dnr());
    };
    let wants = match command.opcode {
        opcode::io::RESERVATION_REPORT => Some(Wants::Report),
        _ => Ask::parse(command, data).map(Wants::Change),
    };
    let Some(wants) = wants else {
        return Outcome::Done(Status::INVALID_FIELD.with_dnr());
    };
    if let Some(waits) = guard.refer(petition(controller, label, wants)) {
        return Outcome::Waits(waits);
    }
    let Wants::Change(ask) = wants else {
        return Outcome::Report(guard.status().to_page());
    };
    match guard.execute(controller.host.id, ask) {
        Ok((news, mut waits)) => {
            waits.ends = tell(subsystem, namespace.nsid, &news);
            Outcome::Waits(waits)
        }
        Err(status) => Outcome::Done(with_finality(status)),
    }
}

/// Tells hosts that are connected here what has become of their registrations: associations of which nothing may be
/// left.
pub(crate) fn tell(subsystem: &Subsystem, nsid: u32, news: &News) -> Vec<Weak<Controller>> {
    for (host, what) in &news.told {
        subsystem.notify(host, nsid, *what);
    }
    subsystem.end_hosts(&news.ended)
}

/// A conflict lasts until a host does something about it: to try again is no use.
pub(super) fn with_finality(status: Status) -> Status {
    match status.is(Status::RESERVATION_CONFLICT) {
        true => status.with_dnr(),
        false => status,
    }
}
