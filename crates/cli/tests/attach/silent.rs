//! Ctrl-C of a load on files of an attached volume that does not answer: one is enough, and what was measured is kept.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{can_attach, eventually, send};
use crate::rig::{Rig, Way};
use crate::typed::Typed;

/// What is said to take at most 12 s, on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(20);

/// Whether the first thread has ended. The process is there as long as the kernel keeps one of its threads, which
/// no signal ends.
fn has_left(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.contains(") Z "))
}

fn kept(rig: &Rig) -> serde_json::Value {
    let kept = std::fs::read_to_string(rig.path("out/result.json")).expect("a result");
    serde_json::from_str(&kept).expect("JSON")
}

fn kept_steps(rig: &Rig) -> usize {
    kept(rig)["steps"].as_array().map_or(0, Vec::len)
}

/// Ctrl-C, once, for what works on storage of a daemon that is stopped; the result that is there then. The daemon
/// goes on afterwards.
fn interrupted(rig: &Rig, mut typed: Typed, says: &str) -> serde_json::Value {
    let begun = Instant::now();
    typed.signal(Signal::INT);
    typed.says(says);
    let pid = typed.id();
    eventually("it leaves", || has_left(pid));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let kept = kept(rig);
    send(rig.pid("daemon"), Signal::CONT);
    typed.ends();
    kept
}

#[test]
fn one_interrupt_ends_a_load_on_storage_that_does_not_answer() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("500MiB").by(Way::InProcess);
    rig.attach("tank/db", &["--fs", "xfs"]);
    let daemon = rig.pid("daemon");
    let db = format!("--db sqlite:{}", rig.path("mnt/a.db").display());
    let start = |words: &str| Typed::start(&rig.path(""), &format!("oltp {words} {db} --out out"));
    let waits = "a thread still waits for";
    let users = "their threads still wait for";

    // In the middle of a step: what users have seen of it is kept.
    let mut typed = start("--warehouses 1 --users 2 --ramp 0s --seconds 600");
    typed.says("making keys");
    eventually("it begins", || rig.path("out/result.json").exists());
    std::thread::sleep(Duration::from_secs(2));
    send(daemon, Signal::STOP);
    std::thread::sleep(Duration::from_secs(2));
    let kept = interrupted(&rig, typed, users);
    assert_eq!(kept["partial"], true);
    assert!(kept["steps"][0]["nopm"].as_f64() > Some(0.0), "{kept}");
    let problems = kept["problems"].to_string();
    assert!(
        problems.contains("interrupted") && problems.contains(users),
        "{problems}"
    );

    // Between two steps, mostly: it is the work's own thread that waits.
    let copy = rig.path("mnt/kept.db").display().to_string();
    let mut typed = start(&format!(
        "run --users 1 --mode fixed:20 --repeat 1000 --restore {copy}"
    ));
    typed.says("[1/1000]");
    eventually("two steps", || kept_steps(&rig) > 1);
    send(daemon, Signal::STOP);
    std::thread::sleep(Duration::from_secs(2));
    let kept = interrupted(&rig, typed, "still wait");
    assert_eq!(kept["partial"], true);
    assert!(kept["steps"][1]["nopm"].as_f64() > Some(0.0), "{kept}");
    let problems = kept["problems"].to_string();
    assert!(
        problems.contains("interrupted") && problems.contains("still wait"),
        "{problems}"
    );

    // Before anything is measured.
    send(daemon, Signal::STOP);
    let typed = start("build --warehouses 1 --destroy-data");
    std::thread::sleep(Duration::from_secs(2));
    interrupted(&rig, typed, waits);
    eventually("nothing uses it", || {
        let detached = rig.command(&["detach", &rig.mount()]).output();
        detached.expect("it runs").status.success()
    });
    rig.is_clean();
}
