//! What a drained node has given away stays away, while another can have it.

use super::*;

fn set_drained(nodes: &Nodes, node: usize, drain: bool) {
    let request = DrainNode {
        node: format!("n{}", node + 1),
        drain,
    };
    let drained = nodes.rooms[node].manager.drain_node(&request);
    let kept = drained.expect("heard").kept;
    assert!(kept.is_empty(), "{kept:?}");
}

pub(super) fn drain(nodes: &Nodes, node: usize) {
    set_drained(nodes, node, true);
}

/// A node that has not said in time that it is not drained, on a busy machine, is not preferred: then once more.
fn drain_to(nodes: &Nodes, name: &VolumeName, heir: usize) {
    let from = nodes.owner(name);
    until("the one that is not drained is preferred", || {
        drain(nodes, from);
        if nodes.owner(name) == heir {
            return true;
        }
        set_drained(nodes, from, false);
        let to = format!("n{}", from + 1);
        let moved = nodes.rooms[nodes.owner(name)]
            .manager
            .move_volume(name, MoveVolume { to });
        moved.expect("back");
        nodes.await_all(name, 3);
        false
    });
}

#[test]
fn a_drained_node_gets_no_volume_by_another_drain_nor_for_its_hosts() {
    let nodes = Nodes::new(3);
    let name = nodes.volume(3);
    let volume = nodes.look(0, &name).uuid;
    drain(&nodes, 0);
    let second = nodes.owner(&name);
    assert_ne!(second, 0);
    until("it knows who is in sync", || {
        let view = nodes.look(second, &name).replication;
        let copies = view.expect("several copies").replicas;
        copies.iter().all(|one| one.state == ReplicaState::InSync)
    });
    let third = 3 - second;
    drain_to(&nodes, &name, third);
    let manager = &nodes.rooms[third].manager;
    let handed = || {
        let replication = manager.replication().expect("in a cluster");
        replication
            .shown()
            .get(&volume)
            .map_or(0, |known| known.handed)
    };
    let first = Position::new(0).expect("a position");
    until("it knows who is in sync", || {
        let replication = manager.replication().expect("in a cluster");
        let shown = replication.shown();
        shown
            .get(&volume)
            .is_some_and(|known| known.in_sync.has(first))
    });
    // It has long had it: only that the other is drained keeps it here.
    let replication = manager.replication().expect("in a cluster");
    replication.shown().entry(volume).or_default().patience = Default::default();
    manager.followed(volume, first).expect("asked");
    assert_eq!(handed(), 0);
    assert_eq!(nodes.owner(&name), third);
    // There is no other than drained ones: one of them serves.
    drain(&nodes, third);
    assert_ne!(nodes.owner(&name), third);
}

/// Nodes that do not answer cost their time once, not once a volume.
#[test]
fn each_node_is_asked_once_for_all_volumes_that_are_handed_over() {
    let nodes = Nodes::new(3);
    let name = nodes.volume(3);
    let place = nodes.rooms[0].manager.copies().remove(0);
    let look = |reply| ReplicaMail::Look { reply };
    let view = place.pool.ask_replica(place.number, look).expect("asked");
    let view = view.expect("a copy");
    let replication = nodes.rooms[0].manager.replication().expect("in a cluster");
    let (begun, volumes) = (Instant::now(), vec![&view; 30]);
    // Whether they are drained is read under these locks.
    let held = [1, 2].map(|node| nodes.rooms[node].manager.state.hold());
    let heirs = replication.heirs_of(&volumes);
    drop(held);
    assert!(
        heirs.iter().all(|heir| *heir == Position::new(1)),
        "{heirs:?}"
    );
    // Thirty times half a second, and the same for the second node.
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert_eq!(nodes.owner(&name), 0);
}
