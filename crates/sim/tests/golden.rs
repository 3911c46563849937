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

/// An Identify Controller page on a connection, if it is one of an I/O controller, tells which number
/// its controller had in the run of the target (CIRN).
fn controller_number(recording: &Recording) -> Option<u64> {
    const HEAD: usize = 24;
    let pages = pdus(&recording.controller);
    let numbers = pages.into_iter().filter_map(|pdu| {
        // C2HData with 4 KiB, behind its header and that header's digest; SUBNQN is at 768.
        let digest = if pdu[0] == 7 && pdu[1] & 1 > 0 { 4 } else { 0 };
        let page = pdu.get(HEAD + digest..HEAD + digest + 4096)?;
        let ours = pdu[0] == 7 && page[768..].starts_with(NQN.as_bytes());
        ours.then(|| u64::from_le_bytes(page[136..144].try_into().expect("eight bytes")))
    });
    numbers.into_iter().next()
}

/// Replays associations that came one after the other: the numbers of the connections of the admin
/// and, if there is one, of the I/O queue.
fn replay(name: &str, associations: &[(u32, Option<u32>)]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name);
    let recorded = |number| recording(&directory, number).expect("a recording");
    let numbers = associations
        .iter()
        .zip(0u64..)
        .find_map(|((admin, _), at)| Some(controller_number(&recorded(*admin))?.wrapping_sub(at)));
    let mut bench = Bench::new(NQN, geometry(), numbers.unwrap_or(0));
    for (admin, io) in associations {
        let label = format!("{name} {admin:02}");
        converse(&mut bench, &label, &recorded(*admin), io.map(recorded));
    }
    bench.finish();
}

fn converse(bench: &mut Bench, name: &str, admin: &Recording, io: Option<Recording>) {
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
    if let Some(io) = io {
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
    bench.close(line);
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
    replay("spdk-read", &[(1, Some(2))]);
}

#[test]
fn spdk_writes() {
    replay("spdk-write", &[(1, Some(2))]);
}

#[test]
fn spdk_reads_and_writes_with_digests() {
    replay("spdk-digests", &[(1, Some(2))]);
}

#[test]
fn spdk_identifies() {
    replay("spdk-identify", &[(1, None)]);
}

#[test]
fn linux_discovers_connects_reads_and_writes() {
    let plain = (2, Some(3));
    let digests = (4, Some(5));
    replay("linux-6.12", &[(1, None), plain, digests, (6, None)]);
}
