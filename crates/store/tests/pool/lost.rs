//! What no copy is left of: it is an error where it was, and everything else goes on.

use crate::common::{Bench, Medium, Spot, fill, flip, leaf_spots};
use std::cell::RefCell;
use std::rc::Rc;

use ashlar_block::{ErrorKind, IoError};
use ashlar_store::{ImportOptions, Layout, LostBlocks, Manage, Managed, PoolError};

/// Flips a bit in all copies of the first leaf of a volume; says where they are.
fn spoil_leaf(bench: &Bench, volume: u32) -> Vec<Spot> {
    let spots = leaf_spots(&bench.media, volume, 0);
    flip(&bench.media, &spots);
    spots
}

/// Spoils all copies of these bytes of a block, wherever it lies.
fn spoil_block(bench: &Bench, bytes: &[u8]) {
    let places = bench.places(bytes);
    assert!(!places.is_empty());
    for (drive, block) in places {
        bench.media[drive].borrow_mut()[block as usize * 4096] ^= 1;
    }
}

fn lost(bench: &Bench) -> Vec<LostBlocks> {
    bench.engine.status().lost
}

fn is_corrupt(result: Result<Vec<u8>, IoError>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Corrupt)
}

/// A pool with two volumes whose leaves are not in memory.
fn with_two_volumes() -> (Bench, u32, u32) {
    let mut bench = Bench::new(2, 32 << 20);
    let (one, other) = (bench.volume(1024, 2), bench.volume(512, 2));
    bench.write(one, 0, &fill(16, 1)).unwrap();
    bench.write(other, 0, &fill(16, 2)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    (bench.restart(), one, other)
}

fn whole_leaf(volume: u32) -> LostBlocks {
    LostBlocks {
        volume,
        first: 0,
        blocks: 512,
        lost: 512,
    }
}

#[test]
fn a_lost_leaf_makes_errors_of_its_blocks_and_nothing_else_stops() {
    let (mut bench, one, other) = with_two_volumes();
    assert_eq!(bench.read(other, 0, 16).unwrap(), fill(16, 2));
    spoil_leaf(&bench, one);
    assert!(is_corrupt(bench.read(one, 3, 1)));
    assert_eq!(lost(&bench), [whole_leaf(one)]);
    assert_eq!(bench.read(one, 512, 1).unwrap(), fill(1, 0), "another leaf");
    assert_eq!(bench.read(other, 0, 16).unwrap(), fill(16, 2));
    bench.write(other, 3, &fill(1, 3)).unwrap();
    // What is written is there again; its slot's other blocks are not.
    bench.write(one, 3, &fill(1, 4)).unwrap();
    bench.write(one, 16, &fill(16, 5)).unwrap();
    assert_eq!(bench.read(one, 3, 1).unwrap(), fill(1, 4));
    bench.manage(Manage::Drain).unwrap();
    let rest = LostBlocks {
        lost: 512 - 17,
        ..whole_leaf(one)
    };
    assert_eq!(lost(&bench), [rest]);
    let mut bench = bench.restart();
    assert_eq!(lost(&bench), [rest], "by its table");
    assert_eq!(bench.read(one, 3, 1).unwrap(), fill(1, 4));
    assert_eq!(bench.read(one, 16, 16).unwrap(), fill(16, 5));
    assert!(is_corrupt(bench.read(one, 2, 1)), "beside what was written");
    assert!(is_corrupt(bench.read(one, 100, 1)));
    assert_eq!(bench.read(other, 3, 1).unwrap(), fill(1, 3));
    let found = bench.manage(Manage::Scrub).unwrap();
    assert!(
        matches!(found, Managed::Scrubbed { lost: 495 }),
        "{found:?}"
    );
}

#[test]
fn lost_blocks_that_are_cleared_read_as_zeroes() {
    let (mut bench, one, _) = with_two_volumes();
    spoil_leaf(&bench, one);
    assert!(is_corrupt(bench.read(one, 3, 1)));
    bench.clear(one, 2, 20).unwrap();
    assert_eq!(bench.read(one, 2, 20).unwrap(), fill(20, 0));
    assert!(is_corrupt(bench.read(one, 1, 1)));
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert_eq!(bench.read(one, 2, 20).unwrap(), fill(20, 0));
    assert!(is_corrupt(bench.read(one, 1, 1)));
    bench.clear(one, 0, 512).unwrap();
    assert_eq!(bench.read(one, 0, 512).unwrap(), fill(512, 0));
    assert_eq!(lost(&bench), []);
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert_eq!(bench.read(one, 0, 512).unwrap(), fill(512, 0));
    assert_eq!(lost(&bench), []);
}

/// Until something in it changes, nothing on the drives says that it is lost.
#[test]
fn a_leaf_that_could_not_be_read_for_a_while_is_found_again() {
    let (mut bench, one, _) = with_two_volumes();
    spoil_leaf(&bench, one);
    assert!(is_corrupt(bench.read(one, 3, 1)));
    bench.pass(60_000_000_000);
    // The same bit again: it is as it was.
    spoil_leaf(&bench, one);
    let mut bench = bench.restart();
    assert_eq!(lost(&bench), []);
    assert_eq!(bench.read(one, 0, 16).unwrap(), fill(16, 1));
}

/// A scrub writes the whole map anew, but not what stands for a leaf that only could not be read: neither where it
/// meets that itself, nor where a read has before.
#[test]
fn a_scrub_writes_nothing_for_a_leaf_that_could_not_be_read_for_a_while() {
    for is_met_before in [false, true] {
        let (mut bench, one, other) = with_two_volumes();
        let spots = spoil_leaf(&bench, one);
        if is_met_before {
            assert!(is_corrupt(bench.read(one, 3, 1)));
        }
        let found = bench.manage(Manage::Scrub).unwrap();
        assert!(
            matches!(found, Managed::Scrubbed { lost: 512 }),
            "{found:?}"
        );
        flip(&bench.media, &spots);
        let mut bench = bench.restart();
        assert_eq!(lost(&bench), []);
        assert_eq!(bench.read(one, 0, 16).unwrap(), fill(16, 1));
        assert_eq!(bench.read(other, 0, 16).unwrap(), fill(16, 2));
        let found = bench.manage(Manage::Scrub).unwrap();
        assert!(matches!(found, Managed::Scrubbed { lost: 0 }), "{found:?}");
    }
}

/// It looks at the leaf once more, for what has passed.
#[test]
fn a_scrub_finds_a_leaf_again_that_could_not_be_read_before() {
    let (mut bench, one, _) = with_two_volumes();
    let spots = spoil_leaf(&bench, one);
    assert!(is_corrupt(bench.read(one, 3, 1)));
    flip(&bench.media, &spots);
    let found = bench.manage(Manage::Scrub).unwrap();
    assert!(matches!(found, Managed::Scrubbed { lost: 0 }), "{found:?}");
    assert_eq!(lost(&bench), []);
    assert_eq!(bench.read(one, 0, 16).unwrap(), fill(16, 1));
}

/// The map moves from a drive that is lost, and the other copy of a leaf cannot be read just then.
#[test]
fn a_leaf_that_cannot_be_read_when_the_map_moves_stays_where_it_is() {
    let (mut bench, one, other) = with_two_volumes();
    bench.add_drive(32 << 20);
    let spots = spoil_leaf(&bench, one);
    bench.seen.faults[1].set(Some((|_| true, ErrorKind::Media)));
    bench.write(other, 3, &fill(1, 3)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    bench.pass(1_000_000_000);
    flip(&bench.media, &spots);
    let mut media = bench.media;
    media.remove(1);
    let mut bench = Bench::try_open(media, true).unwrap();
    assert_eq!(lost(&bench), []);
    assert_eq!(bench.read(one, 0, 16).unwrap(), fill(16, 1));
    bench.manage(Manage::Drain).unwrap();
    assert!(!bench.engine.status().degraded);
}

/// What only a drive has that is being emptied is not given up because the map cannot be read just then.
#[test]
fn a_drive_that_leaves_stays_until_the_map_can_be_read() {
    let mut bench = Bench::new(3, 32 << 20);
    let volume = bench.volume(512, 1);
    bench.write(volume, 0, &fill(16, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    let spots = spoil_leaf(&bench, volume);
    let member = bench.places(&fill(1, 1))[0].0;
    bench.manage(Manage::RemoveDrive { member }).unwrap();
    bench.pass(1_000_000_000);
    assert!(bench.engine.members()[member].state.in_service());
    flip(&bench.media, &spots);
    bench.pass(600_000_000_000);
    assert!(!bench.engine.members()[member].state.in_service());
    assert_eq!(bench.read(volume, 0, 16).unwrap(), fill(16, 1));
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 0, 16).unwrap(), fill(16, 1));
}

/// A drive that is here again lacks nothing of a block that is lost: it takes part.
#[test]
fn a_lost_block_keeps_no_drive_from_taking_part_again() {
    for layout in [
        Layout::Mirror { copies: 2 },
        Layout::Parity { data: 2, parity: 1 },
    ] {
        let (mut bench, volume) = beside_lost_blocks(layout);
        bench.seen.faults[1].set(Some((|_| true, ErrorKind::Timeout)));
        bench.write(volume, 4, &fill(1, 5)).unwrap();
        bench.manage(Manage::Drain).unwrap();
        assert!(!bench.engine.members()[1].state.in_service());
        bench.seen.faults[1].set(None);
        bench.readmit(1).expect("it lacks nothing");
        bench.manage(Manage::Drain).unwrap();
        assert_eq!(
            bench.read(volume, 3, 2).unwrap(),
            [fill(1, 4), fill(1, 5)].concat()
        );
        assert!(is_corrupt(bench.read(volume, 5, 1)));
        // What it has now is as good as what the others have, whichever is lost.
        for drive in 0..layout.drives() {
            let mut bench = Bench::try_open(copies_without(&bench, drive), true).unwrap();
            assert_eq!(
                bench.read(volume, 3, 2).unwrap(),
                [fill(1, 4), fill(1, 5)].concat(),
                "{layout} without drive {drive}"
            );
        }
    }
}

/// A volume of which everything is lost but block 3, which is in its home.
fn beside_lost_blocks(layout: Layout) -> (Bench, u32) {
    let mut bench = Bench::new(layout.drives(), 32 << 20);
    let volume = bench.volume_as(1024, layout).unwrap();
    bench.write(volume, 0, &fill(32, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    spoil_leaf(&bench, volume);
    bench.write(volume, 3, &fill(1, 4)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    (bench, volume)
}

/// What all drives but one have now.
fn copies_without(bench: &Bench, drive: usize) -> Vec<Medium> {
    let others = bench.media.iter().enumerate();
    let others = others.filter(|&(one, _)| one != drive);
    let copy = |(_, medium): (usize, &Medium)| Rc::new(RefCell::new(medium.borrow().clone()));
    others.map(copy).collect()
}

/// A block beside lost ones has the redundancy of its layout: for reads, for what its slot keeps when it moves, and for
/// repair.
#[test]
fn a_block_beside_lost_ones_outlives_a_drive() {
    let layout = Layout::Parity { data: 2, parity: 1 };
    let (bench, volume) = beside_lost_blocks(layout);
    for drive in 0..layout.drives() {
        let without = || Bench::try_open(copies_without(&bench, drive), true).unwrap();
        let mut read = without();
        assert_eq!(read.read(volume, 3, 1).unwrap(), fill(1, 4), "{drive} lost");
        assert!(is_corrupt(read.read(volume, 2, 1)));
        assert!(is_corrupt(read.read(volume, 11, 1)), "beside it in its row");

        let mut moved = without();
        moved.add_drive(32 << 20);
        moved.write(volume, 4, &fill(1, 5)).unwrap();
        moved.manage(Manage::Drain).unwrap();
        let both = [fill(1, 4), fill(1, 5)].concat();
        assert_eq!(moved.read(volume, 3, 2).unwrap(), both, "{drive} lost");

        let mut repaired = without();
        repaired.add_drive(32 << 20);
        repaired.pass(1_000_000_000);
        for other in 0..layout.drives() {
            let media = copies_without(&repaired, other);
            let mut bench = Bench::try_open(media, true).unwrap();
            let found = bench.read(volume, 3, 1).unwrap();
            assert_eq!(found, fill(1, 4), "{drive} lost, then {other}");
        }
    }
}

#[test]
fn a_volume_with_a_lost_leaf_can_be_deleted() {
    let (mut bench, one, other) = with_two_volumes();
    spoil_leaf(&bench, one);
    assert!(is_corrupt(bench.read(one, 3, 1)));
    bench.manage(Manage::DeleteVolume { volume: one }).unwrap();
    assert_eq!(lost(&bench), []);
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert_eq!(lost(&bench), []);
    assert_eq!(bench.engine.volumes().len(), 1);
    bench.write(other, 3, &fill(1, 3)).unwrap();
}

#[test]
fn a_lost_record_of_the_ring_is_a_lost_block() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 3, &fill(2, 1)).unwrap();
    // It is followed by another: no crash can have torn it.
    bench.write(volume, 40, &fill(1, 9)).unwrap();
    let mut bench = bench.restart();
    let &(drive, block) = bench.places(&fill(1, 1)).first().unwrap();
    assert_eq!(drive, 0);
    for medium in &bench.media {
        medium.borrow_mut()[(block + 1) as usize * 4096] ^= 1;
    }
    assert!(is_corrupt(bench.read(volume, 4, 1)));
    bench.manage(Manage::Drain).unwrap();
    let listed = LostBlocks {
        lost: 1,
        ..whole_leaf(volume)
    };
    assert_eq!(lost(&bench), [listed]);
    let mut bench = bench.restart();
    assert_eq!(lost(&bench), [listed]);
    assert_eq!(bench.read(volume, 3, 1).unwrap(), fill(1, 1));
    assert!(is_corrupt(bench.read(volume, 4, 1)));
    assert_eq!(bench.read(volume, 40, 1).unwrap(), fill(1, 9));
    bench.write(volume, 4, &fill(1, 7)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    assert_eq!(
        bench.read(volume, 3, 2).unwrap(),
        [fill(1, 1), fill(1, 7)].concat()
    );
    assert_eq!(lost(&bench), []);
}

fn refusal(media: Vec<Medium>) -> String {
    match Bench::open_with(media, &ImportOptions::default()) {
        Err(PoolError::Refused(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was imported"),
    }
}

fn accept(media: Vec<Medium>) -> Bench {
    let accepting = ImportOptions {
        accept_data_loss: true,
        ..ImportOptions::default()
    };
    Bench::open_with(media, &accepting).unwrap()
}

#[test]
fn an_import_goes_on_without_a_leaf_once_its_loss_is_accepted() {
    let (mut bench, one, other) = with_two_volumes();
    // The log has a change of the leaf, and homes of what the ring has are looked up there.
    bench.write(one, 64, &fill(64, 6)).unwrap();
    bench.write(one, 5, &fill(1, 3)).unwrap();
    let media = bench.media.clone();
    spoil_leaf(&bench, one);
    drop(bench);
    let why = refusal(media.clone());
    assert!(why.contains("volume v"), "{why}");
    assert!(why.contains("--accept-data-loss"), "{why}");
    let again = refusal(media.clone());
    assert_eq!(why, again, "nothing has changed");
    let mut bench = accept(media);
    assert!(is_corrupt(bench.read(one, 0, 1)));
    assert_eq!(bench.read(one, 5, 1).unwrap(), fill(1, 3));
    assert_eq!(bench.read(one, 64, 64).unwrap(), fill(64, 6));
    assert_eq!(bench.read(other, 0, 16).unwrap(), fill(16, 2));
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert!(is_corrupt(bench.read(one, 0, 1)));
    assert_eq!(bench.read(one, 5, 1).unwrap(), fill(1, 3));
    assert_eq!(bench.read(one, 64, 64).unwrap(), fill(64, 6));
    let listed = LostBlocks {
        lost: 512 - 65,
        ..whole_leaf(one)
    };
    assert_eq!(lost(&bench), [listed]);
}

#[test]
fn an_import_goes_on_without_a_record_once_its_loss_is_accepted() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 3, &fill(2, 1)).unwrap();
    bench.write(volume, 20, &fill(1, 2)).unwrap();
    bench.write(volume, 40, &fill(1, 9)).unwrap();
    spoil_block(&bench, &fill(1, 2));
    let media = bench.media;
    let why = refusal(media.clone());
    assert!(why.contains("blocks 20 to 20"), "{why}");
    assert_eq!(refusal(media.clone()), why);
    let mut bench = accept(media);
    assert_eq!(bench.read(volume, 3, 2).unwrap(), fill(2, 1));
    assert!(is_corrupt(bench.read(volume, 20, 1)));
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert!(is_corrupt(bench.read(volume, 20, 1)));
    assert_eq!(bench.read(volume, 40, 1).unwrap(), fill(1, 9));
    assert_eq!(lost(&bench)[0].lost, 1);
}

/// Copies that are bad in different places make a good one together.
#[test]
fn a_batch_is_put_together_of_what_its_copies_have() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    let both = [fill(1, 1), fill(1, 2)].concat();
    bench.write(volume, 3, &both).unwrap();
    bench.write(volume, 40, &fill(1, 9)).unwrap();
    for (drive, value) in [(0, 1), (1, 2)] {
        let places = bench.places(&fill(1, value));
        let &(_, block) = places.iter().find(|(one, _)| *one == drive).unwrap();
        bench.media[drive].borrow_mut()[block as usize * 4096] ^= 1;
    }
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 3, 2).unwrap(), both);
    assert_eq!(bench.places(&fill(1, 1)).len(), 2, "on both copies again");
}

/// The last batch may have been torn by a crash: it was never acknowledged, and is no loss.
#[test]
fn a_last_batch_without_its_data_is_the_end_of_the_log() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 3, &fill(1, 1)).unwrap();
    bench.write(volume, 20, &fill(1, 2)).unwrap();
    spoil_block(&bench, &fill(1, 2));
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 20, 1).unwrap(), fill(1, 0));
    assert_eq!(bench.read(volume, 3, 1).unwrap(), fill(1, 1));
}
