//! Those who do not behave, and those who are served meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use ashlar_nvme::Command;
use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::fabrics::CNTLID_DYNAMIC;

use crate::client::{Client, capsule, connect, dial, greeting, is_served};
use crate::process::Target;

/// A number of rounds, and the same for `make soak`.
fn rounds(usual: usize, soak: usize) -> usize {
    if std::env::var_os("ASHLAR_SOAK").is_some() {
        soak
    } else {
        usual
    }
}

#[test]
fn two_thousand_connections_at_once_keep_no_host_from_being_served() {
    ashlar_reactor::raise_file_limit();
    let target = Target::start();
    is_served(target.address, 0);
    let baseline = target.descriptors();
    let before = target.rss_kib();
    let mut connections: Vec<TcpStream> = Vec::new();
    for index in 0..2000 {
        let mut stream = dial(target.address);
        // Idle, greeted and silent, half a greeting.
        match index % 3 {
            0 => {}
            1 => stream.write_all(&greeting()).expect("the target listens"),
            _ => stream
                .write_all(&greeting()[..60])
                .expect("the target listens"),
        }
        connections.push(stream);
        if index % 400 == 399 {
            is_served(target.address, (index / 400) as u8);
        }
    }
    assert!(target.descriptors() > baseline);
    let grown = target.rss_kib().saturating_sub(before);
    assert!(grown < 100 << 10, "{grown} KiB for 2,000 connections");
    // Half of them leave, the others are closed since they say nothing.
    connections.truncate(1000);
    is_served(target.address, 9);
    target.await_descriptors(baseline);
    is_served(target.address, 10);
}

#[test]
fn a_slow_writer_and_one_that_never_reads_hold_up_no_other() {
    let target = Target::start();
    let (_admin, cntlid) = Client::admin(target.address);
    let mut deaf = Client::io(target.address, cntlid, 1);
    for slba in 0..30 {
        let command = Command::read(1, slba * 16, 256, SglDescriptor::transport(1 << 20));
        deaf.send(command, &[]);
    }
    let address = target.address;
    let slow = std::thread::spawn(move || {
        let mut stream = dial(address);
        for byte in greeting() {
            stream.write_all(&[byte]).expect("the target listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut client = Client::over(stream);
        let (command, data) = connect(0, CNTLID_DYNAMIC);
        client.call(command, data.as_wire()).0.status()
    });
    let mut seed = 0;
    while !slow.is_finished() {
        is_served(target.address, seed);
        seed = (seed + 1) % 100;
    }
    assert!(slow.join().expect("no panic").is_success());
    // Who reads late gets everything.
    for _ in 0..30 {
        let (completion, data) = deaf.reply();
        assert!(completion.status().is_success() && data.len() == 1 << 20);
    }
}

/// Comes as far as `stage` says, and leaves without a word.
fn visit(target: &Target, stage: usize) {
    match stage % 5 {
        0 => drop(dial(target.address)),
        1 => drop(Client::greeted(target.address)),
        2 => drop(Client::admin(target.address)),
        3 => {
            let (_admin, cntlid) = Client::admin(target.address);
            let mut io = Client::io(target.address, cntlid, 1);
            // Commands on their way, an R2T without answer, half a capsule.
            io.send(
                Command::read(1, 0, 16, SglDescriptor::transport(65536)),
                &[],
            );
            io.send(
                Command::write(1, 0, 16, SglDescriptor::transport(65536)),
                &[],
            );
            let half = Command::write(1, 0, 4, SglDescriptor::in_capsule(16_384));
            let bytes = capsule(&half.with_cid(99), &[1; 16_384]);
            io.wire
                .stream
                .write_all(&bytes[..9000])
                .expect("the target listens");
        }
        _ => {
            let mut stream = dial(target.address);
            stream
                .write_all(&greeting()[..100])
                .expect("the target listens");
        }
    }
}

#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    let target = Target::start();
    let baseline = target.descriptors();
    let come_and_go = |visits: usize| {
        for stage in 0..visits {
            visit(&target, stage);
            // A target that gets no processor falls behind, and what so many connections at a time need
            // is memory that an allocator keeps.
            if stage % 32 == 0 {
                target.await_descriptors(baseline + 32);
            }
        }
        target.await_descriptors(baseline);
    };
    let grows_by = |visits: usize| {
        let before = target.rss_kib();
        come_and_go(visits);
        target.rss_kib().saturating_sub(before)
    };
    grows_by(300);
    let visits = rounds(2000, 10_000) / 4;
    let grown: Vec<u64> = (0..4).map(|_| grows_by(visits)).collect();
    // How many came at a time is the scheduler's choice, and the most of it stays with the allocator: that is
    // once. What a visit leaves behind grows in each quarter.
    let least = *grown.iter().min().expect("four");
    assert!(least < 256, "{grown:?} KiB more in each {visits} visits");
    is_served(target.address, 1);
}

/// Numbers from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Whole capsules with some bits turned over.
fn bent(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for cid in 0..random.below(8) as u16 {
        let opcode = random.below(16) as u8;
        let length = random.below(9) as usize * 512;
        let mut command = Command::new(opcode, 1).with_cid(cid);
        command.sgl1 = SglDescriptor::in_capsule(length as u32);
        bytes.extend(capsule(&command, &vec![cid as u8; length]));
    }
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len().max(1) as u64) as usize;
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
    }
    bytes
}

/// Sends nonsense at one stage of a connection, and reads until the target ends it or is silent.
fn nonsense(target: &Target, seed: u64) {
    let mut random = Random(seed | 1);
    let stage = random.below(4);
    let mut keep = None;
    let mut stream = match stage {
        0 => dial(target.address),
        1 => Client::greeted(target.address).wire.stream,
        2 => Client::admin(target.address).0.wire.stream,
        _ => {
            let (admin, cntlid) = Client::admin(target.address);
            keep = Some(admin);
            Client::io(target.address, cntlid, 1).wire.stream
        }
    };
    let bytes = match random.below(3) {
        0 => {
            let count = random.below(2000) as usize;
            random.bytes(count)
        }
        1 => {
            let mut bytes = vec![random.below(10) as u8, random.below(4) as u8, 72, 72];
            bytes.extend((random.below(70_000) as u32).to_le_bytes());
            let count = random.below(3000) as usize;
            bytes.extend(random.bytes(count));
            bytes
        }
        _ => bent(&mut random),
    };
    // The target may have ended it before all is sent.
    let _ = stream.write_all(&bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut sink = [0; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("seed {seed}: the target neither answers nor ends")
            }
            Err(_) => break,
        }
    }
    drop(keep);
}

#[test]
fn nonsense_ends_a_connection_and_nothing_else() {
    let target = Target::start();
    let baseline = target.descriptors();
    let first = std::process::id() as u64 * 1_000_003;
    println!("seeds from {first}");
    for seed in first..first + rounds(1500, 30_000) as u64 {
        nonsense(&target, seed);
    }
    is_served(target.address, 5);
    target.await_descriptors(baseline);
    is_served(target.address, 6);
}
