//! Writing PDUs: each function appends header, header digest and padding; the caller then sends the
//! payload and, if data digests are on, the four bytes of [`DataDigest`](super::DataDigest).

use super::framing::Outgoing;
use super::terminate::TermReqWire;
use super::{
    C2hData, Fatal, Framing, H2cData, PduType, R2t, Role, TERM_REQ_DATA_MAX, TransferWire, flags,
};
use crate::command::{Command, Completion};
use zerocopy::IntoBytes;

/// A command capsule with `data_bytes` of in-capsule data.
pub fn capsule_cmd(out: &mut Vec<u8>, framing: Framing, command: &Command, data_bytes: u32) {
    let pdu = Outgoing {
        kind: PduType::CapsuleCmd,
        flags: 0,
        body: command.as_bytes(),
        data_bytes,
    };
    framing.write(out, &pdu);
}

/// A response capsule, complete.
pub fn capsule_resp(out: &mut Vec<u8>, framing: Framing, completion: &Completion) {
    let pdu = Outgoing {
        kind: PduType::CapsuleResp,
        flags: 0,
        body: completion.as_bytes(),
        data_bytes: 0,
    };
    framing.write(out, &pdu);
}

/// An H2CData PDU up to its payload.
pub fn h2c_data(out: &mut Vec<u8>, framing: Framing, data: &H2cData) {
    let body = TransferWire::new(data.cid, data.ttag, data.offset, data.length);
    let pdu = Outgoing {
        kind: PduType::H2cData,
        flags: if data.last { flags::LAST } else { 0 },
        body: body.as_bytes(),
        data_bytes: data.length,
    };
    framing.write(out, &pdu);
}

/// The H2CData PDU that answers `request` from `done` bytes into it, with at most `maxh2cdata`
/// payload bytes; `None` when the request is answered in full.
pub fn h2c_data_of(request: &R2t, done: u32, maxh2cdata: u32) -> Option<H2cData> {
    let left = request.length.checked_sub(done).filter(|&left| left > 0)?;
    let length = left.min(maxh2cdata);
    if length == 0 {
        return None;
    }
    Some(H2cData {
        cid: request.cid,
        ttag: request.ttag,
        offset: request.offset.checked_add(done)?,
        length,
        last: length == left,
    })
}

/// A C2HData PDU up to its payload. SUCCESS is written only together with LAST.
pub fn c2h_data(out: &mut Vec<u8>, framing: Framing, data: &C2hData) {
    let body = TransferWire::new(data.cid, 0, data.offset, data.length);
    let flags = match (data.last, data.success) {
        (true, true) => flags::LAST | flags::SUCCESS,
        (true, false) => flags::LAST,
        (false, _) => 0,
    };
    let pdu = Outgoing {
        kind: PduType::C2hData,
        flags,
        body: body.as_bytes(),
        data_bytes: data.length,
    };
    framing.write(out, &pdu);
}

/// An R2T PDU, complete.
pub fn r2t(out: &mut Vec<u8>, framing: Framing, request: &R2t) {
    let body = TransferWire::new(request.cid, request.ttag, request.offset, request.length);
    let pdu = Outgoing {
        kind: PduType::R2t,
        flags: 0,
        body: body.as_bytes(),
        data_bytes: 0,
    };
    framing.write(out, &pdu);
}

/// A terminate request from `sender`, complete: never with digests, and with the header it complains
/// about (cut to 128 bytes) as payload.
pub fn term_req(out: &mut Vec<u8>, sender: Role, fatal: Fatal, offending: &[u8]) {
    let offending = &offending[..offending.len().min(TERM_REQ_DATA_MAX)];
    let kind = match sender {
        Role::Host => PduType::H2cTermReq,
        Role::Controller => PduType::C2hTermReq,
    };
    let body = TermReqWire::new(fatal);
    let pdu = Outgoing {
        kind,
        flags: 0,
        body: body.as_bytes(),
        data_bytes: u32::try_from(offending.len()).unwrap_or(0),
    };
    let start = out.len();
    Framing::PLAIN.write(out, &pdu);
    // PDO is reserved in a terminate request: its payload always follows the header.
    out[start + 3] = 0;
    out.extend_from_slice(offending);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_r2t_is_answered_in_pieces_of_at_most_maxh2cdata() {
        let request = R2t {
            cid: 7,
            ttag: 3,
            offset: 8192,
            length: 10_000,
        };
        let mut done = 0;
        let mut pieces = Vec::new();
        while let Some(piece) = h2c_data_of(&request, done, 4096) {
            done += piece.length;
            pieces.push((piece.offset, piece.length, piece.last));
        }
        let expected = [
            (8192, 4096, false),
            (12_288, 4096, false),
            (16_384, 1808, true),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(h2c_data_of(&request, 0, 0), None);
        assert_eq!(h2c_data_of(&request, 10_001, 4096), None);
    }
}
