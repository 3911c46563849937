//! `ashlar service` for real: root, a daemon with a volume, a service on it that is killed, stopped, refused.

#![allow(clippy::print_stderr)] // Why tests were skipped, and what was left when one failed.

#[path = "../common/mod.rs"]
mod common;

mod address;
mod cluster;
mod guard;
mod nodes;
mod postgres;
mod zombie;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Running, ashlar, can_attach, ended, eventually, ok, refuses};
use rustix::process::Signal;
use serde_json::Value;

/// A daemon with pool tank of two files, whose services are mounted below one folder.
struct Rig {
    dir: tempfile::TempDir,
    daemon: Option<Running>,
}

impl Rig {
    fn new() -> Self {
        let dir = common::open_folder();
        let mut rig = Self { dir, daemon: None };
        rig.start_daemon();
        let drive = |name| format!("file:{}?size=1GiB", rig.path(name).display());
        let (d0, d1) = (drive("d0"), drive("d1"));
        rig.ok(&["pool", "create", "tank", "--drive", &d0, "--drive", &d1]);
        rig
    }

    fn volume(&self, name: &str) {
        self.ok(&[
            "volume", "create", name, "--layout", "mirror:2", "--size", "400MiB",
        ]);
    }

    fn start_daemon(&mut self) {
        self.start_daemon_under(&mut Command::new("/usr/bin/env"));
    }

    /// By a command that becomes what its last words are.
    fn start_daemon_under(&mut self, command: &mut Command) {
        let errors = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("errors"));
        let node = self.path("node").display().to_string();
        command.arg(env!("CARGO_BIN_EXE_ashlar"));
        command.args(["node", "--dir", &node, "--listen", "127.0.0.1:0"]);
        command.env("ASHLAR_ATTACH_STATE", self.path("state"));
        command.stderr(errors.expect("a file"));
        let mut daemon = Running::start(command);
        daemon.ready();
        self.daemon = Some(daemon);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = ashlar(words);
        command.env("ASHLAR_API", self.path("node/api.sock"));
        command.env("ASHLAR_ATTACH_STATE", self.path("state"));
        command
    }

    fn ok(&self, words: &[&str]) -> String {
        ok(&mut self.command(words))
    }

    fn refuses(&self, words: &[&str], code: i32, names: &[&str]) {
        refuses(&mut self.command(words), code, names);
    }

    fn show(&self, service: &str) -> Value {
        serde_json::from_str(&self.ok(&["service", "show", service, "--json"])).expect("JSON")
    }

    fn becomes(&self, service: &str, state: &str) -> Value {
        let mut last = Value::Null;
        eventually(&format!("service {service} is {state}"), || {
            last = self.show(service);
            last["state"] == state
        });
        last
    }

    /// What `GET /v1/services/NAME` answers: its status line's number.
    fn health(&self, service: &str) -> u16 {
        let answer = self.get(&format!("/v1/services/{service}"));
        let number = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        number.expect("a status")
    }

    /// What has happened to a service, oldest first.
    fn events(&self, service: &str) -> Vec<Value> {
        events_of(service, &self.ok(&["events", "--json"]))
    }

    fn metrics(&self) -> String {
        self.get("/metrics")
    }

    fn get(&self, path: &str) -> String {
        use std::io::{Read, Write};
        let socket = self.path("node/api.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("the API");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for file in ["errors", "node/service-s.log"] {
                eprintln!(
                    "{file}:\n{}",
                    std::fs::read_to_string(self.path(file)).unwrap_or_default()
                );
            }
            // What a failed test has left; there is nothing otherwise.
            let _ = self.command(&["service", "stop", "s"]).output();
            std::thread::sleep(std::time::Duration::from_secs(3));
            let mount = self.path("mnt").display().to_string();
            let _ = self.command(&["detach", &mount, "--force"]).output();
        }
    }
}

/// Of what `ashlar events --json` has said, the events of a service.
fn events_of(service: &str, lines: &str) -> Vec<Value> {
    let all = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    all.filter(|event: &Value| event["service"] == service)
        .collect()
}

/// The first process of a service that has written its number down.
fn process(mount: &Path) -> i32 {
    let text = std::fs::read_to_string(mount.join("pid")).expect("it runs");
    text.trim().parse().expect("a number")
}

