//! Ctrl-C, at any moment: no server stays behind, no cgroup, no folder; what was measured is kept and marked.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_oltp::database::Database;
use ashlar_oltp::server::Server;
use ashlar_oltp::{Logic, Postgres};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{has_postgresql, open_folder};
use crate::rig::{all_hold, is_left_empty, places, result};
use crate::typed::{RUN_TIMEOUT, Typed, processes_in};

/// The memory cgroup of a process, if it is one of ours.
fn cgroup_of(process: u32) -> Option<PathBuf> {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let name = groups.lines().find(|line| line.contains("/ashlar-"))?;
    let name = name.rsplit('/').next()?;
    let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
    roots
        .iter()
        .map(|root| Path::new(root).join(name))
        .find(|dir| dir.exists())
}

#[test]
fn a_failover_leaves_nothing_behind() {
    for (moment, signal) in [
        ("a primary is made", Signal::INT),
        ("rows", Signal::TERM),
        ("its standby is seeded", Signal::INT),
        ("the load begins", Signal::INT),
    ] {
        let Some(room) = places(&["a"]) else {
            return;
        };
        let dir = room.path();
        let words = "failover --dir a --users 2 --before 10m --out out";
        let mut typed = Typed::start(dir, words);
        typed.says(moment);
        if moment == "the load begins" {
            std::thread::sleep(Duration::from_secs(2));
        }
        typed.interrupt(signal);
        assert_eq!(processes_in(dir), [0; 0], "{moment}");
        is_left_empty(&dir.join("a"));
        let kept = result(dir, "out");
        assert_eq!(kept["partial"], true, "{moment}: {kept}");
        assert!(
            kept["problems"][0]
                .as_str()
                .is_some_and(|text| text.contains("interrupted"))
        );
        if moment == "the load begins" {
            assert!(kept["before"]["nopm"].as_f64() > Some(0.0), "{kept}");
        }
        let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
        assert!(!report.contains("holds"), "nothing was looked at");
    }
}

#[test]
fn a_scenario_keeps_its_steps_and_leaves_no_cgroup() {
    let Some(room) = places(&["place"]) else {
        return;
    };
    let dir = room.path();
    let scenario = "
        name = 'long'
        measure = { seconds = 600, ramp = 0, repeat = 1 }
        [oltp]
        warehouses = 1
        users = [2]
        memory_pct = [90]
        set = ['fsync=off']
    ";
    std::fs::write(dir.join("long.toml"), scenario).expect("written");
    let mut typed = Typed::start(dir, "run long.toml --place here=place --out out");
    typed.says("making keys");
    // One that is killed now is not taken for one that has ended.
    let so_far = result(dir, "out");
    let why = "the run has not reached its end".into();
    assert_eq!(
        (&so_far["partial"], &so_far["problems"][0]),
        (&true.into(), &why)
    );
    // It is started with its memory when it is about to be driven.
    let patience = Instant::now() + RUN_TIMEOUT;
    let may = ashlar_oltp::server::can_limit_memory().is_ok();
    let group = loop {
        let group = processes_in(dir).into_iter().find_map(cgroup_of);
        if group.is_some() || !may {
            break group;
        }
        assert!(Instant::now() < patience, "no server with a limit");
        std::thread::sleep(Duration::from_millis(50));
    };
    std::thread::sleep(Duration::from_secs(if may { 3 } else { 20 }));
    typed.interrupt(Signal::INT);
    assert_eq!(processes_in(dir), [0; 0]);
    is_left_empty(&dir.join("place"));
    assert!(
        group.is_none_or(|group| !group.exists()),
        "its cgroup is there"
    );
    let kept = result(dir, "out");
    let step = &kept["configurations"][0]["oltp"]["steps"][0];
    assert_eq!(
        (&kept["partial"], &step["partial"]),
        (&true.into(), &true.into())
    );
    assert!(step["nopm"].as_f64() > Some(0.0), "{step}");
}

