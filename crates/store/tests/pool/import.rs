//! Imports of pools whose drives hold less than they should, or something else.

use crate::common::{Bench, Medium, Seen, fill, small_sizes};
use ashlar_block::ErrorKind;
use ashlar_store::format::{Features, Label, MemberState};
use ashlar_store::sizes::LABEL_AT;
use ashlar_store::{Grain, ImportOptions, Layout, Manage, Sizes};

fn copy_of(medium: &Medium, at: u64, len: usize) -> Vec<u8> {
    medium.borrow()[at as usize..at as usize + len].to_vec()
}

#[test]
fn a_batch_of_one_copy_gets_its_others_even_if_it_cannot_be_read_again() {
    // Chunks of two windows of the scan.
    let sizes = Sizes {
        chunk_extents: 32,
        ..small_sizes()
    };
    let mut bench = Bench::with_sizes(2, 64 << 20, sizes);
    let layout = Layout::Mirror { copies: 2 };
    let volume = bench.volume_of(4096, layout, Some(Grain::K64)).unwrap();
    for slot in 0..15 {
        bench.write(volume, slot * 16, &fill(15, 1)).unwrap();
    }
    bench.write(volume, 1000, &fill(1, 2)).unwrap();
    bench.write(volume, 1001, &fill(1, 3)).unwrap();
    let copies = bench.root().ring.chunks[0].copies.clone();
    let [(good, begin), (bad, other)] = [0, 1].map(|i| {
        (
            usize::from(copies[i].drive),
            sizes.extent_at(copies[i].extent),
        )
    });
    let media = bench.media;
    // The last batch is in the first window as a whole. In the place of it the other copy has what an
    // older lap has left, a batch that reaches into the next window. There the good copy has a block that
    // cannot be read, which nothing needs.
    let last = 968 << 10;
    let old = copy_of(&media[bad], other, 4096);
    assert_eq!(copy_of(&media[good], begin + last, 4)[..3], *b"ALB");
    let at = (other + last) as usize;
    media[bad].borrow_mut()[at..at + 4096].copy_from_slice(&old);
    let seen = Seen::default();
    let block = (begin + (1100 << 10)) / 4096;
    seen.unreadable.borrow_mut().insert((good, block));
    Bench::open_seen(media.clone(), &ImportOptions::default(), seen).expect("import");
    // Then the good copy is gone.
    let mut bench = Bench::try_open(vec![media[bad].clone()], true).expect("import of the other");
    assert_eq!(bench.read(volume, 1001, 1).unwrap(), fill(1, 3));
    assert_eq!(bench.read(volume, 1000, 1).unwrap(), fill(1, 2));
}

#[test]
fn a_drive_that_never_joined_says_nothing_about_the_one_in_its_place() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(3, 1)).unwrap();
    // The process dies between the label and the member; another drive, a smaller one, joins.
    let stranger = bench.enlist_only(48 << 20);
    bench.add_drive(24 << 20);
    let mut media = vec![stranger];
    media.extend(bench.media);
    let mut bench = Bench::try_open(media, false).expect("import");
    assert_eq!(bench.engine.members().len(), 3);
    assert_eq!(bench.read(volume, 0, 3).unwrap(), fill(3, 1));
}

#[test]
fn a_label_that_has_rotted_is_written_again() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(3, 1)).unwrap();
    let media = bench.media;
    let flip = |at: u64| media[1].borrow_mut()[at as usize + 200] ^= 4;
    flip(LABEL_AT[0]);
    let seen = Seen::default();
    let block = LABEL_AT[1] / 4096;
    seen.unreadable.borrow_mut().insert((0, block));
    let bench = Bench::open_seen(media.clone(), &ImportOptions::default(), seen.clone());
    let status = bench.expect("import").engine.status();
    let bad: Vec<u64> = status.members.iter().map(|one| one.bad_copies).collect();
    assert_eq!((bad, status.counters.repaired), (vec![1, 1], 2));
    assert!(seen.unreadable.borrow().is_empty());
    assert_eq!(
        copy_of(&media[1], LABEL_AT[0], 4096),
        copy_of(&media[1], LABEL_AT[1], 4096)
    );
    // So the other copy may rot, too.
    flip(LABEL_AT[1]);
    let mut bench = Bench::try_open(media, false).expect("import");
    assert_eq!(bench.read(volume, 0, 3).unwrap(), fill(3, 1));
}

#[test]
fn what_a_crash_has_left_to_be_done_begins_by_itself() {
    // The process dies when it is durable that a drive leaves, and nothing more.
    let cut = |budget| {
        let mut bench = Bench::new(3, 32 << 20);
        let volume = bench.volume(512, 2);
        bench.write(volume, 0, &fill(64, 1)).unwrap();
        bench.manage(Manage::Drain).unwrap();
        bench.manage_cut(Manage::RemoveDrive { member: 0 }, budget);
        bench.restart()
    };
    let leaves = |bench: &Bench| bench.engine.members()[0].state == MemberState::Leaving;
    let mut left = (1..100).map(cut).filter(leaves);
    let mut bench = left.next().expect("a crash in time");
    assert!(bench.engine.next_deadline().is_some());
    bench.pass(0);
    assert!(!bench.engine.members()[0].state.in_service());
}

