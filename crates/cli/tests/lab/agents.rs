//! Load from agents, each a process of its own, as on machines of their own.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::common::{Running, ashlar, eventually, lab as run_lab, open_folder};
use super::namespace::Namespace;
use super::typed::Typed;
use super::{json, lab, measured};

/// What is measured: a device that another process serves, and so the same for all agents.
struct Served {
    _process: Running,
    url: String,
}

fn served() -> Served {
    served_at("127.0.0.1", "memory:32MiB")
}

fn served_at(address: &str, device: &str) -> Served {
    let nqn = "nqn.2026-11.com.example:agents";
    let words =
        format!("serve --listen {address}:0 --device {device} --nqn {nqn} --allow-any-host");
    let mut process = Running::start(&mut ashlar(words.split_whitespace()));
    let address = process.ready().remove(0);
    Served {
        _process: process,
        url: format!("nvme-tcp://{address}/{nqn}?ns=1"),
    }
}

struct Agent {
    process: Running,
    address: String,
}

fn agent(dir: &Path, listen: &str) -> Agent {
    let words = ["lab", "agent", "--listen", listen, "--token-file", "token"];
    let mut process = Running::start(ashlar(words).current_dir(dir));
    let address = process.ready().remove(0);
    Agent { process, address }
}

fn agent_in(of: &Namespace, dir: &Path) -> Agent {
    let listen = format!("{}:0", of.there());
    let mut command = of.command(env!("CARGO_BIN_EXE_ashlar"));
    command.args(["lab", "agent", "--listen", &listen, "--token-file", "token"]);
    let mut process = Running::start(command.current_dir(dir));
    let address = process.ready().remove(0);
    Agent { process, address }
}

fn with(agents: &[&Agent]) -> String {
    let words = agents.iter().map(|of| format!("--client {} ", of.address));
    words.collect::<String>() + "--token-file token"
}

fn cell(result: &Value) -> &Value {
    &result["configurations"][0]["cells"][0]
}

#[test]
fn two_agents_measure_what_one_measures() {
    let room = open_folder();
    let dir = room.path();
    let served = served();
    let (one, two) = (agent(dir, "127.0.0.1:0"), agent(dir, "127.0.0.1:0"));
    // At a rate that both can do: what is left is the load itself, whatever else this machine does.
    let sweep = |agents: &[&Agent], out: &str| {
        let words = format!(
            "sweep --on {} --pattern randread,randwrite --threads 2 --depth 4 --rate 2000 --seconds 0.5 --repeat 2 \
             --destroy-data --out {out} {}",
            served.url,
            with(agents)
        );
        let (code, said) = lab(dir, &words);
        assert_eq!(code, 0, "{said}");
        json(&dir.join(out).join("result.json"))
    };
    let alone = sweep(&[&one], "alone");
    let both = sweep(&[&one, &two], "both");
    let names = |result: &Value| -> Vec<(String, u64)> {
        let parts = cell(result)["repeats"][0]["clients"]
            .as_array()
            .expect("parts")
            .clone();
        let part = |part: &Value| {
            let name = part["client"].as_str().expect("a name").to_owned();
            (name, part["threads"].as_u64().expect("a number"))
        };
        parts.iter().map(part).collect()
    };
    assert_eq!(names(&alone), [(one.address.clone(), 2)]);
    assert_eq!(
        names(&both),
        [(one.address.clone(), 1), (two.address.clone(), 1)]
    );
    for index in 0..2 {
        let iops = |of: &Value| {
            of["configurations"][0]["cells"][index]["iops"]
                .as_f64()
                .expect("a rate")
        };
        let share = iops(&both) / iops(&alone);
        assert!(
            (0.9..1.1).contains(&share),
            "{} of {}",
            iops(&both),
            iops(&alone)
        );
    }
    for note in both["clients"].as_array().expect("clients") {
        // One machine has one clock.
        let far = note["clock_ahead_us"].as_f64().expect("known").abs();
        let error = note["clock_error_us"].as_f64().expect("known");
        assert!(far <= error + 2_000.0, "{note}");
    }
    // They are on this machine: what their load uses of it is not the storage's.
    for result in [&alone, &both] {
        let repeat = &cell(result)["repeats"][0];
        let share = |key: &str| repeat[key].as_f64().expect(key);
        assert!(share("load_cpu_pct") > 0.0, "{repeat}");
        let storage = cell(result)["storage_cpu_pct"].as_f64();
        assert!(
            storage.is_some_and(|storage| storage < share("cpu_pct")),
            "{repeat}"
        );
    }
    let report = std::fs::read_to_string(dir.join("both/report.html")).expect("a report");
    assert!(report.contains(&two.address));
}

