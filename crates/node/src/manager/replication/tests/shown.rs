//! What is shown of copies, whichever node is asked.

use super::*;

fn copy_on(status: &VolumeStatus, node: &str) -> crate::model::ReplicaStatus {
    let known = status.replication.iter().flat_map(|known| &known.replicas);
    let mut found = known.filter(|copy| copy.node == node);
    found.next().expect("a copy").clone()
}

#[test]
fn a_node_without_a_copy_names_all_volumes_of_its_cluster() {
    let nodes = Nodes::new(3);
    let name = nodes.volume(2);
    let uuid = nodes.look(0, &name).uuid;
    let view = |node: usize| nodes.rooms[node].manager.cluster_view().expect("a cluster");
    for node in 0..3 {
        until("it says who has what", || {
            let volumes = view(node).volumes;
            let [volume] = &volumes[..] else { return false };
            let known = &volume.replication;
            let all_in_sync = |known: &crate::model::ReplicationStatus| {
                let mut copies = known.replicas.iter();
                copies.all(|copy| copy.state == ReplicaState::InSync)
            };
            assert_eq!((volume.volume.as_str(), volume.uuid), ("tank/db", uuid));
            known.owner.as_deref() == Some("n1") && all_in_sync(known)
        });
    }
    let listed = nodes.rooms[1].manager.volumes_with_owners();
    let known = listed[0].replication.as_ref();
    let owner = known.and_then(|known| known.owner.as_deref());
    assert_eq!((listed.len(), owner), (1, Some("n1")));
    // Its owner does not answer: what another node and the quorum know is said.
    nodes.rooms[0]
        .manager
        .replication()
        .expect("in a cluster")
        .cluster
        .stop();
    until("it goes by the other", || {
        let volumes = view(2).volumes;
        volumes.len() == 1 && volumes[0].replication.owner.as_deref() != Some("n1")
    });
}

#[test]
fn since_when_a_copy_is_absent_is_shown_until_it_is_in_sync() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let began = std::time::SystemTime::now();
    let drives = nodes.export(1);
    let since = || copy_on(&nodes.look(0, &name), "n2").absent_since_seconds;
    until("it is known", || since().is_some());
    let at = std::time::UNIX_EPOCH + Duration::from_secs(since().expect("known") + 1);
    assert!(at > began, "{at:?}");
    nodes.import(1, drives);
    nodes.await_all(&name, 2);
    assert_eq!(since(), None);
}
