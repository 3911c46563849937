//! A cache knows its backing device by what names it, and by some of what both have: another, or one that was written
//! behind the cache's back, is refused by name, or taken up on purpose.
#![allow(clippy::unwrap_used)]

mod world;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{Durability, Operation};
use ashlar_cache::{GRANULE, Identity, Layout, Mark, Mode, Other};

use world::{GRANULES, Granule, Shape, World, stamped};

const WRITE: Operation = Operation::Write(Durability::Durable);

const CHANGED: &str = "has changed since it was left";

const BYTES: u64 = GRANULES * GRANULE as u64;

fn named(name: &str) -> Identity {
    Identity::new(BYTES, Some(name.to_owned()))
}

/// A cache that has something and knows its device by a name.
fn warm(seed: u64, mode: Mode) -> World {
    let mut world = World::new(seed, Shape::of(mode), None);
    for _ in 0..300 {
        if world.flying.len() < 24 {
            world.ask();
        }
        world.turn(4);
    }
    world.quiet();
    world.flush();
    // What was cached is recorded.
    for _ in 0..300 {
        world.turn(8);
    }
    // What is said of the device that an older program's cache has is taken for it.
    world.found = named("WWN 1");
    world.reopen();
    world.quiet();
    assert!(world.cache().status().cached_bytes > 0);
    world
}

/// It does not come into service, for these reasons.
fn is_refused(world: &mut World, reasons: &[&str]) {
    let before = world.backing.lasting.clone();
    world.reopen();
    world.turns(50);
    let why = world.cache().status().failure.unwrap();
    for reason in reasons {
        assert!(why.contains(reason), "{why}");
    }
    assert!(world.backing.lasting == before);
}

/// Nothing on the fast device says that something is cached, or takes room.
fn is_forgotten(world: &World) {
    let pages = Layout::of_granules(GRANULES).page_granules();
    let mut left = (0..GRANULES).chain(pages);
    assert!(left.all(|at| world.fast.get(at).iter().all(|&byte| byte == 0)));
}

#[test]
fn another_device_is_refused_by_name_or_taken_up_with_nothing_cached() {
    for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack] {
        let mut world = warm(3, mode);
        let cached = world.cache().status().cached_bytes;
        let first = world.exchange();
        world.found = named("WWN 2");
        is_refused(&mut world, &["disk", "WWN 1", "WWN 2", "--other-device"]);
        world.found = Identity::new(BYTES, None);
        is_refused(&mut world, &["WWN 1", "nothing names"]);
        // The first one again, larger.
        let second = (std::mem::replace(&mut world.backing, first.0), world.model);
        world.model = first.1;
        world.found = Identity::new(BYTES + 4096, Some("WWN 1".to_owned()));
        world.reopen();
        world.quiet();
        assert_eq!(world.cache().status().cached_bytes, cached);
        world.read_all();
        (world.backing, world.model) = second;
        (world.found, world.other) = (named("WWN 2"), Other::TakenUp);
        world.reopen();
        world.quiet();
        assert_eq!(world.cache().status().cached_bytes, 0);
        is_forgotten(&world);
        world.read_all();
        // It is the one that is known now.
        world.other = Other::Refused;
        world.submit(Operation::Write(Durability::Durable), 300, 4);
        world.quiet();
        world.crash();
        world.quiet();
        world.read_all();
    }
}

#[test]
fn a_crash_while_what_is_cached_is_forgotten_leaves_nothing_of_the_other_device() {
    for seed in 0..30 {
        let mut world = warm(seed, Mode::WriteThrough);
        let first = world.exchange();
        (world.found, world.other) = (named("WWN 2"), Other::TakenUp);
        world.reopen();
        for _ in 0..seed % 15 {
            world.turn(1);
        }
        let back = world.rng.bool();
        if back {
            (world.backing, world.model) = first;
            (world.found, world.other) = (named("WWN 1"), Other::TakenUp);
        }
        world.crash();
        world.quiet();
        world.read_all();
    }
}

