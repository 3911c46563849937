//! The storage engine over drives that lose power, die and lie: some seeds of every profile, a crash
//! at every write of a small workload, and what is broken on purpose.

use ashlar_sim::engine::{
    Canary, Counts, Grain, Layout, Profile, Summary, Sweep, Work, run, run_crashes, run_every_crash,
};

/// The first of these seeds that fails, and what it says.
fn first_failure(seeds: std::ops::Range<u64>, profile: Profile) -> Option<String> {
    seeds
        .into_iter()
        .find_map(|seed| Some(run(seed, &profile).err()?.to_string()))
}

#[test]
fn crashes() {
    assert_eq!(first_failure(0..150, Profile::CRASH), None);
}

/// The logs come round more than once.
const LONG: Profile = Profile {
    commands: 3000,
    crashes: 8,
    changes: 0,
    ..Profile::CRASH
};

#[test]
fn crashes_of_long_lives() {
    assert_eq!(first_failure(0..60, LONG), None);
}

#[test]
fn bit_rot() {
    assert_eq!(first_failure(0..150, Profile::BITROT), None);
}

#[test]
fn drive_loss() {
    assert_eq!(first_failure(0..150, Profile::DRIVE_LOSS), None);
}

#[test]
fn drive_swap() {
    assert_eq!(first_failure(0..150, Profile::DRIVE_SWAP), None);
}

#[test]
fn half_of_the_drives() {
    assert_eq!(first_failure(0..150, Profile::HALF), None);
}

#[test]
fn a_write_waits_for_what_overwrites_give_back() {
    // A pool without room to spare: it was refused although eighteen slots were about to be free.
    assert_eq!(first_failure(112_830..112_831, Profile::DRIVE_LOSS), None);
}

/// In every world a drive hangs: it answers much later, or never.
#[test]
fn hung_drives() {
    for profile in Profile::EVERY {
        let hangs = Profile {
            hangs: 1000,
            ..profile
        };
        assert_eq!(first_failure(1000..1050, hangs), None, "{}", profile.name);
    }
}

/// Seeds that once failed, by what they found.
#[test]
fn regressions() {
    let none = |seeds: &[u64], profile: Profile| {
        let each = seeds.iter().map(|&seed| seed..seed + 1);
        let failed: Vec<String> = each.filter_map(|one| first_failure(one, profile)).collect();
        assert_eq!(failed, [""; 0]);
    };
    // Two batches of a log in a row had rotted, in two chunks: it was taken for the log's end.
    none(&[150_000_482, 150_004_698], Profile::BITROT);
    // Slots were taken on a drive that was not there any more at the import.
    none(&[140_004_199, 140_005_391], Profile::BITROT);
    // A volume was being made when the pool stopped: no answer.
    none(&[120_000_661], Profile::BITROT);
    // A drive that had left was written a root.
    none(&[130_001_388], Profile::DRIVE_LOSS);
    // Free space was advertised that was in pieces too short for a segment.
    none(&[777_003_975], Profile::DRIVE_SWAP);
    // A write waited for a segment whose space the map had just taken: no event would ever come.
    none(&[777_018_864], Profile::CRASH);
    // What rot had taken of the only copy had moved to a hot home of two.
    none(&[771_000_725], Profile::BITROT);
    // Each slot that went home had a batch of the map log to itself, and that was full before the ring's oldest were
    // home: neither log's tail ever moved again.
    none(&[884_000_091], Profile::DRIVE_SWAP);
}

/// Every crash in a workload; how many writes and flushes it has.
fn every_crash(work: Work, layout: Layout, stride: u64) -> Counts {
    every_crash_of(work, layout, None, stride)
}

fn every_crash_of(work: Work, layout: Layout, grain: Option<Grain>, stride: u64) -> Counts {
    let counts = run_every_crash(work, layout, grain, 1, stride);
    counts.unwrap_or_else(|(case, what)| panic!("{case}: {what}"))
}

#[test]
fn a_crash_at_every_write_of_a_mirror() {
    let counts = every_crash(Work::Data, Layout::Mirror { copies: 2 }, 29);
    assert!(
        counts.changes >= 60 && counts.recoveries > 100,
        "{counts:?}"
    );
}

