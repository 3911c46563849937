//! A cluster over an etcd that was there before it, and the last resort: an old copy that runs alone.

use std::net::SocketAddr;
use std::process::Command;

use ashlar_nvme::Status;
use rustix::process::Signal;

use crate::common::{Running, eventually, ok, refuses, send};
use crate::host::{Client, Who};
use crate::machines::{Machines, can_join};
use crate::rig::working_in;

const BLOCK: usize = 4096;
const LOST: u64 = 1;
const KEPT: u64 = 2;

/// One member, as an operator who has an etcd runs it.
fn etcd(machines: &Machines) -> Running {
    let address = machines.address("q");
    let (clients, peers) = (
        format!("http://{address}:2379"),
        format!("http://{address}:2380"),
    );
    let mut command = Command::new("/usr/bin/etcd");
    command.args(["--data-dir", "data", "--name", "q"]);
    for option in ["--listen-client-urls", "--advertise-client-urls"] {
        command.args([option, &clients]);
    }
    for option in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
        command.args([option, &peers]);
    }
    command.args(["--initial-cluster", &format!("q={peers}")]);
    machines.run("q", &mut command)
}

fn state_of(machines: &Machines, asked: &str, node: &str) -> String {
    let shown = machines.json(asked, &["volume", "show", "tank/db"]);
    let copies = shown["replicas"].as_array().into_iter().flatten();
    let mut copies = copies.filter(|copy| copy["node"] == node);
    let copy = copies.next().map(|copy| copy["state"].to_string());
    copy.unwrap_or_default().replace('"', "")
}

fn is_owner(machines: &Machines, node: &str) -> bool {
    machines.json(node, &["volume", "show", "tank/db"])["owner"] == node
}

/// A host of the volume, connected to one node.
struct Host {
    _admin: Client,
    io: Client,
}

impl Host {
    /// A node that has just taken the volume over may refuse the path for a moment.
    fn settled<T>(&mut self, mut command: impl FnMut(&mut Client) -> (Status, T)) -> T {
        let mut told = None;
        eventually("the path is there", || {
            let (status, answer) = command(&mut self.io);
            assert!(
                status.is_success() || status.is_path_related(),
                "{status:?}"
            );
            told = status.is_success().then_some(answer);
            told.is_some()
        });
        told.expect("an answer")
    }

    fn write(&mut self, block: u64, byte: u8) {
        self.settled(|io| (io.write(block, &[byte; BLOCK]), ()));
    }

    fn read(&mut self, block: u64) -> Vec<u8> {
        self.settled(|io| io.try_read(block, BLOCK as u32))
    }
}

fn host_at(machines: &Machines, node: &str) -> Host {
    let shown = machines.json(node, &["volume", "show", "tank/db"]);
    let who = Who {
        subsystem: shown["nqn"].as_str().expect("an NQN").into(),
        nqn: "nqn.2024-01.com.example:host".into(),
        id: [7; 16],
    };
    let portal: SocketAddr = format!("{}:4420", machines.address(node))
        .parse()
        .expect("an address");
    let (admin, cntlid) = Client::admin_as(&who, portal);
    Host {
        io: Client::io_as(&who, portal, cntlid, 1),
        _admin: admin,
    }
}

fn lose_power(machines: &Machines, node: &str, running: Running) {
    for pid in working_in(&machines.dir(node)) {
        send(pid, Signal::KILL);
    }
    drop(running);
}

#[test]
fn an_old_copy_runs_alone_when_it_is_told_to_and_what_comes_back_is_made_equal_to_it() {
    if !can_join() {
        return;
    }
    let machines = Machines::new(25);
    let _etcd = etcd(&machines);
    let quorum = format!("etcd://{}:2379", machines.address("q"));
    ok(&mut machines.place(&["cluster", "init", "prod", "--quorum", &quorum], "a"));
    let a = machines.node("a");
    ok(&mut machines.place(&["cluster", "join", &machines.token()], "b"));
    let b = machines.node("b");
    machines.volume();
    let host = "nqn.2024-01.com.example:host";
    ok(&mut machines.to("a", &["volume", "allow", "tank/db", "--host", host]));
    eventually("all copies are in sync", || machines.owner("a").is_some());
    if !is_owner(&machines, "a") {
        ok(&mut machines.to("a", &["volume", "move", "tank/db", "--to", "a"]));
    }
    // What is written while b is away is on a alone, and then a is lost.
    lose_power(&machines, "b", b);
    eventually("b is left out", || {
        state_of(&machines, "a", "b") == "absent"
    });
    host_at(&machines, "a").write(LOST, 0xA1);
    lose_power(&machines, "a", a);
    let _b = machines.node("b");
    let alone = ["volume", "run-alone", "tank/db"];
    refuses(&mut machines.to("b", &alone), 2, &["--accept-data-loss"]);
    assert!(!is_owner(&machines, "b"), "it serves unasked");
    ok(&mut machines.to("b", &[&alone[..], &["--accept-data-loss"]].concat()));
    eventually("b serves", || is_owner(&machines, "b"));
    let mut host = host_at(&machines, "b");
    assert_eq!(host.read(LOST), [0; BLOCK], "what the operator accepted");
    host.write(KEPT, 0xB2);
    // The former owner comes back: it takes nothing back, and is made equal.
    let _a = machines.node("a");
    eventually("all copies are in sync", || machines.owner("a").is_some());
    ok(&mut machines.to("a", &["volume", "verify", "tank/db"]));
    ok(&mut machines.to("a", &["volume", "move", "tank/db", "--to", "a"]));
    eventually("a serves", || is_owner(&machines, "a"));
    let mut host = host_at(&machines, "a");
    assert_eq!(host.read(LOST), [0; BLOCK]);
    assert_eq!(host.read(KEPT), [0xB2; BLOCK]);
}
