//! `ashlar lab server`: a private PostgreSQL, as a user handles it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{ashlar, has_postgresql, open_folder, refuses};

fn server(words: &[&str]) -> Command {
    let mut command = ashlar(["lab", "server"]);
    command.args(words);
    command
}

fn ok(words: &[&str]) -> String {
    crate::common::ok(&mut server(words))
}

fn refused(words: &[&str], code: i32, says: &str) {
    refuses(&mut server(words), code, &[says]);
}

fn sql(dir: &str, sql: &str) -> Result<String, String> {
    let run = format!("{dir}/run");
    let words = ["-XqAt", "-h", &run, "-U", "owner", "-d", "tpcc", "-c", sql];
    let out = Command::new("psql").args(words).output().expect("psql");
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

/// A folder with servers in it, which are killed at the end.
struct Room(tempfile::TempDir);

impl Room {
    fn new() -> Self {
        Self(open_folder())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for name in ["a", "b"] {
            // What a failed test has left; there is nothing otherwise.
            let _ = server(&["kill", "--dir", &self.path(name)]).output();
        }
    }
}

fn status(dir: &str) -> Value {
    serde_json::from_str(&ok(&["status", "--dir", dir, "--json"])).expect("JSON")
}

#[test]
fn it_starts_crashes_and_is_put_back() {
    if !has_postgresql() {
        return;
    }
    let room = Room::new();
    let dir = room.path("a");
    refused(&["stop", "--dir", &dir], 2, "no server of ours");
    let said = ok(&["start", "--dir", &dir, "--set", "max_connections=33"]);
    assert!(
        said.starts_with("ready") && said.contains("postgres:///tpcc?host="),
        "{said}"
    );
    refused(&["start", "--dir", &dir], 2, "runs already");
    assert_eq!(sql(&dir, "show max_connections").as_deref(), Ok("33"));
    sql(&dir, "create table t (i int); insert into t values (1)").expect("made");
    ok(&["kill", "--dir", &dir]);
    assert!(status(&dir)["pid"].is_null());
    assert!(ok(&["kill", "--dir", &dir]).contains("did not run"));
    ok(&["start", "--dir", &dir]);
    assert_eq!(sql(&dir, "select i from t").as_deref(), Ok("1"));
    assert_eq!(
        sql(&dir, "show max_connections").as_deref(),
        Ok("33"),
        "kept"
    );
    refused(&["restore", "--dir", &dir], 2, "nothing was saved");
    ok(&["save", "--dir", &dir]);
    sql(&dir, "update t set i = 2").expect("changed");
    ok(&["restore", "--dir", &dir]);
    assert_eq!(
        sql(&dir, "select i from t").as_deref(),
        Ok("1"),
        "put back, and running"
    );
    ok(&["stop", "--dir", &dir]);
    assert_eq!(status(&dir)["saved"], true);
}

/// Files that a process or a child of it has mapped.
fn mapped(pid: u64) -> String {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let is_its = |dir: &Path| {
        let stat = std::fs::read_to_string(dir.join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(1));
        dir.ends_with(pid.to_string()) || parent == Some(&pid.to_string())
    };
    let maps = all.map(|entry| entry.path()).filter(|dir| is_its(dir));
    maps.filter_map(|dir| std::fs::read_to_string(dir.join("maps")).ok())
        .collect()
}

/// Segments in /dev/shm bear no mark of their server, so that no later start could remove those of a killed one.
#[test]
fn a_killed_server_leaves_no_shared_memory() {
    if !has_postgresql() {
        return;
    }
    let room = Room::new();
    let dir = room.path("a");
    ok(&["start", "--dir", &dir]);
    sql(
        &dir,
        "create table t as select generate_series(1, 100000) i",
    )
    .expect("made");
    let parallel = "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; \
                    set min_parallel_table_scan_size = 0; select count(*) from t";
    assert_eq!(sql(&dir, parallel).map(|t| t.ends_with("100000")), Ok(true));
    let pid = status(&dir)["pid"].as_u64().expect("it runs");
    let mapped = mapped(pid);
    assert!(!mapped.contains("/dev/shm/PostgreSQL."), "{mapped}");
    assert!(
        mapped.contains(&format!("{dir}/data/pg_dynshmem/")),
        "{mapped}"
    );
    let file = std::fs::read_to_string(format!("{dir}/data/postmaster.pid")).expect("it runs");
    let key = file.lines().nth(6).expect("line 7");
    let id = key.split_whitespace().nth(1).expect("a number").to_owned();
    let is_there = || {
        let all = std::fs::read_to_string("/proc/sysvipc/shm").expect("a list");
        all.lines()
            .any(|line| line.split_whitespace().nth(1) == Some(&id))
    };
    assert!(is_there());
    ok(&["kill", "--dir", &dir]);
    assert!(!is_there());
    ok(&["start", "--dir", &dir]);
    assert_eq!(sql(&dir, "select count(*) from t").as_deref(), Ok("100000"));
}

#[test]
fn what_is_not_ours_or_not_possible_is_refused() {
    if !has_postgresql() {
        return;
    }
    let room = Room::new();
    let dir = room.path("a");
    std::fs::create_dir(&dir).expect("folder");
    std::fs::write(format!("{dir}/precious"), "x").expect("file");
    refused(&["start", "--dir", &dir], 2, "precious");
    let dir = room.path("b");
    refused(
        &["start", "--dir", &dir, "--set", "nonsense"],
        2,
        "name=value",
    );
    refused(
        &["start", "--dir", &dir, "--set", "no_such_setting=1"],
        3,
        "no_such_setting",
    );
    refused(&["start", "--dir", &dir, "--memory", "lots"], 2, "--memory");
    // It would be killed for want of memory, and this program with it.
    refused(
        &["start", "--dir", &dir, "--memory", "1"],
        2,
        "at least 40 MiB",
    );
    refused(&["stop", "--dir", &dir, "--memory", "1GiB"], 2, "for start");
    refused(&["promote", "--dir", &dir], 2, "no running standby");
    let deep = room.path(&"d".repeat(120));
    refused(&["start", "--dir", &deep], 2, "at most 107 bytes");
}

#[test]
fn a_limit_of_memory_holds_for_all_its_processes() {
    let groups = Path::new("/sys/fs/cgroup/memory");
    let may = rustix::process::getuid().is_root() && groups.exists();
    if !has_postgresql() || !may {
        eprintln!("SKIPPED: no root, or no memory cgroup of version 1");
        return;
    }
    let room = Room::new();
    let dir = room.path("a");
    ok(&["start", "--dir", &dir, "--memory", "128MiB"]);
    assert_eq!(sql(&dir, "show shared_buffers").as_deref(), Ok("32MB"));
    let pid = status(&dir)["pid"].as_u64().expect("a process");
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("groups");
    let line = group
        .lines()
        .find(|line| line.contains(":memory:"))
        .expect("memory");
    let name = line.rsplit('/').next().expect("a name");
    assert!(name.starts_with("ashlar-"), "{line}");
    let group = groups.join(name);
    let limit = std::fs::read_to_string(group.join("memory.limit_in_bytes")).expect("limit");
    assert_eq!(limit.trim(), (128 << 20).to_string());
    let inside = std::fs::read_to_string(group.join("cgroup.procs")).expect("processes");
    assert!(inside.lines().count() >= 5, "{inside}");
    // 400 MB of rows, stored as they are: as much of the page cache as there may be, and no more.
    sql(&dir, "create table t (line text)").expect("made");
    sql(&dir, "alter table t alter column line set storage plain").expect("plain");
    let rows = "insert into t select repeat('x', 4000) from generate_series(1, 100000)";
    sql(&dir, rows).expect("large");
    sql(&dir, "select sum(length(line)) from t").expect("read");
    let used = std::fs::read_to_string(group.join("memory.max_usage_in_bytes")).expect("usage");
    let used: u64 = used.trim().parse().expect("a number");
    // Cores charge pages in advance: the most may be a little above the limit.
    assert!((100 << 20..129 << 20).contains(&used), "{used}");
    ok(&["stop", "--dir", &dir]);
    assert!(!group.exists(), "nothing is left behind");
}

#[test]
fn a_standby_has_what_was_acknowledged_when_the_primary_dies() {
    if !has_postgresql() {
        return;
    }
    let room = Room::new();
    let (dir, other) = (room.path("a"), room.path("b"));
    ok(&["start", "--dir", &dir]);
    sql(&dir, "create table t (i int)").expect("made");
    ok(&[
        "start",
        "--dir",
        &dir,
        "--standby",
        &other,
        "--commit",
        "remote-apply",
    ]);
    assert_eq!(
        sql(&dir, "show synchronous_commit").as_deref(),
        Ok("remote_apply")
    );
    let last = AtomicI32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1.. {
                match sql(&dir, &format!("insert into t values ({i})")) {
                    Ok(_) => last.store(i, Ordering::SeqCst),
                    Err(_) => break,
                }
            }
        });
        let patience = Instant::now() + Duration::from_secs(60);
        while last.load(Ordering::SeqCst) < 20 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        ok(&["kill", "--dir", &dir]);
    });
    let acknowledged = last.into_inner();
    assert!(acknowledged > 10, "{acknowledged}");
    ok(&["promote", "--dir", &other]);
    let has = sql(&other, "select max(i), count(*) from t").expect("read");
    let (last, count) = has.split_once('|').expect("two numbers");
    let (last, count): (i32, i32) = (last.parse().expect("one"), count.parse().expect("two"));
    assert!(
        last >= acknowledged && count == last,
        "{has}, acknowledged {acknowledged}"
    );
    sql(&other, "insert into t values (0)").expect("it is the primary, and waits for no standby");
}

