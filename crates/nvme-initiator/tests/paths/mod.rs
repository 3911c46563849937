//! Two of Ashlar's targets over one device, in this process, and one host that uses both.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::exercise::{Rig, check, config, fill};
use ashlar_block::{BlockDevice, BlockRange, BlockSize, Durability, ErrorKind, Request};
use ashlar_device::Memory;
use ashlar_nvme::log::AnaState;
use ashlar_nvme::reservation::ReservationType;
use ashlar_nvme_initiator::{Acquire, Config, PathBoard, Remote, ReservationDesk};
use ashlar_nvme_target::server::{CoreDeath, Export, ReservationFile, Server, ServerConfig};
use ashlar_nvme_target::{HostAccess, Shared, Timeouts};
use ashlar_reactor::{Opener, Options, Spin, available_cores};

const NQN: &str = "nqn.2026-01.io.ashlar:both";
const SLOTS: u64 = 32;

fn memory() -> Arc<Memory> {
    Memory::new(64 << 20, BlockSize::B4096).expect("memory")
}

/// A target of a pair over `device`; `first` is the first of its controllers' ids.
fn serve(listen: SocketAddr, device: &Arc<Memory>, first: u16, state: AnaState) -> Server {
    let shared = Shared {
        controller_ids: first..=first + 99,
        state,
        portals: Vec::new(),
        core: None,
        quiesce: Duration::ZERO,
    };
    let config = ServerConfig {
        exports: vec![Export {
            nqn: NQN.into(),
            devices: vec![device.clone() as Arc<dyn Opener>],
            identities: Vec::new(),
            access: HostAccess::Any,
            advertise: None,
            reservations: Vec::new(),
            shared: Some(shared),
        }],
        ..server_config(listen)
    };
    Server::start(config).expect("serve")
}

/// Of a server that serves nothing.
fn server_config(listen: SocketAddr) -> ServerConfig {
    ServerConfig {
        listen,
        cores: available_cores().into_iter().take(1).collect(),
        reactor: Options {
            spin: Spin::Off,
            ..Options::default()
        },
        exports: Vec::new(),
        timeouts: Timeouts::default(),
        hold: false,
        on_core_death: CoreDeath::Report,
    }
}

fn stop(server: Server) {
    server.stopper()();
    server.wait().expect("stopped");
}

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn connect(a: SocketAddr, b: SocketAddr, options: &str) -> Remote {
    Remote::connect(config(&format!("nvme-tcp://{a},{b}/{NQN}{options}"))).expect("connect")
}

/// Writes that go on, each slot one after the other, none of which may fail or be lost.
struct Load {
    rig: Rig,
    generation: [u8; SLOTS as usize],
    written: u64,
}

impl Load {
    fn start(remote: &Remote) -> Self {
        let mut load = Self {
            rig: Rig::new(remote),
            generation: [0; SLOTS as usize],
            written: 0,
        };
        (0..SLOTS).for_each(|slot| load.submit(slot));
        load
    }

    fn range(slot: u64) -> BlockRange {
        BlockRange::new(slot * 128, 1 << (slot % 7))
    }

    fn submit(&mut self, slot: u64) {
        let range = Self::range(slot);
        let bytes = self.rig.device.geometry().range_bytes(range);
        let mut buffer = self.rig.buffer(bytes);
        fill(&mut buffer, self.generation[slot as usize]);
        let write = Request::write(slot, range, buffer, Durability::Cached);
        self.rig.device.submit(write);
    }

    fn run(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.rig.wait(1);
            for one in std::mem::take(&mut self.rig.done) {
                one.result.expect("no write fails");
                self.written += 1;
                let slot = one.tag as usize;
                self.generation[slot] = self.generation[slot].wrapping_add(1);
                self.submit(one.tag);
            }
        }
    }

    fn finish(mut self) -> u64 {
        self.rig.wait(SLOTS as usize);
        for one in std::mem::take(&mut self.rig.done) {
            one.result.expect("no write fails");
        }
        for slot in 0..SLOTS {
            let read = self.rig.read(Self::range(slot));
            check(&read, self.generation[slot as usize]);
        }
        self.written
    }
}

