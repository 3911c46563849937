//! A fleet of databases on an attached volume: what is told of the volume comes from its node.

use serde_json::Value;

use crate::common::can_attach;
use crate::rig::Rig;

#[test]
fn a_fleet_on_a_volume_is_told_with_what_the_node_says_of_it() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("96MiB");
    rig.attach("tank/db", &["--fs", "ext4"]);
    let (place, out) = (format!("v={}", rig.mount()), rig.path("out"));
    let out = out.display().to_string();
    let words = "lab run fleet --scale min --databases 2 --streams 10 --nodes 1 --set fleet.engine=\"sqlite\" \
                 --set fleet.small=true --set fleet.steps=[100]";
    let words: Vec<&str> = words.split_whitespace().collect();
    rig.ok(&[&words[..], &["--place", &place, "--out", &out]].concat());
    let text = std::fs::read_to_string(rig.path("out/result.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let place = &result["places"][0];
    assert_eq!(
        (&place["volume"], &place["node"]),
        (&"tank/db".into(), &"node-1".into())
    );
    assert!(place["ballast_bytes"].as_u64() > Some(20 << 20), "{place}");
    let full = place["full_pct"].as_f64().expect("a share");
    assert!((69.0..72.0).contains(&full), "{place}");
    let step = &result["steps"][0];
    let volume = &step["volumes"][0];
    assert_eq!(volume["device"], "tank/db");
    for key in ["write_iops", "write_ms", "daemon_cpu_s", "pool_full_pct"] {
        assert!(volume[key].as_f64() > Some(0.0), "{key}: {volume}");
    }
    let node = &step["nodes"][0];
    assert_eq!(node["databases"], 2);
    assert_eq!(node["tps"], step["tps"]);
    let report = std::fs::read_to_string(rig.path("out/report.html")).expect("a report");
    assert!(report.contains("as their nodes tell") && report.contains("Each node"));
    // What filled it goes with the run.
    assert_eq!(
        std::fs::read_dir(rig.path("mnt")).expect("there").count(),
        1
    );
    rig.detach();
    rig.is_clean();
}
