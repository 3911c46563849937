//! Which nodes get a new volume's copies.

use std::cmp::Reverse;

use ashlar_replica::NodeId;

use super::Replication;
use super::orders::Order;
use crate::Control;
use crate::manager::PoolManager;
use crate::model::{ControlError, CreateVolume, ErrorKind, PoolState, VolumeStatus};

impl Replication {
    /// Which nodes get a copy of a volume that is here, this one first.
    ///
    /// # Errors
    /// Others are named, or there are too few.
    pub(super) fn choose(&self, request: &CreateVolume) -> Result<Vec<NodeId>, ControlError> {
        if request.nodes.is_empty() {
            return self.choose_by_room(request, Some(self.cluster.me()));
        }
        let mut chosen = self.named(&request.nodes)?;
        let mine = chosen.iter().position(|&node| node == self.cluster.me());
        let mine = mine.ok_or_else(|| {
            let names = request.nodes.join(", or ");
            ControlError::usage(format!("this node gets no copy: order it at {names}"))
        })?;
        chosen[..=mine].rotate_right(1);
        Ok(chosen)
    }

    /// This node, if it may be one of them, and of the others those whose pool has most room.
    fn choose_by_room(
        &self,
        request: &CreateVolume,
        first: Option<NodeId>,
    ) -> Result<Vec<NodeId>, ControlError> {
        let config = self.cluster.config();
        let wanted = usize::from(request.replicas);
        let others = config.nodes.iter().map(|node| node.id);
        let others = others.filter(|&node| node != self.cluster.me());
        let others = others.filter(|&node| self.asks_whether_drained(node) == Some(false));
        let others = others.filter_map(|node| Some((node, self.room_on(node, &request.pool)?)));
        let mut others: Vec<(NodeId, u64)> = others.collect();
        // Of those with the same room the first of the cluster.
        others.sort_by_key(|&(_, room)| Reverse(room));
        let others = others.into_iter().map(|(node, _)| node);
        let chosen: Vec<NodeId> = first.into_iter().chain(others).take(wanted).collect();
        if chosen.len() < wanted {
            let text = format!(
                "{wanted} replicas need {wanted} nodes: of the {} of cluster {}, {} are reached, not drained, and have a \
                 pool {}",
                config.nodes.len(),
                config.name,
                chosen.len(),
                request.pool
            );
            return Err(match config.nodes.len() < wanted {
                true => ControlError::usage(text),
                false => ControlError::environment(text),
            });
        }
        Ok(chosen)
    }

    /// Bytes that a node's pool has room for; none if it has no such pool in service.
    fn room_on(&self, node: NodeId, pool: &str) -> Option<u64> {
        let pool = pool.to_owned();
        match self.order(node, &Order::SayRoom { pool }) {
            Ok(answer) => answer.as_u64(),
            // One of an older version does not know the question.
            Err(error) if error.kind == ErrorKind::Usage => Some(0),
            Err(_) => None,
        }
    }
}

impl PoolManager {
    /// Bytes that a pool here has room for.
    pub(super) fn room_here(&self, pool: &str) -> Result<u64, ControlError> {
        let status = self.pool(pool)?;
        if status.state == PoolState::Failed {
            return Err(ControlError::environment(format!(
                "pool {pool} is not in service"
            )));
        }
        let space = status.space;
        Ok(space.advertised_bytes.saturating_sub(space.used_bytes))
    }

    /// The nodes of a new volume, if this is none of them: named so, or it is drained, or has no such pool.
    pub(super) fn chosen_elsewhere(
        &self,
        request: &CreateVolume,
    ) -> Result<Option<Vec<NodeId>>, ControlError> {
        let replication = self.replication()?;
        let me = replication.cluster.me();
        if !request.nodes.is_empty() {
            let named = replication.named(&request.nodes)?;
            return Ok((!named.contains(&me)).then_some(named));
        }
        if !replication.is_drained() && self.room_here(&request.pool).is_ok() {
            return Ok(None);
        }
        replication.choose_by_room(request, None).map(Some)
    }

    /// Has one of them make a volume with copies on these nodes.
    pub(super) fn make_elsewhere(
        &self,
        request: &CreateVolume,
        nodes: &[NodeId],
    ) -> Result<VolumeStatus, ControlError> {
        let replication = self.replication()?;
        let names = nodes.iter().map(|&node| replication.node_name(node));
        let request = CreateVolume {
            nodes: names.collect(),
            ..request.clone()
        };
        let first = nodes.first().copied();
        let first = first.ok_or_else(|| ControlError::internal("no nodes"))?;
        let order = Order::MakeVolume(Box::new(request));
        let answer = replication.order_within(super::make::MADE_WITHIN, first, &order)?;
        serde_json::from_value(answer).map_err(|error| ControlError::internal(error.to_string()))
    }
}
