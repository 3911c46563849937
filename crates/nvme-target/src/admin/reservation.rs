//! Features of reservations: what a host is told of (82h), and what outlives a loss of power (83h).

use ashlar_nvme::command::NSID_BROADCAST;
use ashlar_nvme::feature::fid;
use ashlar_nvme::reservation::{ReservationStatus, masked};
use ashlar_nvme::{Command, Status};

use super::Outcome;
use crate::controller::{Controller, Role};
use crate::namespace::Namespace;
use crate::reservation::{Waits, Wants, command};
use crate::subsystem::Subsystem;

/// PTPL.
const PERSISTS: u32 = 1;
const MASKS: u32 =
    masked::REGISTRATION_PREEMPTED | masked::RESERVATION_RELEASED | masked::RESERVATION_PREEMPTED;

/// The namespaces that the command names, which hosts can reserve.
fn named<'a>(subsystem: &'a Subsystem, command: &Command) -> Result<Vec<&'a Namespace>, Status> {
    let nsid = command.nsid.get();
    let all = nsid == NSID_BROADCAST;
    let is_named = |one: &&Namespace| one.guard.is_some() && (all || one.nsid == nsid);
    let named: Vec<_> = subsystem.namespaces.iter().filter(is_named).collect();
    match named.is_empty() {
        true => Err(Status::INVALID_NAMESPACE.with_dnr()),
        false => Ok(named),
    }
}

pub(super) fn get(controller: &Controller, command: &Command) -> Outcome {
    let Role::Io(subsystem) = &controller.role else {
        return Outcome::Done(Status::INVALID_FIELD.with_dnr());
    };
    let namespace = match named(subsystem, command).as_deref() {
        Ok([one]) => *one,
        Ok(_) => return Outcome::Done(Status::INVALID_FIELD.with_dnr()),
        Err(status) => return Outcome::Done(*status),
    };
    if command.feature_id() == fid::RESERVATION_PERSISTENCE {
        return persistence(controller, namespace);
    }
    // It is the controller's own.
    let masks = &controller.state().notification_masks;
    let mask = masks.get(&namespace.nsid).copied().unwrap_or(0);
    Outcome::Result(u64::from(mask))
}

/// Whether the reservations outlive a loss of power: where another decides on them, it is asked.
fn persistence(controller: &Controller, namespace: &Namespace) -> Outcome {
    let Some(guard) = &namespace.guard else {
        return Outcome::Result(0);
    };
    match guard.refer(command::petition(controller, None, Wants::Report)) {
        Some(waits) => {
            let asks = |known: &ReservationStatus| persists_as(known.is_persistent);
            Outcome::Waits(waits.asking(asks), 0)
        }
        None => Outcome::Result(persists_as(guard.is_persistent())),
    }
}

fn persists_as(persists: bool) -> u64 {
    u64::from(u32::from(persists) * PERSISTS)
}

pub(super) fn set(controller: &Controller, command: &Command) -> Outcome {
    let Role::Io(subsystem) = &controller.role else {
        return Outcome::Done(Status::INVALID_FIELD.with_dnr());
    };
    let namespaces = match named(subsystem, command) {
        Ok(namespaces) => namespaces,
        Err(status) => return Outcome::Done(status),
    };
    let value = command.cdw11.get();
    if command.feature_id() == fid::RESERVATION_NOTIFICATION_MASK {
        let mut state = controller.state();
        let masks = namespaces.iter().map(|one| (one.nsid, value & MASKS));
        state.notification_masks.extend(masks);
        return Outcome::Result(0);
    }
    let guards = namespaces.iter().filter_map(|one| one.guard.as_ref());
    let persists = value & PERSISTS != 0;
    let petition = command::petition(controller, None, Wants::Persist(persists));
    let waits = guards.map(|guard| {
        let referred = guard.refer(petition);
        referred.unwrap_or_else(|| guard.persist(persists))
    });
    Outcome::Waits(waits.fold(Waits::default(), Waits::and), 0)
}
