//! Get Log Page (Base 2.1, 5.1.12).

use ashlar_nvme::log::{
    CommandsSupported, FirmwareSlots, SmartHealth, SupportedLogPages, changed_namespaces, effects,
    lid, window,
};
use ashlar_nvme::{Command, Status, opcode};

use super::cross_reset;
use crate::connection::{Connection, Context};
use crate::controller::{Controller, Role};
use crate::discovery;
use crate::subsystem::Subsystem;

/// The SMART log counts data in thousands of 512 bytes.
const DATA_UNIT_BYTES: u64 = 512_000;
/// LSP bit 0 of the ANA log page, RGO: without the groups' namespaces.
const GROUPS_ONLY: u8 = 1;

const IO_PAGES: &[u8] = &[
    lid::SUPPORTED_LOG_PAGES,
    lid::ERROR_INFORMATION,
    lid::SMART_HEALTH,
    lid::FIRMWARE_SLOT,
    lid::CHANGED_NAMESPACES,
    lid::COMMANDS_SUPPORTED,
];
const DISCOVERY_PAGES: &[u8] = &[
    lid::SUPPORTED_LOG_PAGES,
    lid::ERROR_INFORMATION,
    lid::SMART_HEALTH,
    lid::DISCOVERY,
];

/// The log pages of a controller with namespaces.
fn io_pages(subsystem: &Subsystem) -> Vec<u8> {
    let ana = subsystem.paths.as_ref().map(|_| lid::ANA);
    let reserves = subsystem.has_reservations();
    let reservations = reserves.then_some(lid::RESERVATION_NOTIFICATION);
    let always = IO_PAGES.iter().copied();
    always.chain(ana).chain(reservations).collect()
}

/// The part of a log page that the command asks for; what lies beyond the page is for the caller to
/// fill up.
pub(super) fn page(
    ctx: &Context<'_>,
    controller: &Controller,
    connection: &Connection,
    command: &Command,
) -> Result<Vec<u8>, Status> {
    let parameters = command.log_page_parameters();
    let pages = match &controller.role {
        Role::Discovery => DISCOVERY_PAGES.to_vec(),
        Role::Io(subsystem) => io_pages(subsystem),
    };
    if !pages.contains(&parameters.lid) {
        return Err(Status::INVALID_LOG_PAGE.with_dnr());
    }
    if !parameters.retain_event {
        controller.rearm(parameters.lid);
    }
    let page = match parameters.lid {
        lid::SUPPORTED_LOG_PAGES => SupportedLogPages::of(&pages).as_wire().to_vec(),
        lid::ERROR_INFORMATION => controller.error_page(),
        lid::SMART_HEALTH => health(controller),
        lid::FIRMWARE_SLOT => FirmwareSlots::single(env!("CARGO_PKG_VERSION"))
            .as_wire()
            .to_vec(),
        lid::CHANGED_NAMESPACES => changed_namespaces(&controller.changed(parameters.retain_event)),
        lid::COMMANDS_SUPPORTED => commands(controller),
        lid::RESERVATION_NOTIFICATION => controller.notification_page(parameters.retain_event),
        lid::ANA => paths(controller, parameters.lsp & GROUPS_ONLY != 0),
        _ => discovery::page(ctx.target, &controller.host, connection.ends.local),
    };
    // A page is as long as the host likes to read, zeroes after its end.
    let end = parameters.offset.saturating_add(parameters.bytes);
    if end <= page.len() as u64 || parameters.offset <= page.len() as u64 {
        let part = window(&page, parameters).ok_or(Status::INVALID_FIELD.with_dnr())?;
        return Ok(part.to_vec());
    }
    Err(Status::INVALID_FIELD.with_dnr())
}

/// How the namespaces are reached here.
fn paths(controller: &Controller, groups_only: bool) -> Vec<u8> {
    let Role::Io(subsystem) = &controller.role else {
        return Vec::new();
    };
    let paths = subsystem.paths.as_ref();
    paths.map_or_else(Vec::new, |paths| {
        paths.page(&subsystem.namespaces, groups_only)
    })
}

fn health(controller: &Controller) -> Vec<u8> {
    let mut page = SmartHealth::default();
    page.available_spare = 100;
    page.spare_threshold = 10;
    // Kelvin; 300 K, since a value of zero alarms some tools.
    page.temperature.set(300);
    if let Role::Io(subsystem) = &controller.role {
        const RELIABILITY_DEGRADED: u8 = 1 << 2;
        let work = subsystem.work();
        let counter = |value: u64| u128::from(value).to_le_bytes();
        page.host_reads = counter(work.reads);
        page.host_writes = counter(work.writes);
        page.data_units_read = counter(work.read_bytes.div_ceil(DATA_UNIT_BYTES));
        page.data_units_written = counter(work.written_bytes.div_ceil(DATA_UNIT_BYTES));
        page.critical_warning = if subsystem.is_degraded() {
            RELIABILITY_DEGRADED
        } else {
            0
        };
    }
    let (errors, media) = controller.error_counts();
    page.error_entries = u128::from(errors).to_le_bytes();
    page.media_errors = u128::from(media).to_le_bytes();
    page.as_wire().to_vec()
}

fn commands(controller: &Controller) -> Vec<u8> {
    let mut page = CommandsSupported::default();
    let admin = [
        opcode::admin::IDENTIFY,
        opcode::admin::GET_LOG_PAGE,
        opcode::admin::GET_FEATURES,
        opcode::admin::SET_FEATURES,
        opcode::admin::ABORT,
        opcode::admin::ASYNC_EVENT_REQUEST,
        opcode::admin::KEEP_ALIVE,
        cross_reset::OPCODE,
    ];
    for opcode in admin {
        page.admin[usize::from(opcode)].set(effects::SUPPORTED);
    }
    for opcode in [
        opcode::io::FLUSH,
        opcode::io::READ,
        opcode::io::COMPARE,
        opcode::io::VERIFY,
    ] {
        page.io[usize::from(opcode)].set(effects::SUPPORTED);
    }
    let reserves = match &controller.role {
        Role::Io(subsystem) => subsystem.has_reservations(),
        Role::Discovery => false,
    };
    for opcode in [
        opcode::io::RESERVATION_REGISTER,
        opcode::io::RESERVATION_REPORT,
        opcode::io::RESERVATION_ACQUIRE,
        opcode::io::RESERVATION_RELEASE,
    ] {
        let effect = if reserves { effects::SUPPORTED } else { 0 };
        page.io[usize::from(opcode)].set(effect);
    }
    for opcode in [
        opcode::io::WRITE,
        opcode::io::WRITE_ZEROES,
        opcode::io::DATASET_MANAGEMENT,
    ] {
        page.io[usize::from(opcode)].set(effects::SUPPORTED | effects::CHANGES_BLOCKS);
    }
    page.as_wire().to_vec()
}
