//! Against Ashlar's own target, in this process.

mod exercise;
mod paths;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashlar_block::{BlockDevice, BlockRange, BlockSize, Durability, ErrorKind, Request};
use ashlar_device::Memory;
use ashlar_nvme_initiator::{Remote, discover, identify, local_host};
use ashlar_nvme_target::server::{CoreDeath, Export, Server, ServerConfig};
use ashlar_nvme_target::{HostAccess, Timeouts};
use ashlar_reactor::{Opener, Options, Spin, available_cores};
use exercise::{Rig, check, config, fill};

const NQN: &str = "nqn.2026-01.io.ashlar:test";

fn memory() -> Arc<Memory> {
    Memory::new(64 << 20, BlockSize::B4096).expect("memory")
}

fn serve(listen: &str, device: Arc<Memory>, access: HostAccess) -> Server {
    let start = |listen: SocketAddr| {
        Server::start(ServerConfig {
            listen,
            cores: available_cores().into_iter().take(1).collect(),
            reactor: Options {
                spin: Spin::Off,
                ..Options::default()
            },
            exports: vec![Export {
                nqn: NQN.into(),
                devices: vec![device.clone() as Arc<dyn Opener>],
                identities: Vec::new(),
                access: access.clone(),
                advertise: None,
                reservations: Vec::new(),
                shared: None,
            }],
            timeouts: Timeouts::default(),
            hold: false,
            on_core_death: CoreDeath::Report,
        })
    };
    start(listen.parse().expect("address")).expect("serve")
}

fn stop(server: Server) {
    server.stopper()();
    server.wait().expect("stopped");
}

fn url(server: &Server, options: &str) -> String {
    format!("nvme-tcp://{}/{NQN}{options}", server.address())
}

#[test]
fn every_operation_works() {
    let server = serve("127.0.0.1:0", memory(), HostAccess::Any);
    for options in [
        "",
        "?hdgst=on&ddgst=on",
        "?queues=3&depth=16",
        "?ns=1&depth=1&hdgst=on",
    ] {
        exercise::exercise(&url(&server, options));
    }
    stop(server);
}

#[test]
fn discovery_and_identify_over_ipv6() {
    let server = serve("[::1]:0", memory(), HostAccess::Any);
    let address = server.address().to_string();
    let entries = discover(&address, &local_host()).expect("discovery");
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.subnqn(), entry.traddr()))
        .collect();
    assert!(
        found.contains(&(NQN.to_owned(), "::1".to_owned())),
        "{found:?}"
    );
    let found = identify(&address, NQN, &local_host()).expect("identify");
    assert_eq!(found.controller.subnqn(), NQN);
    assert_eq!(found.namespaces.len(), 1);
    assert_eq!(found.namespaces[0].namespace.nsze.get(), (64 << 20) / 4096);
    exercise::exercise(&url(&server, ""));
    stop(server);
}

#[test]
fn refusals_name_what_was_refused() {
    let listed = HostAccess::Listed(vec!["nqn.2026-01.test:friend".into()]);
    let server = serve("127.0.0.1:0", memory(), listed);
    let refused = |text: String| Remote::connect(config(&text)).err().expect("refused");
    let denied = refused(url(&server, ""));
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    let friend = "?hostnqn=nqn.2026-01.test:friend";
    Remote::connect(config(&url(&server, friend))).expect("allowed");
    let inactive = refused(url(&server, &format!("{friend}&ns=9")));
    assert!(inactive.to_string().contains(NQN), "{inactive}");
    let unknown = refused(format!(
        "nvme-tcp://{}/nqn.2026-01.test:other",
        server.address()
    ));
    assert!(unknown.to_string().contains("subsystem NQN"), "{unknown}");
    let address = server.address();
    stop(server);
    let closed = refused(format!("nvme-tcp://{address}/{NQN}"));
    assert!(closed.to_string().contains("refused"), "{closed}");
    let nowhere = refused(format!("nvme-tcp://no-such-host.invalid/{NQN}"));
    assert!(
        nowhere.to_string().contains("no-such-host.invalid"),
        "{nowhere}"
    );
}

