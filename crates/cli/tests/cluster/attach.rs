//! A volume with copies on several nodes, attached: what becomes of the attachment when they change.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use rustix::process::Signal;

use crate::common::{
    TEST_TIMEOUT, can_attach, ended, eventually, eventually_within, is_there, ok, refuses, send,
};
use crate::rig::Cluster;

fn can_run() -> bool {
    let etcd = std::path::Path::new("/usr/bin/etcd");
    can_attach() && is_there("/usr/bin/etcd", etcd.exists())
}

/// A machine that attaches `tank/db`, as far as that can be one of several on this one.
struct Machine<'a> {
    cluster: &'a Cluster,
    /// The node whose daemon it asks.
    node: &'a str,
    host: String,
    room: tempfile::TempDir,
}

impl<'a> Machine<'a> {
    fn new(cluster: &'a Cluster, node: &'a str) -> Self {
        let room = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(room.path().join("mnt")).expect("a folder");
        Self {
            cluster,
            node,
            host: format!("nqn.2024-01.com.example:{node}"),
            room,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.cluster.to(self.node, words);
        command.env("ASHLAR_ATTACH_STATE", self.path("state"));
        command
    }

    /// The command that attaches it as a host of its own.
    fn attach(&self, more: &[&str]) -> Command {
        let mount = self.path("mnt");
        let mut command = self.command(&["attach", "tank/db", "--via", "initiator"]);
        command.arg("--mount").arg(mount);
        command.args(["--hostnqn", &self.host]).args(more);
        command
    }

    fn detach(&self) -> Command {
        let mut command = self.command(&["detach"]);
        command.arg(self.path("mnt"));
        command
    }

    /// Another test's namespace may hold the mount for a moment.
    fn is_detached(&self) {
        let begun = Instant::now();
        loop {
            let mut detach = self.detach();
            if begun.elapsed() > TEST_TIMEOUT / 4 {
                detach.arg("--force");
            }
            let said = ended(&mut detach);
            if said.code == 0 {
                return;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "still: {}", said.error);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn listed(&self) -> Value {
        let text = ok(&mut self.command(&["attach", "--list", "--json"]));
        let mut all: Value = serde_json::from_str(&text).expect("JSON");
        all[0].take()
    }

    fn paths(&self) -> BTreeSet<SocketAddr> {
        let listed = self.listed();
        let paths = listed["paths"].as_array().expect("paths").iter();
        paths
            .map(|path| path["address"].as_str().expect("text"))
            .map(|address| address.parse().expect("an address"))
            .collect()
    }

    /// The portal by which its requests go.
    fn used(&self) -> Option<SocketAddr> {
        let listed = self.listed();
        let mut paths = listed["paths"].as_array().expect("paths").iter();
        let used = paths.find(|path| path["in_use"] == true)?;
        used["address"].as_str().expect("text").parse().ok()
    }

    /// kill -9 of one of its processes.
    fn kill(&self, process: &str) {
        let pid = self.listed()["processes"][process]["pid"].as_i64();
        let pid = i32::try_from(pid.expect("a process")).expect("a number");
        send(pid, Signal::KILL);
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("mnt").join(name)).expect("it is there")
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        let mut file = File::create(self.path("mnt").join(name))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = std::fs::read_dir(self.path("state")).into_iter().flatten();
            for log in logs.flatten() {
                let said = std::fs::read_to_string(log.path().join("log"));
                println!("{}", said.unwrap_or_default());
            }
        }
        // What a failed test has left.
        ended(self.detach().arg("--force"));
    }
}

#[test]
fn an_attachment_learns_where_its_copies_are_now() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::on_loopback_of("3");
    cluster.make_volume();
    cluster.serve_from("a");
    let at = |names: [&str; 2]| -> BTreeSet<SocketAddr> {
        names.iter().map(|name| cluster.portal(name)).collect()
    };
    let machine = Machine::new(&cluster, "a");
    ok(&mut machine.attach(&["--fs", "ext4"]));
    eventually("it is reached by both nodes", || {
        machine.paths() == at(["a", "b"])
    });
    machine.write("first", "one").expect("written");
    ok(&mut cluster.to("a", &["node", "replace", "b", "--with", "c"]));
    eventually("it knows the new node, and the old one no more", || {
        machine.paths() == at(["a", "c"])
    });
    // What serves it now was not named when it was attached.
    cluster.kill("a");
    machine.write("second", "two").expect("written");
    // A server that takes over knows it, too.
    machine.kill("server");
    machine.write("third", "three").expect("written");
    for (name, text) in [("first", "one"), ("second", "two"), ("third", "three")] {
        assert_eq!(machine.read(name), text);
    }
    // A node that another test has started meanwhile may hold the mount in its namespace for as long as it runs.
    ok(machine.detach().arg("--force"));
}

