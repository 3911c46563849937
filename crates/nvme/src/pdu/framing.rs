//! Where header digest, padding and data of an outgoing PDU lie.

use super::digest::header_digest;
use super::{CommonHeader, Digests, PDA_MAX, PduType, flags};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// Bytes of one digest.
pub(crate) const DIGEST_BYTES: u8 = 4;

/// How one side frames what it sends: the negotiated digests and the alignment the *peer* asked for
/// (a controller honours the host's HPDA, a host the controller's CPDA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Framing {
    /// Digests in force.
    pub digests: Digests,
    /// The peer's PDA: data starts at a multiple of `(pda + 1) * 4` bytes.
    pub pda: u8,
}

/// A header's type-specific half: what it says and what follows it.
pub(crate) struct Outgoing<'a> {
    pub kind: PduType,
    /// LAST and SUCCESS only; digest flags are added.
    pub flags: u8,
    /// The header after its common part.
    pub body: &'a [u8],
    /// Payload bytes that the caller appends.
    pub data_bytes: u32,
}

impl Framing {
    /// Without digests or padding, as before the connection is initialized.
    pub const PLAIN: Self = Self {
        digests: Digests::NONE,
        pda: 0,
    };

    /// PDO: bytes from the start of a PDU of this type to its data.
    pub fn data_offset(self, kind: PduType) -> u8 {
        let unpadded = self.header_end(kind);
        let alignment = (self.pda.min(PDA_MAX) + 1) * 4;
        // Fits: a header ends by byte 76 and rounding adds less than 128.
        unpadded.div_ceil(alignment) * alignment
    }

    /// PLEN of a PDU of this type with `data_bytes` of payload.
    pub fn pdu_bytes(self, kind: PduType, data_bytes: u32) -> u32 {
        if data_bytes == 0 {
            return u32::from(self.header_end(kind));
        }
        let tail = if self.digests.data { DIGEST_BYTES } else { 0 };
        data_bytes.saturating_add(u32::from(self.data_offset(kind)) + u32::from(tail))
    }

    fn header_end(self, kind: PduType) -> u8 {
        let digest = if self.digests.header && kind.has_digests() {
            DIGEST_BYTES
        } else {
            0
        };
        kind.header_bytes() + digest
    }

    /// Appends header, header digest and padding.
    pub(crate) fn write(self, out: &mut Vec<u8>, pdu: &Outgoing<'_>) {
        let kind = pdu.kind;
        let mut flags = pdu.flags;
        if self.digests.header {
            flags |= flags::HDGST;
        }
        if self.digests.data && pdu.data_bytes > 0 {
            flags |= flags::DDGST;
        }
        let pdo = if pdu.data_bytes > 0 {
            self.data_offset(kind)
        } else {
            0
        };
        let common = CommonHeader {
            pdu_type: kind as u8,
            flags,
            hlen: kind.header_bytes(),
            pdo,
            plen: U32::new(self.pdu_bytes(kind, pdu.data_bytes)),
        };
        let start = out.len();
        out.extend_from_slice(common.as_bytes());
        out.extend_from_slice(pdu.body);
        if self.digests.header {
            let digest = header_digest(&out[start..]);
            out.extend_from_slice(&digest);
        }
        if pdo > 0 {
            out.resize(start + usize::from(pdo), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_starts_where_the_peer_wants_it() {
        let with = |header, pda| Framing {
            digests: Digests {
                header,
                data: false,
            },
            pda,
        };
        assert_eq!(with(false, 0).data_offset(PduType::CapsuleCmd), 72);
        assert_eq!(with(true, 0).data_offset(PduType::CapsuleCmd), 76);
        assert_eq!(with(true, 0).data_offset(PduType::C2hData), 28);
        assert_eq!(with(false, 3).data_offset(PduType::C2hData), 32);
        assert_eq!(with(false, 31).data_offset(PduType::C2hData), 128);
        assert_eq!(with(true, 31).data_offset(PduType::CapsuleCmd), 128);
        for pda in 0..=u8::MAX {
            let offset = with(true, pda).data_offset(PduType::CapsuleCmd);
            assert!(offset >= 76 && offset % ((pda.min(31) + 1) * 4) == 0);
        }
    }

    #[test]
    fn length_counts_digests_only_where_there_is_something_to_digest() {
        let both = Framing {
            digests: Digests::BOTH,
            pda: 0,
        };
        assert_eq!(both.pdu_bytes(PduType::CapsuleResp, 0), 28);
        assert_eq!(both.pdu_bytes(PduType::C2hData, 4096), 28 + 4096 + 4);
        assert_eq!(both.pdu_bytes(PduType::C2hData, u32::MAX), u32::MAX);
    }
}
