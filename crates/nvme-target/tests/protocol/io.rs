//! What I/O commands do to the devices.

use ashlar_block::{BlockRange, BlockSize, Durability, Operation};
use ashlar_nvme::command::{DsmRange, NSID_BROADCAST, SglDescriptor};
use ashlar_nvme::feature::fid;
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, Status, opcode};

use crate::disk::Disk;
use crate::host::{Host, pattern, read, write_in, write_out};
use crate::world::{Plan, World};

fn setup(size: BlockSize) -> (World, Disk, Host, Host) {
    let plan = Plan {
        disks: vec![Disk::plain(size, 4096)],
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let (admin, io) = Host::pair(&mut world);
    (world, plan.disks[0].clone(), admin, io)
}

#[test]
fn data_comes_back_for_every_size_and_way() {
    for size in [BlockSize::B512, BlockSize::B4096] {
        let block = size.bytes() as usize;
        let (mut world, _, _, mut io) = setup(size);
        for (seed, blocks) in [1, 2, 7, 8, 16].into_iter().enumerate() {
            let data = pattern(seed as u8, blocks * block);
            let slba = 100 * seed as u64;
            let reply = io.call(&mut world, write_in(slba, &data, block), &data);
            assert!(reply.status().is_success());
            let reply = io.call(&mut world, read(slba, data.len(), block), &[]);
            assert_eq!(reply.data, data);
        }
        for bytes in [block, 64 << 10, (64 << 10) + block, 1 << 20] {
            let data = pattern(9, bytes);
            let reply = io.call_r2t(&mut world, write_out(3, bytes, block), &data);
            assert!(reply.status().is_success());
            let reply = io.call(&mut world, read(3, bytes, block), &[]);
            assert_eq!(reply.data, data);
        }
    }
}

#[test]
fn data_comes_back_however_the_stream_is_cut() {
    for (chunk, digests) in [
        (1, Digests::BOTH),
        (3, Digests::NONE),
        (4097, Digests::BOTH),
    ] {
        let mut world = World::new(&Plan::default());
        let (_admin, cntlid) = Host::admin(&mut world, digests);
        let mut io = Host::io(&mut world, cntlid, 1, 32, digests);
        world.wires[io.wire].chunk = chunk;
        let small = pattern(1, 8192);
        let large = pattern(2, 64 << 10);
        let reply = io.call(&mut world, write_in(0, &small, 4096), &small);
        assert!(reply.status().is_success());
        let reply = io.call_r2t(&mut world, write_out(8, large.len(), 4096), &large);
        assert!(reply.status().is_success());
        assert_eq!(io.call(&mut world, read(0, 8192, 4096), &[]).data, small);
        assert_eq!(
            io.call(&mut world, read(8, large.len(), 4096), &[]).data,
            large
        );
    }
}

#[test]
fn fua_and_a_switched_off_cache_make_writes_durable() {
    let (mut world, disk, mut admin, mut io) = setup(BlockSize::B4096);
    let data = [5; 4096];
    let mut durabilities = |world: &mut World| {
        for command in [
            write_in(0, &data, 4096),
            write_in(0, &data, 4096).with_fua(),
        ] {
            assert!(io.call(world, command, &data).status().is_success());
        }
        for command in [
            Command::write_zeroes(1, 0, 1, true),
            Command::write_zeroes(1, 0, 1, false).with_fua(),
        ] {
            assert!(io.call(world, command, &[]).status().is_success());
        }
        disk.take_log()
            .into_iter()
            .map(|(op, _)| op)
            .collect::<Vec<_>>()
    };
    use Durability::{Cached, Durable};
    let zeroes = |durability, deallocate| Operation::WriteZeroes {
        durability,
        deallocate,
    };
    assert_eq!(
        durabilities(&mut world),
        [
            Operation::Write(Cached),
            Operation::Write(Durable),
            zeroes(Cached, true),
            zeroes(Durable, false)
        ]
    );
    let off = Command::set_features(0, fid::VOLATILE_WRITE_CACHE, 0);
    assert!(admin.call(&mut world, off, &[]).status().is_success());
    assert_eq!(
        durabilities(&mut world),
        [
            Operation::Write(Durable),
            Operation::Write(Durable),
            zeroes(Durable, true),
            zeroes(Durable, false)
        ]
    );
    let reply = admin.call(
        &mut world,
        Command::get_features(0, fid::VOLATILE_WRITE_CACHE),
        &[],
    );
    assert_eq!(reply.dw0(), 0);
}

#[test]
fn flush_reaches_one_namespace_or_all() {
    let disks = vec![
        Disk::plain(BlockSize::B512, 64),
        Disk::plain(BlockSize::B4096, 64),
    ];
    let mut world = World::new(&Plan {
        disks: disks.clone(),
        ..Plan::default()
    });
    let (_admin, mut io) = Host::pair(&mut world);
    for (nsid, expected) in [(1, [1, 0]), (2, [0, 1]), (NSID_BROADCAST, [1, 1])] {
        assert!(
            io.call(&mut world, Command::flush(nsid), &[])
                .status()
                .is_success()
        );
        let flushes = disks.iter().map(|disk| disk.take_log().len());
        assert_eq!(flushes.collect::<Vec<_>>(), expected);
    }
    for nsid in [0, 3] {
        assert_eq!(
            io.call(&mut world, Command::flush(nsid), &[])
                .status()
                .code(),
            0x00b
        );
    }
}

#[test]
fn a_broadcast_flush_waits_for_all_and_fails_with_one() {
    let disks = vec![
        Disk::plain(BlockSize::B512, 64),
        Disk::plain(BlockSize::B4096, 64),
    ];
    let mut world = World::new(&Plan {
        disks: disks.clone(),
        ..Plan::default()
    });
    let (_admin, mut io) = Host::pair(&mut world);
    disks[1].hold();
    disks[0].0.borrow_mut().fail_writes = Some(ashlar_block::ErrorKind::Latched);
    let cid = io.send(&mut world, Command::flush(NSID_BROADCAST), &[]);
    io.settle(&mut world);
    assert!(io.replies.is_empty());
    disks[1].release();
    io.settle(&mut world);
    assert_eq!(io.replies[&cid].status(), Status::WRITE_FAULT);
}

#[test]
fn compare_finds_a_difference_wherever_it_is() {
    let (mut world, _, _, mut io) = setup(BlockSize::B512);
    let data = pattern(3, 64 << 10);
    io.call(&mut world, write_in(0, &data, 512), &data);
    let compare = |write: Command| Command {
        opcode: opcode::io::COMPARE,
        ..write
    };
    let inside = compare(write_in(0, &data, 512));
    assert!(io.call(&mut world, inside, &data).status().is_success());
    for at in [0, 511, 512, data.len() - 1] {
        let mut other = data.clone();
        other[at] ^= 1;
        assert_eq!(
            io.call(&mut world, inside, &other).status(),
            Status::COMPARE_FAILURE
        );
        let outside = compare(write_out(0, data.len(), 512));
        assert_eq!(
            io.call_r2t(&mut world, outside, &other).status(),
            Status::COMPARE_FAILURE
        );
    }
    assert_eq!(world.outstanding(), 0);
}

#[test]
fn write_zeroes_and_verify_need_no_data() {
    let (mut world, disk, _, mut io) = setup(BlockSize::B512);
    let data = pattern(4, 4096);
    io.call(&mut world, write_in(0, &data, 512), &data);
    disk.take_log();
    let reply = io.call(&mut world, Command::write_zeroes(1, 2, 3, true), &[]);
    assert!(reply.status().is_success());
    let mut expected = data;
    expected[1024..2560].fill(0);
    assert_eq!(io.call(&mut world, read(0, 4096, 512), &[]).data, expected);
    // The whole namespace, far more than a transfer may have.
    let reply = io.call(&mut world, Command::write_zeroes(1, 0, 4096, false), &[]);
    assert!(reply.status().is_success());
    disk.take_log();
    assert!(
        io.call(&mut world, Command::verify(1, 8, 16), &[])
            .status()
            .is_success()
    );
    assert_eq!(disk.take_log(), [(Operation::Read, BlockRange::new(8, 16))]);
    disk.0.borrow_mut().fail_reads = Some(ashlar_block::ErrorKind::Media);
    let reply = io.call(&mut world, Command::verify(1, 8, 16), &[]);
    assert_eq!(reply.status(), Status::UNRECOVERED_READ_ERROR);
}

fn ranges(list: &[DsmRange]) -> Vec<u8> {
    list.iter()
        .flat_map(|range| range.as_wire().to_vec())
        .collect()
}

#[test]
fn deallocate_takes_one_to_256_ranges() {
    for count in [1u32, 2, 255, 256] {
        let (mut world, disk, _, mut io) = setup(BlockSize::B4096);
        let list: Vec<DsmRange> = (0..count)
            .map(|i| DsmRange::new(u64::from(i) * 8, i % 4))
            .collect();
        let data = ranges(&list);
        let command = Command::deallocate(1, count, SglDescriptor::in_capsule(data.len() as u32));
        assert!(io.call(&mut world, command, &data).status().is_success());
        let expected: Vec<_> = (0..count)
            .filter(|i| i % 4 > 0)
            .map(|i| {
                (
                    Operation::Deallocate,
                    BlockRange::new(u64::from(i) * 8, i % 4),
                )
            })
            .collect();
        assert_eq!(disk.take_log(), expected);
        let command = Command::deallocate(1, count, SglDescriptor::transport(data.len() as u32));
        assert!(
            io.call_r2t(&mut world, command, &data)
                .status()
                .is_success()
        );
        // Linux sends room for all 256, whatever the count.
        disk.take_log();
        let mut page = data.clone();
        page.resize(4096, 0xff);
        let command = Command::deallocate(1, count, SglDescriptor::in_capsule(4096));
        let reply = io.call(&mut world, command, &page);
        assert!(reply.status().is_success());
        assert_eq!(disk.take_log(), expected);
    }
}

#[test]
fn deallocate_checks_every_range_before_any_has_an_effect() {
    let (mut world, disk, _, mut io) = setup(BlockSize::B4096);
    for bad in [
        DsmRange::new(4095, 2),
        DsmRange::new(u64::MAX, 2),
        DsmRange::new(4097, 0),
    ] {
        let data = ranges(&[DsmRange::new(0, 8), bad]);
        let command = Command::deallocate(1, 2, SglDescriptor::in_capsule(32));
        assert_eq!(io.call(&mut world, command, &data).status().code(), 0x080);
    }
    assert!(disk.take_log().is_empty());
    // Without the attribute it is a hint.
    let mut hint = Command::deallocate(1, 1, SglDescriptor::in_capsule(16));
    hint.cdw11.set(0b11);
    let reply = io.call(&mut world, hint, &ranges(&[DsmRange::new(0, 8)]));
    assert!(reply.status().is_success() && disk.take_log().is_empty());
    let short = Command::deallocate(1, 2, SglDescriptor::in_capsule(16));
    assert_eq!(io.call(&mut world, short, &[0; 16]).status().code(), 0x00f);
}

#[test]
fn one_command_in_many_fails_and_the_others_do_not() {
    let (mut world, disk, _, mut io) = setup(BlockSize::B4096);
    disk.hold();
    let good: Vec<u16> = (0..10)
        .map(|i| io.send(&mut world, read(i, 4096, 4096), &[]))
        .collect();
    let bad = io.send(&mut world, read(5000, 4096, 4096), &[]);
    io.settle(&mut world);
    assert_eq!(io.replies.len(), 1);
    assert_eq!(io.replies[&bad].status().code(), 0x080);
    disk.release();
    io.settle(&mut world);
    assert!(good.iter().all(|cid| io.replies[cid].status().is_success()));
}
