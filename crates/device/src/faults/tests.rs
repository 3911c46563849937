use std::time::Duration;

use ashlar_block::{
    BlockRange, BlockSize, Checked, Completion, Durability, ErrorKind, Lba, Moment, Request,
};

use super::*;
use crate::Memory;
use crate::testing::Bench;

fn faulty(seed: u64) -> (FaultControl, Bench) {
    let control = FaultControl::new(seed);
    let memory = Memory::new(1 << 20, BlockSize::B512).expect("memory");
    let device = Faulty::new(memory, control.clone());
    (control, Bench::open(&*device))
}

const ALL: BlockRange = BlockRange::new(0, 8);

#[test]
fn errors_strike_where_and_when_told() {
    let (control, mut bench) = faulty(1);
    let media = Action::Error(ErrorKind::Media);
    let rule = control.add(Rule::always(Affects::Reads, media).within(BlockRange::new(4, 1)));
    assert!(bench.read(BlockRange::new(0, 4)).is_ok());
    assert_eq!(
        bench
            .read(BlockRange::new(3, 3))
            .expect_err("in range")
            .kind(),
        ErrorKind::Media
    );
    bench
        .write(ALL, 1, Durability::Cached)
        .expect("writes are not affected");
    control.remove(rule);
    assert!(bench.read(ALL).is_ok());
    control.add(Rule::always(Affects::Writes, media).when(Trigger::Nth(2)));
    let results: Vec<bool> = (0..4)
        .map(|_| bench.write(ALL, 2, Durability::Cached).is_ok())
        .collect();
    assert_eq!(results, [true, false, true, true]);
    control.add(Rule::always(Affects::Flushes, media));
    assert!(bench.flush().is_err());
    control.clear();
    assert!(bench.flush().is_ok());
    assert_eq!(control.struck(), 3);
}

#[test]
fn chance_follows_from_the_seed() {
    let run = |seed| {
        let (control, mut bench) = faulty(seed);
        let rule = Rule::always(Affects::Reads, Action::Error(ErrorKind::Media));
        control.add(rule.when(Trigger::Chance(0.3)));
        (0..200)
            .map(|_| bench.read(ALL).is_ok())
            .collect::<Vec<bool>>()
    };
    let (a, b) = (run(5), run(6));
    assert_eq!(a, run(5));
    assert_ne!(a, b);
    let failures = a.iter().filter(|ok| !**ok).count();
    assert!((35..85).contains(&failures), "{failures} of 200 at 0.3");
}

#[test]
fn silent_faults_corrupt_exactly_what_they_say() {
    let (control, mut bench) = faulty(2);
    let strike = |bench: &mut Bench, action| {
        control.clear();
        bench
            .write(BlockRange::new(0, 64), 1, Durability::Cached)
            .expect("before");
        let affects = if action == Action::FlipBit {
            Affects::Reads
        } else {
            Affects::Writes
        };
        control.add(Rule::always(affects, action).when(Trigger::Nth(1)));
        bench.write(ALL, 2, Durability::Durable)
    };
    let fills = |bench: &mut Bench| -> Vec<u8> {
        let data = bench.read(BlockRange::new(0, 64)).expect("read");
        data.chunks(512).map(|block| block[0]).collect()
    };
    strike(&mut bench, Action::Drop).expect("a lie");
    assert_eq!(fills(&mut bench), [1; 64]);
    strike(
        &mut bench,
        Action::Torn {
            blocks: 3,
            silent: true,
        },
    )
    .expect("a lie");
    assert_eq!(fills(&mut bench)[..8], [2, 2, 2, 1, 1, 1, 1, 1]);
    let error = strike(
        &mut bench,
        Action::Torn {
            blocks: 3,
            silent: false,
        },
    )
    .expect_err("told");
    assert_eq!(error.kind(), ErrorKind::Media);
    assert!(
        strike(
            &mut bench,
            Action::Torn {
                blocks: 0,
                silent: false
            }
        )
        .is_err()
    );
    assert_eq!(fills(&mut bench), [1; 64]);
    strike(&mut bench, Action::Misdirect(Lba(20))).expect("a lie");
    let landed: Vec<usize> = fills(&mut bench)
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == 2)
        .map(|(i, _)| i)
        .collect();
    assert_eq!(landed, (20..28).collect::<Vec<_>>());
    strike(&mut bench, Action::Misdirect(Lba(u64::MAX))).expect("stays on the device");
    strike(&mut bench, Action::FlipBit).expect("written");
    let data = bench.read(ALL).expect("a lie");
    let wrong: u32 = data.iter().map(|b| (b ^ 2).count_ones()).sum();
    assert_eq!(wrong, 1);
    assert!(bench.read(ALL).expect("true again").iter().all(|&b| b == 2));
}

