//! What there is to tell of a cluster and of volumes with copies on several nodes.

use prometheus_client::registry::Unit;

use super::series::{counter, gauge, label, of_volume, states, word};
use super::{Labels, Metric};
use crate::model::{
    ClusterMetrics, CopiedCount, CopyCounts, FailoverCount, ProofStatus, ReplicaState,
    ReplicaStatus, ReplicationStatus, VolumeMetrics,
};

const STATES: [ReplicaState; 7] = [
    ReplicaState::InSync,
    ReplicaState::Resync,
    ReplicaState::Proving,
    ReplicaState::Diverged,
    ReplicaState::Absent,
    ReplicaState::InDoubt,
    ReplicaState::Unknown,
];

/// A volume that has copies on several nodes.
#[derive(Clone, Copy)]
struct Replicated<'a> {
    volume: &'a VolumeMetrics,
    known: &'a ReplicationStatus,
    is_owned_here: bool,
}

impl Replicated<'_> {
    fn labels(&self) -> Labels {
        of_volume(self.volume)
    }

    fn labels_with(&self, node: &str) -> Labels {
        let mut labels = self.labels();
        labels.push(("node", node.to_owned()));
        labels
    }

    /// What only the owner knows is said by it alone, so that a sum over all nodes counts it once.
    fn copies(&self) -> impl Iterator<Item = &ReplicaStatus> {
        let copies = self.is_owned_here.then_some(&self.known.replicas);
        copies.into_iter().flatten()
    }

    fn proof(&self) -> Option<&ProofStatus> {
        self.known
            .last_proof
            .as_ref()
            .filter(|_| self.is_owned_here)
    }
}

