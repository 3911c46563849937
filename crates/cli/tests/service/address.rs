//! The address of a service, as a client of a bridge sees it: it goes where the service goes.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::cluster::{A, B, HOSTS, Rig};
use crate::common::{Running, can_attach, eventually, is_there, ok, refuses, send};

const PORT: u16 = 7000;
/// Of a server that is not the service's.
const BESIDE: u16 = 7001;
/// It listens, on the port.
const READY: &str = "ss -Hltn sport = :7000 | grep -q 7000";
const NAMES: [&str; 2] = ["a", "b"];
/// One try of a client.
const TRY_TIMEOUT: Duration = Duration::from_millis(500);
/// So many tries a client needs at most, once the service runs.
const TRIES: usize = 3;

/// What a namespace's `ip` answers.
fn ip(rig: &Rig, name: &str, words: &[&str]) -> Value {
    let text = ok(rig.inside(name, "ip").arg("-json").args(words));
    match text.trim() {
        "" => Value::Null,
        text => serde_json::from_str(text).expect("JSON"),
    }
}

/// Changes something in a namespace.
fn set(rig: &Rig, name: &str, words: &[&str]) {
    ok(rig.inside(name, "ip").args(words));
}

/// A node's addresses, but for those that interfaces make themselves.
fn addresses(rig: &Rig, node: usize) -> Vec<String> {
    let shown = ip(rig, NAMES[node], &["address", "show"]);
    let links = shown.as_array().expect("links").iter();
    let given = links
        .filter_map(|link| link["addr_info"].as_array())
        .flatten();
    let locals = given.filter_map(|one| one["local"].as_str());
    let locals = locals.filter(|local| !local.starts_with("fe80"));
    locals.map(str::to_owned).collect()
}

/// Whether a node has an address.
fn has(rig: &Rig, node: usize, address: IpAddr) -> bool {
    addresses(rig, node).contains(&address.to_string())
}

fn mac(rig: &Rig, node: usize) -> String {
    let shown = ip(rig, NAMES[node], &["link", "show", "eth0"]);
    shown[0]["address"].as_str().expect("a MAC").to_owned()
}

/// Which MAC the client takes an address for.
fn learned(rig: &Rig, address: IpAddr) -> Option<String> {
    let words = ["neigh", "show", "to", &address.to_string(), "dev", "eth0"];
    let shown = ip(rig, "client", &words);
    shown[0]["lladdr"].as_str().map(str::to_owned)
}

/// A connection of the client's, after a few tries at most.
fn connect(rig: &Rig, address: IpAddr) -> TcpStream {
    connect_to(rig, SocketAddr::new(address, PORT))
}

fn connect_to(rig: &Rig, to: SocketAddr) -> TcpStream {
    let path = rig.client();
    let connecting = std::thread::spawn(move || {
        let namespace = std::fs::File::open(path).expect("a namespace");
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind).expect("entered");
        let tries = (0..TRIES).find_map(|_| TcpStream::connect_timeout(&to, TRY_TIMEOUT).ok());
        tries.expect("a connection within a few tries")
    });
    connecting.join().expect("connected")
}

/// A client that waits for an answer is told that there will be none.
fn is_told(mut client: TcpStream) {
    client
        .set_read_timeout(Some(Duration::from_secs(2)))
        .expect("set");
    let read = client.read(&mut [0]);
    let is_open = |error: &std::io::Error| {
        matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        )
    };
    assert!(!read.as_ref().is_err_and(is_open), "{read:?}");
}

/// The service runs on a node, and its address is there and nowhere else; the client knows without having asked.
fn is_at(rig: &Rig, node: usize, address: IpAddr) {
    let other = 1 - node;
    assert_eq!(rig.becomes(node, "s", "running")["address_here"], true);
    assert!(has(rig, node, address));
    eventually("the other has it no more", || !has(rig, other, address));
    let known = learned(rig, address);
    assert!(
        known.is_none() || known == Some(mac(rig, node)),
        "the client sends to {known:?}"
    );
}

/// Words that make a service with this address.
fn create<'a>(mount: &'a str, start: &'a str, address: &'a str) -> Vec<&'a str> {
    let words = ["service", "create", "s", "--volume", "tank/s", "--mount"];
    let more = [
        mount,
        "--start",
        start,
        "--ready",
        READY,
        "--address",
        address,
    ];
    [&words[..], &more].concat()
}

/// A program of perl that accepts, and says nothing. It listens at the address only, which must be there before.
fn accepts(at: SocketAddr) -> String {
    let (ip, port) = (at.ip(), at.port());
    format!(
        "$s = IO::Socket::IP->new(LocalHost => \"{ip}\", LocalPort => {port}, Listen => 9, ReuseAddr => 1) \
         or die $@; push @all, $s->accept while 1"
    )
}

/// The service.
fn server(address: IpAddr) -> String {
    let program = accepts(SocketAddr::new(address, PORT));
    format!("exec perl -MIO::Socket::IP -e '{program}'")
}

