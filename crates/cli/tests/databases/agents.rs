//! Users of databases at agents, some in a network namespace of their own, as on machines of their own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Running, ashlar, eventually};
use crate::namespace::Namespace;
use crate::rig::{all_hold, is_left_empty, lab, places, result};
use crate::typed::{Typed, processes_in};

const SCENARIO: &str = r#"
    name = "agents"
    [measure]
    seconds = 1
    ramp = 0.2
    repeat = 1
    [oltp]
    warehouses = 2
    small = true
    users = [3]
    set = ["fsync=off"]
"#;

pub(crate) struct Agent {
    process: Running,
    address: String,
}

impl Agent {
    /// Is killed under a run, which names it and ends with exit code 1. How it is named.
    fn dies_under(&mut self, run: Typed) -> String {
        self.process.kill();
        let said = run.ends_with(1);
        let died = format!("client {} died", self.address);
        assert!(said.contains(&died), "{said}");
        died
    }
}

fn agent_in(of: &Namespace, dir: &Path) -> Agent {
    let command = of.command(env!("CARGO_BIN_EXE_ashlar"));
    listening(command, dir, &format!("{}:0", of.there()))
}

fn listening(mut command: Command, dir: &Path, listen: &str) -> Agent {
    command.args(["lab", "agent", "--listen", listen, "--token-file", "token"]);
    let mut process = Running::start(command.current_dir(dir));
    let address = process.ready().remove(0);
    Agent { process, address }
}

pub(crate) fn agent(dir: &Path, listen: &str) -> Agent {
    listening(ashlar([""; 0]), dir, listen)
}

pub(crate) fn with(agents: &[&Agent]) -> String {
    let words = agents.iter().map(|of| format!("--client {} ", of.address));
    words.collect::<String>() + "--token-file token"
}

/// A folder with the scenario, and a place.
fn room() -> Option<tempfile::TempDir> {
    let room = places(&["p"])?;
    std::fs::write(room.path().join("agents.toml"), SCENARIO).expect("written");
    Some(room)
}

fn last_step(of: &Value) -> &Value {
    let steps = of["configurations"][0]["oltp"]["steps"].as_array();
    steps.and_then(|steps| steps.last()).expect("a step")
}

fn sum(parts: &Value, key: &str) -> u64 {
    let parts = parts.as_array().expect("parts").iter();
    parts.filter_map(|part| part[key].as_u64()).sum()
}

#[test]
fn two_agents_elsewhere_have_the_users_of_a_database() {
    let (Some(room), Some(a)) = (room(), Namespace::make(1)) else {
        return;
    };
    let Some(b) = Namespace::make(2) else {
        return;
    };
    let dir = room.path();
    let (one, two) = (agent_in(&a, dir), agent_in(&b, dir));
    let agents = with(&[&one, &two]);
    // What they cannot reach is told before anything is built.
    let far = format!("run agents.toml --dir p --out far {agents}");
    let (code, said) = lab(dir, &far);
    assert!(
        code == 3 && said.contains("--serve-on 127.0.0.1") && said.contains(&one.address),
        "{said}"
    );
    is_left_empty(&dir.join("p"));
    let serve_on = a.here();
    let (long, there) = ("measure.seconds=3", format!("--serve-on {serve_on}"));
    let words = format!("run agents.toml --dir p --set {long} --out out {agents} {there}");
    let (code, said) = lab(dir, &words);
    assert_eq!(code, 0, "{said}");
    let of = result(dir, "out");
    let step = last_step(&of);
    assert!(all_hold(&step["consistency"]), "{step}");
    let parts = &step["clients"];
    let users: Vec<Option<u64>> = (0..2).map(|at| parts[at]["users"].as_u64()).collect();
    assert_eq!(users, [Some(2), Some(1)]);
    // Histograms are added up: what all saw is what each saw.
    let kinds = step["transactions"].as_object().expect("kinds").values();
    let all: u64 = kinds.filter_map(|kind| kind["count"].as_u64()).sum();
    assert!(all > 0 && all == sum(parts, "transactions"), "{step}");
    assert!(
        (0..2).all(|at| parts[at]["transactions"].as_u64() > Some(0)),
        "{parts}"
    );
    // The database is asked by another process: of nearly the same time, and on a busy machine of quite another part
    // of it. Of fixed work, below, both counts are the same.
    let nopm = step["nopm"].as_f64().expect("a number");
    let counted = sum(parts, "new_orders") as f64 * 20.0;
    assert_eq!(step["nopm_source"], "d_next_o_id");
    assert!(
        (0.3..3.0).contains(&(counted / nopm)),
        "{counted} of {nopm}"
    );
    let cpu_s = step["client_cpu_s"].as_f64().expect("a number");
    let each: f64 = (0..2).filter_map(|at| parts[at]["cpu_s"].as_f64()).sum();
    assert!(
        cpu_s > 0.0 && (cpu_s - each).abs() < 1e-6,
        "{cpu_s}, {each}"
    );
    let names = of["clients"].as_array().expect("clients").iter();
    let names: Vec<&str> = names.filter_map(|of| of["name"].as_str()).collect();
    assert_eq!(names, [&*one.address, &*two.address]);
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains(&two.address) && report.contains("share of the work"));
    is_left_empty(&dir.join("p"));
    assert_eq!(processes_in(&dir.join("p")), [0; 0]);
    // Of fixed work it is of the same time: from before the first to after the last.
    let fixed = SCENARIO.replace("seconds = 1\n    ramp = 0.2\n", "") + "    transactions = 40\n";
    std::fs::write(dir.join("fixed.toml"), fixed).expect("written");
    let words = format!("run fixed.toml --dir p --out all {agents} {there}");
    let (code, said) = lab(dir, &words);
    assert_eq!(code, 0, "{said}");
    let of = result(dir, "all");
    let step = last_step(&of);
    let of = |key: &str| step[key].as_f64().expect("a number");
    let counted = (of("nopm") * of("elapsed_s") / 60.0).round() as u64;
    assert_eq!(sum(&step["clients"], "transactions"), 3 * 40, "{step}");
    assert_eq!(counted, sum(&step["clients"], "new_orders"), "{step}");
}

