use std::sync::mpsc::channel;
use std::time::Duration;

use ashlar_block::BlockSize;
use ashlar_device::Memory;
use ashlar_reactor::{Options, Reactor};
use ashlar_store::format::{DriveClass, Reserve, Salt};
use ashlar_store::{DrivePlan, Drives, ImportOptions, PoolPlan, Sizes, format, import};

use super::*;

const MEMORY: usize = 64 << 20;
const BYTES: u64 = 16 << 20;

fn member(number: u128) -> Uuid {
    Uuid::from_u128(100 + number)
}

fn memory(bytes: u64) -> Arc<dyn Opener> {
    Memory::new(bytes, BlockSize::B4096).expect("memory")
}

/// A pool of two drives, on its core.
fn settled(reactor: &Handle, link: &PoolLink) -> Rc<RefCell<EngineDriver>> {
    let openers = [memory(BYTES), memory(BYTES)];
    let drives = || {
        let opened = openers.iter().map(|drive| drive.open(reactor));
        let opened: Result<Vec<_>, IoError> = opened.collect();
        let clock = reactor.clone();
        Drives::new(opened.expect("open"), Box::new(move || clock.now()))
    };
    let drive = |number| DrivePlan {
        uuid: member(number),
        class: DriveClass::Nvme,
    };
    let plan = PoolPlan {
        name: "tank".into(),
        pool: Uuid::from_u128(1),
        salt: Salt(7),
        sizes: Sizes {
            extent_shift: 16,
            chunk_extents: 8,
            ring_chunks: 4,
            map_chunks: 4,
            segment_slots: 16,
            batch_bytes: 128 << 10,
        },
        log_copies: 2,
        reserve: Reserve::None,
        drives: vec![drive(0), drive(1)],
    };
    format(&mut drives(), &plan).expect("format");
    let options = ImportOptions {
        buffer_bytes: MEMORY,
        ..ImportOptions::default()
    };
    let engine = import(drives(), &options).expect("import").engine;
    let openers = openers.map(Some);
    EngineDriver::settle(engine, &openers, reactor, link).expect("settle")
}

/// What an order to add a drive is answered.
fn add(
    host: &Rc<RefCell<EngineDriver>>,
    (drive, opener): (Uuid, Arc<dyn Opener>),
) -> Result<Managed, IoError> {
    let (reply, answer) = channel();
    let member = host.borrow().engine.next_member().expect("a number");
    host.borrow_mut().mail.post(Mail::AddDrive {
        uuid: drive,
        member,
        class: DriveClass::Nvme,
        opener,
        reply,
    });
    for _ in 0..10_000 {
        let now = host.borrow().reactor.now();
        host.borrow_mut().turn(now);
        if let Ok(answer) = answer.try_recv() {
            return answer;
        }
    }
    panic!("no answer")
}

/// What is meant for a member must not go to a drive that was refused before.
#[test]
fn a_drive_that_is_refused_takes_no_members_place() {
    let reactor = Reactor::new(&Options {
        entries: 16,
        pool_bytes: 1 << 20,
        spin: Duration::ZERO,
        files: 4,
    });
    let reactor = reactor.expect("reactor");
    let link = EngineDriver::link(reactor.handle());
    let host = settled(reactor.handle(), &link);
    let error = add(&host, (member(1), memory(4 * BYTES))).expect_err("a member twice");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    add(&host, (member(2), memory(2 * BYTES))).expect("add");
    let host = host.borrow();
    let bytes = |drive: &Option<Box<dyn BlockDevice>>| {
        let drive = drive.as_ref();
        drive.map(|drive| drive.geometry().bytes())
    };
    let bytes: Vec<Option<u64>> = host.drives.iter().map(bytes).collect();
    assert_eq!(bytes, [BYTES, BYTES, 2 * BYTES].map(Some));
    assert_eq!(host.engine.members()[2].drive, member(2));
    assert_eq!((host.flying.len(), host.traffic.errors.len()), (3, 3));
    assert_eq!(host.engine.failure(), None);
    drop(host);
    EngineDriver::leave(&link);
}