#[test]
fn delays_and_stalls_follow_the_clock_given() {
    let control = FaultControl::new(3);
    let memory = Memory::new(1 << 20, BlockSize::B512).expect("memory");
    let bench = Bench::open(&*memory);
    let child = memory.open(&bench.handle()).expect("opens");
    let mut device = Checked::new(FaultyDevice::new(child, control.clone()));
    let at = |micros: u64| Moment::from_nanos(micros * 1000);
    let mut done: Vec<Completion> = Vec::new();
    let write =
        |bench: &Bench, tag| Request::write(tag, ALL, bench.buffer(4096), Durability::Cached);

    let delay = Action::Delay(Duration::from_micros(500));
    let rule = control.add(Rule::always(Affects::Writes, delay));
    device.submit(write(&bench, 1));
    device.poll(at(100), &mut done);
    assert!(done.is_empty());
    assert_eq!(device.next_deadline(), Some(at(600)));
    device.poll(at(599), &mut done);
    assert!(done.is_empty());
    device.poll(at(600), &mut done);
    assert_eq!(done.remove(0).tag, 1);
    control.remove(rule);

    control.add(Rule::always(Affects::Writes, Action::Stall));
    device.submit(write(&bench, 2));
    device.submit(Request::flush(3));
    device.poll(at(1_000_000), &mut done);
    assert_eq!(done.remove(0).tag, 3);
    assert_eq!(control.stalled(), 1);
    assert!(device.next_deadline().is_some_and(|d| d > at(1_000_000)));
    control.release();
    device.submit(write(&bench, 4));
    device.poll(at(2_000_000), &mut done);
    assert_eq!(done.remove(0).tag, 2);
    assert_eq!(
        control.stalled(),
        1,
        "the later one waits for its own release"
    );
    control.clear();
    device.poll(at(2_000_001), &mut done);
    assert_eq!(done.remove(0).tag, 4);
    assert!(done.is_empty() && device.next_deadline().is_none());
}

#[test]
fn a_device_that_hangs_answers_nothing_from_then_on() {
    let control = FaultControl::new(3);
    let memory = Memory::new(1 << 20, BlockSize::B512).expect("memory");
    let bench = Bench::open(&*memory);
    let child = memory.open(&bench.handle()).expect("opens");
    let mut device = Checked::new(FaultyDevice::new(child, control.clone()));
    control.add(Rule::always(Affects::All, Action::Hang).when(Trigger::From(3)));
    for tag in 1..=5 {
        device.submit(Request::flush(tag));
    }
    control.release();
    let mut done = Vec::new();
    device.poll(Moment::from_nanos(1 << 40), &mut done);
    let tags: Vec<u64> = done.iter().map(|done: &Completion| done.tag).collect();
    assert_eq!(tags, [1, 2]);
    assert_eq!(device.next_deadline(), None);
}

#[test]
fn a_device_obeys_its_switch_while_that_is_there() {
    let room = tempfile::tempdir().expect("a folder");
    let switch = room.path().join("switch");
    let control = FaultControl::new(3);
    control.obey(&switch);
    let memory = Memory::new(1 << 20, BlockSize::B512).expect("memory");
    let bench = Bench::open(&*memory);
    let child = memory.open(&bench.handle()).expect("opens");
    let mut device = Checked::new(FaultyDevice::new(child, control.clone()));
    let mut tag = 0;
    let mut ask = |device: &mut Checked<_>, word: Option<&str>| {
        match word {
            Some(word) => std::fs::write(&switch, word).expect("written"),
            None => std::fs::remove_file(&switch).unwrap_or_default(),
        }
        tag += 1;
        BlockDevice::submit(device, Request::flush(tag));
        let mut done = Vec::new();
        BlockDevice::poll(device, Moment::from_nanos(tag * 10_000_000), &mut done);
        done.iter()
            .map(|one| one.result.is_ok())
            .collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut device, None), [true]);
    assert_eq!(ask(&mut device, Some("dead")), [false]);
    assert_eq!(ask(&mut device, Some("hung")), [false; 0]);
    assert_eq!(ask(&mut device, Some("hung")), [false; 0]);
    assert_eq!(ask(&mut device, None), [true; 3]);
}
