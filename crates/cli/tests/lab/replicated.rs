//! Volumes with a copy on each of two nodes, which a scenario makes, measures and takes away.

use std::path::Path;

use rustix::process::Signal;

use super::common::{eventually, is_there, open_folder};
use super::typed::Typed;
use super::{json, lab, measured};

const SCENARIO: &str = r#"
    name = "copies"
    [measure]
    size = "64MiB"
    seconds = 0.1
    repeat = 2
    settle = 0
    [[configuration]]
    name = "one"
    pool = { layout = "mirror:1", drives = 1 }
    [[configuration]]
    name = "two"
    pool = { layout = "mirror:2", drives = 2, nodes = 2, place = "other" }
    [[matrix]]
    pattern = "randrw"
    read_pct = 70
    block = ["4k"]
    threads = [2]
    depth = [4]
"#;

/// Processes with a folder in their words or as where they work, and namespaces of the lab.
fn left_of(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let has = |pid: &str| {
        let of = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let words = String::from_utf8_lossy(&of("cmdline")).into_owned();
        let at = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let is_daemon = words.contains("\0node\0") || words.contains("etcd");
        is_daemon && (words.contains(&dir) || at.starts_with(&dir))
    };
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| has(name)).collect()
}

#[test]
fn copies_on_two_nodes_are_made_measured_and_removed() {
    if !is_there("etcd", Path::new("/usr/bin/etcd").exists()) {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    std::fs::write(dir.join("copies.toml"), SCENARIO).expect("written");
    std::fs::create_dir(dir.join("f")).expect("made");
    let is_empty = || std::fs::read_dir(dir.join("f")).expect("there").count() == 0;
    let (code, said) = lab(dir, "run copies.toml --dir f --out out");
    assert_eq!(code, 0, "{said}");
    let result = json(&dir.join("out/result.json"));
    let of = |at: usize| &result["configurations"][at];
    for (at, nodes, words) in [
        (0, 1, "mirror:1 on 1 drives, 100 %"),
        (
            1,
            2,
            "of each of 2 nodes, a copy on each, clients at another node",
        ),
    ] {
        let (cell, told) = (&of(at)["cells"][0], of(at)["description"].to_string());
        assert!(told.contains(words), "{told}");
        assert_eq!(cell["nodes"], nodes, "{cell}");
        let whole = cell["iops"].as_f64() > Some(0.0) && cell["errors"] == 0;
        assert!(whole, "{cell}");
    }
    // Both copies count.
    assert!(
        of(1)["description"]
            .to_string()
            .contains("25 % of their bytes")
    );
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("of each of 2 nodes"));
    assert!(is_empty() && left_of(dir).is_empty());

    // All pools by one option; agents of this machine reach them; killed, all of it is found again.
    let words = "run copies.toml --nodes 2 --dir f --set measure.clients=2 --set measure.repeat=30 --out killed";
    let mut typed = Typed::start(dir, words);
    eventually("some is measured", || measured(&dir.join("killed")) >= 2);
    typed.kill();
    assert!(left_of(dir).len() >= 6, "two nodes and an etcd, twice");
    let typed = Typed::start(dir, "run --resume killed");
    eventually("more is measured", || measured(&dir.join("killed")) >= 6);
    typed.interrupt(Signal::INT);
    let result = json(&dir.join("killed/result.json"));
    assert_eq!(result["configurations"][0]["cells"][0]["nodes"], 2);
    assert!(is_empty() && left_of(dir).is_empty(), "{:?}", left_of(dir));
}

#[test]
fn copies_that_cannot_be_made_are_refused_by_name() {
    let room = open_folder();
    let dir = room.path();
    for (words, says) in [
        (
            "run virtual-device-scaling --nodes 2",
            "\"one device\" has no pool",
        ),
        ("run vsan-vs-s2d --nodes 4", "must be 1 to 3"),
        (
            "run vsan-vs-s2d --pool mirror=mirror:2,place=other",
            "say nodes = 2",
        ),
        (
            "run vsan-vs-s2d --nodes 2 --client 127.0.0.1:1 --token-file t",
            "would not reach them",
        ),
        ("run scan-concurrency --nodes 2", "--place"),
    ] {
        let (code, said) = lab(dir, &format!("{words} --out o"));
        assert!(code == 2 && said.contains(says), "{words}: {code} {said}");
    }
}
