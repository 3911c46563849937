//! Feeding a receiver a stream cut in pieces, and what it saw.

use ashlar_nvme::pdu::{Fatal, Framing, Role};
use ashlar_nvme::stream::{Limits, Pdu, Receiver, Step};

/// A step with its data gathered, so that streams cut differently can be compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
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
pub fn receive(mut receiver: Receiver, stream: &[u8], pieces: &[usize], direct: bool) -> Vec<Seen> {
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

pub fn opened(role: Role, framing: Framing) -> Receiver {
    let limits = Limits {
        pda: framing.pda,
        ..Limits::default()
    };
    let mut receiver = Receiver::new(role, limits);
    receiver.open(framing.digests);
    receiver
}
