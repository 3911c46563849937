//! Hosts that take all the buffers they are lent and give none back, and their neighbour.

use std::collections::HashMap;
use std::time::Duration;

use ashlar_block::{BlockSize, Moment};
use ashlar_nvme::fabrics::CNTLID_DYNAMIC;
use ashlar_nvme::pdu::{Digests, H2cData};
use ashlar_nvme_target::HostAccess;

use crate::disk::Disk;
use crate::host::{Host, pattern, queue, read, write_out};
use crate::world::{NQN, Plan, World};

const STEP: Duration = Duration::from_millis(10);
const LENGTH: Duration = Duration::from_secs(4);
const HOSTS: usize = 16;
const QUEUES: u16 = 4;
const COMMANDS: usize = 127;
const NEIGHBOUR: &str = "nqn.2024-01.com.example:neighbour";
const WRITE_BYTES: usize = 128 << 10;
const DEPTH: usize = 8;
/// No host may wait longer, whatever others do.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

fn name(host: usize) -> String {
    format!("nqn.2024-01.com.example:hoarder{host}")
}

/// An admin queue of the host of this name, and its controller's id.
fn admin(world: &mut World, nqn: &str) -> (Host, u16) {
    let mut host = Host::dial(world, Digests::NONE);
    host.hostnqn = nqn.into();
    let reply = host.connect_to(world, NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(reply.status().is_success(), "{nqn}: {:?}", reply.status());
    host.enable(world);
    (host, reply.completion.connected_cntlid())
}

fn io_queue(world: &mut World, nqn: &str, cntlid: u16, qid: u16) -> Host {
    let mut host = Host::dial(world, Digests::NONE);
    host.hostnqn = nqn.into();
    let reply = host.connect_to(world, NQN, queue(qid, 128), cntlid);
    assert!(reply.status().is_success(), "{nqn}: {:?}", reply.status());
    host
}

/// How a hoarder gives nothing back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// It does not answer what it is asked for.
    Silent,
    /// It answers with four bytes of data at a time.
    Trickling,
    /// It reads and takes no answer.
    Deaf,
}

/// A queue that takes all it can get, and comes again when it is sent away.
struct Hoarder {
    nqn: String,
    cntlid: u16,
    qid: u16,
    io: Host,
    /// By tag of a transfer, bytes that were sent of it.
    sent: HashMap<u16, u32>,
}

impl Hoarder {
    fn grab(&mut self, world: &mut World, way: Way) {
        world.wires[self.io.wire].reading = way != Way::Deaf;
        for _ in 0..COMMANDS {
            let command = match way {
                Way::Deaf => read(0, 1 << 20, 4096),
                Way::Silent | Way::Trickling => write_out(0, 1 << 20, 4096),
            };
            self.io.send(world, command, &[]);
        }
    }

    fn step(&mut self, world: &mut World, way: Way) {
        if world.wires[self.io.wire].is_closed() {
            self.io = io_queue(world, &self.nqn, self.cntlid, self.qid);
            self.sent.clear();
            return self.grab(world, way);
        }
        if way != Way::Trickling {
            return;
        }
        self.io.settle(world);
        // One at a time, and each in its turn.
        let Some(request) = (!self.io.r2ts.is_empty()).then(|| self.io.r2ts.remove(0)) else {
            return;
        };
        let sent = self.sent.entry(request.ttag).or_default();
        let piece = H2cData {
            cid: request.cid,
            ttag: request.ttag,
            offset: *sent,
            length: 4,
            last: false,
        };
        *sent += 4;
        let bytes = self.io.h2c(&piece, &[0; 4]);
        world.push(self.io.wire, &bytes);
        self.io.r2ts.push(request);
    }
}

/// A host that writes, and what it has seen.
struct Neighbour {
    _admin: Host,
    io: Host,
    begun: HashMap<u16, Moment>,
    done: usize,
    longest: Duration,
}

impl Neighbour {
    fn new(world: &mut World) -> Self {
        let (admin, cntlid) = admin(world, NEIGHBOUR);
        Self {
            io: io_queue(world, NEIGHBOUR, cntlid, 1),
            _admin: admin,
            begun: HashMap::new(),
            done: 0,
            longest: Duration::ZERO,
        }
    }

