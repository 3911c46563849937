//! Volumes that are one of several copies: what a crash leaves of what they must remember.

use std::collections::BTreeSet;
use std::ops::Range;

use ashlar_block::{BlockRange, Durability, ErrorKind, Moment, Operation, Request};
use ashlar_store::format::ReplicaPage;
use ashlar_store::{
    Committed, Event, Manage, Managed, OwnPlane, ReplicaChange, ReplicaIdentity, ReplicaMark,
    ReplicaPromise, ReplicaSize, ReplicaTag,
};
use uuid::Uuid;

use crate::common::{Bench, pattern};

const GRANULES: u64 = 4096;
/// What is remembered of other copies is written after that, at the latest.
const NEWS_WAIT: u64 = 50_000_000;

fn replica(bench: &mut Bench) -> u32 {
    let volume = bench.volume(GRANULES, 2);
    make(bench, volume).expect("a replica");
    volume
}

fn make(bench: &mut Bench, volume: u32) -> Result<Managed, ashlar_block::IoError> {
    bench.manage(making(volume, None))
}

fn making(volume: u32, granules: Option<u64>) -> Manage {
    let identity = ReplicaIdentity {
        position: 0,
        uuid: Uuid::from_u128(77),
    };
    Manage::MakeReplica {
        volume,
        identity,
        granules,
    }
}

fn tag(sequence: u64, low: u64) -> ReplicaTag {
    ReplicaTag {
        epoch: 3,
        sequence,
        low,
    }
}

fn known(low: u64) -> Committed {
    Committed { epoch: 3, low }
}

/// A record, durable.
fn record(bench: &mut Bench, volume: u32, granules: Range<u64>, tag: ReplicaTag) {
    let count = (granules.end - granules.start) as u32;
    let mut buffer = bench.buffers.get(count as usize * 4096).expect("buffer");
    buffer.copy_from_slice(&pattern(count as usize, tag.sequence as u8));
    let range = BlockRange::new(granules.start, count);
    let request = Request::write(9, range, buffer, Durability::Durable);
    let event = Event::Record {
        volume,
        request,
        tag,
    };
    let (done, _) = bench.run(event);
    assert!(matches!(&done[..], [one] if one.result.is_ok()), "{done:?}");
}

fn set(ranges: Vec<Range<u64>>) -> BTreeSet<u64> {
    ranges.into_iter().flatten().collect()
}

fn uncertain(bench: &Bench, volume: u32) -> BTreeSet<u64> {
    set(bench.engine.replicas().uncertain(volume))
}

fn plane(bench: &Bench, volume: u32, position: u8) -> BTreeSet<u64> {
    set(bench.engine.replicas().plane(volume, position))
}

fn absent(epoch: u32, absent: u8) -> ReplicaChange {
    ReplicaChange {
        promise: ReplicaPromise {
            epoch,
            session: 1,
            absent,
        },
        marks_uncertain: true,
        marks: Vec::new(),
        own: OwnPlane::Until(known(1)),
    }
}

fn change(bench: &mut Bench, volume: u32, change: ReplicaChange) {
    let answer = bench.manage(Manage::ChangeReplica { volume, change });
    assert_eq!(answer.expect("changed"), Managed::Done);
}

#[test]
fn records_are_uncertain_until_they_are_committed_and_a_crash_knows_no_less() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = replica(&mut bench);
    // In the ring, past it, and a deallocation.
    record(&mut bench, volume, 5..8, tag(1, 1));
    record(&mut bench, volume, 64..320, tag(2, 1));
    let request = Request {
        tag: 1,
        op: Operation::Deallocate,
        range: BlockRange::new(80, 3),
        buffer: None,
    };
    let event = Event::Record {
        volume,
        request,
        tag: tag(3, 1),
    };
    bench.run(event);
    let all: BTreeSet<u64> = (5..8).chain(64..320).collect();
    assert_eq!(uncertain(&bench, volume), all);
    let mut bench = bench.restart();
    assert_eq!(uncertain(&bench, volume), all);
    assert_eq!(bench.read(volume, 5, 3).unwrap(), pattern(3, 1));

    // What a record says of others is found again; what was only heard is not.
    record(&mut bench, volume, 1000..1001, tag(4, 3));
    assert_eq!(uncertain(&bench, volume), (80..83).chain([1000]).collect());
    bench.engine.replicas_mut().learn(volume, known(5));
    assert_eq!(uncertain(&bench, volume), BTreeSet::new());
    let bench = bench.restart();
    assert_eq!(uncertain(&bench, volume), (80..83).chain([1000]).collect());
}