#[test]
fn an_agent_that_is_killed_is_named_and_its_users_are_missing() {
    let Some(room) = room() else {
        return;
    };
    let dir = room.path();
    let one = agent(dir, "127.0.0.1:0");
    let mut two = agent(dir, "127.0.0.1:0");
    let words = format!(
        "run agents.toml --dir p --set measure.seconds=3 --out out {}",
        with(&[&one, &two])
    );
    let typed = Typed::start(dir, &words);
    eventually("its users are there", || logged_in(&dir.join("p")) >= 3);
    std::thread::sleep(Duration::from_millis(800));
    two.dies_under(typed);
    let of = result(dir, "out");
    assert_eq!(of["partial"], true);
    let step = last_step(&of);
    let lost: Vec<bool> = (0..2)
        .map(|at| step["clients"][at]["lost"] == true)
        .collect();
    assert_eq!(
        (lost, &step["lost_users"]),
        (vec![false, true], &1.into()),
        "{step}"
    );
    assert!(
        step["clients"][0]["transactions"].as_u64() > Some(0),
        "the other's part is kept"
    );
    let again = agent(dir, &two.address);
    let (code, said) = lab(dir, "run --resume out");
    assert_eq!(code, 0, "{said}");
    let of = result(dir, "out");
    assert_eq!(
        (&of["partial"], &last_step(&of)["lost_users"]),
        (&false.into(), &0.into())
    );
    drop(again);
}

/// Users of agents that are logged in to a server below a folder.
fn logged_in(dir: &Path) -> usize {
    let is_user = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("ashlar_client tpcc")
    };
    processes_in(dir).iter().filter(|pid| is_user(pid)).count()
}

const TURNS: &str = r#"
    name = "agents"
    measure = { seconds = 0.5, ramp = 0.3, repeat = 3 }
    [oltp]
    warehouses = 1
    small = true
    users = [3]
    set = ["fsync=off"]
    slow_down_pct = [0, 60]
    [turns]
    settle = 0.1
"#;

