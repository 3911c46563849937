//! What owners have copied to copies that had missed something.

use std::collections::BTreeMap;

use ashlar_node::model::{ReplicaStatus, ReplicationStatus};

/// As it was looked at. Each term counts for itself, from 0; what an owner copies between the last look at it and its end
/// is not counted.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// The term that was looked at last, and what its owner had copied to each node by then.
    epoch: u32,
    counts: BTreeMap<String, u64>,
    total: u64,
    /// The most that each copy has missed since that was asked last.
    missed: BTreeMap<String, u64>,
}

impl Copied {
    /// Looks at what is said of a volume now.
    pub(crate) fn look(&mut self, known: &ReplicationStatus) {
        // What is said without an owner, or of a term that is over, is no owner's count.
        if known.owner.is_none() || known.epoch < self.epoch {
            return;
        }
        if known.epoch > self.epoch {
            self.epoch = known.epoch;
            self.counts.clear();
        }
        for copy in &known.replicas {
            let ReplicaStatus {
                node,
                resynced_bytes,
                resync_bytes_left,
                ..
            } = copy;
            let last = self.counts.entry(node.clone()).or_default();
            // A new copy on the same node counts from 0, too.
            let before = if resynced_bytes < last { 0 } else { *last };
            self.total += resynced_bytes - before;
            *last = *resynced_bytes;
            let most = self.missed.entry(node.clone()).or_default();
            *most = (*most).max(*resync_bytes_left);
        }
    }

    /// Bytes, of all terms that were looked at.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// The most that copies have been seen to miss since this was asked last, of each.
    pub(crate) fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed).into_values().sum()
    }
}

#[cfg(test)]
mod tests {
    use ashlar_node::model::ReplicaState;

    use super::*;

    /// What the owner of a term says: how much it has copied to node b, and how much that misses.
    fn said(epoch: u32, copied: u64, left: u64) -> ReplicationStatus {
        ReplicationStatus {
            owner: Some("a".to_owned()),
            epoch,
            replicas: vec![ReplicaStatus {
                node: "b".to_owned(),
                state: ReplicaState::Resync,
                resync_bytes_left: left,
                resync_percent: None,
                resync_seconds_left: None,
                absent_since_seconds: None,
                resynced_bytes: copied,
                reason: None,
            }],
            portals: Vec::new(),
            last_failover: None,
            follow: true,
            followed: None,
            reads: Default::default(),
            last_proof: None,
            written_bytes: None,
            advice: None,
        }
    }

    #[test]
    fn what_each_owner_has_copied_counts_once() {
        let mut copied = Copied::default();
        let none = ReplicationStatus {
            owner: None,
            ..said(1, 900, 0)
        };
        for (known, total) in [
            (said(1, 0, 50), 0),
            (said(1, 30, 20), 30),
            (none, 30),
            (said(2, 20, 0), 50),
            // A node that has not heard of it yet.
            (said(1, 40, 0), 50),
            (said(2, 25, 0), 55),
            // Another copy has its place.
            (said(2, 5, 0), 60),
        ] {
            copied.look(&known);
            assert_eq!(copied.total(), total, "{known:?}");
        }
        assert_eq!(copied.take_missed(), 50);
        assert_eq!(copied.take_missed(), 0);
    }
}
