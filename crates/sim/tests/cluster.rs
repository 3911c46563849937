//! The replication protocol on two and three nodes that crash, stop, are cut off and lie: some seeds of every profile,
//! and what is broken on purpose.

use ashlar_sim::cluster::{
    Blow, Canary, Lure, Occasion, Profile, Strike, run, run_struck, run_traced,
};

/// Worlds whose stores are engines take some ten times as long.
const ENGINE_SEEDS: u64 = 300;

/// The first of these seeds that fails, and what it says. Profiles take turns, as `ashlar sim cluster` does it.
fn first_failure(seeds: std::ops::Range<u64>, profiles: &[Profile]) -> Option<String> {
    seeds.into_iter().find_map(|seed| {
        let profile = &profiles[(seed % profiles.len() as u64) as usize];
        Some(run(seed, profile).err()?.to_string())
    })
}

#[test]
fn five_hundred_worlds_keep_every_promise() {
    assert_eq!(first_failure(0..500, &Profile::EVERY), None);
}

/// A member that is slow stays in sync, and so do members whose owner is held up; one that is dead is left out in time.
#[test]
fn who_is_slow_stays_and_who_is_dead_does_not() {
    let lived = (0..40).map(|seed| run(seed, &Profile::STEADY));
    let lived: Result<Vec<_>, _> = lived.collect();
    let lived = lived.map_err(|failure| failure.to_string());
    let steady = lived.map(|all| all.iter().filter(|one| one.steady > 0).count());
    assert!(matches!(steady, Ok(20..)), "{steady:?}");
}

/// Clocks that run as fast and as slow as they may, and change that: no owner relies on a grant whose promise is over.
#[test]
fn leased_reads_are_right_while_clocks_keep_within_their_drift() {
    assert_eq!(first_failure(0..100, &[Profile::DRIFT]), None);
}

/// While the quorum is away, a copy or a link that was away and is back, or a store that hung, costs hosts nothing more.
#[test]
fn without_a_quorum_hosts_are_served_while_all_copies_are_there() {
    let lived = (0..40).map(|seed| run(seed, &Profile::QUORUM_AWAY));
    let lived: Result<Vec<_>, _> = lived.collect();
    let lived = lived.map_err(|failure| failure.to_string());
    let trials = lived.map(|all| all.iter().map(|one| one.trials).sum::<u64>());
    assert!(matches!(trials, Ok(60..)), "{trials:?}");
}

/// Drives that come back as they were before neither serve nor count before they were copied in full.
#[test]
fn old_images_count_for_nothing() {
    let lived = (0..100).map(|seed| run(seed, &Profile::OLD_IMAGE));
    let lived: Result<Vec<_>, _> = lived.collect();
    let lived = lived.map_err(|failure| failure.to_string());
    let images = lived.map(|all| all.iter().map(|one| one.old_images).sum::<u64>());
    assert!(matches!(images, Ok(50..)), "{images:?}");
}