#[test]
fn a_head_that_was_kept_just_before_a_crash_is_not_owed_to_another_device() {
    let mut found = 0;
    for seed in 0..24 {
        let mut world = warm(1000 + seed, Mode::WriteBack);
        world.submit(WRITE, 300, 4);
        for _ in 0..seed % 12 {
            world.turn(1);
        }
        world.cut(None);
        world.exchange();
        (world.found, world.other) = (named("WWN 2"), Other::TakenUp);
        world.start();
        world.turns(200);
        let status = world.cache().status();
        if status.failure.is_some() {
            // The mark was on its way.
            continue;
        }
        found += 1;
        assert_eq!(status.dirty_bytes, 0, "seed {seed}");
        world.flush();
        world.submit(WRITE, 400, 4);
        world.quiet();
        world.read_all();
    }
    assert!(found > 8, "{found}");
}

/// Of a remote namespace programs before have known the size alone.
#[test]
fn a_device_that_had_no_name_before_gets_one_and_keeps_it() {
    let uuid = |number: u8| named(&format!("uuid {number} of nqn")).known_before_as(None);
    let mut world = World::new(3, Shape::of(Mode::WriteAround), None);
    world.submit(Operation::Read, 300, 4);
    world.quiet();
    world.rest();
    world.reopen();
    world.quiet();
    // One that was always asked for its name, and one of another size, are other ones.
    world.found = named("WWN 1");
    is_refused(&mut world, &["WWN 1", "nothing names"]);
    world.found = Identity::new(BYTES + 4096, Some("uuid 1".to_owned())).known_before_as(None);
    is_refused(&mut world, &["uuid 1", "nothing names"]);
    for _ in 0..2 {
        world.found = uuid(1);
        world.reopen();
        world.quiet();
        assert!(world.cache().status().cached_bytes > 0);
    }
    for other in [uuid(2), Identity::new(BYTES, None)] {
        world.found = other;
        is_refused(&mut world, &["uuid 1 of nqn", "--other-device"]);
    }
    // That it is this one is not known while it has no name in the header.
    let mut world = harmed(Identity::new(BYTES, None));
    (world.found, world.other) = (uuid(1), Other::TakenUp);
    is_refused(
        &mut world,
        &["at byte", "--other-device --accept-data-loss"],
    );
    world.other = Other::Believed;
    is_taken_up_with_what_is_cached(&mut world);
    // Nor is it then: an array that goes back to an older image keeps the names.
    let mut world = harmed(uuid(1));
    world.other = Other::TakenUp;
    is_refused(
        &mut world,
        &["at byte", "--other-device --accept-data-loss"],
    );
    world.other = Other::Believed;
    is_taken_up_with_what_is_cached(&mut world);
}

/// Of a stripe of local disks and remote namespaces they have known the local disks' names.
#[test]
fn a_device_that_was_named_in_part_before_gets_its_whole_name() {
    let whole = |local: &str| {
        named(&format!("{local}; uuid 1 of nqn")).known_before_as(Some(local.to_owned()))
    };
    let mut world = warm(3, Mode::WriteAround);
    world.found = whole("WWN 2");
    is_refused(&mut world, &["WWN 1", "WWN 2"]);
    for _ in 0..2 {
        world.found = whole("WWN 1");
        world.reopen();
        world.quiet();
        assert!(world.cache().status().cached_bytes > 0);
    }
    world.found = named("WWN 1; uuid 2 of nqn").known_before_as(Some("WWN 1".to_owned()));
    is_refused(&mut world, &["uuid 1 of nqn", "uuid 2 of nqn"]);
}

