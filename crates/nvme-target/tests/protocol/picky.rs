//! What hosts that look closely, or mean harm, have met.

use std::time::Duration;

use ashlar_block::BlockSize;
use ashlar_nvme::command::{GetLogPage, Identify, PSDT_SGL, SglDescriptor};
use ashlar_nvme::fabrics::{
    CNTLID_DYNAMIC, Cc, ConnectData, Csts, DISCOVERY_NQN, InvalidParameter, property,
};
use ashlar_nvme::feature::fid;
use ashlar_nvme::identify::{IdentifyController, IdentifyNamespace, cns, lpa, sgls};
use ashlar_nvme::log::{SmartHealth, lid};
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, Status, opcode};

use crate::disk::Disk;
use crate::host::{Host, pattern, queue, read, write_in};
use crate::world::{HOST, NQN, Plan, World};

fn set_cc(world: &mut World, admin: &mut Host, cc: Cc) {
    let set = Command::property_set(property::CC, false, u64::from(cc.0));
    assert!(admin.call(world, set, &[]).status().is_success());
}

fn log(lid: u8, bytes: u64) -> Command {
    let ask = GetLogPage {
        lid,
        lsp: 0,
        retain_event: false,
        bytes,
        offset: 0,
        offset_type: false,
    };
    Command::get_log_page(0, ask)
}

fn identify(cns: u8, nsid: u32) -> Command {
    Command::identify(
        nsid,
        Identify {
            cns,
            ..Identify::default()
        },
    )
}

/// SPDK takes the end of a request for an event, asks for the next, and prints an error for each.
#[test]
fn a_shutdown_is_answered_and_ends_no_event_request() {
    let mut world = World::new(&Plan::default());
    let (mut admin, _io) = Host::pair(&mut world);
    for _ in 0..4 {
        admin.send(&mut world, Command::async_event_request(), &[]);
    }
    set_cc(&mut world, &mut admin, Cc::ENABLED.with_normal_shutdown());
    let csts = Command::property_get(property::CSTS, false);
    let csts = admin.call(&mut world, csts, &[]);
    assert!(Csts(csts.dw0()).shutdown_complete());
    assert!(admin.replies.is_empty(), "event requests were answered");
    world.hang_up(admin.wire);
    assert_eq!((world.connections(), world.outstanding()), (0, 0));
}

/// Connect with this host NQN, as bytes, and host identifier.
fn connect_as(nqn: &[u8], id: [u8; 16], subnqn: &str) -> (Status, InvalidParameter) {
    let mut world = World::new(&Plan::default());
    let mut host = Host::dial(&mut world, Digests::NONE);
    let mut data = ConnectData::new(id, CNTLID_DYNAMIC, subnqn, "");
    data.hostnqn[..nqn.len()].copy_from_slice(nqn);
    let reply = host.call(&mut world, Command::connect(queue(0, 32)), data.as_wire());
    (reply.status(), reply.completion.connect_invalid_parameter())
}

#[test]
fn a_host_is_who_it_looks_like_or_does_not_get_in() {
    let long = format!("nqn.2024-01.com.example:{}", "x".repeat(200));
    let bad: [&[u8]; 9] = [
        b"nqn.2024-01.com.example:\x1b[31mred",
        b"nqn.2024-01.com.example:a\nb",
        "nqn.2024-01.com.example:\u{202e}b".as_bytes(),
        "nqn.2024-01.com.example:\u{9b}2J".as_bytes(),
        b"nqn.2024-01.com.example:\xff\xfe",
        b"iqn.2024-01.com.example",
        b"foo",
        long.as_bytes(),
        &[b'x'; 256],
    ];
    for subnqn in [NQN, DISCOVERY_NQN] {
        for nqn in bad {
            let (status, parameter) = connect_as(nqn, [7; 16], subnqn);
            let wanted = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
            let name = String::from_utf8_lossy(nqn);
            assert_eq!(
                (status, parameter),
                (wanted, InvalidParameter::HOSTNQN),
                "{name:?}"
            );
        }
        let (status, parameter) = connect_as(HOST.as_bytes(), [0; 16], subnqn);
        assert!(status.is(Status::CONNECT_INVALID_PARAMETERS) && status.dnr());
        assert_eq!(parameter, InvalidParameter::HOSTID);
        for good in [HOST, &long[..223], "nqn.mine", ""] {
            let (status, _) = connect_as(good.as_bytes(), [7; 16], subnqn);
            assert!(status.is_success(), "{good:?}: {status:?}");
        }
    }
}

#[test]
fn commands_that_ask_for_what_there_is_not_are_refused() {
    let mut world = World::new(&Plan::default());
    let (mut admin, mut io) = Host::pair(&mut world);
    let with = |mut command: Command, flags: u8| {
        command.flags = flags;
        command
    };
    let invalid = Status::INVALID_FIELD.with_dnr();
    for flags in [PSDT_SGL | 1, PSDT_SGL | 2, 0, 0b10 << 6, 0b11 << 6] {
        for command in [identify(cns::CONTROLLER, 0), Command::keep_alive()] {
            let reply = admin.call(&mut world, with(command, flags), &[]);
            assert_eq!(reply.status(), invalid, "admin, flags {flags:#x}");
        }
        for command in [read(0, 4096, 4096), Command::flush(1)] {
            let reply = io.call(&mut world, with(command, flags), &[]);
            assert_eq!(reply.status(), invalid, "I/O, flags {flags:#x}");
        }
    }
    let data = [1; 4096];
    let mut directed = write_in(0, &data, 4096);
    directed.cdw12 |= 1 << 20;
    assert_eq!(io.call(&mut world, directed, &data).status(), invalid);
    // A read has no directive: its bits there are reserved.
    let mut reserved = read(0, 4096, 4096);
    reserved.cdw12 |= 1 << 20;
    assert!(io.call(&mut world, reserved, &[]).status().is_success());
}