#[test]
fn a_crash_at_every_write_of_a_single_copy() {
    let counts = every_crash(Work::Data, Layout::Mirror { copies: 1 }, 31);
    assert!(counts.changes >= 40, "{counts:?}");
}

#[test]
fn a_crash_at_every_write_with_parity() {
    let layout = Layout::Parity { data: 2, parity: 1 };
    let counts = every_crash(Work::Data, layout, 37);
    assert!(
        counts.changes >= 80 && counts.recoveries > 100,
        "{counts:?}"
    );
}

#[test]
fn a_crash_at_every_write_with_two_columns_of_parity() {
    let layout = Layout::Parity { data: 3, parity: 2 };
    let counts = every_crash(Work::Data, layout, 101);
    assert!(counts.changes >= 80, "{counts:?}");
}

#[test]
fn a_crash_at_every_write_of_small_slots() {
    let mirror = (Layout::Mirror { copies: 2 }, Some(Grain::K8));
    let wide = (Layout::Parity { data: 4, parity: 1 }, Some(Grain::K16));
    for (layout, grain) in [mirror, wide] {
        let counts = every_crash_of(Work::Data, layout, grain, 101);
        assert!(counts.changes >= 60, "{layout}: {counts:?}");
    }
}

#[test]
fn a_crash_at_every_write_of_large_slots_with_parity() {
    let layout = Layout::Parity { data: 2, parity: 1 };
    let counts = every_crash_of(Work::Data, layout, Some(Grain::K64), 101);
    assert!(counts.changes >= 80, "{counts:?}");
}

#[test]
fn a_crash_at_every_write_of_a_stripe() {
    let counts = every_crash(Work::Data, Layout::Stripe { columns: 2 }, 31);
    assert!(counts.changes >= 30, "{counts:?}");
}

#[test]
fn a_crash_at_every_write_while_volumes_change() {
    for layout in [Layout::Mirror { copies: 2 }, Layout::Stripe { columns: 2 }] {
        let counts = every_crash(Work::Volumes, layout, 37);
        assert!(counts.changes >= 50, "{layout}: {counts:?}");
    }
}

#[test]
fn a_crash_at_every_write_while_slots_move_between_homes() {
    let sweep = Sweep {
        step: 3,
        stride: 101,
        ..Sweep::every(Work::Tier, Layout::Parity { data: 2, parity: 1 })
    };
    let counts = run_crashes(&sweep).unwrap_or_else(|(case, what)| panic!("{case}: {what}"));
    assert!(counts.moves, "nothing has moved: {counts:?}");
    assert!(counts.changes >= 80, "{counts:?}");
}

#[test]
fn a_crash_at_every_write_while_reads_bring_slots_to_faster_drives() {
    let sweep = Sweep {
        step: 7,
        stride: 101,
        grain: Some(Grain::K8),
        ..Sweep::every(Work::Promote, Layout::Mirror { copies: 2 })
    };
    let counts = run_crashes(&sweep).unwrap_or_else(|(case, what)| panic!("{case}: {what}"));
    assert!(counts.moves, "nothing has moved: {counts:?}");
    assert!(counts.changes >= 80, "{counts:?}");
}

/// In every world volumes have a hot home.
const TIERED: Profile = Profile {
    tiers: 1000,
    ..Profile::CRASH
};

#[test]
fn hot_homes() {
    for profile in Profile::EVERY {
        let tiered = Profile {
            tiers: 1000,
            ..profile
        };
        assert_eq!(first_failure(2000..2050, tiered), None, "{}", profile.name);
    }
}

/// Slots do move in these worlds, both ways.
#[test]
fn slots_move_between_homes() {
    let (mut to, mut from) = (0, 0);
    for seed in 0..20 {
        let life = run(seed, &TIERED).expect("it lives");
        (to, from) = (to + life.promoted, from + life.demoted);
    }
    assert!(
        to > 1 << 20 && from > 1 << 20,
        "{to} bytes to hot homes, {from} back"
    );
}

