//! Users of a database at agents, each in a network namespace of its own, as on machines of their own.

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

struct Agent {
    process: Running,
    address: String,
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

fn agent(dir: &Path, listen: &str) -> Agent {
    listening(ashlar([""; 0]), dir, listen)
}

fn with(agents: &[&Agent]) -> String {
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
    // The database's own count is of the same time, or nearly.
    let nopm = step["nopm"].as_f64().expect("a number");
    let counted = sum(parts, "new_orders") as f64 * 20.0;
    assert_eq!(step["nopm_source"], "d_next_o_id");
    assert!(
        (0.9..1.1).contains(&(counted / nopm)),
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
    assert!(report.contains(&two.address) && report.contains("share of all transactions"));
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
    two.process.kill();
    let said = typed.ends_with(1);
    assert!(
        said.contains(&format!("client {} died", two.address)),
        "{said}"
    );
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
    refused("agents.toml --set oltp.engine=mariadb", "socket only");
    refused("scan-concurrency", "readers of a scan");
    refused("fleet", "fleet");
    refused("statistics-self-test", "[turns]");
    refused("nvmeof-hammerdb --set oltp.group=patroni", "oltp.group");
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