#[test]
fn configurations_take_turns_with_their_users_at_two_agents() {
    let Some(room) = places(&["p", "q"]) else {
        return;
    };
    let dir = room.path();
    std::fs::write(dir.join("turns.toml"), TURNS).expect("written");
    let (one, mut two) = (agent(dir, "127.0.0.1:0"), agent(dir, "127.0.0.1:0"));
    let agents = with(&[&one, &two]);
    let words = format!("run turns.toml --place p=p --place q=q --out out {agents}");
    let (code, said) = lab(dir, &words);
    assert_eq!(code, 0, "{said}");
    let of = result(dir, "out");
    let all = of["configurations"].as_array().expect("configurations");
    assert_eq!(all.len(), 4);
    let mean = |of: &Value| {
        let steps = of["oltp"]["steps"].as_array().expect("steps");
        assert_eq!(steps.len(), 3);
        for step in steps {
            let users = [0, 1].map(|at| step["clients"][at]["users"].as_u64());
            assert_eq!(users, [Some(2), Some(1)], "{step}");
            assert_eq!(step["nopm_source"], "d_next_o_id");
            // Two turns of half a second, or nearly, where looking takes its time.
            assert!((0.4..20.0).contains(&number(step, "elapsed_s")), "{step}");
        }
        assert!(all_hold(&steps[2]["consistency"]), "{of}");
        steps.iter().map(|step| number(step, "nopm")).sum::<f64>() / 3.0
    };
    let of = |place: &str, slow: f64| {
        let is = |of: &&Value| of["place"] == place && number(of, "slow_down_pct") == slow;
        mean(all.iter().find(is).expect(place))
    };
    for place in ["p", "q"] {
        let (free, slowed) = (of(place, 0.0), of(place, 60.0));
        // By more than half; a busy machine takes its part of either.
        assert!(slowed < free, "{slowed} {free}");
        is_left_empty(&dir.join(place));
        assert_eq!(processes_in(&dir.join(place)), [0; 0]);
    }
    // One is killed in a turn: its part is marked, and the block is measured again by those who go on.
    let words = format!("run turns.toml --dir p --set measure.seconds=3 --out cut {agents}");
    let typed = Typed::start(dir, &words);
    eventually("its users are there", || logged_in(&dir.join("p")) >= 3);
    std::thread::sleep(Duration::from_secs(2));
    two.dies_under(typed);
    let of = result(dir, "cut");
    assert_eq!(of["partial"], true);
    let steps = of["configurations"].as_array().expect("configurations");
    let steps = steps.iter().filter_map(|of| of["oltp"]["steps"].as_array());
    let lost: Vec<bool> = steps
        .flatten()
        .flat_map(|step| [0, 1].map(|at| step["clients"][at]["lost"] == true))
        .collect();
    assert!(lost.contains(&true), "{of}");
    assert!(lost.iter().step_by(2).all(|lost| !lost), "{of}");
    is_left_empty(&dir.join("p"));
}

const FLEET: &str = r#"
    name = "agents"
    measure = { seconds = 3, ramp = 0.3 }
    [fleet]
    databases = 2
    streams = [10, 20]
    rate = 4
    warehouses = 1
    small = true
    sessions = 2
    set = ["fsync=off"]
"#;

/// A folder with a fleet, and a place.
fn fleet_room() -> Option<tempfile::TempDir> {
    let room = places(&["p"])?;
    std::fs::write(room.path().join("fleet.toml"), FLEET).expect("written");
    Some(room)
}

fn number(of: &Value, key: &str) -> f64 {
    of[key].as_f64().expect(key)
}

/// What every step of the fleet must have, wherever its load comes from.
fn is_as_planned(step: &Value) {
    let shares = step["databases"].as_array().expect("shares");
    let streams: Vec<_> = shares.iter().map(|of| of["streams"].as_u64()).collect();
    assert_eq!(streams, [Some(10), Some(20)]);
    assert_eq!(number(step, "offered_tps"), 120.0);
    assert_eq!(step["complaints"], serde_json::json!([]));
    let kinds = step["transactions"].as_object().expect("kinds");
    let done: f64 = kinds.values().map(|kind| number(kind, "count")).sum();
    // What is due is the streams' own, whether a busy machine keeps up or not; besides what was due in the ramp, and
    // what the sessions have begun.
    let due = 120.0 * number(step, "elapsed_s");
    let told = done + number(step, "missed");
    assert!(
        (0.8..1.25).contains(&(told / due)),
        "{told} of {due}: {step}"
    );
    let tps = done / number(step, "elapsed_s");
    assert!((number(step, "tps") / tps - 1.0).abs() < 0.1, "{step}");
    for (name, kind) in kinds {
        // Of all databases' histograms added up: no more than the worst of them, no less than the best.
        let each = shares.iter().map(|of| number(&of["p95_us"], name));
        let (least, most) = (
            each.clone().fold(f64::MAX, f64::min),
            each.fold(0.0, f64::max),
        );
        let all = number(&kind["latency_us"], "p95");
        assert!((least..=most).contains(&all), "{name}: {all}: {step}");
    }
}

