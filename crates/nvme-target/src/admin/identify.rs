//! Identify (Base 2.1, 5.1.13): what a controller and its namespaces are.

use ashlar_block::Geometry;
use ashlar_nvme::command::NSID_BROADCAST;
use ashlar_nvme::event::notices;
use ashlar_nvme::fabrics::DISCOVERY_NQN;
use ashlar_nvme::identify::{
    IdentifyController, IdentifyNamespace, IndependentNamespace, NMIC_SHARED, NSTAT_READY,
    NamespaceIdentity, NvmController, cmic, cns, ctratt, dlfeat, lpa, namespace_list, nsfeat, oncs,
    sgls,
};
use ashlar_nvme::reservation::rescap;
use ashlar_nvme::{Command, Status};

use super::cross_reset;
use crate::connection::IN_CAPSULE_BYTES;
use crate::controller::{Controller, Role};
use crate::fabrics::{MAX_QUEUE_ENTRIES, VERSION};
use crate::namespace::Namespace;
use crate::path;
use crate::subsystem::Subsystem;

const MODEL: &str = "Ashlar";
/// KAS: keep-alive timeouts are counted in units of 100 ms; a second is fine enough.
const KEEP_ALIVE_GRANULARITY: u16 = 10;
/// The NVM command set.
const CSI_NVM: u8 = 0;

/// The page that the command asks for.
pub(super) fn page(controller: &Controller, command: &Command) -> Result<Vec<u8>, Status> {
    let parameters = command.identify_parameters();
    let subsystem = match &controller.role {
        Role::Discovery if parameters.cns == cns::CONTROLLER => {
            return Ok(discovery_controller(controller));
        }
        Role::Discovery => return Err(Status::INVALID_FIELD.with_dnr()),
        Role::Io(subsystem) => subsystem,
    };
    let nsid = command.nsid.get();
    let namespace = || {
        subsystem
            .namespace(nsid)
            .ok_or(Status::INVALID_NAMESPACE.with_dnr())
    };
    let nvm = parameters.csi == CSI_NVM;
    match parameters.cns {
        cns::NAMESPACE => Ok(identify_namespace(namespace()?, subsystem)),
        cns::CONTROLLER => Ok(io_controller(controller, subsystem)),
        cns::ACTIVE_NAMESPACES => active(subsystem, nsid),
        cns::COMMAND_SET_ACTIVE_NAMESPACES if nvm => active(subsystem, nsid),
        cns::NAMESPACE_DESCRIPTORS => Ok(descriptors(namespace()?)),
        cns::COMMAND_SET_NAMESPACE if nvm => namespace().map(|_| Vec::new()),
        cns::COMMAND_SET_CONTROLLER if nvm => Ok(nvm_controller(subsystem)),
        cns::INDEPENDENT_NAMESPACE => Ok(independent(namespace()?, subsystem)),
        // One combination of command sets: the NVM command set.
        cns::COMMAND_SETS => Ok(1u64.to_le_bytes().to_vec()),
        _ => Err(Status::INVALID_FIELD.with_dnr()),
    }
}

fn active(subsystem: &Subsystem, after: u32) -> Result<Vec<u8>, Status> {
    if after >= NSID_BROADCAST - 1 {
        return Err(Status::INVALID_NAMESPACE.with_dnr());
    }
    Ok(namespace_list(
        subsystem.namespaces.iter().map(|namespace| namespace.nsid),
        after,
    ))
}

fn common(controller: &Controller) -> IdentifyController {
    let mut id = IdentifyController::default();
    id.cntlid.set(controller.id);
    id.ver.set(VERSION);
    id.mdts = 8;
    id.elpe = 63;
    id.lpa = lpa::COMMANDS_SUPPORTED | lpa::EXTENDED_DATA;
    id.aerl = 3;
    id.acl = 3;
    id.kas.set(KEEP_ALIVE_GRANULARITY);
    id.sqes = 0x66;
    id.cqes = 0x44;
    id.maxcmd.set(MAX_QUEUE_ENTRIES);
    id.sgls
        .set(sgls::SUPPORTED | sgls::OFFSET | sgls::TRANSPORT);
    id.set_in_capsule_bytes(IN_CAPSULE_BYTES);
    id.iorcsz.set(1);
    id.msdbd = 1;
    id
}

fn discovery_controller(controller: &Controller) -> Vec<u8> {
    let mut id = common(controller);
    id.set_identity("", MODEL, env!("CARGO_PKG_VERSION"));
    id.set_subnqn(DISCOVERY_NQN);
    id.cntrltype = 2;
    id.lpa = lpa::EXTENDED_DATA;
    id.oaes.set(notices::DISCOVERY_LOG_CHANGE);
    id.as_wire().to_vec()
}

