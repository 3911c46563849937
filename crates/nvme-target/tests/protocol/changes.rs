//! Subsystems that come, change and go while hosts are connected.

use std::time::Duration;

use ashlar_block::{BlockSize, Geometry};
use ashlar_nvme::command::{GetLogPage, Identify};
use ashlar_nvme::event::{AsyncEvent, notices};
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, DISCOVERY_NQN};
use ashlar_nvme::feature::fid;
use ashlar_nvme::identify::{
    IdentifyController, IdentifyNamespace, cns, nsfeat, parse_namespace_list,
};
use ashlar_nvme::log::{DiscoveryEntry, DiscoveryHeader, lid};
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, Status};
use ashlar_nvme_target::{HostAccess, Notice};

use crate::disk::Disk;
use crate::host::{Host, queue, read, write_in};
use crate::world::{HOST, NQN, Plan, World, subsystem};

const OTHER: &str = "nqn.2024-01.com.example:other";
const UNKNOWN: u16 = 0x182;

/// One disk on two cores: I/O queues are on the second.
fn two_cores() -> (World, Disk) {
    let plan = Plan {
        cores: 2,
        ..Plan::default()
    };
    (World::new(&plan), plan.disks[0].clone())
}

fn log_page(lid: u8, bytes: u64, retain_event: bool) -> Command {
    let ask = GetLogPage {
        lid,
        lsp: 0,
        retain_event,
        bytes,
        offset: 0,
        offset_type: false,
    };
    Command::get_log_page(u32::MAX, ask)
}

fn listen(world: &mut World, admin: &mut Host, mask: u32) {
    let want = Command::set_features(0, fid::ASYNC_EVENT_CONFIGURATION, mask);
    assert!(admin.call(world, want, &[]).status().is_success());
}

/// The event that a request was answered with.
fn told(admin: &mut Host, request: u16) -> Option<AsyncEvent> {
    let reply = admin.replies.get(&request)?;
    Some(AsyncEvent::from_dw0(reply.dw0()))
}

fn changed(world: &mut World, admin: &mut Host, retain: bool) -> Vec<u32> {
    let reply = admin.call(world, log_page(lid::CHANGED_NAMESPACES, 4096, retain), &[]);
    parse_namespace_list(&reply.data).collect()
}

fn namespace(world: &mut World, admin: &mut Host) -> IdentifyNamespace {
    let ask = Identify {
        cns: cns::NAMESPACE,
        ..Identify::default()
    };
    let page = admin.call(world, Command::identify(1, ask), &[]).data;
    IdentifyNamespace::parse(&page).expect("a page").clone()
}

/// Gives the disk another shape and tells the target.
fn reshape(world: &mut World, disk: &Disk, geometry: Geometry) {
    let mut medium = disk.0.borrow_mut();
    medium.geometry = geometry;
    medium.bytes.resize(geometry.bytes() as usize, 0);
    drop(medium);
    let numbers = world.target.devices_of(NQN).expect("it is there");
    world.attach(&numbers, std::slice::from_ref(disk));
    world.target.reshape(NQN, &[geometry]).expect("it may");
    world.tell(&[Notice::Events]);
}

fn resize(world: &mut World, disk: &Disk, blocks: u64) {
    let geometry = Geometry {
        blocks,
        ..disk.geometry()
    };
    reshape(world, disk, geometry);
}

