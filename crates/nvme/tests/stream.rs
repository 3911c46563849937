//! The receiver against every way a stream can be cut, read past, or broken.

use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::pdu::{self, DataDigest, Digests, Fatal, FatalStatus, Framing, Role};
use ashlar_nvme::stream::{Header, Limits, Pdu, Receiver, Step};
use ashlar_nvme::{Command, Completion, Status};
use proptest::prelude::*;

/// One PDU after the connection is open, in either direction.
#[derive(Debug, Clone)]
enum Sent {
    Command(Vec<u8>),
    H2cData(Vec<u8>, u16),
    C2hData(Vec<u8>, bool),
    Response(u16),
    R2t(u32),
    TermReq(Role, Vec<u8>),
}

impl Sent {
    fn payload(&self) -> &[u8] {
        match self {
            Self::Command(data) | Self::H2cData(data, _) | Self::C2hData(data, _) => data,
            Self::TermReq(_, header) => header,
            Self::Response(_) | Self::R2t(_) => &[],
        }
    }

    fn header(&self) -> Header {
        let length = self.payload().len() as u32;
        match self {
            Self::Command(_) => {
                let sgl1 = SglDescriptor::in_capsule(length);
                Header::CapsuleCmd(Command::write(1, 77, 8, sgl1).with_cid(5))
            }
            Self::H2cData(_, ttag) => Header::H2cData(pdu::H2cData {
                cid: 5,
                ttag: *ttag,
                offset: 4096,
                length,
                last: true,
            }),
            Self::C2hData(_, last) => Header::C2hData(pdu::C2hData {
                cid: 5,
                offset: 0,
                length,
                last: *last,
                success: *last,
            }),
            Self::Response(cid) => {
                Header::CapsuleResp(Completion::new(*cid, Status::INVALID_FIELD.with_dnr()))
            }
            Self::R2t(length) => Header::R2t(pdu::R2t {
                cid: 5,
                ttag: 6,
                offset: 8192,
                length: *length,
            }),
            Self::TermReq(role, _) => {
                let term = pdu::TermReq {
                    code: 1,
                    information: 3,
                };
                match role {
                    Role::Host => Header::H2cTermReq(term),
                    Role::Controller => Header::C2hTermReq(term),
                }
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>, framing: Framing) {
        let payload = self.payload();
        match self.header() {
            Header::CapsuleCmd(command) => {
                pdu::capsule_cmd(out, framing, &command, payload.len() as u32);
            }
            Header::CapsuleResp(completion) => pdu::capsule_resp(out, framing, &completion),
            Header::H2cData(data) => pdu::h2c_data(out, framing, &data),
            Header::C2hData(data) => pdu::c2h_data(out, framing, &data),
            Header::R2t(request) => pdu::r2t(out, framing, &request),
            Header::H2cTermReq(_) | Header::C2hTermReq(_) => {
                let Self::TermReq(role, header) = self else {
                    return;
                };
                let fatal = Fatal::at(FatalStatus::InvalidHeaderField, 3);
                return pdu::term_req(out, *role, fatal, header);
            }
            Header::IcReq(request) => request.encode(out),
            Header::IcResp(response) => response.encode(out),
        }
        if !payload.is_empty() {
            out.extend_from_slice(payload);
            if framing.digests.data {
                out.extend_from_slice(&DataDigest::of(payload));
            }
        }
    }
}

/// A step with its data gathered, so that streams cut differently can be compared.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Pdu(Pdu),
    Payload(Vec<u8>),
    End(bool),
    Fatal(Fatal),
}

fn note(seen: &mut Vec<Seen>, data: &[u8]) {
    if let Some(Seen::Payload(gathered)) = seen.last_mut() {
        gathered.extend_from_slice(data);
    } else {
        seen.push(Seen::Payload(data.to_vec()));
    }
}

/// Feeds `stream` in pieces of the given sizes, in turn; `direct` places payloads by
/// `payload_filled`, as an owner does that reads from the socket into the destination.
fn receive(mut receiver: Receiver, stream: &[u8], pieces: &[usize], direct: bool) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut rest = stream;
    let mut sizes = pieces.iter().cycle();
    while !rest.is_empty() {
        let size = sizes
            .next()
            .map_or(rest.len(), |&size| size.clamp(1, rest.len()));
        let (mut piece, behind) = rest.split_at(size);
        rest = behind;
        loop {
            let remaining = receiver.payload_remaining();
            if direct && remaining > 0 {
                let (filled, after) = piece.split_at(remaining.min(piece.len()));
                if !filled.is_empty() {
                    receiver.payload_filled(filled);
                    note(&mut seen, filled);
                    piece = after;
                }
            }
            match receiver.next(&mut piece) {
                Ok(Step::NeedMore) => {
                    assert!(piece.is_empty());
                    break;
                }
                Ok(Step::Pdu(pdu)) => {
                    assert_eq!(receiver.payload_remaining(), pdu.data_len);
                    seen.push(Seen::Pdu(pdu));
                }
                Ok(Step::Data(data)) => {
                    assert!(!data.is_empty());
                    note(&mut seen, data);
                }
                Ok(Step::End { data_digest_ok }) => seen.push(Seen::End(data_digest_ok)),
                Err(fatal) => {
                    assert_eq!(receiver.next(&mut piece), Err(fatal));
                    assert!(receiver.offending_header().len() <= 128);
                    seen.push(Seen::Fatal(fatal));
                    return seen;
                }
            }
        }
    }
    seen
}

