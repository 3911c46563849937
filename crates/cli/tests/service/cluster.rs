//! Two nodes of a cluster on this machine, each with mounts of its own, and a service on a replicated volume.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ashlar_oltp::namespaces::{Namespaces, Place};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    self, Running, ashlar, can_attach, eventually, is_there, ok, own_mounts, refuses, send,
};

/// A node: its daemon, and the process whose mounts are its.
pub(super) struct Node {
    name: &'static str,
    portal: u16,
    pub(super) mounts: Running,
    daemon: Option<Running>,
}

/// A cluster of two, pool tank on each.
pub(super) struct Rig {
    dir: tempfile::TempDir,
    pub(super) nodes: [Node; 2],
    _etcd: Running,
    network: Network,
}

/// Where the nodes and their etcd are.
enum Network {
    Loopback,
    /// Each in a namespace of its own, on a bridge.
    Bridge(Namespaces),
}

/// On the bridge: etcd's, then the nodes', then a client's.
pub(super) const HOSTS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(10, 77, 0, 254),
    Ipv4Addr::new(10, 77, 0, 1),
    Ipv4Addr::new(10, 77, 0, 2),
    Ipv4Addr::new(10, 77, 0, 3),
];

impl Network {
    fn bridge(dir: &Path) -> Self {
        let [hub, a, b, client] = HOSTS;
        let places = [("a", a), ("b", b), ("client", client)];
        let places = places.map(|(name, address)| Place { name, address });
        let made = Namespaces::make(Namespaces::prefix_of(dir), &[hub], &places);
        Self::Bridge(made.expect("namespaces"))
    }

    /// The host of this number.
    fn host(&self, number: usize) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Bridge(_) => HOSTS[number],
        }
    }

    /// A command in a namespace; without a name in that of etcd.
    fn command(&self, name: Option<&str>, program: &str) -> Command {
        let Self::Bridge(namespaces) = self else {
            return Command::new(program);
        };
        let path = name.map_or_else(|| namespaces.hub(), |name| namespaces.path(name));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", path.display())).arg("--");
        command.arg(program);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Self::Bridge(namespaces) = self {
            // One that is not removed is of no harm to the next, which has another name.
            let _ = namespaces.remove();
        }
    }
}

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

/// Ports that were free a moment ago, and that no connection gets meanwhile.
fn free_ports<const N: usize>() -> [u16; N] {
    let mut ports = ashlar_oltp::Ports::default();
    [(); N].map(|()| {
        ports
            .draw(Ipv4Addr::LOCALHOST.into())
            .expect("a port")
            .port()
    })
}