#[test]
fn coming_and_going_does_not_wear_the_target_out() {
    let server = serve("127.0.0.1:0", memory(), HostAccess::Any);
    for round in 0..60 {
        let options = if round % 2 == 0 { "" } else { "?queues=4" };
        let remote = Remote::connect(config(&url(&server, options))).expect("connect");
        let mut rig = Rig::new(&remote);
        rig.write(BlockRange::new(round, 1), round as u8, Durability::Cached);
        // Dropped in mid-I/O every third time.
        if round % 3 == 0 {
            let buffer = rig.buffer(4096);
            rig.device
                .submit(Request::read(1, BlockRange::new(0, 1), buffer));
        }
    }
    stop(server);
}

/// Writes and reads go on while the target is stopped and started again: nothing fails, nothing is
/// lost.
#[test]
fn a_restarted_target_is_only_a_delay() {
    let device = memory();
    let mut server = serve("127.0.0.1:0", device.clone(), HostAccess::Any);
    let address = server.address().to_string();
    let remote = Remote::connect(config(&url(&server, "?queues=2"))).expect("connect");
    let mut rig = Rig::new(&remote);
    const SLOTS: u64 = 32;
    let mut generation = [0u8; SLOTS as usize];
    let submit = |rig: &mut Rig, slot: u64, seed: u8| {
        // From 4 KiB in capsule to 512 KiB by R2T.
        let range = BlockRange::new(slot * 128, 1 << (slot % 8));
        let mut buffer = rig.buffer(rig.device.geometry().range_bytes(range));
        fill(&mut buffer, seed);
        rig.device
            .submit(Request::write(slot, range, buffer, Durability::Cached));
    };
    for slot in 0..SLOTS {
        submit(&mut rig, slot, 0);
    }
    let (start, mut restarts, mut written) = (Instant::now(), 0, 0);
    while restarts < 3 || start.elapsed() < Duration::from_millis(800) {
        rig.wait(1);
        for one in std::mem::take(&mut rig.done) {
            one.result.expect("no write fails");
            written += 1;
            let slot = one.tag as usize;
            generation[slot] = generation[slot].wrapping_add(1);
            submit(&mut rig, one.tag, generation[slot]);
        }
        // Only a connection that is up can be lost.
        let up = rig.device.inner_mut().is_connected();
        if restarts < 3 && up && start.elapsed() > Duration::from_millis(200 * (restarts + 1)) {
            restarts += 1;
            stop(server);
            server = serve(&address, device.clone(), HostAccess::Any);
        }
    }
    rig.wait(SLOTS as usize);
    rig.done.clear();
    for slot in 0..SLOTS {
        let read = rig.read(BlockRange::new(slot * 128, 1 << (slot % 8)));
        check(&read, generation[slot as usize]);
    }
    println!("{written} writes over {restarts} restarts");
    assert!(rig.device.inner_mut().losses() >= 3);
    drop(rig);
    stop(server);
}

#[test]
fn an_idle_device_only_keeps_alive() {
    let server = serve("127.0.0.1:0", memory(), HostAccess::Any);
    let remote = Remote::connect(config(&url(&server, "?kato=400ms"))).expect("connect");
    let mut rig = Rig::new(&remote);
    rig.write(BlockRange::new(0, 1), 1, Durability::Cached);
    let (start, mut turns) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(2) {
        let now = rig.reactor.handle().now();
        rig.device.poll(now, &mut rig.done);
        let deadline = rig.device.next_deadline().expect("keep-alive");
        rig.reactor.turn(Some(deadline)).expect("turn");
        turns += 1;
    }
    assert!((10..120).contains(&turns), "{turns} turns in two seconds");
    assert_eq!(rig.device.inner_mut().losses(), 0, "the target heard us");
    drop(rig);
    stop(server);
}

