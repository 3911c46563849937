//! Each kind of illegal stream and the error it is answered with.

use crate::feed::{Seen, opened, receive};
use crate::sent::Sent;
use ashlar_nvme::pdu::{self, Digests, Fatal, FatalStatus, Framing, Role};
use ashlar_nvme::stream::{Header, Limits, Pdu, Receiver, Step};

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