/// It is written by itself, once, and lets the logs go of nothing.
#[test]
fn what_is_remembered_of_other_copies_outlives_a_crash() {
    let mut bench = Bench::new(2, 48 << 20);
    let volume = replica(&mut bench);
    let other = bench.volume(GRANULES, 2);
    record(&mut bench, volume, 5..8, tag(1, 1));
    let before = bench.engine.published();
    let mut marks = [ReplicaMark::default(); 3];
    marks[1] = ReplicaMark {
        uuid: [7; 16],
        head: 99,
    };
    bench.engine.replicas_mut().remember(volume, marks);
    bench.run(Event::Tick);
    assert!(bench.engine.next_deadline().is_some());
    bench.pass(NEWS_WAIT);
    let written = bench.engine.published();
    assert!(written > before);
    bench.engine.replicas_mut().remember(volume, marks);
    bench.pass(NEWS_WAIT);
    assert_eq!(bench.engine.published(), written, "nothing is new");
    let mut bench = bench.restart();
    assert_eq!(bench.engine.replicas().marks(volume), marks);
    let found = bench.engine.published();
    assert!(found >= written);
    // What others write says nothing of this copy.
    bench.write(other, 0, &pattern(2, 9)).unwrap();
    assert!(bench.engine.published() > found);
    assert_eq!(bench.engine.replicas().head(volume), found);
    let now = bench.engine.replica_comes_to(volume);
    assert_eq!(now, bench.engine.published());
    assert_eq!(bench.engine.replicas().head(volume), now);
    assert_eq!(uncertain(&bench, volume), (5..8).collect());

    bench
        .engine
        .replicas_mut()
        .remember(volume, Default::default());
    change(&mut bench, volume, absent(3, 0b010));
    let bench = bench.restart();
    assert_eq!(
        bench.engine.replicas().marks(volume),
        [ReplicaMark::default(); 3]
    );
}

/// Bytes 104 to 175 of an entry, as the document has them; what remembers nothing is an entry for older programs.
#[test]
fn what_is_remembered_is_laid_out_as_the_document_says() {
    let mut page = vec![0; 4096];
    page[0] = 1;
    page[4..8].copy_from_slice(&1000u32.to_le_bytes());
    page[8..16].copy_from_slice(&GRANULES.to_le_bytes());
    let decoded = |page: &[u8]| match ReplicaPage::decode(page) {
        Ok(ReplicaPage::Entry(entry)) => entry,
        other => panic!("{other:?}"),
    };
    let entry = decoded(&page);
    assert_eq!(entry.marks, [ReplicaMark::default(); 3]);
    assert_eq!(entry.encode(), page);
    for (at, byte) in [(104, 1), (128, 2), (152, 3)] {
        page[at..at + 16].fill(byte);
        page[at + 16..at + 24].copy_from_slice(&u64::from(byte).to_le_bytes());
    }
    let marks = [1, 2, 3].map(|byte| ReplicaMark {
        uuid: [byte; 16],
        head: u64::from(byte),
    });
    let entry = decoded(&page);
    assert_eq!(entry.marks, marks);
    assert_eq!(entry.encode(), page);
    page[176] = 1;
    assert!(
        ReplicaPage::decode(&page).is_err(),
        "nothing is behind that"
    );
}