#[test]
fn a_move_over_a_newer_write_is_noticed() {
    sings(Canary::MoveWithoutLock, TIERED);
}

#[test]
fn a_home_that_is_free_before_its_slot_has_moved_is_noticed() {
    sings(Canary::MoveFreesEarly, TIERED);
}

/// Everything that a pool has is on one drive, which rots.
const ROTTEN: Profile = Profile {
    alone: 1000,
    rot: 60,
    hangs: 0,
    orders: 0,
    ..Profile::BITROT
};

#[test]
fn pools_go_on_without_what_is_lost() {
    let lived = (3000..3100).map(|seed| run(seed, &ROTTEN).unwrap_or_else(|why| panic!("{why}")));
    let lost = lived.filter(|life| life.lost > 0).count();
    assert!(lost > 0, "no world has lost anything");
}

#[test]
fn lost_blocks_that_are_served_as_zeroes_are_noticed() {
    sings(Canary::LostReadsAsZeroes, ROTTEN);
}

/// What is broken must be noticed within a hundred seeds.
fn sings(canary: Canary, profile: Profile) {
    let noticed = first_failure(0..100, profile.with_canary(canary));
    assert!(noticed.is_some(), "{canary:?} goes unnoticed in 100 seeds");
}

#[test]
fn acknowledging_before_the_second_copy_is_noticed() {
    sings(Canary::AcknowledgeBeforeSecondCopy, Profile::DRIVE_SWAP);
}

#[test]
fn publishing_before_durable_is_noticed() {
    sings(Canary::PublishBeforeDurable, Profile::CRASH);
}

#[test]
fn a_tail_that_is_not_written_again_is_noticed() {
    let profile = Profile {
        overcommits: 0,
        changes: 0,
        ..Profile::DRIVE_SWAP
    };
    sings(Canary::NoTailRewrite, profile);
}

#[test]
fn records_dropped_before_a_flush_are_noticed() {
    // The power must fail just then.
    let restless = Profile {
        crashes: 20,
        ..Profile::CRASH
    };
    sings(Canary::TailBeforeFlush, restless);
}

#[test]
fn records_dropped_before_the_map_has_changed_are_noticed() {
    sings(Canary::TailBeforeMove, Profile::CRASH);
}

#[test]
fn a_map_log_that_passes_the_ring_is_noticed() {
    // It takes a crash between a root that drops too much and the next one.
    let profile = Profile {
        crashes: 8,
        ..Profile::CRASH
    };
    sings(Canary::MapPastRing, profile);
}

#[test]
fn homes_that_count_too_early_are_noticed() {
    sings(Canary::MoveVoidsRecords, Profile::CRASH);
}

#[test]
fn space_that_is_used_again_too_early_is_noticed() {
    sings(Canary::ReuseBeforeRoot, Profile::CRASH);
}

#[test]
fn a_bypass_that_overtakes_is_noticed() {
    sings(Canary::BypassWithoutLock, Profile::CRASH);
}

#[test]
fn a_slot_with_parity_that_counts_too_early_is_noticed() {
    sings(Canary::PlaceBeforeColumns, Profile::DRIVE_LOSS);
}

#[test]
fn places_of_a_unit_in_several_batches_are_noticed() {
    sings(Canary::SplitUnit, Profile::CRASH);
}

#[test]
fn a_segment_used_again_too_early_is_noticed() {
    let overcommitted = Profile {
        overcommits: 1000,
        changes: 12,
        crashes: 20,
        ..Profile::CRASH
    };
    sings(Canary::ReleaseBeforeDurable, overcommitted);
}

#[test]
fn extents_discarded_while_in_use_are_noticed() {
    let overcommitted = Profile {
        overcommits: 1000,
        changes: 12,
        crashes: 20,
        ..Profile::CRASH
    };
    sings(Canary::DiscardInUse, overcommitted);
}

#[test]
fn acknowledging_before_an_exclusion_is_noticed() {
    sings(Canary::AcknowledgeBeforeExclusion, Profile::DRIVE_SWAP);
}

