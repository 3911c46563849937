use std::time::Duration;

use ashlar_block::{Gather, Moment};
use ashlar_nvme::Status;
use ashlar_nvme::command::DataPointer;
use ashlar_nvme::pdu::{FatalStatus, Framing};
use proptest::prelude::*;

use super::*;
use crate::scripted::{Flags, Peer, buffer};

const TIMEOUT: Duration = Duration::from_secs(5);

fn at(seconds: u64) -> Moment {
    Moment::ORIGIN + Duration::from_secs(seconds)
}

fn settings(digests: Digests) -> Settings {
    Settings {
        digests,
        depth: 8,
        timeout: TIMEOUT,
        in_capsule: 4096,
        admin: false,
    }
}

fn open(digests: Digests) -> (QueuePair, Peer) {
    let mut pair = QueuePair::new(Moment::ORIGIN, settings(digests));
    let mut peer = Peer::new();
    peer.grant = Some(digests);
    peer.exchange(&mut pair);
    assert_eq!(pair.failure(), None);
    (pair, peer)
}

fn read(pair: &mut QueuePair, user: u64, bytes: usize) {
    let command = Command::read(1, 0, 1, SglDescriptor::transport(0));
    submit(pair, user, command, Data::ToHost(buffer(bytes, 0)));
}

fn write(pair: &mut QueuePair, user: u64, bytes: usize) {
    let command = Command::write(1, 0, 1, SglDescriptor::transport(0));
    submit(
        pair,
        user,
        command,
        Data::ToController(buffer(bytes, user as u8)),
    );
}

fn submit(pair: &mut QueuePair, user: u64, command: Command, data: Data) {
    let submission = Submission {
        user,
        command,
        data,
        timed: true,
    };
    pair.submit(Moment::ORIGIN, submission).expect("room");
}

fn next_cid(peer: &mut Peer) -> u16 {
    peer.commands.pop_front().expect("a command").0.cid.get()
}

fn status(finished: &Finished) -> Status {
    match finished.outcome {
        Outcome::Answered(completion) => completion.status(),
        Outcome::Lost { .. } => panic!("lost"),
    }
}

/// Sends what the peer has to say and expects the connection to fail for it.
fn violates(pair: &mut QueuePair, peer: &mut Peer, word: &str) -> FatalStatus {
    peer.exchange(pair);
    let failure = pair.failure().cloned().expect("a violation");
    assert!(failure.to_string().contains(word), "{failure}");
    let Failure::Protocol { fatal, .. } = failure else {
        panic!("{failure} is not a violation");
    };
    let told = peer.terminated.expect("a terminate request");
    assert_eq!(told.status(), Some(fatal.status));
    fatal.status
}

#[test]
fn a_small_write_goes_in_the_capsule() {
    for digests in [Digests::NONE, Digests::BOTH] {
        let (mut pair, mut peer) = open(digests);
        write(&mut pair, 9, 4096);
        peer.exchange(&mut pair);
        let (command, data) = peer.commands.pop_front().expect("a command");
        let pointer = DataPointer::InCapsule {
            offset: 0,
            length: 4096,
        };
        assert_eq!((command.data(), data), (pointer, vec![9; 4096]));
        assert!(pair.finished().is_none());
        peer.complete(command.cid.get(), Status::SUCCESS);
        peer.exchange(&mut pair);
        let finished = pair.finished().expect("finished");
        assert_eq!((finished.user, status(&finished)), (9, Status::SUCCESS));
        assert_eq!(finished.buffer.map(|buffer| buffer.len()), Some(4096));
        assert_eq!(pair.outstanding(), 0);
    }
}

