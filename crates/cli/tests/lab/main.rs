//! Runs of devices as a person has them: killed, interrupted, gone on with, compared in a pipeline.

mod agents;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/namespace.rs"]
mod namespace;
mod replicated;
#[path = "../common/typed.rs"]
mod typed;

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use common::{eventually, has_any, is_of_databases, open_folder, shipped};
use typed::Typed;

/// `ashlar lab WORDS`, run to its end in a folder: its exit code, and what it prints.
fn lab(dir: &Path, words: &str) -> (i32, String) {
    common::lab(dir, words.split_whitespace())
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

/// Measurements that the journal of a run has.
fn measured(dir: &Path) -> usize {
    let text = std::fs::read_to_string(dir.join("journal.jsonl")).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("{\"turn\""))
        .count()
}

const SCENARIO: &str = r#"
    name = "two"
    [measure]
    size = "16MiB"
    seconds = 0.1
    warmup = 0.02
    repeat = 6
    [[configuration]]
    name = "one"
    stack = "file:{dir}/one?size={size}"
    [[configuration]]
    name = "other"
    stack = "file:{dir}/other?size={size}"
    remote = true
    [[matrix]]
    pattern = "randread"
    block = ["4k"]
    threads = [1]
    depth = [1, 4]
"#;

/// All cells of both configurations have all repeats, once.
fn has_every_cell_once(result: &Value) {
    let mut seen = BTreeSet::new();
    for of in result["configurations"].as_array().expect("configurations") {
        for cell in of["cells"].as_array().expect("cells") {
            for repeat in cell["repeats"].as_array().expect("repeats") {
                let key = format!("{} {} {}", of["name"], cell["depth"], repeat["repeat"]);
                assert!(seen.insert(key), "twice: {repeat}");
            }
        }
    }
    assert_eq!(seen.len(), 2 * 2 * 6, "{seen:?}");
}

#[test]
fn a_run_that_is_killed_goes_on_and_has_every_cell_once() {
    let room = open_folder();
    let dir = room.path();
    std::fs::write(dir.join("two.toml"), SCENARIO).expect("written");
    std::fs::create_dir(dir.join("files")).expect("made");
    let words = "run two.toml --dir files --out out";
    let mut typed = Typed::start(dir, words);
    eventually("some is measured", || measured(&dir.join("out")) >= 3);
    typed.kill();
    let had = measured(&dir.join("out"));
    let left = || std::fs::read_dir(dir.join("files")).expect("there").count();
    assert_eq!(left(), 1, "a killed run cannot remove its files");
    // What was measured is not thrown away by mistake, nor gone on with as something else.
    let (code, text) = lab(dir, words);
    assert!(code == 2 && text.contains("--resume"), "{text}");
    let toml = dir.join("out/scenario.toml");
    let text = std::fs::read_to_string(&toml).expect("kept");
    std::fs::write(&toml, text.replace("warmup = 0.02", "warmup = 0.03")).expect("edited");
    let (code, said) = lab(dir, "run --resume out");
    assert!(
        code == 2 && said.contains("measure.warmup was 0.02, is 0.03"),
        "{said}"
    );
    std::fs::write(&toml, text).expect("as it was");
    let (code, said) = lab(dir, "run --resume out");
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(&format!("{had} of 24 were measured before")),
        "{said}"
    );
    let result = json(&dir.join("out/result.json"));
    has_every_cell_once(&result);
    assert_eq!(result["partial"], false);
    assert_eq!(left(), 0, "files of the killed run are removed, too");
    let (code, said) = lab(dir, "run --resume out");
    assert!(code == 2 && said.contains("reached its end"), "{said}");
    let (code, said) = lab(dir, "run --resume files");
    assert!(
        code == 2 && said.contains("no run that could go on"),
        "{said}"
    );
}

