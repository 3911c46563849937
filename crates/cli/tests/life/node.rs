//! A running `ashlar node`, and its commands.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{self, Running, TEST_TIMEOUT, ashlar};
use crate::load::Place;

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

    /// What the daemon's operator has set.
    pub fn set(&self, settings: &str) {
        std::fs::write(self.path("ashlar.toml"), settings).expect("a file");
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
    process: Running,
    pub address: SocketAddr,
    socket: String,
    errors: PathBuf,
}

impl Node {
    /// Starts a daemon that must come up.
    pub fn start(room: &Room) -> Self {
        let command = Self::command(room, "node");
        Self::spawned(room, command).expect("the daemon is ready")
    }

    /// A daemon in the place of one that has ended: hosts find it at the same address.
    pub fn start_at(room: &Room, address: SocketAddr) -> Self {
        let command = Self::command_at(room, "node", &address.to_string());
        Self::spawned(room, command).expect("the daemon is ready")
    }

    /// The same, and what it says goes into this file.
    pub fn telling(room: &Room, file: &Path) -> Self {
        let file = OpenOptions::new().append(true).open(file);
        let mut command = Self::command(room, "node");
        command.stderr(file.expect("a file"));
        Self::spawned(room, command).expect("the daemon is ready")
    }

    /// Starts a daemon that logs as these options say.
    pub fn logging(room: &Room, options: &[&str]) -> Self {
        let mut command = Self::command(room, "node");
        command.args(options);
        Self::spawned(room, command).expect("the daemon is ready")
    }

    /// Starts a daemon, and kills it after a while, ready or not.
    pub fn stillborn(room: &Room, after: Duration) {
        let _process = Running::start(&mut Self::command(room, "node"));
        std::thread::sleep(after);
    }

    fn command(room: &Room, state: &str) -> Command {
        Self::command_at(room, state, "127.0.0.1:0")
    }

    fn command_at(room: &Room, state: &str, listen: &str) -> Command {
        let dir = room.path(state).display().to_string();
        let errors = room.path("stderr");
        let errors = OpenOptions::new().create(true).append(true).open(errors);
        let settings = room.path("ashlar.toml");
        if !settings.exists() {
            room.set("repair_after_seconds = 1\ndrive_wait_seconds = 0\n");
        }
        let settings = settings.display().to_string();
        let listen = ["--listen", listen, "--config", &settings];
        let mut command = ashlar([&["node", "--dir", &dir], &listen[..]].concat());
        command.stderr(errors.expect("a file"));
        command
    }

    /// The daemon once it is ready, or the code that it ended with.
    fn spawned(room: &Room, mut command: Command) -> Result<Self, Option<i32>> {
        let mut process = Running::start(&mut command);
        let words = process.first_words();
        let [ready, address, socket] = &words[..] else {
            return Err(process.wait().code());
        };
        assert_eq!(ready, "ready");
        Ok(Self {
            process,
            address: address.parse().expect("an address"),
            socket: socket.clone(),
            errors: room.path("stderr"),
        })
    }

    /// kill -9, and waits for its end.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Ends it in order.
    pub fn end(mut self) {
        let status = self.process.end(Signal::TERM);
        assert_eq!(status.code(), Some(0));
    }

    /// A command to it.
    pub fn command_to(&self, arguments: &[&str]) -> Command {
        let mut command = ashlar(arguments);
        command.env("ASHLAR_API", &self.socket);
        command
    }

    /// A command that must succeed; its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        common::ok(&mut self.command_to(arguments))
    }

    /// A command that must fail with this code, saying all of `names`.
    pub fn refuses(&self, arguments: &[&str], code: i32, names: &[&str]) {
        common::refuses(&mut self.command_to(arguments), code, names);
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
            assert!(start.elapsed() < TEST_TIMEOUT, "not healthy: {status:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.said());
        }
    }
}

/// A second daemon must not come up; it ends with this code.
pub fn does_not_start(room: &Room, state: &str, code: i32, names: &[&str]) {
    let ended = Node::spawned(room, Node::command(room, state));
    assert_eq!(ended.err().expect("it came up"), Some(code));
    let said = std::fs::read_to_string(room.path("stderr")).expect("text");
    for name in names {
        assert!(said.contains(name), "it does not name {name:?}: {said}");
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// The bytes of a file.
pub fn bytes_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}
