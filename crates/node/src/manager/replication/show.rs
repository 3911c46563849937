//! What is shown of a volume's copies: the owner's account, or what this node knows.

use std::time::Duration;

use ashlar_replica::{NodeId, Position, Seats};
use uuid::Uuid;

use super::Replication;
use super::orders::{Order, ShowReply};
use super::verify::diverged;
use crate::manager::LivePool;
use crate::manager::PoolManager;
use crate::model::{ControlError, ReplicaState, ReplicaStatus, ReplicationStatus};
use crate::replica::ReplicaView;

/// How long an owner may take to say what it knows: one that was stopped would keep `volume show` waiting.
const SHOW_TIMEOUT: Duration = Duration::from_secs(1);

impl Replication {
    fn portals(&self, members: &Seats<NodeId>) -> Vec<String> {
        let config = self.cluster.config();
        let nodes = members.iter();
        let nodes = nodes.filter_map(|(_, node)| config.node_by_id(node));
        nodes
            .filter_map(|node| Some(node.portal?.to_string()))
            .collect()
    }

    /// What a copy here knows by itself.
    fn account(&self, volume: Uuid, view: &ReplicaView) -> ReplicationStatus {
        let shown = self.shown().get(&volume).cloned().unwrap_or_default();
        let diverged = view.proof.as_ref().map(diverged).unwrap_or_default();
        let replica = |(place, node): (Position, NodeId)| {
            let is = |set: ashlar_replica::Positions| set.has(place);
            let left = view.missing_bytes.get(place.index()).copied().unwrap_or(0);
            let state = match view.serves {
                false if view.position == place && is(view.absent) => ReplicaState::Absent,
                false => ReplicaState::Unknown,
                true if !is(view.absent) => ReplicaState::InSync,
                true if is(diverged) => ReplicaState::Diverged,
                true if !is(view.connected) => ReplicaState::Absent,
                true if left > 0 => ReplicaState::Resync,
                true => ReplicaState::Proving,
            };
            ReplicaStatus {
                node: self.node_name(node),
                state,
                resync_bytes_left: left,
                reason: view.troubles.get(place.index()).cloned().flatten(),
            }
        };
        let me = self.node_name(self.cluster.me());
        ReplicationStatus {
            owner: view.serves.then_some(me),
            epoch: view.promised.0,
            replicas: view.members.iter().map(replica).collect(),
            portals: self.portals(&view.members),
            last_failover: shown.last_failover,
            follow: !self.state.read().stays(volume),
            followed: shown.followed,
            last_proof: self.proof_status(view),
        }
    }

    /// What the owner says; without it, what the quorum has.
    fn asked(&self, volume: Uuid, own: ReplicationStatus) -> ReplicationStatus {
        let Ok(Some(key)) = self.read_key(volume) else {
            return own;
        };
        let node = key.owner.node;
        if node != self.cluster.me()
            && let Ok(answer) = self.order_within(SHOW_TIMEOUT, node, &Order::Show { volume })
            && let Ok(ShowReply { status }) = serde_json::from_value(answer)
            && status.owner.is_some()
        {
            return status;
        }
        let of = |name: &str| {
            key.members
                .find(|member| self.node_name(member.node) == name)
        };
        let replicas = own.replicas.into_iter().map(|replica| {
            let in_sync = of(&replica.node).is_some_and(|place| key.in_sync.has(place));
            let state = match in_sync {
                true => ReplicaState::InSync,
                false => ReplicaState::Absent,
            };
            ReplicaStatus { state, ..replica }
        });
        ReplicationStatus {
            owner: None,
            epoch: key.epoch.0,
            replicas: replicas.collect(),
            ..own
        }
    }
}

impl PoolManager {
    /// What this node knows of a volume by itself.
    pub(super) fn own_account(&self, volume: Uuid) -> Result<ReplicationStatus, ControlError> {
        let replication = self.replication()?;
        let gone =
            || ControlError::not_found(format!("the copy of volume {volume} is not in service"));
        self.with_copy(volume, |pool, number| {
            let view = self.replica_view(pool, number)?.ok_or_else(gone)?;
            Ok(replication.account(volume, &view))
        })
    }

    /// What this node knows of a pool's volume, if that is a copy in service.
    pub(in crate::manager) fn replication_of(
        &self,
        pool: &LivePool,
        number: u32,
        volume: Uuid,
    ) -> Option<ReplicationStatus> {
        let replication = self.replication.as_ref()?;
        let view = self.replica_view(pool, number).ok()??;
        Some(replication.account(volume, &view))
    }

    /// The same with what the owner knows.
    pub(in crate::manager) fn completed_by_owner(
        &self,
        volume: Uuid,
        own: ReplicationStatus,
    ) -> ReplicationStatus {
        match &self.replication {
            Some(replication) if own.owner.is_none() => replication.asked(volume, own),
            _ => own,
        }
    }
}