    fn step(&mut self, world: &mut World, data: &[u8]) {
        assert!(
            !world.wires[self.io.wire].is_closed(),
            "it has done nothing wrong"
        );
        while self.begun.len() < DEPTH {
            let cid = self.io.send(world, write_out(1024, WRITE_BYTES, 4096), &[]);
            self.begun.insert(cid, world.now);
        }
        self.io.settle(world);
        while !self.io.r2ts.is_empty() {
            self.io.answer_r2t(world, data);
        }
        self.io.settle(world);
        for (cid, reply) in std::mem::take(&mut self.io.replies) {
            assert!(reply.status().is_success(), "{:?}", reply.status());
            self.begun.remove(&cid).expect("its own");
            self.done += 1;
        }
        let waits = self.begun.values().map(|&begun| world.now.since(begun));
        self.longest = self.longest.max(waits.max().unwrap_or_default());
    }
}

/// What a neighbour has done of what it does alone, and its longest wait.
fn beside(access: &HostAccess, way: Way, comes_late: bool) -> (f64, Duration) {
    let data = pattern(1, WRITE_BYTES);
    let run = |hosts: usize| {
        let plan = Plan {
            disks: vec![Disk::plain(BlockSize::B4096, 4096)],
            pool_bytes: 64 << 20,
            access: access.clone(),
            ..Plan::default()
        };
        let mut world = World::new(&plan);
        let mut early = (!comes_late).then(|| Neighbour::new(&mut world));
        if let Some(neighbour) = &mut early {
            neighbour.step(&mut world, &data);
        }
        let (mut admins, mut hoarders) = (Vec::new(), Vec::new());
        for host in 0..hosts {
            let (admin, cntlid) = admin(&mut world, &name(host));
            admins.push(admin);
            for qid in 1..=QUEUES {
                let mut hoarder = Hoarder {
                    nqn: name(host),
                    cntlid,
                    qid,
                    io: io_queue(&mut world, &name(host), cntlid, qid),
                    sent: HashMap::new(),
                };
                hoarder.grab(&mut world, way);
                hoarders.push(hoarder);
            }
        }
        world.settle();
        let mut neighbour = early.unwrap_or_else(|| Neighbour::new(&mut world));
        let end = world.now + LENGTH;
        while world.now < end {
            world.now = world.now + STEP;
            world.settle();
            for hoarder in &mut hoarders {
                hoarder.step(&mut world, way);
            }
            neighbour.step(&mut world, &data);
        }
        assert!(world.outstanding() <= 64 << 20);
        (neighbour.done, neighbour.longest)
    };
    let (alone, _) = run(0);
    let (done, longest) = run(HOSTS);
    (done as f64 / alone as f64, longest)
}

fn listed() -> HostAccess {
    let hoarders = (0..HOSTS).map(name);
    HostAccess::Listed(hoarders.chain([NEIGHBOUR.to_owned()]).collect())
}

#[test]
fn a_neighbour_of_hoarders_writes_on() {
    for access in [listed(), HostAccess::Any] {
        for way in [Way::Silent, Way::Trickling, Way::Deaf] {
            for comes_late in [false, true] {
                let (rate, wait) = beside(&access, way, comes_late);
                let is_listed = access != HostAccess::Any;
                println!("listed {is_listed}, {way:?}, late {comes_late}: {rate:.2}, {wait:?}");
                let scene = format!("listed {is_listed}, {way:?}, late {comes_late}");
                assert!(wait <= LONGEST_WAIT, "{scene}: waits {wait:?}");
                assert!(rate >= 0.8, "{scene}: {rate:.2} of what it does alone");
            }
        }
    }
}

/// Those that write fast are not taken for hoarders however many they are.
#[test]
fn busy_hosts_share_and_none_is_sent_away() {
    let plan = Plan {
        disks: vec![Disk::plain(BlockSize::B4096, 4096)],
        pool_bytes: 16 << 20,
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let data = pattern(2, 1 << 20);
    let mut hosts: Vec<(Host, Host)> = (0..12)
        .map(|host| {
            let (admin, cntlid) = admin(&mut world, &name(host));
            (admin, io_queue(&mut world, &name(host), cntlid, 1))
        })
        .collect();
    let mut sent = [0usize; 12];
    let mut done = [0usize; 12];
    for _ in 0..400 {
        world.now = world.now + STEP;
        for (index, (_, io)) in hosts.iter_mut().enumerate() {
            while sent[index] - done[index] < 16 {
                io.send(&mut world, write_out(0, 1 << 20, 4096), &[]);
                sent[index] += 1;
            }
            io.settle(&mut world);
            // A link carries one transfer in a step.
            if !io.r2ts.is_empty() {
                io.answer_r2t(&mut world, &data);
            }
            io.settle(&mut world);
            done[index] += std::mem::take(&mut io.replies).len();
            assert!(!world.wires[io.wire].is_closed());
        }
    }
    let (least, most) = (done.iter().min(), done.iter().max());
    println!("{done:?}");
    assert!(
        least >= Some(&50) && most.copied() <= least.map(|least| least * 2),
        "{done:?}"
    );
}
