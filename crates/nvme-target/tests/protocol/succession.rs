//! Cross-Controller Reset: a host has an association ended that the target thinks alive.

use std::time::Duration;

use ashlar_nvme::command::Identify;
use ashlar_nvme::fabrics::CNTLID_DYNAMIC;
use ashlar_nvme::identify::cns;
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, Status};

use crate::host::{Host, pattern, queue, read, write_in};
use crate::world::{NQN, Plan, World};

/// What a host knows of a controller: its id, CIU and CIRN.
#[derive(Clone, Copy)]
pub struct Name(u16, u8, u64);

pub fn name(world: &mut World, admin: &mut Host, cntlid: u16) -> Name {
    let parameters = Identify {
        cns: cns::CONTROLLER,
        ..Identify::default()
    };
    let page = admin
        .call(world, Command::identify(0, parameters), &[])
        .data;
    assert!(page[1807] > 0, "CCRL");
    let number = u64::from_le_bytes(page[136..144].try_into().expect("eight bytes"));
    Name(cntlid, page[135], number)
}

pub fn reset(Name(id, uniquifier, number): Name) -> Command {
    let mut command = Command::new(0x38, 0);
    command
        .cdw10
        .set(u32::from(uniquifier) << 16 | u32::from(id));
    command.cdw12.set(number as u32);
    command.cdw13.set((number >> 32) as u32);
    command
}

/// An association with a write in a device that holds it.
struct Old {
    admin: Host,
    io: Host,
    name: Name,
    data: Vec<u8>,
}

fn old(world: &mut World, plan: &Plan) -> Old {
    let (mut admin, cntlid) = Host::admin(world, Digests::NONE);
    let mut io = Host::io(world, cntlid, 1, 32, Digests::NONE);
    let name = name(world, &mut admin, cntlid);
    plan.disks[0].hold();
    let data = pattern(1, 4096);
    io.send(world, write_in(0, &data, 4096), &data);
    world.settle();
    Old {
        admin,
        io,
        name,
        data,
    }
}

fn two_cores() -> Plan {
    Plan {
        cores: 2,
        ..Plan::default()
    }
}

#[test]
fn the_answer_comes_when_the_old_write_is_done() {
    let plan = two_cores();
    let mut world = World::new(&plan);
    let old = old(&mut world, &plan);
    // The target has noticed nothing, so the next Connect does not wait.
    let (mut next, cntlid) = Host::admin(&mut world, Digests::NONE);
    let cid = next.send(&mut world, reset(old.name), &[]);
    next.settle(&mut world);
    assert!(world.wires[old.admin.wire].is_closed() && world.wires[old.io.wire].is_closed());
    world.pass(Duration::from_secs(1));
    next.settle(&mut world);
    assert!(!next.replies.contains_key(&cid), "it is in the device");
    plan.disks[0].release();
    world.pass(Duration::from_millis(10));
    next.settle(&mut world);
    let reply = &next.replies[&cid];
    assert!(reply.status().is_success() && reply.dw0() == 1);
    let mut io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    assert_eq!(io.call(&mut world, read(0, 4096, 4096), &[]).data, old.data);
    // What is gone is gone: at once.
    let reply = next.call(&mut world, reset(old.name), &[]);
    assert!(reply.status().is_success() && reply.dw0() == 1);
}

#[test]
fn only_the_hosts_own_associations_can_be_named_and_only_exactly() {
    let plan = Plan::default();
    let mut world = World::new(&plan);
    let mut old = old(&mut world, &plan);
    plan.disks[0].release();
    old.io.settle(&mut world);
    let mut other = Host::dial(&mut world, Digests::NONE);
    other.hostid = [8; 16];
    let reply = other.connect_to(&mut world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    let own = reply.completion.connected_cntlid();
    other.enable(&mut world);
    let Name(id, uniquifier, number) = old.name;
    let reply = other.call(&mut world, reset(old.name), &[]);
    assert!(
        reply.status().is_success() && reply.dw0() == 1,
        "not its own"
    );
    let (mut next, _) = Host::admin(&mut world, Digests::NONE);
    for wrong in [
        Name(id, uniquifier, number ^ 1 << 63),
        Name(id, uniquifier.wrapping_add(1), number),
        Name(id + 100, uniquifier, number),
    ] {
        let reply = next.call(&mut world, reset(wrong), &[]);
        assert!(reply.status().is_success() && reply.dw0() == 1);
    }
    let alive = old.io.call(&mut world, Command::flush(1), &[]);
    assert!(alive.status().is_success());
    let itself = name(&mut world, &mut other, own);
    let reply = other.call(&mut world, reset(itself), &[]);
    assert_eq!(reply.status(), Status::INVALID_FIELD.with_dnr());
}

#[test]
fn resets_that_wait_are_limited_and_leave_nothing_behind() {
    let plan = two_cores();
    let mut world = World::new(&plan);
    let old = old(&mut world, &plan);
    let (mut next, _) = Host::admin(&mut world, Digests::NONE);
    let cids: Vec<u16> = (0..5)
        .map(|_| next.send(&mut world, reset(old.name), &[]))
        .collect();
    next.settle(&mut world);
    assert_eq!(next.replies[&cids[4]].status(), Status::new(1, 0x40));
    assert!(cids[..4].iter().all(|cid| !next.replies.contains_key(cid)));
    world.hang_up(next.wire);
    plan.disks[0].release();
    world.pass(Duration::from_secs(1));
    assert_eq!((world.connections(), world.outstanding()), (0, 0));
}

/// Controller ids are of a subsystem: a reset that names a controller of another one must not take
/// the namesake here for it.
#[test]
fn a_namesake_in_another_subsystem_lives_on() {
    const OTHER: &str = "nqn.2024-01.com.example:other";
    let plan = Plan::default();
    let mut world = World::new(&plan);
    world.add(OTHER, &plan.disks);
    let admin_of_other = |world: &mut World| {
        let mut host = Host::dial(world, Digests::NONE);
        let reply = host.connect_to(world, OTHER, queue(0, 32), CNTLID_DYNAMIC);
        host.enable(world);
        (host, reply.completion.connected_cntlid())
    };
    let (mut old, cntlid) = Host::admin(&mut world, Digests::NONE);
    let named = name(&mut world, &mut old, cntlid);
    let (_namesake, same) = admin_of_other(&mut world);
    assert_eq!(same, cntlid);
    let (mut next, _) = admin_of_other(&mut world);
    let cid = next.send(&mut world, reset(named), &[]);
    world.pass(Duration::from_millis(10));
    next.settle(&mut world);
    assert!(next.replies[&cid].status().is_success());
    assert!(world.wires[old.wire].is_closed());
    let mut io = Host::dial(&mut world, Digests::NONE);
    let reply = io.connect_to(&mut world, OTHER, queue(1, 32), same);
    assert!(reply.status().is_success(), "{:?}", reply.status());
}
