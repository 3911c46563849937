//! Hosts that do anything, in any order, from a seed: whatever happens, nothing is left at the end,
//! and a host that behaves is served.

use std::time::Duration;

use ashlar_block::BlockSize;
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, opcode};

use crate::disk::Disk;
use crate::host::{Host, pattern, read, write_in, write_out};
use crate::world::{Plan, World};

/// Numbers from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

struct Storm {
    random: Random,
    plan: Plan,
    world: World,
    cntlid: u16,
    next_qid: u16,
    hosts: Vec<Host>,
    data: Vec<u8>,
}

impl Storm {
    fn step(&mut self) {
        let choice = self.random.below(20);
        if self.hosts.is_empty() || (choice == 0 && self.hosts.len() < 6) {
            return self.arrive();
        }
        let index = self.random.below(self.hosts.len() as u64) as usize;
        let wire = self.hosts[index].wire;
        if self.world.wires[wire].is_closed() {
            self.hosts.swap_remove(index);
            return;
        }
        match choice {
            1 => self.plan.disks[0].hold(),
            2 | 3 => self.plan.disks[0].release(),
            4 => self.world.wires[wire].reading = false,
            5 | 6 => self.world.wires[wire].reading = true,
            7 => {
                self.world.hang_up(wire);
                self.hosts.swap_remove(index);
            }
            8 => self.world.wires[wire].chunk = 1 + self.random.below(100_000) as usize,
            9 => self.world.pass(Duration::from_millis(700)),
            10 if self.random.below(8) == 0 => {
                self.world.push(wire, &[0xee; 3]);
                self.hosts[index].has_babbled = true;
            }
            11..=13 => self.answer(index),
            _ => self.command(index),
        }
        if self.random.below(3) > 0 {
            self.hosts
                .iter_mut()
                .for_each(|host| host.settle(&mut self.world));
        }
        assert!(self.world.outstanding() <= 2 * self.plan.pool_bytes);
    }

    fn arrive(&mut self) {
        self.plan.disks[0].release();
        let qid = self.next_qid;
        self.next_qid = qid % 100 + 1;
        self.world.io_core = self.random.below(2) as usize;
        let host = Host::io(&mut self.world, self.cntlid, qid, 64, Digests::NONE);
        self.hosts.push(host);
    }

    /// Sends some command, unless the queue is full.
    fn command(&mut self, index: usize) {
        let slba = self.random.below(3000);
        let large = 4096 << self.random.below(9);
        let small = 4096 << self.random.below(5);
        let kind = self.random.below(6);
        let host = &mut self.hosts[index];
        if host.outstanding() >= 60 {
            return;
        }
        let compare = |write: Command| Command {
            opcode: opcode::io::COMPARE,
            ..write
        };
        let (command, in_capsule) = match kind {
            0 => (Command::flush(1), 0),
            1 => (read(slba, large, 4096), 0),
            2 => (write_out(slba, large, 4096), 0),
            3 => (compare(write_out(slba, large, 4096)), 0),
            4 => (write_in(slba, &self.data[..small], 4096), small),
            _ => (compare(write_in(slba, &self.data[..small], 4096)), small),
        };
        host.send(&mut self.world, command, &self.data[..in_capsule]);
    }

    fn answer(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        if !host.r2ts.is_empty() {
            host.answer_r2t(&mut self.world, &self.data);
        }
    }

    /// All hosts behave from now on: everything ends.
    fn calm(&mut self) {
        self.plan.disks[0].release();
        for wire in &mut self.world.wires {
            wire.reading = true;
        }
        self.world.settle();
        for _ in 0..500 {
            for index in 0..self.hosts.len() {
                self.hosts[index].settle(&mut self.world);
                self.answer(index);
            }
        }
        for host in &self.hosts {
            // Those that have sent nonsense are waiting for nothing any more.
            if !self.world.wires[host.wire].is_closed() && !host.has_babbled {
                assert_eq!(
                    host.outstanding(),
                    0,
                    "commands of wire {} do not end",
                    host.wire
                );
            }
        }
    }
}

#[test]
fn whatever_hosts_do_nothing_is_left() {
    let soak = std::env::var_os("ASHLAR_SOAK").is_some();
    for seed in 1..=if soak { 3000 } else { 60 } {
        println!("seed {seed}");
        let disks = vec![Disk::plain(BlockSize::B4096, 3300)];
        let plan = Plan {
            disks,
            cores: 2,
            pool_bytes: 16 << 20,
            ..Plan::default()
        };
        let mut world = World::new(&plan);
        let (admin, cntlid) = Host::admin(&mut world, Digests::NONE);
        let data = pattern(seed as u8, 1 << 20);
        let random = Random(seed);
        let hosts = Vec::new();
        let mut storm = Storm {
            random,
            plan,
            world,
            cntlid,
            next_qid: 1,
            hosts,
            data,
        };
        for _ in 0..300 {
            storm.step();
        }
        storm.calm();
        for host in &storm.hosts {
            storm.world.hang_up(host.wire);
        }
        assert_eq!(
            (storm.world.connections(), storm.world.outstanding()),
            (1, 0)
        );
        storm.world.hang_up(admin.wire);
        assert_eq!(storm.world.connections(), 0);
    }
}
