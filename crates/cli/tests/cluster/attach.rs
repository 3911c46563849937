//! A volume with copies on several nodes, attached: what becomes of the attachment when they change.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::common::{can_attach, ended, eventually, is_there, ok};
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
    room: tempfile::TempDir,
}

impl<'a> Machine<'a> {
    fn new(cluster: &'a Cluster, node: &'a str) -> Self {
        let room = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(room.path().join("mnt")).expect("a folder");
        Self {
            cluster,
            node,
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
        let (mount, host) = (self.path("mnt"), self.host());
        let mut command = self.command(&["attach", "tank/db", "--via", "initiator"]);
        command.arg("--mount").arg(mount);
        command.args(["--hostnqn", &host]).args(more);
        command
    }

    fn host(&self) -> String {
        format!("nqn.2024-01.com.example:{}", self.node)
    }

    fn detach(&self) -> Command {
        let mut command = self.command(&["detach"]);
        command.arg(self.path("mnt"));
        command
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
    // Whoever serves it now was not named when it was attached.
    cluster.kill("a");
    machine.write("second", "two").expect("written");
    // A server that takes over knows it, too.
    let pid = machine.listed()["processes"]["server"]["pid"].as_i64();
    let pid = i32::try_from(pid.expect("a process")).expect("a number");
    crate::common::send(pid, rustix::process::Signal::KILL);
    machine.write("third", "three").expect("written");
    for (name, text) in [("first", "one"), ("second", "two"), ("third", "three")] {
        let found = std::fs::read_to_string(machine.path("mnt").join(name));
        assert_eq!(found.expect("it is there"), text);
    }
    ok(&mut machine.detach());
}