#[test]
fn a_large_write_waits_for_r2ts_and_respects_maxh2cdata() {
    for digests in [Digests::NONE, Digests::BOTH] {
        let (mut pair, mut peer) = open(digests);
        write(&mut pair, 5, 20_000);
        peer.exchange(&mut pair);
        let cid = next_cid(&mut peer);
        assert!(peer.data.is_empty());
        let mut received = Vec::new();
        for (offset, length) in [(0, 12_000), (12_000, 8_000)] {
            peer.r2t(cid, offset, length);
            peer.exchange(&mut pair);
            let pieces: Vec<_> = peer.data.drain(..).collect();
            assert!(
                pieces
                    .iter()
                    .all(|(header, data)| header.ttag == 7 && data.len() <= 4096)
            );
            let mut lasts = pieces.iter().map(|(header, _)| header.last);
            assert_eq!(lasts.clone().filter(|&last| last).count(), 1);
            assert_eq!(lasts.next_back(), Some(true));
            received.extend(pieces.into_iter().flat_map(|(_, data)| data));
        }
        assert_eq!(received, vec![5; 20_000]);
        peer.complete(cid, Status::SUCCESS);
        peer.exchange(&mut pair);
        assert_eq!(pair.finished().map(|finished| finished.user), Some(5));
    }
}

#[test]
fn a_read_arrives_in_pieces_split_anywhere() {
    for digests in [Digests::NONE, Digests::BOTH] {
        for cut in [1, 7, 24, 100, 5000, 50_000] {
            let (mut pair, mut peer) = open(digests);
            read(&mut pair, 3, 12_288);
            peer.exchange(&mut pair);
            let cid = next_cid(&mut peer);
            peer.send(cid, 0, &[1; 4096], Flags::NONE);
            peer.send(cid, 4096, &[2; 8192], Flags::SUCCESS);
            for piece in peer.take().chunks(cut) {
                pair.receive(piece);
            }
            let finished = pair.finished().expect("finished");
            let data = finished.buffer.expect("buffer");
            assert!(data[..4096].iter().all(|&b| b == 1) && data[4096..].iter().all(|&b| b == 2));
        }
    }
}

#[test]
fn a_payload_is_received_in_place() {
    for digests in [Digests::NONE, Digests::BOTH] {
        let (mut pair, mut peer) = open(digests);
        read(&mut pair, 3, 65_536);
        peer.exchange(&mut pair);
        let cid = next_cid(&mut peer);
        peer.send(cid, 0, &[6; 65_536], Flags::LAST);
        peer.complete(cid, Status::SUCCESS);
        let bytes = peer.take();
        pair.receive(&bytes[..1000]);
        let header = 1000 - if digests.header { 28 } else { 24 };
        assert!(pair.direct(65_536).is_none(), "less than that is missing");
        let (mut buffer, range) = pair.direct(8192).expect("a destination");
        assert_eq!(range, header..65_536);
        // Half of it, then the rest together with what follows.
        buffer[range.start..40_000].fill(6);
        let half = 40_000 - range.start;
        pair.direct_done(buffer, half);
        pair.receive(&[]);
        let (mut buffer, range) = pair.direct(1).expect("the rest");
        assert_eq!(range, 40_000..65_536);
        buffer[range.clone()].fill(6);
        pair.direct_done(buffer, range.len());
        pair.receive(&bytes[1000 + half + range.len()..]);
        let finished = pair.finished().expect("finished");
        assert_eq!(status(&finished), Status::SUCCESS);
        assert!(
            finished
                .buffer
                .expect("buffer")
                .iter()
                .all(|&byte| byte == 6)
        );
    }
}

#[test]
fn a_completion_waits_for_the_buffer_to_come_home() {
    let (mut pair, mut peer) = open(Digests::NONE);
    write(&mut pair, 1, 512);
    let mut batch = Gather::default();
    pair.transmit(&mut batch);
    let sent: Vec<u8> = batch.chunks().flatten().copied().collect();
    peer.feed(&sent);
    let cid = next_cid(&mut peer);
    peer.complete(cid, Status::SUCCESS);
    pair.receive(&peer.take());
    assert!(pair.finished().is_none(), "the batch still has the buffer");
    write(&mut pair, 2, 512);
    let mut second = Gather::default();
    pair.transmit(&mut second);
    assert!(second.is_empty(), "one batch at a time");
    pair.sent(&mut batch);
    assert!(pair.finished().expect("now").buffer.is_some());
    pair.transmit(&mut second);
    assert!(!second.is_empty());
}

