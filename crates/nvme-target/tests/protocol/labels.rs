//! Labels of writes: whose a command is, and what was known when its socket was last seen empty.

use std::time::Duration;

use ashlar_block::{BlockSize, HostId, Label, Provenance};
use ashlar_nvme::Command;
use ashlar_nvme::command::{DsmRange, SglDescriptor};
use ashlar_nvme::pdu::Digests;
use ashlar_nvme_target::Notice;

use crate::disk::Disk;
use crate::host::{Host, pattern, queue, read, write_in, write_out};
use crate::world::{NQN, Plan, World};

const BLOCK: usize = 4096;

fn world() -> (World, Disk) {
    let disk = Disk::plain(BlockSize::B4096, 1024).labelling();
    let world = World::new(&Plan {
        disks: vec![disk.clone()],
        cores: 2,
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

/// How many commands were executed when the socket of each of these was last seen empty.
fn known(provenances: &[Provenance]) -> Vec<u64> {
    let writes = |one: &Provenance| one.label.expect("a label").writes;
    provenances.iter().map(writes).collect()
}

#[test]
fn a_label_is_as_old_as_the_last_sight_of_an_empty_socket() {
    let (mut world, disk) = world();
    let (_admin, mut io) = Host::pair(&mut world);
    // The target takes one capsule at a time, and executes it before it takes the next.
    let (command, data) = write(0);
    world.wires[io.wire].chunk = io.capsule(&command, &data).len();
    for slba in 0..3 {
        let (command, data) = write(slba);
        io.send(&mut world, command, &data);
    }
    io.settle(&mut world);
    let first = disk.take_provenances();
    assert_eq!(known(&first), [0, 0, 0], "bytes have waited all the time");
    assert_eq!(
        first[0].label,
        Some(Label {
            epoch: 1,
            writes: 0
        })
    );
    // It was seen empty behind the third, by a receive that was begun before the second was executed.
    call(&mut world, &mut io, 3);
    call(&mut world, &mut io, 4);
    assert_eq!(known(&disk.take_provenances()), [1, 2]);
}

#[test]
fn half_a_command_is_as_old_as_its_first_byte() {
    let (mut world, disk) = world();
    let (_admin, mut io) = Host::pair(&mut world);
    let (_other_admin, mut other) = Host::pair(&mut world);
    let (command, data) = write(0);
    let cid = io.cid();
    let capsule = io.capsule(&command.with_cid(cid), &data);
    // The socket is found empty three times while its header arrives.
    for piece in 0..3 {
        world.push(io.wire, &capsule[20 * piece..20 * (piece + 1)]);
        io.settle(&mut world);
        call(&mut world, &mut other, 1);
    }
    world.push(io.wire, &capsule[60..]);
    io.settle(&mut world);
    assert_eq!(known(&disk.take_provenances()).last(), Some(&0));
    // One whose header is there is as old as that, however late its data comes.
    let executed = || disk.0.borrow().log.len() as u64;
    let before = executed();
    let cid = io.cid();
    let capsule = io.capsule(&command.with_cid(cid), &data);
    world.push(io.wire, &capsule[..100]);
    io.settle(&mut world);
    call(&mut world, &mut other, 3);
    world.push(io.wire, &capsule[100..]);
    io.settle(&mut world);
    let labels = known(&disk.take_provenances());
    assert!(labels[1] <= before, "{labels:?} after {before}");
    let before = executed();
    let cid = io.send(&mut world, write_out(0, BLOCK, BLOCK), &[]);
    io.settle(&mut world);
    call(&mut world, &mut other, 4);
    call(&mut world, &mut other, 5);
    io.answer_r2t(&mut world, &data);
    io.settle(&mut world);
    assert!(io.replies[&cid].status().is_success());
    let labels = known(&disk.take_provenances());
    assert!(labels[2] <= before, "{labels:?} after {before}");
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
fn what_a_host_may_send_after_a_pause_is_not_refused_for_its_age() {
    let (mut world, disk) = world();
    let (_admin, mut idle) = Host::pair(&mut world);
    let (_other_admin, mut other) = Host::pair(&mut world);
    call(&mut world, &mut idle, 0);
    for slba in 0..5 {
        call(&mut world, &mut other, slba);
    }
    disk.take_provenances();
    world.pass(Duration::from_secs(1));
    call(&mut world, &mut idle, 0);
    assert_eq!(known(&disk.take_provenances()), [6]);
    // And at once when a path may have changed.
    call(&mut world, &mut other, 1);
    world.tell(&[Notice::Events]);
    call(&mut world, &mut idle, 0);
    assert_eq!(known(&disk.take_provenances()), [6, 8]);
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