#[test]
fn what_is_killed_is_started_again_and_a_daemon_that_is_killed_finds_it() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new();
    rig.volume("tank/s");
    let mount = rig.path("mnt");
    let place = mount.display().to_string();
    let start = format!("echo $$ > {place}/pid && exec sleep 1000");
    let create = [
        "service", "create", "s", "--volume", "tank/s", "--mount", &place, "--start", &start,
    ];
    let said = rig.ok(&create);
    assert!(said.contains("not replicated"), "{said}");
    let up = rig.becomes("s", "running");
    assert_eq!(
        (&up["highly_available"], &up["starts"]),
        (&false.into(), &1.into())
    );
    assert_eq!(rig.health("s"), 200);

    // kill -9: where it was.
    common::send(process(&mount), Signal::KILL);
    eventually("it was started again", || rig.show("s")["starts"] == 2);
    let again = rig.becomes("s", "running");
    assert_eq!(again["failures"], 1);
    assert!(
        again["last_gap_seconds"]
            .as_f64()
            .is_some_and(|gap| gap > 0.0),
        "{again}"
    );
    let told = rig.events("s");
    let kinds: Vec<&Value> = told.iter().map(|one| &one["kind"]).collect();
    let wanted = ["service_running", "service_interrupted", "service_running"];
    assert_eq!(kinds, wanted, "{told:?}");
    assert_eq!(told[1]["reason"], "its processes have ended");
    let metrics = rig.metrics();
    for line in [
        "ashlar_service_running{service=\"s\"} 1",
        "ashlar_service_failures_total{service=\"s\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }

    // kill -9 of the daemon: the service waits, and the next daemon finds it.
    let first = process(&mount);
    rig.daemon.as_mut().expect("it runs").kill();
    rig.start_daemon();
    let found = rig.becomes("s", "running");
    assert_eq!((process(&mount), &found["starts"]), (first, &0.into()));

    rig.refuses(
        &["service", "move", "s"],
        3,
        &["tank/s", "no other node has a copy"],
    );
    rig.refuses(&["service", "delete", "s"], 3, &["stop it first"]);
    rig.ok(&["service", "stop", "s"]);
    rig.becomes("s", "stopped");
    assert_eq!(rig.health("s"), 503);
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&place), "{mounts}");
    rig.ok(&["service", "start", "s"]);
    rig.becomes("s", "running");
    rig.ok(&["service", "stop", "s"]);
    rig.becomes("s", "stopped");
    rig.ok(&["service", "delete", "s"]);
    assert_eq!(rig.ok(&["service", "list", "--json"]).trim(), "[]");
    assert_eq!(rig.health("s"), 404);
    assert_eq!(rig.ok(&["attach", "--list"]), "nothing is attached\n");
}

/// A stop that is under way when the daemon dies is finished by the next one, and not called over before it is.
#[test]
fn a_stop_that_a_daemon_did_not_finish_is_finished_by_the_next() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new();
    rig.volume("tank/s");
    let mount = rig.path("mnt");
    let place = mount.display().to_string();
    let start = format!("echo $$ > {place}/pid && exec sleep 1000");
    rig.ok(&[
        "service", "create", "s", "--volume", "tank/s", "--mount", &place, "--start", &start,
    ]);
    rig.becomes("s", "running");
    let busy = std::fs::File::open(mount.join("pid")).expect("it runs");
    rig.ok(&["service", "stop", "s"]);
    eventually("it cannot be unmounted", || {
        let shown = rig.show("s");
        shown["state"] == "stopping" && !shown["reason"].is_null()
    });
    rig.daemon.as_mut().expect("it runs").kill();
    rig.start_daemon();
    let is_mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        mounts.contains(&place)
    };
    for _ in 0..20 {
        assert_eq!(rig.show("s")["state"], "stopping");
        assert!(is_mounted());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    rig.refuses(&["service", "delete", "s"], 3, &["being stopped"]);
    drop(busy);
    rig.becomes("s", "stopped");
    assert!(!is_mounted());
    assert_eq!(rig.ok(&["attach", "--list"]), "nothing is attached\n");
    rig.ok(&["service", "start", "s"]);
    rig.becomes("s", "running");
    rig.ok(&["service", "stop", "s"]);
    rig.becomes("s", "stopped");
}

