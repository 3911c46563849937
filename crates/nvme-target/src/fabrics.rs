//! Fabrics commands: Connect and the properties (Base 2.1, section 6).

use std::sync::Arc;

use ashlar_nvme::fabrics::{
    CNTLID_DYNAMIC, Cap, Cc, Connect, ConnectData, DISCOVERY_NQN, InvalidParameter, Nqn, property,
};
use ashlar_nvme::{Command, Completion, Status, opcode};
use tracing::{info, warn};

use crate::connection::{Connection, Context, Queue};
use crate::controller::{Claim, Controller, ControllerName, Role};
use crate::io::{Transfer, check_data_pointer};
use crate::subsystem::Subsystem;
use crate::target::Target;

/// Entries of the longest queue we accept.
pub(crate) const MAX_QUEUE_ENTRIES: u16 = 1024;
/// CAP.TO in units of 500 ms: enabling is immediate, disabling waits for nothing.
const READY_TIMEOUT: u8 = 10;
/// A discovery controller whose host asks for no keep-alive ends after so long without a command: every host may have
/// one, and it would stay for ever.
const DISCOVERY_KEEP_ALIVE_MS: u32 = 120_000;
/// The version of the specification that we follow.
pub(crate) const VERSION: u32 = property::version(2, 0, 0);

/// Before Connect only Connect is legal.
pub(crate) fn plan_unconnected(command: &Command) -> Result<Transfer, Status> {
    if !command.is_fabrics() || command.fctype() != opcode::fabrics::CONNECT {
        return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    }
    if command.record_format() != 0 {
        return Err(Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr());
    }
    let transfer = Transfer::FromHost(ConnectData::BYTES);
    check_data_pointer(command, transfer)?;
    Ok(transfer)
}

/// Fabrics commands on a connected queue.
pub(crate) fn plan(command: &Command) -> Result<Transfer, Status> {
    match command.fctype() {
        opcode::fabrics::PROPERTY_GET | opcode::fabrics::PROPERTY_SET => Ok(Transfer::None),
        opcode::fabrics::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
        _ => Err(Status::INVALID_OPCODE.with_dnr()),
    }
}

/// Executes a property command. On an I/O queue there are none.
pub(crate) fn execute(connection: &mut Connection, controller: &Controller, index: u16) {
    let command = connection.command_of(index);
    let is_admin = connection.queue.as_ref().is_some_and(|queue| queue.id == 0);
    let was_enabled = controller.state().cc.enabled();
    let outcome = match command.fctype() {
        _ if !is_admin => Err(Status::INVALID_FIELD.with_dnr()),
        opcode::fabrics::PROPERTY_GET => get_property(controller, &command),
        _ => set_property(connection, controller, &command).map(|()| 0),
    };
    match outcome {
        Ok(result) => connection.complete(index, Status::SUCCESS, result),
        Err(status) => connection.complete(index, status, 0),
    }
    // Behind the answer. A shutdown leaves event requests alone: a host that leaves takes the end of one
    // for an event, and asks for the next.
    if was_enabled && !controller.state().cc.enabled() {
        connection.abort_event_requests();
    }
}

fn get_property(controller: &Controller, command: &Command) -> Result<u64, Status> {
    let state = controller.state();
    match (command.property_offset(), command.property_bytes()) {
        (property::CAP, Some(8)) => Ok(Cap::new(u32::from(MAX_QUEUE_ENTRIES), READY_TIMEOUT).0),
        (property::VS, Some(4)) => Ok(u64::from(VERSION)),
        (property::CC, Some(4)) => Ok(u64::from(state.cc.0)),
        (property::CSTS, Some(4)) => Ok(u64::from(state.csts.0)),
        _ => Err(Status::INVALID_FIELD.with_dnr()),
    }
}

fn set_property(
    connection: &mut Connection,
    controller: &Controller,
    command: &Command,
) -> Result<(), Status> {
    if (command.property_offset(), command.property_bytes()) != (property::CC, Some(4)) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let cc = Cc(command.property_value() as u32);
    let legal = cc.iosqes() == 6 && cc.iocqes() == 4 && cc.mps() == 0 && cc.arbitration() == 0;
    if cc.enabled() && !(legal && matches!(cc.command_set(), 0 | 6)) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if controller.configure(cc) {
        connection.queues_must_go = true;
    }
    Ok(())
}

/// What became of a Connect.
pub(crate) enum Verdict {
    /// The connection carries this queue now.
    Connected(Queue),
    /// The host's earlier commands are still being executed: try again.
    Wait,
    /// Refused, with the completion's result.
    Refused(Status, u64),
}

impl From<Status> for Verdict {
    fn from(status: Status) -> Self {
        Self::Refused(status, 0)
    }
}

impl From<InvalidParameter> for Verdict {
    fn from(parameter: InvalidParameter) -> Self {
        let refused = Completion::connect_invalid(0, parameter);
        Self::Refused(refused.status(), refused.result())
    }
}

