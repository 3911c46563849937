//! Cross-Controller Reset (Base 2.3, 5.4.3; TP8028): a host has another of its associations ended.
//!
//! A host that has lost an association may know of its end while this target does not: a link that
//! went silent is noticed only when the keep-alive runs out, and a core without a processor notices
//! nothing. Commands of the old association, in devices or not even read, could then take effect
//! after newer ones. So the host asks here, on its new association, for the end of the old one, and
//! sends nothing else that writes before the answer.
//!
//! The answer comes when the last connection of the old association is closed and its last command
//! has left the devices; it then always says that the reset is complete, so that there is nothing for
//! the Cross-Controller Reset log page (1Eh) and its event to tell, and this target has neither.
//!
//! A controller that is not known any more, or was one of an earlier run of this target, has ended.
//! Only associations of the same host (NQN and identifier) can be named. One of another target of a shared
//! subsystem is not ended from here. But where one of the targets decides for all of them
//! ([`Wants::Succeed`]), it refuses from then on what that association has sent and nothing has come of
//! yet: that is what the answer waits for, whichever target has made the controller, because what that one
//! has passed on may still be on its way. While none decides, the reset is said to be in progress, and
//! the host asks again. Elsewhere this target cannot tell of others' controllers, and says so (Invalid
//! Controller Identifier).

use std::sync::Arc;

use ashlar_nvme::identify::IdentifyController;
use ashlar_nvme::{Command, Status};

use super::Outcome;
use crate::connection::Connection;
use crate::controller::{Controller, Instance, Role};
use crate::namespace::Namespace;
use crate::reservation::command::petition;
use crate::reservation::{Waits, Wants};

/// The command's opcode.
pub(super) const OPCODE: u8 = 0x38;
/// DW0 bit 0, IRS: the reset is complete.
const COMPLETE: u64 = 1;
/// CCRL: how many may be outstanding on an association.
const LIMIT: u8 = 4;
const LIMIT_EXCEEDED: Status = Status::new(1, 0x40);
const IN_PROGRESS: Status = Status::new(1, 0x3f);

/// Where Identify Controller has CIU, CIRN and CCRL.
const CIU: usize = 135;
const CIRN: usize = 136;
const CCRL: usize = 1807;

/// Adds what a host needs to have this controller ended one day.
pub(super) fn identify(page: &mut [u8], instance: Instance) {
    debug_assert_eq!(page.len(), IdentifyController::BYTES);
    page[CIU] = instance.uniquifier;
    page[CIRN..CIRN + 8].copy_from_slice(&instance.number.to_le_bytes());
    page[CCRL] = LIMIT;
}

/// Has what was passed on of the host's other associations refused, where one target decides for all.
fn refer(controller: &Controller) -> Option<Waits> {
    let Role::Io(subsystem) = &controller.role else {
        return None;
    };
    let refer = |namespace: &Namespace| {
        let guard = namespace.guard.as_ref()?;
        guard.refer(petition(controller, None, Wants::Succeed))
    };
    let waits: Option<Vec<Waits>> = subsystem.namespaces.iter().map(refer).collect();
    Some(waits?.into_iter().fold(Waits::default(), Waits::and))
}

/// Sees to it that nothing comes any more of one that is not known here.
fn end_elsewhere(controller: &Controller, id: u16) -> Outcome {
    let is_made_here = match &controller.role {
        Role::Io(subsystem) => subsystem.makes(id),
        Role::Discovery => true,
    };
    match refer(controller) {
        Some(waits) => Outcome::Waits(waits, COMPLETE),
        None if is_made_here => Outcome::Result(COMPLETE),
        None => Outcome::Done(Status::INVALID_CONTROLLER_ID),
    }
}

/// How a command that has waited is answered: a reset that no target has decided on is not over.
pub(crate) fn told(opcode: u8, status: Status) -> Status {
    match opcode == OPCODE && status.is_path_related() {
        true => IN_PROGRESS,
        false => status,
    }
}

/// Ends the association that the command names. It is answered by
/// [`Connection::answer_resets`] when nothing of that is left.
pub(super) fn execute(
    controller: &Arc<Controller>,
    connection: &mut Connection,
    command: &Command,
) -> Outcome {
    if matches!(controller.role, Role::Discovery) {
        return Outcome::Done(Status::INVALID_OPCODE.with_dnr());
    }
    let (id, ciu) = (
        command.cdw10.get() as u16,
        (command.cdw10.get() >> 16) as u8,
    );
    let number = u64::from(command.cdw13.get()) << 32 | u64::from(command.cdw12.get());
    let instance = Instance {
        uniquifier: ciu,
        number,
    };
    if connection.waiting_resets() >= usize::from(LIMIT) {
        return Outcome::Done(LIMIT_EXCEEDED);
    }
    let Some(old) = controller.host.association(id, instance) else {
        return end_elsewhere(controller, id);
    };
    if Arc::ptr_eq(&old, controller) {
        return Outcome::Done(Status::INVALID_FIELD.with_dnr());
    }
    // It may be one of another subsystem, where the same id is another controller's.
    if old.end()
        && let Role::Io(subsystem) = &old.role
    {
        subsystem.remove_controller(old.id);
    }
    // Even if it had ended before: cores may not have been told yet.
    connection.queues_must_go = true;
    let end = Waits::for_end(Arc::downgrade(&old));
    let waits = end.and(refer(controller).unwrap_or_default());
    Outcome::Waits(waits, COMPLETE)
}