/// What is too young for the quorum to know of it is known to the other copies: such an image serves no host, and is in
/// sync again when it was made equal. Some are younger than what those remember, too.
#[test]
fn young_images_are_known_by_the_other_copies() {
    let (mut young, mut lags, mut unknown) = (0, 0, 0);
    for seed in 0..200 {
        match run(seed, &Profile::YOUNG_IMAGE) {
            Ok(lived) => {
                young += lived.young_images;
                lags += lived.lags.min(lived.young_images);
                unknown += lived.unknown_images;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(
        young > 25 && lags == young && unknown * 4 < young,
        "{young} young, {lags} said, {unknown} unknown"
    );
}

/// Blocks that cannot be read are given by another copy: hosts hear nothing of it. So it is in the engine, where a
/// drive errs now and then and its mirror does not.
#[test]
fn bad_blocks_are_given_by_another_copy() {
    let lived = |profile: &Profile, seeds: std::ops::Range<u64>| {
        let lived = seeds.map(|seed| match run(seed, profile) {
            Ok(lived) => (lived.spoilt, lived.healed),
            Err(failure) => panic!("{failure}"),
        });
        lived.fold((0, 0), |(a, b), (spoilt, healed)| (a + spoilt, b + healed))
    };
    let simulated = Profile {
        engines: 0,
        ..Profile::BAD_BLOCKS
    };
    let (spoilt, healed) = lived(&simulated, 0..120);
    assert!(
        spoilt > 400 && healed > 60,
        "{spoilt} spoilt, {healed} healed"
    );
    let (spoilt, _) = lived(&on_engines(Profile::BAD_BLOCKS), 0..40);
    assert!(spoilt > 50, "{spoilt} spoilt on engines");
}

/// In every world an operator takes copies away and gives others, one to three of them. How many were replaced.
fn with_an_operator(seeds: std::ops::Range<u64>, engines: u32) -> u64 {
    let profiles = Profile::EVERY.map(|profile| Profile {
        reseats: 1000,
        engines,
        ..profile
    });
    let lived = seeds.map(|seed| {
        let profile = &profiles[(seed % profiles.len() as u64) as usize];
        match run(seed, profile) {
            Ok(lived) => lived.replaced,
            Err(failure) => panic!("{failure}"),
        }
    });
    lived.sum()
}

#[test]
fn volumes_grow_under_faults() {
    let profiles =
        [Profile::CRASH, Profile::PARTITION, Profile::OLD_IMAGE].map(|profile| Profile {
            grows: 1000,
            ..profile
        });
    let grown = (0..240).map(|seed| {
        let profile = &profiles[(seed % profiles.len() as u64) as usize];
        match run(seed, profile) {
            Ok(lived) => lived.growths,
            Err(failure) => panic!("{failure}"),
        }
    });
    let grown: u64 = grown.sum();
    assert!(grown > 240, "{grown} growths");
}

/// What ends in order leaves the in-sync set first.
#[test]
fn processes_end_in_order_under_faults() {
    let profiles = Profile::EVERY.map(|profile| Profile {
        ends: 1000,
        ..profile
    });
    let left = (0..120).map(|seed| {
        let profile = &profiles[(seed % profiles.len() as u64) as usize];
        match run(seed, profile) {
            Ok(lived) => lived.left,
            Err(failure) => panic!("{failure}"),
        }
    });
    let left: u64 = left.sum();
    assert!(left > 100, "{left} have left");
}

#[test]
fn copies_come_and_go_under_faults() {
    let replaced = with_an_operator(0..200, 0) + with_an_operator(200..240, 1000);
    assert!(replaced > 100, "{replaced} copies were replaced");
}

/// Hosts that register, reserve and preempt: none is fenced and has something done afterwards, through failovers.
#[test]
fn fenced_hosts_change_nothing() {
    let (mut fenced, mut refused) = (0, 0);
    for seed in 0..300 {
        match run(seed, &Profile::RIGHTS) {
            Ok(lived) => {
                fenced += lived.fenced;
                refused += lived.refused;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(
        fenced > 1000 && refused > 1000,
        "{fenced} times fenced, {refused} refused"
    );
}

/// Every store is the engine that ships.
fn on_engines(profile: Profile) -> Profile {
    Profile {
        engines: 1000,
        ..profile
    }
}

#[test]
fn worlds_on_engines_keep_every_promise() {
    let profiles = Profile::EVERY.map(on_engines);
    assert_eq!(first_failure(0..ENGINE_SEEDS, &profiles), None);
}

/// In pools of several drives one dies: nothing of it is seen but that.
#[test]
fn worlds_on_engines_whose_drives_die_keep_every_promise() {
    let profile = Profile {
        broken: 12,
        ..on_engines(Profile::DRIVE_LOSS)
    };
    let lived = (0..60).map(|seed| match run(seed, &profile) {
        Ok(lived) => lived.lost_drives,
        Err(failure) => panic!("{failure}"),
    });
    let lost: u64 = lived.sum();
    assert!(lost > 20, "{lost} drives");
}

/// What is broken in the engine's part must be noticed, too.
#[test]
fn every_canary_of_the_engine_is_noticed() {
    let noticed = |canary| {
        let worlds = Profile::EVERY.map(|profile| Profile {
            engine_canary: Some(canary),
            // A member dies just when its entry is durable, with records that were uncertain before.
            lures: match canary {
                ashlar_store::Canary::SavedTooFar => {
                    const {
                        &[
                            lure(Occasion::Message("JOINED"), Blow::Crash, true),
                            lure(Occasion::Message("ATTACH"), Blow::Crash, true),
                        ]
                    }
                }
                _ => profile.lures,
            },
            ..on_engines(profile)
        });
        let failure = first_failure(0..ENGINE_SEEDS, &worlds);
        failure.inspect(|failure| println!("{canary:?}: {failure}"))
    };
    let canaries = ashlar_store::Canary::REPLICATED.into_iter();
    let unnoticed: Vec<_> = canaries
        .filter(|canary| noticed(*canary).is_none())
        .collect();
    assert!(
        unnoticed.is_empty(),
        "{unnoticed:?} in {ENGINE_SEEDS} seeds"
    );
}

/// Seeds that once failed: a JOIN from before the member's restart voided a plane (10004, 28139); a removed member joined
/// again as in sync (2513); a candidate won unheard (1707); an answer from before its epoch, and a key of the next owner,
/// were taken for a backup's (28120122, 28125081).
#[test]
fn seeds_that_once_failed() {
    for seed in [1707, 2513, 10_004, 28_139, 28_120_122, 28_125_081] {
        assert_eq!(first_failure(seed..seed + 1, &Profile::EVERY), None);
    }
}

#[test]
fn a_seed_determines_everything() {
    let told = |seed| {
        let mut lines = Vec::new();
        let mut listener = |line: &str| lines.push(line.to_owned());
        let lived = run_traced(seed, &Profile::PARTITION, Some(&mut listener));
        (lived, lines)
    };
    let (lived, lines) = told(41);
    assert_eq!(
        (lived, lines.len() > 500),
        (run(41, &Profile::PARTITION), true)
    );
    assert_eq!(told(41).1, lines);
}

/// What is broken must be noticed within so many seeds.
const CANARY_SEEDS: u64 = 200;

const fn lure(occasion: Occasion, blow: Blow, is_sender: bool) -> Lure {
    Lure {
        occasion,
        blow,
        is_sender,
    }
}

/// Worlds in which what a canary breaks is needed more often than chance would have it.
fn worlds_for(canary: Canary) -> Vec<Profile> {
    let base = match canary {
        // The old owner is stopped over a takeover, and goes on with what it had to send.
        Canary::OldEpoch => Profile {
            lures: const { &[lure(Occasion::Message("REC"), Blow::Stop, true)] },
            ..Profile::CRASH
        },
        // The owner is cut off while one that has granted dies, and is back before the grant ends.
        Canary::ForgetPromise => Profile {
            isolations: 40,
            stops: 0,
            power: 0,
            reseats: 0,
            engines: 0,
            lures: const {
                &[
                    lure(Occasion::Message("GRANT?"), Blow::Isolate, true),
                    lure(Occasion::Message("GRANT"), Blow::Crash, true),
                ]
            },
            ..Profile::CRASH
        },
        // The owner never hears that its add was made.
        Canary::AddNoGrant => Profile {
            lures: const { &[lure(Occasion::Adds, Blow::Isolate, true)] },
            ..Profile::PARTITION
        },
        // The owner dies while some members have a record that others lack.
        Canary::MembersNotAsked | Canary::ActivateEarly => Profile {
            lures: const { &[lure(Occasion::Message("REC"), Blow::Crash, true)] },
            ..Profile::CRASH
        },
        // ... and what it sent is still in their stores when the next one asks.
        Canary::JoinUndrained => Profile {
            lures: const {
                &[
                    lure(Occasion::Message("REC"), Blow::Slow, false),
                    lure(Occasion::Message("REC"), Blow::Crash, true),
                ]
            },
            ..Profile::CRASH
        },
        // A member is cut off while its store has much to do, and is back before that is done.
        Canary::AttachUndrained => Profile {
            slow: 20,
            isolations: 20,
            lures: const {
                &[
                    lure(Occasion::Message("REC"), Blow::Slow, false),
                    lure(Occasion::Message("REC"), Blow::Isolate, false),
                ]
            },
            ..Profile::CRASH
        },
        // The session breaks just when the add is asked for, what came of that is long unknown, and the owner's store has
        // not done what the member's has.
        Canary::UnsettledAdd => Profile {
            commands: 300,
            quorum: 60,
            breaks: 20,
            proofs: 0,
            lures: const {
                &[
                    lure(Occasion::Message("DIGEST?"), Blow::Slow, true),
                    lure(Occasion::Adds, Blow::Break, true),
                ]
            },
            ..Profile::PARTITION
        },
        // A new copy's owner dies before it has given it everything.
        Canary::NewcomerTrusted => Profile {
            reseats: 1000,
            lures: const { &[lure(Occasion::Message("COPY"), Blow::Crash, true)] },
            ..Profile::CRASH
        },
        // The quorum is silent while an operator changes who has copies, or something happens just then.
        Canary::WishKept | Canary::WishUnchecked => Profile {
            reseats: 1000,
            quorum: 20,
            ..Profile::PARTITION
        },
        Canary::GrowUnpinned => Profile {
            grows: 1000,
            ..Profile::CRASH
        },
        // A copy is replaced, and in sync again, after all had got the room.
        Canary::GrowUncounted => Profile {
            grows: 1000,
            reseats: 1000,
            engines: 0,
            ..Profile::CRASH
        },
        Canary::HandoffServes => Profile {
            moves: 30,
            lures: const { &[lure(Occasion::Message("HANDOFF"), Blow::Isolate, true)] },
            ..Profile::CRASH
        },
        // The owner dies when it has asked for the removal of one that ends, which takes over.
        Canary::LeaverUncounted => Profile {
            ends: 1000,
            lures: const { &[lure(Occasion::Removes, Blow::Crash, true)] },
            ..Profile::CRASH
        },
        Canary::HandoffUnasked => Profile::QUORUM_AWAY,
        Canary::PauseIsSilence | Canary::SlowIsStuck => Profile::STEADY,
        Canary::OldImageCounts => Profile::OLD_IMAGE,
        Canary::LagsUnseen => Profile::YOUNG_IMAGE,
        Canary::HealUnmatched => Profile {
            engines: 0,
            ..Profile::BAD_BLOCKS
        },
        // Who gives a block back, and who gets it, takes long for that, so that a write comes into it.
        Canary::HealUnlocked => Profile {
            commands: 400,
            crashes: 1,
            slow: 10,
            engines: 0,
            lures: const {
                &[
                    lure(Occasion::Message("FETCH"), Blow::Slow, false),
                    lure(Occasion::Message("FETCH"), Blow::Slow, true),
                ]
            },
            ..Profile::BAD_BLOCKS
        },
        Canary::LostForgotten => Profile {
            crashes: 30,
            spoils: 10,
            spoils_all: true,
            engines: 0,
            ..Profile::BAD_BLOCKS
        },
        // Writes wait for ranges that other nodes' slow stores hold.
        Canary::RightsOvertake => Profile {
            slow: 12,
            proofs: 1000,
            engines: 0,
            ..Profile::RIGHTS
        },
        _ => {
            return Profile::EVERY
                .map(|profile| profile.with_canary(canary))
                .to_vec();
        }
    };
    vec![base.with_canary(canary)]
}

/// What was noticed, and where; nothing if it was not. A world that only gets stuck counts if it does not without the
/// canary: a seed that is stuck anyway would count for each.
fn noticed(canary: Canary) -> Option<String> {
    let worlds = worlds_for(canary);
    (0..CANARY_SEEDS).find_map(|seed| {
        let profile = &worlds[(seed % worlds.len() as u64) as usize];
        let failure = run(seed, profile).err()?;
        let is_stuck = failure.what.contains("after faults have ended");
        let whole = Profile {
            canary: None,
            ..*profile
        };
        // What this one breaks is a promise to hosts.
        let may_be_stuck = canary != Canary::UnsettledAdd;
        let counts = !is_stuck || may_be_stuck && run(seed, &whole).is_ok();
        counts.then(|| failure.to_string())
    })
}

#[test]
fn every_canary_is_noticed() {
    let unnoticed = Canary::ALL.iter().filter(|canary| {
        let failure = noticed(**canary);
        failure
            .inspect(|failure| println!("{canary:?}: {failure}"))
            .is_none()
    });
    let unnoticed: Vec<&Canary> = unnoticed.collect();
    assert!(
        unnoticed.is_empty(),
        "{unnoticed:?} in {CANARY_SEEDS} seeds"
    );
}

/// The same worlds keep every promise if nothing is broken.
#[test]
fn worlds_made_for_canaries_keep_every_promise_without_them() {
    for &canary in Canary::ALL {
        let worlds = worlds_for(canary);
        if let [profile] = worlds[..] {
            let profile = Profile {
                canary: None,
                ..profile
            };
            assert_eq!(first_failure(0..50, &[profile]), None, "{canary:?}");
        }
    }
}

/// A world of some 40 operations in which nothing fails by itself.
const QUIET: Profile = Profile {
    commands: 16,
    faults: 0,
    ambushes: 0,
    proofs: 0,
    engines: 0,
    ..Profile::CRASH
};

/// One process dies at every message and every step of a store, and then another one, or the same, in the recovery.
/// `ASHLAR_SOAK` takes every step and every second one; otherwise one of some.
#[test]
fn processes_may_die_at_any_step_and_again_in_recovery() {
    let soak = std::env::var_os("ASHLAR_SOAK").is_some_and(|soak| !soak.is_empty());
    let (seeds, stride, seconds) = if soak { (6, 1, 40) } else { (3, 5, 2) };
    for seed in 0..seeds {
        let profile = match seed % 3 {
            2 => Profile {
                commands: 8,
                ..on_engines(QUIET)
            },
            _ => QUIET,
        };
        let (steps, nodes) = ashlar_sim::cluster::steps(seed, &profile).expect("nothing fails");
        println!("seed {seed}: {steps} steps, {nodes} nodes");
        for step in (seed % stride..steps).step_by(stride as usize) {
            for node in 0..nodes {
                let first = Strike { step, node };
                let after = |n: u64| Strike {
                    step: step + 1 + (n * 37 + step) % 300,
                    node: (node + (n + step) as usize) % nodes,
                };
                let alone = run_struck(seed, &profile, &[first]);
                assert_eq!(alone.err().map(|one| one.to_string()), None);
                for n in 0..seconds {
                    let both = run_struck(seed, &profile, &[first, after(n)]);
                    assert_eq!(both.err().map(|one| one.to_string()), None);
                }
            }
        }
    }
}