#[test]
fn labels_of_newer_programs_and_of_drives_left_out_stay_as_they_are() {
    let mut bench = Bench::new(3, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.seen.faults[2].set(Some((|_| true, ErrorKind::Media)));
    bench.manage(Manage::Scrub).unwrap();
    bench.write(volume, 0, &fill(16, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    assert!(!bench.engine.status().members[2].in_service);
    let media = bench.media;
    media[2].borrow_mut()[LABEL_AT[0] as usize + 200] ^= 4;
    let newer = copy_of(&media[1], LABEL_AT[0], 4096);
    let newer = Label {
        features: Features::of_bits(1 << 5),
        ..Label::decode(&newer).unwrap().unwrap()
    };
    let at = LABEL_AT[0] as usize;
    media[1].borrow_mut()[at..at + 4096].copy_from_slice(&newer.encode());
    let before: Vec<Vec<u8>> = media
        .iter()
        .map(|medium| copy_of(medium, LABEL_AT[0], 4096))
        .collect();
    let bench = Bench::try_open(media.clone(), false).expect("import");
    assert_eq!(bench.engine.counters().bad_copies, 0);
    for (medium, before) in media.iter().zip(before) {
        assert!(copy_of(medium, LABEL_AT[0], 4096) == before);
    }
}

/// The other copy of the label is good, and the drive's content is needed.
#[test]
fn a_label_that_cannot_be_written_again_is_no_reason_to_refuse_a_pool() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(64, 2);
    bench.write(volume, 0, &fill(1, 1)).unwrap();
    let media = bench.media;
    for at in LABEL_AT {
        let label = copy_of(&media[1], at, 4096);
        media[1].borrow_mut()[at as usize] ^= 1;
        let seen = Seen::default();
        seen.unwritable.borrow_mut().insert((1, at / 4096));
        let options = ImportOptions::default();
        let mut bench = Bench::open_seen(media.clone(), &options, seen).expect("import");
        let states = bench.engine.members().iter().map(|member| member.state);
        assert_eq!(states.collect::<Vec<_>>(), [MemberState::Active; 2]);
        let counters = bench.engine.counters();
        assert_eq!((counters.bad_copies, counters.repaired), (1, 0));
        assert_eq!(bench.read(volume, 0, 1).unwrap(), fill(1, 1));
        drop(bench);
        // Where it can be, it is.
        let bench = Bench::open(media.clone());
        let counters = bench.engine.counters();
        assert_eq!((counters.bad_copies, counters.repaired), (1, 1));
        assert_eq!(copy_of(&media[1], at, 4096), label);
    }
}

/// Two drives have gone separate ways, and one of them is added to the other anew: what it had appended to
/// its logs lies where the pool's logs get their new copies.
#[test]
fn a_drive_that_went_its_own_way_brings_nothing_of_it_back() {
    for imports in 1..4 {
        let mut bench = Bench::new(2, 16 << 20);
        let volume = bench.volume(512, 2);
        bench.manage(Manage::Drain).unwrap();
        let [one, other] = [0, 1].map(|i| vec![bench.media[i].clone()]);
        drop(bench);
        for _ in 0..imports {
            let mut bench = Bench::try_open(other.clone(), true).expect("the other");
            for at in 0..200 {
                bench.write(volume, at, &fill(1, 2)).unwrap();
            }
        }
        let mut bench = Bench::try_open(one, true).expect("the one");
        bench.add_medium(other[0].clone());
        bench.manage(Manage::Drain).unwrap();
        for at in 0..20 {
            bench.write(volume, at, &fill(1, 3)).unwrap();
            let media = bench.media.clone();
            bench = Bench::try_open(media, false).unwrap_or_else(|error| {
                panic!("after {imports} imports of the other and {at} writes: {error}")
            });
        }
        assert_eq!(bench.read(volume, 7, 1).unwrap(), fill(1, 3));
    }
}

/// What a lost drive had free is not free: writes of a volume of one copy go to the drive that is there.
#[test]
fn a_pool_without_a_drive_puts_nothing_there() {
    for (written, gone) in (1..34).flat_map(|written| [(written, 0), (written, 1)]) {
        let mut bench = Bench::new(2, 32 << 20);
        let [alone, mirrored] = [1, 2].map(|copies| bench.volume(2048, copies));
        for slot in 0..written {
            bench.write(alone, slot * 16, &fill(16, 1)).unwrap();
        }
        bench.manage(Manage::Drain).unwrap();
        let mut bench = Bench::try_open(vec![bench.media[1 - gone].clone()], true).unwrap();
        for slot in 40..100 {
            // As a whole, and a part that has to go home.
            bench.write(alone, slot * 16, &fill(16, 2)).unwrap();
            bench.write(alone, slot * 16, &fill(3, 3)).unwrap();
            bench.write(mirrored, slot * 16, &fill(3, 4)).unwrap();
        }
        bench.manage(Manage::Drain).unwrap();
        for slot in 40..100 {
            assert_eq!(bench.read(alone, slot * 16, 3).unwrap(), fill(3, 3));
            assert_eq!(bench.read(mirrored, slot * 16, 3).unwrap(), fill(3, 4));
        }
    }
}