/// Volumes of a pool that remember something at other times are written together, and with what is written anyway.
#[test]
fn what_volumes_remember_is_written_together() {
    let mut bench = Bench::new(2, 48 << 20);
    let volumes = [
        replica(&mut bench),
        replica(&mut bench),
        replica(&mut bench),
    ];
    let before = bench.engine.published();
    let says = |bench: &mut Bench, head| {
        for volume in volumes {
            let uuid = [7; 16];
            let marks = [ReplicaMark { uuid, head }; 3];
            bench.engine.replicas_mut().remember(volume, marks);
            bench.run(Event::Tick);
        }
    };
    let batches = bench.engine.counters().map_batches;
    says(&mut bench, 5);
    assert_eq!(bench.engine.published(), before);
    let later = Moment::from_nanos(NEWS_WAIT);
    assert!(bench.engine.next_deadline().is_some_and(|at| at <= later));
    bench.pass(NEWS_WAIT);
    assert!(bench.engine.published() > before);
    assert_eq!(bench.engine.counters().map_batches, batches + 1);
    says(&mut bench, 6);
    bench.volume(GRANULES, 2);
    let bench = bench.restart();
    for volume in volumes {
        assert_eq!(
            bench.engine.replicas().marks(volume)[0].head,
            6,
            "beside another change"
        );
    }
}

/// A map log that makes room is spared what can wait, also where something else is written.
#[test]
fn what_is_remembered_waits_while_the_map_log_makes_room() {
    for has_room in [false, true] {
        let mut bench = Bench::new(2, 48 << 20);
        let [volume, other] = [replica(&mut bench), replica(&mut bench)];
        // What would let the log go of something is not durable.
        bench.seen.held.set(Some(|op| op == Operation::Flush));
        while bench.engine.status().map_fill <= 0.8 {
            change(&mut bench, other, absent(3, 0));
        }
        let marks = [ReplicaMark {
            uuid: [7; 16],
            head: 5,
        }; 3];
        bench.engine.replicas_mut().remember(volume, marks);
        change(&mut bench, other, absent(3, 0));
        bench.pass(NEWS_WAIT);
        if has_room {
            bench.seen.held.set(None);
            bench.pass(NEWS_WAIT);
        }
        let found = bench.restart().engine.replicas().marks(volume);
        assert_eq!(found == marks, has_room, "{found:?}");
    }
}

#[test]
fn logs_keep_records_until_they_are_in_the_own_plane() {
    let mut bench = Bench::new(2, 48 << 20);
    let volume = replica(&mut bench);
    let other = bench.volume(GRANULES, 2);
    record(&mut bench, volume, 5..8, tag(1, 1));
    // Everything goes home, and both logs are emptied: it must be somewhere.
    bench.manage(Manage::Drain).unwrap();
    assert!(uncertain(&bench, volume).is_superset(&(5..8).collect()));
    let mut bench = bench.restart();
    assert!(uncertain(&bench, volume).is_superset(&(5..8).collect()));

    // Another volume writes many laps of the ring, and is not stopped.
    record(&mut bench, volume, 100..101, tag(2, 1));
    for lap in 0..3000 {
        bench
            .write(other, lap * 7 % (GRANULES - 3), &pattern(3, lap as u8))
            .unwrap();
    }
    let both: BTreeSet<u64> = (5..8).chain([100]).collect();
    assert!(uncertain(&bench, volume).is_superset(&both));
    let mut bench = bench.restart();
    assert!(uncertain(&bench, volume).is_superset(&both));

    // Void once what was in flight is committed.
    bench.engine.replicas_mut().learn(volume, known(3));
    assert_eq!(uncertain(&bench, volume), BTreeSet::new());
    bench.manage(Manage::Drain).unwrap();
    let bench = bench.restart();
    assert_eq!(uncertain(&bench, volume), BTreeSet::new());
}