#[test]
fn an_address_goes_where_its_service_goes_and_clients_learn_it_at_once() {
    let has_etcd = is_there("etcd", Path::new("/usr/bin/etcd").exists());
    let has_perl = is_there("perl", Path::new("/usr/bin/perl").exists());
    if !has_etcd || !has_perl || !can_attach() {
        return;
    }
    let mut rig = Rig::on_a_bridge();
    for (name, number) in [("a", 1), ("b", 2), ("client", 3)] {
        let own = format!("fd77::{number}/64");
        set(
            &rig,
            name,
            &["address", "add", &own, "dev", "eth0", "nodad"],
        );
    }
    let replicated = "volume create tank/s --size 400MiB --layout mirror:2 --replicas 2";
    rig.ok(A, &replicated.split(' ').collect::<Vec<_>>());
    rig.await_in_sync(A, "tank/s");
    rig.ok(A, &["volume", "move", "tank/s", "--to", "a"]);
    let mount = rig.path("mnt").display().to_string();
    refused(&rig, &mount);

    let address: IpAddr = "10.77.0.50".parse().expect("an address");
    let start = server(address);
    rig.ok(A, &create(&mount, &start, "10.77.0.50/24"));
    is_at(&rig, A, address);
    assert_eq!(rig.show(B, "s")["address_here"], false);
    let text = rig.ok(A, &["service", "show", "s"]);
    assert!(text.contains("10.77.0.50/24, on this node"), "{text}");

    // By hand. The client sends nothing before it is asked what it knows.
    let client = connect(&rig, address);
    assert_eq!(learned(&rig, address), Some(mac(&rig, A)));
    // One that the end of the service does not end: it is cut before the address goes.
    let program = accepts(SocketAddr::new(address, BESIDE));
    let mut beside = rig.inside("a", "perl");
    let _beside = Running::start(beside.args(["-MIO::Socket::IP", "-e", &program]));
    eventually("it listens", || {
        let mut asked = rig.inside("a", "ss");
        ok(asked.args(["-Hltn"])).contains(&format!(":{BESIDE}"))
    });
    let other = connect_to(&rig, SocketAddr::new(address, BESIDE));
    rig.ok(A, &["service", "move", "s", "--to", "b"]);
    is_told(client);
    is_at(&rig, B, address);
    is_told(other);
    let haproxy = rig.ok(A, &["service", "haproxy", "s"]);
    assert!(haproxy.contains("s is at 10.77.0.50 wherever"), "{haproxy}");
    let client = connect(&rig, address);

    // The daemon is killed: its guard takes the address away. What is found later is taken away by the next daemon.
    rig.daemon(B).kill();
    is_told(client);
    is_at(&rig, A, address);
    drop(connect(&rig, address));
    set(
        &rig,
        "b",
        &["address", "add", "10.77.0.50/24", "dev", "eth0"],
    );
    rig.start(B);
    assert!(!has(&rig, B, address), "it was left there");
    rig.await_in_sync(A, "tank/s");

    // The daemon stands still, and goes on when another node has it.
    let stopped = rig.daemon_itself(A);
    send(stopped, Signal::STOP);
    is_at(&rig, B, address);
    send(stopped, Signal::CONT);
    rig.becomes(A, "s", "elsewhere");
    drop(connect(&rig, address));
    is_at(&rig, B, address);

    // One that was taken away by hand comes again.
    set(
        &rig,
        "b",
        &["address", "delete", "10.77.0.50/24", "dev", "eth0"],
    );
    eventually("it is there again", || has(&rig, B, address));
    assert_eq!(rig.show(B, "s")["failures"], 0);
    delete(&rig);
    assert!(!has(&rig, A, address) && !has(&rig, B, address));

    // The same of IPv6.
    rig.await_in_sync(B, "tank/s");
    let address: IpAddr = "fd77::50".parse().expect("an address");
    let start = server(address);
    rig.ok(B, &create(&mount, &start, "fd77::50/64%eth0"));
    is_at(&rig, B, address);
    let client = connect(&rig, address);
    rig.ok(B, &["service", "move", "s", "--to", "a"]);
    is_told(client);
    is_at(&rig, A, address);
    drop(connect(&rig, address));
    delete(&rig);
    assert!(!has(&rig, A, address) && !has(&rig, B, address));
    for node in [A, B] {
        rig.daemon(node).end(Signal::TERM);
    }
}

/// Refused where it cannot be had, and nothing has changed.
fn refused(rig: &Rig, mount: &str) {
    let only_a = ["link", "add", "only", "up", "type", "bridge"];
    set(rig, "a", &only_a);
    let before = [A, B].map(|node| addresses(rig, node));
    let [_, a, b, client] = HOSTS.map(|host| format!("{host}/24"));
    for (address, code, names) in [
        ("10.77.0.50", 2, &["10.77.0.50", "no prefix"][..]),
        ("10.77.0.50/24%eth7", 2, &["no interface eth7"]),
        ("10.77.0.50/24%lo", 2, &["interface lo", "no Ethernet"]),
        ("10.78.0.50/24", 2, &["no interface has a network"]),
        ("10.77.0.50/24%only", 2, &["node b", "no interface only"]),
        (&a, 3, &["interface eth0 has 10.77.0.1 already"]),
        (&b, 3, &["in use", &mac(rig, B)]),
        (&client, 3, &["in use"]),
        ("fd77::3/64", 3, &["in use"]),
    ] {
        let words = create(mount, "x", address);
        refuses(&mut rig.command(A, &words), code, names);
    }
    for node in [A, B] {
        assert_eq!(rig.ok(node, &["service", "list", "--json"]).trim(), "[]");
    }
    let after = [A, B].map(|node| addresses(rig, node));
    assert_eq!(before, after);
}

fn delete(rig: &Rig) {
    rig.ok(B, &["service", "stop", "s"]);
    for node in [A, B] {
        assert_eq!(rig.becomes(node, "s", "stopped")["address_here"], false);
    }
    rig.ok(A, &["service", "delete", "s"]);
    eventually("both have forgotten it", || {
        let list = |node| rig.ok(node, &["service", "list", "--json"]);
        list(A).trim() == "[]" && list(B).trim() == "[]"
    });
}