#[test]
fn a_fleet_that_is_killed_goes_on_and_has_every_step_once() {
    let Some(room) = places(&["one"]) else {
        return;
    };
    let dir = room.path();
    let text = "
        name = 'fleet'
        measure = { seconds = 0.5, ramp = 0.1, repeat = 2 }
        [fleet]
        databases = 2
        streams = [10, 20]
        warehouses = 1
        small = true
        sessions = 1
        steps = [100, 50]
        set = ['fsync=off']
    ";
    std::fs::write(dir.join("it.toml"), text).expect("written");
    let mut typed = Typed::start(dir, "run it.toml --place one=one --out out");
    let journal = dir.join("out/journal.jsonl");
    let turns = || {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        text.matches("{\"turn\"").count()
    };
    crate::common::eventually_within(RUN_TIMEOUT, "some is measured", || turns() >= 1);
    typed.kill();
    let had = turns();
    assert!((1..4).contains(&had), "{had}");
    assert!(
        !processes_in(dir).is_empty(),
        "its servers belong to no run now"
    );
    let (code, text) = crate::rig::lab(dir, "run --resume out");
    assert_eq!(code, 0, "{text}");
    assert_eq!(
        processes_in(dir),
        [0; 0],
        "servers of the killed run are ended"
    );
    is_left_empty(&dir.join("one"));
    assert_eq!(turns(), 4, "what was measured is not measured again");
    let whole = result(dir, "out");
    assert_eq!(whole["partial"], false, "{whole}");
    let steps = whole["steps"].as_array().expect("steps");
    let key = |step: &serde_json::Value| (step["percent"].as_u64(), step["repeat"].as_u64());
    let mut keys: Vec<_> = steps.iter().map(key).collect();
    keys.sort_unstable();
    let all = [(50, 1), (50, 2), (100, 1), (100, 2)];
    assert_eq!(
        keys,
        all.map(|(percent, repeat)| (Some(percent), Some(repeat)))
    );
    for step in steps {
        assert_eq!(step["complaints"], serde_json::json!([]), "{step}");
        assert_eq!(
            step["databases"].as_array().map(Vec::len),
            Some(2),
            "{step}"
        );
    }
}

#[test]
fn a_scenario_that_is_killed_goes_on_and_has_every_step_once() {
    let Some(room) = places(&["one"]) else {
        return;
    };
    let dir = room.path();
    let mut left = 0;
    for (kind, load) in [
        (
            "steps",
            "repeat = 2 }\n[oltp]\nwarehouses = 1\nsmall = true\nusers = [1, 2]",
        ),
        (
            "turns",
            "repeat = 6 }\n[turns]\nsettle = 0.05\nprecision_pct = 0.1\n[oltp]\nwarehouses = 1\nsmall = true\nusers = [2]\nslow_down_pct = [0, 50]",
        ),
        (
            "scan",
            "repeat = 3 }\n[scan]\nrows = 5000\nreaders = [1, 2]",
        ),
    ] {
        let ramp = if kind == "scan" {
            ""
        } else {
            "seconds = 0.3, ramp = 0.1, "
        };
        let text = format!("name = '{kind}'\nmeasure = {{ {ramp}{load}\nset = ['fsync=off']\n");
        std::fs::write(dir.join("it.toml"), text).expect("written");
        let words = format!("run it.toml --place one=one --out {kind}");
        let mut typed = Typed::start(dir, &words);
        let journal = dir.join(kind).join("journal.jsonl");
        let turns = || {
            let text = std::fs::read_to_string(&journal).unwrap_or_default();
            text.matches("{\"turn\"").count()
        };
        crate::common::eventually_within(RUN_TIMEOUT, "some is measured", || turns() >= 1);
        typed.kill();
        let had = turns();
        // Its servers belong to no run now. (Between two servers, there is none.)
        left += processes_in(dir).len();
        let (code, text) = crate::rig::lab(dir, &format!("run --resume {kind}"));
        assert_eq!(code, 0, "{kind}: {text}");
        assert_eq!(
            processes_in(dir),
            [0; 0],
            "{kind}: servers of the killed run are ended"
        );
        is_left_empty(&dir.join("one"));
        assert!(turns() > had, "{kind}");
        let whole = result(dir, kind);
        assert_eq!(whole["partial"], false, "{kind}");
        for of in whole["configurations"].as_array().expect("configurations") {
            let run = if kind == "scan" {
                &of["scan"]
            } else {
                &of["oltp"]
            };
            let key = |step: &serde_json::Value| {
                let users = step.get("users").or(step.get("readers")).cloned();
                (users.and_then(|n| n.as_u64()), step["repeat"].as_u64())
            };
            let steps = run["steps"].as_array().expect("steps");
            let mut keys: Vec<_> = steps.iter().map(key).collect();
            keys.sort_unstable();
            let count = keys.len();
            keys.dedup();
            assert_eq!((count, keys.len()), (count, count), "{kind}: once");
            let expected = match kind {
                "steps" => 4,
                "turns" => 6,
                _ => 6,
            };
            assert_eq!(count, expected, "{kind}: {keys:?}");
            if kind != "scan" {
                assert!(all_hold(&steps[count - 1]["consistency"]), "{kind}");
            }
        }
    }
    assert_ne!(left, 0, "no run was killed while a server of it ran");
}