#[test]
fn what_an_absent_copy_misses_is_marked_in_the_same_step() {
    let mut bench = Bench::new(2, 48 << 20);
    let volume = replica(&mut bench);
    // Nothing from before the oldest record that is uncertain is looked at again.
    bench.write(volume, 600, &pattern(2, 9)).unwrap();
    record(&mut bench, volume, 5..8, tag(1, 1));
    change(
        &mut bench,
        volume,
        ReplicaChange {
            marks: vec![40..41, 41..42],
            ..absent(3, 0b010)
        },
    );
    record(&mut bench, volume, 700..800, tag(2, 2));
    // A copy is no record, but it changes content.
    bench.write(volume, 900, &pattern(1, 7)).unwrap();
    let missed: BTreeSet<u64> = (5..8).chain(40..42).chain(700..800).chain([900]).collect();
    assert_eq!(plane(&bench, volume, 1), missed);
    let mut bench = bench.restart();
    assert_eq!(
        bench.engine.replicas().promise(volume).unwrap().absent,
        0b010
    );
    assert_eq!(plane(&bench, volume, 1), missed);
    assert_eq!(plane(&bench, volume, 2), BTreeSet::new());

    // What was copied is cleared, and stays so once it was written.
    bench.engine.replicas_mut().clear(volume, 1, &(700..800));
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    let left: BTreeSet<u64> = (5..8).chain(40..42).chain([900]).collect();
    assert_eq!(plane(&bench, volume, 1), left);

    // Added, and absent again: what it missed the last time is void.
    change(&mut bench, volume, absent(3, 0));
    bench.engine.replicas_mut().learn(volume, known(3));
    record(&mut bench, volume, 300..301, tag(3, 3));
    change(&mut bench, volume, absent(3, 0b010));
    assert_eq!(plane(&bench, volume, 1), [300].into());
    let bench = bench.restart();
    assert_eq!(plane(&bench, volume, 1), [300].into());
}

#[test]
fn an_absent_copy_keeps_what_it_applies_in_its_own_plane() {
    let mut bench = Bench::new(2, 48 << 20);
    let volume = replica(&mut bench);
    record(&mut bench, volume, 5..8, tag(1, 1));
    let mut leaves = absent(4, 0b001);
    leaves.own = OwnPlane::TakeUncertain;
    change(&mut bench, volume, leaves);
    record(&mut bench, volume, 50..51, tag(2, 2));
    // A copy does not.
    bench.write(volume, 60, &pattern(1, 7)).unwrap();
    let own: BTreeSet<u64> = (5..8).chain([50]).collect();
    assert_eq!(uncertain(&bench, volume), own);
    bench.engine.replicas_mut().learn(volume, known(9));
    assert_eq!(uncertain(&bench, volume), own);
    let mut bench = bench.restart();
    assert_eq!(uncertain(&bench, volume), own);
    let mut added = absent(4, 0);
    added.own = OwnPlane::Until(Committed { epoch: 4, low: 1 });
    change(&mut bench, volume, added);
    assert_eq!(uncertain(&bench, volume), own);
    let mut bench = bench.restart();
    assert_eq!(uncertain(&bench, volume), own);
    let base = Committed { epoch: 4, low: 1 };
    bench.engine.replicas_mut().learn(volume, base);
    assert_eq!(uncertain(&bench, volume), BTreeSet::new());
}

fn only(granules: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(granules).collect()
}

/// What may differ for long keeps nothing else uncertain, whatever else the own plane has for a while.
#[test]
fn what_is_to_stay_uncertain_does_whatever_of_its_epoch_is_committed() {
    let keeps = |granules: Vec<Range<u64>>| ReplicaChange {
        own: OwnPlane::Keep(granules),
        ..absent(3, 0)
    };
    let mut bench = Bench::new(2, 32 << 20);
    let volume = replica(&mut bench);
    record(&mut bench, volume, 5..8, tag(1, 0));
    bench.manage(Manage::Drain).unwrap();
    change(&mut bench, volume, keeps(vec![6..7, 40..42]));
    assert_eq!(uncertain(&bench, volume), (5..8).chain(40..42).collect());
    record(&mut bench, volume, 900..901, tag(2, 2));
    let kept: BTreeSet<u64> = [6, 40, 41, 900].into();
    assert_eq!(uncertain(&bench, volume), kept);
    // It is there after a crash, with what the own plane had besides then.
    bench.manage(Manage::Drain).unwrap();
    record(&mut bench, volume, 901..902, tag(3, 3));
    let kept: BTreeSet<u64> = [6, 40, 41, 901].into();
    assert_eq!(uncertain(&bench, volume), kept);
    let mut bench = bench.restart();
    assert!(uncertain(&bench, volume).is_superset(&kept));

    // The next owner's base ends that, but not what is to stay from then on.
    let next = |low| Committed { epoch: 4, low };
    let keeps = |granules: Vec<Range<u64>>| ReplicaChange {
        own: OwnPlane::Keep(granules),
        ..absent(4, 0)
    };
    change(&mut bench, volume, keeps(only(40..41)));
    bench.engine.replicas_mut().learn(volume, next(1));
    assert_eq!(uncertain(&bench, volume), [40].into());
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert!(uncertain(&bench, volume).contains(&40));
    bench.engine.replicas_mut().learn(volume, next(9));
    assert!(uncertain(&bench, volume).contains(&40));
    change(&mut bench, volume, keeps(Vec::new()));
    bench
        .engine
        .replicas_mut()
        .learn(volume, Committed { epoch: 5, low: 1 });
    assert_eq!(uncertain(&bench, volume), BTreeSet::new());
}

