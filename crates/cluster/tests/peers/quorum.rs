use std::sync::mpsc::channel;

use ashlar_cluster::{Cluster, Kind, Memory};
use ashlar_replica::Revision;
use ashlar_replica::quorum::{Held, Question, Reply};
use uuid::Uuid;

use crate::rig::{LONG, config, start, until};

const VOLUME: Uuid = Uuid::from_u128(77);

fn ask(cluster: &Cluster, question: Question) -> Reply {
    let (send, heard) = channel();
    cluster.ask(VOLUME, question, move |reply| {
        send.send(reply).expect("the test waits")
    });
    let reply = heard.recv_timeout(LONG).expect("it is delivered");
    assert!(heard.recv().is_err(), "once");
    reply
}

fn swap(revision: Revision, value: &[u8]) -> Question {
    let value = value.to_vec();
    Question::Swap { revision, value }
}

#[test]
fn keys_are_shared_and_outcomes_told() {
    let memory = Memory::default();
    let config = config(&memory, &["a", "b"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    assert_eq!(a.cluster_id(), b.cluster_id());
    assert_eq!(ask(&a, Question::Read), Reply::Holds(None));
    let Reply::Swapped(revision) = ask(&a, swap(Revision(0), b"one")) else {
        panic!("made");
    };
    let held = Held {
        revision,
        value: b"one".to_vec(),
    };
    assert_eq!(
        ask(&b, swap(Revision(0), b"two")),
        Reply::Holds(Some(held.clone()))
    );
    assert_eq!(ask(&b, Question::Read), Reply::Holds(Some(held)));
    memory.set_loses_answers(true);
    assert_eq!(ask(&b, swap(revision, b"three")), Reply::Unknown);
    memory.set_loses_answers(false);
    let Reply::Holds(Some(held)) = ask(&a, Question::Read) else {
        panic!("made");
    };
    assert_eq!(held.value, b"three");
    let at = |revision| a.delete_key_at(VOLUME, revision).expect("an answer");
    assert!(!at(revision), "it has changed since");
    assert!(at(held.revision) && at(held.revision), "it is gone");
    assert!(matches!(
        ask(&a, swap(Revision(0), b"four")),
        Reply::Swapped(_)
    ));
    a.delete_key(VOLUME).expect("deleted");
    b.delete_key(VOLUME).expect("it is gone already");
    assert_eq!(ask(&b, Question::Read), Reply::Holds(None));
}

#[test]
fn a_store_that_is_away_or_emptied_is_told_and_not_believed() {
    let memory = Memory::default();
    let config = config(&memory, &["a", "b"]);
    let a = start(&config, "a");
    assert!(matches!(
        ask(&a, swap(Revision(0), b"one")),
        Reply::Swapped(_)
    ));
    until("it answers", || a.status().quorum.reachable);
    memory.set_away(true);
    assert_eq!(ask(&a, Question::Read), Reply::Unknown);
    assert_eq!(ask(&a, swap(Revision(0), b"x")), Reply::Unknown);
    let status = a.status().quorum;
    assert!(!status.reachable && status.last_answer.is_some());
    let problem = a.delete_key(VOLUME).expect_err("away");
    assert_eq!(problem.kind, Kind::Environment);
    memory.set_away(false);
    memory.empty();
    assert_eq!(
        ask(&a, Question::Read),
        Reply::Unknown,
        "it does not say that there is no key"
    );
    assert_eq!(ask(&a, swap(Revision(0), b"x")), Reply::Unknown);
    let why = a.status().quorum.problem.expect("said");
    assert!(why.contains("emptied"), "{why}");
    // What starts anew and remembers nothing makes another cluster of it.
    let b = start(&config, "b");
    assert_ne!(a.cluster_id(), b.cluster_id());
    assert_eq!(ask(&a, Question::Read), Reply::Unknown);
    assert_eq!(ask(&b, Question::Read), Reply::Holds(None));
}

#[test]
fn what_waits_is_answered_also_by_the_end() {
    let config = config(&Memory::default(), &["a", "b"]);
    let a = start(&config, "a");
    let (send, heard) = channel();
    a.ask(VOLUME, Question::Read, |_| panic!("on purpose"));
    let stopper = a.clone();
    let told = send.clone();
    a.ask(VOLUME, Question::Read, move |reply| {
        // On the cluster's thread itself: it does not wait for its own end.
        stopper.stop();
        told.send(reply).expect("the test waits");
    });
    assert_eq!(heard.recv_timeout(LONG), Ok(Reply::Holds(None)));
    for _ in 0..100 {
        let send = send.clone();
        a.ask(VOLUME, Question::Read, move |reply| {
            send.send(reply).expect("the test waits")
        });
    }
    for _ in 0..100 {
        heard.recv_timeout(LONG).expect("answered, however it goes");
    }
    a.stop();
    let told = send.clone();
    a.ask(VOLUME, Question::Read, move |reply| {
        told.send(reply).expect("the test waits")
    });
    assert_eq!(heard.recv_timeout(LONG), Ok(Reply::Unknown));
    let (send, heard) = channel();
    a.dial(crate::rig::B, ashlar_replica::VolumeId(1), move |dialled| {
        send.send(dialled.is_err()).expect("the test waits");
    });
    assert_eq!(heard.recv_timeout(LONG), Ok(true));
}

/// A mark that was made meanwhile stays.
#[test]
fn how_far_a_pool_has_come_is_put_over_what_it_was_made_from_only() {
    let memory = Memory::default();
    let config = config(&memory, &["a", "b"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    let pool = Uuid::from_u128(5);
    let mut early = a.head(pool).expect("nothing is held");
    let mut marked = b.head(pool).expect("nothing is held");
    marked.head.old = vec![VOLUME];
    b.put_head(pool, &marked).expect("put");
    early.head.published = 9;
    let refused = a.put_head(pool, &early).expect_err("it was changed");
    assert_eq!(refused.kind, Kind::Conflict, "{refused:?}");
    let mut held = a.head(pool).expect("held");
    assert_eq!(
        (held.head.published, &held.head.old[..]),
        (0, &[VOLUME][..])
    );
    held.head.published = 9;
    a.put_head(pool, &held).expect("nothing else is held");
    assert_eq!(b.head(pool).expect("held").head, held.head);
}
