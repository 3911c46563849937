//! Two of Ashlar's targets over one device, in this process, and one host that uses both.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::exercise::{Rig, check, config, fill};
use ashlar_block::{BlockDevice, BlockRange, BlockSize, Durability, Request};
use ashlar_device::Memory;
use ashlar_nvme::log::AnaState;
use ashlar_nvme_initiator::{PathBoard, Remote};
use ashlar_nvme_target::server::{CoreDeath, Export, Server, ServerConfig};
use ashlar_nvme_target::{HostAccess, Shared, Timeouts};
use ashlar_reactor::{Opener, Options, available_cores};

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
        // The test takes a path away only when nothing is under way below, or waits.
        is_fenced: false,
        quiesce: Duration::ZERO,
    };
    let config = ServerConfig {
        listen,
        cores: available_cores().into_iter().take(1).collect(),
        reactor: Options {
            spin: Duration::ZERO,
            ..Options::default()
        },
        exports: vec![Export {
            nqn: NQN.into(),
            devices: vec![device.clone() as Arc<dyn Opener>],
            identities: Vec::new(),
            access: HostAccess::Any,
            advertise: None,
            reservations: Vec::new(),
            shared: Some(shared),
        }],
        timeouts: Timeouts::default(),
        hold: false,
        on_core_death: CoreDeath::Report,
    };
    Server::start(config).expect("serve")
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
    let mut load = Load::start(&connect(at_a, at_b, "?kato=300ms"));
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
    let nobody: SocketAddr = ([127, 0, 0, 1], 1).into();
    for (first, second) in [(a.address(), nobody), (nobody, a.address())] {
        let remote = connect(first, second, "");
        let mut rig = Rig::new(&remote);
        rig.write(BlockRange::new(0, 1), 1, Durability::Cached);
    }
    let text = format!("nvme-tcp://{nobody},127.0.0.1:2/{NQN}");
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
    let remote = connect(at_a, at_b, "?discover=on&kato=300ms");
    let (board, mut load) = (remote.board(), Load::start(&remote));
    let become_ = |load: &mut Load, expected: &[SocketAddr]| {
        let expected: BTreeSet<SocketAddr> = expected.iter().copied().collect();
        let begun = Instant::now();
        while portals(&board) != expected {
            let so_far = portals(&board);
            assert!(begun.elapsed() < Duration::from_secs(30), "{so_far:?}");
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
    let others = a.control().set_portals(NQN, vec![at_c, at_d]);
    others.expect("shared");
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
