//! The server's end: how hosts see it, and that a core that dies takes the process along.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ashlar_block::Moment;
use ashlar_nvme_target::Timeouts;
use ashlar_nvme_target::server::{CoreDeath, Resident, Server, ServerConfig};
use ashlar_reactor::{Handle, Options, available_cores};

use crate::disk::{Disk, Door};
use crate::rig::{Rig, eventually, export, serve, stop};

const NQN: &str = "nqn.2024-01.com.example:ends";
/// Set in the process that is to die.
const DOOMED: &str = "ASHLAR_TEST_DOOMED";

/// Lives until its first turn.
struct Mad;

impl Resident for Mad {
    fn poll(&mut self, _now: Moment) {
        panic!("as it was told");
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }
}

/// What panics while it is dropped late, or never is: the process must not wait for it.
struct NeverDropped(Mad);

impl Resident for NeverDropped {
    fn poll(&mut self, now: Moment) {
        self.0.poll(now);
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }
}

impl Drop for NeverDropped {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Run by the test below, in a process of its own; does nothing otherwise.
#[test]
fn doomed() {
    if std::env::var_os(DOOMED).is_none() {
        return;
    }
    let server = Server::start(ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        cores: available_cores().into_iter().take(2).collect(),
        reactor: Options::default(),
        exports: Vec::new(),
        timeouts: Timeouts::default(),
        hold: false,
        on_core_death: CoreDeath::EndProcess,
    });
    let server = server.expect("serve");
    let make = |_: &Handle| Ok(Box::new(NeverDropped(Mad)) as Box<dyn Resident>);
    // It may have died before it answers.
    let _ = server.settle_in(0, "mad", Box::new(make));
    std::thread::sleep(Duration::from_secs(3600));
}

#[test]
fn a_core_that_panics_ends_the_process_at_once() {
    let this = std::env::current_exe().expect("this program");
    let mut doomed = Command::new(this);
    doomed.args(["--exact", "ends::doomed", "--nocapture"]);
    doomed.env(DOOMED, "1");
    doomed.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = doomed.spawn().expect("it starts");
    let mut status = None;
    eventually("it ends", || {
        status = child.try_wait().expect("our child");
        status.is_some()
    });
    let mut said = String::new();
    let mut errors = child.stderr.take().expect("piped");
    errors.read_to_string(&mut said).expect("text");
    assert_eq!(status.and_then(|status| status.code()), Some(1), "{said}");
    for word in ["as it was told", "the thread of core", "ends at once"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// A connection that ends: without a byte, or refused by the kernel.
fn is_turned_away(address: std::net::SocketAddr) -> bool {
    match TcpStream::connect(address) {
        Ok(mut stream) => {
            let limit = Some(Duration::from_secs(30));
            stream.set_read_timeout(limit).expect("a socket");
            matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_))
        }
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
    }
}

#[test]
fn a_server_that_stops_answers_what_it_has_taken_and_lets_no_host_in() {
    let server = serve();
    let address = server.address();
    let disk = Disk::new(64);
    server
        .add(export(NQN, Arc::new(Door(disk.clone()))))
        .expect("added");
    let mut early = TcpStream::connect(address).expect("accepted");
    let mut rig = Rig::connect(&server, NQN, "").expect("connected");
    rig.write(1, 7);
    let control = server.control();
    control.turn_away().expect("turned away");
    assert!(is_turned_away(address), "who comes late");
    early
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a socket");
    let heard = early.read(&mut [0; 8]);
    assert!(
        matches!(heard, Ok(0) | Err(_)),
        "who was early and unnamed: {heard:?}"
    );
    // Those that are here are served.
    rig.check(1, 7);
    disk.hold.store(true, Ordering::SeqCst);
    rig.submit_write(9, 2, 8);
    eventually("the device has it", || {
        rig.turn();
        disk.taken.load(Ordering::SeqCst) == 3
    });
    let quiet = std::thread::spawn(move || control.quiesce());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!quiet.is_finished(), "a device has a write");
    disk.hold.store(false, Ordering::SeqCst);
    rig.wait(1);
    let done = rig.done.pop().expect("one");
    assert!(
        done.tag == 9 && done.result.is_ok(),
        "it was taken: {done:?}"
    );
    quiet.join().expect("no panic").expect("quiet");
    stop(server);
}

/// The timers of the connections that a server has accepted, as the kernel shows them: which one, and when it ends, in
/// hundredths of a second.
fn timers(server: &Server) -> Vec<(u8, u64)> {
    let port = format!(":{:04X}", server.address().port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let timer = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        let (kind, when) = words.nth(1)?.split_once(':')?;
        let ours = local.ends_with(&port) && state == "01";
        let hex = |text| u64::from_str_radix(text, 16).ok();
        ours.then_some((kind.parse().ok()?, hex(when)?))
    };
    table.lines().filter_map(timer).collect()
}

/// One without a keep-alive of its controller, too.
#[test]
fn a_host_whose_machine_is_gone_is_noticed_by_the_kernel() {
    const PROBE: u8 = 2;
    let server = serve();
    let door = Arc::new(Door(Disk::new(64)));
    server.add(export(NQN, door)).expect("added");
    let mut rig = Rig::connect(&server, NQN, "?kato=0s").expect("connected");
    rig.write(1, 7);
    eventually("each connection is probed within half a minute", || {
        let timers = timers(&server);
        let soon = |(kind, when): &(u8, u64)| *kind == PROBE && *when <= 3100;
        timers.len() >= 2 && timers.iter().all(soon)
    });
    drop(rig);
    stop(server);
}
