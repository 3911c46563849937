//! A cluster of `ashlar lab cluster up`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Ended, ashlar, ended, is_there, ok};

/// Whether there is all that a cluster in namespaces needs.
pub fn has_cluster() -> bool {
    let root = rustix::process::geteuid().is_root();
    let programs = ["/usr/bin/etcd", "/usr/sbin/ip", "/usr/sbin/tc"];
    is_there("root, which network namespaces need", root)
        && programs
            .iter()
            .all(|path| is_there(path, Path::new(path).exists()))
}

/// Whether there is what a cluster on ports of this machine needs.
pub fn has_etcd() -> bool {
    let etcd = Path::new("/usr/bin/etcd");
    is_there("/usr/bin/etcd", etcd.exists())
}

/// It ends when this is let go.
pub struct Cluster {
    room: tempfile::TempDir,
    pub status: Value,
}

impl Cluster {
    /// Two nodes, each with a pool.
    pub fn up() -> Self {
        Self::of("2")
    }

    /// So many.
    pub fn of(nodes: &str) -> Self {
        Self::with(&["--nodes", nodes])
    }

    /// Two nodes on ports that this process reaches, too.
    pub fn on_loopback() -> Self {
        Self::on_loopback_of("2")
    }

    /// So many.
    pub fn on_loopback_of(nodes: &str) -> Self {
        Self::with(&["--nodes", nodes, "--loopback"])
    }

    fn with(more: &[&str]) -> Self {
        let room = tempfile::tempdir().expect("a folder");
        let dir = room.path().join("c").display().to_string();
        let own = ["lab", "cluster", "up", "--dir", &dir, "--json"];
        let size = ["--drive-size", "256MiB"];
        let text = ok(&mut ashlar([&own[..], &size, more].concat()));
        let status = serde_json::from_str(&text).expect("JSON");
        Self { room, status }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.room.path().join("c").join(name)
    }

    fn node(&self, name: &str) -> &Value {
        let nodes = self.status["nodes"].as_array().expect("nodes");
        let found = nodes.iter().find(|node| node["name"] == name);
        found.expect("a node")
    }

    /// Where a node serves hosts.
    pub fn portal(&self, name: &str) -> SocketAddr {
        let portal = self.node(name)["portal"].as_str().expect("an address");
        portal.parse().expect("an address")
    }

    /// A command to a node's daemon.
    pub fn to(&self, node: &str, words: &[&str]) -> Command {
        let api = self.node(node)["api"].as_str().expect("a socket");
        let mut command = ashlar(words);
        command.env("ASHLAR_API", api);
        command
    }

    /// What a daemon's metrics say, by series.
    pub fn metrics(&self, node: &str) -> BTreeMap<String, f64> {
        let api = self.node(node)["api"].as_str().expect("a socket");
        let mut stream = UnixStream::connect(api).expect("the API");
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let series = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        series.collect()
    }

    /// What a daemon says of `tank/db`.
    pub fn volume(&self, node: &str) -> Value {
        let text = ok(&mut self.to(node, &["volume", "show", "tank/db", "--json"]));
        serde_json::from_str(&text).expect("JSON")
    }

    pub fn make_volume(&self) {
        self.make(&[]);
    }

    /// One that lets every host in.
    pub fn make_open_volume(&self) {
        self.make(&["--allow-any-host"]);
    }

    fn make(&self, more: &[&str]) {
        let what = ["volume", "create", "tank/db", "--size", "16MiB"];
        let how = ["--layout", "mirror:2", "--replicas", "2"];
        ok(&mut self.to("a", &[&what[..], &how, more].concat()));
    }

    /// Has `tank/db` served by this node: any with a copy may be the first that does.
    pub fn serve_from(&self, node: &str) {
        crate::common::eventually("this node serves it", || {
            if self.volume(node)["owner"] == node {
                return true;
            }
            // Refused while the copies begin: it is tried again.
            ended(&mut self.to(node, &["volume", "move", "tank/db", "--to", node]));
            false
        });
    }

    /// Kills all processes of a node, or of etcd.
    pub fn kill(&self, seat: &str) {
        let folder = self.path(seat);
        crate::common::eventually("its processes are gone", || {
            let pids = working_in(&folder);
            for pid in &pids {
                let pid = rustix::process::Pid::from_raw(*pid).expect("a process");
                // One that has ended is as good.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            pids.is_empty()
        });
    }

    /// A daemon of node `name` as its operator starts it, with this file, which may be another than the cluster's.
    pub fn daemon(&self, name: &str, file: &Path) -> Command {
        self.daemon_in(&self.path(name).join("state"), name, file)
    }

    pub fn daemon_in(&self, dir: &Path, name: &str, file: &Path) -> Command {
        let node = self.node(name);
        let portal = node["portal"].as_str().expect("an address");
        let mut command = self.within(name, env!("CARGO_BIN_EXE_ashlar"));
        command.args(["node", "--name", name, "--listen", portal, "--dir"]);
        command.arg(dir).arg("--cluster").arg(file);
        command
    }

    /// A program in a node's namespace, if it has one, which works in its folder, so that `down` ends it.
    pub fn within(&self, seat: &str, program: &str) -> Command {
        let namespaces = self.status["namespaces"].as_array().expect("namespaces");
        let names = namespaces.iter().filter_map(Value::as_str);
        let found = names
            .into_iter()
            .find(|name| name.ends_with(&format!("-{seat}")));
        let mut command = match (found, namespaces.is_empty()) {
            (Some(name), _) => {
                let mut command = Command::new("nsenter");
                command.args([&format!("--net=/run/netns/{name}"), "--", program]);
                command
            }
            // On ports of this machine.
            (None, true) => Command::new(program),
            (None, false) => panic!("no namespace of {seat}"),
        };
        command
            .current_dir(self.path(seat))
            .stdin(std::process::Stdio::null());
        let log = File::options()
            .append(true)
            .open(self.path(seat).join("log"));
        command.stderr(log.expect("a log"));
        command
    }

    /// Another file than the cluster's, beside it.
    pub fn file(&self, name: &str, change: impl FnOnce(String) -> String) -> PathBuf {
        let text = std::fs::read_to_string(self.path("cluster.toml")).expect("a file");
        let path = self.path(name);
        std::fs::write(&path, change(text)).expect("written");
        path
    }

    pub fn log(&self, seat: &str) -> String {
        std::fs::read_to_string(self.path(seat).join("log")).expect("a log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let dir = self.path("").display().to_string();
        let Ended { code, error, .. } =
            ended(&mut ashlar(["lab", "cluster", "down", "--dir", &dir]));
        if code != 0 && !std::thread::panicking() {
            panic!("down: {error}");
        }
    }
}

/// Starts what is to go on, and is ended with the cluster.
pub fn begin(command: &mut Command) {
    let mut child = command
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    std::thread::spawn(move || child.wait());
}

/// Processes that work in a folder or below.
pub fn working_in(folder: &Path) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let is_in = |pid: &i32| {
        let place = std::fs::read_link(format!("/proc/{pid}/cwd"));
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        place.is_ok_and(|place| place.starts_with(folder)) && !stat.contains(") Z ")
    };
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_in).collect()
}
