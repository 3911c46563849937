//! What has become of the quorum and of other nodes, as events.

use std::collections::BTreeMap;

use ashlar_cluster::{ClusterStatus, PeerStatus};

use crate::manager::PoolManager;

/// Another node, or a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Reached,
    Away,
    /// It is in the cluster, and no node is to reach it.
    Witness,
}

/// The cluster, as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    quorum: bool,
    machines: BTreeMap<String, Sight>,
    agreed: Option<u16>,
}

impl Seen {
    fn of(status: &ClusterStatus) -> Self {
        let peer = |peer: &PeerStatus| {
            let sight = match peer.reachable {
                true => Sight::Reached,
                false => Sight::Away,
            };
            (peer.name.clone(), sight)
        };
        let witnesses = status.witnesses.iter();
        let witnesses = witnesses.map(|name| (name.clone(), Sight::Witness));
        Self {
            quorum: status.quorum.reachable,
            machines: status.peers.iter().map(peer).chain(witnesses).collect(),
            agreed: status.agreed,
        }
    }

    /// What has happened since.
    fn until(&self, now: &Self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        match (self.quorum, now.quorum) {
            (true, false) => all.push((
                "quorum_lost",
                "the quorum does not answer: no node takes a volume over".to_owned(),
            )),
            (false, true) => all.push(("quorum_back", "the quorum answers again".to_owned())),
            _ => {}
        }
        for (name, sight) in &now.machines {
            all.extend(match (self.machines.get(name), sight) {
                (None, Sight::Witness) => {
                    Some(("node_joined", format!("witness {name} has joined")))
                }
                (None, _) => Some(("node_joined", format!("node {name} has joined"))),
                (Some(Sight::Reached), Sight::Away) => {
                    Some(("node_lost", format!("node {name} is not reached")))
                }
                (Some(Sight::Away), Sight::Reached) => {
                    Some(("node_back", format!("node {name} is reached again")))
                }
                _ => None,
            });
        }
        let left = self.machines.keys();
        let left = left.filter(|name| !now.machines.contains_key(*name));
        all.extend(left.map(|name| {
            (
                "node_left",
                format!("{name} is none of the cluster any more"),
            )
        }));
        if let Some(agreed) = now.agreed.filter(|_| self.agreed != now.agreed) {
            let text =
                format!("all nodes have agreed on version {agreed} of what they say to each other");
            all.push(("agreed", text));
        }
        all
    }
}

impl PoolManager {
    /// Tells of what has changed since this was called last.
    pub(super) fn look_at_cluster(&self, seen: &mut Option<Seen>) {
        let Some(replication) = &self.replication else {
            return;
        };
        let now = Seen::of(&replication.cluster.status());
        let before = seen.replace(now.clone());
        for (kind, text) in before.map(|before| before.until(&now)).unwrap_or_default() {
            replication.events.add(kind, None, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(quorum: bool, machines: &[(&str, Sight)], agreed: u16) -> Seen {
        let machines = machines.iter();
        Seen {
            quorum,
            machines: machines
                .map(|&(name, sight)| (name.to_owned(), sight))
                .collect(),
            agreed: Some(agreed),
        }
    }

    #[test]
    fn what_becomes_of_the_cluster_is_told_once() {
        use Sight::{Away, Reached, Witness};
        let mut before = seen(true, &[("b", Reached)], 5);
        for (now, told) in [
            (seen(true, &[("b", Reached)], 5), &[][..]),
            (
                seen(false, &[("b", Away)], 5),
                &["quorum_lost", "node_lost"],
            ),
            (seen(false, &[("b", Away)], 5), &[]),
            (
                seen(true, &[("b", Reached)], 5),
                &["quorum_back", "node_back"],
            ),
            (
                seen(true, &[("b", Reached), ("c", Away), ("w", Witness)], 5),
                &["node_joined", "node_joined"],
            ),
            (
                seen(true, &[("c", Away), ("w", Witness)], 6),
                &["node_left", "agreed"],
            ),
        ] {
            let kinds: Vec<_> = before
                .until(&now)
                .into_iter()
                .map(|(kind, _)| kind)
                .collect();
            assert_eq!(kinds, told, "{now:?}");
            before = now;
        }
    }
}
