//! A host of the target that these tests serve.

use std::net::SocketAddr;

use ashlar_nvme::Command;
use ashlar_nvme::fabrics::ConnectData;

use crate::host::{Who, connect_as};
use crate::process::NQN;

pub use crate::host::{Client, capsule, dial, greeting};

pub const HOST: &str = "nqn.2024-01.com.example:client";

fn who() -> Who {
    Who {
        subsystem: NQN.into(),
        nqn: HOST.into(),
        id: [3; 16],
    }
}

/// Connect for a queue of 32 entries, with its data.
pub fn connect(qid: u16, cntlid: u16) -> (Command, ConnectData) {
    connect_as(&who(), qid, cntlid)
}

impl Client {
    /// An admin queue whose controller is enabled, and the controller's id.
    pub fn admin(address: SocketAddr) -> (Self, u16) {
        Self::admin_as(&who(), address)
    }

    /// An I/O queue.
    pub fn io(address: SocketAddr, cntlid: u16, qid: u16) -> Self {
        Self::io_as(&who(), address, cntlid, qid)
    }
}

/// Connects, writes, reads, and leaves: a host that is served.
pub fn is_served(address: SocketAddr, seed: u8) {
    let (_admin, cntlid) = Client::admin(address);
    let mut io = Client::io(address, cntlid, 1);
    let data: Vec<u8> = (0..16_384)
        .map(|i| (i as u8).wrapping_mul(7) ^ seed)
        .collect();
    let slba = u64::from(seed) * 4;
    assert!(io.write(slba, &data).is_success());
    assert!(io.read(slba, 16_384) == data, "what was written comes back");
}
