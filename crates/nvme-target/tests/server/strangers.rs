//! A device of a subsystem, used without a connection, while a host has reserved it.

use std::sync::Arc;

use ashlar_block::{BlockDevice, BlockRange, Checked, Completion, Durability, ErrorKind, Request};
use ashlar_nvme_target::server::ReservationFile;
use ashlar_reactor::{Options, Reactor};

use crate::disk::{Disk, Door};
use crate::rig::{export, serve, stop};

const NQN: &str = "nqn.2026-01.io.ashlar:pool:reserved";

/// A table that one host is registered in, and holds of this type.
fn held(kind: u8) -> Vec<u8> {
    let (host, key) = ([7; 16], 0x11u64.to_le_bytes());
    let header = [&b"ASHRSV\x01\0"[..], &1u32.to_le_bytes(), &[kind, 1, 1, 0]].concat();
    [&header[..], &host, &host, &key].concat()
}

fn run(device: &mut dyn BlockDevice, reactor: &mut Reactor, request: Request) -> Completion {
    let mut done = Vec::new();
    device.submit(request);
    loop {
        let now = reactor.handle().now();
        device.poll(now, &mut done);
        if let Some(one) = done.pop() {
            return one;
        }
        reactor.turn(Some(now)).expect("turn");
    }
}

/// What a read and a write end with.
fn outcomes(kind: u8) -> [Option<ErrorKind>; 2] {
    let folder = std::env::temp_dir().join(format!("ashlar-str-{}-{kind}", std::process::id()));
    std::fs::write(&folder, held(kind)).expect("a file");
    let server = serve();
    let door = Arc::new(Door(Disk::new(100)));
    let mut reserved = export(NQN, door.clone());
    reserved.reservations = vec![Some(ReservationFile::open(&folder).expect("there").into())];
    server.add(reserved).expect("added");
    let opener = server.control().for_stranger(NQN, door);
    let mut reactor = Reactor::new(&Options::default()).expect("io_uring");
    let handle = reactor.handle().clone();
    let device = opener.expect("there").open(&handle).expect("open");
    let mut device = Checked::new(device);
    let buffer = || handle.buffers().get(4096).expect("a buffer");
    let range = BlockRange::new(3, 1);
    let read = Request::read(1, range, buffer());
    let write = Request::write(2, range, buffer(), Durability::Durable);
    let ends = [read, write].map(|request| {
        let end = run(&mut device, &mut reactor, request);
        end.result.err().map(|error| error.kind())
    });
    drop(device);
    stop(server);
    std::fs::remove_file(&folder).expect("clean up");
    ends
}

#[test]
fn what_a_host_has_reserved_holds_without_a_connection_too() {
    const DENIED: Option<ErrorKind> = Some(ErrorKind::Denied);
    // Registered, and nothing held; write exclusive; exclusive access.
    assert_eq!(outcomes(0), [None, None]);
    assert_eq!(outcomes(1), [None, DENIED]);
    assert_eq!(outcomes(2), [DENIED, DENIED]);
}
