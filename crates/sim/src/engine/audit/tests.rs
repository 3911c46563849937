//! The audit notices what is wrong: a pool that has settled is right, and then it is damaged.

use std::collections::BTreeSet;

use ashlar_store::format::{Batch, LogId, SegmentKind, encode_batch, metadata_bytes};
use ashlar_store::sizes::GRANULE;
use ashlar_store::{Engine, Grain, Layout};

use super::{Found, Media, Trust, logs};
use crate::chance::Chance;
use crate::engine::plan::{Plan, Wish};
use crate::engine::profile::Profile;
use crate::engine::world::World;

const PROFILE: Profile = Profile {
    crashes: 0,
    import_cuts: 0,
    overcommits: 0,
    tiers: 0,
    caches: 0,
    changes: 0,
    orders: 0,
    hangs: 0,
    ..Profile::CRASH
};

/// A world whose users are done and whose pool has settled.
fn settled() -> World<'static, Engine> {
    let draw = |seed| {
        let mut chance = Chance::new(seed);
        let plan = Plan::draw(&mut chance, &PROFILE);
        (plan, chance)
    };
    let (mut plan, chance) = (0..)
        .map(draw)
        .find(|(plan, _)| plan.drives.len() >= 4)
        .unwrap();
    let mut wish = plan.wishes[0];
    (wish.granules, wish.most) = (400, 400);
    let layouts = [
        (Layout::Parity { data: 2, parity: 2 }, Some(Grain::K16)),
        (Layout::Mirror { copies: 2 }, Some(Grain::K8)),
    ];
    plan.wishes = layouts
        .map(|(layout, grain)| Wish {
            layout,
            grain,
            ..wish
        })
        .to_vec();
    plan.initial = plan.wishes.len();
    plan.fates.clear();
    let mut world = World::new(plan, chance, None);
    world.format().unwrap();
    world.restart().unwrap();
    world
        .until("the users are done", |w| w.load.is_done())
        .unwrap();
    world.settle().unwrap();
    world
}

static NONE: BTreeSet<usize> = BTreeSet::new();

fn audit(world: &World<'_, Engine>) -> Result<Found, String> {
    Found::audit(&Media::new(&world.drives, &NONE))
}

/// What the audit says of what it has found once that is changed.
fn with(change: impl FnOnce(&mut Found)) -> String {
    let world = settled();
    let media = Media::new(&world.drives, &NONE);
    let mut found = Found::read(&media).unwrap();
    found.check(&media).unwrap();
    change(&mut found);
    found.check(&media).expect_err("nothing is noticed")
}

#[test]
fn a_feature_that_no_root_names_is_noticed() {
    let said = with(|found| {
        let volume = found.volumes.values_mut().next().unwrap();
        volume.is_cache = true;
    });
    assert_eq!(
        said,
        "the pool uses the features caches, and its root names none"
    );
}

#[test]
fn a_settled_pool_is_right() {
    let found = audit(&settled()).unwrap();
    let kinds: BTreeSet<u8> = found.segments.values().map(|s| s.kind as u8).collect();
    let both = [SegmentKind::Mirror as u8, SegmentKind::Parity as u8];
    assert!(kinds.is_superset(&both.into()), "{kinds:?}");
    assert!(found.slots.len() > 20, "{} slots", found.slots.len());
}

#[test]
fn slots_without_a_user_or_with_two_are_noticed() {
    let why = with(|found| {
        let segment = *found.segments.keys().next().unwrap();
        let free = (0..).map(|slot| segment << 12 | slot);
        let free = free.into_iter().find(|slot| !found.slots.contains(slot));
        found.slots.insert(free.unwrap());
    });
    assert!(why.contains("its bit says otherwise"), "{why}");
    let why = with(|found| {
        found.slots.pop_first();
    });
    assert!(why.contains("its bit says otherwise"), "{why}");
    let why = with(|found| {
        let (_, leaf) = found.leaves.first_mut().unwrap();
        let granules = leaf.grain().granules() as usize;
        let mut used = leaf.locations().iter().enumerate();
        let mut used = used.by_ref().filter(|(_, location)| **location != 0);
        let (first, second) = (used.next().unwrap(), used.next().unwrap());
        let (slot, location) = (second.0, *first.1);
        leaf.set_location(slot * granules, location);
    });
    assert!(why.contains("share location"), "{why}");
}

