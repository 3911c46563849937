//! What is shown of a volume's copies: the owner's account, or what this node knows.

use std::collections::BTreeSet;
use std::time::Duration;

use ashlar_replica::{NodeId, Position, Seats};
use uuid::Uuid;

use super::Replication;
use super::heads::in_doubt;
use super::orders::{Order, ShowReply};
use super::verify::diverged;
use super::waiting::NO_KEY;
use crate::manager::volumes::{GRANULE, REGISTER};
use crate::manager::work::seconds;
use crate::manager::{LivePool, PoolManager};
use crate::model::{ControlError, ReplicaState, ReplicaStatus, ReplicationStatus};
use crate::replica::ReplicaView;

/// How long an owner may take to say what it knows: one that was stopped would keep `volume show` waiting.
const SHOW_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether a copy is being given what it misses.
const fn is_filled(state: ReplicaState) -> bool {
    matches!(state, ReplicaState::Resync | ReplicaState::Diverged)
}

/// A copy, as a node sees it.
#[derive(Clone, Copy)]
struct Look {
    /// The node serves hosts: what it sees counts.
    serves: bool,
    is_own: bool,
    is_absent: bool,
    is_connected: bool,
    is_diverged: bool,
    left: u64,
}

const fn state_of(look: Look) -> ReplicaState {
    match look.serves {
        false if look.is_own && look.is_absent => ReplicaState::Absent,
        false => ReplicaState::Unknown,
        true if !look.is_absent => ReplicaState::InSync,
        true if look.is_diverged => ReplicaState::Diverged,
        true if !look.is_connected => ReplicaState::Absent,
        true if look.left > 0 => ReplicaState::Resync,
        true => ReplicaState::Proving,
    }
}

/// What a pool holds of a copy, its register included.
struct Used {
    bytes: u64,
    slot: u64,
    granules: u64,
    /// The register was written.
    has_reserved: bool,
}

