//! What real initiators sent, given to the target again: it must answer byte for byte what it
//! answered then. See `golden/README.md`.

use std::path::Path;

use ashlar_block::{BlockSize, Geometry};
use ashlar_sim::Bench;

const NQN: &str = "nqn.2026-11.golden:one";

/// The recorded bytes of one connection.
struct Recording {
    host: Vec<u8>,
    controller: Vec<u8>,
}

fn recording(directory: &Path, number: u32) -> Option<Recording> {
    let read = |side: &str| std::fs::read(directory.join(format!("{number:02}.{side}.bin"))).ok();
    Some(Recording {
        host: read("host")?,
        controller: read("ctrl")?,
    })
}

/// The PDUs of a stream, by PLEN.
fn pdus(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut pdus = Vec::new();
    while stream.len() >= 8 {
        let length = u32::from_le_bytes(stream[4..8].try_into().expect("four bytes")) as usize;
        let (pdu, rest) = stream.split_at(length.min(stream.len()));
        pdus.push(pdu);
        stream = rest;
    }
    pdus
}

/// A capsule with Property Set: opcode 7Fh, FCTYPE 00h.
fn sets_property(pdu: &&[u8]) -> bool {
    pdu[0] == 4 && pdu[8] == 0x7f && pdu[12] == 0
}

/// The shape of `ashlar serve --device memory:16MiB`.
fn geometry() -> Geometry {
    Geometry {
        atomic_blocks: 64,
        deallocates: true,
        ..Geometry::plain(BlockSize::B4096, 4096)
    }
}

fn replay(name: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name);
    let admin = recording(&directory, 1).expect("the admin connection's recording");
    let mut bench = Bench::new(NQN, geometry());
    let line = bench.accept();
    let admin_pdus = pdus(&admin.host);
    // The I/O queue lives between bring-up and the last Property Set, the shutdown.
    let last = admin_pdus
        .iter()
        .rposition(sets_property)
        .unwrap_or(admin_pdus.len());
    admin_pdus[..last]
        .iter()
        .for_each(|pdu| bench.receive(line, pdu));
    if let Some(io) = recording(&directory, 2) {
        let line = bench.accept();
        pdus(&io.host)
            .iter()
            .for_each(|pdu| bench.receive(line, pdu));
        same(name, "I/O", &bench.output(line), &io.controller);
        bench.close(line);
    }
    admin_pdus[last..]
        .iter()
        .for_each(|pdu| bench.receive(line, pdu));
    same(name, "admin", &bench.output(line), &admin.controller);
    bench.finish();
}

fn same(name: &str, queue: &str, now: &[u8], then: &[u8]) {
    let (now_pdus, then_pdus) = (pdus(now), pdus(then));
    for (index, (now, then)) in now_pdus.iter().zip(&then_pdus).enumerate() {
        if now != then {
            let differs = |at: &usize| now.get(*at) != then.get(*at);
            let at: Vec<usize> = (0..now.len().max(then.len()))
                .filter(differs)
                .take(20)
                .collect();
            panic!(
                "{name} {queue}: PDU {index} (type {}) differs at {at:?}",
                then[0]
            );
        }
    }
    assert_eq!(now_pdus.len(), then_pdus.len(), "{name} {queue}: PDUs");
    assert_eq!(now, then, "{name} {queue}");
}

#[test]
fn spdk_reads() {
    replay("spdk-read");
}

#[test]
fn spdk_writes() {
    replay("spdk-write");
}

#[test]
fn spdk_reads_and_writes_with_digests() {
    replay("spdk-digests");
}

#[test]
fn spdk_identifies() {
    replay("spdk-identify");
}
