//! Connecting: ICReq, Connect, properties, and who is refused how.

use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::fabrics::{
    CNTLID_DYNAMIC, Cap, Cc, Connect, ConnectData, Csts, DISCOVERY_NQN, InvalidParameter, property,
};
use ashlar_nvme::pdu::{Digests, FatalStatus};
use ashlar_nvme::{Command, Status};
use ashlar_nvme_target::HostAccess;

use crate::host::{Host, queue};
use crate::world::{HOST, NQN, Plan, World};

const ALL_DIGESTS: [Digests; 4] = [
    Digests::NONE,
    Digests::BOTH,
    Digests {
        header: true,
        data: false,
    },
    Digests {
        header: false,
        data: true,
    },
];

#[test]
fn a_host_connects_with_every_choice_of_digests() {
    for digests in ALL_DIGESTS {
        let mut world = World::new(&Plan::default());
        let (mut admin, cntlid) = Host::admin(&mut world, digests);
        assert!((1..=0xffef).contains(&cntlid));
        let mut io = Host::io(&mut world, cntlid, 1, 32, digests);
        let reply = io.call(&mut world, Command::flush(1), &[]);
        assert!(reply.status().is_success());
        assert_eq!(reply.completion.sqhd.get(), 1);
        assert!(
            admin
                .call(&mut world, Command::keep_alive(), &[])
                .status()
                .is_success()
        );
    }
}