/// What one agent sees of a disk at a rate, two see: on machines of their own, whose latencies are added up. The disk has
/// the times of a model, of which a busy machine makes little more.
#[test]
fn two_agents_elsewhere_see_the_latencies_that_one_sees() {
    let (Some(a), Some(b)) = (Namespace::make(11), Namespace::make(12)) else {
        return;
    };
    let room = open_folder();
    let dir = room.path();
    let array = "hdd:model=10k,raid=10,disks=10,memory:64MiB";
    let served = served_at(&a.here().to_string(), array);
    let (one, two) = (agent_in(&a, dir), agent_in(&b, dir));
    let sweep = |agents: &[&Agent], out: &str| {
        let words = format!(
            "sweep --on {} --pattern randread --block 4k --threads 2 --depth 8 --rate 400 --seconds 2 \
             --repeat 3 --destroy-data --out {out} {}",
            served.url,
            with(agents)
        );
        let (code, said) = lab(dir, &words);
        assert_eq!(code, 0, "{said}");
        cell(&json(&dir.join(out).join("result.json"))).clone()
    };
    // What else a machine does makes latencies longer: the quietest repeat has the least of it.
    let least = |cell: &Value, share: &str| {
        let repeats = cell["repeats"].as_array().expect("repeats").iter();
        let all = repeats.filter_map(|repeat| repeat["latency_us"][share].as_f64());
        all.fold(f64::INFINITY, f64::min)
    };
    let is_same = |round: u32| {
        let alone = sweep(&[&one], &format!("alone-{round}"));
        let both = sweep(&[&one, &two], &format!("both-{round}"));
        let parts = both["repeats"][0]["clients"].as_array().map(Vec::len);
        assert_eq!(parts, Some(2), "{both}");
        // They are of as many accesses.
        let iops = |cell: &Value| cell["iops"].as_f64().expect("a rate");
        let rate = iops(&both) / iops(&alone);
        assert!((0.9..1.1).contains(&rate), "{rate}: {alone} {both}");
        // They are a disk's, which are wide apart: a few milliseconds, and more than that.
        let (middle, most) = (least(&both, "p50"), least(&both, "p95"));
        assert!(middle > 3_000.0 && most > 1.3 * middle, "{both}");
        ["p50", "p90", "p95"].iter().all(|share| {
            let (alone, both) = (least(&alone, share), least(&both, share));
            println!("{share}: {alone} us alone, {both} us of two");
            (0.75..1.33).contains(&(both / alone))
        })
    };
    assert!((1..4).any(is_same), "they differ, three times");
}

#[test]
fn an_agent_that_is_killed_is_named_and_the_run_goes_on_with_another() {
    let room = open_folder();
    let dir = room.path();
    let served = served();
    let one = agent(dir, "127.0.0.1:0");
    let mut two = agent(dir, "127.0.0.1:0");
    let words = format!(
        "sweep --on {} --threads 2 --depth 4 --seconds 1 --repeat 5 --out out {}",
        served.url,
        with(&[&one, &two])
    );
    let typed = Typed::start(dir, &words);
    eventually("some is measured", || measured(&dir.join("out")) >= 2);
    // Within a repeat: an agent that dies between two has no part to mark.
    std::thread::sleep(Duration::from_millis(500));
    two.process.kill();
    let said = typed.ends_with(1);
    let name = format!("client {} died", two.address);
    assert!(said.contains(&name), "{said}");
    let result = json(&dir.join("out/result.json"));
    assert_eq!(result["partial"], true);
    let repeats = cell(&result)["repeats"]
        .as_array()
        .expect("repeats")
        .clone();
    assert!((3..5).contains(&repeats.len()), "{repeats:?}");
    let (last, before) = repeats.split_last().expect("some");
    let lost = |repeat: &Value| {
        repeat["clients"]
            .as_array()
            .expect("parts")
            .iter()
            .filter(|part| part["lost"] == true)
            .count()
    };
    assert_eq!(lost(last), 1, "{last}");
    assert!(before.iter().all(|repeat| lost(repeat) == 0));
    assert_eq!(cell(&result)["partial"], true);
    // With an agent at that address again, what was measured is not measured again.
    let (code, said) = lab(dir, "run --resume out");
    assert!(code == 3 && said.contains(&two.address), "{said}");
    let again = agent(dir, &two.address);
    let (code, said) = lab(dir, "run --resume out");
    assert_eq!(code, 0, "{said}");
    let result = json(&dir.join("out/result.json"));
    assert_eq!(cell(&result)["repeats"].as_array().map(Vec::len), Some(5));
    drop(again);
}