#[test]
fn what_is_kept_no_more_is_not_uncertain() {
    let keeps = |granules: Vec<Range<u64>>| ReplicaChange {
        own: OwnPlane::Keep(granules),
        ..absent(3, 0)
    };
    let mut bench = Bench::new(2, 32 << 20);
    let volume = replica(&mut bench);
    change(&mut bench, volume, keeps(only(6..9)));
    record(&mut bench, volume, 900..901, tag(2, 2));
    change(&mut bench, volume, keeps(only(6..7)));
    assert_eq!(uncertain(&bench, volume), [6, 900].into());
    change(&mut bench, volume, keeps(Vec::new()));
    assert_eq!(uncertain(&bench, volume), [900].into());
    let bench = bench.restart();
    assert_eq!(uncertain(&bench, volume), [900].into());
}

/// Before the order is answered nothing relies on it, and from then on no crash takes it away.
#[test]
fn a_crash_while_other_bits_are_cleared_takes_nothing_of_what_is_kept() {
    for budget in 0..14 {
        let mut bench = Bench::new(2, 32 << 20);
        let volume = replica(&mut bench);
        record(&mut bench, volume, 5..8, tag(1, 0));
        bench.manage(Manage::Drain).unwrap();
        let own = OwnPlane::Keep(only(40..42));
        change(
            &mut bench,
            volume,
            ReplicaChange {
                own,
                ..absent(3, 0)
            },
        );
        // What was in the own plane goes.
        bench.engine.replicas_mut().learn(volume, known(2));
        assert_eq!(uncertain(&bench, volume), [40, 41].into());
        bench.manage_cut(Manage::Drain, budget);
        let bench = bench.restart();
        assert!(uncertain(&bench, volume).is_superset(&[40, 41].into()));
    }
}

#[test]
fn a_crash_within_a_change_leaves_the_old_promise_or_the_new_one_with_its_marks() {
    let (mut old, mut new) = (0, 0);
    for budget in 0..14 {
        let mut bench = Bench::new(2, 32 << 20);
        let volume = replica(&mut bench);
        record(&mut bench, volume, 5..8, tag(1, 1));
        bench.engine.replicas_mut().learn(volume, known(1));
        bench.manage_cut(
            Manage::ChangeReplica {
                volume,
                change: ReplicaChange {
                    marks: vec![40..41, 41..42],
                    ..absent(7, 0b100)
                },
            },
            budget,
        );
        let bench = bench.restart();
        let promise = bench.engine.replicas().promise(volume).expect("a replica");
        match promise.absent {
            0 => {
                old += 1;
                assert_eq!(promise.epoch, 0);
            }
            _ => {
                new += 1;
                assert_eq!(promise.epoch, 7);
                let missed: BTreeSet<u64> = (5..8).chain(40..42).collect();
                assert_eq!(plane(&bench, volume, 2), missed);
            }
        }
        assert_eq!(uncertain(&bench, volume), (5..8).collect());
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

/// The pages of planes come to more than the map log, while the logs keep a record for its mark.
#[test]
fn planes_that_are_larger_than_the_map_log_are_written_in_parts() {
    const HUGE: u64 = 10 << 20;
    let mut bench = Bench::new(2, 128 << 20);
    let volume = bench.volume(HUGE, 2);
    make(&mut bench, volume).expect("a replica");
    record(&mut bench, volume, 5..8, tag(1, 1));
    change(
        &mut bench,
        volume,
        ReplicaChange {
            marks: std::iter::once(0..HUGE - 1).collect(),
            ..absent(3, 0b110)
        },
    );
    let whole: Vec<Range<u64>> = std::iter::once(0..HUGE - 1).collect();
    assert_eq!(bench.engine.replicas().plane(volume, 1), whole);
    let mut bench = bench.restart();
    assert_eq!(bench.engine.replicas().plane(volume, 1), whole);
    assert_eq!(bench.engine.replicas().plane(volume, 2), whole);
    record(&mut bench, volume, 9..10, tag(2, 1));
    bench.manage(Manage::Drain).expect("settle");
    assert!(uncertain(&bench, volume).is_superset(&[5, 6, 7, 9].into()));
}

#[test]
fn a_volume_that_is_deleted_is_a_copy_until_that_is_durable() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = replica(&mut bench);
    record(&mut bench, volume, 5..8, tag(1, 1));
    bench.seen.held.set(Some(|op| op != Operation::Read));
    let what = Manage::DeleteVolume { volume };
    bench.run(Event::Manage { id: 99, what });
    assert_eq!(uncertain(&bench, volume), (5..8).collect());
    bench.seen.held.set(None);
    bench.run(Event::Tick);
    assert_eq!(bench.engine.replicas().promise(volume), None);
}

/// What was to be written of a pool's last copy has no time any more.
#[test]
fn a_pool_whose_last_copy_is_deleted_rests() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = replica(&mut bench);
    record(&mut bench, volume, 5..8, tag(1, 1));
    let deleted = bench.manage(Manage::DeleteVolume { volume });
    assert_eq!(deleted.expect("deleted"), Managed::Done);
    // The bench goes on while a deadline has passed.
    bench.pass(10_000_000_000);
}