fn io_controller(controller: &Controller, subsystem: &Subsystem) -> Vec<u8> {
    let mut id = common(controller);
    id.set_identity(&subsystem.serial(), MODEL, env!("CARGO_PKG_VERSION"));
    id.set_subnqn(&subsystem.nqn);
    id.cntrltype = 1;
    id.cmic = cmic::MULTIPLE_PORTS | cmic::MULTIPLE_CONTROLLERS;
    id.mdts = mdts(subsystem);
    let ana = subsystem.paths.as_ref().map_or(0, |_| notices::ANA_CHANGE);
    id.oaes.set(notices::NAMESPACE_ATTRIBUTE | ana);
    id.ctratt.set(ctratt::HOST_ID_128);
    id.frmw = 0b11;
    let namespaces = subsystem.namespaces.len() as u32;
    id.nn.set(namespaces);
    id.mnan.set(namespaces);
    if subsystem.paths.is_some() {
        path::identify(&mut id, namespaces);
    }
    let reservations = match subsystem.has_reservations() {
        true => oncs::RESERVATIONS,
        false => 0,
    };
    let always = oncs::COMPARE | oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES | oncs::VERIFY;
    id.oncs.set(always | reservations);
    // Bits 2:1: a flush may address all namespaces.
    id.vwc = 0b110 | u8::from(subsystem.volatile_cache());
    let mut page = id.as_wire().to_vec();
    cross_reset::identify(&mut page, controller.instance);
    path::identify_quiesce(&mut page, subsystem.quiesce);
    page
}

/// Verify reads into a buffer, so it has the limit of a read.
fn nvm_controller(subsystem: &Subsystem) -> Vec<u8> {
    let mut id = NvmController::default();
    id.vsl = mdts(subsystem);
    id.as_wire().to_vec()
}

/// The largest transfer as a power of two of 4 KiB pages.
fn mdts(subsystem: &Subsystem) -> u8 {
    (subsystem.max_transfer_bytes() / 4096).ilog2() as u8
}

fn identify_namespace(namespace: &Namespace, subsystem: &Subsystem) -> Vec<u8> {
    let geometry = namespace.geometry();
    let mut id = IdentifyNamespace::of_blocks(geometry.blocks, geometry.block_size.shift() as u8);
    // Linux takes atomicity from NAWUPF, and only with this bit and NABO 0.
    id.nsfeat = nsfeat::NAMESPACE_ATOMIC | nsfeat::OPTIMAL_PERFORMANCE;
    let less_one = |blocks: u32| (blocks.clamp(1, 1 << 16) - 1) as u16;
    // FFFFh would mean writes of any size; no write is larger than MDTS anyway.
    let largest = subsystem.max_transfer_bytes() >> geometry.block_size.shift();
    let atomic = less_one(geometry.atomic_blocks.min(largest.max(1)));
    id.nawun.set(atomic);
    id.nawupf.set(atomic);
    let boundary = less_one(atomic_boundary(&geometry));
    id.nabsn.set(boundary);
    id.nabspf.set(boundary);
    let optimal = less_one(geometry.optimal_blocks);
    // NOWS too: it must be a multiple of NPWG.
    for field in [
        &mut id.npwg,
        &mut id.npwa,
        &mut id.npdg,
        &mut id.npda,
        &mut id.nows,
    ] {
        field.set(optimal);
    }
    if geometry.deallocates {
        id.dlfeat = dlfeat::WRITE_ZEROES_DEALLOCATES;
    }
    id.nmic = NMIC_SHARED;
    id.rescap = reservations(namespace);
    id.anagrpid.set(ana_group(namespace, subsystem));
    id.nguid = namespace.uuid.into_bytes();
    id.as_wire().to_vec()
}

/// Blocks between the boundaries that an atomic write must not cross, counted from the first block
/// (NABSN and NABSPF with NABO 0; NVM Command Set 1.0, 2.1.4); 1, which is written 0, for none. A
/// device whose atomic unit is its preferred one is made of such units.
fn atomic_boundary(geometry: &Geometry) -> u32 {
    if geometry.atomic_blocks == geometry.optimal_blocks {
        geometry.atomic_blocks
    } else {
        1
    }
}

fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let uuid = namespace.uuid.into_bytes();
    let identity = NamespaceIdentity {
        nguid: Some(uuid),
        uuid: Some(uuid),
        csi: Some(CSI_NVM),
        ..NamespaceIdentity::default()
    };
    identity.to_page()
}

/// RESCAP.
fn reservations(namespace: &Namespace) -> u8 {
    match namespace.guard {
        Some(_) => rescap::PERSISTENT | rescap::ALL_TYPES | rescap::IGNORE_EXISTING_KEY,
        None => 0,
    }
}

/// ANAGRPID; 0 where there is no ANA.
fn ana_group(namespace: &Namespace, subsystem: &Subsystem) -> u32 {
    match subsystem.paths {
        Some(_) => path::group_of(namespace),
        None => 0,
    }
}

fn independent(namespace: &Namespace, subsystem: &Subsystem) -> Vec<u8> {
    let mut id = IndependentNamespace::default();
    id.nmic = NMIC_SHARED;
    id.nstat = NSTAT_READY;
    id.rescap = reservations(namespace);
    id.anagrpid.set(ana_group(namespace, subsystem));
    id.as_wire().to_vec()
}
