//! What a learner that is slower than hosts may have before it: it is in its memory.

use super::*;

const WRITES: u64 = 20;
const EACH: u32 = 32;
const MOST: u64 = 256;

/// The first piece is missed, and never copied: a learner stays one, and nothing that hosts write waits for it.
fn begin(copies: u8, in_sync: usize) -> Rig {
    let granules = 64 + WRITES * u64::from(EACH) + 8;
    let mut rig = Rig::begin(Plan {
        granules,
        missing: Extent::new(0, 64).into_iter().collect(),
        limits: Limits {
            learner_granules: MOST,
            ..Limits::default()
        },
        in_sync: Positions::first(in_sync),
        copies,
        ..Plan::default()
    });
    while rig.replica.missing(at(in_sync)).is_none() {
        rig.pass(TICK);
        rig.other_answers();
    }
    rig.said.clear();
    rig
}

fn write_all(rig: &mut Rig) {
    let data = Bytes::from(vec![1; EACH as usize * 4096]);
    write_all_of(rig, &Content::Data(data));
}

fn write_all_of(rig: &mut Rig, content: &Content) {
    for n in 0..WRITES {
        let extent = Extent::new(64 + n * u64::from(EACH), EACH).expect("an extent");
        rig.write_content(extent, content.clone());
    }
}

/// Granules of records that were sent to a copy.
fn sent(rig: &Rig, to: Position) -> u64 {
    let granules = |said: &Envelope| match &said.message {
        Message::Record(record) if rig.sessions[&said.session].0 == to => record.extent.count(),
        _ => 0,
    };
    rig.said.iter().map(granules).map(u64::from).sum()
}

#[test]
fn a_learner_that_acknowledges_nothing_is_sent_no_more_than_its_memory_may_hold() {
    let mut rig = begin(2, 1);
    write_all(&mut rig);
    assert_eq!(rig.answers, vec![Outcome::Written; WRITES as usize]);
    let sent = sent(&rig, at(1));
    assert!(
        (MOST..=MOST + 2 * u64::from(EACH)).contains(&sent),
        "{sent} granules"
    );
    rig.said.clear();
    rig.pass(TICK * 8);
    let joins = |said: &Envelope| matches!(said.message, Message::Join(_));
    assert!(rig.said.iter().any(joins), "it begins anew");
}

/// Hosts wait for it, so there is no more of it than they have asked for, and the next session would be sent it, too.
#[test]
fn what_is_not_committed_ends_no_learners_session() {
    let mut rig = begin(3, 2);
    write_all(&mut rig);
    assert_eq!(rig.answers, [], "the other copy in sync is waited for");
    assert_eq!(sent(&rig, at(2)), WRITES * u64::from(EACH));
}

/// A host that clears a whole device has a copy begin anew as seldom as any other.
#[test]
fn zeroes_take_no_memory_and_end_no_learners_session() {
    let mut rig = begin(2, 1);
    write_all_of(&mut rig, &Content::Zeroes);
    assert_eq!(rig.answers, vec![Outcome::Written; WRITES as usize]);
    assert_eq!(sent(&rig, at(1)), WRITES * u64::from(EACH));
}
