use ashlar_cluster::{Cluster, Kind, Memory, Remembered, certify};
use ashlar_replica::{Incarnation, VolumeId};
use uuid::Uuid;

use crate::rig::{A, B, Heard, LONG, address, config, dial, ear, start};

#[test]
fn each_start_has_an_incarnation_of_its_own() {
    let memory = Memory::default();
    let config = config(&memory, &["a", "b"]);
    let a = start(&config, "a");
    assert_eq!((a.me(), a.incarnation()), (A, Incarnation(1)));
    let remembered = a.remembered(None);
    let double = Cluster::start(config.clone(), "a")
        .err()
        .expect("the address is taken");
    assert_eq!(double.kind, Kind::Environment);
    assert!(double.message.contains("another daemon"), "{double}");
    a.stop();
    let a = Cluster::start_as(config.clone(), "a", &remembered).expect("again");
    assert_eq!(a.incarnation(), Incarnation(2), "the double took none");
    assert_eq!(start(&config, "b").incarnation(), Incarnation(1));
    let unknown = Cluster::start(config, "c").err().expect("not there");
    assert_eq!(unknown.kind, Kind::Usage);
    assert!(unknown.message.contains("a, b"), "{unknown}");
}

#[test]
fn a_quorum_that_lost_what_the_node_knows_is_refused_and_not_changed() {
    let memory = Memory::default();
    let config = config(&memory, &["a", "b"]);
    let a = start(&config, "a");
    let remembered = a.remembered(None);
    a.stop();
    let refused = |remembered: &Remembered, word: &str| {
        let problem = Cluster::start_as(config.clone(), "a", remembered).err();
        let problem = problem.expect("refused");
        assert_eq!(problem.kind, Kind::Conflict);
        assert!(problem.message.contains(word), "{problem}");
    };
    let newer = Remembered {
        incarnation: Incarnation(5),
        ..remembered
    };
    refused(&newer, "had 5 already");
    let other = Remembered {
        cluster: Some(Uuid::nil()),
        ..remembered
    };
    refused(&other, &Uuid::nil().to_string());
    memory.empty();
    refused(&remembered, "emptied");
    refused(&remembered, "has no /ashlar/test/id");
}

#[test]
fn a_number_is_never_another_nodes_and_a_name_never_two_daemons() {
    let memory = Memory::default();
    let config = config(&memory, &["a", "b"]);
    let a = start(&config, "a");
    let mut renamed = config.clone();
    renamed.nodes[0].name = "z".into();
    renamed.nodes[0].replication = address();
    let problem = Cluster::start(renamed, "z").err().expect("refused");
    assert_eq!(problem.kind, Kind::Conflict);
    assert!(
        problem.message.contains("node 1 is a in the quorum"),
        "{problem}"
    );
    let mut moved = config.clone();
    moved.nodes[0].replication = address();
    let problem = Cluster::start(moved.clone(), "a").err().expect("refused");
    let at = config.nodes[0].replication.to_string();
    assert!(problem.message.contains(&at), "{problem}");
    a.stop();
    let a = Cluster::start(moved, "a").expect("it has moved");
    assert_eq!(
        a.incarnation(),
        Incarnation(2),
        "what was refused took none"
    );
}

#[test]
fn a_death_is_heard_of_and_the_dead_is_refused() {
    let config = config(&Memory::default(), &["a", "b", "c"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    // Before it serves: it is told when it does.
    certify(&config, A, Incarnation(0));
    let (local, heard) = ear();
    b.serve(local);
    let dead = |incarnation| match heard.recv_timeout(LONG).expect("heard") {
        Heard::Dead(node, dead) => assert_eq!((node, dead), (A, incarnation)),
        other => panic!("{other:?}"),
    };
    dead(Incarnation(0));
    dial(&a, B, VolumeId(1)).expect("it lives");
    assert!(matches!(heard.recv_timeout(LONG), Ok(Heard::Accepted(..))));
    a.certify_dead(B, b.incarnation());
    a.certify_dead(A, Incarnation(0));
    dead(Incarnation(0));
    // Its parent has reaped it, says the test; node c is not there, and that is no hindrance.
    certify(&config, A, a.incarnation());
    dead(a.incarnation());
    let why = dial(&a, B, VolumeId(1)).expect_err("it is dead");
    assert!(why.contains("or this one as dead"), "{why}");
    let refused = b.status().peers.remove(0).refused;
    assert!(refused.expect("said").contains("incarnation 1"));
    a.stop();
    let a = start(&config, "a");
    dial(&a, B, VolumeId(1)).expect("its successor");
    assert_eq!(b.status().peers.remove(0).refused, None);
}