#[test]
fn what_does_not_start_is_given_up_and_what_loses_its_volume_is_stopped() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new();
    rig.volume("tank/s");
    let mount = rig.path("mnt").display().to_string();
    let create = |start: &str| {
        let words = [
            "service", "create", "s", "--volume", "tank/s", "--mount", &mount, "--start", start,
        ];
        ended(&mut rig.command(&words))
    };
    let said = create("echo no such thing >&2; exit 7");
    assert_eq!(said.code, 0, "{}", said.error);
    let given_up = rig.becomes("s", "failed");
    let reason = given_up["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("exit status: 7") && reason.contains("no such thing"),
        "{reason}"
    );
    assert_eq!(
        (&given_up["failures"], &given_up["starts"]),
        (&3.into(), &0.into())
    );
    let told = rig.events("s").pop().expect("an event");
    assert_eq!(
        (&told["kind"], &told["reason"]),
        (&"service_failed".into(), &given_up["reason"])
    );
    rig.ok(&["service", "delete", "s"]);

    // What is in the way is named before anything is done.
    let marker = rig.path("other").display().to_string();
    std::fs::create_dir(&marker).expect("a folder");
    ok(Command::new("mount").args(["-t", "tmpfs", "none", &marker]));
    let words = [
        "service", "create", "s", "--volume", "tank/s", "--mount", &marker, "--start", "sleep 9",
    ];
    rig.refuses(&words, 3, &[&marker, "is in use"]);
    ok(Command::new("umount").arg(&marker));
    let words = [
        "service", "create", "s", "--volume", "tank/no", "--mount", &mount, "--start", "sleep 9",
    ];
    rig.refuses(&words, 3, &["no"]);
    let words = [
        "service",
        "create",
        "s",
        "--volume",
        "tank/s",
        "--mount",
        &mount,
        "--start",
        "x",
        "--user",
        "none-such",
    ];
    rig.refuses(&words, 2, &["user none-such"]);
    let words = [
        "service", "create", "s", "--volume", "tank/s", "--mount", "mnt", "--start", "x",
    ];
    rig.refuses(&words, 2, &["must be an absolute path"]);

    // A service whose volume is taken away under it.
    assert_eq!(create("exec sleep 1000").code, 0);
    rig.becomes("s", "running");
    ok(Command::new("umount").args(["-l", &mount]));
    eventually(
        "it was stopped and has come back on a volume that is mounted",
        || {
            let now = rig.show("s");
            now["failures"] == 1 && now["starts"] == 2 && now["state"] == "running"
        },
    );
    // What it leaves behind in its cgroup is killed with it: `sleep` ends at no stop command.
    rig.ok(&["service", "stop", "s"]);
    rig.becomes("s", "stopped");
    rig.ok(&["service", "delete", "s"]);
    rig.daemon.take().expect("it runs").end(Signal::TERM);
}

#[test]
fn a_program_that_is_missing_is_named_when_a_service_is_made() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new();
    rig.volume("tank/s");
    rig.daemon.take().expect("it runs").end(Signal::TERM);
    // Administrators' programs are hidden from it, and it finds none by its path.
    let hides = "/usr/bin/mount -t tmpfs none /usr/sbin && exec \"$@\"";
    let mut hidden = Command::new("/usr/bin/unshare");
    hidden.args([
        "--mount",
        "--propagation",
        "private",
        "/bin/sh",
        "-c",
        hides,
        "sh",
    ]);
    rig.start_daemon_under(hidden.env("PATH", "/none"));
    let mount = rig.path("mnt").display().to_string();
    let words = [
        "service", "create", "s", "--volume", "tank/s", "--mount", &mount, "--start", "sleep 9",
        "--fs", "ext4",
    ];
    rig.refuses(&words, 3, &["service s", "mkfs.ext4", "e2fsprogs"]);
    let words = [&words[..], &["--user", "root"]].concat();
    rig.refuses(&words, 3, &["setpriv", "util-linux", "user root"]);
    assert_eq!(rig.ok(&["service", "list", "--json"]).trim(), "[]");
    rig.daemon.take().expect("it runs").end(Signal::TERM);
}

#[test]
fn a_configuration_of_haproxy_is_one_that_it_accepts() {
    let words = [
        "service",
        "haproxy",
        "pg",
        "--node",
        "10.0.0.1:8080:5432",
        "--node",
        "10.0.0.2:8080:5432",
    ];
    let text = ok(&mut ashlar(words));
    assert!(
        text.contains("server node2 10.0.0.2:5432 check port 8080"),
        "{text}"
    );
    let program = Path::new("/usr/sbin/haproxy");
    if common::is_there("HAProxy", program.exists()) {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("haproxy.cfg");
        std::fs::write(&file, &text).expect("written");
        let checked = ended(Command::new(program).args(["-c", "-f"]).arg(&file));
        assert_eq!(checked.code, 0, "{} {text}", checked.said());
    }
    refuses(
        &mut ashlar(["service", "haproxy", "pg", "--node", "10.0.0.1:5432"]),
        2,
        &["--node", "HOST:APIPORT:PORT"],
    );
}