#[test]
fn every_step_of_a_run_begins_with_the_same_database() {
    if !has_postgresql() {
        return;
    }
    let room = Room::new();
    let dir = room.path("a");
    ok(&["start", "--dir", &dir, "--set", "fsync=off"]);
    let url = format!("postgres:///tpcc?host={dir}/run&user=owner");
    let (out, second) = (room.path("run"), room.path("second"));
    let words = [
        "lab",
        "oltp",
        "--db",
        &url,
        "--warehouses",
        "1",
        "--users",
        "1,2",
        "--mode",
        "fixed:100",
        "--restore",
        &dir,
        "--out",
        &out,
    ];
    crate::common::ok(&mut ashlar(words));
    let text = std::fs::read_to_string(format!("{out}/result.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["method"]["restored"], true);
    let steps = result["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 2);
    for step in steps {
        let conditions = step["consistency"].as_object().expect("conditions");
        assert!(
            conditions.len() == 12 && conditions.values().all(|c| c == "pass"),
            "{step}"
        );
        assert!(
            step["transactions"]["new_order"]["count"].as_u64() > Some(0),
            "{step}"
        );
    }
    // One that is refused leaves no result that looks like one.
    let (many, refused) = ("300".to_owned(), room.path("refused"));
    let words = [
        "lab", "oltp", "run", "--db", &url, "--users", &many, "--out", &refused,
    ];
    refuses(&mut ashlar(words), 3, &["--users 300"]);
    let text = std::fs::read_to_string(format!("{refused}/result.json")).expect("a result");
    let kept: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(kept["partial"], true);
    assert!(
        kept["problems"].to_string().contains("--users 300"),
        "{kept}"
    );
    // Further repeats by other means are refused before anything is measured.
    let words = [
        "lab",
        "oltp",
        "run",
        "--db",
        &url,
        "--users",
        "1",
        "--mode",
        "fixed:100",
        "--restore",
        &dir,
    ];
    let words = [&words[..], &["--append", "--out", &out, "--sql", "client"]].concat();
    refuses(
        &mut ashlar(words),
        2,
        &["sql differs: functions against client"],
    );
    let after = std::fs::read_to_string(format!("{out}/result.json")).expect("a result");
    let after: Value = serde_json::from_str(&after).expect("JSON");
    assert_eq!(after, result, "nothing was added");
    let words = [
        "lab",
        "oltp",
        "run",
        "--db",
        &url,
        "--users",
        "1,2",
        "--mode",
        "fixed:100",
        "--restore",
        &dir,
    ];
    crate::common::ok(&mut ashlar(
        [&words[..], &["--out", &room.path("again")]].concat(),
    ));
    // The last step's orders are there, and only they.
    let orders: i64 = sql(&dir, "select sum(d_next_o_id) - 30010 from district")
        .expect("read")
        .parse()
        .expect("a number");
    let last = &steps[1]["transactions"]["new_order"];
    let count = |key: &str| last[key].as_i64().expect("a count");
    assert_eq!(orders, count("count") - count("rolled_back"));
    let other = [
        "lab",
        "oltp",
        "run",
        "--db",
        "postgres:///tpcc?host=/nowhere",
        "--restore",
        &dir,
        "--out",
        &second,
    ];
    refuses(&mut ashlar(other), 2, &[]);
    let secret = "postgres://owner:secret@127.0.0.1/tpcc";
    let other = other.map(|word| if word.contains("host=") { secret } else { word });
    let out = ashlar(other).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.code() == Some(2) && said.contains("owner@127.0.0.1"),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn what_is_given_is_of_both_and_what_is_not_is_kept() {
    if !has_postgresql() {
        return;
    }
    let room = Room::new();
    let (dir, other) = (room.path("a"), room.path("b"));
    let settings = |dir: &str| status(dir)["settings"].clone();
    let both = ["start", "--dir", &dir, "--standby", &other];
    ok(&[&both[..], &["--set", "max_connections=120"]].concat());
    for dir in [&dir, &other] {
        assert_eq!(
            sql(dir, "show max_connections").as_deref(),
            Ok("120"),
            "{dir}"
        );
    }
    let third = room.path("c");
    let late = [
        "start",
        "--dir",
        &dir,
        "--standby",
        &third,
        "--set",
        "work_mem=8MB",
    ];
    refused(&late, 2, "stop it first");
    ok(&["stop", "--dir", &other]);
    ok(&["start", "--dir", &other, "--set", "work_mem=8MB"]);
    let set = settings(&other)["set"].to_string();
    for name in ["max_connections=120", "cluster_name=", "work_mem=8MB"] {
        assert!(set.contains(name), "{name}: {set}");
    }
    ok(&["stop", "--dir", &other]);
    ok(&["start", "--dir", &other, "--set", "work_mem=9MB"]);
    let set = settings(&other)["set"].to_string();
    assert!(
        set.contains("work_mem=9MB") && !set.contains("8MB"),
        "{set}"
    );
    if ashlar_oltp::server::can_limit_memory().is_err() {
        eprintln!("SKIPPED: what becomes of --memory: it cannot be limited here");
        return;
    }
    ok(&["kill", "--dir", &dir]);
    ok(&[
        "start",
        "--dir",
        &dir,
        "--memory",
        "128MiB",
        "--set",
        "synchronous_standby_names=",
    ]);
    ok(&["stop", "--dir", &dir]);
    ok(&["start", "--dir", &dir, "--set", "work_mem=8MB"]);
    assert_eq!(
        settings(&dir)["memory_bytes"],
        128 << 20,
        "it was not given again"
    );
    assert_eq!(sql(&dir, "show shared_buffers").as_deref(), Ok("32MB"));
    ok(&["stop", "--dir", &dir]);
    ok(&["start", "--dir", &dir, "--memory", "none"]);
    assert!(settings(&dir)["memory_bytes"].is_null());
}

#[test]
fn a_start_that_fails_says_what_to_do_and_changes_nothing() {
    use std::os::unix::fs::PermissionsExt;
    if !has_postgresql() {
        return;
    }
    let room = Room::new();
    let dir = room.path("a");
    ok(&["start", "--dir", &dir, "--set", "max_connections=33"]);
    ok(&["stop", "--dir", &dir]);
    refused(
        &["start", "--dir", &dir, "--set", "nonsense=1"],
        3,
        "\"nonsense\"",
    );
    ok(&["start", "--dir", &dir]);
    assert_eq!(sql(&dir, "show max_connections").as_deref(), Ok("33"));
    if rustix::process::geteuid().is_root() {
        let closed = room.path("closed");
        std::fs::create_dir(&closed).expect("made");
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&closed, mode).expect("closed");
        let inside = format!("{closed}/b");
        refused(
            &["start", "--dir", &inside],
            3,
            &format!("chmod o+x {closed}"),
        );
    }
}
