//! Flushes of the backing device that fail, and what those had lost: what was written around the cache is told to a host,
//! once, and what was written back goes once more.
#![allow(clippy::unwrap_used)]

mod world;

use std::time::Duration;

use ashlar_block::{Completion, Durability, Operation, Request};
use ashlar_cache::{Mode, Side};

use world::{Flushes, Shape, World, stamp_of};

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
        // The header does not say it any more.
        world.now = world.now + Duration::from_secs(2);
        world.turns(10);
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
        world.check_space();
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

/// Two reads bring the same in, one from before a loss and one from after it. The older may be answered last, or be put here last.
#[test]
fn what_was_read_before_a_loss_does_not_come_over_what_was_read_after_it() {
    for is_put_late in [false, true] {
        let mut world = World::with_room(700, 23, Shape::of(Mode::WriteAround), None);
        let old = world.model[&301].clone();
        world.submit(Operation::Write(Durability::Cached), 301, 1);
        world.quiet();
        let either = [old, world.model[&301].clone()].concat();
        (world.backing.hangs, world.tolerates) = (true, true);
        world.submit(Operation::Read, 301, 1);
        world.turn(0);
        let mut before = Some(takes(&mut world, Operation::Read));
        if let Some(read) = before.take_if(|_| is_put_late) {
            world.cache().completed(Side::Backing, read);
            world.turn(0);
        }
        world.submit(Operation::Flush, 0, 0);
        world.turn(0);
        let flushed = loses(&mut world);
        world.cache().completed(Side::Backing, flushed);
        world.submit(Operation::Read, 301, 1);
        world.turn(0);
        let after = takes(&mut world, Operation::Read);
        for read in [Some(after), before].into_iter().flatten() {
            world.model.insert(301, either.clone());
            world.cache().completed(Side::Backing, read);
            world.turn(0);
            // The one that was put last is on the fast device first.
            while let Some(put) = world.fast.pending.pop() {
                let put = world.fast.serve(put);
                world.cache().completed(Side::Fast, put);
            }
            world.turn(0);
        }
        world.backing.hangs = false;
        world.quiet();
        world
            .model
            .insert(301, vec![stamp_of(&world.backing.get(301))]);
        world.submit(Operation::Read, 301, 1);
        world.quiet();
        world.now = world.now + Duration::from_secs(5);
        world.turns(50);
        world.reopen();
        world.quiet();
    }
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

/// The daemon is killed; its devices keep what they have.
fn killed(world: &mut World) {
    world.cut(Some(true));
    world.start();
    world.quiet();
}

/// A flush that no host has asked for fails and loses what hosts have written around the cache.
fn own_flush_loses(world: &mut World) {
    world.submit(Operation::Read, 2000, 4);
    world.quiet();
    world.backing.flushes = Flushes::Lose;
    for turn in 0.. {
        assert!(turn < 1000, "no flush");
        if world.cache().status().is_untold {
            break;
        }
        world.turn(8);
    }
    world.backing.flushes = Flushes::Served;
}

#[test]
fn a_loss_that_no_host_was_told_of_is_told_after_a_crash() {
    for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack] {
        let mut world = World::new(23, Shape::of(mode), None);
        write_around(&mut world);
        own_flush_loses(&mut world);
        world.turns(10);
        killed(&mut world);
        // And again, while no host asks.
        killed(&mut world);
        assert!(world.cache().status().is_untold);
        assert!(!hosts_flush(&mut world), "{mode:?}");
        write_around(&mut world);
        assert!(hosts_flush(&mut world), "{mode:?}");
        world.now = world.now + Duration::from_secs(2);
        world.turns(10);
        killed(&mut world);
        assert!(hosts_flush(&mut world), "it is told once");
        world.flush();
        world.check_backing();
    }
}

/// Everything is written back for an operator; whether that succeeds.
fn operators_flush(world: &mut World) -> bool {
    world.cache().flush(9);
    for _ in 0..2000 {
        world.turn(8);
        if let Some((_, result)) = world.cache().take_answers().pop() {
            return result.is_ok();
        }
    }
    panic!("no answer");
}

/// An answer that comes when the one who has asked is gone tells no operator.
#[test]
fn what_an_operators_flush_tells_and_is_not_heard_is_said_again() {
    let mut world = World::new(23, Shape::of(Mode::WriteAround), None);
    write_around(&mut world);
    own_flush_loses(&mut world);
    world.turns(10);
    assert!(!operators_flush(&mut world));
    world.cache().was_not_heard(8);
    assert!(!world.cache().status().is_unsaid, "that is another flush");
    world.cache().was_not_heard(9);
    assert!(world.cache().status().is_unsaid);
    assert!(!operators_flush(&mut world));
    assert!(operators_flush(&mut world), "it is said once");
    world.cache().was_not_heard(9);
    assert!(!world.cache().status().is_unsaid, "that has told nothing");
}