#[test]
fn a_volume_that_is_attached_is_reserved_and_a_preempted_host_is_fenced() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_volume();
    cluster.serve_from("a");
    let (one, two) = (Machine::new(&cluster, "a"), Machine::new(&cluster, "b"));
    let said = ok(&mut one.attach(&["--fs", "ext4"]));
    assert!(said.contains("reserved for this host"), "{said}");
    one.write("first", "one").expect("written");
    let named = [&one.host[..], "--preempt", "--shared"];
    refuses(&mut two.attach(&[]), 3, &named);
    // It is the host's, whatever becomes of owner and server.
    cluster.serve_from("b");
    one.kill("server");
    one.write("second", "one").expect("written");
    ok(&mut two.attach(&["--preempt"]));
    two.write("third", "two").expect("written");
    let begun = Instant::now();
    one.write("fourth", "one").expect_err("it is fenced");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    eventually("it says so", || one.listed()["condition"] == "fenced");
    let shown = ok(&mut one.command(&["attach", "--list"]));
    assert!(shown.contains("taken the volume over"), "{shown}");
    // Who is fenced takes nothing along when it goes.
    ok(one.detach().arg("--force"));
    two.write("fifth", "two").expect("written");
    refuses(&mut one.attach(&[]), 3, &[&two.host]);
    assert_eq!(
        (two.read("second"), two.read("third")),
        ("one".into(), "two".into())
    );
    two.is_detached();
    ok(&mut one.attach(&[]));
    assert_eq!(one.read("fifth"), "two");
    // The machine dies: what it has reserved stays, and is its own when it is back.
    one.kill("guardian");
    one.kill("server");
    eventually("it is reserved, and not in use", || {
        let refused = ended(&mut two.attach(&[]));
        assert_eq!(refused.code, 3, "{}", refused.error);
        let named = format!("reserved by host {}", one.host);
        refused.error.contains(&named) && refused.error.contains("--preempt")
    });
    let again = Machine::new(&cluster, "a");
    ok(&mut again.attach(&[]));
    again.write("sixth", "one").expect("written");
    refuses(&mut two.attach(&[]), 3, &[&one.host]);
    again.is_detached();
    ok(one.detach().arg("--force"));
    ok(&mut two.attach(&[]));
    assert_eq!(two.read("sixth"), "one");
    two.is_detached();
}

/// Commands for so long.
fn load(machine: &Machine<'_>, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        machine.write("load", "some").expect("written");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn ownership_comes_to_the_node_where_a_volume_is_attached_unless_it_is_to_stay() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_volume();
    cluster.serve_from("a");
    let machine = Machine::new(&cluster, "b");
    let follow = |how: &str| {
        ok(&mut cluster.to("a", &["volume", "set", "tank/db", "--follow", how]));
    };
    ok(&mut machine.attach(&["--fs", "ext4"]));
    follow("off");
    load(&machine, Duration::from_secs(36));
    assert_eq!(machine.used(), Some(cluster.portal("b")), "it asks for it");
    assert_eq!(cluster.volume("a")["owner"], "a", "it is to stay");
    machine.is_detached();
    // One that begins now does not ask.
    ok(&mut machine.attach(&[]));
    load(&machine, Duration::from_secs(1));
    assert_eq!(machine.used(), Some(cluster.portal("a")));
    machine.is_detached();
    follow("on");
    ok(&mut machine.attach(&[]));
    let patience = Duration::from_secs(120);
    eventually_within(patience, "ownership comes", || {
        load(&machine, Duration::from_secs(1));
        cluster.volume("b")["owner"] == "b"
    });
    load(&machine, Duration::from_secs(1));
    assert_eq!(machine.used(), Some(cluster.portal("b")));
    machine.is_detached();
}