#[test]
fn writes_go_on_while_paths_change_and_nothing_fails() {
    let device = memory();
    let a = serve(any_port(), &device, 1, AnaState::Optimized);
    let b = serve(any_port(), &device, 500, AnaState::Inaccessible);
    let mut load = Load::start(&connect(a.address(), b.address(), "?queues=2"));
    let set = |server: &Server, state| {
        let control = server.control();
        control.set_path(NQN, None, state).expect("shared");
    };
    const BRIEF: Duration = Duration::from_millis(60);
    for _ in 0..4 {
        for (from, to) in [(&a, &b), (&b, &a)] {
            load.run(BRIEF);
            set(from, AnaState::Change);
            // What it has in hand is done with before the other begins: the memory answers at once.
            std::thread::sleep(BRIEF);
            set(to, AnaState::Optimized);
            set(from, AnaState::Inaccessible);
        }
    }
    load.run(BRIEF);
    let losses = load.rig.device.inner_mut().losses();
    let written = load.finish();
    assert!(written > 100, "{written}");
    assert_eq!(losses, 0, "a change of paths costs no connection");
    stop(a);
    stop(b);
}

#[test]
fn a_target_that_ends_and_comes_back_is_a_pause() {
    let device = memory();
    let a = serve(any_port(), &device, 1, AnaState::Optimized);
    let b = serve(any_port(), &device, 500, AnaState::NonOptimized);
    let (at_a, at_b) = (a.address(), b.address());
    // Short, since the other target cannot tell what the first had in hand.
    let mut load = Load::start(&connect(at_a, at_b, "?kato=1s"));
    load.run(Duration::from_millis(100));
    stop(a);
    load.run(Duration::from_millis(500));
    let a = serve(at_a, &device, 1, AnaState::NonOptimized);
    load.run(Duration::from_millis(300));
    stop(b);
    load.run(Duration::from_millis(500));
    let losses = load.rig.device.inner_mut().losses();
    let written = load.finish();
    assert!(losses >= 2 && written > 100, "{losses} {written}");
    stop(a);
}

#[test]
fn one_portal_that_answers_is_enough_to_begin_with_and_none_is_told_of_all() {
    let device = memory();
    let a = serve(any_port(), &device, 1, AnaState::Optimized);
    let dead: SocketAddr = ([127, 0, 0, 1], 1).into();
    for (first, second) in [(a.address(), dead), (dead, a.address())] {
        let remote = connect(first, second, "");
        let mut rig = Rig::new(&remote);
        rig.write(BlockRange::new(0, 1), 1, Durability::Cached);
    }
    let text = format!("nvme-tcp://{dead},127.0.0.1:2/{NQN}");
    let error = Remote::connect(config(&text))
        .err()
        .expect("refused")
        .to_string();
    assert!(
        error.contains("127.0.0.1:1") && error.contains("127.0.0.1:2"),
        "{error}"
    );
    stop(a);
}

/// By these paths the namespace is used, whether they are up or not.
fn portals(board: &PathBoard) -> BTreeSet<SocketAddr> {
    let paths = board.paths().into_iter();
    paths
        .map(|path| path.address.parse().expect("an address"))
        .collect()
}

#[test]
fn portals_that_come_are_used_and_those_that_go_are_let_go() {
    let device = memory();
    let a = serve(any_port(), &device, 1, AnaState::Optimized);
    let b = serve(any_port(), &device, 500, AnaState::NonOptimized);
    let c = serve(any_port(), &device, 800, AnaState::NonOptimized);
    let tell = |server: &Server, other: &Server| {
        let told = server.control().set_portals(NQN, vec![other.address()]);
        told.expect("shared");
    };
    let [at_a, at_b, at_c] = [&a, &b, &c].map(Server::address);
    tell(&a, &b);
    tell(&b, &a);
    let remote = connect(at_a, at_b, "?discover=on&kato=1s");
    let (board, mut load) = (remote.board(), Load::start(&remote));
    let become_ = |load: &mut Load, expected: &[SocketAddr]| {
        let expected: BTreeSet<SocketAddr> = expected.iter().copied().collect();
        let begun = Instant::now();
        while portals(&board) != expected {
            let so_far = portals(&board);
            assert!(
                begun.elapsed() < Duration::from_secs(90),
                "{so_far:?} of {expected:?}"
            );
            load.run(Duration::from_millis(20));
        }
    };
    become_(&mut load, &[at_a, at_b]);
    tell(&c, &a);
    tell(&a, &c);
    tell(&b, &c);
    // By b it is reached yet.
    become_(&mut load, &[at_a, at_b, at_c]);
    stop(b);
    become_(&mut load, &[at_a, at_c]);
    // Its place is another's.
    let d = serve(any_port(), &device, 500, AnaState::NonOptimized);
    let at_d = d.address();
    // Told by each, as nodes do: under load the host may have left a's service for c's.
    for (server, other) in [(&a, at_c), (&c, at_a)] {
        let others = server.control().set_portals(NQN, vec![other, at_d]);
        others.expect("shared");
    }
    become_(&mut load, &[at_a, at_c, at_d]);
    stop(c);
    stop(a);
    become_(&mut load, &[at_d]);
    let written = load.finish();
    assert!(written > 100, "{written}");
    stop(d);
}

