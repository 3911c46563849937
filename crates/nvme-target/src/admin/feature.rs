//! Get and Set Features (Base 2.1, 5.1.11 and 5.1.25).

use ashlar_nvme::command::FeatureSelect;
use ashlar_nvme::feature::{HANDS_NOTHING_ON, NumberOfQueues, WRITE_CACHE_ENABLE, capability, fid};
use ashlar_nvme::{Command, Status};

use super::{Outcome, is_discovery, reservation};
use crate::controller::{Controller, MAX_IO_QUEUES, Role};

/// Whether Get Features of this feature returns data: only the host identifier does.
pub(super) fn has_data(command: &Command) -> bool {
    let current = matches!(
        command.feature_select(),
        FeatureSelect::Current | FeatureSelect::Default | FeatureSelect::Saved
    );
    command.feature_id() == fid::HOST_ID && current
}

fn invalid() -> Outcome {
    Outcome::Done(Status::INVALID_FIELD.with_dnr())
}

/// Whether the feature is one of each namespace, about its reservations.
fn is_reservation(feature: u8) -> bool {
    matches!(
        feature,
        fid::RESERVATION_NOTIFICATION_MASK | fid::RESERVATION_PERSISTENCE
    )
}

/// Whether the feature exists on this controller.
fn exists(controller: &Controller, feature: u8) -> bool {
    match feature {
        fid::ASYNC_EVENT_CONFIGURATION | fid::KEEP_ALIVE_TIMER => true,
        fid::ARBITRATION
        | fid::POWER_MANAGEMENT
        | fid::TEMPERATURE_THRESHOLD
        | fid::ERROR_RECOVERY
        | fid::NUMBER_OF_QUEUES
        | fid::WRITE_ATOMICITY
        | fid::HOST_ID => !is_discovery(controller),
        fid::RESERVATION_NOTIFICATION_MASK | fid::RESERVATION_PERSISTENCE => match &controller.role
        {
            Role::Io(subsystem) => subsystem.has_reservations(),
            Role::Discovery => false,
        },
        fid::HERE_ONLY => match &controller.role {
            Role::Io(subsystem) => subsystem.paths.is_some(),
            Role::Discovery => false,
        },
        fid::VOLATILE_WRITE_CACHE => match &controller.role {
            Role::Io(subsystem) => subsystem.volatile_cache(),
            Role::Discovery => false,
        },
        _ => false,
    }
}

pub(super) fn get(controller: &Controller, command: &Command) -> Outcome {
    let feature = command.feature_id();
    if !exists(controller, feature) {
        return invalid();
    }
    match command.feature_select() {
        FeatureSelect::Current if is_reservation(feature) => reservation::get(controller, command),
        FeatureSelect::Current => current(controller, feature),
        FeatureSelect::Default | FeatureSelect::Saved => default(controller, feature),
        FeatureSelect::SupportedCapabilities => {
            let fixed = matches!(feature, fid::HOST_ID | fid::POWER_MANAGEMENT);
            Outcome::Result(if fixed {
                0
            } else {
                u64::from(capability::CHANGEABLE)
            })
        }
        FeatureSelect::Reserved => invalid(),
    }
}

fn current(controller: &Controller, feature: u8) -> Outcome {
    let state = controller.state();
    let value = match feature {
        fid::HOST_ID => return Outcome::Data(controller.host.id.to_vec()),
        fid::VOLATILE_WRITE_CACHE => u32::from(controller.write_cache()) * WRITE_CACHE_ENABLE,
        fid::HERE_ONLY => u32::from(controller.here_only()) * HANDS_NOTHING_ON,
        fid::NUMBER_OF_QUEUES => {
            let granted = state.granted_queues.unwrap_or(MAX_IO_QUEUES);
            NumberOfQueues::pairs(u32::from(granted)).dword()
        }
        fid::ASYNC_EVENT_CONFIGURATION => state.event_mask,
        fid::KEEP_ALIVE_TIMER => controller.keep_alive_ms(),
        other => state.plain.get(&other).copied().unwrap_or(0),
    };
    Outcome::Result(u64::from(value))
}

fn default(controller: &Controller, feature: u8) -> Outcome {
    match feature {
        fid::HOST_ID => Outcome::Data(controller.host.id.to_vec()),
        fid::VOLATILE_WRITE_CACHE => Outcome::Result(u64::from(WRITE_CACHE_ENABLE)),
        fid::NUMBER_OF_QUEUES => Outcome::Result(u64::from(
            NumberOfQueues::pairs(u32::from(MAX_IO_QUEUES)).dword(),
        )),
        _ => Outcome::Result(0),
    }
}

pub(super) fn set(controller: &Controller, command: &Command) -> Outcome {
    let feature = command.feature_id();
    if !exists(controller, feature) {
        return invalid();
    }
    if command.feature_save() {
        return Outcome::Done(Status::FEATURE_NOT_SAVEABLE.with_dnr());
    }
    if is_reservation(feature) {
        return reservation::set(controller, command);
    }
    let value = command.cdw11.get();
    match feature {
        fid::NUMBER_OF_QUEUES => return set_queues(controller, value),
        fid::HOST_ID => return Outcome::Done(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
        fid::POWER_MANAGEMENT if value != 0 => return invalid(),
        fid::VOLATILE_WRITE_CACHE => controller.set_write_cache(value & WRITE_CACHE_ENABLE != 0),
        fid::HERE_ONLY => controller.set_here_only(value & HANDS_NOTHING_ON != 0),
        fid::KEEP_ALIVE_TIMER => controller.set_keep_alive_ms(value),
        fid::ASYNC_EVENT_CONFIGURATION => controller.want_events(value),
        other => {
            controller.state().plain.insert(other, value);
        }
    }
    Outcome::Result(0)
}

/// The host asks before it connects I/O queues.
fn set_queues(controller: &Controller, value: u32) -> Outcome {
    if controller.has_io_queue() {
        return Outcome::Done(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    }
    let Some(wanted) = NumberOfQueues::parse(value) else {
        return invalid();
    };
    let granted = wanted.usable_pairs().min(u32::from(MAX_IO_QUEUES)) as u16;
    controller.state().granted_queues = Some(granted);
    Outcome::Result(u64::from(NumberOfQueues::pairs(u32::from(granted)).dword()))
}
