//! Proofs of many leaves at once.

use super::*;

fn asked(rig: &mut Rig, leaves: &mut Vec<Leaves>) {
    for said in &rig.said {
        if let Message::DigestAsk { leaves: asked, .. } = said.message {
            leaves.push(asked);
        }
    }
}

/// Leaves of a question where nothing is written.
fn run() -> usize {
    Limits::default().unwritten_leaves as usize
}

/// Has the other copy obey until it is in sync: what it was asked for.
fn adds(rig: &mut Rig) -> Vec<Leaves> {
    let mut leaves = Vec::new();
    let end = rig.now + LONG;
    while rig.now < end && rig.in_sync() != Positions::first(2) {
        rig.pass(TICK);
        asked(rig, &mut leaves);
        rig.other_answers();
    }
    assert_eq!(rig.in_sync(), Positions::first(2));
    leaves
}

/// Of a sparse volume of so many leaves, of which the other copy misses nothing.
fn sparse(leaves: u64) -> Rig {
    let mut rig = Rig::of(Plan {
        granules: leaves * 8,
        missing: ExtentSet::new(),
        ..Plan::default()
    });
    rig.local.unwritten = u32::MAX;
    rig
}

#[test]
fn a_sparse_volume_is_proven_by_few_questions() {
    let leaves = adds(&mut sparse(8192));
    assert_eq!(leaves.len(), 8192 / run());
    let end = leaves.iter().fold(0, |end, run| {
        assert_eq!(run.first(), Leaf(end), "one behind the other");
        run.end().0
    });
    assert_eq!(end, 8192);
}

#[test]
fn of_a_run_that_differs_the_leaf_that_does_is_found_and_copied() {
    let mut rig = sparse(1024);
    rig.differs = Some(Leaf(300));
    let leaves = adds(&mut rig);
    let (position, leaf) = (at(1), Leaf(300));
    assert_eq!(rig.alarms, [Alarm::Differs { position, leaf }]);
    assert_eq!(rig.differs, None, "it was copied");
    let again = leaves.iter().filter(|run| run.only() == Some(leaf));
    assert_eq!(again.count(), 2, "before and after");
    assert_eq!(leaves.len(), 1024 / run() + run() + 1);
}

#[test]
fn the_proof_of_each_hour_is_of_every_leaf_and_finds_what_differs() {
    let mut rig = Rig::of(Plan {
        limits: Limits {
            prove_every: Duration::from_secs(1),
            written_leaves: 3,
            ..Limits::default()
        },
        ..Plan::default()
    });
    adds(&mut rig);
    rig.obey(LONG);
    assert!(rig.proofs.len() > 1);
    assert!(rig.proofs.iter().all(|proof| proof.leaves == GRANULES / 8));
    rig.differs = Some(Leaf(7));
    rig.obey(Duration::from_secs(2));
    let (position, leaf) = (at(1), Leaf(7));
    assert_eq!(rig.alarms[0], Alarm::Diverged { position, leaf });
}

#[test]
fn a_run_that_differs_is_not_forgotten_with_the_session_in_which_it_was_asked_for() {
    let mut rig = Rig::of(Plan {
        limits: Limits {
            prove_every: LONG * 5,
            written_leaves: 3,
            ..Limits::default()
        },
        // So many that a question of the walk is about three of them.
        granules: 1024 * 8,
        missing: ExtentSet::new(),
        ..Plan::default()
    });
    adds(&mut rig);
    rig.differs = Some(Leaf(7));
    let asks = |said: &Envelope| match said.message {
        Message::DigestAsk { leaves, .. } => leaves.only() == Some(Leaf(7)),
        _ => false,
    };
    let end = rig.now + LONG * 10;
    while !rig.said.iter().any(asks) {
        assert!(rig.now < end, "its run was not asked for");
        rig.other_answers();
        rig.pass(TICK);
    }
    assert_eq!(rig.alarms, []);
    rig.handle(Event::PeerGone { peer: at(1) });
    rig.obey(LONG);
    let (position, leaf) = (at(1), Leaf(7));
    assert_eq!(
        rig.alarms.first(),
        Some(&Alarm::Diverged { position, leaf })
    );
}
