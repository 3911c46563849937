use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::Control;
use crate::model::{
    ClusterMetrics, CopiedCount, CopyCounts, CopyProof, DifferentRange, FailoverCause,
    FailoverCount, FailoverStatus, PeerMetrics, ProofResult, ProofStatus, ReplicaState,
    ReplicaStatus, ReplicationStatus,
};
use crate::testing::FakeControl;

const DOCS: &str = include_str!("../../../../../docs/api.md");

fn copy(node: &str, state: ReplicaState, resync_bytes_left: u64) -> ReplicaStatus {
    ReplicaStatus {
        node: node.into(),
        state,
        resync_bytes_left,
        resync_percent: (state == ReplicaState::Resync).then_some(25),
        resync_seconds_left: (state == ReplicaState::Resync).then_some(90),
        absent_since_seconds: (state != ReplicaState::InSync).then_some(1_700_000_000),
        resynced_bytes: 0,
        reason: None,
    }
}

fn proof() -> ProofStatus {
    let ranges = vec![DifferentRange {
        offset: 0,
        bytes: 4096,
    }];
    ProofStatus {
        seconds: 1_800_000_000,
        asked: 1,
        owner: "a".into(),
        bytes: 1 << 20,
        copies: vec![CopyProof {
            node: "b".into(),
            result: ProofResult::Differs,
            ranges,
        }],
    }
}

/// A replicated volume with everything that can be known of one, as node a sees it.
fn snapshot(owner: &str) -> MetricsSnapshot {
    let control = FakeControl::new();
    let pool = r#"{"name":"tank","drives":["/dev/a","/dev/b"]}"#;
    let made = control.create_pool(serde_json::from_str(pool).expect("a request"));
    made.expect("a pool");
    let volume = r#"{"pool":"tank","name":"db","bytes":1048576,"layout":"mirror:2"}"#;
    let made = control.create_volume(serde_json::from_str(volume).expect("a request"));
    made.expect("a volume");
    let mut all = control.metrics();
    let volume = &mut all.volumes[0];
    let copies = vec![
        copy("a", ReplicaState::InSync, 0),
        copy("b", ReplicaState::Resync, 8192),
    ];
    let uuid = volume.status.uuid;
    volume.status.replication = Some(ReplicationStatus {
        owner: Some(owner.into()),
        epoch: 7,
        replicas: copies,
        portals: Vec::new(),
        last_failover: Some(FailoverStatus {
            gap_ms: 1250,
            cause: FailoverCause::Death,
        }),
        follow: true,
        followed: None,
        reads: Default::default(),
        last_proof: Some(proof()),
        written_bytes: None,
        advice: None,
    });
    let count = |cause, count| FailoverCount {
        volume: uuid,
        cause,
        count,
    };
    all.cluster = Some(ClusterMetrics {
        node: "a".into(),
        quorum_reachable: true,
        peers: vec![PeerMetrics {
            node: "b".into(),
            connected: false,
        }],
        failovers: vec![
            count(FailoverCause::Death, 2),
            count(FailoverCause::Move, 0),
        ],
        copied: vec![CopiedCount {
            volume: uuid,
            node: "b".into(),
            bytes: 12288,
            sent_bytes: 20480,
        }],
        copies: vec![CopyCounts {
            volume: uuid,
            forwarded: 17,
            stale: 3,
            followed: 1,
            alarm: true,
        }],
        drained: true,
        agreed: Some(6),
    });
    all
}

fn text(snapshot: &MetricsSnapshot) -> String {
    render(snapshot, &[], Duration::from_secs(1)).expect("text")
}

#[test]
fn an_owner_says_how_its_copies_are() {
    let text = text(&snapshot("a"));
    for line in [
        "ashlar_quorum_reachable{} 1",
        "ashlar_peer_connected{node=\"b\"} 0",
        "ashlar_replica_owner{pool=\"tank\",volume=\"db\"} 1",
        "ashlar_replica_epoch{pool=\"tank\",volume=\"db\"} 7",
        "ashlar_replica_state{pool=\"tank\",volume=\"db\",node=\"a\",state=\"in_sync\"} 1",
        "ashlar_replica_state{pool=\"tank\",volume=\"db\",node=\"b\",state=\"in_sync\"} 0",
        "ashlar_replica_state{pool=\"tank\",volume=\"db\",node=\"b\",state=\"resync\"} 1",
        "ashlar_replica_resync_left_bytes{pool=\"tank\",volume=\"db\",node=\"b\"} 8192",
        "ashlar_replica_absent_since_timestamp_seconds{pool=\"tank\",volume=\"db\",node=\"b\"} 1700000000",
        "ashlar_replica_resync_done_ratio{pool=\"tank\",volume=\"db\",node=\"b\"} 0.25",
        "ashlar_replica_resync_eta_seconds{pool=\"tank\",volume=\"db\",node=\"b\"} 90",
        "ashlar_replica_forwarded_total{pool=\"tank\",volume=\"db\"} 17",
        "ashlar_replica_stale_total{pool=\"tank\",volume=\"db\"} 3",
        "ashlar_replica_follows_total{pool=\"tank\",volume=\"db\"} 1",
        "ashlar_replica_alarm{pool=\"tank\",volume=\"db\"} 1",
        "ashlar_node_drained{} 1",
        "ashlar_cluster_protocol_version{} 6",
        "ashlar_replica_resynced_bytes_total{pool=\"tank\",volume=\"db\",node=\"b\"} 12288",
        "ashlar_replica_sent_bytes_total{pool=\"tank\",volume=\"db\",node=\"b\"} 20480",
        "ashlar_replica_failovers_total{pool=\"tank\",volume=\"db\",cause=\"death\"} 2",
        "ashlar_replica_failovers_total{pool=\"tank\",volume=\"db\",cause=\"move\"} 0",
        "ashlar_replica_last_gap_seconds{pool=\"tank\",volume=\"db\"} 1.25",
        "ashlar_replica_last_proof_timestamp_seconds{pool=\"tank\",volume=\"db\"} 1800000000",
        "ashlar_replica_last_proof_different_bytes{pool=\"tank\",volume=\"db\",node=\"b\"} 4096",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

/// Else a sum over all nodes would count it twice.
#[test]
fn a_node_that_does_not_own_a_volume_says_nothing_of_its_copies() {
    let text = text(&snapshot("b"));
    let line = "ashlar_replica_owner{pool=\"tank\",volume=\"db\"} 0";
    assert!(text.lines().any(|found| found == line), "{text}");
    assert!(!text.contains("ashlar_replica_state"), "{text}");
    assert!(!text.contains("ashlar_replica_last"), "{text}");
}

/// `a_{b,c}_d` as `a_b_d` and `a_c_d`.
fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else {
        return vec![name.to_owned()];
    };
    let (inner, after) = rest.split_once('}').expect("what was opened is closed");
    let words = inner
        .split(',')
        .map(|word| format!("{before}{word}{after}"));
    words.flat_map(|name| expanded(&name)).collect()
}

#[test]
fn every_series_is_documented() {
    let section = DOCS.split("## Metrics").nth(1).expect("a section");
    let quoted = section
        .split('`')
        .filter(|part| part.starts_with("ashlar_"));
    let documented: BTreeSet<String> = quoted.flat_map(expanded).collect();
    let text = text(&snapshot("a"));
    let series = text.lines().filter(|line| !line.starts_with('#'));
    for name in series.filter_map(|line| line.split(['{', ' ']).next()) {
        let is_known = name == "ashlar_build_info" || documented.contains(name);
        assert!(is_known, "{name} is not in docs/api.md");
    }
}