#[test]
fn acknowledging_before_the_node_remembers_is_noticed() {
    sings(Canary::AcknowledgeBeforeRemembered, Profile::HALF);
}

/// One of two drives does go on, in some worlds and not in others.
#[test]
fn one_of_two_drives_goes_on() {
    let lives = (0..40).map(|seed| run(seed, &Profile::HALF).expect("it lives"));
    let (on, not): (Vec<Summary>, _) = lives.partition(|life| life.halves > 0);
    assert!(on.len() > 5 && !not.is_empty(), "{} of 40", on.len());
}

#[test]
fn what_is_said_again_waits_for_changes_on_their_way() {
    sings(Canary::RelogTooEarly, LONG);
}

#[test]
fn all_changes_of_a_leaf_are_said_again() {
    sings(Canary::RelogLess, LONG);
}

#[test]
fn what_is_taken_from_memory_unchecked_is_noticed() {
    sings(Canary::TrustMemory, Profile::CRASH);
}

#[test]
fn bits_that_flip_in_memory_do_no_harm() {
    for profile in [Profile::CRASH, Profile::DRIVE_LOSS] {
        let profile = profile.with_canary(Canary::FlipMemory);
        assert_eq!(first_failure(0..60, profile), None);
    }
}

#[test]
fn a_pool_without_a_number_for_another_segment_is_full() {
    let overcommitted = Profile {
        overcommits: 1000,
        ..Profile::CRASH
    };
    let profile = overcommitted.with_canary(Canary::FewSegments);
    assert_eq!(first_failure(0..40, profile), None);
    let refused: u64 = (0..40)
        .map(|seed| run(seed, &profile).map_or(0, |life| life.refused))
        .sum();
    assert!(refused > 0, "no world was full");
}

#[test]
fn a_read_that_mixes_versions_of_an_atomic_write_is_noticed() {
    sings(Canary::MixVersions, LONG);
}

#[test]
fn an_answer_that_is_taken_for_anothers_is_noticed() {
    let hangs = Profile {
        hangs: 1000,
        ..Profile::DRIVE_LOSS
    };
    sings(Canary::TagWithoutGeneration, hangs);
}

#[test]
fn a_write_that_found_no_space_and_counts_as_done_is_noticed() {
    let short = Profile {
        shortages: 1000,
        ..Profile::DRIVE_LOSS
    };
    sings(Canary::NoSpaceCountsAsDone, short);
}

#[test]
fn a_write_without_an_answer_that_counts_as_done_is_noticed() {
    let hangs = Profile {
        hangs: 1000,
        ..Profile::DRIVE_SWAP
    };
    sings(Canary::TimeoutCountsAsDone, hangs);
}

#[test]
fn a_returned_drive_that_is_trusted_at_once_is_noticed() {
    sings(Canary::ReadmitWithoutWalk, RETURNING);
}

/// In every world drives come back while the pool serves.
const RETURNING: Profile = Profile {
    readmits: 1000,
    hangs: 0,
    overcommits: 0,
    changes: 0,
    orders: 0,
    swaps: 0,
    ..Profile::DRIVE_LOSS
};

#[test]
fn drives_that_come_back_in_service() {
    assert_eq!(first_failure(4000..4060, RETURNING), None);
}

#[test]
fn a_returned_drive_that_gets_too_little_is_noticed() {
    sings(Canary::ReadmitSinceNow, RETURNING);
}

#[test]
fn a_returned_drive_that_counts_before_it_is_flushed_is_noticed() {
    // The power must fail, and another drive be lost, before anything else flushes it.
    let profile = RETURNING.with_canary(Canary::ReadmitBeforeFlush);
    assert!(first_failure(150..250, profile).is_some());
}

#[test]
fn a_returned_drive_whose_parity_is_trusted_is_noticed() {
    sings(Canary::ReadmitStaleParity, RETURNING);
}

/// More drives come and go than there are numbers for.
#[test]
fn numbers_of_drives_are_used_again() {
    let orders = Profile {
        orders: 1000,
        ..Profile::DRIVE_SWAP
    };
    let few = orders.with_canary(Canary::FewMembers);
    assert_eq!(first_failure(0..60, few), None);
}