#[test]
fn a_fleet_has_its_streams_at_two_agents_as_in_one_process() {
    let Some(room) = fleet_room() else {
        return;
    };
    let dir = room.path();
    let (code, said) = lab(dir, "run fleet.toml --dir p --out here");
    assert_eq!(code, 0, "{said}");
    is_as_planned(&result(dir, "here")["steps"][0]);
    let (one, two) = (agent(dir, "127.0.0.1:0"), agent(dir, "127.0.0.1:0"));
    let words = format!("run fleet.toml --dir p --out out {}", with(&[&one, &two]));
    let (code, said) = lab(dir, &words);
    assert_eq!(code, 0, "{said}");
    let of = result(dir, "out");
    let step = &of["steps"][0];
    is_as_planned(step);
    let shares = step["databases"].as_array().expect("shares");
    let at: Vec<_> = shares.iter().map(|of| of["client"].as_str()).collect();
    assert_eq!(at, [Some(&*one.address), Some(&*two.address)]);
    let kinds = step["transactions"].as_object().expect("kinds").values();
    let all: u64 = kinds.filter_map(|kind| kind["count"].as_u64()).sum();
    let parts = &step["clients"];
    assert_eq!(all, sum(parts, "transactions"), "{step}");
    assert!(
        (0..2).all(|at| number(&parts[at], "transactions") > 0.0),
        "{step}"
    );
    let cpu_s: f64 = (0..2).map(|at| number(&parts[at], "cpu_s")).sum();
    assert!(
        (number(step, "client_cpu_s") - cpu_s).abs() < 1e-6,
        "{step}"
    );
    assert_eq!(parts[0]["here"], true);
    let node = &step["nodes"][0];
    assert_eq!(node["databases"], 2);
    assert!((number(node, "tps") / number(step, "tps") - 1.0).abs() < 1e-9);
    assert_eq!(
        (&of["checks"][0]["name"], &of["checks"][0]["passed"]),
        (&"clients".into(), &true.into())
    );
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains(&two.address) && report.contains("share of the work"));
    is_left_empty(&dir.join("p"));
    assert_eq!(processes_in(&dir.join("p")), [0; 0]);
}

#[test]
fn an_agent_of_a_fleet_that_is_killed_is_named_and_its_databases_are_missing() {
    let Some(room) = fleet_room() else {
        return;
    };
    let dir = room.path();
    let (one, mut two) = (agent(dir, "127.0.0.1:0"), agent(dir, "127.0.0.1:0"));
    // A busy machine may take a second from the last login to the first transaction.
    let long = "--set measure.seconds=8";
    let words = format!(
        "run fleet.toml --dir p --out out {long} {}",
        with(&[&one, &two])
    );
    let typed = Typed::start(dir, &words);
    eventually("its sessions are there", || logged_in(&dir.join("p")) >= 4);
    std::thread::sleep(Duration::from_secs(3));
    two.dies_under(typed);
    let of = result(dir, "out");
    let step = &of["steps"][0];
    assert_eq!(
        (&of["partial"], &step["partial"]),
        (&true.into(), &true.into())
    );
    let parts = step["clients"].as_array().expect("parts").iter();
    let lost: Vec<bool> = parts.map(|part| part["lost"] == true).collect();
    assert_eq!(lost, [false, true], "{step}");
    let shares = &step["databases"];
    assert!(
        number(&shares[0], "tps") > 0.0 && number(&shares[1], "tps") == 0.0,
        "{step}"
    );
    assert_eq!(shares[1]["client"], two.address);
    let problems = step["problems"].to_string();
    assert!(
        problems.contains("db-2: client ") && !problems.contains("db-1"),
        "{problems}"
    );
    is_left_empty(&dir.join("p"));
    assert_eq!(processes_in(&dir.join("p")), [0; 0]);
    let again = agent(dir, &two.address);
    let (code, said) = lab(dir, "run --resume out");
    assert_eq!(code, 0, "{said}");
    is_as_planned(&result(dir, "out")["steps"][0]);
    drop(again);
}

