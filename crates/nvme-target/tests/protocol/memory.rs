//! Buffers: who waits for them, who gets them, and that they come back.

use std::time::Duration;

use ashlar_block::BlockSize;
use ashlar_nvme::command::GetLogPage;
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, DISCOVERY_NQN};
use ashlar_nvme::pdu::{Digests, H2cData};
use ashlar_nvme::{Command, opcode};

use crate::disk::Disk;
use crate::host::{Host, pattern, queue, read, write_in, write_out};
use crate::world::{Plan, World};

/// 16 MiB: a connection's share is 4 MiB.
fn small_pool() -> (Plan, World) {
    let disks = vec![Disk::plain(BlockSize::B4096, 4096)];
    let plan = Plan {
        disks,
        pool_bytes: 16 << 20,
        ..Plan::default()
    };
    let world = World::new(&plan);
    (plan, world)
}

/// Answers R2Ts until every command of `count` has ended.
fn finish(world: &mut World, io: &mut Host, count: usize, data: &[u8]) {
    for _ in 0..10 * count {
        io.settle(world);
        if io.r2ts.is_empty() {
            break;
        }
        io.answer_r2t(world, data);
    }
    io.settle(world);
    assert_eq!(io.replies.len(), count, "every command ends");
    assert!(io.replies.values().all(|reply| reply.status().is_success()));
}

