//! The data phase: R2T, H2CData, digests, and what ends the connection.

use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::pdu::{Digests, FatalStatus, H2cData};
use ashlar_nvme::{Command, Status};

use crate::host::{Host, pattern, read, write_in, write_out};
use crate::world::{Plan, World};

fn io(digests: Digests) -> (World, Host, Host) {
    let mut world = World::new(&Plan::default());
    let (admin, cntlid) = Host::admin(&mut world, digests);
    let io = Host::io(&mut world, cntlid, 1, 32, digests);
    (world, admin, io)
}

/// The connection has ended with this status, and nothing of it is left.
fn assert_ended(world: &mut World, host: &mut Host, status: FatalStatus) {
    host.settle(world);
    let term = host.terminated.expect("a terminate request");
    assert_eq!(term.status(), Some(status));
    assert!(world.wires[host.wire].is_closed());
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn a_corrupted_payload_fails_the_command_and_nothing_else() {
    let (mut world, _admin, mut io) = io(Digests::BOTH);
    let data = pattern(1, 8192);
    io.call(&mut world, write_in(0, &data, 4096), &data);
    let cid = io.cid();
    let mut bytes = io.capsule(&write_in(0, &[9; 8192], 4096).with_cid(cid), &[9; 8192]);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    world.push(io.wire, &bytes);
    io.settle(&mut world);
    assert_eq!(io.replies[&cid].status(), Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(io.replies[&cid].status().code(), 0x022);
    // In an H2CData PDU in the middle of a transfer.
    let cid = io.send(&mut world, write_out(0, 12_288, 4096), &[]);
    io.settle(&mut world);
    let r2t = io.r2ts.remove(0);
    for (index, flip) in [(0, false), (1, true), (2, false)] {
        let header = H2cData {
            cid,
            ttag: r2t.ttag,
            offset: index * 4096,
            length: 4096,
            last: index == 2,
        };
        let mut bytes = io.h2c(&header, &[8; 4096]);
        bytes[100] ^= u8::from(flip);
        world.push(io.wire, &bytes);
    }
    io.settle(&mut world);
    assert_eq!(io.replies[&cid].status().code(), 0x022);
    assert_eq!(
        io.call(&mut world, read(0, 8192, 4096), &[]).data,
        data,
        "nothing was written"
    );
}

#[test]
fn a_corrupted_header_ends_the_connection() {
    let (mut world, _admin, mut io) = io(Digests::BOTH);
    let mut bytes = io.capsule(&Command::flush(1).with_cid(9), &[]);
    bytes[20] ^= 1;
    world.push(io.wire, &bytes);
    assert_ended(&mut world, &mut io, FatalStatus::HeaderDigestError);
}

/// Sends a write of two blocks, then H2CData with `change`; returns what became of it.
fn answer_wrongly(change: impl Fn(&mut H2cData)) -> (World, Host) {
    let (mut world, _admin, mut io) = io(Digests::NONE);
    let cid = io.send(&mut world, write_out(0, 8192, 4096), &[]);
    io.settle(&mut world);
    let ttag = io.r2ts.remove(0).ttag;
    let mut header = H2cData {
        cid,
        ttag,
        offset: 0,
        length: 8192,
        last: true,
    };
    change(&mut header);
    let bytes = io.h2c(&header, &vec![0; header.length as usize]);
    world.push(io.wire, &bytes);
    (world, io)
}

#[test]
fn data_that_was_not_asked_for_ends_the_connection() {
    use FatalStatus::{DataTransferOutOfRange, InvalidHeaderField, PduSequenceError};
    type Change = fn(&mut H2cData);
    let cases: [(Change, FatalStatus); 9] = [
        (|h| h.ttag ^= 1, InvalidHeaderField),
        (|h| h.ttag = 0xffff, InvalidHeaderField),
        (|h| h.cid ^= 1, InvalidHeaderField),
        (|h| h.offset = 4096, DataTransferOutOfRange),
        (|h| h.offset = u32::MAX - 8191, DataTransferOutOfRange),
        (|h| h.offset = u32::MAX, DataTransferOutOfRange),
        (|h| h.length = 8196, DataTransferOutOfRange),
        (|h| h.length = 1 << 20, DataTransferOutOfRange),
        (|h| h.length = 4096, PduSequenceError),
    ];
    for (index, (change, status)) in cases.into_iter().enumerate() {
        let (mut world, mut io) = answer_wrongly(change);
        println!("case {index}");
        assert_ended(&mut world, &mut io, status);
    }
    let (mut world, mut io) = answer_wrongly(|h| h.length = (1 << 20) + 4);
    assert_ended(&mut world, &mut io, FatalStatus::DataTransferLimitExceeded);
}

#[test]
fn data_sent_twice_ends_the_connection() {
    let (mut world, mut io) = answer_wrongly(|_| {});
    io.settle(&mut world);
    let (&cid, reply) = io.replies.iter().next().expect("the write is done");
    assert!(reply.status().is_success());
    let again = H2cData {
        cid,
        ttag: 0,
        offset: 0,
        length: 8192,
        last: true,
    };
    let bytes = io.h2c(&again, &[0; 8192]);
    world.push(io.wire, &bytes);
    assert_ended(&mut world, &mut io, FatalStatus::InvalidHeaderField);
}

#[test]
fn several_transfers_may_be_answered_out_of_order_and_in_turns() {
    let (mut world, _admin, mut io) = io(Digests::BOTH);
    let data = [pattern(1, 16_384), pattern(2, 16_384)];
    let cids = [0, 8].map(|slba| io.send(&mut world, write_out(slba, 16_384, 4096), &[]));
    io.settle(&mut world);
    let ttags = [io.r2ts[0].ttag, io.r2ts[1].ttag];
    for step in 0..4u32 {
        for which in [1, 0] {
            let range = step as usize * 4096..(step as usize + 1) * 4096;
            let header = H2cData {
                cid: cids[which],
                ttag: ttags[which],
                offset: range.start as u32,
                length: 4096,
                last: step == 3,
            };
            let bytes = io.h2c(&header, &data[which][range]);
            world.push(io.wire, &bytes);
        }
    }
    io.settle(&mut world);
    assert!(cids.iter().all(|cid| io.replies[cid].status().is_success()));
    assert_eq!(
        io.call(&mut world, read(0, 16_384, 4096), &[]).data,
        data[0]
    );
    assert_eq!(
        io.call(&mut world, read(8, 16_384, 4096), &[]).data,
        data[1]
    );
}

#[test]
fn a_capsule_beyond_the_limit_ends_the_connection() {
    let (mut world, mut admin, mut io) = io(Digests::NONE);
    let bytes = (64 << 10) + 4096;
    let data = vec![0; bytes];
    let capsule = io.capsule(&write_in(0, &data, 4096).with_cid(1), &data);
    world.push(io.wire, &capsule);
    io.settle(&mut world);
    let term = io.terminated.expect("a terminate request");
    assert_eq!(term.status(), Some(FatalStatus::DataTransferLimitExceeded));
    // Admin queues take 8192 bytes whatever IOCCSZ says.
    let most = Command::new(0x0d, 1).with_data(SglDescriptor::in_capsule(8192));
    assert_eq!(
        admin.call(&mut world, most, &[0; 8192]).status().code(),
        0x001
    );
    let more = Command::new(0x0d, 1).with_data(SglDescriptor::in_capsule(8196));
    let capsule = admin.capsule(&more.with_cid(2), &[0; 8196]);
    world.push(admin.wire, &capsule);
    assert_ended(
        &mut world,
        &mut admin,
        FatalStatus::DataTransferLimitExceeded,
    );
}

#[test]
fn more_commands_than_the_queue_holds_end_the_connection() {
    let plan = Plan::default();
    let mut world = World::new(&plan);
    let (_admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    let mut io = Host::io(&mut world, cntlid, 1, 4, Digests::NONE);
    plan.disks[0].hold();
    for _ in 0..4 {
        io.send(&mut world, Command::flush(1), &[]);
    }
    io.settle(&mut world);
    assert!(io.terminated.is_none());
    io.send(&mut world, Command::flush(1), &[]);
    io.settle(&mut world);
    assert!(io.terminated.is_some() && world.wires[io.wire].is_closed());
    // The commands end on their own; only then is the connection forgotten.
    assert_eq!(world.connections(), 2);
    plan.disks[0].release();
    world.settle();
    assert_eq!(world.connections(), 1);
}

#[test]
fn after_its_last_words_a_connection_says_nothing_more() {
    let plan = Plan::default();
    let mut world = World::new(&plan);
    let (_admin, mut io) = Host::pair(&mut world);
    plan.disks[0].hold();
    for slba in 0..8 {
        io.send(&mut world, read(slba, 4096, 4096), &[]);
    }
    io.settle(&mut world);
    world.wires[io.wire].reading = false;
    world.push(io.wire, &[0xff; 8]);
    world.settle();
    plan.disks[0].release();
    world.settle();
    world.wires[io.wire].reading = true;
    // `settle` refuses anything after the terminate request.
    io.settle(&mut world);
    assert!(io.terminated.is_some() && io.replies.is_empty());
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn a_host_that_terminates_is_let_go() {
    let (mut world, _admin, io) = io(Digests::NONE);
    let mut bytes = Vec::new();
    let fatal = ashlar_nvme::pdu::Fatal::new(FatalStatus::PduSequenceError);
    let role = ashlar_nvme::pdu::Role::Host;
    ashlar_nvme::pdu::term_req(&mut bytes, role, fatal, &[1; 24]);
    world.push(io.wire, &bytes);
    world.settle();
    assert!(world.wires[io.wire].is_closed());
    assert_eq!(world.connections(), 1);
}