fn opened(role: Role, framing: Framing) -> Receiver {
    let limits = Limits {
        pda: framing.pda,
        ..Limits::default()
    };
    let mut receiver = Receiver::new(role, limits);
    receiver.open(framing.digests);
    receiver
}

fn expected(sent: &[Sent]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for pdu in sent {
        let payload = pdu.payload();
        seen.push(Seen::Pdu(Pdu {
            header: pdu.header(),
            data_len: payload.len(),
        }));
        if !payload.is_empty() {
            seen.push(Seen::Payload(payload.to_vec()));
            seen.push(Seen::End(true));
        }
    }
    seen
}

fn bytes_of(sent: &[Sent], framing: Framing) -> Vec<u8> {
    let mut stream = Vec::new();
    for pdu in sent {
        pdu.write(&mut stream, framing);
    }
    stream
}

fn payload(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), range)
}

fn to(role: Role) -> BoxedStrategy<Sent> {
    match role {
        Role::Controller => prop_oneof![
            payload(0..700).prop_map(Sent::Command),
            (payload(1..700), any::<u16>()).prop_map(|(data, ttag)| Sent::H2cData(data, ttag)),
            payload(0..129).prop_map(|header| Sent::TermReq(Role::Host, header)),
        ]
        .boxed(),
        Role::Host => prop_oneof![
            (payload(1..700), any::<bool>()).prop_map(|(data, last)| Sent::C2hData(data, last)),
            any::<u16>().prop_map(Sent::Response),
            (1..u32::MAX / 2).prop_map(Sent::R2t),
            payload(0..129).prop_map(|header| Sent::TermReq(Role::Controller, header)),
        ]
        .boxed(),
    }
}

fn framing() -> impl Strategy<Value = Framing> {
    (0u8..4, 0u8..32).prop_map(|(bits, pda)| Framing {
        digests: Digests::from_bits(bits),
        pda,
    })
}

