//! A cache over two devices of which one fails for a while: what was acknowledged is there afterwards, all that was asked
//! is answered, and what does not need the device that fails goes on.
#![allow(clippy::unwrap_used)]

mod world;

use std::time::Duration;

use ashlar_block::{BlockSize, Durability, IoError, Operation};
use ashlar_cache::{Layout, Mark, Mode};

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
    world.fast.bad = Layout::of_granules(GRANULES).page_granules();
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

/// It is tried again by itself, each second.
fn becomes(world: &mut World, mark: Mark) {
    let is_so = |world: &mut World| {
        let status = world.cache().status();
        status.header.is_some_and(|header| header.mark == mark) && status.trouble.is_none()
    };
    let until = world.now + Duration::from_secs(2);
    while world.now < until {
        if is_so(world) {
            return;
        }
        let next = world.cache().next_deadline();
        world.now = world.now.max(next.unwrap());
        world.turns(8);
    }
    panic!("{:?}", world.cache().status());
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

/// What was zeroed and recorded is zeroes, whether or not the fast device gives the space of it back.
#[test]
fn space_that_does_not_come_back_fails_no_zeroes() {
    let mut world = World::with_room(200, 7, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Durable), 300, 2);
    world.quiet();
    world.fast.bad = 300..302;
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: true,
    };
    world.submit(zeroes, 300, 2);
    world.quiet();
    world.fast.bad = 0..0;
    world.read_all();
    world.flush();
    world.check_backing();
}

/// A write of a part of 4 KiB, all of which the backing device has, and the fast device cannot read.
#[test]
fn a_write_over_what_is_clean_and_cannot_be_read_takes_the_rest_from_the_backing_device() {
    let blocks = BlockSize::B512;
    for (first, count) in [(300 * 8 + 3, 1), (299 * 8 + 4, 8), (298 * 8 + 1, 22)] {
        for mode in [Mode::WriteBack, Mode::WriteThrough] {
            let mut world = World::new(5, Shape { mode, blocks }, None);
            world.submit(Operation::Read, 300 * 8, 8);
            world.quiet();
            assert_eq!(world.cache().status().cached_bytes, 4096);
            world.fast.unread = 300..301;
            world.submit(Operation::Write(Durability::Durable), first, count);
            world.quiet();
            world.fast.unread = 0..0;
            world.read_all();
            world.crash();
            world.quiet();
            world.read_all();
            world.flush();
            world.check_backing();
        }
    }
}

/// What is newer there is not on the backing device.
#[test]
fn a_write_over_what_is_newer_and_cannot_be_read_fails() {
    let (mode, blocks) = (Mode::WriteBack, BlockSize::B512);
    let mut world = World::new(5, Shape { mode, blocks }, None);
    world.submit(Operation::Write(Durability::Durable), 300 * 8, 8);
    world.quiet();
    world.fast.unread = 300..301;
    world.tolerates = true;
    for (first, fails) in [(299 * 8 + 4, true), (299 * 8, false)] {
        world.failed.clear();
        world.submit(Operation::Write(Durability::Durable), first, 8);
        world.quiet();
        assert_eq!(world.failed.is_empty(), !fails);
    }
}