fn etcd(dir: &Path, network: &Network, client: u16, peer: u16) -> Running {
    let host = network.host(0);
    let (client, peer) = (
        format!("http://{host}:{client}"),
        format!("http://{host}:{peer}"),
    );
    let mut command = network.command(None, "/usr/bin/etcd");
    command.arg("--data-dir").arg(dir.join("etcd"));
    command.args([
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
    ]);
    command.args([
        "--listen-peer-urls",
        &peer,
        "--initial-advertise-peer-urls",
        &peer,
    ]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    let log = std::fs::File::create(dir.join("etcd.log")).expect("a file");
    Running::start(command.stderr(log))
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::make(common::open_folder(), Network::Loopback)
    }

    /// Its nodes, and a client, are in network namespaces.
    pub(super) fn on_a_bridge() -> Self {
        let dir = common::open_folder();
        let network = Network::bridge(dir.path());
        Self::make(dir, network)
    }

    fn make(dir: tempfile::TempDir, network: Network) -> Self {
        let [client, peer, ra, pa, rb, pb] = free_ports();
        let etcd = etcd(dir.path(), &network, client, peer);
        let [quorum, a, b] = [0, 1, 2].map(|number| network.host(number));
        std::fs::write(dir.path().join("key"), "0123456789abcdef0123456789abcdef\n").expect("key");
        let only_ours = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(dir.path().join("key"), only_ours).expect("mode");
        let text = format!(
            "name = 'test'\nkey_file = 'key'\nquorum = ['{quorum}:{client}']\n\
             [[node]]\nname = 'a'\nreplication = '{a}:{ra}'\nportal = '{a}:{pa}'\n\
             [[node]]\nname = 'b'\nreplication = '{b}:{rb}'\nportal = '{b}:{pb}'\n"
        );
        std::fs::write(dir.path().join("cluster.toml"), text).expect("written");
        let node = |name, portal| {
            // As on two machines: each is a host of its own.
            let machine = dir.path().join(format!("machine-{name}"));
            std::fs::write(&machine, format!("{name:0>32}\n")).expect("written");
            Node {
                name,
                portal,
                mounts: own_mounts(&format!(
                    "mount --bind {} /etc/machine-id",
                    machine.display()
                )),
                daemon: None,
            }
        };
        let nodes = [node("a", pa), node("b", pb)];
        let mut rig = Self {
            dir,
            nodes,
            _etcd: etcd,
            network,
        };
        for node in [A, B] {
            rig.start(node);
            let drive = |number| {
                let file = rig.path(&format!("{}.d{number}", rig.nodes[node].name));
                format!("file:{}?size=1GiB", file.display())
            };
            let (d0, d1) = (drive(0), drive(1));
            rig.ok(
                node,
                &["pool", "create", "tank", "--drive", &d0, "--drive", &d1],
            );
        }
        rig
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn start(&mut self, node: usize) {
        let Node {
            name,
            portal,
            mounts,
            ..
        } = &self.nodes[node];
        let errors = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(&format!("{name}.log")));
        let host = self.network.host(node + 1);
        let mut command = self.network.command(Some(name), "nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", mounts.id()));
        command.arg(env!("CARGO_BIN_EXE_ashlar"));
        command.arg("node").arg("--dir").arg(self.path(name));
        command.args([
            "--name",
            name,
            "--listen",
            &format!("{host}:{portal}"),
            "--api",
            &format!("{host}:0"),
        ]);
        command.arg("--cluster").arg(self.path("cluster.toml"));
        command.env(
            "ASHLAR_ATTACH_STATE",
            self.path(&format!("attached-{name}")),
        );
        let mut daemon = Running::start(command.stderr(errors.expect("a file")));
        daemon.ready();
        self.nodes[node].daemon = Some(daemon);
    }

    pub(super) fn daemon(&mut self, node: usize) -> &mut Running {
        self.nodes[node].daemon.as_mut().expect("it runs")
    }

    /// The daemon has a parent, which stays when it stands still.
    pub(super) fn daemon_itself(&mut self, node: usize) -> i32 {
        let parent = self.daemon(node).id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(children).expect("it is there");
        let first = children.split_whitespace().next();
        first.and_then(|pid| pid.parse().ok()).expect("a child")
    }

    pub(super) fn command(&self, node: usize, words: &[&str]) -> Command {
        let mut command = ashlar(words);
        command.env(
            "ASHLAR_API",
            self.path(self.nodes[node].name).join("api.sock"),
        );
        command
    }

    /// A command where a node is, or the client; only on a bridge they are apart.
    pub(super) fn inside(&self, name: &str, program: &str) -> Command {
        self.network.command(Some(name), program)
    }

    /// The client's namespace.
    pub(super) fn client(&self) -> PathBuf {
        match &self.network {
            Network::Loopback => "/proc/self/ns/net".into(),
            Network::Bridge(namespaces) => namespaces.path("client"),
        }
    }

    pub(super) fn ok(&self, node: usize, words: &[&str]) -> String {
        ok(&mut self.command(node, words))
    }

    pub(super) fn show(&self, node: usize, service: &str) -> Value {
        let text = self.ok(node, &["service", "show", service, "--json"]);
        serde_json::from_str(&text).expect("JSON")
    }

    /// What a node has seen last of a service.
    fn last_event(&self, node: usize, service: &str) -> Value {
        let told = self.ok(node, &["events", "--json"]);
        let last = crate::events_of(service, &told).pop();
        last.expect("an event")
    }

    pub(super) fn becomes(&self, node: usize, service: &str, state: &str) -> Value {
        let mut last = Value::Null;
        let what = format!("{service} is {state} on {}", self.nodes[node].name);
        eventually(&what, || {
            last = self.show(node, service);
            last["state"] == state
        });
        last
    }

    /// What a load balancer is told.
    fn health(&self, node: usize, service: &str) -> u16 {
        self.get(node, &format!("/v1/services/{service}")).0
    }

    /// What a node's API answers: its status, and all of it.
    fn get(&self, node: usize, path: &str) -> (u16, String) {
        let socket = self.path(self.nodes[node].name).join("api.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("the API");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let number = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        (number.expect("a status"), answer)
    }

    pub(super) fn await_in_sync(&self, node: usize, volume: &str) {
        eventually("both copies are in sync", || {
            let text = self.ok(node, &["volume", "show", volume, "--json"]);
            let volume: Value = serde_json::from_str(&text).expect("JSON");
            let replicas = volume["replicas"].as_array();
            replicas.is_some_and(|all| all.iter().all(|one| one["state"] == "in_sync"))
        });
    }

    /// A node has so often changed the owner of the service's volumes, each time of both in one step.
    fn took_both(&self, node: usize, times: usize) {
        let log = self.path(["a.log", "b.log"][node]);
        let text = std::fs::read_to_string(log).expect("a log");
        let both = text.matches("in one transaction: Made").count();
        assert_eq!(both, times, "{text}");
    }

    /// A node with a stale copy of one volume of a service cannot have the service.
    fn await_all_in_sync(&self, node: usize) {
        for volume in ["tank/s", "tank/w"] {
            self.await_in_sync(node, volume);
        }
    }

    /// Waits until the service has acknowledged something anew.
    pub(super) fn await_progress(&self) {
        let acknowledged = || lines(&self.path("acknowledged")).len();
        let before = acknowledged();
        eventually("it works", || acknowledged() > before + 2);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for file in [
            "a.log",
            "b.log",
            "a/service-s.log",
            "b/service-s.log",
            "a/service-pg.log",
            "b/service-pg.log",
        ] {
            let text = std::fs::read_to_string(self.path(file)).unwrap_or_default();
            eprintln!("{file}:\n{text}");
        }
        // The guards take down what the daemons leave.
        for node in &mut self.nodes {
            node.daemon = None;
        }
        std::thread::sleep(std::time::Duration::from_secs(5));
    }
}