/// Who takes the device from the cache hears of it, though no host has asked meanwhile.
#[test]
fn an_operators_flush_says_once_what_a_flush_before_has_lost() {
    for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack] {
        let mut world = World::new(23, Shape::of(mode), None);
        write_around(&mut world);
        own_flush_loses(&mut world);
        world.turns(10);
        for kills in [true, false] {
            let status = world.cache().status();
            assert!(status.is_untold && status.is_unsaid);
            assert!(!operators_flush(&mut world), "{mode:?}");
            assert!(!world.cache().status().is_unsaid);
            if kills {
                killed(&mut world);
            }
        }
        assert!(operators_flush(&mut world), "it is said once");
        // A host is told as if there were no operator.
        assert!(!hosts_flush(&mut world), "{mode:?}");
        assert!(hosts_flush(&mut world) && operators_flush(&mut world));
        world.check_backing();
    }
}

/// The host's answer may not have reached it.
#[test]
fn a_crash_right_after_a_loss_was_told_has_it_told_again() {
    let mut world = World::new(23, Shape::of(Mode::WriteAround), None);
    write_around(&mut world);
    own_flush_loses(&mut world);
    world.turns(10);
    assert!(!hosts_flush(&mut world));
    killed(&mut world);
    assert!(!hosts_flush(&mut world));
    assert!(hosts_flush(&mut world));
}

/// The header that says so and the one that says what is marked do not overtake each other.
#[test]
fn a_loss_is_in_the_header_beside_a_mark() {
    for seed in 0..60 {
        let mut world = World::new(seed, Shape::of(Mode::WriteBack), None);
        write_around(&mut world);
        world.submit(Operation::Write(Durability::Durable), 4000, 2);
        own_flush_loses(&mut world);
        world.cache().flush(9);
        world.turns(seed as usize % 12);
        world.submit(Operation::Write(Durability::Durable), 5000, 2);
        world.turns(80);
        let header = |world: &mut World| {
            let header = world.cache().status().header.unwrap();
            (header.mark, header.is_untold)
        };
        let said = header(&mut world);
        killed(&mut world);
        let found = header(&mut world);
        assert!(said == found && found.1, "seed {seed}: {said:?} {found:?}");
        assert!(!hosts_flush(&mut world));
        world.flush();
        world.check_backing();
    }
}

/// The device takes its time with zeroes, which need no header.
#[test]
fn a_loss_is_in_the_header_beside_zeroes_that_last() {
    let mut world = World::new(23, Shape::of(Mode::WriteAround), None);
    write_around(&mut world);
    world.backing.hangs = true;
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: true,
    };
    world.submit(zeroes, 4000, 16);
    world.turns(10);
    assert!(world.backing.pending.iter().any(|one| one.op == zeroes));
    world.submit(Operation::Flush, 0, 0);
    world.turn(0);
    let lost = loses(&mut world);
    world.cache().completed(Side::Backing, lost);
    world.tolerates = true;
    world.turns(10);
    assert_eq!(world.flying.len(), 1, "the zeroes");
    world.backing.hangs = false;
    killed(&mut world);
    assert!(!hosts_flush(&mut world));
}

/// A mark that is being read for holds up what hosts ask, but for flushes: each is over after a failure that came after it.
#[test]
fn a_flush_beside_a_mark_fails_with_what_was_lost_before_its_end() {
    let mut world = World::new(23, Shape::of(Mode::WriteBack), None);
    write_around(&mut world);
    world.flush();
    hangs(&mut world);
    world.submit(Operation::Flush, 0, 0);
    world.turn(0);
    world.submit(Operation::Write(Durability::Durable), 300, 2);
    world.turns(3);
    world.submit(Operation::Flush, 0, 0);
    world.turns(3);
    loses_the_first(&mut world, false);
    assert_eq!(world.failed.len(), 2);
    assert!(hosts_flush(&mut world));
}

/// A flush that is submitted before a failure comes begins before it is told to another.
#[test]
fn a_flush_submitted_beside_an_answer_fails_with_what_that_lost() {
    let mut world = World::new(23, Shape::of(Mode::WriteAround), None);
    write_around(&mut world);
    world.submit(Operation::Flush, 0, 0);
    world.turn(0);
    let lost = loses(&mut world);
    world.submit(Operation::Flush, 0, 0);
    world.cache().completed(Side::Backing, lost);
    world.tolerates = true;
    world.quiet();
    assert_eq!(world.failed.len(), 2);
    assert!(hosts_flush(&mut world));
}

/// It is its own flush that lost something, and its answer may not have reached the host.
#[test]
fn a_crash_right_after_a_hosts_flush_has_lost_something_has_that_told_again() {
    let mut world = World::new(23, Shape::of(Mode::WriteAround), None);
    write_around(&mut world);
    world.backing.flushes = Flushes::Lose;
    assert!(!hosts_flush(&mut world));
    world.backing.flushes = Flushes::Served;
    world.turns(10);
    killed(&mut world);
    assert!(!hosts_flush(&mut world));
    world.now = world.now + Duration::from_secs(2);
    world.turns(10);
    killed(&mut world);
    assert!(hosts_flush(&mut world), "the header says it no more");
}
