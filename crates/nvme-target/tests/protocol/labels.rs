//! Labels of writes: whose a command is, and what was known when its host had last proven that it uses its association.

use std::time::Duration;

use ashlar_block::{BlockSize, ErrorKind, HostId, Provenance};
use ashlar_nvme::command::{DsmRange, GetLogPage, SglDescriptor};
use ashlar_nvme::event::notices;
use ashlar_nvme::feature::fid;
use ashlar_nvme::log::{AnaState, lid};
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, Status};
use ashlar_nvme_target::{Notice, Shared};

use crate::disk::Disk;
use crate::host::{Host, pattern, queue, read, write_in};
use crate::world::{NQN, Plan, World};

const BLOCK: usize = 4096;

fn world() -> (World, Disk) {
    let disk = Disk::plain(BlockSize::B4096, 1024).labelling();
    let world = World::new(&Plan {
        disks: vec![disk.clone()],
        cores: 2,
        shared: Some(Shared {
            controller_ids: 1..=100,
            state: AnaState::Optimized,
            portals: Vec::new(),
            core: Some(0),
            quiesce: Duration::ZERO,
        }),
        ..Plan::default()
    });
    (world, disk)
}

fn write(slba: u64) -> (Command, Vec<u8>) {
    let data = pattern(slba as u8, BLOCK);
    (write_in(slba, &data, BLOCK), data)
}

fn call(world: &mut World, host: &mut Host, slba: u64) {
    let (command, data) = write(slba);
    assert!(host.call(world, command, &data).status().is_success());
}

/// How many commands had been executed as far as the label of each of these knows.
fn known(provenances: &[Provenance]) -> Vec<u64> {
    let writes = |one: &Provenance| one.label.expect("a label").writes;
    provenances.iter().map(writes).collect()
}

/// A host that is told of paths that change, and its I/O queue.
fn told(world: &mut World) -> (Host, Host) {
    let (mut admin, io) = Host::pair(world);
    let want = Command::set_features(0, fid::ASYNC_EVENT_CONFIGURATION, notices::ANA_CHANGE);
    assert!(admin.call(world, want, &[]).status().is_success());
    ask(world, &mut admin);
    (admin, io)
}

/// Asks for an event.
fn ask(world: &mut World, admin: &mut Host) {
    admin.send(world, Command::async_event_request(), &[]);
    admin.settle(world);
}

/// Looks into the ANA log, after which a change is told again.
fn look(world: &mut World, admin: &mut Host) {
    let log = GetLogPage {
        lid: lid::ANA,
        lsp: 0,
        retain_event: false,
        bytes: 16,
        offset: 0,
        offset_type: false,
    };
    let reply = admin.call(world, Command::get_log_page(0, log), &[]);
    assert!(reply.status().is_success());
}

fn change_path(world: &mut World, state: AnaState) {
    assert!(world.target.set_path(NQN, None, state).expect("shared"));
    world.tell(&[Notice::Events]);
}

#[test]
fn a_label_is_as_old_as_what_proves_that_the_host_still_uses_its_association() {
    let (mut world, disk) = world();
    let (mut admin, mut io) = told(&mut world);
    let (_other_admin, mut other) = Host::pair(&mut world);
    call(&mut world, &mut io, 0);
    call(&mut world, &mut other, 1);
    // Time, a change that the host may not have heard of, and commands that it may have sent before prove nothing.
    world.pass(Duration::from_secs(2));
    call(&mut world, &mut io, 2);
    change_path(&mut world, AnaState::NonOptimized);
    for _ in 0..2 {
        assert!(
            admin
                .call(&mut world, Command::keep_alive(), &[])
                .status()
                .is_success()
        );
    }
    look(&mut world, &mut admin);
    call(&mut world, &mut io, 3);
    assert_eq!(known(&disk.take_provenances()), [0, 0, 0, 0]);
    // An event request behind the end of another proves what was known before that end.
    call(&mut world, &mut other, 4);
    ask(&mut world, &mut admin);
    call(&mut world, &mut io, 5);
    assert_eq!(known(&disk.take_provenances()), [0, 3]);
}