#[test]
fn a_device_that_nothing_names_is_known_by_its_size() {
    let mut world = World::new(3, Shape::of(Mode::WriteAround), None);
    world.submit(Operation::Read, 300, 4);
    world.quiet();
    world.reopen();
    world.quiet();
    world.found = Identity::new(BYTES + 4096, None);
    let sizes = [BYTES.to_string(), (BYTES + 4096).to_string()];
    is_refused(&mut world, &[&sizes[0], &sizes[1], "nothing names"]);
    world.found = Identity::new(BYTES, None);
    world.reopen();
    world.quiet();
    // A mark knows its device: write-back goes by that.
    let mut world = World::new(3, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Durable), 300, 4);
    world.quiet();
    world.found = named("WWN 2");
    world.reopen();
    world.quiet();
    world.read_all();
}

/// A cache of which something is newer than its device, which it knows by a name.
fn marked(seed: u64) -> World {
    let mut world = warm(seed, Mode::WriteBack);
    for place in 0..8 {
        world.submit(WRITE, 300 + 4 * place, 2);
    }
    world.quiet();
    world
}

fn lasting_copy(world: &mut World) -> BTreeMap<u64, Granule> {
    let backing = &mut world.backing;
    backing
        .lasting
        .extend(std::mem::take(&mut backing.volatile));
    backing.lasting.clone()
}

#[test]
fn a_copy_of_a_marked_device_is_taken_up_on_purpose_if_it_is_whole() {
    let mut world = marked(5);
    let newer = world.cache().dirty_ranges();
    world.found = named("WWN 2");
    is_refused(
        &mut world,
        &["WWN 1", "WWN 2", "whole copy", "--other-device"],
    );
    world.other = Other::TakenUp;
    world.reopen();
    world.quiet();
    assert_eq!(world.cache().dirty_ranges(), newer);
    // It is the one that is known now.
    world.other = Other::Refused;
    world.crash();
    world.quiet();
    world.read_all();
    world.flush();
    world.check_backing();
}

/// Granules behind the head that the cache says are as the device has them, and of which another copy has something else.
fn clean_and_other(world: &World, copy: &BTreeMap<u64, Granule>) -> usize {
    let pages = Layout::of_granules(GRANULES).page_granules();
    let pages: Vec<Granule> = pages.map(|at| world.fast.get(at)).collect();
    let is_set = |granule: u64, from: usize| {
        let (page, at) = ((granule / 8192) as usize, (granule % 8192) as usize);
        pages[page][from + at / 8] >> (at % 8) & 1 == 1
    };
    let is_clean = |granule: u64| is_set(granule, 64) && !is_set(granule, 64 + 1024);
    let is_other = |granule: u64| copy.get(&granule) != world.backing.lasting.get(&granule);
    let all = (32..GRANULES).filter(|&granule| is_clean(granule) && is_other(granule));
    all.count()
}

/// A copy that was made while something was not written back, which has gone back since and is still cached.
#[test]
fn a_copy_of_a_marked_device_that_is_not_whole_is_refused_by_what_it_lacks() {
    let mut lacking = 0;
    for seed in 0..20 {
        let mut world = marked(seed);
        let copy = lasting_copy(&mut world);
        for place in 0..8 {
            world.submit(WRITE, 301 + 4 * place, 2);
        }
        world.quiet();
        world.now = world.now + Duration::from_secs(5);
        world.turns(400);
        let newer = world.cache().dirty_ranges();
        assert!(newer.iter().all(|&(at, _)| at < 300 * 4096));
        assert_eq!(world.cache().status().header.unwrap().mark, Mark::On);
        world.crash();
        world.quiet();
        lasting_copy(&mut world);
        // All that is clean is compared, for it is not much; what is not cached any more cannot be.
        if clean_and_other(&world, &copy) == 0 {
            continue;
        }
        lacking += 1;
        let whole = std::mem::replace(&mut world.backing.lasting, copy);
        // By another name it is refused; and so it is without one, or on purpose, by what it has.
        for (name, other, why) in [
            ("WWN 2", Other::Refused, "another one"),
            ("WWN 2", Other::TakenUp, CHANGED),
            ("WWN 1", Other::Refused, CHANGED),
        ] {
            (world.found, world.other) = (named(name), other);
            is_refused(&mut world, &[why]);
        }
        world.backing.lasting = whole;
        world.reopen();
        world.quiet();
        world.read_all();
        world.flush();
        world.check_backing();
    }
    assert!(lacking > 10, "{lacking}");
}

