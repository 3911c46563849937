//! Volumes far larger than their pool, written a granule here and a granule there: every write takes
//! pages of the map of its own, and the map must not be what a pool dies of.

use crate::common::Bench;
use ashlar_block::ErrorKind;
use ashlar_store::{Grain, Layout, Manage};

/// Granules of a GiB.
const GIB: u64 = 1 << 18;
/// Granules between two writes: more than a leaf covers, and than a table of leaves.
const FAR: u64 = 3 << 8;
const FARTHER: u64 = 258 << 8;
/// Of a drive.
const BYTES: usize = 48 << 20;

fn granule(at: u64) -> Vec<u8> {
    (0..4096u64).map(|i| (at * 31 + i / 512) as u8).collect()
}

/// Writes a granule every `step` until the pool is full; says how many there are.
fn fill(bench: &mut Bench, volume: u32, step: u64, end: u64) -> u64 {
    let mut written = 0;
    for at in (0..end).step_by(step as usize) {
        match bench.write(volume, at, &granule(at)) {
            Ok(()) => written += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return written;
            }
        }
        if written % 64 == 0 {
            // What is new of the map goes to its pages, as an idle pool's does.
            bench.pass(4_000_000_000);
        }
    }
    panic!("{written} writes, and the pool is not full");
}

fn check(bench: &mut Bench, volume: u32, step: u64, written: u64) {
    for i in 0..written {
        let read = bench.read(volume, i * step, 1).expect("read");
        assert!(read == granule(i * step), "write {i} of {written}");
    }
}

/// Fills a pool, and goes on with everything that must still be possible then.
fn fill_and_go_on((drives, bytes): (usize, usize), layout: Layout, step: u64) -> u64 {
    let mut bench = Bench::new(drives, bytes);
    let end = 480 * GIB;
    let volume = bench
        .volume_of(end, layout, Some(Grain::K8))
        .expect("create");
    let written = fill(&mut bench, volume, step, end);
    bench.manage(Manage::Drain).expect("settle");
    check(&mut bench, volume, step, written);
    let mut bench = bench.restart();
    // Another write is refused, and one that needs nothing new is not.
    let refused = bench.write(volume, end - 1, &granule(0)).expect_err("full");
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    for i in 0..written {
        bench
            .write(volume, i * step, &granule(i * step))
            .expect("over");
    }
    bench.manage(Manage::Drain).expect("settle");
    let mut bench = bench.restart();
    check(&mut bench, volume, step, written);
    // What is given back can be written again, elsewhere.
    for i in 0..written / 2 {
        bench.clear(volume, i * step, 16).expect("clear");
    }
    let behind = end / 2 + 7 * GIB;
    for i in 0..written / 4 {
        let at = behind + i * step;
        bench.write(volume, at, &granule(at)).expect("again");
    }
    bench.manage(Manage::Drain).expect("settle");
    let mut bench = bench.restart();
    for i in 0..written / 4 {
        let at = behind + i * step;
        assert!(bench.read(volume, at, 1).expect("read") == granule(at));
    }
    written
}

#[test]
fn a_sparse_mirror_fills_its_pool() {
    let layout = Layout::Mirror { copies: 2 };
    let written = [(FAR, BYTES), (FARTHER, BYTES / 2)]
        .map(|(step, bytes)| fill_and_go_on((2, bytes), layout, step));
    println!("{written:?}");
}

#[test]
fn a_sparse_volume_with_parity_fills_its_pool() {
    let layout = Layout::Parity { data: 2, parity: 1 };
    let written = [(FAR, BYTES), (FARTHER, BYTES / 3)]
        .map(|(step, bytes)| fill_and_go_on((4, bytes), layout, step));
    println!("{written:?}");
}

fn advertised(bench: &Bench, layout: Layout) -> u64 {
    let homes = bench.engine.status().homes;
    let home = homes.iter().find(|home| home.layout == layout);
    home.map_or(0, |home| home.free_bytes + home.growth_bytes)
}

/// Whole slots of a dense volume that the pool takes.
fn dense(bench: &mut Bench, layout: Layout) -> u64 {
    let volume = bench.volume_as(1 << 15, layout).expect("create");
    let data = vec![5; 16 * 4096];
    let taken = (0..1 << 11).take_while(|slot| bench.write(volume, slot * 16, &data).is_ok());
    let taken = taken.count() as u64;
    bench
        .manage(Manage::DeleteVolume { volume })
        .expect("delete");
    bench.manage(Manage::Drain).expect("settle");
    taken
}

#[test]
fn what_a_sparse_volume_has_had_serves_a_dense_one() {
    let layout = Layout::Mirror { copies: 2 };
    let mut bench = Bench::new(2, BYTES);
    let before = (dense(&mut bench, layout), advertised(&bench, layout));
    let volume = bench
        .volume_of(480 * GIB, layout, Some(Grain::K8))
        .expect("create");
    fill(&mut bench, volume, FAR, 480 * GIB);
    bench
        .manage(Manage::DeleteVolume { volume })
        .expect("delete");
    bench.manage(Manage::Drain).expect("settle");
    for _ in 0..4 {
        bench.pass(4_000_000_000);
    }
    let after = (dense(&mut bench, layout), advertised(&bench, layout));
    // A segment or two more for the map.
    assert!(after.0 + 32 >= before.0, "{before:?} {after:?}");
    assert!(after.1 + (2 << 20) >= before.1, "{before:?} {after:?}");
}

/// A drive is lost, and then there is no room for its part of the map: the pool goes on, and when
/// there is another drive everything has its copies again.
#[test]
fn a_full_sparse_pool_survives_a_drive() {
    let layout = Layout::Mirror { copies: 2 };
    let mut bench = Bench::new(3, BYTES / 2);
    let volume = bench
        .volume_of(480 * GIB, layout, Some(Grain::K8))
        .expect("create");
    let written = fill(&mut bench, volume, FAR, 480 * GIB);
    bench.seen.faults[1].set(Some((|_| true, ErrorKind::Media)));
    for i in 0..written {
        bench
            .write(volume, i * FAR, &granule(i * FAR))
            .expect("over");
    }
    bench.manage(Manage::Drain).expect("settle");
    assert!(!bench.engine.status().members[1].in_service);
    let mut bench = bench.restart();
    check(&mut bench, volume, FAR, written);
    for i in 0..written / 2 {
        bench
            .write(volume, i * FAR, &granule(i * FAR))
            .expect("over");
    }
    bench.add_drive(BYTES);
    bench.manage(Manage::Drain).expect("settle");
    let status = bench.engine.status();
    assert!(!status.degraded, "{:?} {:?}", status.members, status.homes);
    bench.seen.faults[0].set(Some((|_| true, ErrorKind::Media)));
    check(&mut bench, volume, FAR, written);
}