#[test]
fn writes_that_hold_buffers_do_not_wait_behind_reads_that_want_them() {
    let (_plan, mut world) = small_pool();
    let (_admin, mut io) = Host::pair(&mut world);
    let data = pattern(1, 1 << 20);
    for turn in 0..8 {
        io.send(&mut world, write_out(turn * 256, 1 << 20, 4096), &[]);
        io.send(&mut world, read(0, 1 << 20, 4096), &[]);
    }
    finish(&mut world, &mut io, 16, &data);
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn many_large_compares_do_not_starve_each_other() {
    let (_plan, mut world) = small_pool();
    let (_admin, mut io) = Host::pair(&mut world);
    let zeroes = vec![0; 1 << 20];
    let compare = Command {
        opcode: opcode::io::COMPARE,
        ..write_out(0, 1 << 20, 4096)
    };
    for _ in 0..32 {
        io.send(&mut world, compare, &[]);
    }
    finish(&mut world, &mut io, 32, &zeroes);
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn a_capsule_in_front_of_data_that_was_asked_for_is_not_in_its_way() {
    let (_plan, mut world) = small_pool();
    let (_admin, mut io) = Host::pair(&mut world);
    let data = pattern(2, 1 << 20);
    for _ in 0..8 {
        io.send(&mut world, write_out(0, 1 << 20, 4096), &[]);
    }
    io.settle(&mut world);
    assert!(io.r2ts.len() >= 3);
    // The host's next bytes are a capsule with data, then what was asked for.
    let small = pattern(3, 64 << 10);
    for command in [
        write_in(1024, &small, 4096),
        Command {
            opcode: opcode::io::COMPARE,
            ..write_in(1024, &small, 4096)
        },
    ] {
        io.send(&mut world, command, &small);
    }
    finish(&mut world, &mut io, 10, &data);
    assert_eq!(
        io.call(&mut world, read(1024, small.len(), 4096), &[]).data,
        small
    );
}

#[test]
fn a_tiny_pool_serves_many_connections() {
    let (_plan, mut world) = small_pool();
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let mut hosts: Vec<Host> = (1..=24)
        .map(|qid| Host::io(&mut world, cntlid, qid, 64, Digests::NONE))
        .collect();
    let data = pattern(4, 1 << 20);
    let small = pattern(5, 16_384);
    for (index, io) in hosts.iter_mut().enumerate() {
        for turn in 0..6 {
            let slba = (index as u64 * 7 + turn) % 3000;
            io.send(&mut world, write_out(slba, 1 << 20, 4096), &[]);
            io.send(&mut world, read(slba, 1 << 20, 4096), &[]);
            io.send(&mut world, write_in(slba, &small, 4096), &small);
        }
    }
    for _ in 0..600 {
        for io in &mut hosts {
            io.settle(&mut world);
            if !io.r2ts.is_empty() {
                io.answer_r2t(&mut world, &data);
            }
        }
        assert!(world.outstanding() <= 16 << 20);
        if hosts.iter().all(|io| io.replies.len() == 18) {
            break;
        }
    }
    let served: Vec<usize> = hosts.iter().map(|io| io.replies.len()).collect();
    assert_eq!(served, [18; 24]);
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn a_thousand_completions_at_once_all_arrive() {
    let plan = Plan::default();
    let mut world = World::new(&plan);
    let (_admin, cntlid) = Host::admin(&mut world, Digests::BOTH);
    let mut io = Host::io(&mut world, cntlid, 1, 1024, Digests::BOTH);
    plan.disks[0].hold();
    for slba in 0..1000 {
        let command = if slba % 3 == 0 {
            Command::flush(1)
        } else {
            read(slba, 4096, 4096)
        };
        io.send(&mut world, command, &[]);
    }
    io.settle(&mut world);
    assert!(io.replies.is_empty());
    world.wires[io.wire].reading = false;
    plan.disks[0].release();
    world.settle();
    world.wires[io.wire].reading = true;
    io.settle(&mut world);
    assert_eq!(io.replies.len(), 1000);
    assert_eq!(world.outstanding(), 0);
}

/// A host that sends commands and takes no answer must not make the target remember them all.
fn flood(world: &mut World, host: &mut Host, command: Command, total: usize) {
    world.wires[host.wire].reading = false;
    let capsule = host.capsule(&command.with_cid(1), &[]);
    for _ in 0..total {
        world.push(host.wire, &capsule);
        world.settle();
    }
    let left = world.wires[host.wire].unread();
    assert!(
        left > total * capsule.len() / 2,
        "the target stops reading: {left} left"
    );
}

#[test]
fn a_host_that_never_reads_is_not_listened_to_for_ever() {
    let ask = GetLogPage {
        lid: 0x70,
        lsp: 0,
        retain_event: false,
        bytes: 256 << 10,
        offset: 0,
        offset_type: false,
    };
    let mut world = World::new(&Plan::default());
    let mut discovery = Host::dial(&mut world, Digests::NONE);
    discovery.connect_to(&mut world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
    discovery.enable(&mut world);
    flood(
        &mut world,
        &mut discovery,
        Command::get_log_page(0, ask),
        100,
    );
    let (_admin, mut io) = Host::pair(&mut world);
    flood(&mut world, &mut io, Command::flush(1), 20_000);
    // It is closed in the end, whatever it goes on sending.
    for _ in 0..60 {
        world.push(discovery.wire, &[4]);
        world.push(io.wire, &[4]);
        world.pass(Duration::from_secs(1));
    }
    assert!(world.wires[discovery.wire].is_closed());
    assert!(world.wires[io.wire].is_closed());
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn buffers_come_back_however_a_connection_dies() {
    let (plan, mut world) = small_pool();
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    type Scene = fn(&mut World, &mut Host);
    let scenes: [Scene; 7] = [
        // In the middle of a capsule's payload, directly received and not.
        |world, io| {
            let data = pattern(1, 32 << 10);
            let bytes = io.capsule(&write_in(0, &data, 4096).with_cid(1), &data);
            world.push(io.wire, &bytes[..9000]);
        },
        // Waiting for data that was asked for.
        |world, io| {
            io.send(world, write_out(0, 1 << 20, 4096), &[]);
        },
        // In the middle of it.
        |world, io| {
            let cid = io.send(world, write_out(0, 1 << 20, 4096), &[]);
            io.settle(world);
            let ttag = io.r2ts.remove(0).ttag;
            let header = H2cData {
                cid,
                ttag,
                offset: 0,
                length: 1 << 20,
                last: true,
            };
            let bytes = io.h2c(&header, &vec![1; 1 << 20]);
            world.push(io.wire, &bytes[..70_000]);
        },
        // Commands in the device, and others that wait for buffers.
        |world, io| {
            for turn in 0..12 {
                io.send(world, read(turn, 1 << 20, 4096), &[]);
                io.send(world, write_out(turn, 1 << 20, 4096), &[]);
            }
        },
        // A capsule that waits for a buffer.
        |world, io| {
            for _ in 0..4 {
                io.send(world, read(0, 1 << 20, 4096), &[]);
            }
            io.send(world, write_in(0, &[1; 65536], 4096), &[1; 65536]);
        },
        // Answers that the host does not take.
        |world, io| {
            world.wires[io.wire].reading = false;
            for _ in 0..20 {
                io.send(world, read(0, 65536, 4096), &[]);
            }
        },
        // Nonsense in the middle of everything.
        |world, io| {
            for turn in 0..6 {
                io.send(world, read(turn, 1 << 20, 4096), &[]);
                io.send(world, write_out(turn, 1 << 20, 4096), &[]);
            }
            world.settle();
            world.push(io.wire, &[0xee; 200]);
        },
    ];
    for (index, scene) in scenes.into_iter().enumerate() {
        for held in [false, true] {
            println!("scene {index}, held {held}");
            let mut io = Host::io(&mut world, cntlid, 1, 128, Digests::NONE);
            if held {
                plan.disks[0].hold();
            }
            scene(&mut world, &mut io);
            world.settle();
            world.hang_up(io.wire);
            plan.disks[0].release();
            world.settle();
            assert_eq!(world.outstanding(), 0, "scene {index}");
            assert_eq!(world.connections(), 1, "scene {index}");
        }
    }
}
