//! Scenarios of databases.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::agents::{agent, with};
use crate::common::{is_of_databases, is_there, shipped};
use crate::rig::{all_hold, is_left_empty, lab, places, result};

#[test]
fn a_fleet_keeps_up_and_tells_of_each_database() {
    let Some(room) = places(&["a", "b"]) else {
        return;
    };
    let dir = room.path();
    let words = "run fleet --scale min --databases 3 --streams 10..30 --set fleet.small=true --set fleet.sessions=2 \
                 --set fleet.set=[\"fsync=off\"] --place one=a --place other=b --out out";
    let (code, text) = lab(dir, words);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("3 x 10 to 30"), "{text}");
    let result = result(dir, "out");
    assert_eq!(
        (&result["kind"], &result["partial"]),
        (&"fleet".into(), &false.into())
    );
    let all = result["databases"].as_array().expect("databases");
    let places: Vec<_> = all.iter().map(|of| of["place"].as_str()).collect();
    assert_eq!(places, [Some("one"), Some("other"), Some("one")]);
    let nodes: Vec<_> = all.iter().map(|of| of["node"].as_str()).collect();
    assert_eq!(nodes, [Some("node-1"), Some("node-2"), Some("node-1")]);
    assert!(result["places"][0]["full_pct"].as_f64() > Some(0.0));
    let steps = result["steps"].as_array().expect("steps");
    let percents: Vec<_> = steps.iter().map(|step| step["percent"].as_u64()).collect();
    assert_eq!(percents, [Some(100), Some(90)]);
    for step in steps {
        let number = |key: &str| step[key].as_f64().expect("a number");
        assert!(
            number("tps") > 0.0 && number("tps") < 1.5 * number("offered_tps"),
            "{step}"
        );
        let shares = step["databases"].as_array().expect("shares");
        let streams = shares.iter().filter_map(|share| share["streams"].as_u64());
        let percent = step["percent"].as_u64().expect("percent");
        let dealt = [10, 20, 30].map(|streams| streams * percent / 100);
        assert_eq!(streams.collect::<Vec<_>>(), dealt);
        let sum: f64 = shares
            .iter()
            .filter_map(|share| share["tps"].as_f64())
            .sum();
        assert!((sum / number("tps") - 1.0).abs() < 0.01, "{step}");
        assert!(
            shares
                .iter()
                .all(|share| share["p95_us"]["payment"].as_f64() > Some(0.0))
        );
        assert_eq!(step["complaints"], serde_json::json!([]));
        let nodes = step["nodes"].as_array().expect("nodes");
        let of = |key: &str| {
            nodes
                .iter()
                .filter_map(|node| node[key].as_f64())
                .sum::<f64>()
        };
        assert!((of("tps") / number("tps") - 1.0).abs() < 0.01, "{step}");
        assert!(of("databases") == 3.0 && of("server_cpu_s") > 0.0, "{step}");
    }
    assert!(
        result["flags"].to_string().contains("small"),
        "{}",
        result["flags"]
    );
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("28,223") && report.contains("db-3"));
    std::fs::remove_file(dir.join("out/report.html")).expect("removed");
    let (code, text) = lab(dir, "report out");
    assert!(code == 0 && dir.join("out/report.html").exists(), "{text}");
    is_left_empty(&dir.join("a"));
    is_left_empty(&dir.join("b"));
    let (code, text) = lab(dir, "run fleet --databases 0 --out wrong");
    assert!(code == 2 && text.contains("databases = 0"), "{text}");
    let (code, text) = lab(dir, "run fleet --nodes 4 --place one=a --out wrong");
    assert!(code == 2 && text.contains("nodes = 4"), "{text}");
    assert!(!dir.join("wrong").exists(), "nothing was begun");
    let (code, text) = lab(dir, "run fixed-transactions --streams 5 --out wrong");
    assert!(code == 2 && text.contains("--streams"), "{text}");
}