#[test]
fn properties_say_what_the_controller_can_and_is() {
    let mut world = World::new(&Plan::default());
    let mut host = Host::dial(&mut world, Digests::NONE);
    host.connect_to(&mut world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    let mut get = |world: &mut World, offset, wide| {
        let reply = host.call(world, Command::property_get(offset, wide), &[]);
        assert!(reply.status().is_success());
        reply.completion.result()
    };
    let cap = Cap(get(&mut world, property::CAP, true));
    assert!(cap.max_queue_entries() >= 128 && cap.command_sets() & 1 == 1);
    assert_eq!(get(&mut world, property::VS, false) >> 16, 2);
    // SPDK reads CC before it writes it.
    assert_eq!(get(&mut world, property::CC, false), 0);
    assert!(!Csts(get(&mut world, property::CSTS, false) as u32).ready());
    host.enable(&mut world);
    let csts = host.call(
        &mut world,
        Command::property_get(property::CSTS, false),
        &[],
    );
    assert!(Csts(csts.dw0()).ready());
    for wrong in [
        Command::property_get(property::CAP, false),
        Command::property_get(0x1000, false),
        Command::property_set(property::VS, false, 1),
        Command::property_set(property::CC, false, 1),
        Command::property_set(property::CC, true, u64::from(Cc::ENABLED.0)),
    ] {
        let reply = host.call(&mut world, wrong, &[]);
        assert_eq!(reply.status(), Status::INVALID_FIELD.with_dnr());
    }
}

#[test]
fn shutdown_completes_and_closes_the_io_queues() {
    let mut world = World::new(&Plan::default());
    let (mut admin, io) = Host::pair(&mut world);
    let down = u64::from(Cc::ENABLED.with_normal_shutdown().0);
    let reply = admin.call(
        &mut world,
        Command::property_set(property::CC, false, down),
        &[],
    );
    assert!(reply.status().is_success());
    let csts = admin.call(
        &mut world,
        Command::property_get(property::CSTS, false),
        &[],
    );
    assert!(Csts(csts.dw0()).shutdown_complete());
    assert!(world.wires[io.wire].is_closed() && !world.wires[admin.wire].is_closed());
    world.hang_up(admin.wire);
    assert_eq!((world.connections(), world.outstanding()), (0, 0));
}

/// Connect with `change` made to its command or data, and the refusal.
fn refused(
    change: impl Fn(&mut Connect, &mut ConnectData, &mut Command),
) -> (Status, InvalidParameter) {
    let mut world = World::new(&Plan::default());
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let mut host = Host::dial(&mut world, Digests::NONE);
    let mut parameters = queue(0, 32);
    let mut data = ConnectData::new([7; 16], CNTLID_DYNAMIC, NQN, HOST);
    change(&mut parameters, &mut data, &mut Command::flush(0));
    if parameters.qid > 0 && data.cntlid.get() == CNTLID_DYNAMIC {
        data.cntlid.set(cntlid);
    }
    let mut command = Command::connect(parameters);
    change(&mut parameters, &mut data.clone(), &mut command);
    let reply = host.call(&mut world, command, data.as_wire());
    assert!(reply.status().dnr());
    (reply.status(), reply.completion.connect_invalid_parameter())
}

#[test]
fn a_wrong_connect_is_refused_with_the_field_that_is_wrong() {
    let code = |(status, _): (Status, InvalidParameter)| status.code();
    let field = |(status, parameter): (Status, InvalidParameter)| {
        assert_eq!(status.code(), 0x182);
        parameter
    };
    assert_eq!(code(refused(|p, _, _| p.record_format = 1)), 0x180);
    assert_eq!(
        field(refused(|p, _, _| p.sqsize = 0)),
        InvalidParameter::SQSIZE
    );
    assert_eq!(
        field(refused(|p, _, _| p.sqsize = 1024)),
        InvalidParameter::SQSIZE
    );
    let other = ConnectData::new([7; 16], CNTLID_DYNAMIC, "nqn.2024-01.com.example:x", HOST);
    assert_eq!(
        field(refused(|_, d, _| *d = other)),
        InvalidParameter::SUBNQN
    );
    assert_eq!(
        field(refused(|_, d, _| d.cntlid.set(1))),
        InvalidParameter::CNTLID
    );
    // I/O queues.
    assert_eq!(
        field(refused(|p, d, _| {
            p.qid = 1;
            d.cntlid.set(999)
        })),
        InvalidParameter::CNTLID
    );
    assert_eq!(
        field(refused(|p, d, _| {
            p.qid = 1;
            d.hostid = [9; 16]
        })),
        InvalidParameter::HOSTID
    );
    let stranger = ConnectData::new(
        [7; 16],
        CNTLID_DYNAMIC,
        NQN,
        "nqn.2024-01.com.example:other",
    );
    assert_eq!(
        field(refused(|p, d, _| {
            p.qid = 1;
            *d = stranger
        })),
        InvalidParameter::HOSTNQN
    );
    assert_eq!(code(refused(|p, _, _| p.qid = 129)), 0x101);
    // The data pointer.
    let short = SglDescriptor::in_capsule(512);
    assert_eq!(code(refused(|_, _, c| c.sgl1 = short)), 0x00f);
    let keyed = SglDescriptor {
        identifier: 0x40,
        ..short
    };
    assert_eq!(code(refused(|_, _, c| c.sgl1 = keyed)), 0x011);
}

#[test]
fn a_host_that_is_not_listed_is_refused_and_may_still_discover() {
    let plan = Plan {
        access: HostAccess::Listed(vec![HOST.into()]),
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let mut host = Host::dial(&mut world, Digests::NONE);
    host.hostnqn = "nqn.2024-01.com.example:stranger".into();
    let reply = host.connect_to(&mut world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert_eq!(reply.status(), Status::CONNECT_INVALID_HOST.with_dnr());
    assert_eq!(reply.status().code(), 0x184);
    // The same connection may try again, with another name or elsewhere.
    let reply = host.connect_to(&mut world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(reply.status().is_success());
    let (_listed, _) = Host::admin(&mut world, Digests::NONE);
}

#[test]
fn queues_beyond_the_grant_and_taken_ones_are_refused() {
    let mut world = World::new(&Plan::default());
    let (mut admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let granted = admin.call(&mut world, Command::set_features(0, 7, 0x0001_0001), &[]);
    assert_eq!(granted.dw0(), 0x0001_0001);
    let _one = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    let mut host = Host::dial(&mut world, Digests::NONE);
    let reply = host.connect_to(&mut world, NQN, queue(3, 32), cntlid);
    assert_eq!(reply.status().code(), 0x101);
    let reply = host.connect_to(&mut world, NQN, queue(1, 32), cntlid);
    assert!(reply.status().is(Status::COMMAND_SEQUENCE_ERROR));
    let reply = host.connect_to(&mut world, NQN, queue(2, 32), cntlid);
    assert!(reply.status().is_success());
}

#[test]
fn nothing_but_connect_is_legal_before_connect_nor_admin_before_enable() {
    let mut world = World::new(&Plan::default());
    let mut host = Host::dial(&mut world, Digests::NONE);
    let early = host.call(&mut world, Command::flush(1), &[]);
    assert!(early.status().is(Status::COMMAND_SEQUENCE_ERROR));
    host.connect_to(&mut world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    let early = host.call(&mut world, Command::keep_alive(), &[]);
    assert!(early.status().is(Status::COMMAND_SEQUENCE_ERROR));
    let again = host.connect_to(&mut world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(again.status().is(Status::COMMAND_SEQUENCE_ERROR));
    let mut io = Host::dial(&mut world, Digests::NONE);
    let reply = io.connect_to(&mut world, NQN, queue(1, 32), 1);
    assert!(
        reply.status().is(Status::COMMAND_SEQUENCE_ERROR),
        "the controller is not ready"
    );
}

#[test]
fn connect_data_may_come_by_r2t() {
    let mut world = World::new(&Plan::default());
    let mut host = Host::dial(&mut world, Digests::BOTH);
    let data = ConnectData::new([7; 16], CNTLID_DYNAMIC, NQN, HOST);
    let command = Command::connect(queue(0, 32)).with_data(SglDescriptor::transport(1024));
    let reply = host.call_r2t(&mut world, command, data.as_wire());
    assert!(reply.status().is_success());
}

#[test]
fn a_command_before_icreq_ends_the_connection() {
    let mut world = World::new(&Plan::default());
    let mut host = Host::silent(&mut world);
    let bytes = host.capsule(&Command::flush(1), &[]);
    world.push(host.wire, &bytes);
    host.settle(&mut world);
    let term = host.terminated.expect("a terminate request");
    assert_eq!(term.status(), Some(FatalStatus::PduSequenceError));
    assert!(world.wires[host.wire].is_closed());
    assert_eq!(world.connections(), 0);
}