#[test]
fn a_host_that_is_refused_is_asked_for_proof_and_goes_on() {
    let (mut world, disk) = world();
    let (mut admin, mut io) = told(&mut world);
    let (_other_admin, mut other) = Host::pair(&mut world);
    let refused = |world: &mut World, io: &mut Host| {
        disk.0.borrow_mut().fail_writes = Some(ErrorKind::PathChanging);
        let (command, data) = write(0);
        assert!(
            io.call(world, command, &data)
                .status()
                .is(Status::ANA_TRANSITION)
        );
        disk.0.borrow_mut().fail_writes = None;
    };
    for so_far in [0, 3] {
        call(&mut world, &mut other, 1);
        refused(&mut world, &mut io);
        admin.settle(&mut world);
        assert_eq!(admin.outstanding(), 0, "it is told of a change");
        look(&mut world, &mut admin);
        ask(&mut world, &mut admin);
        disk.take_provenances();
        call(&mut world, &mut io, 2);
        assert_eq!(known(&disk.take_provenances()), [so_far + 2]);
    }
    // It is told again if it looks into an event of before.
    change_path(&mut world, AnaState::NonOptimized);
    ask(&mut world, &mut admin);
    refused(&mut world, &mut io);
    admin.settle(&mut world);
    assert_eq!(admin.outstanding(), 1, "it has not looked");
    look(&mut world, &mut admin);
    assert_eq!(admin.outstanding(), 0);
    // Without an answer it is not let in again by this association.
    world.pass(Duration::from_secs(2));
    assert!(!world.wires[io.wire].is_closed());
    world.pass(Duration::from_secs(3));
    assert!(world.wires[io.wire].is_closed());
}

#[test]
fn a_host_that_is_refused_for_something_else_is_not_sent_away() {
    let (mut world, disk) = world();
    disk.0.borrow_mut().label = Some(7);
    let (_admin, mut io) = told(&mut world);
    disk.0.borrow_mut().fail_writes = Some(ErrorKind::PathChanging);
    let (command, data) = write(0);
    let refused = io.call(&mut world, command, &data);
    assert!(refused.status().is(Status::ANA_TRANSITION));
    world.pass(Duration::from_secs(10));
    assert!(!world.wires[io.wire].is_closed());
}

#[test]
fn a_proof_is_not_forgotten_for_what_devices_say_afterwards() {
    let (mut world, disk) = world();
    let (mut admin, mut io) = told(&mut world);
    disk.0.borrow_mut().label = Some(7);
    change_path(&mut world, AnaState::NonOptimized);
    ask(&mut world, &mut admin);
    // The label changes at each tick, and no command takes what was proven.
    for label in 8..12 {
        disk.0.borrow_mut().label = Some(label);
        world.pass(Duration::from_secs(1));
    }
    call(&mut world, &mut io, 0);
    assert_eq!(known(&disk.take_provenances()), [7]);
}

/// Two associations of a host that write by turns prove themselves: labels stay young, and none is younger than what a
/// queue may have had under way.
#[test]
fn a_queue_that_goes_round_is_proof() {
    const ENTRIES: usize = 16;
    let (mut world, disk) = world();
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let mut io = Host::io(&mut world, cntlid, 1, ENTRIES as u16, Digests::NONE);
    let (_other_admin, mut other) = Host::pair(&mut world);
    for slba in 0..10 * ENTRIES as u64 {
        call(&mut world, &mut io, slba);
        call(&mut world, &mut other, slba);
    }
    let labels = known(&disk.take_provenances());
    let ages = labels
        .iter()
        .enumerate()
        .map(|(at, known)| at - *known as usize);
    let ages: Vec<usize> = ages.step_by(2).skip(3 * ENTRIES).collect();
    let (youngest, oldest) = (ages.iter().min(), ages.iter().max());
    let may_be = |age: &usize| (2 * ENTRIES..=4 * ENTRIES + 4).contains(age);
    assert!(ages.iter().all(may_be), "{youngest:?} to {oldest:?}");
}