#[test]
fn portals_are_learned_only_by_who_was_told_to() {
    let device = memory();
    let a = serve(any_port(), &device, 1, AnaState::Optimized);
    let b = serve(any_port(), &device, 500, AnaState::NonOptimized);
    let elsewhere: SocketAddr = ([127, 0, 0, 9], 4420).into();
    for server in [&a, &b] {
        let told = server.control().set_portals(NQN, vec![elsewhere]);
        told.expect("shared");
    }
    let remote = connect(a.address(), b.address(), "");
    let (board, mut load) = (remote.board(), Load::start(&remote));
    load.run(Duration::from_millis(500));
    assert_eq!(portals(&board), [a.address(), b.address()].into());
    load.finish();
    stop(a);
    stop(b);
}

/// A target whose namespace can be reserved.
fn serve_reservable(file: &std::path::Path) -> Server {
    let config = ServerConfig {
        exports: vec![Export {
            nqn: NQN.into(),
            devices: vec![memory() as Arc<dyn Opener>],
            identities: Vec::new(),
            access: HostAccess::Any,
            advertise: None,
            reservations: vec![Some(ReservationFile::open(file).expect("a file").into())],
            shared: None,
        }],
        ..server_config(any_port())
    };
    Server::start(config).expect("serve")
}

struct Hosts {
    server: Server,
    file: std::path::PathBuf,
}

impl Hosts {
    fn new(name: &str) -> Self {
        Self::with(name, None)
    }