#[test]
fn a_volume_that_becomes_a_copy_has_its_new_size_or_is_none_after_a_crash() {
    let mut found = BTreeSet::new();
    for budget in 0..20 {
        let mut bench = Bench::new(2, 32 << 20);
        let volume = bench.volume(GRANULES, 2);
        bench.manage_cut(making(volume, Some(GRANULES + 1)), budget);
        let bench = bench.restart();
        let blocks = bench.engine.geometry(volume).expect("a volume").blocks;
        found.insert((blocks, bench.engine.replicas().list().len()));
    }
    assert_eq!(found, [(GRANULES, 0), (GRANULES + 1, 1)].into());
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(GRANULES, 2);
    let smaller = bench.manage(making(volume, Some(GRANULES - 1)));
    assert!(
        smaller
            .expect_err("smaller")
            .to_string()
            .contains("smaller")
    );
}

fn growing(volume: u32, granules: u64) -> Manage {
    Manage::ResizeVolume { volume, granules }
}

#[test]
fn a_copy_that_grows_keeps_what_is_uncertain_and_marks_what_is_behind_its_old_end() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = replica(&mut bench);
    // Close behind it: the first has no room for more pages where it is.
    let other = replica(&mut bench);
    record(&mut bench, volume, 5..8, tag(1, 1));
    let pages = 40_000;
    for one in [volume, other] {
        let grown = bench.manage(growing(one, pages)).expect("it grows");
        assert_eq!(grown, Managed::Done);
    }
    let mut bench = bench.restart();
    let blocks = |bench: &Bench, volume| bench.engine.geometry(volume).expect("a volume").blocks;
    assert_eq!([blocks(&bench, volume), blocks(&bench, other)], [pages; 2]);
    assert_eq!(uncertain(&bench, volume), (5..8).collect());
    for one in [volume, other] {
        change(&mut bench, one, absent(3, 2));
        record(&mut bench, one, 39_000..39_008, tag(9, 1));
        assert!(
            plane(&bench, one, 1)
                .into_iter()
                .skip_while(|at| *at < 8)
                .eq(39_000..39_008)
        );
        let refusal = bench.manage(growing(one, pages + 8)).expect_err("a plane");
        assert!(
            refusal.to_string().contains("when all are in sync"),
            "{refusal}"
        );
    }
    let bench = bench.restart();
    for one in [volume, other] {
        assert!(
            plane(&bench, one, 1)
                .into_iter()
                .skip_while(|at| *at < 8)
                .eq(39_000..39_008)
        );
    }
}

