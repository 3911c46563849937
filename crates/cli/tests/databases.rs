//! Scenarios of databases, and the loss of a primary, as a script sees them.

mod common;

use std::path::Path;

use serde_json::Value;

use common::{has_postgresql, open_folder};

fn lab(dir: &Path, words: &str) -> (i32, String) {
    common::lab(dir, words.split_whitespace())
}

fn result(dir: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(dir.join(name).join("result.json")).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

/// Nothing of a run is left where it was.
fn is_left_empty(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).expect("list").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_group_is_compared_with_one_server_beside_what_was_published() {
    if !has_postgresql() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    std::fs::create_dir(dir.join("place")).expect("made");
    let scenario = r#"
        name = "small"
        published = "fci_vs_basic_ag.csv"
        measure = { repeat = 1 }
        [oltp]
        warehouses = 1
        users = [2]
        transactions = 100
        topology = ["standalone", "availability-group"]
        commit = "remote-apply"
        memory_pct = [38]
        set = ["fsync=off"]
    "#;
    std::fs::write(dir.join("small.toml"), scenario).expect("written");
    let (code, text) = lab(dir, "run small.toml --place here=place --out out");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("the run time of here, standalone"), "{text}");
    let result = result(dir, "out");
    let all = result["configurations"].as_array().expect("configurations");
    assert_eq!(all.len(), 2);
    assert_eq!(all[1]["commit"], "remote-apply");
    for of in all {
        let step = &of["oltp"]["steps"][0];
        let conditions = step["consistency"].as_object().expect("conditions");
        assert!(
            conditions.len() == 12 && conditions.values().all(|c| c == "pass"),
            "{step}"
        );
        assert!(of["database_bytes"].as_u64() > Some(50 << 20), "{of}");
        let settings = &of["oltp"]["database"]["settings"];
        let waits = settings["synchronous_standby_names"].as_str() != Some("");
        assert_eq!(waits, of["topology"] == "availability-group", "{settings}");
    }
    // 8 minutes of 3.
    let published = result["comparisons"][0]["published"]
        .as_f64()
        .expect("published");
    assert!((published - 8.0 / 3.0).abs() < 1e-9, "{published}");
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("2.67") && report.contains("availability group"));
    std::fs::remove_file(dir.join("out/report.html")).expect("removed");
    let (code, text) = lab(dir, "report out");
    assert!(code == 0 && dir.join("out/report.html").exists(), "{text}");
    let (code, text) = lab(dir, "compare out out");
    assert!(code == 0 && text.contains("here, standalone"), "{text}");
    is_left_empty(&dir.join("place"));
    let (code, text) = lab(dir, "run small.toml --place nonsense --out out");
    assert!(code == 2 && text.contains("NAME=DIR"), "{text}");
    let (code, text) = lab(dir, "run small.toml --place a=x --place a=y --out out");
    assert!(code == 2 && text.contains("twice"), "{text}");
    let (code, text) = lab(dir, "show fixed-transactions");
    assert!(code == 0 && text.contains("[oltp]"), "{text}");
}

#[test]
fn a_table_is_read_on_two_places_in_turn() {
    if !has_postgresql() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    for place in ["a", "b"] {
        std::fs::create_dir(dir.join(place)).expect("made");
    }
    let scenario = "
        name = 'small'
        published = 'fci_vs_basic_ag.csv'
        measure = { repeat = 2 }
        [scan]
        rows = 20000
        readers = [1, 2]
        memory_pct = 50
        set = ['fsync=off']
    ";
    std::fs::write(dir.join("small.toml"), scenario).expect("written");
    let (code, text) = lab(dir, "run small.toml --place one=a --place two=b --out out");
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("at 2 users: ") && text.contains("the run time of one"),
        "{text}"
    );
    let result = result(dir, "out");
    for of in result["configurations"].as_array().expect("configurations") {
        let steps = of["scan"]["steps"].as_array().expect("steps");
        assert_eq!(steps.len(), 4);
        // Every step begins with nothing in memory, so the table is read from the device if one is known.
        for step in steps {
            let read = step["device"]["read_bytes"].as_u64();
            assert!(read.is_none_or(|read| read > 10_000_000), "{step}");
        }
    }
    assert_eq!(result["comparisons"].as_array().map(Vec::len), Some(2));
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("published: shared storage") && report.contains("MB/s"));
    is_left_empty(&dir.join("a"));
}

#[test]
fn no_acknowledged_order_is_lost_with_the_primary() {
    if !has_postgresql() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    for place in ["a", "b"] {
        std::fs::create_dir(dir.join(place)).expect("made");
    }
    let words = "failover --dir a --standby b --users 3 --before 2s --after 1s --commit remote-apply --out out";
    let (code, text) = lab(dir, words);
    assert_eq!(code, 0, "{text}");
    let result = result(dir, "out");
    let acknowledged = result["acknowledged"].as_u64().expect("a count");
    assert!(
        acknowledged > 20 && text.contains(&format!("none of {acknowledged} acknowledged")),
        "{text}"
    );
    assert_eq!(result["missing"], 0);
    assert_eq!(
        result["database"]["settings"]["synchronous_commit"],
        "remote_apply"
    );
    // It died in the middle: everybody was lost, and nothing stopped in order.
    assert_eq!(
        (
            &result["before"]["lost_users"],
            &result["before"]["partial"]
        ),
        (&3.into(), &true.into())
    );
    let counted = result["before"]["transactions"]["new_order"]["count"].as_u64();
    assert!(
        counted >= Some(acknowledged),
        "{counted:?} of {acknowledged}"
    );
    for conditions in [&result["consistency"], &result["after"]["consistency"]] {
        let conditions = conditions.as_object().expect("conditions");
        assert!(
            conditions.len() == 12 && conditions.values().all(|c| c == "pass"),
            "{result}"
        );
    }
    assert!(
        result["after"]["nopm"].as_f64() > Some(0.0),
        "the promoted server takes orders"
    );
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("Every acknowledged order is there") && !report.contains("FAILED"));
    is_left_empty(&dir.join("a"));
    is_left_empty(&dir.join("b"));
}
