//! Volumes that change.
#![allow(clippy::unwrap_used)]

mod common;

use ashlar_block::Operation;
use ashlar_store::{Event, Manage, Managed};
use common::Bench;

fn fill(granules: usize, seed: u8) -> Vec<u8> {
    (0..granules * 4096)
        .map(|i| (i / 4096) as u8 ^ seed.wrapping_add((i % 251) as u8))
        .collect()
}

#[test]
fn what_was_cut_off_in_the_ring_does_not_come_back() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(2048, 2);
    bench.write(volume, 1024, &fill(3, 1)).unwrap();
    bench.write(volume, 1000, &fill(1, 2)).unwrap();
    let resize = |granules| Manage::ResizeVolume { volume, granules };
    // The record of the size is durable, and nothing that follows from it.
    let writes = |bench: &Bench| bench.seen.log.borrow().len();
    let before = writes(&bench);
    bench.manage_cut(resize(1001), 2);
    assert_eq!(writes(&bench), before + 2);
    let mut bench = bench.restart();
    assert_eq!(bench.engine.geometry(volume).unwrap().blocks, 1001);
    bench.manage(Manage::Settle).unwrap();
    bench.manage(resize(2048)).unwrap();
    assert_eq!(bench.read(volume, 1001, 64).unwrap(), vec![0; 64 * 4096]);
    assert_eq!(bench.read(volume, 1000, 1).unwrap(), fill(1, 2));
}

#[test]
fn a_volume_that_was_just_made_smaller_leaves_nothing_behind() {
    for restarts in [false, true] {
        let mut bench = Bench::new(2, 16 << 20);
        let volume = bench.volume(2048, 2);
        bench.write(volume, 0, &fill(32, 1)).unwrap();
        bench.write(volume, 1024, &fill(64, 1)).unwrap();
        bench.manage(Manage::Settle).unwrap();
        let granules = 20;
        let orders = [
            Manage::ResizeVolume { volume, granules },
            Manage::DeleteVolume { volume },
        ];
        if restarts {
            for what in orders {
                bench.manage_cut(what, 2);
            }
            bench = bench.restart();
        } else {
            for what in orders {
                bench.manage(what).unwrap();
            }
        }
        bench.manage(Manage::Settle).unwrap();
        let homes = bench.engine.status().homes;
        assert_eq!(homes.iter().map(|m| m.used_bytes).sum::<u64>(), 0);
    }
}

#[test]
fn one_change_of_a_size_at_a_time() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(1024, 2);
    let order = |id, granules| Event::Manage {
        id,
        what: Manage::ResizeVolume { volume, granules },
    };
    bench.seen.held.set(Some(|op| op != Operation::Read));
    bench.run(order(91, 2048));
    let (_, refused) = bench.run(order(92, 100));
    assert!(matches!(&refused[..], [(92, Err(_))]), "{refused:?}");
    let deleted = Event::Manage {
        id: 93,
        what: Manage::DeleteVolume { volume },
    };
    let (_, refused) = bench.run(deleted);
    assert!(matches!(&refused[..], [(93, Err(_))]), "{refused:?}");
    bench.seen.held.set(None);
    let (_, done) = bench.run(Event::Tick);
    assert!(matches!(&done[..], [(91, Ok(Managed::Done))]), "{done:?}");
    bench
        .manage(Manage::ResizeVolume {
            volume,
            granules: 100,
        })
        .unwrap();
}
