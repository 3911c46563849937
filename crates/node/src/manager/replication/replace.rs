//! One node takes the place of another: each volume's copy there goes to it, and the old one is taken away once the new
//! one is in sync.
//!
//! Nothing is remembered of it but what the volumes' keys say. Every call does what can be done next, so who has begun
//! may end, and who calls again goes on.

use ashlar_replica::NodeId;
use uuid::Uuid;

use super::orders::Order;
use super::{Replication, told};
use crate::manager::PoolManager;
use crate::model::{
    ControlError, ErrorKind, ReplaceNode, ReplaceReply, ReplaceState, ReplacedVolume, VolumeName,
};

/// Which node takes the place of which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacement {
    pub(super) old: NodeId,
    pub(super) new: NodeId,
}

impl Replication {
    /// Why nothing can be done about a volume whose owner does not do it.
    fn no_owner(&self, volume: Uuid, old: NodeId, error: ControlError) -> ControlError {
        let Ok(newest) = self.read_newest(volume) else {
            return error;
        };
        let in_sync = newest.key.in_sync;
        let old = newest.key.position(old);
        let is_only = old.is_some_and(|old| in_sync.without(old).is_empty());
        match is_only && error.kind == ErrorKind::Environment {
            true => ControlError::conflict(format!(
                "the only copy in sync is the one that is to be replaced, and its node does not answer ({}): start it \
                 again. If it is lost, `ashlar volume run-alone --accept-data-loss` has an older copy go on",
                error.message
            )),
            false => error,
        }
    }
}

impl PoolManager {
    /// Does what can be done next to have one node take the place of another.
    pub(in crate::manager) fn replace_by(
        &self,
        request: &ReplaceNode,
    ) -> Result<ReplaceReply, ControlError> {
        let replication = self.replication()?;
        let named = |name: &str| replication.node_named(name);
        let (old, new) = (named(&request.node)?, named(&request.with)?);
        if old == new {
            let why = format!("node {} cannot take its own place", request.node);
            return Err(ControlError::usage(why));
        }
        let is_drained = match new == replication.cluster.me() {
            true => Some(replication.is_drained()),
            false => replication.asks_whether_drained(new),
        };
        if is_drained.is_none() {
            let why = format!("node {} is not reached: nothing is replaced", request.with);
            return Err(ControlError::environment(why));
        }
        let volumes = replication.cluster.volumes_on(old).map_err(told)?;
        let nodes = Replacement { old, new };
        let one = |volume: Uuid| match self.replace_at_owner(volume, nodes) {
            // A key may be left of a volume that is nowhere.
            Err(error)
                if error.kind == ErrorKind::NotFound
                    && self.drop_orphaned_key(volume, None).unwrap_or(false) =>
            {
                None
            }
            Err(error) => Some(ReplacedVolume {
                volume: self.name_of(volume).unwrap_or_else(|| volume.to_string()),
                uuid: volume,
                state: ReplaceState::Refused,
                resync_bytes_left: 0,
                reason: Some(replication.no_owner(volume, old, error).message),
            }),
            Ok(done) => Some(done),
        };
        Ok(ReplaceReply {
            volumes: volumes.into_iter().filter_map(one).collect(),
        })
    }

    fn replace_at_owner(
        &self,
        volume: Uuid,
        nodes: Replacement,
    ) -> Result<ReplacedVolume, ControlError> {
        let replication = self.replication()?;
        let owner = replication.read_newest(volume)?.key.owner.node;
        if owner == replication.cluster.me() {
            return self.replace_copy(volume, nodes);
        }
        let Replacement { old, new } = nodes;
        let answer = replication.order(owner, &Order::Replace { volume, old, new })?;
        serde_json::from_value(answer).map_err(|error| ControlError::internal(error.to_string()))
    }

    /// The next step for one volume, on the node that owns it.
    pub(super) fn replace_copy(
        &self,
        volume: Uuid,
        nodes: Replacement,
    ) -> Result<ReplacedVolume, ControlError> {
        let Replacement { old, new } = nodes;
        let replication = self.replication()?;
        let place = self.place_of(volume)?;
        let name: VolumeName = place.name.parse()?;
        let key = replication.read_newest(volume)?.key;
        let reply = |state, resync_bytes_left| ReplacedVolume {
            volume: place.name.clone(),
            uuid: volume,
            state,
            resync_bytes_left,
            reason: None,
        };
        let Some(old_at) = key.position(old) else {
            return Ok(reply(ReplaceState::Replaced, 0));
        };
        let status = self.one_volume(&name)?;
        match key.position(new) {
            Some(at) if key.in_sync.has(at) => {
                self.take_seat(&name, volume, old_at)?;
                Ok(reply(ReplaceState::Replaced, 0))
            }
            Some(at) => {
                let left = self.with_copy(volume, |pool, number| {
                    let view = self.replica_view(pool, number)?;
                    Ok(view.map_or(0, |view| view.missing_bytes[at.index()]))
                })?;
                Ok(reply(ReplaceState::Copying, left))
            }
            None => {
                match key.members.free() {
                    Some(_) => self.give_seat(&name, &status, new)?,
                    None => self.swap_seat(&name, &status, new, old_at)?,
                }
                Ok(reply(ReplaceState::Copying, status.bytes))
            }
        }
    }
}