#[test]
fn a_run_keeps_what_it_has_measured() {
    let room = open_folder();
    let dir = room.path();
    let words = "oltp --db sqlite:a.db --warehouses 1 --users 1 --ramp 0s --seconds 600 --out out";
    let mut typed = Typed::start(dir, words);
    typed.says("making keys");
    let patience = Instant::now() + RUN_TIMEOUT;
    while !dir.join("out/result.json").exists() {
        assert!(Instant::now() < patience, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(2));
    typed.interrupt(Signal::TERM);
    let kept = result(dir, "out");
    assert_eq!(kept["partial"], true);
    assert!(kept["steps"][0]["nopm"].as_f64() > Some(0.0), "{kept}");
}

#[test]
fn a_scan_keeps_what_it_has_measured() {
    let room = open_folder();
    let dir = room.path();
    let words = "scan --db sqlite:a.db --rows 100000 --readers 2 --repeat 100000 --out out";
    let mut typed = Typed::start(dir, words);
    typed.says("2 readers, repeat");
    std::thread::sleep(Duration::from_secs(1));
    typed.interrupt(Signal::TERM);
    is_a_partial_scan(dir);
}

/// A query may take hours: it is ended, and not waited for.
#[test]
fn a_scan_calls_its_readers_off() {
    if !has_postgresql() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    let server = Server::at(&dir.join("a")).expect("a server");
    let _ended = KilledAtEnd(&server);
    server.start(None).expect("started");
    let url = server.url("tpcc");
    let words = format!("scan --db {url} --rows 1000 --readers 2 --repeat 100000 --out out");
    let mut typed = Typed::start(dir, &words);
    typed.says("2 readers, repeat");
    let database = Postgres::new(&url, Logic::Client).expect("a URL");
    std::thread::scope(|scope| {
        let lock = scope.spawn(|| {
            // Its backend is ended below.
            let _ = database.execute("BEGIN; LOCK TABLE ashlar_scan; SELECT pg_sleep(600)");
        });
        let mut watcher = database.watcher().expect("it answers");
        let mut count = |what: &str| {
            let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE {what}");
            watcher.number(&sql).expect("it answers")
        };
        let patience = Instant::now() + RUN_TIMEOUT;
        while count("query LIKE 'SELECT sum%' AND wait_event_type = 'Lock'") < 2 {
            assert!(Instant::now() < patience, "no reader waits");
            std::thread::sleep(Duration::from_millis(20));
        }
        typed.interrupt(Signal::INT);
        assert_eq!(
            count("query LIKE 'SELECT sum%' AND pid <> pg_backend_pid()"),
            0
        );
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()";
        watcher.number(end).expect("it answers");
        lock.join().expect("it ends");
    });
    is_a_partial_scan(dir);
}

/// A process, and its children: nothing answers, and no client is let in.
fn stop(first: u32) {
    let stop = |process: u32| {
        let process = Pid::from_raw(process as i32).expect("a number");
        // A child may have ended.
        let _ = kill_process(process, Signal::STOP);
    };
    stop(first);
    let file = format!("/proc/{first}/task/{first}/children");
    let children = std::fs::read_to_string(file).expect("children");
    for child in children.split_whitespace() {
        stop(child.parse().expect("a number"));
    }
}

/// Ends what was typed; it takes no longer than a person would wait.
fn ends_soon(typed: Typed) {
    let begun = Instant::now();
    typed.interrupt(Signal::INT);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(25), "{took:?}");
}

#[test]
fn a_run_on_a_database_that_hangs_ends_and_keeps_its_steps() {
    if !has_postgresql() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    let server = Server::at(&dir.join("a")).expect("a server");
    let _ended = KilledAtEnd(&server);
    let pid = server.start(None).expect("started").pid.expect("it runs");
    let url = server.url("tpcc");
    let words = format!(
        "oltp --db {url} --warehouses 1 --users 1,2 --ramp 0s --seconds 2 --repeat 1000 --out out"
    );
    let mut typed = Typed::start(dir, &words);
    typed.says("repeat 2");
    stop(pid);
    // The step is over by then, and what is asked at its end is not answered.
    std::thread::sleep(Duration::from_secs(4));
    // What there is is there, whatever becomes of the rest.
    let kept = result(dir, "out");
    assert_eq!(kept["partial"], true);
    assert!(kept["steps"][1]["nopm"].as_f64() > Some(0.0), "{kept}");
    ends_soon(typed);
    let kept = result(dir, "out");
    let steps = kept["steps"].as_array().expect("steps");
    assert!(steps.len() >= 2 && kept["partial"] == true, "{kept}");
    for step in &steps[..2] {
        assert!(
            step["nopm"].as_f64() > Some(0.0) && step["partial"] == false,
            "{step}"
        );
        assert!(all_hold(&step["consistency"]), "{step}");
    }
    // No client is let in.
    let typed = Typed::start(dir, &format!("oltp run --db {url} --out second"));
    std::thread::sleep(Duration::from_secs(1));
    ends_soon(typed);
    let typed = Typed::start(dir, &format!("scan --db {url} --rows 1000 --out third"));
    std::thread::sleep(Duration::from_secs(1));
    ends_soon(typed);
}

fn is_a_partial_scan(dir: &Path) {
    let kept = result(dir, "out");
    assert_eq!(kept["partial"], true);
    let problem = kept["problems"][0].as_str().expect("a problem");
    assert!(problem.contains("interrupted"), "{problem}");
    assert!(kept["steps"][0]["mb_s"].as_f64() > Some(0.0), "{kept}");
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(report.contains("This run is partial"));
}

/// No server stays behind, whatever a test says.
struct KilledAtEnd<'a>(&'a Server);

impl Drop for KilledAtEnd<'_> {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}
