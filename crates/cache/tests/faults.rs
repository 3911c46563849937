//! A cache over two devices of which one fails for a while: what was acknowledged is there afterwards, all that was asked
//! is answered, and what does not need the device that fails goes on.
#![allow(clippy::unwrap_used)]

mod world;

use std::time::Duration;

use ashlar_block::{Completion, Durability, IoError, Operation, Request};
use ashlar_cache::{Layout, Mark, Mode, Side};

use world::{Flushes, GRANULES, Shape, World};

/// Hosts write the same again and again while no page of bits can be written any more.
fn pages_fail(seed: u64, mode: Mode) {
    let mut world = World::new(seed, Shape::of(mode), None);
    for _ in 0..world.rng.usize(50..400) {
        if world.flying.len() < 24 {
            world.ask();
        }
        world.turn(3);
    }
    world.quiet();
    world.tolerates = true;
    // Blocks are on their way out; a write to each unit waits behind one of them, or behind another.
    for _ in 0..100 {
        let place = world.rng.u64(..GRANULES);
        world.submit(Operation::Read, place, 1);
        world.turn(4);
    }
    for unit in 0..GRANULES / 16 {
        let place = 16 * unit + world.rng.u64(..16);
        world.submit(Operation::Write(Durability::Durable), place, 1);
    }
    world.fast.bad = Layout { granules: GRANULES }.page_granules();
    for turn in 0.. {
        if world.cache().status().failure.is_some() && world.flying.is_empty() {
            break;
        }
        assert!(turn < 2000, "{:?} do not end", world.flying);
        if turn < 60 {
            let place = world.place();
            for _ in 0..world.rng.u64(..4) {
                world.submit(Operation::Write(Durability::Durable), place, 1);
            }
        } else if turn % 100 == 0 && world.cache().status().failure.is_none() {
            world.submit(Operation::Write(Durability::Durable), turn, 1);
        }
        let answers = world.rng.usize(..4);
        world.turn(answers);
    }
    world.fast.bad = 0..0;
    world.reopen();
    world.quiet();
    world.read_all();
    world.flush();
    world.check_backing();
}

#[test]
fn what_is_acknowledged_while_pages_cannot_be_written_is_there_after_a_reopen() {
    for seed in 0..20 {
        pages_fail(seed, Mode::WriteBack);
        pages_fail(seed, Mode::WriteThrough);
    }
}

/// Orders a flush of a cache that cannot write all back; how that was answered. Hosts read and write meanwhile.
fn flush_that_fails(world: &mut World) -> IoError {
    world.cache().flush(9);
    for turn in 0..2000_u64 {
        if turn % 20 == 0 {
            world.submit(Operation::Write(Durability::Durable), 2000 + turn, 1);
            world.submit(Operation::Read, 300, 1);
        }
        world.turn(8);
        let answers = world.cache().take_answers();
        if let Some((_, result)) = answers.into_iter().find(|(id, _)| *id == 9) {
            return result.unwrap_err();
        }
    }
    panic!("a flush that does not end: {:?}", world.cache().status());
}

#[test]
fn a_flush_that_cannot_write_all_back_is_told_so_and_hosts_go_on() {
    for whole in [false, true] {
        let mut world = World::new(5, Shape::of(Mode::WriteBack), None);
        world.submit(Operation::Write(Durability::Durable), 300, 2);
        world.quiet();
        match whole {
            true => world.backing.flushes = Flushes::Fail,
            false => world.backing.bad = 301..302,
        }
        let error = flush_that_fails(&mut world);
        assert!(error.to_string().contains("as told"), "{error}");
        world.quiet();
        world.backing.flushes = Flushes::Served;
        world.backing.bad = 0..0;
        world.now = world.now + Duration::from_secs(2);
        world.flush();
        world.check_backing();
    }
}

#[test]
fn reads_pass_writes_that_wait_for_a_flush() {
    let mut world = World::new(5, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Durable), 300, 2);
    world.quiet();
    // The flush does not come to its end.
    world.backing.hangs = true;
    world.cache().flush(9);
    world.turns(20);
    world.submit(Operation::Write(Durability::Durable), 2000, 1);
    world.submit(Operation::Read, 300, 2);
    world.turns(20);
    assert_eq!(world.flying.len(), 1, "{:?}", world.flying);
    world.backing.hangs = false;
    world.quiet();
    world.read_all();
}

