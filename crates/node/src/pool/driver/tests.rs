use std::sync::mpsc::channel;
use std::time::Duration;

use ashlar_block::BlockSize;
use ashlar_device::Memory;
use ashlar_reactor::{Options, Reactor, Spin};
use ashlar_store::format::Label;
use ashlar_store::format::{DriveClass, Reserve, Salt};
use ashlar_store::{DrivePlan, Drives, ImportOptions, PoolPlan, Sizes, enlist, format, import};
use uuid::Uuid;

use super::*;
use crate::pool::{OpenDrive, readmit};

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
    driver: &Rc<RefCell<EngineDriver>>,
    uuid: Uuid,
    opener: Arc<dyn Opener>,
) -> Result<Managed, IoError> {
    let (reply, answer) = channel();
    let member = driver.borrow().engine.next_member().expect("a number");
    let drive = NewDrive {
        uuid,
        member,
        class: DriveClass::Nvme,
        opener,
    };
    let order = Mail::AddDrive { drive, reply };
    driver.borrow_mut().mail.post(order);
    for _ in 0..10_000 {
        let now = driver.borrow().reactor.now();
        driver.borrow_mut().turn(now);
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
        spin: Spin::Off,
        files: 4,
    });
    let reactor = reactor.expect("reactor");
    let link = EngineDriver::link(reactor.handle());
    let driver = settled(reactor.handle(), &link);
    let error = add(&driver, member(1), memory(4 * BYTES)).expect_err("a member twice");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    add(&driver, member(2), memory(2 * BYTES)).expect("add");
    let mut driver = driver.borrow_mut();
    let drives = &mut driver.drives;
    let bytes = |member| Some(drives.device(member)?.geometry().bytes());
    let bytes: Vec<Option<u64>> = (0..3).map(bytes).collect();
    assert_eq!(bytes, [BYTES, BYTES, 2 * BYTES].map(Some));
    assert_eq!(driver.engine.members()[2].drive, member(2));
    assert_eq!(driver.drives.len(), 3);
    assert_eq!(driver.engine.failure(), None);
    drop(driver);
    EngineDriver::leave(&link);
}

fn drives_of(opener: &Arc<dyn Opener>, reactor: &Handle) -> Drives {
    let clock = reactor.clone();
    let opened = opener.open(reactor).expect("open");
    Drives::new(vec![opened], Box::new(move || clock.now()))
}

fn turn(driver: &Rc<RefCell<EngineDriver>>) {
    let now = driver.borrow().reactor.now();
    driver.borrow_mut().turn(now);
}

/// It was renamed for the pool's sake before the pool had said that it takes it.
#[test]
fn a_drive_that_is_not_readmitted_keeps_its_name() {
    let reactor = Reactor::new(&Options {
        entries: 16,
        pool_bytes: 1 << 20,
        spin: Spin::Off,
        files: 4,
    });
    let reactor = reactor.expect("reactor");
    let handle = reactor.handle();
    let link = EngineDriver::link(handle);
    let driver = settled(handle, &link);
    let third = memory(BYTES);
    let label = Label {
        drive: member(2),
        index: 2,
        ..driver.borrow().engine.label().clone()
    };
    enlist(&mut drives_of(&third, handle), 0, &label).expect("enlist");
    add(&driver, member(2), third.clone()).expect("add");
    let (reply, answer) = channel();
    let what = Manage::RemoveDrive { member: 2 };
    link.mail.post(Mail::Manage { what, reply });
    let left = |driver: &EngineDriver| !driver.engine.uses(2) && !driver.drives.is_open(2);
    for _ in 0..100_000 {
        turn(&driver);
        if left(&driver.borrow()) {
            break;
        }
    }
    answer.try_recv().expect("an answer").expect("removed");
    assert!(left(&driver.borrow()), "it does not leave");
    let back = Comeback::read(&mut drives_of(&third, handle), 0).expect("a label");
    let renamed = back.rename(&mut drives_of(&third, handle), 0, "was");
    renamed.expect("renamed");
    let drive = OpenDrive {
        spec: "third".to_owned(),
        class: DriveClass::Nvme,
        opener: third.clone(),
        reply_timeout: Duration::from_secs(10),
    };
    let asked = link.clone();
    let asks = std::thread::spawn(move || readmit(&asked, &[drive]));
    while !asks.is_finished() {
        turn(&driver);
        std::thread::sleep(Duration::from_millis(1));
    }
    let refused = asks.join().expect("no panic").expect_err("refused");
    assert!(refused.message.contains("removed"), "{}", refused.message);
    let after = Comeback::read(&mut drives_of(&third, handle), 0).expect("a label");
    assert_eq!(after.label.pool_name, "was");
    EngineDriver::leave(&link);
}
