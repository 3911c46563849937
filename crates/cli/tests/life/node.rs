//! A running `ashlar node`, and its commands.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::load::Place;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(45);

/// Waits until something is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ashlar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A directory with drives and a daemon's state.
pub struct Room {
    pub dir: tempfile::TempDir,
}

impl Room {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An empty file, as a drive is named.
    pub fn drive(&self, name: &str, mib: u64) -> String {
        let file = File::create(self.path(name)).expect("a file");
        file.set_len(mib << 20).expect("a sparse file");
        self.spec(name)
    }

    pub fn spec(&self, name: &str) -> String {
        format!("file:{}", self.path(name).display())
    }

    /// `count` drives, d0 and so on.
    pub fn drives(&self, count: usize, mib: u64) -> Vec<String> {
        (0..count)
            .map(|i| self.drive(&format!("d{i}"), mib))
            .collect()
    }
}

pub struct Node {
    child: Child,
    pub address: SocketAddr,
    socket: String,
    errors: PathBuf,
}

impl Node {
    /// Starts a daemon that must come up.
    pub fn start(room: &Room) -> Self {
        Self::spawned(room, "node").0.expect("the daemon is ready")
    }

    /// Starts a daemon, and kills it after a while, ready or not.
    pub fn stillborn(room: &Room, after: Duration) {
        let mut child = Self::command(room, "node").spawn().expect("it starts");
        std::thread::sleep(after);
        child.kill().expect("our child");
        child.wait().expect("our child");
    }

    fn command(room: &Room, state: &str) -> Command {
        let dir = room.path(state).display().to_string();
        let errors = room.path("stderr");
        let errors = OpenOptions::new().create(true).append(true).open(errors);
        let settings = room.path("ashlar.toml");
        std::fs::write(&settings, "repair_after_seconds = 1\n").expect("a file");
        let settings = settings.display().to_string();
        let listen = ["--listen", "127.0.0.1:0", "--config", &settings];
        let mut command = ashlar(&[&["node", "--dir", &dir], &listen[..]].concat());
        command
            .stdout(Stdio::piped())
            .stderr(errors.expect("a file"));
        command
    }

    /// The daemon once it is ready, or how it ended.
    fn spawned(room: &Room, state: &str) -> (Option<Self>, Option<i32>) {
        let mut child = Self::command(room, state).spawn().expect("it starts");
        let stdout = child.stdout.take().expect("piped");
        let (say, said) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            // Nobody may be waiting any more.
            let _ = say.send(read.map(|_| line));
        });
        let line = said
            .recv_timeout(PATIENCE)
            .expect("ready in time")
            .expect("text");
        let errors = room.path("stderr");
        let mut words = line.split_whitespace();
        if words.next() != Some("ready") {
            let status = child.wait().expect("our child");
            return (None, status.code());
        }
        let address = words.next().and_then(|word| word.parse().ok());
        let node = Self {
            child,
            address: address.expect("an address"),
            socket: words.next().expect("a socket").to_owned(),
            errors,
        };
        (Some(node), None)
    }

    /// kill -9, and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().expect("it is alive");
        self.child.wait().expect("our child");
    }

    /// Ends it in order.
    pub fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is alive");
        let mut status = None;
        eventually("it ends", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(0));
    }

    /// Runs a command of it.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = ashlar(arguments);
        command
            .env("ASHLAR_API", &self.socket)
            .output()
            .expect("it runs")
    }

    /// A command that must succeed; its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// A command that must fail with this code, saying all of `names`.
    pub fn refuses(&self, arguments: &[&str], code: i32, names: &[&str]) {
        let output = self.run(arguments);
        fails(&output, arguments, code, names);
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    pub fn status(&self) -> Value {
        self.json(&["pool", "status", "tank"])
    }

    pub fn state(&self) -> String {
        text(&self.status()["state"])
    }

    /// Makes pool tank of these drives, and volume tank/db in it.
    pub fn make(&self, drives: &[String], layout: &str, size: &str) {
        let mut create = vec!["pool", "create", "tank"];
        drives
            .iter()
            .for_each(|drive| create.extend(["--drive", drive]));
        self.ok(&create);
        let volume = ["volume", "create", "tank/db", "--allow-any-host"];
        self.ok(&[&volume[..], &["--size", size, "--layout", layout]].concat());
    }

    /// The name that hosts know tank/db by.
    pub fn nqn(&self) -> String {
        text(&self.json(&["volume", "show", "tank/db"])["nqn"])
    }

    pub fn place<'a>(&self, nqn: &'a str) -> Place<'a> {
        Place {
            address: self.address,
            nqn,
        }
    }

    /// What this daemon and those before it have written to stderr.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Waits until the pool is healthy and has nothing to do.
    pub fn await_healthy(&self) {
        let start = Instant::now();
        loop {
            let status = self.status();
            let idle = status["work"].as_array().is_some_and(Vec::is_empty);
            if status["state"] == "healthy" && idle {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "not healthy: {status:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.said());
        }
    }
}

/// A second daemon must not come up; it ends with this code.
pub fn does_not_start(room: &Room, state: &str, code: i32, names: &[&str]) {
    let (node, ended) = Node::spawned(room, state);
    assert!(node.is_none(), "it came up");
    assert_eq!(ended, Some(code));
    let said = std::fs::read_to_string(room.path("stderr")).expect("text");
    for name in names {
        assert!(said.contains(name), "it does not name {name:?}: {said}");
    }
}

fn fails(output: &Output, arguments: &[&str], code: i32, names: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    for name in names {
        assert!(
            error.contains(name),
            "{arguments:?} does not name {name:?}: {error}"
        );
    }
    assert!(!error.contains("panicked"), "{error}");
}

pub fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// The bytes of a file.
pub fn bytes_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}