#[test]
fn an_agent_lets_in_who_has_its_token_one_at_a_time() {
    let room = open_folder();
    let dir = room.path();
    let served = served();
    let one = agent(dir, "127.0.0.1:0");
    std::fs::write(dir.join("other"), "another-token-than-that").expect("written");
    let sweep = |agents: &str, out: &str| {
        let words = format!(
            "sweep --on {} --seconds 0.1 --repeat 1 {agents} --out {out}",
            served.url
        );
        run_lab(dir, words.split_whitespace())
    };
    let wrong = format!("--client {} --token-file other", one.address);
    let (code, said) = sweep(&wrong, "wrong");
    assert!(
        code == 3 && said.contains(&one.address) && said.contains("token"),
        "{said}"
    );
    let (code, said) = sweep(&format!("--client {}", one.address), "none");
    assert!(code == 2 && said.contains("--token-file"), "{said}");
    let (code, said) = sweep("--client 127.0.0.1:1 --token-file token", "absent");
    assert!(code == 3 && said.contains("127.0.0.1:1"), "{said}");
    let (code, said) = sweep(&(with(&[&one]) + " --verify"), "verify");
    assert!(code == 2 && said.contains("--verify"), "{said}");
    // A client of another protocol is turned away, and does no harm.
    let mut stranger = std::net::TcpStream::connect(&one.address).expect("it listens");
    std::io::Write::write_all(&mut stranger, &[0xff; 64]).expect("sent");
    let words = format!(
        "sweep --on {} --seconds 60 --repeat 1 {} --out long",
        served.url,
        with(&[&one])
    );
    let mut long = Typed::start(dir, &words);
    long.says("nvme-tcp");
    let (code, said) = sweep(&with(&[&one]), "second");
    assert!(code == 3 && said.contains("busy"), "{said}");
    // Ctrl-C ends the agent's load, too, and it is there for the next.
    long.interrupt(rustix::process::Signal::INT);
    let (code, said) = sweep(&with(&[&one]), "third");
    assert_eq!(code, 0, "{said}");
}

const WITH_CLIENTS: &str = r#"
    name = "clients"
    [measure]
    size = "16MiB"
    seconds = 0.2
    repeat = 2
    clients = 2
    [[configuration]]
    name = "served"
    stack = "memory:16MiB"
    remote = true
    [[matrix]]
    pattern = "randread"
    block = ["4k"]
    threads = [3]
    depth = [2]
"#;

#[test]
fn a_scenario_has_the_clients_that_it_asks_for() {
    let room = open_folder();
    let dir = room.path();
    std::fs::write(dir.join("clients.toml"), WITH_CLIENTS).expect("written");
    std::fs::create_dir(dir.join("files")).expect("made");
    let (code, said) = lab(dir, "run clients.toml --dir files --out own");
    assert_eq!(code, 0, "{said}");
    let threads = |out: &str| -> Vec<u64> {
        let result = json(&dir.join(out).join("result.json"));
        let parts = cell(&result)["repeats"][0]["clients"].clone();
        let parts = parts.as_array().into_iter().flatten();
        parts.filter_map(|part| part["threads"].as_u64()).collect()
    };
    assert_eq!(threads("own"), [2, 1]);
    let left = std::fs::read_dir(dir.join("files")).expect("there").count();
    assert_eq!(left, 0, "its token and log are removed");
    assert!(!is_working_in(dir), "its agents have ended");
    // Those that are named, instead, if they are as many.
    let (one, two) = (agent(dir, "127.0.0.1:0"), agent(dir, "127.0.0.1:0"));
    let words = |agents: &[&Agent], out: &str| {
        format!("run clients.toml --dir files --out {out} {}", with(agents))
    };
    let (code, said) = lab(dir, &words(&[&one], "wrong"));
    assert!(
        code == 2 && said.contains("--set measure.clients=1") && !dir.join("wrong").exists(),
        "{said}"
    );
    let (code, said) = lab(dir, &words(&[&one, &two], "named"));
    assert_eq!(code, 0, "{said}");
    let result = json(&dir.join("named/result.json"));
    let names = result["clients"].as_array().expect("clients").iter();
    let names: Vec<&str> = names.filter_map(|of| of["name"].as_str()).collect();
    assert_eq!(names, [&*one.address, &*two.address]);
}

/// Whether agents with a token below a folder's `files` are there.
fn is_working_in(dir: &Path) -> bool {
    let listed = std::process::Command::new("ps")
        .args(["-eo", "args"])
        .output();
    let listed = String::from_utf8_lossy(&listed.expect("ps").stdout).into_owned();
    let files = dir.join("files").display().to_string();
    listed
        .lines()
        .any(|line| line.contains(&files) && line.contains(" agent "))
}

#[test]
fn a_run_with_its_own_clients_that_is_killed_goes_on() {
    let room = open_folder();
    let dir = room.path();
    std::fs::write(dir.join("clients.toml"), WITH_CLIENTS).expect("written");
    std::fs::create_dir(dir.join("files")).expect("made");
    let mut typed = Typed::start(
        dir,
        "run clients.toml --dir files --set measure.repeat=20 --out out",
    );
    eventually("some is measured", || measured(&dir.join("out")) >= 2);
    typed.kill();
    assert!(is_working_in(dir), "they are left");
    let (code, said) = lab(dir, "run --resume out");
    assert_eq!(code, 0, "{said}");
    assert!(!is_working_in(dir), "they are ended");
    let result = json(&dir.join("out/result.json"));
    assert_eq!(cell(&result)["repeats"].as_array().map(Vec::len), Some(20));
    assert_eq!(
        std::fs::read_dir(dir.join("files")).expect("there").count(),
        0
    );
}
