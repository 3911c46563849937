//! What services are told of who has their volumes.

use super::*;
use crate::manager::replication::services::ClusterNodes;
use crate::service::{Owner, Ownership};

impl Nodes {
    fn ownership(&self, node: usize) -> ClusterNodes {
        ClusterNodes::of(self.rooms[node].manager.clone())
    }
}

fn epoch_of(owner: Owner) -> Option<u64> {
    match owner {
        Owner::Here { epoch } => Some(epoch),
        Owner::Elsewhere { .. } | Owner::Unusable { .. } => None,
    }
}

/// It hears neither another copy nor the quorum, so it cannot know that it has lost its volumes.
#[test]
fn an_owner_that_is_cut_off_has_no_service_until_it_is_not() {
    let nodes = Nodes::new(2);
    let volumes = [nodes.volume(2)];
    let ownership = nodes.ownership(0);
    let epoch = || epoch_of(ownership.owner(&volumes));
    let before = epoch().expect("it has it");
    nodes.quorum.set_away(true);
    nodes.export(1);
    until("its service is told", || epoch().is_none());
    let Owner::Unusable { why } = ownership.owner(&volumes) else {
        panic!("it has it");
    };
    assert!(why.contains("another node may serve it by now"), "{why}");
    nodes.quorum.set_away(false);
    until("its service may come back", || epoch().is_some());
    assert_eq!(epoch(), Some(before), "none has had it meanwhile");
}

/// Volumes tank/db and fast/wal, with copies on two nodes.
fn two_pools(nodes: &Nodes) -> [VolumeName; 2] {
    for room in &nodes.rooms {
        let request = CreatePool {
            name: "fast".into(),
            drives: vec![room.drive("f0"), room.drive("f1")],
            ..CreatePool::default()
        };
        room.manager.create_pool(request).expect("made");
    }
    let data = nodes.volume(2);
    let wal = VolumeName::new("fast", "wal").expect("a name");
    let request = CreateVolume {
        replicas: 2,
        ..CreateVolume::new(&wal, SIZE, LayoutSpec::Mirror { copies: 2 })
    };
    let made = nodes.rooms[0].manager.create_volume(request);
    made.expect("made");
    nodes.await_all(&wal, 2);
    [data, wal]
}

#[test]
fn volumes_of_two_pools_are_brought_together_where_all_of_them_are_in_sync() {
    let nodes = Nodes::new(2);
    let volumes = two_pools(&nodes);
    let [_, wal] = &volumes;
    let [first, second] = [0, 1].map(|node| nodes.ownership(node));
    until("the first has them", || {
        epoch_of(first.owner(&volumes)).is_some()
    });
    let manager = &nodes.rooms[0].manager;
    let moved = manager.move_volume(wal, MoveVolume { to: "n2".into() });
    moved.expect("moved");
    until("it asks for the other", || {
        second.gather(&volumes).expect("it has not the first");
        // It may not be known yet which copies are in sync.
        let _ = first.gather(&volumes);
        epoch_of(first.owner(&volumes)).is_some()
    });
    nodes.await_all(wal, 2);
    let exported = manager.export_pool("fast", ExportPool { force: true });
    exported.expect("exported");
    until("the second has both", || {
        // Until the second has it, there is none that has all.
        let _ = first.gather(&volumes);
        epoch_of(second.owner(&volumes)).is_some()
    });
}

#[test]
fn a_service_goes_to_a_drained_node_only_where_there_is_no_other() {
    let nodes = Nodes::new(3);
    drained::drain(&nodes, 1);
    let ownership = nodes.ownership(0);
    let prefers = |nodes: &[&str]| {
        let nodes = nodes.iter().map(|&node| node.to_owned());
        ownership.preferred(nodes.collect())
    };
    // A node that has not said it in time is not preferred.
    until("the other comes first", || {
        prefers(&["n2", "n3"]) == ["n3", "n2"]
    });
    assert_eq!(prefers(&["n3", "n2"]), ["n3", "n2"]);
    assert_eq!(prefers(&["n2"]), ["n2"]);
}