/// A peer that accepts and sends nothing, and one that sends nonsense.
#[test]
fn silence_and_nonsense_are_named_and_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("address");
    let peers = std::thread::spawn(move || {
        let (silent, _) = listener.accept().expect("accept");
        let (mut loud, _) = listener.accept().expect("accept");
        Write::write_all(&mut loud, b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("write");
        let mut rest = Vec::new();
        let _ = Read::read_to_end(&mut loud, &mut rest);
        drop(silent);
        rest
    });
    let start = Instant::now();
    let refused = || {
        let text = format!("nvme-tcp://{address}/{NQN}?timeout=400ms");
        Remote::connect(config(&text)).err().expect("refused")
    };
    let silence = refused();
    assert_eq!(silence.kind(), ErrorKind::Timeout, "{silence}");
    let nonsense = refused();
    assert!(
        nonsense.to_string().contains("protocol violation"),
        "{nonsense}"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
    // After the 128 bytes of ICReq it was told what was wrong.
    let heard = peers.join().expect("peers");
    assert_eq!(
        (heard.len() > 128, heard.get(128)),
        (true, Some(&0x02)),
        "H2CTermReq"
    );
}

/// Passes bytes on to a target, from the moment when it is told to keep them no more.
struct Relay {
    address: SocketAddr,
    state: Arc<RelayState>,
}

#[derive(Default)]
struct RelayState {
    keeps: AtomicBool,
    /// A host has given a connection up, with what its kernel still had.
    was_reset: AtomicBool,
}

impl Relay {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("address");
        let state = Arc::new(RelayState::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for host in listener.incoming().flatten() {
                let target = TcpStream::connect(to).expect("connect");
                let back = (target.try_clone(), host.try_clone());
                let (from, to) = (back.0.expect("socket"), back.1.expect("socket"));
                std::thread::spawn(move || pass(from, to, &RelayState::default()));
                let state = shared.clone();
                std::thread::spawn(move || pass(host, target, &state));
            }
        });
        Self { address, state }
    }

    fn keep(&self, keeps: bool) {
        self.state.keeps.store(keeps, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &RelayState) {
    let mut bytes = [0; 64 << 10];
    loop {
        let read = from.read(&mut bytes);
        while state.keeps.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        match read {
            Ok(count @ 1..) if to.write_all(&bytes[..count]).is_ok() => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return state.was_reset.store(true, Ordering::SeqCst);
            }
            _ => return,
        }
    }
}

/// The network keeps a write of a process that dies until its successor has written: the target does
/// not know that the first is gone.
#[test]
fn a_late_write_of_a_dead_process_does_not_land() {
    let server = serve("127.0.0.1:0", memory(), HostAccess::Any);
    let record = std::env::temp_dir().join(format!("ashlar-heir-{}", std::process::id()));
    let _ = std::fs::remove_file(&record);
    let connect = |address: SocketAddr| {
        let text = format!("nvme-tcp://{address}/{NQN}");
        let remote = Remote::connect(config(&text)).expect("connect");
        remote.recorded_in(&record).expect("a record")
    };
    let relay = Relay::start(server.address());
    let block = BlockRange::new(0, 1);
    let mut first = Rig::new(&connect(relay.address));
    first.write(block, 1, Durability::Cached);
    relay.keep(true);
    let mut buffer = first.buffer(4096);
    fill(&mut buffer, 2);
    let late = Request::write(1, block, buffer, Durability::Cached);
    first.device.submit(late);
    let now = first.reactor.handle().now();
    first.device.poll(now, &mut first.done);
    // The relay has it, or will have it before the end of the connection. What it has not got by then is dropped.
    drop(first);
    let mut second = Rig::new(&connect(server.address()));
    second.write(block, 3, Durability::Cached);
    relay.keep(false);
    std::thread::sleep(Duration::from_millis(300));
    assert!(relay.state.was_reset.load(Ordering::SeqCst));
    check(&second.read(block), 3);
    drop(second);
    std::fs::remove_file(&record).expect("clean up");
    stop(server);
}
