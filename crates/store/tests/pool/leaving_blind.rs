//! A drive that is emptied while a leaf of the map cannot be read: it stays, which costs nothing, and holds nothing up.

use std::collections::BTreeSet;

use crate::common::{Answers, Bench, Spot, fill, flip, leaf_spots, small_sizes};
use ashlar_block::{ErrorKind, Operation};
use ashlar_store::format::ChunkCopy;
use ashlar_store::{Event, Manage};

const SECOND: u64 = 1_000_000_000;
/// Slots of the first volume, in its second leaf, on the drive that leaves and others.
const SLOTS: u64 = 24;
/// Slots of the second one, which is a mirror.
const MIRRORED: u64 = 80;

/// What a slot holds.
fn of_slot(slot: u64) -> Vec<u8> {
    fill(16, 50 + slot as u8)
}

/// A pool of which one drive is to leave, and stays for what a leaf of the first volume hides.
struct Staying {
    bench: Bench,
    plain: u32,
    mirror: u32,
    member: usize,
    spots: Vec<Spot>,
    /// Where the ring's chunks were when everything was written: drive and first block.
    ring: Vec<(usize, u64)>,
}

fn staying() -> Staying {
    let mut bench = Bench::new(4, 32 << 20);
    let (plain, mirror) = (bench.volume(1024, 1), bench.volume(MIRRORED * 16, 2));
    bench.write(plain, 0, &fill(16, 1)).expect("write");
    for slot in 0..SLOTS {
        let at = 512 + slot * 16;
        bench.write(plain, at, &of_slot(slot)).expect("write");
    }
    for slot in 0..MIRRORED {
        let data = of_slot(100 + slot);
        bench.write(mirror, slot * 16, &data).expect("write");
    }
    bench.manage(Manage::Drain).expect("settle");
    let mut bench = bench.restart();
    let ring = chunks_of_ring(&bench);
    let spots = leaf_spots(&bench.media, plain, 0);
    flip(&bench.media, &spots);
    let member = bench.places(&fill(1, 1))[0].0;
    bench
        .manage(Manage::RemoveDrive { member })
        .expect("remove");
    // All walks that fill a part of the columns, and one that has none to fill.
    bench.pass(61 * SECOND);
    bench.pass(61 * SECOND);
    assert!(bench.engine.members()[member].state.in_service());
    bench.seen.writes.borrow_mut().clear();
    Staying {
        bench,
        plain,
        mirror,
        member,
        spots,
        ring,
    }
}

fn chunks_of_ring(bench: &Bench) -> Vec<(usize, u64)> {
    let root = bench.root();
    let copies = root.ring.chunks.iter().flat_map(|chunk| &chunk.copies);
    let first = |copy: &ChunkCopy| small_sizes().extent_at(copy.extent) / 4096;
    copies
        .map(|copy| (copy.drive.into(), first(copy)))
        .collect()
}

impl Staying {
    fn check(&mut self) {
        let Self { bench, plain, .. } = self;
        assert_eq!(bench.read(*plain, 0, 16).expect("read"), fill(16, 1));
        for slot in 0..SLOTS {
            let found = bench.read(*plain, 512 + slot * 16, 16).expect("read");
            assert_eq!(found, of_slot(slot));
        }
        for slot in 0..MIRRORED {
            let found = bench.read(self.mirror, slot * 16, 16).expect("read");
            assert_eq!(found, of_slot(100 + slot));
        }
    }

    /// Of each slot of the mirror, whether its first granule is on two drives beside this one.
    fn mirrored_without(&self, drive: usize) -> Vec<bool> {
        let slots = 0..MIRRORED;
        let chunk = u64::from(small_sizes().chunk_extents) << (small_sizes().extent_shift - 12);
        let is_home = |&(one, block): &(usize, u64)| {
            let in_chunk =
                |&(of, first): &(usize, u64)| of == one && block.wrapping_sub(first) < chunk;
            one != drive && !self.ring.iter().any(in_chunk)
        };
        let is_mirrored = |slot: u64| {
            let places = self.bench.places(&of_slot(100 + slot)[..4096]);
            let homes = places.iter().filter(|place| is_home(place));
            let drives: BTreeSet<usize> = homes.map(|&(drive, _)| drive).collect();
            drives.len() >= 2
        };
        slots.map(is_mirrored).collect()
    }

    /// A host's write, which nothing has happened to yet.
    fn begin_write(&mut self) {
        let request = self.bench.request(0, &of_slot(100));
        self.bench.begin(self.mirror, request);
    }

    /// A scrub that has looked at a part.
    fn begin_scrub(&mut self) {
        self.bench.post(Event::Manage {
            id: 900,
            what: Manage::Scrub,
        });
        self.begin_write();
        let mut answers = Answers::default();
        let walks = |bench: &Bench| bench.engine.walk_progress().is_some();
        while !walks(&self.bench) && self.bench.turn(&mut answers) {}
        for _ in 0..2 {
            self.bench.turn(&mut answers);
        }
        assert!(walks(&self.bench));
    }

