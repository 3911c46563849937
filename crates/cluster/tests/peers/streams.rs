use std::io::{Read, Write};
use std::net::TcpStream;

use ashlar_cluster::{Memory, volume_id};
use ashlar_replica::VolumeId;
use uuid::Uuid;

use crate::rig::{A, B, Heard, LONG, config, dial, ear, start, until};

#[test]
fn a_connection_is_handed_on_as_it_is_with_the_first_byte_unread() {
    let config = config(&Memory::default(), &["a", "b"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    let (local, heard) = ear();
    b.serve(local);
    let volume = volume_id(Uuid::from_u128(0xFFFF_0000_0000_0000_0000_0000_0000_0009));
    assert_eq!(volume, VolumeId(9));
    let mut ours = TcpStream::from(dial(&a, B, volume).expect("let in").fd);
    let Heard::Accepted(A, VolumeId(9), theirs) = heard.recv_timeout(LONG).expect("heard") else {
        panic!("not that");
    };
    let mut theirs = TcpStream::from(theirs.fd);
    for stream in [&mut ours, &mut theirs] {
        assert!(stream.nodelay().expect("an option"));
        let nothing = stream.read(&mut [0]).expect_err("it does not block");
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        stream.set_nonblocking(false).expect("blocking");
    }
    ours.write_all(b"there").expect("sent");
    theirs.write_all(b"back").expect("sent");
    let mut text = [0; 5];
    theirs.read_exact(&mut text).expect("received");
    assert_eq!(&text, b"there");
    ours.read_exact(&mut text[..4]).expect("received");
    assert_eq!(&text[..4], b"back");
    let seen = b.status().peers.remove(0);
    assert_eq!(seen.incarnation, Some(a.incarnation()));
    until("both see each other", || {
        a.status().peers[0].reachable && b.status().peers[0].reachable
    });
}

#[test]
fn many_at_once_are_all_let_in() {
    let config = config(&Memory::default(), &["a", "b"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    let (local, heard) = ear();
    b.serve(local);
    let (send, dialled) = std::sync::mpsc::channel();
    for volume in 0..200 {
        let send = send.clone();
        a.dial(B, VolumeId(volume), move |dialled| {
            send.send(dialled).expect("the test waits");
        });
    }
    for _ in 0..200 {
        let dialled = dialled.recv_timeout(LONG).expect("delivered");
        dialled.expect("let in");
        heard.recv_timeout(LONG).expect("accepted");
    }
}

#[test]
fn a_panic_behind_a_connection_ends_that_connection_only() {
    let config = config(&Memory::default(), &["a", "b"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    let (local, heard) = ear();
    b.serve(local);
    let mut stream = TcpStream::from(dial(&a, B, VolumeId(u64::MAX)).expect("let in").fd);
    stream.set_nonblocking(false).expect("blocking");
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "closed");
    dial(&a, B, VolumeId(1)).expect("let in");
    assert!(matches!(heard.recv_timeout(LONG), Ok(Heard::Accepted(..))));
}