#[test]
fn a_group_is_compared_with_one_server_beside_what_was_published() {
    let Some(room) = places(&["shared", "own", "other"]) else {
        return;
    };
    let dir = room.path();
    let scenario = r#"
        name = "small"
        published = "fci_vs_basic_ag.csv"
        compare = [["fci", "bag"]]
        measure = { repeat = 1 }
        [oltp]
        small = true
        warehouses = 1
        users = [2]
        transactions = 100
        commit = "remote-apply"
        memory_pct = [38]
        set = ["fsync=off"]
        [[configuration]]
        name = "fci"
        place = "shared"
        published = "fci"
        [[configuration]]
        name = "bag"
        place = "own"
        standby = "other"
        topology = "availability-group"
        published = "bag"
    "#;
    std::fs::write(dir.join("small.toml"), scenario).expect("written");
    let run = "run small.toml --place shared=shared --place own=own --place other=other --out out";
    let (code, text) = lab(dir, run);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("bag against fci (run time)"), "{text}");
    let result = result(dir, "out");
    let all = result["configurations"].as_array().expect("configurations");
    assert_eq!(all.len(), 2);
    assert_eq!(all[1]["commit"], "remote-apply");
    let places = |at: usize| [&all[at]["place"], &all[at]["standby_place"]];
    assert_eq!(places(1), ["own", "other"]);
    for of in all {
        let step = &of["oltp"]["steps"][0];
        assert!(all_hold(&step["consistency"]), "{step}");
        assert!(of["database_bytes"].as_u64() > Some(5 << 20), "{of}");
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
    assert!(report.contains("2.67") && report.contains("bag against fci"));
    std::fs::remove_file(dir.join("out/report.html")).expect("removed");
    let (code, text) = lab(dir, "report out");
    assert!(code == 0 && dir.join("out/report.html").exists(), "{text}");
    let (code, text) = lab(dir, "compare out out");
    assert!(
        code == 0 && text.contains("the second is 1.00 x the run time of the first"),
        "{text}"
    );
    for place in ["shared", "own", "other"] {
        is_left_empty(&dir.join(place));
    }
    let (code, text) = lab(dir, "run small.toml --place own=own --out out2");
    assert!(code == 2 && text.contains("--place shared=DIR"), "{text}");
    let (code, text) = lab(dir, "run small.toml --place nonsense --out out");
    assert!(code == 2 && text.contains("NAME=DIR"), "{text}");
    let (code, text) = lab(dir, "run small.toml --place a=x --place a=y --out out2");
    assert!(code == 2 && text.contains("twice"), "{text}");
    let (code, text) = lab(dir, "show fixed-transactions");
    assert!(code == 0 && text.contains("[oltp]"), "{text}");
}

/// Whether a folder is on a block device that counts what is read.
fn is_on_a_device(dir: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(dir).expect("there").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let is = std::path::Path::new(&format!("/sys/dev/block/{major}:{minor}/stat")).exists();
    if !is {
        eprintln!(
            "SKIPPED: {} is on no block device: reads are not looked at",
            dir.display()
        );
    }
    is
}

#[test]
fn a_scenario_that_tests_the_statistics_fails_if_it_does_not_say_what_it_must() {
    let Some(room) = places(&["a"]) else {
        return;
    };
    let dir = room.path();
    // Nothing is slowed down, so nothing can be found.
    let scenario = "
        name = 'self'
        self_test = true
        measure = { seconds = 0.3, ramp = 0.2, repeat = 3 }
        [oltp]
        warehouses = 1
        users = [2]
        slow_down_pct = [0, 0]
        set = ['fsync=off']
        [turns]
        settle = 0.1
    ";
    std::fs::write(dir.join("self.toml"), scenario).expect("written");
    let (code, text) = lab(dir, "run self.toml --place one=a --out out");
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("FAILED: what is slowed down is found: it was not compared"),
        "{text}"
    );
    let checks = result(dir, "out")["checks"].clone();
    assert_eq!(checks[1]["passed"], false, "{checks}");
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("what is slowed down is found"));
}

#[test]
fn a_table_is_read_on_two_places_in_turn() {
    let Some(room) = places(&["a", "b"]) else {
        return;
    };
    let dir = room.path();
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
        text.contains("Storage place: two against one (run time)") && text.contains("readers"),
        "{text}"
    );
    let result = result(dir, "out");
    for of in result["configurations"].as_array().expect("configurations") {
        let steps = of["scan"]["steps"].as_array().expect("steps");
        assert_eq!(steps.len(), 4);
        // Every step begins with nothing in memory, so the table is read from the device.
        for step in steps.iter().filter(|_| is_on_a_device(dir)) {
            let read = step["device"]["read_bytes"].as_u64();
            assert!(read.is_some_and(|read| read > 10_000_000), "{step}");
        }
    }
    assert_eq!(result["comparisons"].as_array().map(Vec::len), Some(2));
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("published: shared storage") && report.contains("MB/s"));
    is_left_empty(&dir.join("a"));
}