#[test]
fn a_mark_that_cannot_be_put_fails_the_writes_that_wait_for_it_and_no_more() {
    let mut world = World::new(7, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Read, 300, 2);
    world.quiet();
    world.turns(20);
    world.backing.fails = true;
    world.tolerates = true;
    world.submit(Operation::Write(Durability::Durable), 400, 1);
    world.quiet();
    assert_eq!(world.failed.len(), 1);
    world.submit(Operation::Read, 300, 2);
    world.quiet();
    assert_eq!(world.failed.len(), 1, "a cached read");
    world.backing.fails = false;
    world.tolerates = false;
    world.submit(Operation::Write(Durability::Durable), 400, 1);
    world.quiet();
    world.flush();
    world.check_backing();
}

#[test]
fn a_flush_of_a_cache_without_a_mark_may_fail_and_be_ordered_again() {
    let mut world = World::new(7, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Read, 300, 2);
    world.quiet();
    world.turns(20);
    world.backing.flushes = Flushes::Fail;
    let failed = |world: &mut World| {
        world.cache().flush(9);
        world.turns(50);
        let answers = world.cache().take_answers();
        answers
            .iter()
            .any(|(id, result)| *id == 9 && result.is_err())
    };
    assert!(failed(&mut world));
    assert_eq!(world.cache().status().failure, None);
    world.submit(Operation::Read, 300, 2);
    world.quiet();
    world.backing.flushes = Flushes::Served;
    world.flush();
    world.check_backing();
}

/// The backing device is asked for flushes and answers none. The first loses what was to last, and those that it has beside
/// that find nothing to do; they are answered in this order, or the other way round.
fn loses_the_first(world: &mut World, is_last: bool) {
    hangs(world);
    let mut answers = vec![loses(world)];
    let is_flush = |request: &Request| request.op == Operation::Flush;
    while world.backing.pending.iter().any(is_flush) {
        answers.push(takes(world, Operation::Flush));
    }
    if is_last {
        answers.reverse();
    }
    for completion in answers {
        world.cache().completed(Side::Backing, completion);
    }
    world.backing.hangs = false;
    world.tolerates = true;
    world.quiet();
    world.tolerates = false;
}

#[test]
fn what_a_hosts_flush_has_lost_is_clean_by_no_other() {
    for is_last in [false, true] {
        let mut world = World::with_room(700, 23, Shape::of(Mode::WriteBack), None);
        world.submit(Operation::Write(Durability::Durable), 300, 2);
        world.quiet();
        // The first flush of a host goes to the device.
        world.reopen();
        world.quiet();
        world.now = world.now + Duration::from_secs(3);
        for turn in 0.. {
            assert!(turn < 1000, "nothing goes back");
            if world.cache().status().written_back_bytes > 0 {
                break;
            }
            world.turn(1);
        }
        world.submit(Operation::Flush, 0, 0);
        loses_the_first(&mut world, is_last);
        assert_eq!(world.failed.len(), 1);
        world.turns(40);
        world.flush();
        world.check_backing();
    }
}

#[test]
fn another_device_is_not_marked_after_a_mark_that_was_half_put() {
    for other in [false, true] {
        let mut world = World::with_room(200, 11, Shape::of(Mode::WriteBack), None);
        world.submit(Operation::Write(Durability::Durable), 300, 2);
        for turn in 0.. {
            let header = world.cache().status().header;
            if header.is_some_and(|header| header.mark == Mark::Arming) {
                break;
            }
            assert!(turn < 1000, "no mark");
            world.turn(1);
        }
        // The header is durable; of the mark nothing is.
        world.backing.hangs = true;
        world.turns(5);
        world.backing.hangs = false;
        world.backing.pending.clear();
        if other {
            let data = std::rc::Rc::new(vec![7; 4096]);
            world.backing.lasting.insert(3, data);
        }
        world.crash();
        let before = world.backing.head();
        world.turns(100);
        let status = world.cache().status();
        assert_eq!(status.failure.is_some(), other, "{status:?}");
        assert_eq!(world.backing.head() == before, other);
    }
}