/// So many rows that a scan has some ticks of the server's time, in which the kernel counts it.
const SCAN: &str = r#"
    name = "agents"
    measure = { repeat = 1 }
    [scan]
    rows = 20000
    readers = [1, 3]
    set = ["fsync=off"]
"#;

#[test]
fn two_agents_have_the_readers_of_a_scan() {
    let Some(room) = places(&["p"]) else {
        return;
    };
    let dir = room.path();
    std::fs::write(dir.join("scan.toml"), SCAN).expect("written");
    let (one, two) = (agent(dir, "127.0.0.1:0"), agent(dir, "127.0.0.1:0"));
    let words = format!("run scan.toml --dir p --out out {}", with(&[&one, &two]));
    let (code, said) = lab(dir, &words);
    assert_eq!(code, 0, "{said}");
    let of = result(dir, "out");
    let steps = of["configurations"][0]["scan"]["steps"]
        .as_array()
        .expect("steps");
    let readers = |step: &Value| {
        let parts = step["clients"].as_array().expect("parts").iter();
        let each = parts.map(|part| (part["client"].to_string(), number(part, "users")));
        each.collect::<Vec<_>>()
    };
    let [a, b] = [&one, &two].map(|of| format!("\"{}\"", of.address));
    assert_eq!(readers(&steps[0]), [(a.clone(), 1.0)]);
    assert_eq!(readers(&steps[1]), [(a, 2.0), (b, 1.0)]);
    for step in steps {
        assert!(
            number(step, "run_time_s") >= number(step, "quickest_s"),
            "{step}"
        );
        assert!(number(step, "quickest_s") > 0.0 && number(step, "server_cpu_s") > 0.0);
    }
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains(&two.address));
    is_left_empty(&dir.join("p"));
}

#[test]
fn an_agent_of_a_scan_that_is_killed_is_named_and_the_scan_is_none() {
    let Some(room) = places(&["p"]) else {
        return;
    };
    let dir = room.path();
    let long = SCAN.replace("2000", "100000").replace("[1, 3]", "[60]");
    std::fs::write(dir.join("scan.toml"), long).expect("written");
    let (one, mut two) = (agent(dir, "127.0.0.1:0"), agent(dir, "127.0.0.1:0"));
    let words = format!("run scan.toml --dir p --out out {}", with(&[&one, &two]));
    let typed = Typed::start(dir, &words);
    eventually("its readers are there", || logged_in(&dir.join("p")) >= 50);
    let died = two.dies_under(typed);
    let of = result(dir, "out");
    let problems = of["problems"].to_string();
    assert!(problems.contains(&died), "{problems}");
    assert_eq!(
        of["configurations"][0]["scan"]["steps"],
        serde_json::json!([])
    );
    is_left_empty(&dir.join("p"));
    assert_eq!(processes_in(&dir.join("p")), [0; 0]);
    let again = agent(dir, &two.address);
    let (code, said) = lab(dir, "run --resume out");
    assert_eq!(code, 0, "{said}");
    let step = &result(dir, "out")["configurations"][0]["scan"]["steps"][0];
    assert_eq!(sum(&step["clients"], "users"), 60, "{step}");
    drop(again);
}

#[test]
fn what_agents_cannot_be_users_of_is_refused() {
    let Some(room) = room() else {
        return;
    };
    let dir = room.path();
    let refused = |words: &str, why: &str| {
        let words = format!("run {words} --client 127.0.0.1:1 --token-file token --out out");
        let (code, said) = lab(dir, &words);
        assert!(
            code == 2 && said.contains("--client") && said.contains(why),
            "{said}"
        );
        assert!(!dir.join("out").exists());
    };
    refused("fleet --set fleet.engine=sqlite", "within the process");
    refused("fci-vs-bag", "makes its own storage");
    let one = agent(dir, "127.0.0.1:0");
    for (address, why) in [
        ("192.0.2.1", "address of this machine"),
        ("0.0.0.0", "must be the one"),
    ] {
        let words = format!(
            "run agents.toml --dir p --serve-on {address} {} --out bad",
            with(&[&one])
        );
        let (code, said) = lab(dir, &words);
        assert!(
            code == 2 && said.contains(address) && said.contains(why),
            "{said}"
        );
        std::fs::remove_dir_all(dir.join("bad")).expect("it has a journal");
    }
}