    /// With what was kept before.
    fn with(name: &str, kept: Option<&[u8]>) -> Self {
        let name = format!("ashlar-reserved-{name}-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&file);
        if let Some(kept) = kept {
            std::fs::write(&file, kept).expect("a file");
        }
        Self {
            server: serve_reservable(&file),
            file,
        }
    }

    fn end(self) {
        stop(self.server);
        // Nothing was kept where nothing was reserved at the end.
        let _ = std::fs::remove_file(self.file);
    }

    fn config(&self, host: &str) -> Config {
        let address = self.server.address();
        config(&format!(
            "nvme-tcp://{address}/{NQN}?hostnqn=nqn.2026-01.test:{host}"
        ))
    }

    fn desk(&self, host: &str) -> ReservationDesk {
        ReservationDesk::new(self.config(host), Duration::from_secs(5))
    }

    /// A device of a host that has been told that it holds the reservation.
    fn holder(&self, host: &str) -> (Rig, PathBoard) {
        let remote = Remote::connect(Config {
            holds_reservation: true,
            ..self.config(host)
        });
        let remote = remote.expect("connect");
        (Rig::new(&remote), remote.board())
    }
}

const EXCLUSIVE: ReservationType = ReservationType::WriteExclusive;
const BLOCK: BlockRange = BlockRange::new(0, 1);

fn try_write(rig: &mut Rig) -> Option<ErrorKind> {
    let mut buffer = rig.buffer(4096);
    fill(&mut buffer, 1);
    let write = Request::write(1, BLOCK, buffer, Durability::Cached);
    rig.run(write).result.err().map(|error| error.kind())
}

#[test]
fn what_is_reserved_is_the_host_s_until_it_gives_it_back() {
    let hosts = Hosts::new("hosts");
    let (mut one, mut two) = (hosts.desk("one"), hosts.desk("two"));
    let denied = |result: Result<(), ashlar_block::IoError>| {
        let error = result.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    };
    denied(one.acquire(1, EXCLUSIVE, Acquire::IfFree));
    one.register(7).expect("registered");
    one.register(1).expect("the key is replaced");
    one.acquire(1, EXCLUSIVE, Acquire::IfFree).expect("free");
    one.acquire(1, EXCLUSIVE, Acquire::IfFree).expect("ours");
    two.register(2).expect("registered");
    denied(two.acquire(2, EXCLUSIVE, Acquire::IfFree));
    let holds = |desk: &mut ReservationDesk| {
        let status = desk.report().expect("a report");
        let holder = status.registrants.into_iter().find(|one| one.holds);
        (holder.map(|holder| holder.key), status.is_persistent)
    };
    assert_eq!(holds(&mut two), (Some(1), true));
    // It is no connection's.
    drop(one);
    let mut one = hosts.desk("one");
    assert_eq!(holds(&mut one), (Some(1), true));
    let (mut mine, _) = hosts.holder("one");
    assert_eq!(try_write(&mut mine), None);
    let mut other = Rig::new(&Remote::connect(hosts.config("three")).expect("connect"));
    assert_eq!(try_write(&mut other), Some(ErrorKind::Denied));
    other.read(BLOCK);
    two.release(2, EXCLUSIVE)
        .expect("not its own: nothing is done");
    assert_eq!(holds(&mut two).0, Some(1));
    one.release(1, EXCLUSIVE).expect("given back");
    assert_eq!(holds(&mut two).0, None);
    two.acquire(2, EXCLUSIVE, Acquire::IfFree).expect("free");
    denied(one.acquire(1, EXCLUSIVE, Acquire::Preempt(9)));
    one.acquire(1, EXCLUSIVE, Acquire::Preempt(2))
        .expect("taken over");
    denied(two.unregister());
    one.unregister().expect("registered");
    assert_eq!(holds(&mut two).0, None);
    drop((one, two, mine, other));
    hosts.end();
}

/// A state that an earlier target has kept: a host holds the reservation with a key of zero.
fn held_without_a_key() -> Vec<u8> {
    let host = [9; 16];
    let kind = EXCLUSIVE as u8;
    let header = [&b"ASHRSV\x01\0"[..], &1u32.to_le_bytes(), &[kind, 1, 1, 0]].concat();
    [&header[..], &host, &host, &[0; 8]].concat()
}

#[test]
fn a_holder_without_a_key_is_cleared_away() {
    let hosts = Hosts::with("keyless", Some(&held_without_a_key()));
    let mut one = hosts.desk("one");
    one.register(1).expect("registered");
    let key = |desk: &mut ReservationDesk| {
        let status = desk.report().expect("a report");
        let holder = status.registrants.into_iter().find(|one| one.holds);
        holder.map(|holder| holder.key)
    };
    assert_eq!(key(&mut one), Some(0));
    let refused = one.acquire(1, EXCLUSIVE, Acquire::Preempt(0));
    refused.expect_err("zero names none");
    one.clear(1).expect("cleared");
    assert_eq!(key(&mut one), None);
    one.register(1).expect("registered");
    one.acquire(1, EXCLUSIVE, Acquire::IfFree).expect("free");
    assert_eq!(key(&mut one), Some(1));
    one.unregister().expect("registered");
    drop(one);
    hosts.end();
}

#[test]
fn a_host_that_was_preempted_fails_at_once_and_says_so_whether_it_writes_or_not() {
    for writes in [false, true] {
        let hosts = Hosts::new(if writes { "writes" } else { "rests" });
        let (mut one, mut two) = (hosts.desk("one"), hosts.desk("two"));
        one.register(1).expect("registered");
        one.acquire(1, EXCLUSIVE, Acquire::IfFree).expect("free");
        let (mut mine, board) = hosts.holder("one");
        assert_eq!(try_write(&mut mine), None);
        two.register(2).expect("registered");
        two.acquire(2, EXCLUSIVE, Acquire::Preempt(1))
            .expect("taken over");
        if writes {
            assert!(try_write(&mut mine).is_some());
        }
        let begun = Instant::now();
        while board.fenced().is_none() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{:?}",
                board.paths()
            );
            let (now, mut done) = (mine.reactor.handle().now(), Vec::new());
            mine.device.poll(now, &mut done);
            let soon = now + Duration::from_millis(20);
            mine.reactor.turn(Some(soon)).expect("turn");
        }
        let why = board.fenced().expect("fenced");
        assert!(why.contains("taken the volume over"), "{why}");
        assert_eq!(try_write(&mut mine), Some(ErrorKind::Denied));
        let read = Request::read(2, BLOCK, mine.buffer(4096));
        assert!(
            mine.run(read).result.is_err(),
            "what it reads may be another's"
        );
        // A process that takes over for it finds the same.
        let (_, board) = {
            let (mut again, board) = hosts.holder("one");
            while try_write(&mut again).is_none() {}
            (again, board)
        };
        assert!(board.fenced().is_some());
        drop((one, two, mine));
        hosts.end();
    }
}