#[test]
fn the_number_of_queues_is_fixed_once_one_is_connected() {
    let mut world = World::new(&Plan::default());
    let (mut admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let ask = Command::set_features(0, fid::NUMBER_OF_QUEUES, 0x0003_0003);
    assert!(admin.call(&mut world, ask, &[]).status().is_success());
    let _io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    let late = admin.call(&mut world, ask, &[]);
    assert_eq!(late.status(), Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    // A reset ends the queues.
    set_cc(&mut world, &mut admin, Cc(Cc::ENABLED.0 & !1));
    set_cc(&mut world, &mut admin, Cc::ENABLED);
    assert!(admin.call(&mut world, ask, &[]).status().is_success());
}

#[test]
fn what_identify_offers_is_there() {
    let geometry = ashlar_block::Geometry {
        optimal_blocks: 16,
        ..ashlar_block::Geometry::plain(BlockSize::B4096, 64)
    };
    let plan = Plan {
        disks: vec![Disk::new(geometry)],
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let (mut admin, mut io) = Host::pair(&mut world);
    let page = admin
        .call(&mut world, identify(cns::NAMESPACE, 1), &[])
        .data;
    let namespace = IdentifyNamespace::parse(&page).expect("a page");
    assert_eq!((namespace.npwg.get(), namespace.nows.get()), (15, 15));
    // Data that begins behind the start of the capsule's.
    let page = admin
        .call(&mut world, identify(cns::CONTROLLER, 0), &[])
        .data;
    let controller = IdentifyController::parse(&page).expect("a page");
    assert!(controller.sgls.get() & sgls::OFFSET != 0);
    let data = pattern(3, 8192);
    for offset in [0usize, 4, 512, 5000] {
        let sgl = SglDescriptor {
            address: (offset as u64).into(),
            ..SglDescriptor::in_capsule(8192)
        };
        let sent = [&vec![0xee; offset][..], &data].concat();
        let write = Command::write(1, 8, 2, sgl);
        for chunk in [usize::MAX, 1000, 3] {
            world.wires[io.wire].chunk = chunk;
            let reply = io.call(&mut world, write, &sent);
            assert!(
                reply.status().is_success(),
                "{offset}: {:?}",
                reply.status()
            );
            let back = io.call(&mut world, read(8, 8192, 4096), &[]);
            assert!(back.data == data, "offset {offset}");
        }
    }
    // A discovery controller has no Commands Supported and Effects, and does not say so.
    let mut discovery = Host::dial(&mut world, Digests::NONE);
    discovery.connect_to(&mut world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
    discovery.enable(&mut world);
    let page = discovery
        .call(&mut world, identify(cns::CONTROLLER, 0), &[])
        .data;
    let controller = IdentifyController::parse(&page).expect("a page");
    assert_eq!(controller.lpa & lpa::COMMANDS_SUPPORTED, 0);
    let effects = discovery.call(&mut world, log(lid::COMMANDS_SUPPORTED, 4096), &[]);
    assert!(effects.status().is(Status::INVALID_LOG_PAGE));
}

#[test]
fn the_smart_log_counts_what_was_done_on_every_core() {
    let plan = Plan {
        cores: 2,
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let (mut admin, mut io) = Host::pair(&mut world);
    let data = pattern(1, 64 << 10);
    for turn in 0..20 {
        io.call(&mut world, write_in(turn * 16, &data, 4096), &data);
    }
    for turn in 0..7 {
        io.call(&mut world, read(turn * 16, 64 << 10, 4096), &[]);
    }
    let compare = Command {
        opcode: opcode::io::COMPARE,
        ..write_in(0, &data, 4096)
    };
    io.call(&mut world, compare, &data);
    // What fails does not count.
    io.call(&mut world, read(1 << 40, 4096, 4096), &[]);
    world.pass(Duration::from_secs(1));
    let page = admin
        .call(&mut world, log(lid::SMART_HEALTH, 512), &[])
        .data;
    let health = SmartHealth::parse(&page).expect("a page");
    let number = |bytes: [u8; 16]| u128::from_le_bytes(bytes);
    assert_eq!(number(health.host_writes), 20);
    assert_eq!(number(health.host_reads), 8);
    // Thousands of 512 bytes, rounded up: 1,310,720 and 524,288 bytes.
    assert_eq!(number(health.data_units_written), 3);
    assert_eq!(number(health.data_units_read), 2);
    world.hang_up(io.wire);
    let page = admin
        .call(&mut world, log(lid::SMART_HEALTH, 512), &[])
        .data;
    let health = SmartHealth::parse(&page).expect("a page");
    assert_eq!(number(health.host_writes), 20, "its end changes nothing");
}
