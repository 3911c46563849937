//! Volumes that change.

use crate::common::{Bench, SALT, pattern};
use ashlar_block::{ErrorKind, Operation};
use ashlar_store::format::Root;
use ashlar_store::{Event, Layout, Manage, Managed, sizes};

fn resize(volume: u32, granules: u64) -> Manage {
    Manage::ResizeVolume { volume, granules }
}

fn used(bench: &Bench) -> u64 {
    let homes = bench.engine.status().homes;
    homes.iter().map(|home| home.used_bytes).sum()
}

#[test]
fn what_was_cut_off_in_the_ring_does_not_come_back() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(2048, 2);
    // Few enough to stay in the ring, more than are cleared at once.
    let written = || [0].into_iter().chain(60..100);
    for slot in written() {
        bench.write(volume, slot * 16, &pattern(1, 1)).unwrap();
    }
    assert_eq!(bench.engine.counters().destaged, 0);
    // The record of the size is durable, and not all that follows from it.
    bench.manage_cut(resize(volume, 2), 2);
    let mut bench = bench.restart();
    assert_eq!(bench.engine.geometry(volume).unwrap().blocks, 2);
    bench.manage(Manage::Drain).unwrap();
    bench.manage(resize(volume, 2048)).unwrap();
    for slot in written().skip(1) {
        assert_eq!(bench.read(volume, slot * 16, 1).unwrap(), vec![0; 4096]);
    }
    assert_eq!(bench.read(volume, 0, 1).unwrap(), pattern(1, 1));
}

#[test]
fn a_volume_deleted_while_it_is_made_smaller_leaves_nothing_behind() {
    let (mut gone, mut cut_off) = (0, 0);
    for (behind, budget) in [60, 140]
        .into_iter()
        .flat_map(|n| (0..16).map(move |b| (n, b)))
    {
        let mut bench = Bench::new(2, 24 << 20);
        let volume = bench.volume(3000, 2);
        for slot in 0..behind {
            bench.write(volume, slot * 16, &pattern(1, 1)).unwrap();
        }
        bench.manage(Manage::Drain).unwrap();
        let order = |id, what| Event::Manage { id, what };
        bench.seen.hold_after(2);
        let (_, resized) = bench.run(order(91, resize(volume, 80)));
        assert!(matches!(&resized[..], [(91, Ok(Managed::Done))]));
        bench.run(order(92, Manage::DeleteVolume { volume }));
        bench.seen.held.set(None);
        bench.budget = Some(budget);
        let (_, deleted) = bench.run(Event::Tick);
        let mut bench = bench.restart();
        bench.manage(Manage::Drain).unwrap();
        if bench.engine.volumes().is_empty() {
            gone += 1;
            assert_eq!(used(&bench), 0, "budget {budget}");
        } else {
            cut_off += 1;
            assert_eq!((used(&bench), deleted.len()), (5 << 16, 0), "{budget}");
        }
    }
    assert!(gone > 2 && cut_off > 0, "{gone} {cut_off}");
}

fn newest_root(bench: &Bench) -> Root {
    let medium = bench.media[0].borrow();
    let roots = sizes::ROOT_AT.iter().filter_map(|&at| {
        let at = at as usize;
        Root::decode(&medium[at..at + sizes::ROOT_BYTES as usize], SALT).ok()
    });
    roots.max_by_key(|root| root.generation).unwrap()
}

#[test]
fn deleted_volumes_leave_the_root() {
    let mut bench = Bench::new(2, 16 << 20);
    let stays = bench.volume(4096, 2);
    bench.write(stays, 4000, &pattern(3, 1)).unwrap();
    for _ in 0..30 {
        let volume = bench.volume(4096, 2);
        bench.write(volume, 0, &pattern(16, 2)).unwrap();
        bench.write(volume, 3000, &pattern(2, 3)).unwrap();
        bench.manage(Manage::Drain).unwrap();
        bench.manage(Manage::DeleteVolume { volume }).unwrap();
        bench.manage(Manage::Drain).unwrap();
    }
    let nodes: Vec<u32> = newest_root(&bench)
        .tops
        .iter()
        .map(|top| top.node)
        .collect();
    assert_eq!(
        nodes.iter().filter(|&&node| node >= 16).count(),
        1,
        "{nodes:?}"
    );
    let mut bench = bench.restart();
    assert_eq!(bench.read(stays, 4000, 3).unwrap(), pattern(3, 1));
    assert_eq!(bench.engine.volumes().len(), 1);
}

#[test]
fn one_change_of_a_size_at_a_time() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(1024, 2);
    let order = |id, granules| Event::Manage {
        id,
        what: resize(volume, granules),
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
    bench.manage(resize(volume, 100)).unwrap();
}

#[test]
fn who_asked_for_a_change_is_told_that_the_pool_has_stopped() {
    let mut bench = Bench::new(1, 16 << 20);
    let [grows, leaves] = [0, 1].map(|_| bench.volume(1024, 1));
    bench.seen.held.set(Some(|op| op != Operation::Read));
    // One is on its way to the log, the others wait for the next append.
    let orders = [
        resize(grows, 2048),
        Manage::DeleteVolume { volume: leaves },
        Manage::CreateVolume(bench.plan(64, Layout::Mirror { copies: 1 })),
    ];
    for (what, id) in orders.into_iter().zip(91..) {
        let (_, answers) = bench.run(Event::Manage { id, what });
        assert!(answers.is_empty(), "{answers:?}");
    }
    bench.may_fail = true;
    bench.seen.faults[0].set(Some((|_| true, ErrorKind::Media)));
    bench.seen.held.set(None);
    let (_, mut answers) = bench.run(Event::Tick);
    answers.sort_by_key(|(id, _)| *id);
    let told = answers.iter().map(|(id, answer)| match answer {
        Err(error) => (*id, error.kind()),
        Ok(done) => panic!("{id}: {done:?}"),
    });
    let told: Vec<(u64, ErrorKind)> = told.collect();
    assert_eq!(told, [91, 92, 93].map(|id| (id, ErrorKind::Latched)));
}