#[test]
fn tables_are_read_in_turns() {
    let Some(room) = places(&["a", "b"]) else {
        return;
    };
    let dir = room.path();
    let scenario = "
        name = 'turns'
        measure = { repeat = 2 }
        [turns]
        [scan]
        rows = 5000
        readers = [1]
        set = ['fsync=off']
    ";
    std::fs::write(dir.join("turns.toml"), scenario).expect("written");
    let words = "run turns.toml --users 2,3 --place one=a --place two=b --out out";
    let (code, text) = lab(dir, words);
    assert_eq!(code, 0, "{text}");
    let result = result(dir, "out");
    assert_eq!(
        result["scenario"]["changed"],
        serde_json::json!(["--users 2,3"])
    );
    for of in result["configurations"].as_array().expect("configurations") {
        let steps = of["scan"]["steps"].as_array().expect("steps");
        let told: Vec<_> = steps
            .iter()
            .map(|step| (step["readers"].as_u64(), step["repeat"].as_u64()))
            .collect();
        let step = |readers, block| (Some(readers), Some(block));
        assert_eq!(told, [step(2, 1), step(2, 2), step(3, 1), step(3, 2)]);
    }
    // Each block is kept whole, and once.
    let journal = std::fs::read_to_string(dir.join("out/journal.jsonl")).expect("kept");
    let blocks = journal.lines().filter(|line| line.starts_with("{\"turn\""));
    assert_eq!(blocks.count(), 4);
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(
        report.contains("In short") && report.contains("run time with 2, 3 readers"),
        "{report}"
    );
    is_left_empty(&dir.join("a"));
    is_left_empty(&dir.join("b"));
}

#[test]
fn places_take_turns_under_one_load() {
    let Some(room) = places(&["a", "b"]) else {
        return;
    };
    let dir = room.path();
    let scenario = "
        name = 'turns'
        measure = { seconds = 0.4, ramp = 0.5, repeat = 8 }
        [oltp]
        warehouses = 1
        users = [2]
        slow_down_pct = [0, 80]
        set = ['fsync=off']
        [turns]
        settle = 0.1
        precision_pct = 0.1
    ";
    std::fs::write(dir.join("turns.toml"), scenario).expect("written");
    let (code, text) = lab(dir, "run turns.toml --place one=a --place two=b --out out");
    assert_eq!(code, 0, "{text}");
    let result = result(dir, "out");
    let all = result["configurations"].as_array().expect("configurations");
    assert_eq!(all.len(), 4);
    for of in all {
        let run = &of["oltp"];
        let steps = run["steps"].as_array().expect("steps");
        assert_eq!((steps.len(), &run["method"]["in_turns"]), (8, &true.into()));
        // Two turns each, and nothing counted between them.
        for step in steps {
            let elapsed = step["elapsed_s"].as_f64().expect("a time");
            assert!((0.8..4.0).contains(&elapsed), "{step}");
            let (nopm, tpm) = (step["nopm"].as_f64(), step["tpm"].as_f64());
            assert!(nopm > Some(0.0) && tpm > nopm, "{step}");
        }
        assert!(
            steps[0]["consistency"]
                .as_object()
                .is_some_and(|c| c.is_empty())
        );
        assert!(all_hold(&steps[7]["consistency"]), "{text}");
    }
    let found = result["comparisons"].as_array().expect("comparisons");
    let slowed = found
        .iter()
        .find(|of| of["base"] == "one, as it is" && of["differ_in"] == "slow_down")
        .expect("compared");
    assert_eq!(
        (&slowed["ratio"]["pairs"], &slowed["ratio"]["confidence"]),
        (&8.into(), &0.99.into())
    );
    // Whether so few turns tell it from the noise is the machine's affair; what they say is not.
    let ratio = slowed["ratio"]["ratio"].as_f64();
    assert!(ratio < Some(0.8), "{text}");
    let told = slowed["text"].as_str().expect("words");
    assert!(told.contains("at 99 % over 8 interleaved pairs"), "{told}");
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("took turns") && !report.contains("not checked"));
    is_left_empty(&dir.join("a"));
    is_left_empty(&dir.join("b"));
}

