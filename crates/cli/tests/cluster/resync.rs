//! What a copy that was away is given.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{eventually, ok};
use crate::host::{Client, Who};
use crate::rig::{Cluster, begin, has_etcd};

/// Of a volume of 16 MiB 8 KiB of every 64.
const PIECES: u64 = 256;
const PIECE: usize = 8192;
const EACH: u64 = 16;
const MISSED: u64 = PIECES * PIECE as u64;

fn copy_of_b(cluster: &Cluster) -> serde_json::Value {
    let shown = cluster.volume("a");
    let copies = shown["replicas"].as_array().expect("copies");
    let found = copies.iter().find(|copy| copy["node"] == "b");
    found.expect("a copy on b").clone()
}

fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time").as_secs()
}

/// Scattered, and smaller than what a pool allocates.
#[test]
fn what_a_copy_has_missed_is_copied_and_counted_and_nothing_else() {
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    cluster.serve_from("a");
    eventually("b is in sync", || copy_of_b(&cluster)["state"] == "in_sync");
    let before = copy_of_b(&cluster)["resynced_bytes"].as_u64();
    let killed = seconds();
    cluster.kill("b");
    eventually("b is left out", || copy_of_b(&cluster)["state"] == "absent");
    let who = Who {
        subsystem: cluster.volume("a")["nqn"].as_str().expect("an NQN").into(),
        nqn: "nqn.2024-01.com.example:host".into(),
        id: [7; 16],
    };
    let portal = cluster.portal("a");
    let (_admin, cntlid) = Client::admin_as(&who, portal);
    let mut io = Client::io_as(&who, portal, cntlid, 1);
    for piece in 0..PIECES {
        let status = io.write(piece * EACH, &[piece as u8 | 1; PIECE]);
        assert!(status.is_success(), "{status:?}");
    }
    assert_eq!(copy_of_b(&cluster)["resync_bytes_left"], MISSED);
    let since = copy_of_b(&cluster)["absent_since_seconds"].as_u64();
    assert!(since >= Some(killed), "{since:?}");
    begin(&mut cluster.daemon("b", &cluster.path("cluster.toml")));
    eventually("b is in sync", || copy_of_b(&cluster)["state"] == "in_sync");
    let copied = copy_of_b(&cluster)["resynced_bytes"].as_u64();
    let copied = copied.zip(before).map(|(now, before)| now - before);
    assert_eq!(copied, Some(MISSED));
    let series = "ashlar_replica_resynced_bytes_total{pool=\"tank\",volume=\"db\",node=\"b\"}";
    let counted = cluster.metrics("a").get(series).copied();
    assert!(counted >= Some(MISSED as f64), "{counted:?}");
    let told = ok(&mut cluster.to("a", &["events", "--json"]));
    for kind in ["resync", "resynced"] {
        assert!(
            told.contains(&format!("\"kind\":\"{kind}\"")),
            "{kind}: {told}"
        );
    }
    ok(&mut cluster.to("b", &["volume", "verify", "tank/db"]));
}
