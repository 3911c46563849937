//! A block that cannot be read takes nothing beside it along: not in a scrub, not when its drive leaves.

use crate::common::Bench;
use crate::common::model::GRANULES;
use ashlar_store::{Grain, Layout, Manage, Managed};

/// A slot of 64 KiB, each granule another.
fn slot() -> Vec<u8> {
    (0..16 * 4096).map(|i: u32| (i >> 12) as u8 + 1).collect()
}

/// Every drive and block that holds this granule of a slot.
fn places(bench: &Bench, granule: usize) -> Vec<(usize, u64)> {
    bench.places(&slot()[granule * 4096..(granule + 1) * 4096])
}

fn spoil(bench: &Bench, place: (usize, u64)) {
    bench.seen.unreadable.borrow_mut().insert(place);
}

fn scrub(bench: &mut Bench) -> u64 {
    match bench.manage(Manage::Scrub) {
        Ok(Managed::Scrubbed { lost }) => lost,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_scrub_mends_what_each_copy_lacks_from_the_other() {
    for layout in [
        Layout::Mirror { copies: 2 },
        Layout::Parity { data: 2, parity: 1 },
    ] {
        let mut bench = Bench::new(layout.drives(), 32 << 20);
        let volume = bench.volume_of(GRANULES, layout, Some(Grain::K64));
        let volume = volume.expect("create");
        bench.write(volume, 0, &slot()).expect("write");
        bench.manage(Manage::Drain).expect("settle");
        // Different granules of different drives; with parity, of different rows.
        let one = places(&bench, 0)[0];
        let other = places(&bench, 13).into_iter().find(|at| at.0 != one.0);
        spoil(&bench, one);
        spoil(&bench, other.expect("another drive"));
        assert_eq!(scrub(&mut bench), 0, "{layout}");
        assert_eq!(bench.engine.counters().repaired, 2, "{layout}");
        assert!(bench.seen.unreadable.borrow().is_empty(), "{layout}");
        assert!(bench.read(volume, 0, 16).expect("read") == slot());
    }
}

#[test]
fn a_drive_that_leaves_takes_only_what_it_cannot_read() {
    let mut bench = Bench::new(3, 32 << 20);
    let layout = Layout::Mirror { copies: 1 };
    let volume = bench.volume_of(GRANULES, layout, None).expect("create");
    bench.write(volume, 0, &slot()).expect("write");
    bench.manage(Manage::Drain).expect("settle");
    let (member, block) = places(&bench, 7)[0];
    spoil(&bench, (member, block));
    bench
        .manage(Manage::RemoveDrive { member })
        .expect("remove");
    for granule in (0..16).filter(|&granule| granule != 7) {
        let read = bench
            .read(volume, granule, 1)
            .expect("a granule that was good");
        assert_eq!(read, vec![granule as u8 + 1; 4096]);
    }
    bench
        .read(volume, 7, 1)
        .expect_err("what is lost is an error");
}