pub(super) fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Each writer has a number of its own. What it has written is followed by nothing of one before it, and all that it
/// has acknowledged is there. Who has written, in order.
pub(super) fn check_order<'a>(written: &'a [String], acknowledged: &[String]) -> Vec<&'a str> {
    let mut writers: Vec<&str> = Vec::new();
    for line in written {
        let writer = line.split(' ').next().expect("a number");
        if writers.last() != Some(&writer) {
            assert!(
                !writers.contains(&writer),
                "{writer} has written after another had begun"
            );
            writers.push(writer);
        }
    }
    let there: std::collections::BTreeSet<&String> = written.iter().collect();
    for line in acknowledged {
        assert!(
            there.contains(line),
            "{line:?} was acknowledged and is not there"
        );
    }
    writers
}

#[test]
fn a_service_on_a_replicated_volume_follows_its_owner_and_never_runs_twice() {
    let has_etcd = is_there("etcd", Path::new("/usr/bin/etcd").exists());
    if !has_etcd || !can_attach() {
        return;
    }
    let mut rig = Rig::new();
    let replicated = "volume create tank/s --size 400MiB --layout mirror:2 --replicas 2";
    rig.ok(A, &replicated.split(' ').collect::<Vec<_>>());
    rig.await_in_sync(A, "tank/s");
    // Either may have been the first.
    rig.ok(A, &["volume", "move", "tank/s", "--to", "a"]);
    let alone = "volume create tank/alone --size 100MiB --layout mirror:2 --allow-any-host";
    rig.ok(A, &alone.split(' ').collect::<Vec<_>>());
    let mount = rig.path("mnt");
    let (mount, acknowledged) = (
        mount.display().to_string(),
        rig.path("acknowledged").display().to_string(),
    );
    let create = |start: &str, more: &[&str]| -> Vec<String> {
        let words = [
            "service", "create", "s", "--volume", "tank/s", "--mount", &mount, "--start", start,
        ];
        let all = words.iter().chain(more);
        all.map(|&word| word.to_owned()).collect()
    };
    let words = |all: &[String]| -> Vec<&'static str> {
        // A test's words may live as long as it does.
        all.iter()
            .map(|word| &*Box::leak(word.clone().into_boxed_str()))
            .collect()
    };
    let other = rig.path("other").display().to_string();
    let mixed = create("x", &["--volume", "tank/alone", "--mount", &other]);
    let why = [
        "tank/alone has one copy",
        "tank/s is replicated",
        "--replicas 2",
    ];
    refuses(&mut rig.command(A, &words(&mixed)), 3, &why);
    let second = replicated.replace("tank/s", "tank/w");
    rig.ok(A, &second.split(' ').collect::<Vec<_>>());
    rig.await_in_sync(A, "tank/w");
    rig.ok(A, &["volume", "move", "tank/w", "--to", "b"]);
    let both = ["--volume", "tank/w", "--mount", &other];
    let why = [
        "tank/s is served by node a",
        "tank/w by node b",
        "ashlar volume move tank/w --to a",
    ];
    refuses(&mut rig.command(A, &words(&create("x", &both))), 3, &why);
    rig.ok(A, &["volume", "move", "tank/w", "--to", "a"]);

    // It is made on one node, and the other knows it, too.
    let epochs = rig.path("epochs");
    let work = format!(
        "echo $ASHLAR_EPOCH >> {}; n=0; while :; do n=$((n+1)); echo $$ $n >> {mount}/written && sync -d {mount}/written && \
         echo $$ $n > {other}/last && echo $$ $n >> {acknowledged}; sleep 0.03; done",
        epochs.display()
    );
    rig.ok(B, &words(&create(&work, &both)));
    let up = rig.becomes(A, "s", "running");
    assert_eq!(
        (&up["node"], &up["highly_available"]),
        (&"a".into(), &true.into())
    );
    rig.becomes(B, "s", "elsewhere");
    // No host of node b's is connected, and nothing is reserved.
    std::fs::create_dir(rig.path("look")).expect("a folder");
    let look = rig.path("look").display().to_string();
    refuses(
        &mut rig.command(B, &["attach", "tank/s", "--mount", &look]),
        3,
        &["tank/s is in use by service s", "service stop s"],
    );
    assert_eq!((rig.health(A, "s"), rig.health(B, "s")), (200, 503));
    refuses(
        &mut rig.command(A, &["service", "move", "s", "--to", "c"]),
        3,
        &["node c", "a, b"],
    );
    rig.await_progress();

    // By hand, ordered where it does not run.
    rig.ok(B, &["service", "move", "s"]);
    let moved = rig.becomes(B, "s", "running");
    assert!(moved["last_gap_seconds"].as_f64() > Some(0.0), "{moved}");
    rig.took_both(B, 1);
    let came = rig.last_event(B, "s");
    assert_eq!(
        (&came["kind"], &came["node"]),
        (&"service_running".into(), &"b".into())
    );
    let left = rig.becomes(A, "s", "elsewhere");
    eventually("the other knows", || rig.show(A, "s")["node"] == "b");
    assert!(left["moves"].as_u64() >= Some(1), "{left}");
    let told = rig.get(B, "/metrics").1;
    let figure = |name: &str| {
        let start = format!("ashlar_service_{name}{{service=\"s\"}} ");
        let line = told.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|value| value.parse::<f64>().ok())
    };
    assert!(figure("moves_total") >= Some(1.0), "{told}");
    assert_eq!(
        figure("last_gap_seconds"),
        moved["last_gap_seconds"].as_f64()
    );
    let went = rig.last_event(A, "s");
    assert_eq!(
        (&went["kind"], &went["node"]),
        (&"service_elsewhere".into(), &"b".into())
    );
    rig.await_progress();

    // Its daemon is killed, and then the next one stands still: another node has it, and it ends where it was.
    rig.daemon(B).kill();
    rig.becomes(A, "s", "running");
    rig.took_both(A, 1);
    rig.await_progress();
    rig.start(B);
    rig.becomes(B, "s", "elsewhere");
    rig.await_all_in_sync(A);
    let stopped = rig.daemon_itself(A);
    send(stopped, Signal::STOP);
    rig.becomes(B, "s", "running");
    rig.await_progress();
    send(stopped, Signal::CONT);
    rig.becomes(A, "s", "elsewhere");
    rig.await_all_in_sync(B);

    let haproxy = rig.ok(A, &["service", "haproxy", "s", "--port", "77"]);
    assert!(
        haproxy.contains("server node2 127.0.0.1:77 check port"),
        "{haproxy}"
    );

    // A daemon that ends gives it away in order.
    rig.daemon(B).end(Signal::TERM);
    rig.becomes(A, "s", "running");
    rig.took_both(A, 2);
    rig.await_progress();
    let inside = rig.nodes[A].mounts.id();
    let inside = PathBuf::from(format!("/proc/{inside}/root{mount}/written"));
    let before = lines(Path::new(&acknowledged));
    let written = lines(&inside);
    let writers = check_order(&written, &before);
    assert!(
        writers.len() >= 4,
        "it has run on each node twice: {writers:?}"
    );
    // Each was told its epoch, which grows.
    let told = lines(&epochs);
    let told: Vec<u64> = told
        .iter()
        .map(|one| one.parse().expect("a number"))
        .collect();
    assert!(told.is_sorted_by(|one, next| one < next), "{told:?}");
    assert_eq!(rig.show(A, "s")["epoch"].as_u64(), told.last().copied());
    rig.start(B);
    rig.await_all_in_sync(A);
    refuses(
        &mut rig.command(A, &["service", "delete", "s"]),
        3,
        &["stop it first"],
    );
    rig.ok(B, &["service", "stop", "s"]);
    rig.becomes(A, "s", "stopped");
    rig.becomes(B, "s", "stopped");
    rig.ok(A, &["service", "delete", "s"]);
    eventually("the other has forgotten it", || {
        rig.ok(B, &["service", "list", "--json"]).trim() == "[]"
    });

    // What does not start is tried on both nodes, and then given up.
    rig.ok(A, &words(&create("echo no such thing >&2; exit 7", &[])));
    let mut given_up = Value::Null;
    eventually("it was given up on both nodes", || {
        let states = [rig.show(A, "s"), rig.show(B, "s")];
        let failed = states.into_iter().find(|one| one["state"] == "failed");
        given_up = failed.unwrap_or_default();
        given_up["warnings"][0]
            .as_str()
            .is_some_and(|text| text.contains("node a, node b"))
    });
    let reason = given_up["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("exit status: 7") && reason.contains("no such thing"),
        "{reason}"
    );
    rig.ok(A, &["service", "stop", "s"]);
    eventually("it can be deleted", || {
        rig.command(A, &["service", "delete", "s"])
            .output()
            .is_ok_and(|out| out.status.success())
    });
    for node in [A, B] {
        rig.daemon(node).end(Signal::TERM);
    }
}