#[test]
fn bad_r2ts_end_the_connection() {
    use FatalStatus::{DataTransferLimitExceeded, DataTransferOutOfRange, InvalidHeaderField};
    type Case = (&'static [(u32, u32)], &'static str, FatalStatus);
    let cases: [Case; 4] = [
        (&[(0, 20_001)], "R2T beyond", DataTransferOutOfRange),
        (&[(4096, 4096)], "R2T out of order", DataTransferOutOfRange),
        (
            &[(0, 4096), (4096, 4096)],
            "second R2T",
            DataTransferLimitExceeded,
        ),
        (&[(u32::MAX, 2)], "malformed", DataTransferOutOfRange),
    ];
    for (requests, word, expected) in cases {
        let (mut pair, mut peer) = open(Digests::NONE);
        write(&mut pair, 1, 20_000);
        peer.exchange(&mut pair);
        let cid = next_cid(&mut peer);
        for &(offset, length) in requests {
            peer.r2t(cid, offset, length);
        }
        assert_eq!(violates(&mut pair, &mut peer, word), expected);
        let mut lost = Vec::new();
        pair.abandon(|finished| lost.push(finished));
        assert_eq!(lost[0].outcome, Outcome::Lost { sent: true });
        assert_eq!(
            lost[0].buffer.as_ref().map(|b| (b.len(), b[0])),
            Some((20_000, 1))
        );
    }
    let (mut pair, mut peer) = open(Digests::NONE);
    write(&mut pair, 1, 20_000);
    peer.exchange(&mut pair);
    let cid = next_cid(&mut peer);
    peer.r2t(cid, 0, 0);
    assert_eq!(
        violates(&mut pair, &mut peer, "malformed"),
        InvalidHeaderField
    );
}

#[test]
fn r2ts_for_what_has_no_data_to_send_end_the_connection() {
    let (mut pair, mut peer) = open(Digests::NONE);
    read(&mut pair, 1, 4096);
    peer.exchange(&mut pair);
    let cid = next_cid(&mut peer);
    peer.r2t(cid, 0, 4096);
    violates(&mut pair, &mut peer, "without data to send");
    let (mut pair, mut peer) = open(Digests::NONE);
    write(&mut pair, 1, 4096);
    peer.exchange(&mut pair);
    let cid = next_cid(&mut peer);
    peer.r2t(cid, 0, 4096);
    violates(&mut pair, &mut peer, "without data to send");
}

#[test]
fn bad_data_ends_the_connection() {
    let bad = |word: &str, script: fn(&mut Peer, u16)| {
        let (mut pair, mut peer) = open(Digests::NONE);
        read(&mut pair, 1, 8192);
        peer.exchange(&mut pair);
        let cid = next_cid(&mut peer);
        script(&mut peer, cid);
        violates(&mut pair, &mut peer, word)
    };
    bad("beyond the request", |peer, cid| {
        peer.send(cid, 0, &[0; 8196], Flags::LAST)
    });
    bad("out of order", |peer, cid| {
        peer.send(cid, 4096, &[0; 4096], Flags::LAST)
    });
    bad("no command", |peer, cid| {
        peer.send(cid ^ 1, 0, &[0; 4096], Flags::NONE)
    });
    bad("no command", |peer, cid| {
        peer.complete(cid.wrapping_add(0x100), Status::SUCCESS)
    });
    bad("too little data", |peer, cid| {
        peer.complete(cid, Status::SUCCESS)
    });
    bad("too little data", |peer, cid| {
        peer.send(cid, 0, &[0; 4096], Flags::SUCCESS)
    });
    bad("after the last data", |peer, cid| {
        peer.send(cid, 0, &[0; 4096], Flags::LAST);
        peer.send(cid, 4096, &[0; 4096], Flags::LAST);
    });
    bad("no command", |peer, cid| {
        peer.send(cid, 0, &[0; 8192], Flags::SUCCESS);
        peer.complete(cid, Status::SUCCESS);
    });
    bad("malformed", |peer, cid| {
        // SUCCESS without LAST.
        peer.send(cid, 0, &[0; 8192], Flags::SUCCESS);
        let mut bytes = peer.take();
        bytes[1] = ashlar_nvme::pdu::flags::SUCCESS;
        peer.raw(&bytes);
    });
    bad("malformed", |peer, cid| {
        let mut bytes = Vec::new();
        let completion = Completion::new(cid, Status::SUCCESS);
        ashlar_nvme::pdu::capsule_resp(&mut bytes, Framing::PLAIN, &completion);
        bytes[4] = 23; // PLEN shorter than the header.
        peer.raw(&bytes);
    });
}

