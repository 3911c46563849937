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