/// What of it is hosts', if that can be told: a blank register may have been written, and one that lies in a slot with
/// hosts' data is no slot of its own.
const fn written_of(used: Used) -> Option<u64> {
    let hosts = used.granules.saturating_sub(REGISTER) * GRANULE;
    match used.has_reserved {
        _ if used.bytes == 0 => Some(0),
        _ if !hosts.is_multiple_of(used.slot) => None,
        true => Some(used.bytes.saturating_sub(used.slot)),
        false if used.bytes > used.slot => Some(used.bytes),
        false => None,
    }
}

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
            let left = view.missing_bytes.get(place.index()).copied().unwrap_or(0);
            let state = state_of(Look {
                serves: view.serves,
                is_own: view.position == place,
                is_absent: view.absent.has(place),
                is_connected: view.connected.has(place),
                is_diverged: diverged.has(place),
                left,
            });
            let resync = view.resyncs.get(place.index()).copied();
            let resync = resync.filter(|_| is_filled(state)).unwrap_or_default();
            ReplicaStatus {
                node: self.node_name(node),
                state,
                resync_bytes_left: left,
                resync_percent: resync.percent,
                resync_seconds_left: resync.left.map(seconds),
                absent_since_seconds: match state {
                    ReplicaState::InSync => None,
                    _ => shown.absent.get(&node.0).copied().flatten(),
                },
                resynced_bytes: view.tally.copied_in_term(place),
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
            reads: self.reads,
            last_proof: self.proof_status(view),
            // What a copy elsewhere holds may not be what the volume does.
            written_bytes: view.serves.then(|| self.written_bytes(volume)).flatten(),
            advice: None,
        }
    }

    fn written_bytes(&self, volume: Uuid) -> Option<u64> {
        let place = self.places().get(&volume).cloned()?;
        let view = place.pool.view().ok()?;
        let mut stored = view.status.volumes.iter();
        let stored = stored.find(|stored| stored.number == place.number)?;
        written_of(Used {
            bytes: stored.used_bytes,
            slot: stored.grain?.bytes(),
            granules: stored.granules,
            has_reserved: !place.reservations.is_blank(),
        })
    }

    /// What the owner says, unless it is one of those that have spoken; without it, what the quorum has.
    pub(super) fn asked(
        &self,
        volume: Uuid,
        own: ReplicationStatus,
        heard: &BTreeSet<NodeId>,
    ) -> ReplicationStatus {
        let key = match self.read_key(volume) {
            Ok(Some(key)) => key,
            Ok(None) => {
                let advice = Some(NO_KEY.to_owned());
                return ReplicationStatus { advice, ..own };
            }
            Err(_) => return own,
        };
        let node = key.owner.node;
        if !heard.contains(&node)
            && let Ok(answer) = self.order_within(SHOW_TIMEOUT, node, &Order::Show { volume })
            && let Ok(ShowReply { status }) = serde_json::from_value(answer)
            && status.owner.is_some()
        {
            return status;
        }
        // What cannot be asked is shown as it was known before.
        let is_in_doubt = self.cluster.is_in_doubt(volume).unwrap_or(false);
        let of = |name: &str| {
            key.members
                .find(|member| self.node_name(member.node) == name)
        };
        let replicas = own.replicas.into_iter().map(|replica| {
            let in_sync = of(&replica.node).is_some_and(|place| key.in_sync.has(place));
            let (state, since) = match in_sync {
                true if is_in_doubt => (ReplicaState::InDoubt, None),
                true => (ReplicaState::InSync, None),
                false => (ReplicaState::Absent, replica.absent_since_seconds),
            };
            ReplicaStatus {
                state,
                absent_since_seconds: since,
                resync_percent: None,
                resync_seconds_left: None,
                ..replica
            }
        });
        ReplicationStatus {
            owner: None,
            epoch: key.epoch.0,
            replicas: replicas.collect(),
            written_bytes: None,
            advice: is_in_doubt.then(|| in_doubt(&self.name_here(volume))),
            ..own
        }
    }

    /// What a volume is called where it is to be named in a command.
    fn name_here(&self, volume: Uuid) -> String {
        let places = self.places();
        let place = places.get(&volume);
        place.map_or_else(|| "POOL/VOLUME".to_owned(), |place| place.name.clone())
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
            Some(replication) if own.owner.is_none() => {
                let heard = BTreeSet::from([replication.cluster.me()]);
                replication.asked(volume, own, &heard)
            }
            _ => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_have_written_is_told_without_the_register() {
        const SLOT: u64 = 64 << 10;
        let used = |bytes, has_reserved| Used {
            bytes,
            slot: SLOT,
            granules: (1 << 20) / GRANULE + REGISTER,
            has_reserved,
        };
        assert_eq!(written_of(used(0, false)), Some(0));
        assert_eq!(written_of(used(SLOT, true)), Some(0));
        assert_eq!(written_of(used(3 * SLOT, true)), Some(2 * SLOT));
        // The slot is a host's, or that of a register which was written and says nothing.
        assert_eq!(written_of(used(SLOT, false)), None);
        assert_eq!(written_of(used(2 * SLOT, false)), Some(2 * SLOT));
        let shared = Used {
            granules: used(SLOT, true).granules + 1,
            ..used(SLOT, true)
        };
        assert_eq!(written_of(shared), None);
    }

    #[test]
    fn how_a_copy_is_follows_from_what_its_node_sees() {
        let filled = Look {
            serves: true,
            is_own: false,
            is_absent: true,
            is_connected: true,
            is_diverged: false,
            left: 1,
        };
        let in_sync = Look {
            is_absent: false,
            ..filled
        };
        let proven = Look { left: 0, ..filled };
        let diverged = Look {
            is_diverged: true,
            ..filled
        };
        let away = Look {
            is_connected: false,
            ..filled
        };
        let elsewhere = Look {
            serves: false,
            ..in_sync
        };
        let own = Look {
            serves: false,
            is_own: true,
            ..filled
        };
        let states = [in_sync, filled, proven, diverged, away, elsewhere, own].map(state_of);
        let expected = [
            ReplicaState::InSync,
            ReplicaState::Resync,
            ReplicaState::Proving,
            ReplicaState::Diverged,
            ReplicaState::Absent,
            ReplicaState::Unknown,
            ReplicaState::Absent,
        ];
        assert_eq!(states, expected);
    }
}