#[test]
fn extents_and_places_that_are_used_twice_are_noticed() {
    let why = with(|found| {
        let first = found.segments.values().next().unwrap().columns[0];
        found.segments.values_mut().last().unwrap().columns[0] = first;
    });
    assert!(why.contains("overlap"), "{why}");
    let why = with(|found| {
        let (drive, extent) = {
            let chunk = &found.pool.root.ring.chunks[0].copies[0];
            (chunk.drive, chunk.extent)
        };
        found.pool.root.meta[0].columns[0] = ashlar_store::format::ChunkCopy { drive, extent };
    });
    assert!(why.contains("overlap") || why.contains("is bad"), "{why}");
    let why = with(|found| found.pages.push(found.pages[0]));
    assert!(why.contains("share place"), "{why}");
}

/// Flips a bit of the first strip of a column of a parity or mirror segment that holds something.
fn flip(kind: SegmentKind, last: bool) -> String {
    let world = settled();
    let found = audit(&world).unwrap();
    let mut segments = found.segments.iter();
    let (number, segment) = segments
        .find(|(number, segment)| {
            segment.kind == kind && found.slots.iter().any(|slot| slot >> 12 == **number)
        })
        .unwrap();
    let slots = found.slots.iter().filter(|slot| **slot >> 12 == *number);
    for slot in slots {
        let column = if last { segment.columns.len() - 1 } else { 0 };
        let (drive, extent) = segment.columns[column];
        let copy = ashlar_store::format::ChunkCopy { drive, extent };
        let (drive, at, trust) = found.pool.places(&[copy])[0];
        assert_eq!(trust, Trust::Good);
        let strip = (Found::rows(segment) * GRANULE) as u64;
        let byte = at + u64::from(slot & 0xFFF) * strip + 77;
        world.drives[drive].borrow_mut().pages.flip(byte, 3);
    }
    audit(&world).err().expect("nothing is noticed")
}

#[test]
fn copies_and_parity_that_do_not_fit_are_noticed() {
    let why = flip(SegmentKind::Mirror, true);
    assert!(why.contains("is bad"), "{why}");
    let why = flip(SegmentKind::Parity, false);
    assert!(why.contains("is bad") || why.contains("parity"), "{why}");
    let why = flip(SegmentKind::Parity, true);
    assert!(why.contains("column 1 of parity does not fit"), "{why}");
}

/// Writes an empty batch of the ring to every copy: so many batches behind the ring's end, of a term
/// that is so much later than the root's.
fn write_batch(world: &World<'_, Engine>, behind: u64, later: u64) {
    let found = audit(world).unwrap();
    let (pool, log) = (&found.pool, LogId::Ring);
    let state = &pool.root.ring;
    let batch = Batch {
        log,
        term: state.terms.last().unwrap().term + later,
        number: state.tail_number + behind,
        first_sequence: 1,
        previous: state.tail_previous,
        records: Vec::new(),
        crcs: Vec::new(),
    };
    let mut bytes = vec![0; metadata_bytes(0, 0)];
    encode_batch(&batch, pool.label.salt, &mut bytes);
    for (drive, at, _) in pool.copies_at(log, state.tail_at + behind * GRANULE as u64) {
        world.drives[drive]
            .borrow_mut()
            .pages
            .write(at, &bytes, None);
    }
}

#[test]
fn batches_behind_the_end_are_noticed() {
    for (behind, later) in [(0, 1), (2, 0), (3, 5)] {
        let world = settled();
        write_batch(&world, behind, later);
        let why = audit(&world).err().expect("nothing is noticed");
        assert!(why.contains("which ends before batch"), "{why}");
    }
    let why = with(|found| {
        let first = found.pool.root.map.terms[0];
        found.pool.root.map.terms.push(first);
    });
    assert!(why.contains("terms do not grow"), "{why}");
}

#[test]
fn a_ring_that_is_older_than_what_the_map_let_go_of_is_noticed() {
    let world = settled();
    let media = Media::new(&world.drives, &NONE);
    assert!(logs::check_order(&media).unwrap().is_some());
    write_batch(&world, 0, 0);
    let why = logs::check_order(&media).expect_err("nothing is noticed");
    assert!(why.contains("the ring begins at 1"), "{why}");
    let why = audit(&world).err().expect("nothing is noticed");
    assert!(why.contains("has settled, but the Ring log has"), "{why}");
}