/// Decides on a Connect whose data has arrived.
pub(crate) fn connect(ctx: &Context<'_>, command: &Command, data: &[u8]) -> Verdict {
    let Some(data) = ConnectData::parse(data) else {
        return Status::SGL_LENGTH_INVALID.with_dnr().into();
    };
    let parameters = command.connect_parameters();
    if parameters.sqsize == 0 || parameters.sqsize >= MAX_QUEUE_ENTRIES {
        return InvalidParameter::SQSIZE.into();
    }
    if let Some(parameter) = wrong_host(data) {
        return parameter.into();
    }
    let connected = if parameters.qid == 0 {
        connect_admin(ctx, parameters, data)
    } else {
        connect_io(ctx, parameters, data)
    };
    connected.unwrap_or_else(|refusal| refusal)
}

/// Which part of the host's identity is none. It is shown to operators and compared with lists, so it must
/// be what it looks like.
///
/// An empty NQN is let through: SPDK's tools send one. No list contains it.
fn wrong_host(data: &ConnectData) -> Option<InvalidParameter> {
    let is_name = |nqn: &str| nqn.is_empty() || Nqn::lenient(nqn).is_ok();
    if !data.exact_hostnqn().is_some_and(is_name) {
        return Some(InvalidParameter::HOSTNQN);
    }
    (data.hostid == [0; 16]).then_some(InvalidParameter::HOSTID)
}

fn connect_admin(
    ctx: &Context<'_>,
    parameters: Connect,
    data: &ConnectData,
) -> Result<Verdict, Verdict> {
    if data.cntlid.get() != CNTLID_DYNAMIC {
        return Err(InvalidParameter::CNTLID.into());
    }
    let (subnqn, hostnqn) = (data.subnqn(), data.exact_hostnqn().unwrap_or_default());
    let host = ctx.target.host(hostnqn, data.hostid);
    let is_discovery = subnqn == DISCOVERY_NQN;
    let keep_alive_ms = match parameters.keep_alive_ms {
        0 if is_discovery => DISCOVERY_KEEP_ALIVE_MS,
        asked => asked,
    };
    let make = |id, role| {
        let instance = ctx.target.next_instance();
        let name = ControllerName { id, instance };
        Controller::new(name, role, host.clone(), keep_alive_ms, ctx.now)
    };
    let controller = if is_discovery {
        let controller = Arc::new(make(ctx.target.discovery_id(), Role::Discovery));
        ctx.target.roster_mut().listen(&controller);
        controller
    } else {
        let subsystem = find_subsystem(ctx, &subnqn)?;
        if !subsystem.allows(hostnqn) {
            warn!(host = ?hostnqn, subsystem = subnqn, "host {hostnqn:?} is not let in to {subnqn}");
            return Err(Status::CONNECT_INVALID_HOST.with_dnr().into());
        }
        if host.has_lingering(&subnqn) {
            return Ok(Verdict::Wait);
        }
        let role = Role::Io(subsystem.clone());
        let controller = subsystem.add_controller(hostnqn, |id| make(id, role))?;
        info!(host = ?hostnqn, subsystem = subnqn, "host {hostnqn:?} has connected to {subnqn}");
        controller
    };
    host.remember(&controller);
    Ok(Verdict::Connected(Queue::new(
        controller,
        0,
        parameters.sqsize + 1,
    )))
}

/// The only core to which the I/O queue of this Connect may go.
pub(crate) fn only_core(target: &Target, data: &[u8]) -> Option<usize> {
    let data = ConnectData::parse(data)?;
    target.subsystem(&data.subnqn())?.core
}

fn find_subsystem(ctx: &Context<'_>, nqn: &str) -> Result<Arc<Subsystem>, Verdict> {
    match ctx.target.subsystem(nqn) {
        Some(subsystem) => Ok(subsystem),
        None if ctx.target.roster().expects(nqn) => Err(Status::CONNECT_CONTROLLER_BUSY.into()),
        None => Err(InvalidParameter::SUBNQN.into()),
    }
}

fn connect_io(
    ctx: &Context<'_>,
    parameters: Connect,
    data: &ConnectData,
) -> Result<Verdict, Verdict> {
    let subsystem = find_subsystem(ctx, &data.subnqn())?;
    let controller = subsystem.controller(data.cntlid.get());
    let controller = controller.ok_or(InvalidParameter::CNTLID)?;
    if controller.host.nqn != data.exact_hostnqn().unwrap_or_default() {
        return Err(InvalidParameter::HOSTNQN.into());
    }
    if controller.host.id != data.hostid {
        return Err(InvalidParameter::HOSTID.into());
    }
    if !controller.is_ready() {
        return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr().into());
    }
    // Made before the claim: a reset in between is then noticed.
    let queue = Queue::new(controller.clone(), parameters.qid, parameters.sqsize + 1);
    match controller.claim_queue(parameters.qid) {
        Claim::Granted => Ok(Verdict::Connected(queue)),
        Claim::Draining => Ok(Verdict::Wait),
        Claim::Taken => Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr().into()),
        Claim::BeyondGrant => Err(Status::INVALID_QUEUE_ID.with_dnr().into()),
    }
}
