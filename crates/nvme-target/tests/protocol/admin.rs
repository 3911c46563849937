//! Identify, log pages and features.

use ashlar_block::BlockSize;
use ashlar_nvme::command::{FeatureSelect, GetLogPage, Identify, SglDescriptor};
use ashlar_nvme::feature::fid;
use ashlar_nvme::identify::{
    IdentifyController, IdentifyNamespace, IndependentNamespace, NMIC_SHARED, NSTAT_READY,
    NamespaceIdentity, NvmController, cmic, cns, dlfeat, nsfeat, oncs, parse_namespace_list,
};
use ashlar_nvme::log::{CommandsSupported, ErrorInformation, SupportedLogPages, lid};
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, Status, opcode};

use crate::disk::Disk;
use crate::host::{Host, Reply};
use crate::world::{NQN, Plan, World};

fn two_sizes() -> (World, Host, u16) {
    let disks = vec![
        Disk::plain(BlockSize::B512, 4096),
        Disk::plain(BlockSize::B4096, 512),
    ];
    let mut world = World::new(&Plan {
        disks,
        ..Plan::default()
    });
    let (admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    (world, admin, cntlid)
}

fn identify(world: &mut World, admin: &mut Host, cns: u8, nsid: u32) -> Reply {
    let ask = Identify {
        cns,
        ..Identify::default()
    };
    let reply = admin.call(world, Command::identify(nsid, ask), &[]);
    if reply.status().is_success() {
        assert_eq!(reply.data.len(), 4096);
    }
    reply
}

#[test]
fn the_controller_says_what_linux_insists_on() {
    let (mut world, mut admin, cntlid) = two_sizes();
    let page = identify(&mut world, &mut admin, cns::CONTROLLER, 0).data;
    let id = IdentifyController::parse(&page).expect("a page");
    assert_eq!((id.cntlid.get(), id.subnqn()), (cntlid, NQN.into()));
    assert!(id.kas.get() > 0 && id.ioccsz.get() >= 4 && id.iorcsz.get() >= 1);
    assert_eq!((id.icdoff.get(), id.cntrltype), (0, 1));
    assert!(id.sgls.get() & 0b11 != 0 && id.in_capsule_bytes() >= 16 << 10);
    assert!(id.cmic & cmic::MULTIPLE_CONTROLLERS != 0 && id.cmic & cmic::ANA_REPORTING == 0);
    assert!(id.mnan.get() <= id.nn.get() && id.nn.get() == 2);
    assert_eq!(id.max_transfer_bytes(4096), Some(1 << 20));
    let wanted = oncs::COMPARE | oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES | oncs::VERIFY;
    assert_eq!(id.oncs.get() & wanted, wanted);
    assert_eq!(id.vwc & 1, 1);
    assert_eq!(id.fuses.get(), 0);
    assert_eq!((id.sqes, id.cqes), (0x66, 0x44));
    let second = Host::admin(&mut world, Digests::NONE).1;
    assert_ne!(second, cntlid);
}

#[test]
fn namespaces_say_their_shape_and_identity() {
    let (mut world, mut admin, _) = two_sizes();
    let mut seen = Vec::new();
    for (nsid, bytes, blocks) in [(1, 512, 4096), (2, 4096, 512)] {
        let page = identify(&mut world, &mut admin, cns::NAMESPACE, nsid).data;
        let id = IdentifyNamespace::parse(&page).expect("a page");
        assert_eq!(
            (id.block_bytes(), id.nsze.get(), id.ncap.get()),
            (Some(bytes), blocks, blocks)
        );
        assert_eq!(
            (id.nawupf.get(), id.nabo.get(), id.nmic & NMIC_SHARED),
            (3, 0, NMIC_SHARED)
        );
        assert!(id.nsfeat & nsfeat::NAMESPACE_ATOMIC != 0);
        assert!(id.dlfeat & dlfeat::WRITE_ZEROES_DEALLOCATES != 0);
        let page = identify(&mut world, &mut admin, cns::NAMESPACE_DESCRIPTORS, nsid).data;
        let identity = NamespaceIdentity::parse(&page);
        assert_eq!((identity.nguid, identity.csi), (Some(id.nguid), Some(0)));
        assert!(identity.uuid.is_some() && !seen.contains(&identity));
        seen.push(identity);
        let page = identify(&mut world, &mut admin, cns::INDEPENDENT_NAMESPACE, nsid).data;
        let id = IndependentNamespace::parse(&page).expect("a page");
        assert_eq!((id.nmic, id.nstat), (NMIC_SHARED, NSTAT_READY));
        assert!(
            identify(&mut world, &mut admin, cns::COMMAND_SET_NAMESPACE, nsid)
                .status()
                .is_success()
        );
    }
    for cns in [
        cns::NAMESPACE,
        cns::NAMESPACE_DESCRIPTORS,
        cns::INDEPENDENT_NAMESPACE,
        5,
    ] {
        for nsid in [0, 3, u32::MAX] {
            let reply = identify(&mut world, &mut admin, cns, nsid);
            assert_eq!(reply.status(), Status::INVALID_NAMESPACE.with_dnr());
            assert_eq!(reply.status().code(), 0x00b);
        }
    }
}

#[test]
fn namespace_lists_ascend_and_go_on_after_an_id() {
    let (mut world, mut admin, _) = two_sizes();
    for cns in [cns::ACTIVE_NAMESPACES, cns::COMMAND_SET_ACTIVE_NAMESPACES] {
        for (after, expected) in [(0, vec![1, 2]), (1, vec![2]), (2, vec![]), (99, vec![])] {
            let page = identify(&mut world, &mut admin, cns, after).data;
            assert_eq!(parse_namespace_list(&page).collect::<Vec<u32>>(), expected);
        }
        for beyond in [0xffff_fffe, 0xffff_ffff] {
            let reply = identify(&mut world, &mut admin, cns, beyond);
            assert_eq!(reply.status().code(), 0x00b);
        }
    }
}

#[test]
fn command_set_pages_are_there_and_others_are_not() {
    let (mut world, mut admin, _) = two_sizes();
    let page = identify(&mut world, &mut admin, cns::COMMAND_SET_CONTROLLER, 0).data;
    // Verify has the limit that the target puts on it.
    assert_eq!(NvmController::parse(&page).expect("a page").vsl, 8);
    let sets = identify(&mut world, &mut admin, cns::COMMAND_SETS, 0).data;
    assert_eq!(sets[..8], 1u64.to_le_bytes());
    for cns in [0x04, 0x09, 0x10, 0x13, 0x1b, 0xff] {
        let reply = identify(&mut world, &mut admin, cns, 1);
        assert_eq!(
            reply.status(),
            Status::INVALID_FIELD.with_dnr(),
            "CNS {cns:02x}"
        );
    }
    let zoned = Identify {
        cns: 6,
        csi: 2,
        ..Identify::default()
    };
    let reply = admin.call(&mut world, Command::identify(0, zoned), &[]);
    assert!(reply.status().is(Status::INVALID_FIELD));
    let short = Command::identify(1, Identify::default()).with_data(SglDescriptor::transport(512));
    let reply = admin.call(&mut world, short, &[]);
    assert_eq!(reply.status().code(), 0x00f);
}

fn log(lid: u8, offset: u64, bytes: u64) -> Command {
    let ask = GetLogPage {
        lid,
        lsp: 0,
        retain_event: false,
        bytes,
        offset,
        offset_type: false,
    };
    Command::get_log_page(0, ask)
}

#[test]
fn log_pages_have_the_length_asked_for_and_zeroes_behind_their_end() {
    let (mut world, mut admin, _) = two_sizes();
    let ends = [
        (0, 1024),
        (1, 4096),
        (2, 512),
        (3, 512),
        (4, 4096),
        (5, 4096),
    ];
    for (lid, end) in ends {
        let whole = admin.call(&mut world, log(lid, 0, end), &[]).data;
        for (offset, bytes) in [
            (0, 4),
            (0, 512),
            (4, 8),
            (0, end + 8),
            (end - 4, 8),
            (end, 16),
        ] {
            let reply = admin.call(&mut world, log(lid, offset, bytes), &[]);
            assert!(reply.status().is_success(), "log {lid} {offset}+{bytes}");
            assert_eq!(reply.data.len() as u64, bytes);
            let mut expected = whole.clone();
            expected.resize(2 * end as usize + 16, 0);
            assert_eq!(reply.data, expected[offset as usize..][..bytes as usize]);
        }
        for (offset, bytes) in [(end + 4, 4), (2, 4), (u64::MAX - 3, 4), (0, (1 << 20) + 4)] {
            let reply = admin.call(&mut world, log(lid, offset, bytes), &[]);
            assert_eq!(
                reply.status(),
                Status::INVALID_FIELD.with_dnr(),
                "log {lid} at {offset}"
            );
        }
    }
    for lid in [0x06, 0x0c, 0x70, 0x80, 0xff] {
        let reply = admin.call(&mut world, log(lid, 0, 512), &[]);
        assert_eq!(reply.status().code(), 0x109, "log {lid:02x}");
    }
}

#[test]
fn logs_list_what_is_supported_and_what_failed() {
    let (mut world, mut admin, _) = two_sizes();
    let page = admin
        .call(&mut world, log(lid::SUPPORTED_LOG_PAGES, 0, 1024), &[])
        .data;
    let supported = SupportedLogPages::parse(&page).expect("a page");
    assert!((0..=5).all(|lid| supported.supports(lid)) && !supported.supports(lid::ANA));
    let page = admin
        .call(&mut world, log(lid::COMMANDS_SUPPORTED, 0, 4096), &[])
        .data;
    let commands = CommandsSupported::parse(&page).expect("a page");
    assert_eq!(
        commands.io[usize::from(opcode::io::WRITE)].get() & 0b11,
        0b11
    );
    assert_eq!(commands.io[usize::from(opcode::io::COPY)].get(), 0);
    let wrong = admin.call(&mut world, Command::new(0x7e, 3), &[]);
    assert!(wrong.status().is(Status::INVALID_OPCODE));
    let page = admin
        .call(&mut world, log(lid::ERROR_INFORMATION, 0, 64), &[])
        .data;
    let newest = ErrorInformation::parse(&page).expect("an entry");
    assert_eq!(
        (newest.opcode, newest.nsid.get(), newest.sqid.get()),
        (0x7e, 3, 0)
    );
    assert_eq!(newest.cid, wrong.completion.cid);
    assert!(newest.status().is(Status::INVALID_OPCODE) && newest.error_count.get() >= 1);
}

#[test]
fn features_answer_as_hosts_expect() {
    let (mut world, mut admin, _) = two_sizes();
    let mut get = |world: &mut World, fid, select: u32| {
        let mut command = Command::get_features(0, fid);
        command.cdw10 |= select << 8;
        admin.call(world, command, &[])
    };
    assert_eq!(get(&mut world, fid::NUMBER_OF_QUEUES, 0).dw0(), 0x007f_007f);
    assert_eq!(get(&mut world, fid::VOLATILE_WRITE_CACHE, 0).dw0(), 1);
    assert_eq!(get(&mut world, fid::KEEP_ALIVE_TIMER, 0).dw0(), 0);
    assert_eq!(get(&mut world, fid::NUMBER_OF_QUEUES, 3).dw0(), 1 << 2);
    assert!(
        get(&mut world, fid::NUMBER_OF_QUEUES, 5)
            .status()
            .is(Status::INVALID_FIELD)
    );
    for absent in [
        0x00,
        fid::TIMESTAMP,
        fid::HOST_BEHAVIOR,
        fid::RESERVATION_PERSISTENCE,
    ] {
        let status = get(&mut world, absent, 0).status();
        assert_eq!(status.code(), 0x002, "feature {absent:02x}");
    }
    let host_id = Command::get_features(0, fid::HOST_ID).with_data(SglDescriptor::transport(16));
    let reply = admin.call(&mut world, host_id, &[]);
    assert_eq!(reply.data, [7; 16]);
    assert_eq!(host_id.feature_select(), FeatureSelect::Current);
}

#[test]
fn features_are_set_and_some_are_not() {
    let (mut world, mut admin, _) = two_sizes();
    let mut set = |world: &mut World, fid, value| {
        admin.call(world, Command::set_features(0, fid, value), &[])
    };
    assert_eq!(
        set(&mut world, fid::NUMBER_OF_QUEUES, 0xfffe_fffe).dw0(),
        0x007f_007f
    );
    let status = set(&mut world, fid::NUMBER_OF_QUEUES, 0xffff_0000).status();
    assert!(status.is(Status::INVALID_FIELD));
    assert!(
        set(&mut world, fid::KEEP_ALIVE_TIMER, 15_000)
            .status()
            .is_success()
    );
    assert!(
        set(&mut world, fid::POWER_MANAGEMENT, 1)
            .status()
            .is(Status::INVALID_FIELD)
    );
    assert!(
        set(&mut world, fid::HOST_ID, 1)
            .status()
            .is(Status::COMMAND_SEQUENCE_ERROR)
    );
    let mut save = Command::set_features(0, fid::KEEP_ALIVE_TIMER, 1);
    save.cdw10 |= 1 << 31;
    let reply = admin.call(&mut world, save, &[]);
    assert_eq!(reply.status(), Status::FEATURE_NOT_SAVEABLE.with_dnr());
    let reply = admin.call(
        &mut world,
        Command::get_features(0, fid::KEEP_ALIVE_TIMER),
        &[],
    );
    assert_eq!(reply.dw0(), 15_000);
}

#[test]
fn a_subsystem_without_a_volatile_cache_has_no_such_feature() {
    let plain = ashlar_block::Geometry::plain(BlockSize::B4096, 64);
    let plan = Plan {
        disks: vec![Disk::new(plain)],
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let (mut admin, _) = Host::admin(&mut world, Digests::NONE);
    let reply = admin.call(
        &mut world,
        Command::get_features(0, fid::VOLATILE_WRITE_CACHE),
        &[],
    );
    assert!(reply.status().is(Status::INVALID_FIELD));
    let page = identify(&mut world, &mut admin, cns::CONTROLLER, 0).data;
    assert_eq!(IdentifyController::parse(&page).expect("a page").vwc & 1, 0);
}