/// The cache has failed, says why, and leaves the device alone.
fn is_not_written(world: &mut World, why: &str) {
    let before = world.backing.head();
    world.tolerates = true;
    world.turns(100);
    let status = world.cache().status();
    assert!(status.failure.is_some_and(|found| found.contains(why)));
    assert!(world.backing.head() == before);
}

#[test]
fn a_device_that_something_else_has_written_is_not_marked() {
    let world = World::with_room(200, 11, Shape::of(Mode::WriteBack), None);
    let mut other = world.backing.head();
    other[5000] ^= 1;
    // Another cache over it, without a text to know its mark by; and then with one.
    for (head, why) in [
        (other, "has changed since it was left"),
        (
            ashlar_cache::mark::put(&vec![0; 128 << 10], uuid::Uuid::from_u128(5)),
            "has the mark of cache 00000000-0000-0000-0000-000000000005",
        ),
    ] {
        let mut world = World::with_room(200, 11, Shape::of(Mode::WriteBack), None);
        world.quiet();
        world.backing.set_head(&head);
        world.submit(Operation::Write(Durability::Durable), 300, 2);
        is_not_written(&mut world, why);
        assert_eq!(world.failed.len(), 1, "the write is not acknowledged");
    }
}

#[test]
fn a_mark_that_another_has_written_over_is_not_taken_away() {
    let mut world = marked(11);
    let mut head = world.backing.head();
    head[5000] ^= 1;
    world.backing.set_head(&head);
    world.cache().flush(9);
    is_not_written(&mut world, "has changed since it was left");
    let answers = world.cache().take_answers();
    assert!(
        answers
            .iter()
            .any(|(id, result)| *id == 9 && result.is_err())
    );
}

/// A head on its way back, of which some has come there when the power fails. Hosts have written it under the mark.
fn half_taken_away(seed: u64, spoil: impl FnOnce(&mut World)) -> World {
    let mut world = marked(seed);
    flush_until(&mut world, Mark::Restoring);
    // The mark is looked at, and then the head is on its way back.
    for turn in 0.. {
        world.turn(0);
        if world.backing.pending.iter().any(|one| one.op.modifies()) {
            break;
        }
        assert!(turn < 100, "the head does not go back");
        world.turn(1);
    }
    let head = world.backing.head();
    world.backing.cut(&mut world.rng);
    assert!(world.backing.head() != head, "some is there");
    spoil(&mut world);
    world
}

#[test]
fn another_device_is_not_written_after_a_mark_that_was_half_taken_away() {
    let spoils: [fn(&mut World); 3] = [
        // Of the granule that hosts have written, a sector is what neither was there nor is to come there.
        |world| {
            let mut data = world.backing.get(3).to_vec();
            data[700] ^= 1;
            world.backing.lasting.insert(3, std::rc::Rc::new(data));
        },
        |world| {
            let other = (0..32).map(|at| (at, std::rc::Rc::new(vec![7; 4096])));
            world.backing.lasting.extend(other);
        },
        |world| (0..32).for_each(|at| drop(world.backing.lasting.remove(&at))),
    ];
    for seed in 0..8 {
        for spoil in spoils {
            let mut world = half_taken_away(seed, spoil);
            world.crash();
            let before = world.backing.head();
            world.turns(100);
            let status = world.cache().status();
            let why = status.failure.unwrap();
            assert!(why.contains("has changed since it was left"), "{why}");
            assert!(world.backing.head() == before);
        }
        let mut world = half_taken_away(seed, |_| ());
        world.crash();
        world.quiet();
        world.turns(100);
        world.check_backing();
    }
}

