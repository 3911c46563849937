//! Space that one layout has used serves another once it is given up.

use crate::common::Bench;
use ashlar_block::ErrorKind;
use ashlar_store::{Layout, Manage};

const SLOT: usize = 16;

fn fill(value: u8) -> Vec<u8> {
    vec![value; SLOT * 4096]
}

fn advertised(bench: &Bench, layout: Layout) -> u64 {
    let homes = bench.engine.status().homes;
    let home = homes.iter().find(|home| home.layout == layout);
    home.map_or(0, |home| {
        (home.used_bytes + home.free_bytes + home.growth_bytes) / (64 << 10)
    })
}

/// Makes a volume and writes as many slots of it as the pool has promised, and until it is full.
fn fill_up(bench: &mut Bench, layout: Layout) -> (u32, u64) {
    let promised = advertised(bench, layout);
    let volume = bench.volume_as(1 << 16, layout).expect("create");
    let mut slots = 0;
    loop {
        match bench.write(volume, slots * SLOT as u64, &fill(slots as u8)) {
            Ok(()) => slots += 1,
            Err(error) if error.kind() == ErrorKind::NoSpace => break,
            Err(error) => panic!("{error}"),
        }
    }
    // The pool's own map may take a segment more on the way.
    assert!(
        slots + 16 >= promised,
        "{layout}: {slots} of {promised} slots"
    );
    for slot in (0..slots).step_by(7) {
        let read = bench.read(volume, slot * SLOT as u64 + 3, 1).expect("read");
        assert_eq!(read, vec![slot as u8; 4096], "{layout}: slot {slot}");
    }
    (volume, slots)
}

const MIRROR: Layout = Layout::Mirror { copies: 2 };
const PARITY: Layout = Layout::Parity { data: 2, parity: 1 };

#[test]
fn one_layout_uses_what_another_gave_up() {
    let mut bench = Bench::new(4, 24 << 20);
    let mut filled = Vec::new();
    for layout in [MIRROR, PARITY, MIRROR, PARITY] {
        let (volume, slots) = fill_up(&mut bench, layout);
        filled.push(slots);
        bench
            .manage(Manage::DeleteVolume { volume })
            .expect("delete");
        bench.manage(Manage::Drain).expect("settle");
        let status = bench.engine.status();
        let used: u64 = status.homes.iter().map(|home| home.used_bytes).sum();
        assert_eq!(used, 0);
    }
    assert!(bench.engine.counters().released > 20);
    // Nothing is lost on the way, but what the map has taken for itself.
    assert!(filled[2] + 16 >= filled[0], "{filled:?}");
    assert!(filled[3] + 16 >= filled[1], "{filled:?}");
    // And a stripe can have all of it.
    let columns = bench.engine.status().stripes.columns;
    let free = bench.engine.status().stripes.free_bytes;
    bench
        .volume_as(free / 4096, Layout::Stripe { columns })
        .expect("a stripe over everything");
}

#[test]
fn what_a_restart_finds_empty_goes_back() {
    let mut bench = Bench::new(3, 24 << 20);
    let before = advertised(&bench, PARITY);
    let (volume, _) = fill_up(&mut bench, MIRROR);
    // The process dies somewhere in the deletion.
    for budget in [3, 40, 200, 900] {
        bench.manage_cut(Manage::DeleteVolume { volume }, budget);
        bench = bench.restart();
    }
    bench.manage(Manage::Drain).expect("settle");
    bench = bench.restart();
    bench.manage(Manage::Drain).expect("settle");
    let after = advertised(&bench, PARITY);
    assert!(after + 32 >= before, "{after} of {before}");
    fill_up(&mut bench, PARITY);
}

#[test]
fn what_is_deleted_and_written_in_turn_needs_no_records() {
    let mut bench = Bench::new(3, 24 << 20);
    let volume = bench.volume(1 << 12, 2);
    for round in 0..40 {
        for slot in 0..8 {
            bench.write(volume, slot * 16, &fill(round)).expect("write");
        }
        bench.clear(volume, 0, 128).expect("clear");
    }
    assert!(bench.engine.counters().released <= 2);
}