/// Something else writes there, as what is used through LUKS or LVM is written raw: what begins it stays as it was.
fn written_behind_its_back(world: &mut World, granule: u64) {
    world.backing.volatile.retain(|(at, _)| *at != granule);
    let data = Rc::new(stamped(99, GRANULE));
    world.backing.lasting.insert(granule, data);
    world.model.insert(granule, vec![99]);
}

/// Reads two granules at each of these, which stay, and takes the cache up again.
fn read_and_reopen(world: &mut World, places: impl IntoIterator<Item = u64>) {
    for first in places {
        world.submit(Operation::Read, first, 2);
        if world.flying.len() > 32 {
            world.quiet();
        }
    }
    world.quiet();
    world.now = world.now + Duration::from_secs(5);
    world.turns(100);
    world.reopen();
    world.quiet();
}

#[test]
fn a_device_that_was_written_behind_the_caches_back_is_refused_by_what_it_has() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        for place in [301, 4] {
            let mut world = World::with_room(700, 4, Shape::of(mode), None);
            read_and_reopen(&mut world, [300, 4]);
            written_behind_its_back(&mut world, place);
            let is_known = mode == Mode::WriteBack && place < 32;
            let byte = format!("at byte {}", place * 4096);
            let why = if is_known { "" } else { &byte };
            is_refused(&mut world, &["disk", "has changed since it was left", why]);
            world.other = Other::TakenUp;
            world.reopen();
            world.quiet();
            assert_eq!(world.cache().status().cached_bytes, 0);
            is_forgotten(&world);
            world.other = Other::Refused;
            world.crash();
            world.quiet();
            world.read_all();
            world.submit(WRITE, 300, 4);
            world.quiet();
            world.flush();
            world.check_backing();
        }
    }
}

/// Where only what is compared says that the device has changed, a crash meanwhile leaves too little to see that again.
#[test]
fn a_crash_while_what_has_changed_is_forgotten_leaves_nothing_of_before() {
    let first_page = Layout::of_granules(GRANULES).page_granules().start;
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        for more in 0..5 {
            let mut world = World::with_room(4000, more, Shape::of(mode), None);
            let last_page = (8192..8704).step_by(4);
            let places = (64..128).step_by(4).chain(last_page.clone());
            read_and_reopen(&mut world, places.chain(last_page.map(|at| at + 2)));
            for place in (64..128).chain([8200]) {
                written_behind_its_back(&mut world, place);
            }
            world.other = Other::TakenUp;
            world.reopen();
            while world.fast.get(first_page).iter().any(|&byte| byte != 0) {
                world.turn(1);
            }
            for _ in 0..more {
                world.turn(1);
            }
            world.other = Other::Refused;
            world.crash();
            world.turns(100);
            if !world.cache().is_open() {
                is_refused(&mut world, &[CHANGED]);
                world.other = Other::TakenUp;
                world.reopen();
                world.quiet();
            }
            world.read_all();
        }
    }
}

/// More is cached than is compared, and some of it has changed.
#[test]
fn what_is_compared_is_drawn_from_all_that_is_cached() {
    for part in 0..2 {
        let mut world = World::with_room(4000, 4, Shape::of(Mode::WriteAround), None);
        let cached = (64..8704).step_by(8);
        read_and_reopen(&mut world, cached.clone());
        assert_eq!(world.cache().status().cached_bytes, 2 * 1080 * 4096);
        let all: Vec<u64> = cached.collect();
        let half = all.len() / 2;
        for &granule in all[part * half..(part + 1) * half].iter().step_by(8) {
            written_behind_its_back(&mut world, granule);
        }
        is_refused(&mut world, &["has changed since it was left"]);
    }
}

