//! What a learner is to be given, and its owner cannot read.

use super::*;

const LOST: u64 = 17;

fn lost() -> Extent {
    Extent::new(LOST, 1).expect("an extent")
}

fn told() -> Alarm {
    told_of(at(1), LOST)
}

fn told_of(position: Position, granule: u64) -> Alarm {
    let hosts = Extent::new(granule, 1);
    Alarm::Unreadable { position, hosts }
}

impl Rig {
    /// The other copy misses everything, and a granule of it is lost here.
    fn lacking() -> Self {
        let mut rig = Self::new();
        rig.local.lost.insert(lost());
        rig.obey(LONG);
        rig
    }
}

/// The only copy in sync does not stop for a block of it.
#[test]
fn an_owner_that_cannot_read_what_a_learner_lacks_serves_on_and_gives_it_the_rest() {
    let mut rig = Rig::lacking();
    assert!(rig.replica.is_serving());
    assert_eq!(rig.alarms, [told()]);
    assert_eq!(rig.replica.missing(at(1)), Some(1), "it has all else");
    assert_eq!(rig.in_sync(), Positions::first(1));
    let before = rig.local.lost_reads;
    rig.obey(Duration::from_secs(300));
    let tries = rig.local.lost_reads - before;
    assert!((4..12).contains(&tries), "{tries} tries in 5 minutes");
    assert_eq!(rig.alarms, [told()], "it is told once");
    rig.write(LOST);
    rig.obey(LONG);
    assert_eq!(rig.answers, [Outcome::Written]);
    assert_eq!(rig.in_sync(), Positions::first(2), "a host wrote it");
}

#[test]
fn what_can_be_read_again_is_given() {
    let mut rig = Rig::lacking();
    rig.local.lost = ExtentSet::new();
    rig.obey(LONG * 4);
    assert_eq!(rig.in_sync(), Positions::first(2));
}

/// Three copies, of which two are in sync and serve: the last is given what both have, and a range of it is lost here.
fn three(lost: Extent) -> Rig {
    let mut rig = Rig::begin(Plan {
        copies: 3,
        in_sync: Positions::first(2),
        ..Plan::default()
    });
    while !rig.replica.is_serving() {
        rig.pass(TICK);
        rig.other_answers();
    }
    assert_eq!(rig.replica.missing(at(2)), None, "its turn comes");
    rig.local.lost.insert(lost);
    rig
}

/// Passes, in which the other copy in sync answers what it is asked for; how often it is asked.
fn pass_with(rig: &mut Rig, time: Duration, content: Option<&Content>) -> usize {
    let mut asked = 0;
    let until = rig.local.now + time;
    while rig.local.now < until {
        rig.pass(TICK);
        for said in rig.said.clone() {
            assert!(!matches!(said.message, Message::Handoff), "it serves on");
            if let Message::Fetch { fetch, extent } = said.message {
                asked += 1;
                let content = content.cloned();
                let fetched = Message::Fetched {
                    fetch,
                    extent,
                    content,
                };
                rig.hear_in(&said, fetched);
            }
        }
        rig.other_answers();
    }
    asked
}

#[test]
fn what_another_copy_in_sync_has_is_taken_from_it() {
    let mut rig = three(lost());
    let asked = pass_with(&mut rig, LONG * 4, Some(&Content::Zeroes));
    assert_eq!(asked, 1);
    assert_eq!(rig.in_sync(), Positions::first(3));
    assert_eq!(rig.alarms, []);
}

/// What is asked for counts among the pieces that are under way: a lost leaf is not asked for at once.
#[test]
fn no_more_is_asked_for_at_once_than_is_copied() {
    let mut rig = three(lost());
    rig.local
        .lost
        .insert(Extent::new(0, 64).expect("an extent"));
    let is_fetch = |said: &&Envelope| matches!(said.message, Message::Fetch { .. });
    let (mut asked, mut ticks) = (0, 0);
    while ticks < 20 {
        rig.pass(TICK);
        asked += rig.said.iter().filter(is_fetch).count();
        ticks += usize::from(asked > 0);
        rig.other_answers();
    }
    let most = Limits::default().copies;
    assert!((1..=most).contains(&asked), "{asked} of {most}");
}

/// No other could do better, so the volume is handed to none, however long that lasts.
#[test]
fn what_no_copy_has_ends_no_service() {
    let mut rig = three(lost());
    let asked = pass_with(&mut rig, Duration::from_secs(300), None);
    assert!((4..14).contains(&asked), "{asked} questions in 5 minutes");
    assert!(rig.replica.is_serving());
    assert_eq!(rig.alarms, [told_of(at(2), LOST)]);
    assert_eq!(rig.replica.missing(at(2)), Some(1), "it has all else");
    rig.write(LOST);
    pass_with(&mut rig, LONG, None);
    assert_eq!(rig.answers, [Outcome::Written]);
    assert_eq!(rig.in_sync(), Positions::first(3), "a host wrote it");
}

