//! Connections and associations over time: keep-alive, stalls, resets, cores, old writes.

use std::time::Duration;

use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, Cc, Connect, property};
use ashlar_nvme::pdu::{Digests, IcReq};
use ashlar_nvme::{Command, Status};

use crate::host::{Host, pattern, queue, read, write_in, write_out};
use crate::world::{NQN, Plan, World};

const SECOND: Duration = Duration::from_secs(1);

fn two_cores() -> Plan {
    Plan {
        cores: 2,
        ..Plan::default()
    }
}

/// A host that leaves, with a command in a device that holds it.
fn leave_behind(world: &mut World, plan: &Plan, command: Command, data: &[u8]) {
    let (admin, mut io) = Host::pair(world);
    plan.disks[0].hold();
    io.send(world, command, data);
    world.settle();
    world.hang_up(io.wire);
    world.hang_up(admin.wire);
}

/// The host again, whose Connect may have to wait.
fn knock(world: &mut World) -> Host {
    let mut next = Host::dial(world, Digests::NONE);
    let bytes = next.connect_bytes(0, CNTLID_DYNAMIC, 32);
    world.push(next.wire, &bytes);
    next.settle(world);
    next
}

/// A host whose keep-alive timeout is 5 s.
fn kept_alive(world: &mut World) -> (Host, u16) {
    let mut admin = Host::dial(world, Digests::NONE);
    let parameters = Connect {
        keep_alive_ms: 5000,
        ..queue(0, 32)
    };
    let reply = admin.connect_to(world, NQN, parameters, CNTLID_DYNAMIC);
    admin.enable(world);
    (admin, reply.completion.connected_cntlid())
}

#[test]
fn an_association_without_signs_of_life_ends() {
    let mut world = World::new(&two_cores());
    let (mut admin, cntlid) = kept_alive(&mut world);
    let mut io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    assert_eq!(world.wires[io.wire].core(), 1);
    for _ in 0..4 {
        world.pass(4 * SECOND);
        assert!(
            admin
                .call(&mut world, Command::keep_alive(), &[])
                .status()
                .is_success()
        );
    }
    // I/O is no sign of life: traffic based keep-alive is not offered.
    for _ in 0..4 {
        world.pass(SECOND);
        assert!(
            io.call(&mut world, Command::flush(1), &[])
                .status()
                .is_success()
        );
    }
    world.pass(3 * SECOND);
    assert!(world.wires[admin.wire].is_closed() && world.wires[io.wire].is_closed());
    assert_eq!((world.connections(), world.outstanding()), (0, 0));
    let mut late = Host::dial(&mut world, Digests::NONE);
    let reply = late.connect_to(&mut world, NQN, queue(1, 32), cntlid);
    assert_eq!(reply.status().code(), 0x182);
}

#[test]
fn a_core_that_was_stopped_reads_before_it_judges() {
    let mut world = World::new(&Plan::default());
    let (mut admin, _) = kept_alive(&mut world);
    world.pass(4 * SECOND);
    // The host's keep-alive has come in time, and lies unread.
    world.oversleep(8 * SECOND);
    assert!(
        admin
            .call(&mut world, Command::keep_alive(), &[])
            .status()
            .is_success()
    );
    world.pass(SECOND);
    world.oversleep(8 * SECOND);
    assert!(!world.wires[admin.wire].is_closed());
    // There was none: silence is silence, and a core that is always late judges all the same.
    world.oversleep(8 * SECOND);
    assert!(world.wires[admin.wire].is_closed());
}

#[test]
fn without_a_keep_alive_timeout_idle_queues_stay() {
    let mut world = World::new(&Plan::default());
    let (mut admin, mut io) = Host::pair(&mut world);
    world.pass(600 * SECOND);
    assert!(
        io.call(&mut world, Command::flush(1), &[])
            .status()
            .is_success()
    );
    assert!(
        admin
            .call(&mut world, Command::keep_alive(), &[])
            .status()
            .is_success()
    );
}

#[test]
fn a_connection_without_connect_is_closed() {
    let mut world = World::new(&Plan::default());
    let silent = Host::silent(&mut world);
    let greeted = Host::dial(&mut world, Digests::NONE);
    let partial = Host::silent(&mut world);
    let mut request = Vec::new();
    IcReq::default().encode(&mut request);
    world.push(partial.wire, &request[..100]);
    world.pass(9 * SECOND);
    assert_eq!(world.connections(), 3);
    world.pass(3 * SECOND);
    assert_eq!(world.connections(), 0);
    assert!(
        [silent, greeted, partial]
            .iter()
            .all(|h| world.wires[h.wire].is_closed())
    );
}