/// It is not refused by chance: copies remember something of others several times a second.
#[test]
fn a_copy_grows_once_what_it_remembers_is_written() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = replica(&mut bench);
    let marks = [ReplicaMark {
        uuid: [7; 16],
        head: 5,
    }; 3];
    bench.engine.replicas_mut().remember(volume, marks);
    bench.run(Event::Tick);
    bench.seen.held.set(Some(|op| op != Operation::Read));
    bench.pass(NEWS_WAIT);
    let what = growing(volume, 40_000);
    let (_, early) = bench.run(Event::Manage { id: 99, what });
    assert!(early.is_empty(), "{early:?}");
    bench.seen.held.set(None);
    let (_, answers) = bench.run(Event::Tick);
    assert!(
        matches!(answers[..], [(99, Ok(Managed::Done))]),
        "{answers:?}"
    );
    let bench = bench.restart();
    let blocks = bench.engine.geometry(volume).expect("a volume").blocks;
    assert_eq!(blocks, 40_000);
    assert_eq!(bench.engine.replicas().marks(volume), marks);
}

#[test]
fn a_copy_that_grows_has_one_size_or_the_other_after_a_crash() {
    let mut found = BTreeSet::new();
    for budget in 0..20 {
        let mut bench = Bench::new(2, 32 << 20);
        let volume = replica(&mut bench);
        record(&mut bench, volume, 5..8, tag(1, 1));
        bench.manage_cut(growing(volume, 40_000), budget);
        let bench = bench.restart();
        let blocks = bench.engine.geometry(volume).expect("a volume").blocks;
        found.insert((blocks, bench.engine.replicas().list().len()));
        assert_eq!(uncertain(&bench, volume), (5..8).collect());
    }
    assert_eq!(found, [(GRANULES, 1), (40_000, 1)].into());
}

/// How large the volume was said to be outlives a restart, and other changes of the entry.
#[test]
fn a_copy_remembers_how_large_its_volume_was_said_to_be() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = replica(&mut bench);
    let size = |granules| ReplicaSize {
        granules,
        register: GRANULES - 1,
    };
    let note = |granules| Manage::NoteSize {
        volume,
        size: size(granules),
    };
    assert_eq!(bench.engine.replicas().size(volume), None);
    let refused = bench.manage(note(GRANULES + 1)).expect_err("too large");
    assert!(
        refused.to_string().contains("cannot be one of 4097"),
        "{refused}"
    );
    bench.manage(note(GRANULES)).expect("noted");
    bench.manage(growing(volume, 40_000)).expect("it grows");
    let mut bench = bench.restart();
    assert_eq!(bench.engine.replicas().size(volume), Some(size(GRANULES)));
    bench.manage(note(40_000)).expect("noted");
    // What was read of the key before that comes later.
    bench.manage(note(GRANULES)).expect("older");
    change(&mut bench, volume, absent(3, 2));
    let bench = bench.restart();
    assert_eq!(bench.engine.replicas().size(volume), Some(size(40_000)));
    assert_eq!(bench.engine.status().volumes[0].said, Some(size(40_000)));
}

#[test]
fn what_is_no_copy_is_refused() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(GRANULES, 2);
    let change = Manage::ChangeReplica {
        volume,
        change: absent(1, 0),
    };
    let refusal = bench.manage(change).expect_err("no replica").to_string();
    assert!(refusal.contains("is no copy"), "{refusal}");
    make(&mut bench, volume).expect("a replica");
    let refusal = make(&mut bench, volume).expect_err("again").to_string();
    assert!(refusal.contains("is a copy already"), "{refusal}");
    let resize = Manage::ResizeVolume {
        volume,
        granules: 8,
    };
    let error = bench.manage(resize).expect_err("its size");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("made smaller"), "{error}");

    // Gone with its volume, and its pages serve the next one.
    record(&mut bench, volume, 5..8, tag(1, 1));
    bench.manage(Manage::DeleteVolume { volume }).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert_eq!(bench.engine.replicas().promise(volume), None);
    let next = replica(&mut bench);
    let mut bench = bench.restart();
    assert_eq!(bench.engine.replicas().list().len(), 1);
    assert_eq!(uncertain(&bench, next), BTreeSet::new());
    record(&mut bench, next, 9..10, tag(1, 1));
    assert_eq!(uncertain(&bench, next), [9].into());
}
