//! A replicated volume becomes larger.

use super::*;
use crate::manager::live;
use crate::manager::replication::orders::Order;
use crate::model::{ControlError, ResizeVolume};

const LARGER: u64 = 3 * SIZE;

fn resize(
    nodes: &Nodes,
    node: usize,
    name: &VolumeName,
    bytes: u64,
) -> Result<VolumeStatus, ControlError> {
    let request = ResizeVolume {
        bytes,
        destroy_data: true,
    };
    nodes.rooms[node].manager.resize_volume(name, request)
}

fn granules_in_pool(nodes: &Nodes, node: usize) -> u64 {
    let pools = nodes.rooms[node].manager.lock();
    let pool = live(&pools, "tank").expect("in service");
    pool.link.view().expect("a view").status.volumes[0].granules
}

#[test]
fn a_volume_grows_on_all_its_nodes_and_goes_on_from_where_a_command_has_ended() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let refused = resize(&nodes, 0, &name, SIZE / 2).expect_err("smaller");
    assert!(refused.message.contains("not smaller"), "{refused}");
    // Before the key says the size that there is, what a pool has would be taken for it.
    let manager = &nodes.rooms[1].manager;
    let granules = LARGER / 4096;
    let order = Order::GrowCopy { volume, granules };
    let refused = manager.obey(NodeId(1), order).expect_err("not yet");
    assert!(
        refused.message.contains("does not say its size"),
        "{refused}"
    );
    // A command that has died when the copies had grown.
    let owner = &nodes.rooms[0].manager;
    let key = || {
        owner
            .replication()
            .expect("in a cluster")
            .read_newest(volume)
            .expect("a key")
            .key
    };
    let size = owner.size_of(volume, &key()).expect("a size");
    owner.wish_size(volume, size).expect("it is said");
    for room in &nodes.rooms {
        room.manager
            .grow_copy(volume, granules + 100)
            .expect("room");
    }
    for node in [0, 1] {
        assert_eq!(nodes.look(node, &name).bytes, SIZE);
    }
    let drives = nodes.export(1);
    nodes.import(1, drives);
    nodes.await_all(&name, 2);
    assert_eq!(nodes.look(1, &name).bytes, SIZE);
    // It is given again, for less than those have, and at the other node.
    let grown = resize(&nodes, 1, &name, LARGER).expect("it grows");
    assert_eq!(grown.bytes, LARGER);
    assert_eq!(nodes.look(0, &name).bytes, LARGER);
    assert_eq!(key().size.map(|size| size.hosts() * 4096), Some(LARGER));
    resize(&nodes, 0, &name, LARGER).expect("again");
}

#[test]
fn a_volume_grows_only_with_all_copies_in_sync_and_a_copy_that_is_given_is_as_large() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let drives = nodes.export(1);
    nodes.await_all(&name, 1);
    let refused = resize(&nodes, 0, &name, LARGER).expect_err("one is away");
    assert!(refused.message.contains("that of n2 is not"), "{refused}");
    nodes.import(1, drives);
    nodes.await_all(&name, 2);
    resize(&nodes, 0, &name, LARGER).expect("it grows");
    for replicas in [1, 2] {
        let request = ReplicateVolume {
            replicas,
            nodes: Vec::new(),
        };
        let changed = nodes.rooms[0].manager.replicate_volume(&name, request);
        changed.unwrap_or_else(|error| panic!("{replicas}: {error}"));
        nodes.await_all(&name, replicas);
    }
    assert_eq!(granules_in_pool(&nodes, 1), granules_in_pool(&nodes, 0));
    assert_eq!(nodes.look(1, &name).bytes, LARGER);
}