/// Until another copy is asked for what is lost.
fn first_fetch(rig: &mut Rig) -> Envelope {
    let is_fetch = |said: &&Envelope| matches!(said.message, Message::Fetch { .. });
    loop {
        rig.pass(TICK);
        if let Some(asked) = rig.said.iter().find(is_fetch).cloned() {
            return asked;
        }
        rig.other_answers();
    }
}

/// The session ends while the other copy is asked: what hosts write meanwhile is not undone by its answer.
#[test]
fn a_piece_that_is_asked_for_is_locked_until_it_is_here() {
    let mut rig = three(lost());
    let asked = first_fetch(&mut rig);
    rig.handle(Event::PeerGone { peer: at(2) });
    rig.said.clear();
    rig.write(LOST);
    let is_record = |said: &Envelope| matches!(said.message, Message::Record { .. });
    assert!(!rig.said.iter().any(is_record), "it waits for its range");
    let Message::Fetch { fetch, extent } = asked.message else {
        unreachable!()
    };
    let content = Some(Content::Zeroes);
    let fetched = Message::Fetched {
        fetch,
        extent,
        content,
    };
    rig.hear_in(&asked, fetched);
    rig.obey(LONG);
    assert_eq!(rig.answers, [Outcome::Written]);
}

/// Longer than a store may take that hosts wait for.
const SLOW: Duration = Duration::from_secs(3);

/// A drive may take seconds to say that a block is lost. It does not hang, here or there, so nothing is handed over, no
/// copy is left out, and the learner's session goes on.
#[test]
fn a_drive_that_takes_long_to_lose_a_block_does_not_hang() {
    let mut rig = three(lost());
    rig.local.lost_takes = SLOW;
    let joins = rig.sessions.len();
    let asked = pass_with(&mut rig, SLOW * 20, None);
    assert!(asked > 0);
    assert_eq!(rig.sessions.len(), joins + 1, "one session of the learner");
    assert_eq!(rig.in_sync(), Positions::first(2));
    assert_eq!(rig.alarms, [told_of(at(2), LOST)]);
    assert_eq!(rig.replica.missing(at(2)), Some(1), "it has all else");
}

#[test]
fn a_copy_that_takes_long_to_find_what_a_learner_lacks_stays() {
    let mut rig = three(lost());
    let asked = first_fetch(&mut rig);
    assert!(!rig.gives(SLOW));
    assert_eq!(rig.in_sync(), Positions::first(2));
    assert_eq!(rig.alarms, [told_of(at(2), LOST)], "it is not waited for");
    let Message::Fetch { fetch, extent } = asked.message else {
        unreachable!()
    };
    let content = Some(Content::Zeroes);
    let fetched = Message::Fetched {
        fetch,
        extent,
        content,
    };
    rig.hear_in(&asked, fetched);
    assert!(rig.local.lost.overlaps(lost()), "nor taken");
}

/// What hosts wait for is owed, however it began.
#[test]
fn a_piece_that_a_host_waits_for_is_owed() {
    let mut rig = three(lost());
    rig.local.lost_takes = Duration::from_secs(3600);
    assert!(!rig.gives(SLOW * 4));
    assert_eq!(rig.local.later.len(), 1, "it is being read");
    rig.write(LOST);
    assert!(rig.gives(SLOW));
}

/// Another copy's part of a proof is no reason to leave it out.
#[test]
fn a_copy_that_takes_long_to_tell_what_it_has_stays_and_is_not_compared() {
    let mut rig = Rig::new();
    rig.obey(LONG);
    let both = Positions::first(2);
    assert_eq!(rig.in_sync(), both);
    rig.proves_not = Positions::NONE.with(at(1));
    rig.handle(Event::Verify);
    rig.obey(SLOW * 4);
    assert_eq!(rig.in_sync(), both);
    let compared = |rig: &Rig| rig.proofs.last().map(|proof| proof.compared);
    assert_eq!(compared(&rig), Some(Positions::NONE));
    rig.proves_not = Positions::NONE;
    rig.handle(Event::Verify);
    rig.obey(TICK * 8);
    assert_eq!(compared(&rig), Some(Positions::NONE.with(at(1))));
}

/// A write that has only begun does not hang, whatever the copy was asked before; one that is old does.
#[test]
fn what_a_copy_owes_is_judged_by_its_own_age() {
    let mut rig = Rig::new();
    rig.obey(LONG);
    rig.handle(Event::Verify);
    let both = Positions::first(2);
    let heard = |rig: &mut Rig, time| {
        let until = rig.now + time;
        while rig.now < until {
            let is_ask = |said: &Envelope| matches!(said.message, Message::GrantAsk { .. });
            rig.said.retain(is_ask);
            rig.obey(TICK);
        }
    };
    heard(&mut rig, Duration::from_millis(1900));
    rig.write(1);
    heard(&mut rig, Duration::from_millis(1800));
    assert_eq!(rig.in_sync(), both);
    heard(&mut rig, Duration::from_millis(400));
    assert_eq!(rig.in_sync(), Positions::first(1));
}