/// One bad sector keeps what it is in from going back, and no neighbour.
#[test]
fn a_granule_that_does_not_go_back_holds_up_no_other() {
    let mut world = World::with_room(200, 11, Shape::of(Mode::WriteBack), None);
    world.backing.bad = 365..366;
    for first in (300..492).step_by(16) {
        world.submit(Operation::Write(Durability::Durable), first, 16);
    }
    world.quiet();
    flush_that_fails(&mut world);
    for _ in 0..100 {
        world.turn(8);
        world.now = world.now + Duration::from_millis(100);
    }
    let newer = world.cache().dirty_ranges();
    let newer: Vec<_> = newer
        .into_iter()
        .filter(|&(at, _)| at >= 300 * 4096)
        .collect();
    assert_eq!(newer, [(365 * 4096, 4096)]);
    world.backing.bad = 0..0;
    world.now = world.now + Duration::from_secs(2);
    world.flush();
    world.check_backing();
}

/// A cache with a mark, and nothing newer but what it replaces.
fn marked(seed: u64) -> World {
    let mut world = World::with_room(200, seed, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Durable), 3, 2);
    world.submit(Operation::Write(Durability::Durable), 300, 2);
    world.quiet();
    world
}

/// Orders a flush and lets all act until the mark is in this state.
fn flush_until(world: &mut World, mark: Mark) {
    world.cache().flush(9);
    for _ in 0..2000 {
        let header = world.cache().status().header;
        if header.is_some_and(|header| header.mark == mark) {
            return;
        }
        world.turn(1);
    }
    panic!("{:?}", world.cache().status());
}

/// Cached reads end, writes are refused, and the cache as a whole goes on.
fn only_writes_fail(world: &mut World) {
    world.tolerates = true;
    world.failed.clear();
    world.submit(Operation::Write(Durability::Durable), 400, 1);
    world.quiet();
    assert_eq!(world.failed.len(), 1, "a write without a mark");
    for place in [3, 300] {
        world.submit(Operation::Read, place, 2);
    }
    world.quiet();
    assert_eq!(world.failed.len(), 1, "cached reads");
    let status = world.cache().status();
    assert_eq!(status.failure, None);
    assert!(status.backing_errors > 0 && status.trouble.is_some());
    world.tolerates = false;
}

/// What fails: writes of the head, or flushes.
fn break_head(world: &mut World, flushes: bool) {
    match flushes {
        true => world.backing.flushes = Flushes::Fail,
        false => world.backing.bad = 0..32,
    }
}

fn mend(world: &mut World) {
    world.backing.flushes = Flushes::Served;
    world.backing.bad = 0..0;
}

/// It is tried again by itself.
fn becomes(world: &mut World, mark: Mark) {
    world.now = world.cache().next_deadline().unwrap();
    world.turns(40);
    let status = world.cache().status();
    assert_eq!(status.header.unwrap().mark, mark);
    assert_eq!(status.trouble, None);
}

#[test]
fn a_head_that_cannot_be_put_back_fails_the_flush_and_is_tried_again() {
    for (flushes, crashes) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = marked(13);
        flush_until(&mut world, Mark::Restoring);
        break_head(&mut world, flushes);
        world.turns(100);
        let answers = world.cache().take_answers();
        let failed = |(id, result): &(u64, Result<(), IoError>)| *id == 9 && result.is_err();
        assert!(answers.iter().any(failed), "{answers:?}");
        only_writes_fail(&mut world);
        if crashes {
            world.crash();
            world.quiet();
            only_writes_fail(&mut world);
        }
        mend(&mut world);
        becomes(&mut world, Mark::Off);
        world.check_backing();
        world.submit(Operation::Write(Durability::Durable), 400, 1);
        world.quiet();
        world.flush();
        world.check_backing();
    }
}

#[test]
fn a_mark_that_is_half_put_fails_the_writes_that_wait_for_it_and_is_tried_again() {
    for (flushes, crashes) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::with_room(200, 17, Shape::of(Mode::WriteBack), None);
        for place in [3, 300] {
            world.submit(Operation::Read, place, 2);
            world.quiet();
        }
        break_head(&mut world, flushes);
        only_writes_fail(&mut world);
        if crashes {
            world.crash();
            world.quiet();
            only_writes_fail(&mut world);
        }
        mend(&mut world);
        becomes(&mut world, Mark::On);
        world.submit(Operation::Write(Durability::Durable), 400, 1);
        world.quiet();
        world.flush();
        world.check_backing();
    }
}