#[test]
fn a_long_cell_is_interrupted_within_and_a_sweep_goes_on() {
    let room = open_folder();
    let dir = room.path();
    // A cell of ten minutes after one that is done, on a file that the sweep itself makes and fills.
    let words =
        "sweep --on file:made --size 16MiB --pattern randwrite --seconds 0.1 --repeat 30 --out out";
    let typed = Typed::start(dir, words);
    eventually("some is measured", || measured(&dir.join("out")) >= 2);
    typed.interrupt(Signal::INT);
    let kept = json(&dir.join("out/result.json"));
    assert_eq!(kept["partial"], true, "{kept}");
    let repeats = |of: &Value| {
        let repeats = of["configurations"][0]["cells"][0]["repeats"].as_array();
        repeats.map_or(0, Vec::len)
    };
    assert!((2..30).contains(&repeats(&kept)));
    // It would refuse the file of a person; this is its own.
    let (code, said) = lab(dir, "run --resume out");
    assert_eq!(code, 0, "{said}");
    let whole = json(&dir.join("out/result.json"));
    assert_eq!((repeats(&whole), &whole["partial"]), (30, &false.into()));
    // Within a cell that takes ten minutes.
    let words = "sweep --on null:1GiB --pattern randread --seconds 600 --repeat 1 --out long";
    let mut typed = Typed::start(dir, words);
    typed.says("null");
    std::thread::sleep(std::time::Duration::from_secs(1));
    typed.interrupt(Signal::TERM);
}

