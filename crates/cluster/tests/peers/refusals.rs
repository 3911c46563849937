use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use ashlar_cluster::{Cluster, ClusterConfig, Memory};
use ashlar_replica::VolumeId;

use crate::rig::{B, LONG, address, config, dial, ear, key, start, until};

/// What node a hears of node b.
fn refused(a: &ClusterConfig, b: &ClusterConfig) -> String {
    let (a, b) = (start(a, "a"), start(b, "b"));
    let (local, heard) = ear();
    b.serve(local);
    let why = dial(&a, B, VolumeId(1)).expect_err("refused");
    assert!(heard.try_recv().is_err(), "nothing was done for it");
    let peer = a.status().peers.remove(0);
    assert!(!peer.reachable);
    assert_eq!(peer.problem.as_ref(), Some(&why));
    why
}

#[test]
fn who_does_not_belong_is_refused_with_the_reason_and_the_next_step() {
    let says = |why: &str, words: [&str; 2]| {
        for word in words {
            assert!(why.contains(word), "{why}");
        }
    };
    let memory = Memory::default();
    let one = config(&memory, &["a", "b"]);
    let mut other = one.clone();
    other.trust = key(2);
    says(&refused(&one, &other), ["another key", "key_file"]);

    let one = config(&Memory::default(), &["a", "b"]);
    let mut other = one.clone();
    other.quorum = ashlar_cluster::QuorumConfig::memory();
    says(&refused(&one, &other), ["another cluster", "quorum"]);

    let memory = Memory::default();
    let one = config(&memory, &["a", "b"]);
    let mut other = one.clone();
    other.nodes[0].name = "z".into();
    says(
        &refused(&one, &other),
        ["does not know node a", "copy the same"],
    );

    // What a takes for the address of b is c's.
    let memory = Memory::default();
    let three = config(&memory, &["a", "b", "c"]);
    let mut wrong = three.clone();
    wrong.nodes[1].replication = three.nodes[2].replication;
    wrong.nodes[2].replication = address();
    let (a, c) = (start(&wrong, "a"), start(&three, "c"));
    let why = dial(&a, B, VolumeId(1)).expect_err("wrong node");
    says(&why, ["is the address of node c", "correct `replication`"]);
    drop(c);

    let two = config(&Memory::default(), &["a", "b"]);
    let why = dial(&start(&two, "a"), B, VolumeId(1)).expect_err("not there");
    says(&why, ["node b at", "cannot be reached"]);
}

/// A listener that answers anything with these bytes.
fn answers(at: SocketAddr, bytes: Vec<u8>) {
    let listener = std::net::TcpListener::bind(at).expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut hello = [0; 96];
            stream.read_exact(&mut hello).expect("a hello");
            // It may be gone already.
            let _ = stream.write_all(&bytes);
        }
    });
}

#[test]
fn what_is_no_node_or_another_version_is_told_apart() {
    let mut newer = b"ASHP".to_vec();
    newer.extend([9, 0, 0, 2]);
    let mut unknown = b"ASHP".to_vec();
    unknown.extend([4, 0, 77, 0]);
    unknown.resize(96, 0);
    for (bytes, word) in [
        (b"HTTP/1.1 400 Bad Request".to_vec(), "no node of Ashlar"),
        (
            newer,
            "versions 7 to 9 of the protocol between nodes, this one (a) versions 4 to 6",
        ),
        (unknown, "reason 77"),
        (Vec::new(), "closed the connection"),
    ] {
        let config = config(&Memory::default(), &["a", "b"]);
        answers(config.nodes[1].replication, bytes);
        let a = start(&config, "a");
        let why = dial(&a, B, VolumeId(1)).expect_err("refused");
        assert!(why.contains(word), "{why}");
    }
}

fn answer_to(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).expect("connected");
    stream.write_all(bytes).expect("sent");
    let mut answer = Vec::new();
    stream.set_read_timeout(Some(LONG)).expect("an option");
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn serving() -> (ClusterConfig, Cluster, Cluster) {
    let config = config(&Memory::default(), &["a", "b"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    b.serve(ear().0);
    (config, a, b)
}

#[test]
fn strangers_get_nothing_and_stop_no_node() {
    let (config, a, b) = serving();
    let at = config.nodes[1].replication;
    assert_eq!(
        answer_to(at, b"GET / HTTP/1.1\r\n\r\n"),
        b"",
        "another protocol"
    );
    let mut newer = [0; 96];
    newer[..8].copy_from_slice(b"ASHP\x07\0\x01\0");
    let answer = answer_to(at, &newer);
    assert_eq!(
        answer[..8],
        *b"ASHP\x06\0\x01\x02",
        "its version, and that it is why"
    );
    newer[7] = 1;
    assert_eq!(
        answer_to(at, &newer)[6],
        2,
        "it speaks ours, too; of no cluster"
    );
    // Those who say nothing are let go of; until then they have places of their own.
    let silent: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(at).expect("connected"))
        .collect();
    dial(&a, B, VolumeId(1)).expect("a node has its place");
    for mut stream in silent {
        stream.set_read_timeout(Some(LONG)).expect("an option");
        // Most say nothing, and end; those that were too many may be told so.
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let in_time = ended.map_or_else(
            |error| error.kind() != std::io::ErrorKind::WouldBlock,
            |_| true,
        );
        assert!(in_time && (rest.is_empty() || rest[6] == 6));
    }
    drop(b);
}

#[test]
fn noise_at_the_port_is_refused_and_nothing_breaks() {
    let (config, a, _b) = serving();
    let at = config.nodes[1].replication;
    // From a fixed seed: a hello with bytes changed, cut, or followed by noise.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let mut bytes = vec![0; 96 + (random() % 80) as usize];
        for byte in &mut bytes {
            *byte = random() as u8;
        }
        let right = (random() % 9) as usize;
        bytes[..right.min(8)].copy_from_slice(&b"ASHP\x01\0\x01\0"[..right.min(8)]);
        bytes.truncate(random() as usize % (bytes.len() + 1));
        let mut stream = TcpStream::connect(at).expect("connected");
        // It may have been closed meanwhile.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    dial(&a, B, VolumeId(1)).expect("it lives");
    until("it is seen", || a.status().peers[0].reachable);
}