#[test]
fn cached_reads_pass_a_mark_that_the_device_does_not_answer() {
    let mut world = marked(19);
    flush_until(&mut world, Mark::Restoring);
    world.backing.hangs = true;
    world.turns(20);
    assert!(world.backing.pending.len() == 1, "the head on its way back");
    for place in [3, 300] {
        world.submit(Operation::Read, place, 2);
    }
    world.submit(Operation::Write(Durability::Durable), 400, 1);
    world.turns(20);
    assert_eq!(world.flying.len(), 1, "{:?}", world.flying);
    world.backing.hangs = false;
    world.quiet();
    world.flush();
    world.check_backing();
}

/// The device fails what is about its mark, now and then; hosts go on, and crashes come.
#[test]
fn a_device_that_fails_its_mark_now_and_then_loses_nothing() {
    for seed in 0..40 {
        let mut world = World::new(seed, Shape::of(Mode::WriteBack), None);
        world.tolerates = true;
        for _ in 0..12 {
            match world.rng.u8(..4) {
                0 => break_head(&mut world, true),
                1 => break_head(&mut world, false),
                _ => mend(&mut world),
            }
            for _ in 0..world.rng.usize(10..60) {
                if world.flying.len() < 24 {
                    world.ask();
                }
                let answers = world.rng.usize(..6);
                world.turn(answers);
            }
            match world.rng.u8(..6) {
                0 => world.crash(),
                1 | 2 => world.cache().flush(9),
                _ => world.now = world.now + Duration::from_secs(2),
            }
            assert_eq!(world.cache().status().failure, None, "seed {seed}");
        }
        mend(&mut world);
        world.now = world.now + Duration::from_secs(2);
        world.quiet();
        world.tolerates = false;
        world.read_all();
        world.flush();
        world.check_backing();
    }
}

/// Writes some again and again that go around, at least in part.
fn write_around(world: &mut World) {
    for place in 0..120 {
        world.submit(Operation::Write(Durability::Cached), 300 + 4 * place, 2);
    }
    world.quiet();
    assert!(world.cache().status().written_around > 0);
}

/// A host's flush; whether it succeeds.
fn hosts_flush(world: &mut World) -> bool {
    world.tolerates = true;
    world.failed.clear();
    world.submit(Operation::Flush, 0, 0);
    world.quiet();
    world.tolerates = false;
    world.failed.is_empty()
}

/// A flush that no host has asked for loses what hosts have written around the cache.
#[test]
fn a_hosts_flush_says_that_a_flush_before_has_lost_its_writes() {
    for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack] {
        let mut world = World::new(23, Shape::of(mode), None);
        write_around(&mut world);
        // Something comes in that is to be recorded after a flush.
        world.submit(Operation::Read, 2000, 4);
        world.quiet();
        world.backing.flushes = Flushes::Lose;
        let before = world.cache().status().backing_errors;
        for turn in 0.. {
            assert!(turn < 1000, "no flush");
            if world.cache().status().backing_errors > before {
                break;
            }
            world.now = world.now + Duration::from_millis(100);
            world.turn(8);
        }
        world.backing.flushes = Flushes::Served;
        assert!(world.cache().status().is_untold);
        // Who mends a device opens the cache again.
        world.reopen();
        world.quiet();
        assert!(!hosts_flush(&mut world), "{mode:?}");
        // It is told once, and the host writes all of it again.
        write_around(&mut world);
        assert!(hosts_flush(&mut world), "{mode:?}");
        world.crash();
        world.quiet();
        world.read_all();
        world.flush();
        world.check_backing();
    }
}