fn conversation() -> impl Strategy<Value = (Role, Vec<Sent>)> {
    prop_oneof![Just(Role::Controller), Just(Role::Host)]
        .prop_flat_map(|role| (Just(role), prop::collection::vec(to(role), 1..8)))
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_steps(
        (role, sent) in conversation(),
        framing in framing(),
        pieces in prop::collection::vec(1usize..400, 1..12),
        direct in any::<bool>(),
    ) {
        let stream = bytes_of(&sent, framing);
        let whole = receive(opened(role, framing), &stream, &[usize::MAX], false);
        prop_assert_eq!(&whole, &expected(&sent));
        let cut = receive(opened(role, framing), &stream, &pieces, direct);
        prop_assert_eq!(&cut, &whole);
        let bytewise = receive(opened(role, framing), &stream, &[1], direct);
        prop_assert_eq!(&bytewise, &whole);
    }

    #[test]
    fn a_flipped_bit_is_detected_with_both_digests(
        (role, sent) in conversation(),
        pda in 0u8..4,
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
        pieces in prop::collection::vec(1usize..400, 1..12),
    ) {
        // Terminate requests carry no digest.
        let sent: Vec<Sent> =
            sent.into_iter().filter(|pdu| !matches!(pdu, Sent::TermReq(..))).collect();
        prop_assume!(!sent.is_empty());
        let framing = Framing { digests: Digests::BOTH, pda };
        let mut stream = bytes_of(&sent, framing);
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let seen = receive(opened(role, framing), &stream, &pieces, false);
        // Only padding is not covered by a digest, and then nothing may differ but nothing. A length
        // that grew can also leave the stream waiting for more.
        let intact = expected(&sent);
        let detected = seen.iter().any(|s| matches!(s, Seen::Fatal(_) | Seen::End(false)));
        prop_assert!(detected || seen == intact || seen.len() < intact.len());
        for (got, meant) in seen.iter().zip(&intact) {
            // A header that comes through is the header that was sent.
            if let (Seen::Pdu(got), Seen::Pdu(meant)) = (got, meant) {
                prop_assert_eq!(got, meant);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_cuts_agree(
        noise in prop::collection::vec(any::<u8>(), 0..600),
        kind in 0u8..10,
        hlen in prop::sample::select(vec![24u8, 72, 128]),
        plen in 0u32..300,
        framing in framing(),
        host in any::<bool>(),
        open in any::<bool>(),
        pieces in prop::collection::vec(1usize..90, 1..8),
        direct in any::<bool>(),
    ) {
        let mut stream = vec![kind, framing.digests.bits(), hlen, hlen];
        stream.extend_from_slice(&plen.to_le_bytes());
        stream.extend_from_slice(&noise);
        let role = if host { Role::Host } else { Role::Controller };
        let fresh = || if open {
            opened(role, Framing { pda: 0, ..framing })
        } else {
            Receiver::new(role, Limits::default())
        };
        let whole = receive(fresh(), &stream, &[usize::MAX], false);
        let cut = receive(fresh(), &stream, &pieces, direct);
        prop_assert_eq!(whole, cut);
        let _ = receive(fresh(), &noise, &pieces, direct);
    }
}

/// The first error of a stream, after `open` with `digests`.
fn error_of(role: Role, digests: Digests, stream: &[u8]) -> Option<(FatalStatus, u32)> {
    let framing = Framing { digests, pda: 0 };
    receive(opened(role, framing), stream, &[usize::MAX], false)
        .into_iter()
        .find_map(|seen| match seen {
            Seen::Fatal(fatal) => Some((fatal.status, fatal.information)),
            _ => None,
        })
}

#[test]
fn errors_name_the_field() {
    use FatalStatus::*;
    let mut data = Vec::new();
    Sent::H2cData(vec![1; 64], 9).write(&mut data, Framing::PLAIN);
    let broken = |at: usize, byte: u8| {
        let mut stream = data.clone();
        stream[at] = byte;
        error_of(Role::Controller, Digests::NONE, &stream)
    };
    assert_eq!(broken(0, 0x06), None);
    assert_eq!(
        broken(0, 0x08),
        Some((InvalidHeaderField, 0)),
        "unknown type"
    );
    assert_eq!(
        broken(0, 0x07),
        Some((InvalidHeaderField, 0)),
        "wrong direction"
    );
    assert_eq!(
        broken(0, 0x00),
        Some((PduSequenceError, 0)),
        "a second ICReq"
    );
    assert_eq!(
        broken(1, 0x01),
        Some((InvalidHeaderField, 1)),
        "digest not negotiated"
    );
    assert_eq!(
        broken(1, 0x02),
        Some((InvalidHeaderField, 1)),
        "digest not negotiated"
    );
    assert_eq!(broken(2, 23), Some((InvalidHeaderField, 2)));
    assert_eq!(
        broken(3, 20),
        Some((InvalidHeaderField, 3)),
        "data within the header"
    );
    assert_eq!(
        broken(3, 26),
        Some((InvalidHeaderField, 3)),
        "data not aligned"
    );
    assert_eq!(broken(3, 88), Some((InvalidHeaderField, 4)), "no data left");
    assert_eq!(
        broken(4, 8),
        Some((InvalidHeaderField, 4)),
        "shorter than its header"
    );
    assert_eq!(
        broken(4, 24),
        Some((InvalidHeaderField, 4)),
        "data PDU without data"
    );
    assert_eq!(
        broken(16, 63),
        Some((InvalidHeaderField, 16)),
        "DATAL is not PLEN's"
    );
    assert_eq!(broken(7, 1), Some((DataTransferLimitExceeded, 0)));
    let mut far = data.clone();
    far[12..16].copy_from_slice(&[0xff; 4]);
    assert_eq!(
        error_of(Role::Controller, Digests::NONE, &far),
        Some((DataTransferOutOfRange, 0))
    );
    assert_eq!(
        error_of(Role::Controller, Digests::BOTH, &data),
        Some((InvalidHeaderField, 1)),
        "digest missing"
    );
}

#[test]
fn a_host_refuses_what_a_controller_must_not_send() {
    use FatalStatus::*;
    let mut zero = Vec::new();
    Sent::R2t(1).write(&mut zero, Framing::PLAIN);
    zero[16] = 0;
    assert_eq!(
        error_of(Role::Host, Digests::NONE, &zero),
        Some((InvalidHeaderField, 16))
    );
    let mut success = Vec::new();
    Sent::C2hData(vec![1], true).write(&mut success, Framing::PLAIN);
    success[1] = pdu::flags::SUCCESS;
    assert_eq!(
        error_of(Role::Host, Digests::NONE, &success),
        Some((InvalidHeaderField, 1))
    );
}

#[test]
fn header_digest_error_returns_the_header() {
    let framing = Framing {
        digests: Digests::BOTH,
        pda: 0,
    };
    let mut stream = Vec::new();
    Sent::Response(3).write(&mut stream, framing);
    stream[20] ^= 1;
    let mut receiver = opened(Role::Host, framing);
    let mut input = &stream[..];
    let fatal = receiver.next(&mut input).unwrap_err();
    assert_eq!(fatal.status, FatalStatus::HeaderDigestError);
    assert_eq!(receiver.offending_header(), &stream[..24]);
}

#[test]
fn nothing_but_the_initialize_request_comes_first() {
    let mut command = Vec::new();
    Sent::Command(vec![]).write(&mut command, Framing::PLAIN);
    let sequence = Fatal::new(FatalStatus::PduSequenceError);
    let mut fresh = Receiver::new(Role::Controller, Limits::default());
    assert_eq!(fresh.next(&mut &command[..]), Err(sequence));

    // After it, the owner must open the stream before anything else is taken.
    let mut stream = Vec::new();
    pdu::IcReq::default().encode(&mut stream);
    stream.extend_from_slice(&command);
    let mut input = &stream[..];
    let mut receiver = Receiver::new(Role::Controller, Limits::default());
    let step = receiver.next(&mut input).unwrap();
    assert!(matches!(
        step,
        Step::Pdu(Pdu {
            header: Header::IcReq(_),
            data_len: 0
        })
    ));
    assert_eq!(receiver.clone().next(&mut input), Err(sequence));
    receiver.open(Digests::NONE);
    assert!(matches!(receiver.next(&mut input), Ok(Step::Pdu(_))));
}

#[test]
fn too_much_filled_is_ignored() {
    let mut stream = Vec::new();
    Sent::Command(vec![7; 10]).write(&mut stream, Framing::PLAIN);
    let mut receiver = opened(Role::Controller, Framing::PLAIN);
    let mut input = &stream[..72];
    assert!(matches!(receiver.next(&mut input), Ok(Step::Pdu(_))));
    receiver.payload_filled(&[7; 11]);
    assert_eq!(receiver.payload_remaining(), 0);
    assert_eq!(
        receiver.next(&mut input),
        Ok(Step::End {
            data_digest_ok: true
        })
    );
    assert_eq!(receiver.next(&mut input), Ok(Step::NeedMore));
}