#[test]
fn a_new_size_is_told_once_and_holds_for_everything() {
    let (mut world, disk) = two_cores();
    let (mut deaf, _) = Host::admin(&mut world, Digests::NONE);
    let (mut admin, mut io) = Host::pair(&mut world);
    listen(&mut world, &mut admin, notices::NAMESPACE_ATTRIBUTE);
    let request = admin.send(&mut world, Command::async_event_request(), &[]);
    let unheard = deaf.send(&mut world, Command::async_event_request(), &[]);
    let beyond = |world: &mut World, io: &mut Host| {
        let write = io.call(world, write_in(1500, &[5; 4096], 4096), &[5; 4096]);
        let read = io.call(world, read(1500, 4096, 4096), &[]);
        assert_eq!(write.status(), read.status());
        read.status()
    };
    assert!(beyond(&mut world, &mut io).is(Status::LBA_OUT_OF_RANGE));
    resize(&mut world, &disk, 2048);
    admin.settle(&mut world);
    deaf.settle(&mut world);
    let event = Some(AsyncEvent::NamespaceAttributeChanged);
    assert_eq!(told(&mut admin, request), event);
    assert_eq!(told(&mut deaf, unheard), None);
    assert!(beyond(&mut world, &mut io).is_success());
    let id = namespace(&mut world, &mut admin);
    assert_eq!((id.nsze.get(), id.ncap.get()), (2048, 2048));
    // Until the host has looked, it is told nothing more, but the list is kept.
    let request = admin.send(&mut world, Command::async_event_request(), &[]);
    resize(&mut world, &disk, 1024);
    admin.settle(&mut world);
    assert_eq!(told(&mut admin, request), None);
    assert_eq!(changed(&mut world, &mut admin, true), [1]);
    assert_eq!(changed(&mut world, &mut admin, false), [1]);
    assert!(changed(&mut world, &mut admin, false).is_empty());
    assert!(beyond(&mut world, &mut io).is(Status::LBA_OUT_OF_RANGE));
    // The same size again is no change.
    resize(&mut world, &disk, 1024);
    admin.settle(&mut world);
    assert_eq!(told(&mut admin, request), None);
    resize(&mut world, &disk, 3000);
    admin.settle(&mut world);
    assert_eq!(told(&mut admin, request), event);
    // A host that never asked for events can read the list nevertheless.
    assert_eq!(changed(&mut world, &mut deaf, false), [1]);
}

#[test]
fn ranges_of_a_list_and_zeroes_follow_the_size() {
    let (mut world, disk) = two_cores();
    let (_admin, mut io) = Host::pair(&mut world);
    let zero = Command::write_zeroes(1, 1023, 2, false);
    let status = io.call(&mut world, zero, &[]).status();
    assert!(status.is(Status::LBA_OUT_OF_RANGE));
    resize(&mut world, &disk, 1025);
    assert!(io.call(&mut world, zero, &[]).status().is_success());
    resize(&mut world, &disk, 10);
    let status = io.call(&mut world, zero, &[]).status();
    assert!(status.is(Status::LBA_OUT_OF_RANGE));
}

