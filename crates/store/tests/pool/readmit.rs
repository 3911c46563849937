//! Drives that were left out and are here again with what they had.

use crate::common::{Answers, Bench, Medium, Seen, fill, flip, leaf_spots, small_sizes};
use ashlar_block::{BlockRange, Durability, ErrorKind, Operation, Request};
use ashlar_store::format::{Member, MemberState, Reserve};
use ashlar_store::{
    Event, ImportOptions, Layout, Manage, Membership, NodeMemory, PoolError, Sizes,
};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const SLOTS: u64 = 240;
/// The drive that is away for a while.
const AWAY: usize = 1;

fn slot(at: u64, round: u8) -> Vec<u8> {
    vec![(at as u8 | 1).wrapping_add(round * 2); 16 * 4096]
}

/// A pool without a drive to spare, filled, and home.
fn full(layout: Layout) -> (Bench, u32) {
    full_of(layout, 4)
}

/// The same, of segments with so many slots.
fn full_of(layout: Layout, segment_slots: u32) -> (Bench, u32) {
    let sizes = Sizes {
        segment_slots,
        ..small_sizes()
    };
    let mut bench = Bench::with_sizes(layout.drives(), 40 << 20, sizes);
    let volume = bench.volume_as(SLOTS * 16, layout).unwrap();
    for at in 0..SLOTS {
        bench.write(volume, at * 16, &slot(at, 0)).unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    // What has not changed since the older of two roots is not looked at.
    for _ in 0..2 {
        bench.write(volume, 0, &slot(0, 0)).unwrap();
        bench.manage(Manage::Drain).unwrap();
    }
    (bench, volume)
}

/// What hosts write meanwhile: whole slots, parts of others, and blocks that they give back.
fn change(bench: &mut Bench, volume: u32) {
    for at in [3, 200, 201] {
        bench.write(volume, at * 16, &slot(at, 9)).unwrap();
    }
    bench.write(volume, 210 * 16 + 5, &fill(1, 77)).unwrap();
    bench.clear(volume, 220 * 16, 16).unwrap();
    bench.manage(Manage::Drain).unwrap();
}

fn check(bench: &mut Bench, volume: u32) {
    for at in 0..SLOTS {
        let mut expected = match at {
            3 | 200 | 201 => slot(at, 9),
            220 => fill(16, 0),
            _ => slot(at, 0),
        };
        if at == 210 {
            expected[5 * 4096..6 * 4096].fill(77);
        }
        let read = bench.read(volume, at * 16, 16).unwrap();
        assert!(read == expected, "slot {at}");
    }
}

fn without(media: &[Medium], which: usize) -> Vec<Medium> {
    let mut media = media.to_vec();
    media.remove(which);
    media
}

fn degraded() -> ImportOptions {
    ImportOptions {
        degraded: true,
        repair_after: Duration::from_secs(3600),
        ..ImportOptions::default()
    }
}

const LAYOUTS: [Layout; 2] = [
    Layout::Mirror { copies: 2 },
    Layout::Parity { data: 2, parity: 1 },
];

/// Every drive but the one that was away is enough to lose.
fn all_is_there_twice(media: &[Medium], volume: u32) {
    for lost in (0..media.len()).filter(|&lost| lost != AWAY) {
        let mut bench =
            Bench::open_with(without(&copies(media), lost), &degraded()).expect("import");
        check(&mut bench, volume);
    }
}

fn is_back(bench: &Bench) -> bool {
    bench.engine.members()[AWAY].state == MemberState::Active
}

/// A pool that went on without one of its drives: the media, and its volume.
fn left_behind(layout: Layout) -> (Vec<Medium>, u32) {
    let (bench, volume) = full(layout);
    let media = bench.media;
    let away = Bench::open_with(without(&media, AWAY), &degraded());
    let mut away = away.expect("import without it");
    assert!(!is_back(&away));
    change(&mut away, volume);
    (media, volume)
}

#[test]
fn a_drive_that_was_away_costs_what_was_written_meanwhile() {
    for layout in LAYOUTS {
        let (media, volume) = left_behind(layout);
        let seen = Seen::default();
        let bench = Bench::open_seen(media.clone(), &ImportOptions::default(), seen.clone());
        let mut bench = bench.expect("import with it");
        seen.log.borrow_mut().clear();
        bench.run(Event::Tick);
        assert!(is_back(&bench), "{layout}");
        assert!(!bench.engine.is_rebuilding());
        let written = seen.writes.borrow();
        let to_it = written.iter().filter(|(drive, ..)| *drive == AWAY).count();
        assert!(to_it < 200, "{layout}: {to_it} writes to {}", AWAY);
        let log = seen.log.borrow();
        let reads = log.iter().filter(|(_, op)| *op == Operation::Read).count();
        // Of eight leaves three have changed, one of them by what came last before it was away.
        let slots = SLOTS * 16 / layout.default_grain().granules();
        let all = slots as usize * layout.drives();
        assert!(reads < all / 2, "{layout}: {reads} reads of {all}");
        drop((written, log));
        bench.manage(Manage::Drain).unwrap();
        assert!(!bench.engine.status().degraded, "{layout}");
        check(&mut bench, volume);
        all_is_there_twice(&bench.media, volume);
    }
}

#[test]
fn it_counts_again_after_any_crash_only_with_all_that_is_newer() {
    for layout in LAYOUTS {
        let (media, volume) = left_behind(layout);
        let (mut crashes, mut done) = (0, false);
        for budget in (0..).step_by(61) {
            let copies = copies(&media);
            let mut bench = Bench::open(copies.clone());
            bench.budget = Some(budget);
            bench.run(Event::Tick);
            let left = bench.budget;
            drop(bench);
            crashes += 1;
            let mut bench = Bench::open_with(copies, &degraded()).expect("import after a crash");
            if is_back(&bench) {
                bench.manage(Manage::Drain).unwrap();
                all_is_there_twice(&bench.media, volume);
            }
            let mut bench = bench.restart();
            bench.run(Event::Tick);
            assert!(is_back(&bench), "{layout}, {budget}");
            if std::mem::replace(&mut done, left > Some(0)) {
                break;
            }
        }
        assert!(crashes > 4, "{layout}: {crashes}");
    }
}

#[test]
fn a_drive_that_has_failed_is_readmitted_in_service() {
    for layout in LAYOUTS {
        let (mut bench, volume) = full(layout);
        let media = std::mem::take(&mut bench.media);
        let mut bench = Bench::open_with(media, &degraded()).expect("import");
        bench.seen.faults[AWAY].set(Some((|_| true, ErrorKind::Timeout)));
        change(&mut bench, volume);
        assert!(!is_back(&bench));
        bench.seen.faults[AWAY].set(None);
        bench.readmit(AWAY).expect("readmitted");
        assert!(is_back(&bench));
        let again = bench.readmit(AWAY).expect_err("twice").to_string();
        assert!(again.contains("in service"), "{again}");
        bench.manage(Manage::Drain).unwrap();
        assert!(!bench.engine.status().degraded, "{layout}");
        check(&mut bench, volume);
        all_is_there_twice(&bench.media, volume);
    }
}

/// What the drive has in use is counted a part at a time. Segments are given back meanwhile: in debug builds the engine
/// compares with what it counts at once.
#[test]
fn segments_go_while_those_of_a_returning_drive_are_counted() {
    let (bench, volume) = full_of(LAYOUTS[0], 2);
    let whole = bench.media;
    // The first and the last segments.
    let given = [0, SLOTS - 40];
    let mut is_over = false;
    for turns in (0..).step_by(2) {
        let mut bench = Bench::open_with(copies(&whole), &degraded()).expect("import");
        bench.seen.faults[AWAY].set(Some((|_| true, ErrorKind::Timeout)));
        change(&mut bench, volume);
        bench.seen.faults[AWAY].set(None);
        let what = bench.readmission(AWAY);
        bench.post(Event::Manage { id: 9000, what });
        let mut answers = Answers::default();
        for _ in 0..turns {
            bench.turn(&mut answers);
        }
        let was_back = std::mem::replace(&mut is_over, is_back(&bench));
        for first in given {
            bench.begin(volume, deallocate(first * 16, 40 * 16));
        }
        while bench.turn(&mut answers) {}
        assert!(is_back(&bench), "{turns} turns");
        assert!(bench.engine.counters().released > 20);
        for at in given.into_iter().flat_map(|first| first..first + 40) {
            assert!(bench.read(volume, at * 16, 16).unwrap() == fill(16, 0));
            bench.write(volume, at * 16, &slot(at, 0)).unwrap();
        }
        if turns % 16 == 0 {
            change(&mut bench, volume);
            check(&mut bench, volume);
            all_is_there_twice(&bench.media, volume);
        }
        if was_back {
            break;
        }
    }
}

fn copies(media: &[Medium]) -> Vec<Medium> {
    let copies = media.iter().map(|one| Medium::new(one.as_ref().clone()));
    copies.collect()
}

fn deallocate(first: u64, granules: u32) -> Request {
    Request {
        tag: 1,
        op: Operation::Deallocate,
        range: BlockRange::new(first, granules),
        buffer: None,
    }
}

#[test]
fn one_that_fails_on_its_way_back_is_out() {
    let (mut bench, volume) = full(LAYOUTS[0]);
    let media = std::mem::take(&mut bench.media);
    let mut bench = Bench::open_with(media, &degraded()).expect("import");
    bench.seen.faults[AWAY].set(Some((|_| true, ErrorKind::Timeout)));
    change(&mut bench, volume);
    let fails: [crate::common::Rule; 2] = [
        |op| matches!(op, Operation::Write(_)),
        |op| op == Operation::Flush,
    ];
    for fails in fails {
        bench.seen.faults[AWAY].set(Some((fails, ErrorKind::Media)));
        let why = bench.readmit(AWAY).expect_err("it fails").to_string();
        assert!(why.contains("on its way back"), "{why}");
        assert!(!is_back(&bench) && !bench.engine.status().rebuilding);
        // The next walk is not cut with this one.
        bench.manage(Manage::Scrub).expect("a whole scrub");
    }
    check(&mut bench, volume);
    bench.seen.faults[AWAY].set(None);
    bench.readmit(AWAY).expect("the next time");
    assert!(is_back(&bench));
    all_is_there_twice(&bench.media, volume);
}

#[test]
fn a_drive_that_was_removed_or_went_on_alone_is_not_readmitted() {
    let mut bench = Bench::new(3, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(64, 1)).unwrap();
    bench.manage(Manage::RemoveDrive { member: AWAY }).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let why = bench.readmit(AWAY).expect_err("removed").to_string();
    assert!(why.contains("removed"), "{why}");
    let mut bench = bench.restart();
    bench.run(Event::Tick);
    assert!(!is_back(&bench));

    let (bench, volume) = full(LAYOUTS[0]);
    let media = bench.media;
    drop(Bench::open_with(vec![media[AWAY].clone()], &degraded()).expect("alone"));
    let mut bench = Bench::open_with(without(&media, AWAY), &degraded()).expect("without it");
    change(&mut bench, volume);
    let refused = Bench::try_open(media, false).err().expect("refused");
    assert!(refused.to_string().contains("separate ways"), "{refused}");
}

/// A node that remembers that the drive which was away has been removed.
#[derive(Debug)]
struct Removed;

impl NodeMemory for Removed {
    fn stored(&self, _: Uuid) -> Vec<Membership> {
        Vec::new()
    }

    fn store(&self, _: &Membership) -> Result<(), PoolError> {
        Ok(())
    }

    fn has_removed(&self, _: Uuid, drive: Uuid) -> bool {
        drive == Uuid::from_u128(100 + AWAY as u128)
    }
}

/// One that fails is replaced, and is there again after a reboot, as many are.
#[test]
fn a_drive_that_was_removed_while_it_was_out_stays_out_until_it_is_added() {
    for layout in LAYOUTS {
        let (media, volume) = left_behind(layout);
        let options = ImportOptions {
            memory: Some(Rc::new(Removed)),
            ..degraded()
        };
        let mut bench = Bench::open_with(media, &options).expect("import with it");
        bench.run(Event::Tick);
        assert!(!is_back(&bench), "{layout}");
        check(&mut bench, volume);
        bench.readmit(AWAY).expect("by order");
        assert!(is_back(&bench), "{layout}");
        bench.manage(Manage::Drain).unwrap();
        all_is_there_twice(&bench.media, volume);
    }
}

/// A drive left out before another was, which is back by now: it has not gone its own way.
#[test]
fn a_drive_knows_another_as_left_out_that_is_back() {
    let (bench, volume) = full(Layout::Mirror { copies: 3 });
    let media = bench.media;
    let mut bench = Bench::open_with(without(&media, 1), &degraded()).expect("without 1");
    bench.manage(Manage::Drain).unwrap();
    drop(bench);
    let one = Bench::open_with(vec![media[0].clone(), media[1].clone()], &degraded());
    let mut bench = one.expect("without 2");
    bench.run(Event::Tick);
    assert!(
        is_back(&bench),
        "drive 1 is back, which drive 2 knows as left out"
    );
    change(&mut bench, volume);
    drop(bench);
    let mut bench = Bench::open(media);
    bench.run(Event::Tick);
    assert!(
        bench
            .engine
            .members()
            .iter()
            .all(|one| one.state == MemberState::Active)
    );
    bench.manage(Manage::Drain).unwrap();
    let media = std::mem::take(&mut bench.media);
    let mut bench = Bench::open_with(vec![media[2].clone()], &degraded()).expect("2 alone");
    check(&mut bench, volume);
}

/// A drive joins, and the one with the lowest number leaves.
fn replace_one(bench: &mut Bench) -> usize {
    bench.add_drive(32 << 20);
    let members = bench.engine.members();
    let is_active = |member: &Member| member.state == MemberState::Active;
    let member = members.iter().position(is_active).unwrap();
    bench.manage(Manage::RemoveDrive { member }).unwrap();
    bench.manage(Manage::Drain).unwrap();
    member
}

/// More drives join than there are numbers, one in place of another.
#[test]
fn numbers_of_drives_that_are_out_are_used_again() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    for round in 0..80u64 {
        let data = fill(3, round as u8 | 1);
        bench.write(volume, round % 16, &data).unwrap();
        let member = replace_one(&mut bench);
        assert!(!bench.engine.uses(member), "round {round}");
        assert_eq!(bench.read(volume, round % 16, 3).unwrap(), data);
    }
    assert_eq!(bench.engine.members().len(), 64);
    let last = bench.read(volume, 0, 16).unwrap();
    // All drives that ever were members are given: those that are out say nothing.
    let mut bench = bench.restart();
    bench.run(Event::Tick);
    let serving = bench
        .engine
        .members()
        .iter()
        .filter(|one| one.state.in_service());
    assert_eq!(serving.count(), 2);
    assert!(bench.read(volume, 0, 16).unwrap() == last);
}