#[test]
fn a_write_must_take_its_data_before_it_succeeds_but_may_fail_at_any_time() {
    let (mut pair, mut peer) = open(Digests::NONE);
    write(&mut pair, 1, 20_000);
    peer.exchange(&mut pair);
    let cid = next_cid(&mut peer);
    peer.complete(cid, Status::SUCCESS);
    violates(&mut pair, &mut peer, "took no data");

    let (mut pair, mut peer) = open(Digests::NONE);
    write(&mut pair, 1, 20_000);
    peer.exchange(&mut pair);
    let cid = next_cid(&mut peer);
    peer.complete(cid, Status::WRITE_FAULT);
    peer.exchange(&mut pair);
    assert_eq!(
        status(&pair.finished().expect("finished")),
        Status::WRITE_FAULT
    );
    assert_eq!(pair.failure(), None);
}

#[test]
fn a_bad_data_digest_fails_the_command_and_a_bad_header_digest_the_connection() {
    let (mut pair, mut peer) = open(Digests::BOTH);
    read(&mut pair, 1, 4096);
    peer.exchange(&mut pair);
    let cid = next_cid(&mut peer);
    peer.send(cid, 0, &[3; 4096], Flags::SUCCESS);
    let mut bytes = peer.take();
    *bytes.last_mut().expect("digest") ^= 1;
    pair.receive(&bytes);
    let finished = pair.finished().expect("finished");
    assert_eq!(status(&finished), Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(pair.failure(), None, "the connection goes on");

    read(&mut pair, 2, 4096);
    peer.exchange(&mut pair);
    let cid = next_cid(&mut peer);
    peer.send(cid, 0, &[3; 4096], Flags::SUCCESS);
    let mut bytes = peer.take();
    bytes[12] ^= 1;
    peer.raw(&bytes);
    let told = violates(&mut pair, &mut peer, "Header Digest");
    assert_eq!(told, FatalStatus::HeaderDigestError);
}

#[test]
fn digests_that_are_not_granted_or_not_asked_for_are_refused() {
    let mut pair = QueuePair::new(Moment::ORIGIN, settings(Digests::BOTH));
    let mut peer = Peer::new();
    peer.exchange(&mut pair);
    let failure = pair.failure().expect("refused");
    assert!(matches!(failure, Failure::Unusable(_)) && !failure.may_pass());

    let mut pair = QueuePair::new(Moment::ORIGIN, settings(Digests::NONE));
    let mut peer = Peer::new();
    peer.grant = Some(Digests::BOTH);
    let mut out = Gather::default();
    pair.transmit(&mut out);
    let sent: Vec<u8> = out.chunks().flatten().copied().collect();
    peer.feed(&sent);
    pair.receive(&peer.take());
    assert!(
        pair.failure()
            .is_some_and(|f| f.to_string().contains("not asked for"))
    );
}

#[test]
fn a_terminate_request_is_named() {
    let (mut pair, mut peer) = open(Digests::NONE);
    let mut bytes = Vec::new();
    let fatal = Fatal::at(FatalStatus::InvalidHeaderField, 8);
    ashlar_nvme::pdu::term_req(&mut bytes, Role::Controller, fatal, &[1, 2, 3]);
    peer.raw(&bytes);
    peer.exchange(&mut pair);
    let failure = pair.failure().expect("terminated").to_string();
    assert!(
        failure.contains("terminated") && failure.contains("at byte 8"),
        "{failure}"
    );
    assert!(
        peer.terminated.is_none(),
        "a terminate request is not answered"
    );
}

#[test]
fn silence_is_noticed() {
    let mut pair = QueuePair::new(at(10), settings(Digests::NONE));
    let mut peer = Peer::new();
    peer.grant = None;
    peer.exchange(&mut pair);
    assert_eq!(pair.next_deadline(), Some(at(15)));
    pair.check_time(at(14));
    assert_eq!(pair.failure(), None);
    pair.check_time(at(15));
    assert!(
        pair.failure()
            .is_some_and(|f| f.to_string().contains("initialize"))
    );

    let (mut pair, mut peer) = open(Digests::NONE);
    pair.check_time(at(5));
    assert_eq!(
        (pair.failure(), pair.next_deadline()),
        (None, None),
        "nothing is outstanding"
    );
    read(&mut pair, 1, 4096);
    peer.exchange(&mut pair);
    pair.check_time(at(4));
    assert_eq!(pair.failure(), None);
    pair.check_time(at(6));
    assert!(
        pair.failure()
            .is_some_and(|f| f.to_string().contains("Read within 5000 ms"))
    );
}

#[test]
fn a_queue_takes_no_more_than_its_depth() {
    let (mut pair, mut peer) = open(Digests::NONE);
    for user in 0..8 {
        read(&mut pair, user, 4096);
    }
    assert!(!pair.has_room());
    peer.exchange(&mut pair);
    assert_eq!(peer.commands.len(), 8);
    let cid = next_cid(&mut peer);
    peer.complete(cid, Status::INTERNAL_ERROR);
    peer.exchange(&mut pair);
    assert!(pair.has_room());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), cut in 1..64usize) {
        let mut pair = QueuePair::new(Moment::ORIGIN, settings(Digests::NONE));
        for piece in bytes.chunks(cut) {
            pair.receive(piece);
        }
        let (mut pair, mut peer) = open(Digests::NONE);
        read(&mut pair, 1, 4096);
        write(&mut pair, 2, 20_000);
        peer.exchange(&mut pair);
        for piece in bytes.chunks(cut) {
            pair.receive(piece);
        }
        pair.abandon(drop);
    }

    /// Nearly right PDUs get further than random bytes.
    #[test]
    fn no_pdu_makes_it_panic(
        steps in proptest::collection::vec((0..3u8, 0..3u16, 0..30_000u32, 0..30_000u32, any::<(bool, bool)>()), 1..12),
    ) {
        let (mut pair, mut peer) = open(Digests::NONE);
        read(&mut pair, 1, 8192);
        write(&mut pair, 2, 20_000);
        peer.exchange(&mut pair);
        let cids: Vec<u16> = peer.commands.drain(..).map(|(command, _)| command.cid.get()).collect();
        for (kind, which, offset, length, (last, success)) in steps {
            let cid = cids.get(usize::from(which)).copied().unwrap_or(999);
            match kind {
                0 => peer.r2t(cid, offset, length.max(1)),
                1 => peer.send(cid, offset, &vec![1; length.max(1) as usize], Flags { last, success }),
                _ => peer.complete(cid, if last { Status::SUCCESS } else { Status::INTERNAL_ERROR }),
            }
            peer.exchange(&mut pair);
        }
        let mut ended = 0;
        pair.abandon(|finished| {
            assert!(finished.buffer.is_some(), "every buffer comes back");
            ended += 1;
        });
        prop_assert_eq!(ended, 2);
    }
}
