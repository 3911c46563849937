//! A crash at the writes and flushes of workloads in which drives go: they die, are missing after the
//! crash, rot, or are taken out; and a second crash while what they held is made again.
//!
//! Here a sample, spread over all of them. With `ASHLAR_SOAK=1` (`scripts/soak.sh`) every crash is
//! tried, and every second one.

use ashlar_sim::engine::{Counts, Grain, Layout, Sweep, Work, run_crashes};

const fn mirror(copies: u8) -> Layout {
    Layout::Mirror { copies }
}

const fn parity(data: u8, parity: u8) -> Layout {
    Layout::Parity { data, parity }
}

/// A sample of a workload's crashes: every `step`th, and after each every `stride`th second one, with
/// all the drives there are, and with one missing.
fn sample(work: Work, layout: Layout, spare: usize, step: u64, stride: u64) -> Sweep {
    Sweep {
        spare,
        step,
        stride,
        missing_stride: Some(stride),
        ..Sweep::every(work, layout)
    }
}

fn tried(sample: Sweep) -> Counts {
    let soak = std::env::var_os("ASHLAR_SOAK").is_some();
    let all = Sweep {
        step: 1,
        stride: 1,
        missing_stride: sample.missing_stride.map(|_| 1),
        ..sample
    };
    let counts = run_crashes(if soak { &all } else { &sample });
    let counts = counts.unwrap_or_else(|(case, what)| panic!("{case}: {what}"));
    assert!(counts.changes >= 60, "{sample:?}: {counts:?}");
    assert!(
        counts.recoveries >= counts.changes / sample.step,
        "{counts:?}"
    );
    counts
}

#[test]
fn a_drive_dies_and_is_made_again() {
    for (layout, drives) in [(mirror(2), 3), (parity(2, 1), 4)] {
        for dies in 0..drives {
            let sample = sample(Work::Loss, layout, 1, 17, 41);
            tried(Sweep { dies, ..sample });
        }
    }
}

#[test]
fn a_drive_dies_and_another_is_missing() {
    for (layout, spare) in [(mirror(3), 1), (parity(2, 2), 1), (mirror(3), 0)] {
        let counts = tried(sample(Work::Loss, layout, spare, 23, 97));
        assert!(counts.missing > 0, "{counts:?}");
    }
}

#[test]
fn a_drive_is_missing_and_another_takes_its_place() {
    let small = Sweep {
        grain: Some(Grain::K8),
        ..sample(Work::Data, mirror(2), 2, 19, 89)
    };
    let samples = [
        sample(Work::Data, mirror(2), 2, 19, 89),
        sample(Work::Data, mirror(3), 1, 29, 97),
        sample(Work::Data, parity(2, 1), 1, 29, 97),
        small,
    ];
    for sample in samples {
        let counts = tried(sample);
        assert!(counts.missing > 0, "{counts:?}");
    }
}

#[test]
fn a_drive_is_missing_with_none_to_spare() {
    for layout in [mirror(2), mirror(3), parity(3, 1)] {
        let counts = tried(sample(Work::Data, layout, 0, 23, 61));
        assert!(counts.missing > 0, "{counts:?}");
    }
}

#[test]
fn a_drive_is_taken_out() {
    for (layout, spare) in [(mirror(2), 1), (mirror(2), 2), (parity(2, 1), 1)] {
        for dies in [0, 1, 2] {
            let sample = sample(Work::Leave, layout, spare, 17, 41);
            tried(Sweep { dies, ..sample });
        }
    }
}

#[test]
fn a_drive_is_replaced() {
    for (layout, dies) in [(mirror(2), 0), (mirror(2), 1), (parity(2, 1), 1)] {
        let sample = sample(Work::Replace, layout, 0, 17, 41);
        tried(Sweep { dies, ..sample });
    }
}

/// Of these `tests/engine.rs` tries more, and only with `ASHLAR_SOAK=1` every one is tried. No drive is missing.
#[test]
fn slots_move_between_homes() {
    let down = sample(Work::Tier, parity(2, 1), 0, 41, 101);
    let up = Sweep {
        grain: Some(Grain::K8),
        ..sample(Work::Promote, mirror(2), 0, 53, 101)
    };
    for sample in [down, up] {
        let counts = tried(Sweep {
            missing_stride: None,
            ..sample
        });
        assert!(counts.moves, "nothing has moved: {counts:?}");
    }
}

#[test]
fn rot_is_mended() {
    for layout in [mirror(2), mirror(3), parity(2, 1)] {
        tried(sample(Work::Scrub, layout, 0, 7, 41));
    }
}