    /// Another drive, without which the mirror lacks copies.
    fn drive_beside(&self) -> usize {
        let mut others = (0..4).filter(|&drive| drive != self.member);
        let other = others.find(|&drive| self.mirrored_without(drive).contains(&false));
        other.expect("a drive of the mirror")
    }

    /// The leaf can be read again: the drive goes, and nothing of it is missing.
    fn leaves(mut self) {
        flip(&self.bench.media, &self.spots);
        self.bench.pass(61 * SECOND);
        let state = self.bench.engine.members()[self.member].state;
        assert!(!state.in_service(), "it has left");
        self.check();
        self.bench = self.bench.restart();
        self.check();
    }
}

#[test]
fn what_is_copied_already_is_not_copied_again_each_minute() {
    let mut staying = staying();
    for _ in 0..10 {
        staying.bench.pass(61 * SECOND);
    }
    let again = staying.bench.seen.writes.borrow().len();
    assert!(again < 10, "{again} writes");
    // What is written meanwhile is where the drive's columns go, too.
    let plain = staying.plain;
    for slot in [0, 7, SLOTS - 1] {
        let at = 512 + slot * 16;
        staying
            .bench
            .write(plain, at, &of_slot(slot))
            .expect("write");
    }
    staying.bench.manage(Manage::Drain).expect("settle");
    staying.leaves();
}

/// It is interrupted for a drive that is lost, and begins where it was, as if no column waited.
#[test]
fn a_scrub_beside_columns_that_wait_does_not_hold_up_repair() {
    let mut staying = staying();
    let lost = staying.drive_beside();
    staying.bench.seen.log.borrow_mut().clear();
    staying.begin_scrub();
    staying.bench.seen.faults[lost].set(Some((|_| true, ErrorKind::Media)));
    let mut answers = Answers::default();
    for _ in 0..5 {
        while staying.mirrored_without(lost).contains(&false) && staying.bench.turn(&mut answers) {}
        // It may rest among hosts.
        let rests = staying.mirrored_without(lost).contains(&false);
        staying.bench.later(u64::from(rests) * SECOND);
    }
    let bench = &staying.bench;
    let log = bench.seen.log.take();
    let reads = log.iter().filter(|(_, op)| *op == Operation::Read).count();
    assert!(reads < (SLOTS + 2 * MIRRORED) as usize, "{reads} reads");
    assert!(!bench.engine.members()[lost].state.in_service());
    assert!(!staying.mirrored_without(lost).contains(&false));
    staying.bench.pass(SECOND);
    assert_eq!(staying.bench.engine.counters().scrubs, 1);
}

/// Every minute what could not be read is looked at again, also while a scrub is under way.
#[test]
fn a_scrub_does_not_hold_up_a_drive_that_can_leave() {
    let mut staying = staying();
    staying.begin_scrub();
    let (bench, mut answers) = (&mut staying.bench, Answers::default());
    flip(&bench.media, &staying.spots);
    bench.later(61 * SECOND);
    let leaves = |bench: &Bench| bench.engine.members()[staying.member].state.in_service();
    while leaves(bench) && bench.turn(&mut answers) {}
    assert_eq!(bench.engine.counters().scrubs, 0);
    bench.pass(0);
    assert_eq!(bench.engine.counters().scrubs, 1);
    staying.check();
}

/// What it has no part of is no reason to refuse it.
#[test]
fn a_drive_comes_back_beside_columns_that_wait() {
    let mut staying = staying();
    let (away, member) = (staying.drive_beside(), staying.member);
    let bench = &mut staying.bench;
    bench.seen.faults[away].set(Some((|_| true, ErrorKind::Timeout)));
    bench
        .write(staying.mirror, 0, &of_slot(100))
        .expect("write");
    bench.write(staying.plain, 528, &of_slot(1)).expect("write");
    bench.manage(Manage::Drain).expect("settle");
    bench.pass(61 * SECOND);
    assert!(!bench.engine.members()[away].state.in_service());
    bench.seen.faults[away].set(None);
    let spots = bench.places(&of_slot(0)[..4096]).into_iter();
    let spots = spots.filter(|&(drive, _)| drive == member);
    let spot = |(drive, block): (usize, u64)| Spot {
        drive,
        byte: block as usize * 4096,
    };
    let rotten: Vec<Spot> = spots.map(spot).collect();
    assert!(!rotten.is_empty());
    flip(&bench.media, &rotten);
    bench.readmit(away).expect("it lacks nothing");
    flip(&bench.media, &rotten);
    staying.leaves();
}