#[test]
fn a_controllers_queues_are_one_association_of_its_host() {
    let (mut world, disk) = world();
    let (admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let mut one = Host::io(&mut world, cntlid, 1, 16, Digests::NONE);
    let mut two = Host::io(&mut world, cntlid, 2, 16, Digests::NONE);
    let (_other_admin, mut other) = Host::pair(&mut world);
    let mut strange = Host::dial(&mut world, Digests::NONE);
    strange.hostid = [8; 16];
    let reply = strange.connect_to(&mut world, NQN, queue(0, 32), 0xffff);
    strange.enable(&mut world);
    let its = reply.completion.connected_cntlid();
    let mut strange_io = Host::dial(&mut world, Digests::NONE);
    strange_io.hostid = [8; 16];
    let reply = strange_io.connect_to(&mut world, NQN, queue(1, 16), its);
    assert!(reply.status().is_success());
    for host in [&mut one, &mut two, &mut other, &mut strange_io] {
        call(&mut world, host, 0);
    }
    let all = disk.take_provenances();
    // Nodes, and releases, must agree on what a host is called.
    assert_eq!(all[0].host, HostId(0xd383_2cd8_dbe4_6a7d));
    assert_eq!(all[0].host, all[2].host);
    assert_ne!(all[0].host, all[3].host);
    assert_eq!(all[0].association, all[1].association);
    assert_ne!(all[0].association, all[2].association);
    // It has ended when its last queue is gone.
    let ended = || disk.0.borrow().ended.clone();
    world.hang_up(one.wire);
    assert_eq!(ended(), []);
    disk.hold();
    let (command, data) = write(9);
    two.send(&mut world, command, &data);
    two.settle(&mut world);
    world.hang_up(admin.wire);
    assert_eq!(ended(), [], "a device still has a command of it");
    disk.release();
    world.settle();
    assert_eq!(ended(), [(all[0].host, all[0].association)]);
}

#[test]
fn all_of_a_host_has_a_provenance_where_writes_are_labelled_and_elsewhere_what_modifies() {
    let (mut world, disk) = world();
    let (_admin, mut io) = Host::pair(&mut world);
    let zeroes = Command::write_zeroes(1, 0, 8, false);
    assert!(io.call(&mut world, zeroes, &[]).status().is_success());
    let range = DsmRange::new(3, 2);
    let sgl = SglDescriptor::in_capsule(size_of::<DsmRange>() as u32);
    let deallocate = Command::deallocate(1, 1, sgl);
    let reply = io.call(&mut world, deallocate, range.as_wire());
    assert!(reply.status().is_success());
    call(&mut world, &mut io, 1);
    assert_eq!(disk.take_provenances().len(), 3);
    let reply = io.call(&mut world, read(1, BLOCK, BLOCK), &[]);
    assert_eq!(reply.data, pattern(1, BLOCK));
    assert!(
        io.call(&mut world, Command::flush(1), &[])
            .status()
            .is_success()
    );
    assert_eq!(disk.take_provenances().len(), 2);
    // A disk that wants no labels is not asked for any (it would panic), and is told whose a write is.
    disk.0.borrow_mut().labels = false;
    let listing = world.target.devices_of(NQN).expect("it is there");
    world.attach(&listing, std::slice::from_ref(&disk));
    call(&mut world, &mut io, 2);
    world.pass(Duration::from_secs(1));
    assert_eq!(disk.take_provenances().len(), 1);
    let reply = io.call(&mut world, read(1, BLOCK, BLOCK), &[]);
    assert_eq!(reply.data, pattern(1, BLOCK));
    assert_eq!(disk.take_provenances(), []);
}