/// All of it.
pub(super) fn all(cluster: &ClusterMetrics, volumes: &[VolumeMetrics]) -> Vec<Metric> {
    let replicated = volumes.iter().filter_map(|volume| {
        let known = volume.status.replication.as_ref()?;
        Some(Replicated {
            volume,
            known,
            is_owned_here: known.owner.as_ref() == Some(&cluster.node),
        })
    });
    let replicated: Vec<Replicated<'_>> = replicated.collect();
    let mut out = nodes(cluster);
    out.extend(owners(&replicated));
    out.extend(copies(&replicated));
    out.extend(resyncs(&replicated));
    out.extend(sent(&cluster.copied, &replicated));
    out.extend(counts(&cluster.copies, &replicated));
    out.extend(failovers(&cluster.failovers, &replicated));
    out.extend(proofs(&replicated));
    out
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn nodes(cluster: &ClusterMetrics) -> Vec<Metric> {
    let quorum = (Labels::new(), truth(cluster.quorum_reachable));
    let drained = (Labels::new(), truth(cluster.drained));
    let agreed = cluster
        .agreed
        .map(|version| (Labels::new(), f64::from(version)));
    let peers = cluster.peers.iter();
    let peers = peers.map(|peer| (label([("node", &peer.node)]), truth(peer.connected)));
    vec![
        gauge(
            "ashlar_quorum_reachable",
            "Whether the quorum answers",
            None,
        )
        .with([quorum]),
        gauge(
            "ashlar_peer_connected",
            "Whether another node is reached",
            None,
        )
        .with(peers),
        gauge("ashlar_node_drained", "Whether the node was drained", None).with([drained]),
        gauge(
            "ashlar_cluster_protocol_version",
            "Version of what nodes say to each other that all have agreed on",
            None,
        )
        .with(agreed),
    ]
}

fn owners(volumes: &[Replicated<'_>]) -> Vec<Metric> {
    let of = |metric: Metric, value: fn(&Replicated<'_>) -> f64| {
        metric.with(volumes.iter().map(|one| (one.labels(), value(one))))
    };
    vec![
        of(
            gauge(
                "ashlar_replica_owner",
                "1 if this node serves the volume",
                None,
            ),
            |one| truth(one.is_owned_here),
        ),
        of(
            gauge(
                "ashlar_replica_epoch",
                "Newest epoch of an owner that this node knows",
                None,
            ),
            |one| f64::from(one.known.epoch),
        ),
    ]
}

fn copies(volumes: &[Replicated<'_>]) -> Vec<Metric> {
    let each = || {
        volumes.iter().flat_map(|one| {
            let labels = |copy: &ReplicaStatus| one.labels_with(&copy.node);
            one.copies().map(move |copy| (labels(copy), copy))
        })
    };
    let left = each().map(|(labels, copy)| (labels, copy.resync_bytes_left as f64));
    let since = each().filter_map(|(labels, copy)| {
        let since = copy.absent_since_seconds?;
        Some((labels, since as f64))
    });
    let state =
        each().flat_map(|(labels, copy)| states(&STATES, copy.state, &labels).collect::<Vec<_>>());
    vec![
        gauge(
            "ashlar_replica_state",
            "1 for the state the copy is in",
            None,
        )
        .with(state),
        gauge(
            "ashlar_replica_resync_left",
            "What the copy misses yet",
            Some(Unit::Bytes),
        )
        .with(left),
        gauge(
            "ashlar_replica_absent_since_timestamp",
            "Since when the copy is not in sync, since 1970",
            Some(Unit::Seconds),
        )
        .with(since),
    ]
}

/// How far resyncs are, as far as that is known.
fn resyncs(volumes: &[Replicated<'_>]) -> Vec<Metric> {
    let of = |value: fn(&ReplicaStatus) -> Option<f64>| {
        volumes.iter().flat_map(move |one| {
            let known = one.copies();
            known.filter_map(move |copy| Some((one.labels_with(&copy.node), value(copy)?)))
        })
    };
    vec![
        gauge(
            "ashlar_replica_resync_done",
            "How much the copy has of what it missed when this resync began",
            Some(Unit::Other("ratio".into())),
        )
        .with(of(|copy| Some(f64::from(copy.resync_percent?) / 100.0))),
        gauge(
            "ashlar_replica_resync_eta",
            "Until the copy has everything, at the rate of the last minute",
            Some(Unit::Seconds),
        )
        .with(of(|copy| Some(copy.resync_seconds_left? as f64))),
    ]
}

/// What each node says of its own copy, whichever node owns the volume now.
fn counts(counts: &[CopyCounts], volumes: &[Replicated<'_>]) -> Vec<Metric> {
    let of = |value: fn(&CopyCounts) -> f64| {
        volumes.iter().filter_map(move |one| {
            let mut known = counts.iter();
            let count = known.find(|count| count.volume == one.volume.status.uuid)?;
            Some((one.labels(), value(count)))
        })
    };
    vec![
        counter(
            "ashlar_replica_forwarded",
            "Commands of hosts that came here and were sent on to the owner",
            None,
        )
        .with(of(|count| count.forwarded as f64)),
        counter(
            "ashlar_replica_stale",
            "Commands of hosts that came here and were refused, because they might have been late",
            None,
        )
        .with(of(|count| count.stale as f64)),
        counter(
            "ashlar_replica_follows",
            "How often this node has handed the volume to the one by which its hosts came",
            None,
        )
        .with(of(|count| count.followed as f64)),
        gauge(
            "ashlar_replica_alarm",
            "Whether this node knows of something that is wrong: `events` says what",
            None,
        )
        .with(of(|count| truth(count.alarm))),
    ]
}

/// What each node has sent to other copies, whichever node owns the volume now.
fn sent(counts: &[CopiedCount], volumes: &[Replicated<'_>]) -> [Metric; 2] {
    let of = |value: fn(&CopiedCount) -> u64| {
        volumes.iter().flat_map(move |one| {
            let counts = counts.iter();
            let counts = counts.filter(|count| count.volume == one.volume.status.uuid);
            counts.map(move |count| (one.labels_with(&count.node), value(count) as f64))
        })
    };
    [
        counter(
            "ashlar_replica_resynced",
            "What this node has copied to the copy, of what that missed",
            Some(Unit::Bytes),
        )
        .with(of(|count| count.bytes)),
        counter(
            "ashlar_replica_sent",
            "All that this node has sent to the copy's node for the volume",
            Some(Unit::Bytes),
        )
        .with(of(|count| count.sent_bytes)),
    ]
}

fn failovers(counts: &[FailoverCount], volumes: &[Replicated<'_>]) -> Vec<Metric> {
    let counts = volumes.iter().flat_map(|one| {
        let counts = counts
            .iter()
            .filter(|count| count.volume == one.volume.status.uuid);
        counts.map(|count| {
            let mut labels = one.labels();
            labels.push(("cause", word(count.cause)));
            (labels, count.count as f64)
        })
    });
    let gaps = volumes.iter().filter_map(|one| {
        let last = one.known.last_failover.filter(|_| one.is_owned_here)?;
        Some((one.labels(), last.gap_ms as f64 / 1e3))
    });
    vec![
        counter(
            "ashlar_replica_failovers",
            "How often this node came to serve the volume",
            None,
        )
        .with(counts),
        gauge(
            "ashlar_replica_last_gap",
            "From the last word of the owner before until this node served",
            Some(Unit::Seconds),
        )
        .with(gaps),
    ]
}

fn proofs(volumes: &[Replicated<'_>]) -> Vec<Metric> {
    let ends = volumes
        .iter()
        .filter_map(|one| Some((one.labels(), one.proof()?.seconds as f64)));
    let different = volumes.iter().flat_map(|one| {
        let copies = one.proof().map(|proof| &proof.copies);
        copies.into_iter().flatten().map(|copy| {
            let bytes: u64 = copy.ranges.iter().map(|range| range.bytes).sum();
            (one.labels_with(&copy.node), bytes as f64)
        })
    });
    vec![
        gauge(
            "ashlar_replica_last_proof_timestamp",
            "When copies in sync were compared last, since 1970",
            Some(Unit::Seconds),
        )
        .with(ends),
        gauge(
            "ashlar_replica_last_proof_different",
            "What the copy differed in then from the owner's",
            Some(Unit::Bytes),
        )
        .with(different),
    ]
}
