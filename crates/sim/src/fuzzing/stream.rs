use ashlar_nvme::pdu::{Digests, Fatal, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};

use super::input::Input;

/// What a receiver made of a stream, without the places where it was cut.
#[derive(Debug, PartialEq, Default)]
struct Seen {
    headers: Vec<Header>,
    payload: Vec<u8>,
    digests: Vec<bool>,
    fatal: Option<Fatal>,
}

/// A PDU stream as host or controller, in pieces and as a whole: both must see the same.
pub fn pdu_stream(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let cut = usize::from(input.byte()).max(1);
    let stream = input.rest();
    let whole = read(settings, [stream]);
    let pieces = read(settings, stream.chunks(cut));
    assert_eq!(whole, pieces, "cut every {cut} bytes");
}

fn read<'a>(settings: u8, chunks: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let role = if settings & 1 == 0 {
        Role::Host
    } else {
        Role::Controller
    };
    let digests = Digests {
        header: settings & 2 != 0,
        data: settings & 4 != 0,
    };
    let mut receiver = Receiver::new(role, Limits::default());
    if settings & 8 != 0 {
        receiver.open(digests);
    }
    let mut seen = Seen::default();
    for chunk in chunks {
        let mut input = chunk;
        loop {
            match receiver.next(&mut input) {
                Ok(Step::NeedMore) => break,
                Ok(Step::Pdu(pdu)) => {
                    if matches!(pdu.header, Header::IcReq(_) | Header::IcResp(_)) {
                        receiver.open(digests);
                    }
                    seen.headers.push(pdu.header);
                }
                Ok(Step::Data(data)) => seen.payload.extend_from_slice(data),
                Ok(Step::End { data_digest_ok }) => seen.digests.push(data_digest_ok),
                Err(fatal) => {
                    assert!(receiver.offending_header().len() <= 128);
                    seen.fatal = Some(fatal);
                    return seen;
                }
            }
        }
        assert!(
            input.is_empty(),
            "it wants more and leaves {} bytes",
            input.len()
        );
    }
    seen
}