#[test]
fn a_host_that_owes_data_and_sends_none_is_closed() {
    let mut world = World::new(&Plan::default());
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    // Half a header; half a payload; an R2T without answer.
    let half = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    world.push(half.wire, &[4, 0, 72]);
    let middle = Host::io(&mut world, cntlid, 2, 32, Digests::NONE);
    let bytes = middle.capsule(&write_in(0, &[1; 8192], 4096), &[1; 8192]);
    world.push(middle.wire, &bytes[..5000]);
    let mut asked = Host::io(&mut world, cntlid, 3, 32, Digests::NONE);
    asked.send(&mut world, write_out(0, 8192, 4096), &[]);
    world.pass(20 * SECOND);
    assert_eq!(world.connections(), 4);
    world.pass(15 * SECOND);
    assert_eq!((world.connections(), world.outstanding()), (1, 0));
}

#[test]
fn paying_in_pennies_does_not_hold_a_buffer_for_ever() {
    let mut world = World::new(&Plan::default());
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let slow = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    let bytes = slow.capsule(&write_in(0, &[1; 65536], 4096), &[1; 65536]);
    world.push(slow.wire, &bytes[..5000]);
    for byte in &bytes[5000..5060] {
        world.push(slow.wire, &[*byte]);
        world.pass(SECOND);
    }
    assert!(world.wires[slow.wire].is_closed());
    // Other commands in between do not help either.
    let mut busy = Host::io(&mut world, cntlid, 2, 32, Digests::NONE);
    busy.send(&mut world, write_out(0, 65536, 4096), &[]);
    for _ in 0..150 {
        if world.wires[busy.wire].is_closed() {
            break;
        }
        busy.send(&mut world, Command::flush(1), &[]);
        world.pass(SECOND);
    }
    assert!(world.wires[busy.wire].is_closed());
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn a_slow_device_is_not_the_hosts_fault() {
    let plan = Plan::default();
    let mut world = World::new(&plan);
    let (_admin, mut io) = Host::pair(&mut world);
    plan.disks[0].hold();
    let cid = io.send(&mut world, read(0, 4096, 4096), &[]);
    world.pass(120 * SECOND);
    world.wires[io.wire].reading = false;
    plan.disks[0].release();
    world.pass(2 * SECOND);
    world.wires[io.wire].reading = true;
    io.settle(&mut world);
    assert!(io.replies[&cid].status().is_success());
}

#[test]
fn a_slow_link_has_time_for_what_it_carries() {
    const BYTES: usize = 1 << 20;
    let mut world = World::new(&Plan::default());
    let (_admin, mut io) = Host::pair(&mut world);
    world.wires[io.wire].reading = false;
    let cid = io.send(&mut world, read(0, BYTES, 4096), &[]);
    // 30 s for any batch, and a second for each 16 KiB of it.
    world.pass(90 * SECOND);
    world.wires[io.wire].reading = true;
    io.settle(&mut world);
    assert!(io.replies[&cid].status().is_success());

    world.wires[io.wire].reading = false;
    io.send(&mut world, read(0, BYTES, 4096), &[]);
    world.pass(100 * SECOND);
    assert!(world.wires[io.wire].is_closed());
}

#[test]
fn an_old_write_lands_before_the_hosts_next_connect_is_answered() {
    let plan = two_cores();
    let mut world = World::new(&plan);
    let old = pattern(1, 4096);
    leave_behind(&mut world, &plan, write_in(0, &old, 4096), &old);
    let mut next = knock(&mut world);
    world.pass(SECOND);
    next.settle(&mut world);
    assert!(
        next.replies.is_empty(),
        "the old write is still in the device"
    );
    // Another host does not wait for it.
    let mut other = Host::dial(&mut world, Digests::NONE);
    other.hostid = [8; 16];
    let reply = other.connect_to(&mut world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(reply.status().is_success());
    plan.disks[0].release();
    world.pass(SECOND / 100);
    next.settle(&mut world);
    let reply = next.replies.values().next().expect("connected");
    assert!(reply.status().is_success());
    next.enable(&mut world);
    let cntlid = reply_cntlid(&next);
    let mut io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    assert_eq!(io.call(&mut world, read(0, 4096, 4096), &[]).data, old);
    assert_eq!(world.placements, 5);
}

fn reply_cntlid(host: &Host) -> u16 {
    let connected = host.replies.values().find(|reply| reply.dw0() > 0);
    connected
        .expect("a connected queue")
        .completion
        .connected_cntlid()
}

#[test]
fn a_connect_that_waits_too_long_is_told_to_come_again() {
    let plan = Plan::default();
    let mut world = World::new(&plan);
    leave_behind(&mut world, &plan, Command::flush(1), &[]);
    let mut next = knock(&mut world);
    world.pass(12 * SECOND);
    next.settle(&mut world);
    let reply = next.replies.values().next().expect("an answer");
    assert_eq!(reply.status(), Status::CONNECT_CONTROLLER_BUSY);
    plan.disks[0].release();
    world.settle();
    let (_admin, _io) = Host::pair(&mut world);
}

#[test]
fn a_queue_is_connected_again_only_when_its_commands_have_ended() {
    let plan = Plan::default();
    let mut world = World::new(&plan);
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let mut io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    plan.disks[0].hold();
    io.send(&mut world, Command::flush(1), &[]);
    world.settle();
    world.hang_up(io.wire);
    let mut again = Host::dial(&mut world, Digests::NONE);
    let bytes = again.connect_bytes(1, cntlid, 32);
    world.push(again.wire, &bytes);
    again.settle(&mut world);
    assert!(again.replies.is_empty());
    plan.disks[0].release();
    again.settle(&mut world);
    assert!(
        again
            .replies
            .values()
            .all(|reply| reply.status().is_success())
    );
    assert_eq!(again.replies.len(), 1);
}

#[test]
fn a_reset_closes_the_io_queues_even_if_the_host_enables_at_once() {
    let plan = two_cores();
    let mut world = World::new(&plan);
    let (mut admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    let off = Command::property_set(property::CC, false, u64::from(Cc::ENABLED.0 & !1));
    let on = Command::property_set(property::CC, false, u64::from(Cc::ENABLED.0));
    // Both arrive together: the other core hears of the reset when the controller is ready again.
    admin.send(&mut world, off, &[]);
    admin.send(&mut world, on, &[]);
    admin.settle(&mut world);
    assert!(world.wires[io.wire].is_closed());
    let mut io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
    assert!(
        io.call(&mut world, Command::flush(1), &[])
            .status()
            .is_success()
    );
}

#[test]
fn a_connect_sent_with_the_greeting_is_answered_on_the_core_it_moves_to() {
    for reading in [true, false] {
        let mut world = World::new(&two_cores());
        let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
        let mut io = Host::silent(&mut world);
        let mut bytes = Vec::new();
        IcReq::default().encode(&mut bytes);
        bytes.extend(io.connect_bytes(1, cntlid, 32));
        // And a command, before the answer to Connect.
        let cid = io.cid();
        bytes.extend(io.capsule(&Command::flush(1).with_cid(cid), &[]));
        world.wires[io.wire].reading = reading;
        let before = world.placements;
        world.push(io.wire, &bytes);
        world.settle();
        world.wires[io.wire].reading = true;
        io.settle(&mut world);
        assert_eq!(world.placements, before + 1);
        assert_eq!(world.wires[io.wire].core(), 1);
        assert_eq!(io.replies.len(), 2, "reading at once: {reading}");
        assert!(io.replies.values().all(|reply| reply.status().is_success()));
    }
}

#[test]
fn a_connection_that_dies_while_it_waits_for_its_core_leaves_nothing() {
    let mut world = World::new(&two_cores());
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let mut io = Host::silent(&mut world);
    let mut bytes = Vec::new();
    IcReq::default().encode(&mut bytes);
    world.push(io.wire, &bytes);
    world.wires[io.wire].reading = false;
    world.settle();
    // The greeting is in flight; the Connect must wait with its move.
    let connect = io.connect_bytes(1, cntlid, 32);
    world.push(io.wire, &connect);
    world.settle();
    world.hang_up(io.wire);
    assert_eq!((world.connections(), world.outstanding()), (1, 0));
    let _io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
}

#[test]
fn a_thousand_associations_leave_nothing() {
    let mut world = World::new(&two_cores());
    for turn in 0..1000 {
        let (admin, cntlid) = Host::admin(&mut world, Digests::NONE);
        let mut io = Host::io(&mut world, cntlid, 1, 32, Digests::NONE);
        io.send(&mut world, read(0, 4096, 4096), &[]);
        if turn % 2 == 0 {
            world.settle();
        }
        world.hang_up(io.wire);
        world.hang_up(admin.wire);
        world.wires.clear();
    }
    assert_eq!((world.connections(), world.outstanding()), (0, 0));
}

#[test]
fn a_waiting_connect_whose_host_leaves_is_forgotten() {
    let plan = Plan::default();
    let mut world = World::new(&plan);
    leave_behind(&mut world, &plan, Command::flush(1), &[]);
    let next = knock(&mut world);
    world.hang_up(next.wire);
    plan.disks[0].release();
    world.pass(SECOND);
    assert_eq!((world.connections(), world.outstanding()), (0, 0));
}
