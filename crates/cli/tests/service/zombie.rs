//! A node that stands still as a whole and goes on in an order in which nothing kills what ran on it: what stands between
//! its late writes and the data is the volume alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::cluster::{A, B, Rig, check_order, lines};
use crate::common::{Running, can_attach, eventually, is_there};

/// For so long each part of it goes on before the next does.
const GOES_ON: Duration = Duration::from_secs(1);

/// All that runs on a node but the parent of its daemon, in the order in which it goes on.
struct Frozen {
    /// Those of the service, those beside it, and what is between them and the daemon.
    others: Vec<i32>,
    daemon: i32,
    guards: Vec<i32>,
}

/// Processes with a node's mounts, but for the one that keeps them.
fn processes(rig: &Rig, node: usize) -> Vec<i32> {
    let holder = rig.nodes[node].mounts.id();
    let mounts = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let own = mounts(&holder.to_string()).expect("mounts");
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    let inside = names.filter(|name| mounts(name).as_ref() == Some(&own));
    let numbers = inside.filter_map(|name| name.parse().ok());
    numbers.filter(|&pid| pid != holder.cast_signed()).collect()
}

fn words(pid: i32) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// Whether a process runs: it is neither stopped nor gone, nor does it wait for storage, behind which it stops.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('R' | 'S'))
}

fn stop(pid: i32) {
    // A command of a shell may have ended meanwhile.
    let _ = Command::new("kill")
        .args(["-STOP", &pid.to_string()])
        .output();
}

/// All of a node stands still: its guard first, which would take down what it guards.
fn freeze(rig: &mut Rig) -> Frozen {
    let daemon = rig.daemon_itself(A);
    let parent = rig.daemon(A).id().cast_signed();
    let is_guard = |&pid: &i32| words(pid).contains("service-guard");
    let guards: Vec<i32> = processes(rig, A).into_iter().filter(is_guard).collect();
    assert_eq!(guards.len(), 1, "the service's");
    guards.iter().copied().for_each(stop);
    let mut others = Vec::new();
    // What a shell has begun meanwhile, too.
    eventually("all of it stands still", || {
        let all = processes(rig, A).into_iter();
        let left: Vec<i32> = all.filter(|&pid| pid != parent && runs(pid)).collect();
        left.iter().copied().for_each(stop);
        others.extend(left.iter().filter(|&&pid| pid != daemon));
        left.is_empty()
    });
    assert!(
        others
            .iter()
            .any(|&pid| words(pid).contains("attach-server"))
    );
    Frozen {
        others,
        daemon,
        guards,
    }
}

/// Writes lines to a file for ever, and notes elsewhere which are there for good. It opens the file once.
fn writer(file: &Path, told: &Path) -> String {
    let (file, told) = (file.display(), told.display());
    format!(
        "exec 3>>{file}; n=0; while :; do n=$((n+1)); \
         echo $$ $n >&3 && sync -d /proc/$$/fd/3 && echo $$ $n >> {told}; sleep 0.03; done"
    )
}

fn create(rig: &Rig, mount: &Path, start: &str) {
    let volume = "volume create tank/s --size 400MiB --layout mirror:2 --replicas 2";
    rig.ok(A, &volume.split(' ').collect::<Vec<_>>());
    rig.await_in_sync(A, "tank/s");
    // Either may have been the first.
    rig.ok(A, &["volume", "move", "tank/s", "--to", "a"]);
    let mount = mount.display().to_string();
    let words = [
        "service", "create", "s", "--volume", "tank/s", "--mount", &mount, "--start", start,
    ];
    rig.ok(A, &words);
    rig.becomes(A, "s", "running");
}

#[test]
fn late_writes_of_a_node_that_stood_still_are_refused_whatever_goes_on_first() {
    let has_etcd = is_there("etcd", Path::new("/usr/bin/etcd").exists());
    if !has_etcd || !can_attach() {
        return;
    }
    let mut rig = Rig::new();
    let mount = rig.path("mnt");
    let told = ["acknowledged", "beside"].map(|name| rig.path(name));
    create(&rig, &mount, &writer(&mount.join("written"), &told[0]));
    // One that is not the service's: nothing kills it, and it has its file open for ever.
    let mut beside = Command::new("nsenter");
    beside.arg(format!("--mount=/proc/{}/ns/mnt", rig.nodes[A].mounts.id()));
    beside.args(["sh", "-c", &writer(&mount.join("beside"), &told[1])]);
    let beside = Running::start(&mut beside);
    for file in &told {
        eventually("it works", || lines(file).len() > 3);
    }

    let frozen = freeze(&mut rig);
    rig.becomes(B, "s", "running");
    rig.await_progress();
    let first = lines(&told[0])[0].clone();
    let old = first.split(' ').next().expect("a number").to_owned();
    let of_old = |lines: &[String]| {
        let own = format!("{old} ");
        lines.iter().filter(|line| line.starts_with(&own)).count()
    };
    let before = [of_old(&lines(&told[0])), lines(&told[1]).len()];
    let parts = [&frozen.others[..], &[frozen.daemon], &frozen.guards];
    for part in parts {
        for &pid in part {
            // A command that the shell waited for may have ended.
            let _ = Command::new("kill")
                .args(["-CONT", &pid.to_string()])
                .output();
        }
        std::thread::sleep(GOES_ON);
    }
    rig.becomes(A, "s", "elsewhere");
    rig.await_progress();

    // A line that was there for good before all stood still may have been noted after.
    let after = [of_old(&lines(&told[0])), lines(&told[1]).len()];
    for (name, (before, after)) in ["the service", "another"]
        .iter()
        .zip(before.iter().zip(after))
    {
        assert!(
            after <= before + 1,
            "of {name} {before} lines became {after}"
        );
    }
    let there = |name: &str| {
        let holder = rig.nodes[B].mounts.id();
        let root = PathBuf::from(format!("/proc/{holder}/root"));
        let path = mount.join(name);
        lines(&root.join(path.strip_prefix("/").expect("it is absolute")))
    };
    let acknowledged = lines(&told[0]);
    let written = there("written");
    let writers = check_order(&written, &acknowledged);
    assert_eq!(writers.len(), 2, "{writers:?}");
    check_order(&there("beside"), &lines(&told[1]));
    drop(beside);
    rig.await_in_sync(B, "tank/s");
    for node in [A, B] {
        rig.daemon(node).end(Signal::TERM);
    }
}