/// What the old drive answers must not be taken for the new one's, nor be waited for in vain.
#[test]
fn a_number_is_used_again_once_its_old_drive_has_answered() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    while bench.engine.members().len() < 64 {
        replace_one(&mut bench);
    }
    let number = bench
        .engine
        .next_member()
        .expect("a number of one that is out");
    let old = usize::from(number);
    let medium = bench.media.len();
    bench.add_drive(32 << 20);
    // Half of all reads are this drive's.
    for at in 0..16 {
        bench.write(volume, at * 16, &slot(at, 0)).unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    bench.seen.held.set(Some(|op| op == Operation::Read));
    for at in 0..16 {
        let buffer = bench.buffers.get(4096).expect("buffer");
        bench.begin(
            volume,
            Request::read(1, BlockRange::new(at * 16, 1), buffer),
        );
    }
    // Only those: what is read from now on is answered.
    bench.seen.held.set(Some(|_| false));
    bench.seen.broken.set(Some(medium));
    bench.write(volume, 0, &fill(1, 7)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let state = bench.engine.members()[old].state;
    assert_eq!(state, MemberState::Excluded);
    // The reads go to other copies.
    bench.pass(2_000_000_000);
    bench.manage(Manage::Repair).unwrap();
    bench.manage(Manage::Drain).unwrap();
    assert!(bench.engine.replies(old).oldest.is_some(), "it has reads");
    assert_ne!(bench.engine.next_member(), Some(number));
    bench.seen.held.set(None);
    bench.run(Event::Tick);
    assert_eq!(bench.engine.next_member(), Some(number));
}

/// Of two drives that were left out one after the other, the later one alone has what the earlier one lacks, and
/// the ring what is newer still.
#[test]
fn two_drives_that_were_left_out_one_after_the_other_come_back() {
    let layout = Layout::Mirror { copies: 2 };
    let sizes = Sizes {
        segment_slots: 4,
        ..small_sizes()
    };
    let mut bench = Bench::with_sizes(5, 40 << 20, sizes);
    let volume = bench.volume_as(SLOTS * 16, layout).unwrap();
    for at in 0..SLOTS {
        bench.write(volume, at * 16, &slot(at, 0)).unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    let media = bench.media;
    let one_away = without(&media, AWAY);
    let mut bench = Bench::open_with(one_away.clone(), &degraded()).expect("import without one");
    for at in 0..SLOTS {
        bench.write(volume, at * 16 + 5, &fill(1, 77)).unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    for at in (0..SLOTS).step_by(4) {
        bench.write(volume, at * 16 + 9, &fill(1, 99)).unwrap();
    }
    drop(bench);
    // Drive 2 is the second of those that are here: segments that both are in cannot be read.
    let two_away = without(&one_away, 1);
    drop(Bench::open_with(two_away, &degraded()).expect("import without two"));
    let mut bench = Bench::open_with(media, &degraded()).expect("import with both");
    // What the ring has is to go home at once.
    bench.manage(Manage::Drain).unwrap();
    for member in bench.engine.members() {
        assert_eq!(member.state, MemberState::Active);
    }
    for at in 0..SLOTS {
        let mut expected = slot(at, 0);
        expected[5 * 4096..6 * 4096].fill(77);
        if at % 4 == 0 {
            expected[9 * 4096..10 * 4096].fill(99);
        }
        assert!(bench.read(volume, at * 16, 16).unwrap() == expected, "{at}");
    }
}

/// Which of the changed blocks a drive that is here again lacks cannot be told while a leaf of the map cannot be read.
#[test]
fn a_drive_stays_out_while_a_leaf_of_what_it_lacks_cannot_be_read() {
    for layout in LAYOUTS {
        let (media, volume) = left_behind(layout);
        let spots = leaf_spots(&media, volume, 6);
        flip(&media, &spots);
        let mut bench = Bench::open_with(media.clone(), &degraded()).expect("import with it");
        bench.run(Event::Tick);
        assert!(!is_back(&bench), "{layout}");
        drop(bench);
        flip(&media, &spots);
        let mut bench = Bench::open_with(media, &degraded()).expect("import with it again");
        bench.run(Event::Tick);
        assert!(is_back(&bench), "{layout}");
        bench.manage(Manage::Drain).unwrap();
        check(&mut bench, volume);
        all_is_there_twice(&bench.media, volume);
    }
}

/// Of two copies each has a block that cannot be read: what is beside it is taken from the drive on its way back, too.
#[test]
fn a_bad_block_of_a_returning_drive_takes_none_along() {
    let (bench, volume) = full(LAYOUTS[0]);
    let mut bench = Bench::open_with(bench.media, &degraded()).expect("import");
    bench.seen.faults[AWAY].set(Some((|_| true, ErrorKind::Timeout)));
    change(&mut bench, volume);
    assert!(!is_back(&bench));
    bench.seen.faults[AWAY].set(None);
    let places = bench.places(&slot(206, 0)[..4096]);
    for (drive, which) in [(0, 5), (AWAY, 12)] {
        let mut blocks = places.iter().filter(|(one, _)| *one == drive);
        let bad = *blocks.nth(which).expect("a block of its first slot");
        bench.seen.unreadable.borrow_mut().insert(bad);
    }
    bench.readmit(AWAY).expect("readmitted");
    assert!(bench.seen.unreadable.borrow().is_empty(), "both are mended");
    check(&mut bench, volume);
    all_is_there_twice(&bench.media, volume);
}

/// One root was written to it when it was back, and then it is lost again.
#[test]
fn a_drive_that_is_lost_again_at_once_comes_back() {
    for layout in LAYOUTS {
        let (media, volume) = left_behind(layout);
        // Just as far as the root that says that it is back.
        let mut bench = Bench::open_with(media, &degraded()).expect("import with it");
        bench.run(Event::Tick);
        assert!(is_back(&bench), "{layout}");
        bench.seen.broken.set(Some(AWAY));
        bench.write(volume, 230 * 16, &slot(230, 3)).unwrap();
        assert!(!is_back(&bench), "{layout}");
        bench.seen.broken.set(None);
        bench.readmit(AWAY).expect("readmitted");
        assert!(is_back(&bench), "{layout}");
        bench.write(volume, 230 * 16, &slot(230, 0)).unwrap();
        bench.manage(Manage::Drain).unwrap();
        check(&mut bench, volume);
        all_is_there_twice(&bench.media, volume);
    }
}

/// A block that only the drive on its way back makes readable stays where it is: the rest of its slot is in the ring
/// until then.
#[test]
fn a_slot_with_parity_does_not_move_away_from_a_block_that_a_returning_drive_has() {
    let (bench, volume) = full(LAYOUTS[1]);
    let mut bench = Bench::open_with(bench.media, &degraded()).expect("import");
    let slots = 222..230;
    let kept = |at: u64| fill(1, at as u8);
    for at in slots.clone() {
        bench.write(volume, at * 16 + 4, &kept(at)).unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    bench.seen.faults[AWAY].set(Some((|_| true, ErrorKind::Timeout)));
    change(&mut bench, volume);
    assert!(!is_back(&bench));
    for at in slots.clone() {
        let places = bench.places(&kept(at)).into_iter();
        let here = places.filter(|(drive, _)| *drive != AWAY);
        bench.seen.unreadable.borrow_mut().extend(here);
        bench.write(volume, at * 16 + 5, &fill(1, 77)).unwrap();
    }
    let mut all = slots.clone();
    assert!(all.any(|at| bench.read(volume, at * 16 + 4, 1).is_err()));
    bench.seen.faults[AWAY].set(None);
    let back = bench.readmission(AWAY);
    for answer in bench.manage_together([Manage::Drain, back]) {
        answer.expect("done");
    }
    assert!(is_back(&bench));
    for at in slots {
        let read = bench.read(volume, at * 16 + 4, 2).expect("it is there");
        assert_eq!(read, [kept(at), fill(1, 77)].concat(), "slot {at}");
    }
}

/// A drive takes two roots while it holds back what destage writes to it, and fails then: these roots are newer than the
/// change that it lacks. It may be told to return before the round that it was written to in ends.
fn holds_back_and_returns(comes_early: bool) {
    let (mut bench, volume) = full(LAYOUTS[0]);
    let at = 210 * 16 + 5;
    bench.write(volume, at, &fill(1, 77)).unwrap();
    let is_late: fn(Operation) -> bool = |op| op == Operation::Write(Durability::Cached);
    bench.seen.held.set(Some(is_late));
    let what = Manage::Drain;
    bench.run(Event::Manage { id: 1000, what });
    for drives in [0, 1] {
        let reserve = Reserve::Drives(drives);
        bench
            .manage(Manage::SetReserve { reserve })
            .expect("a root");
    }
    bench.seen.faults[AWAY].set(Some((is_late, ErrorKind::Media)));
    bench.seen.held.set(None);
    bench.seen.stuck.set(comes_early.then_some(0));
    let (_, mut settled) = bench.run(Event::Tick);
    assert_eq!(settled.is_empty(), comes_early);
    assert!(!is_back(&bench));
    bench.seen.faults[AWAY].set(None);
    let what = bench.readmission(AWAY);
    settled.extend(bench.run(Event::Manage { id: 1001, what }).1);
    assert_eq!(is_back(&bench), !comes_early);
    bench.seen.stuck.set(None);
    settled.extend(bench.run(Event::Tick).1);
    assert!(settled.iter().all(|(_, answer)| answer.is_ok()) && settled.len() == 2);
    assert!(is_back(&bench));
    bench.manage(Manage::Drain).unwrap();
    let alone = Bench::open_with(without(&bench.media, 0), &degraded());
    let read = alone.expect("import of it alone").read(volume, at, 1);
    assert_eq!(read.expect("it has it"), fill(1, 77));
}

#[test]
fn a_drive_that_has_held_back_what_went_home_gets_it_when_it_returns() {
    holds_back_and_returns(false);
}

#[test]
fn a_drive_that_returns_within_the_round_gets_what_it_has_held_back() {
    holds_back_and_returns(true);
}

/// A walk fills columns on a drive that fails meanwhile, and is here again before the walk is over: it waits for its
/// turn, and what the walk still writes to it is no failure.
#[test]
fn a_drive_that_a_walk_fills_waits_for_its_turn_to_come_back() {
    let options = ImportOptions {
        repair_after: Duration::ZERO,
        ..degraded()
    };
    let mut came_back = 0;
    for turns in 10..20 {
        let mut bench = Bench::with_sizes(
            5,
            40 << 20,
            Sizes {
                segment_slots: 64,
                ..small_sizes()
            },
        );
        let volume = bench
            .volume_as(SLOTS * 16, Layout::Mirror { copies: 3 })
            .unwrap();
        for at in 0..SLOTS {
            bench.write(volume, at * 16, &slot(at, 0)).unwrap();
        }
        bench.manage(Manage::Drain).unwrap();
        let mut bench = Bench::open_with(std::mem::take(&mut bench.media), &options).expect("all");
        bench.seen.faults[0].set(Some((|_| true, ErrorKind::Timeout)));
        let request = bench.request(0, &slot(0, 0));
        bench.begin(volume, request);
        let mut answers = Answers::default();
        while !bench.engine.is_rebuilding() && bench.turn(&mut answers) {}
        for _ in 0..turns {
            bench.turn(&mut answers);
        }
        for drive in 1..5 {
            bench.seen.faults[drive].set(Some((
                |op| matches!(op, Operation::Write(_)),
                ErrorKind::Media,
            )));
            let is_in = |bench: &Bench| bench.engine.members()[drive].state == MemberState::Active;
            for _ in 0..4 {
                bench.turn(&mut answers);
            }
            bench.seen.faults[drive].set(None);
            if is_in(&bench) {
                continue;
            }
            let was_rebuilding = bench.engine.is_rebuilding();
            let wish = bench.readmission(drive);
            match bench.manage(wish) {
                Ok(_) => came_back += u32::from(was_rebuilding),
                Err(why) => assert!(
                    !why.to_string().contains("on its way back"),
                    "{turns}: {why}"
                ),
            }
            break;
        }
    }
    assert!(came_back > 3);
}
