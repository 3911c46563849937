//! Against a real etcd of one member, private to the test: swaps, unknown outcomes, one that stops, ends, is emptied.

mod server;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ashlar_cluster::{
    Cluster, ClusterConfig, EtcdEndpoint, Key, Kind, NodeConfig, QuorumConfig, Trust,
};
use ashlar_replica::quorum::{Held, Question, Reply};
use ashlar_replica::{Incarnation, NodeId, Revision};
use uuid::Uuid;

use server::{Etcd, free_address};

const LONG: Duration = Duration::from_secs(60);

fn config(endpoints: Vec<EtcdEndpoint>) -> ClusterConfig {
    let node = |id, name: &str| NodeConfig {
        id: NodeId(id),
        name: name.into(),
        replication: free_address(),
        portal: None,
    };
    ClusterConfig {
        name: "test".into(),
        nodes: vec![node(1, "a"), node(2, "b")],
        quorum: QuorumConfig::Etcd(endpoints),
        trust: Trust::Key(Key::new(&[1; 32]).expect("a key")),
        versions: ashlar_cluster::Versions::OURS,
    }
}

fn ask(cluster: &Cluster, volume: Uuid, question: Question) -> Reply {
    let (send, heard) = channel();
    cluster.ask(volume, question, move |reply| {
        send.send(reply).expect("the test waits")
    });
    heard.recv_timeout(LONG).expect("it is delivered")
}

fn swap(revision: Revision, value: &[u8]) -> Question {
    let value = value.to_vec();
    Question::Swap { revision, value }
}

/// Asks until something is known.
fn settle(cluster: &Cluster, volume: Uuid, question: &Question) -> Reply {
    let end = Instant::now() + LONG;
    loop {
        match ask(cluster, volume, question.clone()) {
            Reply::Unknown => assert!(Instant::now() < end, "never known"),
            known => return known,
        }
    }
}

/// Changes a key; on a slow machine the answer may have to be found out.
fn change(cluster: &Cluster, volume: Uuid, revision: Revision, value: &[u8]) -> Revision {
    match settle(cluster, volume, &swap(revision, value)) {
        Reply::Swapped(revision) => revision,
        Reply::Holds(Some(held)) if held.value == value => held.revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_real_etcd_decides() {
    let Some(mut etcd) = Etcd::start() else {
        return;
    };
    // A member that is down is passed over.
    let down = EtcdEndpoint::from(free_address());
    let config = config(vec![down, etcd.endpoint()]);
    let a = Cluster::start(config.clone(), "a").expect("it starts");
    let b = Cluster::start(config.clone(), "b").expect("it starts");
    assert_eq!(a.cluster_id(), b.cluster_id());
    let volume = Uuid::new_v4();

    assert_eq!(settle(&a, volume, &Question::Read), Reply::Holds(None));
    let first = change(&a, volume, Revision(0), b"one");
    let held = |revision, value: &[u8]| {
        let value = value.to_vec();
        Reply::Holds(Some(Held { revision, value }))
    };
    let conflict = settle(&b, volume, &swap(Revision(0), b"two"));
    assert_eq!(conflict, held(first, b"one"));
    let second = change(&b, volume, first, b"two\0\xFF");
    assert!(second > first);
    assert_eq!(
        settle(&a, volume, &Question::Read),
        held(second, b"two\0\xFF")
    );
    let at = |revision| b.delete_key_at(volume, revision).expect("an answer");
    assert!(!at(first) && at(second) && at(second), "its own alone");
    b.delete_key(volume).expect("it is gone already");
    assert_eq!(settle(&a, volume, &swap(second, b"x")), Reply::Holds(None));
    let third = change(&a, volume, Revision(0), b"three");

    // Stopped, it takes a swap and does not answer: the outcome is not known, and is found out afterwards.
    etcd.pause();
    assert_eq!(ask(&a, volume, swap(third, b"four")), Reply::Unknown);
    assert_eq!(ask(&b, volume, Question::Read), Reply::Unknown);
    let status = a.status().quorum;
    assert!(!status.reachable);
    assert!(status.problem.expect("said").contains("no answer within"));
    etcd.go_on();
    let (revision, found) = match settle(&b, volume, &swap(third, b"five")) {
        Reply::Swapped(revision) => (revision, b"five".to_vec()),
        Reply::Holds(Some(held)) => (held.revision, held.value),
        other => panic!("{other:?}"),
    };
    assert!(found == b"five" || found == b"four", "{found:?}");
    // Whichever it was, the other is refused from now on.
    assert_eq!(
        settle(&a, volume, &swap(third, b"six")),
        held(revision, &found)
    );

    // Killed and back: nothing is lost, and connections are made anew.
    etcd.kill();
    assert_eq!(ask(&a, volume, swap(revision, b"x")), Reply::Unknown);
    etcd.run();
    assert_eq!(settle(&a, volume, &Question::Read), held(revision, &found));
    let remembered = a.remembered(None);
    a.stop();
    let a = Cluster::start_as(config.clone(), "a", &remembered).expect("again");
    assert_eq!(a.incarnation(), Incarnation(2));

    // Emptied: it is not believed to hold nothing, nor is anything begun in it.
    etcd.kill();
    etcd.empty();
    etcd.run();
    let end = Instant::now() + LONG;
    loop {
        assert_eq!(ask(&a, volume, Question::Read), Reply::Unknown);
        assert_eq!(ask(&a, volume, swap(Revision(0), b"x")), Reply::Unknown);
        let problem = a.status().quorum.problem;
        if problem.is_some_and(|why| why.contains("emptied")) {
            break;
        }
        assert!(Instant::now() < end, "never said");
    }
    a.stop();
    let problem = Cluster::start_as(config, "a", &remembered)
        .err()
        .expect("refused");
    assert_eq!(problem.kind, Kind::Conflict);
    assert!(problem.message.contains("emptied"), "{problem}");
}

#[test]
fn a_quorum_that_is_nowhere_or_no_etcd_is_named() {
    let nowhere = free_address();
    let problem = Cluster::start(config(vec![nowhere.into()]), "a")
        .err()
        .expect("refused");
    assert_eq!(problem.kind, Kind::Environment);
    let at = nowhere.to_string();
    assert!(
        problem.message.contains(&at) && problem.message.contains("refused"),
        "{problem}"
    );
}