/// What came in is not what the device has when that has lost it: it is not cached, or the next start finds the one to
/// differ from the other.
#[test]
fn what_a_flush_has_lost_is_not_cached() {
    for fills_late in [false, true] {
        let mut world = World::with_room(700, 23, Shape::of(Mode::WriteThrough), None);
        world.quiet();
        for place in 0..20 {
            world.submit(Operation::Write(Durability::Cached), 300 + 20 * place, 2);
        }
        while fills_late && world.fast.pending.is_empty() {
            world.turn(1);
        }
        world.fast.hangs = fills_late;
        world.quiet();
        world.backing.flushes = Flushes::Lose;
        assert!(!hosts_flush(&mut world));
        world.backing.flushes = Flushes::Served;
        world.fast.hangs = false;
        for _ in 0..400 {
            world.turn(8);
        }
        world.now = world.now + Duration::from_secs(5);
        world.turns(50);
        world.reopen();
        world.quiet();
        assert!(world.cache().is_open());
    }
}

#[test]
fn a_flush_that_fails_beside_another_fails_that_too() {
    for is_last in [false, true] {
        let mut world = World::new(23, Shape::of(Mode::WriteAround), None);
        write_around(&mut world);
        world.submit(Operation::Flush, 0, 0);
        world.turn(0);
        world.submit(Operation::Flush, 0, 0);
        loses_the_first(&mut world, is_last);
        assert_eq!(world.failed.len(), 2);
        assert!(hosts_flush(&mut world));
    }
}

/// A write of the life before may be in the device's cache yet.
#[test]
fn the_first_flush_after_a_start_goes_to_the_device() {
    let mut world = World::new(23, Shape::of(Mode::WriteAround), None);
    write_around(&mut world);
    world.reopen();
    world.quiet();
    world.backing.flushes = Flushes::Fail;
    assert!(!hosts_flush(&mut world), "it was asked");
    world.backing.flushes = Flushes::Served;
    assert!(hosts_flush(&mut world));
}

/// The backing device answers nothing for some seconds.
fn hangs(world: &mut World) {
    world.backing.hangs = true;
    world.now = world.now + Duration::from_secs(3);
    for _ in 0..100 {
        world.turn(8);
    }
}

/// It does the oldest of these that it was asked for.
fn takes(world: &mut World, op: Operation) -> Completion {
    let mut pending = world.backing.pending.iter();
    let at = pending.position(|request| request.op == op).unwrap();
    let request = world.backing.pending.remove(at);
    world.backing.serve(request)
}

/// That is a flush, which fails, and what was to last is lost.
fn loses(world: &mut World) -> Completion {
    world.backing.flushes = Flushes::Lose;
    let flushed = takes(world, Operation::Flush);
    world.backing.flushes = Flushes::Served;
    flushed
}

/// The device has what is on its way back, a flush of it fails and loses that, and only then it says that it was written.
#[test]
fn what_is_on_its_way_back_when_a_flush_fails_goes_once_more() {
    let mut world = World::with_room(700, 23, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Durable), 300, 2);
    world.quiet();
    // Something comes in that is to be recorded after a flush.
    world.submit(Operation::Read, 2000, 4);
    world.quiet();
    hangs(&mut world);
    let written = takes(&mut world, Operation::Write(Durability::Cached));
    let flushed = loses(&mut world);
    for completion in [flushed, written] {
        world.cache().completed(Side::Backing, completion);
    }
    world.backing.hangs = false;
    for _ in 0..40 {
        world.now = world.now + Duration::from_millis(500);
        world.turns(10);
    }
    world.flush();
    world.check_backing();
}

/// The device has what a host writes around the cache, a flush that no host has asked for loses it, and only then it says that
/// it was written.
#[test]
fn a_hosts_flush_says_that_a_write_on_its_way_was_lost() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let mut world = World::new(23, Shape::of(mode), None);
        write_around(&mut world);
        assert!(hosts_flush(&mut world));
        world.submit(Operation::Read, 2000, 4);
        world.quiet();
        world.submit(Operation::Write(Durability::Cached), 300, 2);
        hangs(&mut world);
        let written = takes(&mut world, Operation::Write(Durability::Cached));
        let flushed = loses(&mut world);
        for completion in [flushed, written] {
            world.cache().completed(Side::Backing, completion);
        }
        world.backing.hangs = false;
        assert!(!hosts_flush(&mut world), "{mode:?}");
        assert!(hosts_flush(&mut world), "it is told once");
    }
}
