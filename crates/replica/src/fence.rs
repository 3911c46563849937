//! Labels that refuse a host's late duplicates.
//!
//! Epochs do not stop a late duplicate of one write from overwriting a newer one: hosts try again by another
//! association as soon as one is gone, and what the old one still carries may arrive at any time. So a command carries a
//! *label*: what was known when its host was last known to use its association. What another association had written
//! by then the host has sent beside the command, not after it. The command is refused if there was another epoch then,
//! or if *another association of the same host* has written since.
//!
//! A label is never made fresh again: a command that is refused goes back to its host.

use std::collections::BTreeMap;

use ashlar_block::{AssociationId, HostId, Label};

use crate::canary::{Cage, Canary};
use crate::ids::Epoch;

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The host.
    pub host: HostId,
    /// By which association.
    pub association: AssociationId,
}

#[derive(Debug, Default)]
struct Count {
    all: u64,
    by_association: BTreeMap<AssociationId, u64>,
}

/// An owner's counts of each host's writes in its epoch. A new owner begins with none.
#[derive(Debug)]
pub struct Fence {
    epoch: Epoch,
    hosts: BTreeMap<HostId, Count>,
    cage: Cage,
}

impl Fence {
    /// An owner's, from the beginning of its epoch.
    pub const fn new(epoch: Epoch, cage: Cage) -> Self {
        let hosts = BTreeMap::new();
        Self { epoch, hosts, cage }
    }

    /// The label of an association's commands, once its host is known to use it after now.
    pub fn label(&self, origin: Origin) -> Label {
        Label {
            epoch: self.epoch.0,
            writes: self.others(origin),
        }
    }

    fn others(&self, origin: Origin) -> u64 {
        let Some(count) = self.hosts.get(&origin.host) else {
            return 0;
        };
        if self.cage.sings(Canary::FenceByNode) {
            return 0;
        }
        count.all - count.by_association.get(&origin.association).unwrap_or(&0)
    }

    /// Whether a write may be sequenced; if it may, it counts from now on.
    pub fn admits(&mut self, origin: Origin, label: Label) -> bool {
        let now = self.label(origin);
        let same_epoch = label.epoch == now.epoch || self.cage.sings(Canary::FenceWithoutEpoch);
        let is_fresh = same_epoch && label.writes == now.writes;
        let refreshes = self.cage.sings(Canary::FenceRefreshed) && label.epoch != now.epoch;
        if !(is_fresh || refreshes || self.cage.sings(Canary::FenceOff)) {
            return false;
        }
        let count = self.hosts.entry(origin.host).or_default();
        count.all += 1;
        *count.by_association.entry(origin.association).or_default() += 1;
        true
    }

    /// An association is gone, and nothing of it is left in its socket: its writes still count against others.
    pub fn ended(&mut self, origin: Origin) {
        if let Some(count) = self.hosts.get_mut(&origin.host) {
            count.by_association.remove(&origin.association);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(association: u64) -> Origin {
        Origin {
            host: HostId(1),
            association: AssociationId(association),
        }
    }

    #[test]
    fn a_late_duplicate_is_refused_once_another_association_has_written() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let (old, new) = (origin(1), origin(2));
        let label = fence.label(old);
        assert!(fence.admits(old, label), "nobody else has written");
        assert!(
            fence.admits(old, label),
            "its own writes do not age a label"
        );
        let fresh = fence.label(new);
        assert!(fence.admits(new, fresh));
        assert!(
            !fence.admits(old, label),
            "another association has written since"
        );
        let relabelled = fence.label(old);
        assert!(fence.admits(old, relabelled));
        assert!(!fence.admits(new, fresh));
        fence.ended(new);
        assert!(
            !fence.admits(old, label),
            "the writes of one that is gone still count"
        );
    }

    #[test]
    fn hosts_do_not_age_each_others_labels_and_epochs_do() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let other = Origin {
            host: HostId(2),
            association: AssociationId(9),
        };
        let label = fence.label(origin(1));
        let its = fence.label(other);
        assert!(fence.admits(other, its) && fence.admits(origin(1), label));
        let mut next = Fence::new(Epoch(4), Cage::default());
        assert!(!next.admits(origin(1), label));
    }
}
