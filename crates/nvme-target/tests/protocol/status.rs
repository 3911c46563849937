//! Bad input and broken devices, by status.

use ashlar_block::{BlockSize, ErrorKind};
use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::{Command, Status, opcode};

use crate::disk::Disk;
use crate::host::{Host, read, write_in, write_out};
use crate::world::{Plan, World};

fn setup() -> (World, Disk, Host, Host) {
    let plan = Plan {
        disks: vec![Disk::plain(BlockSize::B512, 4096)],
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let (admin, io) = Host::pair(&mut world);
    (world, plan.disks[0].clone(), admin, io)
}

fn refuse(world: &mut World, io: &mut Host, command: Command, data: &[u8], code: u16) {
    let reply = io.call(world, command, data);
    assert_eq!(reply.status().code(), code, "{command:?}");
    assert!(reply.status().dnr());
    assert!(reply.data.is_empty() && io.r2ts.is_empty() && io.terminated.is_none());
}

#[test]
fn ranges_outside_the_namespace_are_refused() {
    let (mut world, disk, _, mut io) = setup();
    let data = [0; 1024];
    for slba in [4095, 4096, 1 << 32, u64::MAX - 1, u64::MAX] {
        refuse(&mut world, &mut io, read(slba, 1024, 512), &[], 0x080);
        refuse(
            &mut world,
            &mut io,
            write_in(slba, &data, 512),
            &data,
            0x080,
        );
        refuse(&mut world, &mut io, write_out(slba, 1024, 512), &[], 0x080);
        let compare = Command {
            opcode: opcode::io::COMPARE,
            ..write_in(slba, &data, 512)
        };
        refuse(&mut world, &mut io, compare, &data, 0x080);
        refuse(
            &mut world,
            &mut io,
            Command::write_zeroes(1, slba, 2, true),
            &[],
            0x080,
        );
        refuse(&mut world, &mut io, Command::verify(1, slba, 2), &[], 0x080);
    }
    assert!(disk.take_log().is_empty());
    let last = io.call(&mut world, read(4094, 1024, 512), &[]);
    assert!(last.status().is_success());
}

#[test]
fn transfers_beyond_the_limit_and_absent_namespaces_are_refused() {
    let (mut world, _, _, mut io) = setup();
    refuse(
        &mut world,
        &mut io,
        read(0, (1 << 20) + 512, 512),
        &[],
        0x002,
    );
    refuse(
        &mut world,
        &mut io,
        write_out(0, (1 << 20) + 512, 512),
        &[],
        0x002,
    );
    refuse(&mut world, &mut io, Command::verify(1, 0, 2049), &[], 0x002);
    for nsid in [0, 2, u32::MAX] {
        let mut absent = read(0, 512, 512);
        absent.nsid.set(nsid);
        refuse(&mut world, &mut io, absent, &[], 0x00b);
        let mut absent = write_in(0, &[0; 512], 512);
        absent.nsid.set(nsid);
        refuse(&mut world, &mut io, absent, &[0; 512], 0x00b);
    }
}

#[test]
fn data_pointers_that_do_not_fit_are_refused() {
    let (mut world, _, _, mut io) = setup();
    let with = |sgl| Command::write(1, 0, 2, sgl);
    let inside = SglDescriptor::in_capsule(1024);
    let shifted = |address: u64| SglDescriptor {
        address: address.into(),
        ..inside
    };
    let keyed = SglDescriptor {
        identifier: 0x4f,
        ..inside
    };
    let list = SglDescriptor {
        identifier: 0x30,
        ..inside
    };
    let data = [0; 1024];
    refuse(
        &mut world,
        &mut io,
        with(SglDescriptor::in_capsule(512)),
        &data,
        0x00f,
    );
    refuse(&mut world, &mut io, with(inside), &data[..512], 0x00f);
    refuse(&mut world, &mut io, with(inside), &[], 0x00f);
    refuse(
        &mut world,
        &mut io,
        with(SglDescriptor::transport(512)),
        &[],
        0x00f,
    );
    refuse(
        &mut world,
        &mut io,
        with(SglDescriptor::transport(1024)),
        &data,
        0x00f,
    );
    refuse(&mut world, &mut io, with(shifted(1028)), &data, 0x016);
    refuse(&mut world, &mut io, with(shifted(4)), &data, 0x00f);
    refuse(&mut world, &mut io, with(shifted(u64::MAX)), &data, 0x016);
    refuse(&mut world, &mut io, with(keyed), &[], 0x011);
    refuse(&mut world, &mut io, with(list), &data, 0x011);
    refuse(
        &mut world,
        &mut io,
        Command::read(1, 0, 2, inside),
        &[],
        0x011,
    );
    refuse(
        &mut world,
        &mut io,
        Command::read(1, 0, 2, SglDescriptor::transport(2048)),
        &[],
        0x00f,
    );
    refuse(&mut world, &mut io, Command::flush(1), &data, 0x002);
    let protected = |mut command: Command| {
        command.cdw12 |= 1 << 29;
        command
    };
    refuse(
        &mut world,
        &mut io,
        protected(read(0, 512, 512)),
        &[],
        0x002,
    );
    let fused = |mut command: Command| {
        command.flags |= 1;
        command
    };
    refuse(&mut world, &mut io, fused(read(0, 512, 512)), &[], 0x002);
}

#[test]
fn unknown_commands_are_refused() {
    let (mut world, _, mut admin, mut io) = setup();
    for code in [
        opcode::io::WRITE_UNCORRECTABLE,
        opcode::io::COPY,
        opcode::io::RESERVATION_ACQUIRE,
        0xff,
    ] {
        refuse(&mut world, &mut io, Command::new(code, 1), &[], 0x001);
    }
    for code in [
        opcode::admin::CREATE_IO_SQ,
        opcode::admin::FORMAT_NVM,
        opcode::admin::SANITIZE,
    ] {
        refuse(&mut world, &mut admin, Command::new(code, 1), &[], 0x001);
    }
    refuse(&mut world, &mut io, Command::disconnect(), &[], 0x001);
    refuse(
        &mut world,
        &mut io,
        Command::property_get(0, true),
        &[],
        0x002,
    );
}

#[test]
fn a_devices_error_becomes_the_status_that_fits() {
    let (mut world, disk, _, mut io) = setup();
    let cases = [
        (ErrorKind::Media, 0x281, 0x280),
        (ErrorKind::Corrupt, 0x281, 0x281),
        (ErrorKind::Latched, 0x281, 0x280),
        (ErrorKind::NoSpace, 0x081, 0x081),
        (ErrorKind::ReadOnly, 0x020, 0x020),
        (ErrorKind::Unsupported, 0x001, 0x001),
        (ErrorKind::Timeout, 0x300, 0x300),
        (ErrorKind::Disconnected, 0x300, 0x300),
        (ErrorKind::Exhausted, 0x021, 0x021),
        (ErrorKind::Internal, 0x006, 0x006),
    ];
    for (kind, on_read, on_write) in cases {
        disk.0.borrow_mut().fail_reads = Some(kind);
        disk.0.borrow_mut().fail_writes = Some(kind);
        let reply = io.call(&mut world, read(0, 512, 512), &[]);
        assert_eq!(
            (reply.status().code(), reply.data.len()),
            (on_read, 0),
            "{kind:?}"
        );
        let reply = io.call(&mut world, write_in(0, &[0; 512], 512), &[0; 512]);
        assert_eq!(reply.status().code(), on_write, "{kind:?}");
        // Linux gives a path up when a path error says do not retry.
        assert!(!(reply.status().is_path_related() && reply.status().dnr()));
        let flush = io.call(&mut world, Command::flush(1), &[]);
        assert_eq!(flush.status().code(), on_write, "{kind:?}");
    }
    assert_eq!(world.outstanding(), 0);
    disk.0.borrow_mut().fail_reads = None;
    assert_eq!(
        io.call(&mut world, read(0, 512, 512), &[]).status(),
        Status::SUCCESS
    );
}