#[test]
fn what_the_command_line_changes_is_what_is_run() {
    let room = open_folder();
    let dir = room.path();
    std::fs::write(dir.join("two.toml"), SCENARIO).expect("written");
    let words = "run two.toml --set measure.repeat=2 --set matrix.0.depth=[2] --set measure.warmup=0 \
                 --set configuration.other.stack=memory:16MiB --out out";
    let (code, said) = lab(dir, words);
    assert_eq!(code, 0, "{said}");
    let result = json(&dir.join("out/result.json"));
    let other = &result["configurations"][1];
    assert_eq!(other["cells"][0]["depth"], 2);
    assert_eq!(
        other["cells"][0]["repeats"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(
        other["description"]
            .as_str()
            .is_some_and(|text| text.contains("memory"))
    );
    let kept = std::fs::read_to_string(dir.join("out/scenario.toml")).expect("kept");
    assert!(kept.contains("memory:16MiB"), "{kept}");
    for (wrong, why) in [
        ("--set measure.secnods=1", "secnods"),
        ("--set nonsense", "KEY=VALUE"),
        ("--users 1", "--users 1: for scenarios of databases"),
        ("--place x=y", "--place x=y: for scenarios of databases"),
        (
            "--pool third=mirror:2",
            "there is no configuration \"third\"; there are \"one\", \"other\"",
        ),
        (
            "--pool one=raid:5,drives=5",
            "configuration one: layout `raid:5`",
        ),
        (
            "--pool one=mirror:3,drives=2",
            "configuration one: mirror:3 needs at least 3",
        ),
    ] {
        let (code, said) = lab(dir, &format!("run two.toml {wrong} --out wrong"));
        assert!(code == 2 && said.contains(why), "{said}");
    }
    for (wrong, why) in [
        (
            "fci-vs-bag --place x=y",
            "--place: fci-vs-bag makes its own storage",
        ),
        ("fci-vs-bag --pool x=mirror:2", "--pool: fci-vs-bag"),
        (
            "fci-vs-bag --set measure.seconds=5",
            "scan-concurrency: scenario: measure.seconds = 5",
        ),
        (
            "scan-concurrency --set measure.seconds=5",
            "measure.seconds = 5: a scan takes",
        ),
        (
            "fixed-transactions --set measure.ramp=5",
            "measure.ramp = 5: fixed work takes",
        ),
        (
            "fixed-transactions --pool x=mirror:2",
            "--pool x=mirror:2: for scenarios of devices",
        ),
        ("fleet --users 5", "--users 5"),
    ] {
        let (code, said) = lab(dir, &format!("run {wrong} --out wrong"));
        assert!(code == 2 && said.contains(why), "{wrong}: {said}");
    }
    assert!(!dir.join("wrong").exists(), "nothing was begun");
}

#[test]
fn pools_are_made_measured_and_removed() {
    let room = open_folder();
    let dir = room.path();
    let scenario = r#"
        name = "pools"
        [measure]
        size = "64MiB"
        seconds = 0.1
        repeat = 2
        settle = 0
        [[configuration]]
        name = "parity"
        pool = { layout = "parity:4+1", drives = 5 }
        [[configuration]]
        name = "mirror"
        pool = { layout = "mirror:2", drives = 2 }
        [[matrix]]
        pattern = "randrw"
        read_pct = 70
        block = ["4k", "64k"]
        threads = [1]
        depth = [4]
    "#;
    std::fs::write(dir.join("pools.toml"), scenario).expect("written");
    std::fs::create_dir(dir.join("files")).expect("made");
    let (code, said) = lab(dir, "run pools.toml --dir files --out out");
    assert_eq!(code, 0, "{said}");
    let result = json(&dir.join("out/result.json"));
    for (of, words) in result["configurations"]
        .as_array()
        .expect("configurations")
        .iter()
        .zip(["parity:4+1 on 5 drives, 80 %", "mirror:2 on 2 drives, 50 %"])
    {
        let description = of["description"].as_str().expect("words");
        assert!(description.contains(words), "{description}");
        for cell in of["cells"].as_array().expect("cells") {
            assert!(
                cell["iops"].as_f64() > Some(0.0) && cell["errors"] == 0,
                "{cell}"
            );
        }
    }
    let is_empty = || std::fs::read_dir(dir.join("files")).expect("there").count() == 0;
    assert!(is_empty(), "its drives are removed");
    let words = "run pools.toml --dir files --set measure.repeat=1 --pool mirror=mirror:3,drives=4 --out other";
    let (code, said) = lab(dir, words);
    assert_eq!(code, 0, "{said}");
    let result = json(&dir.join("other/result.json"));
    let description = |at: usize| result["configurations"][at]["description"].to_string();
    assert!(description(0).contains("parity:4+1 on 5 drives"));
    assert!(description(1).contains("mirror:3 on 4 drives"), "{said}");
    assert!(is_empty(), "its drives are removed");
    let daemons = || {
        let text = String::from_utf8(
            std::process::Command::new("ps")
                .args(["-eo", "args"])
                .output()
                .expect("ps")
                .stdout,
        );
        let (text, dir) = (text.expect("text"), dir.display().to_string());
        text.lines()
            .filter(|line| line.contains(&dir) && line.contains(" node "))
            .count()
    };
    assert_eq!(daemons(), 0);
    // Killed, it leaves its daemons, which the run that goes on ends.
    let mut typed = Typed::start(
        dir,
        "run pools.toml --dir files --set measure.repeat=30 --out killed",
    );
    eventually("some is measured", || measured(&dir.join("killed")) >= 2);
    typed.kill();
    assert_eq!(daemons(), 2);
    let (code, said) = lab(dir, "run --resume killed");
    assert_eq!((code, daemons()), (0, 0), "{said}");
    assert!(is_empty());
}

#[test]
fn a_pipeline_fails_below_its_share() {
    let room = open_folder();
    let dir = room.path();
    let words = "sweep --on it=memory:16MiB --seconds 0.15 --repeat 5 --rate 2000 --out measured";
    let (code, said) = lab(dir, words);
    assert_eq!(code, 0, "{said}");
    // What the machine does between two runs is not asked: both are this one, with other figures.
    let figures = |iops: u32, out: &str| {
        let mut result = json(&dir.join("measured/result.json"));
        let cell = &mut result["configurations"][0]["cells"][0];
        let repeats = cell["repeats"].as_array_mut().expect("repeats");
        for (at, repeat) in repeats.iter_mut().enumerate() {
            repeat["iops"] = (iops * (100 + at as u32) / 100).into();
        }
        cell["iops"] = iops.into();
        std::fs::create_dir(dir.join(out)).expect("made");
        let written = std::fs::write(dir.join(out).join("result.json"), result.to_string());
        written.expect("written");
    };
    figures(2000, "first");
    figures(1000, "half");
    let (code, said) = lab(dir, "compare first half --fail-below 0.95");
    assert!(code == 1 && said.contains("the second is 0."), "{said}");
    let (code, said) = lab(dir, "compare half first --fail-below 0.95");
    assert_eq!(code, 0, "better is no failure: {said}");
    let (code, said) = lab(dir, "compare first half --fail-below 0.4 --json");
    assert_eq!(code, 0, "{said}");
    let told: Value = serde_json::from_str(&said).expect("JSON alone");
    assert_eq!(told["schema"], "ashlar-compare-1");
    let row = &told["rows"][0];
    assert_eq!(
        (&row["configuration"], &row["figure"]),
        (&"it".into(), &"iops".into())
    );
    assert_eq!(row["ratio"]["pairs"], 5);
    assert!(
        told["cautions"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    );
    let (code, said) = lab(dir, "compare first half --fail-below nonsense");
    assert_eq!(code, 2, "{said}");
}

#[test]
fn every_published_table_has_its_command_and_every_command_its_scenario() {
    let room = open_folder();
    let papers = include_str!("../../../../docs/papers.md");
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../../published");
    for entry in std::fs::read_dir(published).expect("there") {
        let name = entry.expect("an entry").file_name().display().to_string();
        let is_told = papers.contains(&format!("`{name}`"));
        assert!(
            is_told || !name.ends_with(".csv"),
            "{name} is not in docs/papers.md"
        );
    }
    let shipped = shipped(room.path());
    let named: BTreeSet<&str> = papers
        .split("ashlar lab run ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    assert!(named.len() >= 7, "{named:?}");
    for name in &named {
        assert!(shipped.iter().any(|of| of == name), "{name} of {shipped:?}");
    }
    for name in &shipped {
        let is_told = named.contains(&**name) || name == "statistics-self-test";
        assert!(is_told, "{name} is not in docs/papers.md");
    }
}

#[test]
fn every_scenario_of_devices_runs_at_its_smallest() {
    let room = open_folder();
    let dir = room.path();
    for name in shipped(dir) {
        // What makes nodes of its own is databases, too, run elsewhere.
        if is_of_databases(dir, &name) || has_any(dir, &name, &["[cluster]"]) {
            continue;
        }
        // Nothing can be claimed of what has done nothing, and what is paced needs time to do something.
        let seconds = if has_any(dir, &name, &["[[claim]]"]) {
            1.0
        } else {
            0.02
        };
        let words = format!(
            "run {name} --scale min --set measure.size=32MiB --set measure.seconds={seconds} --set measure.warmup=0 \
             --set measure.settle=0 --set measure.repeat=1 --out {name}"
        );
        let (code, said) = lab(dir, &words);
        // A promise may be missed by a machine that does something else.
        assert!(code == 0 || said.contains("MISSED"), "{name}: {said}");
        let result = json(&dir.join(&name).join("result.json"));
        assert_eq!(result["partial"], false, "{name}");
        let is_unpublished = result["scenario"]["source"] == "";
        for of in result["configurations"].as_array().expect("configurations") {
            let cells = of["cells"].as_array().expect("cells");
            assert!(
                !cells.is_empty() && cells.iter().any(|cell| cell["iops"].as_f64() > Some(0.0))
            );
            let published = cells.iter().any(|cell| cell.get("published").is_some());
            assert!(
                published || is_unpublished,
                "{name}: nothing published stands beside {}",
                of["name"]
            );
        }
        let report = std::fs::read_to_string(dir.join(&name).join("report.html"));
        let report = report.expect("a report");
        assert!(report.contains("</html>"), "{name}");
        let is_told = report.contains("Published figures, of their hardware");
        assert!(is_told || is_unpublished, "{name}");
    }
}