/// An owner that proves at once: both are in sync, and were not compared yet.
fn unproven() -> Rig {
    let mut rig = Rig::after(Epoch(5));
    while rig.in_sync() != Positions::first(2) {
        rig.obey(TICK);
    }
    assert!(rig.replica.is_unproven());
    rig
}

/// It has lost a sector, say: all else is compared, and the proof ends.
#[test]
fn a_leaf_that_another_copy_never_tells_is_left_out_of_a_proof() {
    let behind = Leaf(6);
    for differs in [None, Some(behind)] {
        let mut rig = unproven();
        (rig.never_told, rig.differs) = (Some(Leaf(2)), differs);
        rig.obey(SLOW * 3);
        let [proof] = &rig.proofs[..] else {
            panic!("{:?}", rig.proofs);
        };
        assert_eq!(proof.compared, Positions::NONE);
        let found = proof.differences.first().map(|one| one.leaf);
        assert_eq!(found, differs);
        if differs.is_none() {
            assert_eq!(proof.leaves, GRANULES / 8 - 1);
            assert!(!rig.replica.is_unproven());
        }
    }
}

/// What hosts write to leaves that are being compared waits: it must not do so again and again.
#[test]
fn a_copy_that_tells_nothing_is_not_asked_for_ever() {
    let mut rig = unproven();
    rig.proves_not = Positions::NONE.with(at(1));
    rig.obey(SLOW * 100);
    let proofs = rig.proofs.len();
    assert_eq!(proofs, 1, "begun in 300 s");
    assert!(rig.replica.is_unproven());
}

/// The second leaf of the volume, in which the lost granule is.
fn untold() -> ExtentSet {
    Extent::new(LOST / 8 * 8, 8).into_iter().collect()
}

/// What a leaf holds cannot be told where some of it is lost: it is given as far as it can be read, in the same session.
#[test]
fn a_leaf_that_cannot_be_told_is_given_to_a_learner() {
    let mut rig = Rig::new();
    rig.local.untold = untold();
    rig.local.missing = ExtentSet::new();
    rig.local.lost.insert(lost());
    rig.obey(TICK * 40);
    let sessions = rig.sessions.len();
    rig.obey(LONG);
    assert_eq!(rig.alarms, [told()]);
    assert_eq!(rig.replica.missing(at(1)), Some(1));
    assert_eq!(rig.sessions.len(), sessions, "it is the same");
    rig.local.untold = ExtentSet::new();
    rig.write(LOST);
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(2), "a host wrote it");
}

#[test]
fn a_leaf_that_cannot_be_told_ends_no_service() {
    let mut rig = Rig::new();
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(2));
    rig.local.untold = untold();
    rig.handle(Event::Verify);
    assert!(!rig.gives(LONG));
    assert!(rig.replica.is_serving());
    let [proof] = &rig.proofs[..] else {
        panic!("{:?}", rig.proofs);
    };
    let others = GRANULES / 8 - 1;
    assert_eq!((proof.leaves, proof.compared), (others, Positions::NONE));
    assert_eq!(proof.differences, []);
}

#[test]
fn people_are_told_of_one_lost_block_after_the_other() {
    const NEXT: u64 = 40;
    let mut rig = Rig::new();
    rig.local.lost.insert(lost());
    rig.local
        .lost
        .insert(Extent::new(NEXT, 1).expect("an extent"));
    rig.obey(LONG);
    assert_eq!(rig.alarms, [told()]);
    rig.write(LOST);
    rig.obey(Duration::from_secs(61));
    assert_eq!(rig.alarms, [told(), told_of(at(1), NEXT)]);
    rig.write(NEXT);
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(2));
}

/// What another copy has given back is not left until others are tried again that none has.
#[test]
fn what_was_given_back_is_read_at_once() {
    let mut rig = three(lost());
    rig.local
        .lost
        .insert(Extent::new(40, 1).expect("an extent"));
    pass_with(&mut rig, Duration::from_secs(120), None);
    assert_eq!(rig.replica.missing(at(2)), Some(2));
    while pass_with(&mut rig, TICK, Some(&Content::Zeroes)) == 0 {}
    pass_with(&mut rig, TICK * 40, Some(&Content::Zeroes));
    assert_eq!(rig.in_sync(), Positions::first(3));
}

#[test]
fn people_are_told_where_hosts_have_a_block() {
    let grown = Shape {
        granules: 200,
        register: 63,
        leaf_granules: 8,
    };
    let one = |granule| Extent::new(granule, 1).expect("an extent");
    for granule in [0, 62, 63, 64, 183] {
        let place = grown.place(one(granule)).expect("a host's");
        assert_eq!(grown.seen(place), Some(one(granule)));
    }
    assert_eq!(grown.seen(one(63)), None, "the register");
}