/// What a device cannot read is not what keeps a cache out of service.
#[test]
fn a_device_that_reads_nothing_but_its_head_is_taken_up() {
    let mut world = warm(4, Mode::WriteThrough);
    world.backing.unread = 32..GRANULES;
    world.reopen();
    world.turns(60);
    assert!(world.cache().is_open(), "{:?}", world.cache().status());
}

/// A cache over a device that is called so, has the mark, and has other data at one place.
fn harmed(found: Identity) -> World {
    let mut world = World::with_room(400, 9, Shape::of(Mode::WriteBack), None);
    world.found = found;
    read_and_reopen(&mut world, [700]);
    world.submit(WRITE, 300, 2);
    world.quiet();
    assert_eq!(world.cache().status().header.unwrap().mark, Mark::On);
    world.backing.volatile.retain(|(at, _)| *at != 701);
    world
        .backing
        .lasting
        .insert(701, Rc::new(stamped(99, GRANULE)));
    world
}

fn is_taken_up_with_what_is_cached(world: &mut World) {
    world.reopen();
    world.quiet();
    world.read_all();
    // The device has it again, so that nothing reverts when it leaves the cache.
    world.flush();
    world.check_backing();
}

#[test]
fn a_marked_device_that_was_harmed_is_taken_up_on_purpose_with_what_is_cached() {
    let mut world = harmed(named("WWN 1"));
    is_refused(&mut world, &["at byte", "harmed", "--other-device"]);
    world.other = Other::TakenUp;
    is_taken_up_with_what_is_cached(&mut world);
}

/// Nothing tells it from an older image of it: that takes a word more.
#[test]
fn a_marked_device_that_nothing_names_is_believed_if_that_is_said() {
    let mut world = harmed(Identity::new(BYTES, None));
    let way = ["at byte", "--other-device --accept-data-loss"];
    is_refused(&mut world, &way);
    world.other = Other::TakenUp;
    is_refused(&mut world, &way);
    world.other = Other::Believed;
    is_taken_up_with_what_is_cached(&mut world);
    // It is not for another one.
    let mut world = harmed(named("WWN 1"));
    (world.found, world.other) = (named("WWN 2"), Other::Believed);
    is_refused(&mut world, &[CHANGED, "no whole copy"]);
}

/// Hosts write some single granules of what is cached, and these are on the device for good.
fn written_and_settled(world: &mut World, places: impl Iterator<Item = u64>) {
    for place in places {
        world.submit(WRITE, place, 1);
    }
    world.quiet();
    world.now = world.now + Duration::from_secs(5);
    world.turns(200);
    assert_eq!(
        world.cache().dirty_ranges().len(),
        usize::from(world.shape.mode == Mode::WriteBack)
    );
}

/// Much is cached, and a copy lacks the little that was written last: of 2,160 granules four, which a draw of 256 misses three
/// times in five.
#[test]
fn a_copy_from_before_the_last_writes_is_refused() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let mut refused = 0;
        for seed in 0..10 {
            let mut world = World::with_room(4000, seed, Shape::of(mode), None);
            read_and_reopen(&mut world, (64..8704).step_by(8));
            written_and_settled(&mut world, 0..1);
            let copy = lasting_copy(&mut world);
            written_and_settled(&mut world, (0..4).map(|at| 64 + 8 * (100 * at + 7 * seed)));
            lasting_copy(&mut world);
            world.backing.lasting = copy;
            world.reopen();
            world.turns(60);
            refused += u32::from(world.cache().status().failure.is_some());
        }
        assert_eq!(refused, 10, "{mode:?}");
    }
}
