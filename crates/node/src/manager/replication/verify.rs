//! Copies in sync, compared by digests: begun at the owner, waited for anywhere.

use std::time::{Duration, Instant, UNIX_EPOCH};

use ashlar_copy::LEAF_GRANULES;
use ashlar_replica::{Leaf, Positions, Shape};
use uuid::Uuid;

use super::orders::Order;
use super::{LOOK_EVERY, Replication};
use crate::manager::PoolManager;
use crate::model::{
    ControlError, CopyProof, DifferentRange, ProofResult, ProofStatus, ReplicationStatus,
    VolumeName,
};
use crate::pool::ReplicaMail;
use crate::replica::{ProofView, ReplicaView};

const GRANULE_BYTES: u64 = 4096;
/// How long a proof that was asked for may take. One of a large volume whose map is on slow drives reads all of that.
const PROVEN_WITHIN: Duration = Duration::from_secs(3600);

/// Copies that differed when they were compared last.
pub(super) fn diverged(view: &ProofView) -> Positions {
    let all = view.proof.differences.iter();
    all.map(|one| one.position).collect()
}

/// Leaves beside each other are one range.
fn ranges(shape: Shape, leaves: impl Iterator<Item = Leaf>) -> Vec<DifferentRange> {
    let mut all: Vec<DifferentRange> = Vec::new();
    for extent in leaves.filter_map(|leaf| shape.leaf(leaf)) {
        let offset = shape.size().seen(extent.first()) * GRANULE_BYTES;
        let bytes = u64::from(extent.count()) * GRANULE_BYTES;
        match all.last_mut() {
            Some(last) if last.offset + last.bytes == offset => last.bytes += bytes,
            _ => all.push(DifferentRange { offset, bytes }),
        }
    }
    all
}

impl Replication {
    pub(super) fn proof_status(&self, view: &ReplicaView) -> Option<ProofStatus> {
        let ProofView { at, asked, proof } = view.proof.as_ref()?;
        let shape = Shape::new(view.granules, LEAF_GRANULES).sized(view.size);
        let others = view.members.iter();
        let others = others.filter(|(position, _)| *position != view.position);
        let copy = |(position, node)| {
            let mut leaves: Vec<Leaf> = proof
                .differences
                .iter()
                .filter_map(|one| (one.position == position).then_some(one.leaf))
                .collect();
            leaves.sort_unstable();
            let ranges = ranges(shape, leaves.into_iter());
            CopyProof {
                node: self.node_name(node),
                result: match (ranges.is_empty(), proof.compared.has(position)) {
                    (false, _) => ProofResult::Differs,
                    (true, true) => ProofResult::Agrees,
                    (true, false) => ProofResult::NotCompared,
                },
                ranges,
            }
        };
        let bytes = proof.leaves * u64::from(LEAF_GRANULES) * GRANULE_BYTES;
        Some(ProofStatus {
            seconds: at
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            asked: *asked,
            owner: self.node_name(self.cluster.me()),
            // The register, behind what hosts see, is compared, too, and not counted.
            bytes: bytes.min(view.size.hosts() * GRANULE_BYTES),
            copies: others.map(copy).collect(),
        })
    }
}

impl PoolManager {
    /// Has copies in sync compared, if this node owns the volume.
    pub(super) fn begin_proof(&self, volume: Uuid) -> Result<(), ControlError> {
        self.with_copy(volume, |pool, number| {
            let view = self.replica_view(pool, number)?;
            view.filter(|view| view.serves).ok_or_else(|| {
                ControlError::conflict("this node does not serve the volume any more")
            })?;
            pool.link.post_to_replica(number, ReplicaMail::Verify);
            Ok(())
        })
    }

    /// Compares copies in sync now, and says what came of it.
    pub(in crate::manager) fn verify_replicated(
        &self,
        name: &VolumeName,
    ) -> Result<ProofStatus, ControlError> {
        let replication = self.replication()?;
        let status = self.one_volume(name)?;
        let before = status.replication.ok_or_else(|| {
            ControlError::conflict(format!(
                "volume {name} has one copy, on this node: there is nothing to compare it with, and `pool scrub` reads \
                 all of it"
            ))
        })?;
        let owner = before.owner.as_deref().ok_or_else(|| {
            ControlError::environment(format!("volume {name} is served by no node at present"))
        })?;
        let me = replication.cluster.me();
        let config = replication.cluster.config();
        let node = config.node(owner).map_or(me, |node| node.id);
        let volume = status.uuid;
        self.order_of(replication, node, Order::Verify { volume })?;
        let done = |known: &ReplicationStatus| known.last_proof.as_ref().map_or(0, |one| one.asked);
        let begun = Instant::now();
        while begun.elapsed() < PROVEN_WITHIN {
            let now = self.one_volume(name)?.replication;
            let now = now.filter(|now| now.epoch == before.epoch && now.owner == before.owner);
            let now = now.ok_or_else(|| {
                ControlError::environment(format!(
                    "volume {name} is not served by {owner} any more: verify it again"
                ))
            })?;
            if done(&now) > done(&before)
                && let Some(proof) = now.last_proof
            {
                return Ok(proof);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(ControlError::environment(format!(
            "the copies of volume {name} are still compared: `volume show {name}` says what came of it"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_beside_each_other_are_one_range_and_the_last_may_be_short() {
        let shape = Shape::new(3 * 512 + 8, 512);
        let leaves = [0, 2, 3].map(Leaf);
        let found = ranges(shape, leaves.into_iter());
        let leaf = 2 << 20;
        let range = |offset, bytes| DifferentRange { offset, bytes };
        assert_eq!(found, [range(0, leaf), range(2 * leaf, leaf + 8 * 4096)]);
    }
}