#[test]
fn every_scenario_that_ships_runs_at_its_smallest() {
    let Some(room) = places(&["a"]) else {
        return;
    };
    let dir = room.path();
    // Their users are at agents: those of a MariaDB, which take turns, and those of a group that is kept.
    let (one, two) = (agent(dir, "127.0.0.1:0"), agent(dir, "127.0.0.1:0"));
    let agents = with(&[&one, &two]);
    // Turns of PostgreSQL have a test of their own.
    let mariadb = match std::path::Path::new("/usr/sbin/mariadbd").exists() {
        true => {
            "--users 2 --set oltp.warehouses=1 --set oltp.small=true --set oltp.engine=mariadb --set oltp.set=[]"
        }
        false => "--users 2 --set oltp.warehouses=1 --set oltp.small=true",
    };
    // A group that is kept needs more programs.
    let programs = ["/usr/bin/etcd", "/usr/bin/patroni", "/usr/sbin/haproxy"];
    let is_kept = is_there(
        "what keeps a group",
        programs
            .iter()
            .all(|path| std::path::Path::new(path).exists()),
    );
    let group = match is_kept {
        true => {
            "--users 2 --set oltp.warehouses=1 --set oltp.small=true --set oltp.memory_pct=[38]"
        }
        false => {
            "--users 2 --set oltp.warehouses=1 --set oltp.small=true --set oltp.memory_pct=[38] --set oltp.group=none"
        }
    };
    let loads = [
        (
            "fleet",
            "--set fleet.engine=\"sqlite\" --set fleet.warehouses=1 --set fleet.small=true --set fleet.steps=[90]",
        ),
        ("nvmeof-hammerdb", group),
        (
            "fixed-transactions",
            "--users 2 --set oltp.warehouses=1 --set oltp.small=true --set oltp.transactions=50",
        ),
        ("scan-concurrency", "--users 1,2 --set scan.rows=5000"),
        (
            "flash-cache",
            "--users 2 --set oltp.warehouses=1 --set oltp.small=true --set oltp.memory_pct=[38]",
        ),
        ("statistics-self-test", mariadb),
    ];
    let mut shipped = shipped(dir);
    shipped.retain(|name| is_of_databases(dir, name));
    assert_eq!(
        BTreeSet::from_iter(loads.map(|(name, _)| name)),
        shipped.iter().map(String::as_str).collect()
    );
    for (name, load) in loads {
        // What goes on until its work is done has no times.
        let is_timed = !["scan-concurrency", "fixed-transactions"].contains(&name);
        let times = match is_timed {
            true => "--set measure.seconds=0.2 --set measure.ramp=0.1",
            false => "",
        };
        let at = match ["nvmeof-hammerdb", "statistics-self-test"].contains(&name) {
            true => &*agents,
            false => "",
        };
        let words = format!(
            "run {name} --scale min {load} {times} --set measure.repeat=1 --dir a --out {name} {at}"
        );
        let (code, text) = lab(dir, &words);
        // So few turns need not find what was slowed down.
        let may_fail = name == "statistics-self-test" && code == 1;
        assert!(code == 0 || may_fail, "{name}: {text}");
        assert_eq!(result(dir, name)["partial"], false, "{name}: {text}");
        assert!(dir.join(name).join("report.html").exists(), "{name}");
    }
    for name in ["nvmeof-hammerdb", "statistics-self-test"] {
        let of = result(dir, name);
        let all = of["configurations"].as_array().expect("configurations");
        let mut steps = all.iter().filter_map(|of| of["oltp"]["steps"].as_array());
        let is_there = |step: &Value| step["clients"][0]["transactions"].as_u64() > Some(0);
        assert!(steps.all(|of| of.iter().any(is_there)), "{of}");
    }
    let flags = result(dir, "nvmeof-hammerdb")["flags"].to_string();
    assert_eq!(flags.contains("kept by Patroni"), is_kept, "{flags}");
    is_left_empty(&dir.join("a"));
}
