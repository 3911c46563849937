//! A stranger on a raw socket, who says what no host of ours would.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use ashlar_nvme::Command;
use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::fabrics::{Connect, ConnectData};
use ashlar_nvme::pdu::{self, Digests, Framing, IcReq};
use ashlar_nvme_target::server::Server;

use crate::disk::{Disk, Door};
use crate::rig::{Rig, export, serve, serve_on, stop};

const NQN: &str = "nqn.2024-01.com.example:hostile";
const IC_RESP_BYTES: usize = 128;
/// Of a response capsule without digests, and where its status is.
const RESPONSE_BYTES: usize = 24;
const STATUS_AT: usize = 22;
/// Most that a capsule may carry before Connect.
const CAPSULE_DATA: usize = 8192;

struct Stranger(TcpStream);

impl Stranger {
    /// Says hello, and is heard.
    fn greet(server: &Server) -> Self {
        let mut socket = TcpStream::connect(server.address()).expect("accepted");
        let limit = Some(Duration::from_secs(20));
        socket.set_read_timeout(limit).expect("a socket");
        let mut hello = Vec::new();
        IcReq {
            hpda: 0,
            digests: Digests::NONE,
            maxr2t: 0,
        }
        .encode(&mut hello);
        socket.write_all(&hello).expect("sent");
        socket.read_exact(&mut [0; IC_RESP_BYTES]).expect("heard");
        Self(socket)
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("sent");
    }

    /// All of so many commands are refused.
    fn hear_refusals(&mut self, count: usize) {
        for at in 0..count {
            let mut response = [0; RESPONSE_BYTES];
            let heard = self.0.read_exact(&mut response);
            assert!(heard.is_ok(), "answer {at} of {count}: {heard:?}");
            let status = [response[STATUS_AT], response[STATUS_AT + 1]];
            assert_ne!(u16::from_le_bytes(status) >> 1, 0, "{at}");
        }
    }
}

fn capsule(command: &Command, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pdu::capsule_cmd(&mut bytes, Framing::PLAIN, command, data.len() as u32);
    bytes.extend_from_slice(data);
    bytes
}

/// Connect of an I/O queue to a subsystem that there is not.
fn wrong_connect() -> Vec<u8> {
    let parameters = Connect {
        record_format: 0,
        qid: 1,
        sqsize: 31,
        attributes: 0,
        keep_alive_ms: 0,
    };
    let data = ConnectData::new([7; 16], 1, "nqn.2024-01.com.example:none", "nqn.test:h");
    capsule(&Command::connect(parameters), data.as_wire())
}

/// Commands that are refused one by one before Connect.
fn early_writes(count: usize) -> Vec<u8> {
    let sgl = SglDescriptor::in_capsule(CAPSULE_DATA as u32);
    let write = Command::write(1, 0, 2, sgl);
    capsule(&write, &[0; CAPSULE_DATA]).repeat(count)
}

/// Makes a connection's memory grow by much that is refused, between Connects that are refused.
fn insist(server: &Server, between: impl FnOnce()) {
    let mut stranger = Stranger::greet(server);
    stranger.say(&wrong_connect());
    stranger.hear_refusals(1);
    for _ in 0..4 {
        stranger.say(&early_writes(16));
        stranger.hear_refusals(16);
    }
    between();
    for _ in 0..2 {
        stranger.say(&[wrong_connect(), early_writes(12)].concat());
        stranger.hear_refusals(13);
    }
}

fn is_served(server: &Server) {
    let mut rig = Rig::connect(server, NQN, "").expect("another host gets in");
    rig.write(1, 7);
    rig.check(1, 7);
}

fn add(server: &Server) {
    let door = Arc::new(Door(Disk::new(64)));
    server.add(export(NQN, door)).expect("added");
}

#[test]
fn a_stranger_who_connects_again_after_much_that_was_refused_ends_nothing() {
    let server = serve_on(1);
    add(&server);
    insist(&server, || {});
    is_served(&server);
    stop(server);
}

#[test]
fn neither_does_one_who_moves_to_another_core() {
    let server = serve();
    add(&server);
    // While this host's queue is on the last core, the stranger's is placed on the first.
    let other = Rig::connect(&server, NQN, "").expect("connected");
    insist(&server, || {
        drop(other);
        std::thread::sleep(Duration::from_millis(100));
    });
    is_served(&server);
    stop(server);
}