#[test]
fn commands_in_a_device_that_is_replaced_end_as_they_should() {
    let (mut world, disk) = two_cores();
    let (_admin, mut io) = Host::pair(&mut world);
    disk.hold();
    let before = io.send(&mut world, write_in(3, &[1; 4096], 4096), &[1; 4096]);
    io.settle(&mut world);
    resize(&mut world, &disk, 4096);
    let after = io.send(&mut world, write_in(4000, &[2; 4096], 4096), &[2; 4096]);
    io.settle(&mut world);
    assert!(io.replies.is_empty());
    disk.release();
    io.settle(&mut world);
    assert!(io.replies[&before].status().is_success());
    assert!(io.replies[&after].status().is_success());
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn a_block_size_and_the_number_of_namespaces_stay() {
    let (world, disk) = two_cores();
    let old = disk.geometry();
    let other = Geometry {
        block_size: BlockSize::B512,
        ..old
    };
    for refused in [&[other][..], &[], &[old, old]] {
        assert!(world.target.reshape(NQN, refused).is_err());
    }
    assert!(world.target.changes(NQN, &[old]).expect("same").is_empty());
    assert!(world.target.reshape(OTHER, &[old]).is_err());
}

#[test]
fn what_is_told_of_atomic_writes_follows_the_geometry() {
    let (mut world, disk) = two_cores();
    let (mut admin, _io) = Host::pair(&mut world);
    let plain = Geometry::plain(BlockSize::B4096, 1024);
    // Atomic, optimal and largest blocks; NAWUPF and the boundary as reported.
    let cases = [
        ((1, 1, 256), (0, 0)),
        ((4, 1, 256), (3, 0)),
        ((4, 4, 256), (3, 3)),
        ((2, 8, 256), (1, 0)),
        ((512, 512, 64), (63, 511)),
        ((1 << 20, 1, 256), (255, 0)),
    ];
    for ((atomic_blocks, optimal_blocks, max_blocks), (unit, boundary)) in cases {
        let geometry = Geometry {
            atomic_blocks,
            optimal_blocks,
            max_blocks,
            volatile_cache: atomic_blocks == 4,
            ..plain
        };
        reshape(&mut world, &disk, geometry);
        let id = namespace(&mut world, &mut admin);
        assert_eq!((id.nawun.get(), id.nawupf.get()), (unit, unit));
        assert_eq!((id.nabsn.get(), id.nabspf.get()), (boundary, boundary));
        assert!(boundary == 0 || boundary >= unit);
        assert_eq!(
            (id.nabo.get(), id.nsfeat & nsfeat::NAMESPACE_ATOMIC),
            (0, 2)
        );
        let ask = Identify {
            cns: cns::CONTROLLER,
            ..Identify::default()
        };
        let page = admin.call(&mut world, Command::identify(0, ask), &[]).data;
        let id = IdentifyController::parse(&page).expect("a page");
        assert_eq!(id.vwc & 1, u8::from(atomic_blocks == 4));
        // With a boundary the controller may promise no more than a block (2.1.4.3).
        assert_eq!((id.awun.get(), id.awupf.get()), (0, 0));
    }
}

#[test]
fn a_target_without_subsystems_takes_one_on_and_lets_it_go() {
    let mut world = World::new(&Plan {
        disks: Vec::new(),
        ..Plan::default()
    });
    let connect = |world: &mut World| {
        let mut host = Host::dial(world, Digests::NONE);
        host.connect_to(world, NQN, queue(0, 32), CNTLID_DYNAMIC)
    };
    assert_eq!(connect(&mut world).status().code(), UNKNOWN);
    for round in 0..3 {
        let disk = Disk::plain(BlockSize::B4096, 64 + round);
        world.add(NQN, std::slice::from_ref(&disk));
        let (mut admin, mut io) = Host::pair(&mut world);
        assert_eq!(namespace(&mut world, &mut admin).nsze.get(), 64 + round);
        let reply = io.call(&mut world, write_in(0, &[3; 4096], 4096), &[3; 4096]);
        assert!(reply.status().is_success());
        let listing = world.expel(NQN);
        assert_eq!(listing.devices(), [0], "numbers are used again");
        assert!(world.wires[admin.wire].is_closed() && world.wires[io.wire].is_closed());
        assert!(world.is_clear_of(&listing));
        // The disk itself is let go of.
        assert_eq!(std::rc::Rc::strong_count(&disk.0), 1);
        world.target.forget(listing);
        assert_eq!(connect(&mut world).status().code(), UNKNOWN);
    }
    assert_eq!(world.connections(), 3 + 1, "only those that were refused");
}

#[test]
fn names_are_taken_once_and_numbers_fill_gaps() {
    let (mut world, disk) = two_cores();
    let disks = std::slice::from_ref(&disk);
    let config = |nqn: &str| subsystem(nqn, disks, &HostAccess::Any);
    assert!(world.target.prepare(config(NQN)).is_err());
    assert!(world.target.prepare(config(DISCOVERY_NQN)).is_err());
    assert!(world.target.prepare(config("")).is_err());
    assert!(
        world
            .target
            .prepare(subsystem(OTHER, &[], &HostAccess::Any))
            .is_err()
    );
    // Two who prepare the same: one wins, the other may go.
    let first = world.target.prepare(config(OTHER)).expect("free");
    let second = world.target.prepare(config(OTHER)).expect("free");
    assert_eq!((first.devices(), second.devices()), (vec![1], vec![2]));
    world.attach(&first.devices(), disks);
    world.target.admit(&first).expect("free");
    assert!(world.target.admit(&second).is_err());
    world.target.forget(second);
    assert_eq!(world.target.subsystems(), [NQN, OTHER]);
    let gone = world.expel(NQN);
    assert!(world.target.expel(NQN).is_err());
    world.target.forget(gone);
    let next = world.target.prepare(config(NQN)).expect("free");
    assert_eq!(next.devices(), [0]);
}

#[test]
fn what_devices_have_is_answered_before_a_subsystem_goes() {
    let (mut world, disk) = two_cores();
    let (admin, mut io) = Host::pair(&mut world);
    disk.hold();
    let written = io.send(&mut world, write_in(3, &[1; 4096], 4096), &[1; 4096]);
    let read_back = io.send(&mut world, read(0, 8192, 4096), &[]);
    io.settle(&mut world);
    let listing = world.expel(NQN);
    // The admin queue has nothing left to do; the I/O queue has.
    assert!(world.wires[admin.wire].is_closed());
    assert!(!world.wires[io.wire].is_closed() && !world.is_clear_of(&listing));
    let late = io.send(&mut world, write_in(4, &[9; 4096], 4096), &[9; 4096]);
    io.settle(&mut world);
    disk.release();
    io.settle(&mut world);
    assert!(io.replies[&written].status().is_success());
    assert_eq!(io.replies[&read_back].data.len(), 8192);
    assert!(!io.replies.contains_key(&late), "it was not begun");
    assert!(world.wires[io.wire].is_closed() && world.is_clear_of(&listing));
    assert_eq!((world.outstanding(), world.connections()), (0, 0));
    assert_eq!(disk.take_log().len(), 2);
}

#[test]
fn a_device_that_keeps_commands_holds_up_only_its_own_hosts() {
    let (mut world, disk) = two_cores();
    let other = Disk::plain(BlockSize::B4096, 64);
    world.add(OTHER, std::slice::from_ref(&other));
    let (_admin, mut io) = Host::pair(&mut world);
    disk.hold();
    io.send(&mut world, write_in(3, &[1; 4096], 4096), &[1; 4096]);
    io.settle(&mut world);
    let listing = world.expel(NQN);
    world.pass(Duration::from_secs(3));
    assert!(!world.wires[io.wire].is_closed());
    world.pass(Duration::from_secs(4));
    assert!(world.wires[io.wire].is_closed() && !world.is_clear_of(&listing));
    let connect = |world: &mut World, nqn: &str| {
        let mut host = Host::dial(world, Digests::NONE);
        let cid = {
            let data = ashlar_nvme::fabrics::ConnectData::new([7; 16], CNTLID_DYNAMIC, nqn, HOST);
            host.send(world, Command::connect(queue(0, 32)), data.as_wire())
        };
        host.settle(world);
        (host, cid)
    };
    let (host, cid) = connect(&mut world, OTHER);
    assert!(host.replies[&cid].status().is_success());
    // The name is free at once, but the old write must have ended before a new one can be sent.
    world.add(NQN, std::slice::from_ref(&disk));
    let (mut host, cid) = connect(&mut world, NQN);
    assert!(host.replies.is_empty());
    disk.release();
    world.pass(Duration::from_millis(500));
    host.settle(&mut world);
    assert!(host.replies[&cid].status().is_success());
    assert!(world.is_clear_of(&listing));
}

#[test]
fn a_host_that_takes_nothing_cannot_keep_a_subsystem() {
    let (mut world, _disk) = two_cores();
    let (_admin, mut io) = Host::pair(&mut world);
    world.wires[io.wire].reading = false;
    io.send(&mut world, read(0, 65536, 4096), &[]);
    world.settle();
    let listing = world.expel(NQN);
    assert!(!world.is_clear_of(&listing));
    world.pass(Duration::from_secs(6));
    assert!(world.is_clear_of(&listing));
    assert_eq!((world.outstanding(), world.connections()), (0, 0));
}

#[test]
fn a_data_transfer_that_is_cut_off_frees_its_buffer() {
    let (mut world, _disk) = two_cores();
    let (_admin, mut io) = Host::pair(&mut world);
    let command = crate::host::write_out(0, 128 << 10, 4096);
    io.send(&mut world, command, &[]);
    io.settle(&mut world);
    assert_eq!(io.r2ts.len(), 1);
    assert!(world.outstanding() > 0);
    let listing = world.expel(NQN);
    assert!(world.is_clear_of(&listing));
    assert_eq!((world.outstanding(), world.connections()), (0, 0));
}

#[test]
fn a_device_that_is_not_there_is_an_error_and_no_more() {
    let (mut world, disk) = two_cores();
    let (_admin, mut io) = Host::pair(&mut world);
    world.cores[1].detach(0);
    let reply = io.call(&mut world, write_in(0, &[1; 4096], 4096), &[1; 4096]);
    assert_eq!(reply.status(), Status::INTERNAL_PATH_ERROR);
    assert!(disk.take_log().is_empty());
    world.cores[1].detach(7);
    world.cores[1].attach(0, disk.queue());
    let reply = io.call(&mut world, write_in(0, &[1; 4096], 4096), &[1; 4096]);
    assert!(reply.status().is_success());
}

#[test]
fn hosts_that_may_no_more_are_sent_away_and_others_stay() {
    let (mut world, _disk) = two_cores();
    let (admin, io) = Host::pair(&mut world);
    let friend = "nqn.2024-01.com.example:friend";
    let mut theirs = Host::dial(&mut world, Digests::NONE);
    theirs.hostnqn = friend.into();
    theirs.hostid = [8; 16];
    let reply = theirs.connect_to(&mut world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(reply.status().is_success());
    assert_eq!(world.target.hosts_of(NQN), [HOST, friend]);
    let listed = HostAccess::Listed(vec![friend.into()]);
    world.target.allow(NQN, listed).expect("it is there");
    world.tell(&[Notice::Reap, Notice::Events]);
    assert!(world.wires[admin.wire].is_closed() && world.wires[io.wire].is_closed());
    assert_eq!(world.target.hosts_of(NQN), [friend]);
    theirs.enable(&mut world);
    let mut again = Host::dial(&mut world, Digests::NONE);
    let reply = again.connect_to(&mut world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(reply.status().is(Status::CONNECT_INVALID_HOST));
    world
        .target
        .allow(NQN, HostAccess::Any)
        .expect("it is there");
    world.tell(&[Notice::Reap]);
    Host::pair(&mut world);
    assert!(world.target.allow(OTHER, HostAccess::Any).is_err());
}

#[test]
fn discovery_controllers_hear_of_every_change() {
    let (mut world, disk) = two_cores();
    let discover = |world: &mut World| {
        let mut host = Host::dial(world, Digests::NONE);
        let reply = host.connect_to(world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
        assert!(reply.status().is_success());
        host.enable(world);
        host
    };
    let log = |world: &mut World, host: &mut Host, retain: bool| {
        let data = host
            .call(world, log_page(lid::DISCOVERY, 8192, retain), &[])
            .data;
        let header = DiscoveryHeader::parse(&data[..1024]).expect("a header");
        let entries = DiscoveryEntry::list(&data[1024..], header.numrec.get());
        let names: Vec<String> = entries.iter().map(DiscoveryEntry::subnqn).collect();
        (header.genctr.get(), names)
    };
    let mut deaf = discover(&mut world);
    let mut host = discover(&mut world);
    listen(&mut world, &mut host, notices::DISCOVERY_LOG_CHANGE);
    let unheard = deaf.send(&mut world, Command::async_event_request(), &[]);
    let request = host.send(&mut world, Command::async_event_request(), &[]);
    let (first, names) = log(&mut world, &mut host, true);
    assert_eq!(names, [NQN]);
    world.add(OTHER, std::slice::from_ref(&disk));
    host.settle(&mut world);
    let event = Some(AsyncEvent::DiscoveryLogChange);
    assert_eq!(told(&mut host, request), event);
    let (second, names) = log(&mut world, &mut host, true);
    assert_eq!(names, [NQN, OTHER]);
    // Masked as long as the log is only looked at with the event retained.
    let request = host.send(&mut world, Command::async_event_request(), &[]);
    let listed = HostAccess::Listed(Vec::new());
    world.target.allow(OTHER, listed).expect("it is there");
    world.tell(&[Notice::Reap, Notice::Events]);
    host.settle(&mut world);
    assert_eq!(told(&mut host, request), None);
    let (third, names) = log(&mut world, &mut host, false);
    assert_eq!(names, [NQN], "what a host may not use it is not shown");
    let listing = world.expel(OTHER);
    world.target.forget(listing);
    host.settle(&mut world);
    assert_eq!(told(&mut host, request), event);
    let (fourth, _) = log(&mut world, &mut host, false);
    let generations = [first, second, third, fourth];
    assert!(generations.is_sorted_by(|a, b| a < b), "{generations:?}");
    // A resize changes nothing that discovery tells.
    resize(&mut world, &disk, 5000);
    assert_eq!(log(&mut world, &mut host, false).0, fourth);
    deaf.settle(&mut world);
    assert_eq!(told(&mut deaf, unheard), None);
}
