//! CRC-32C digests of headers and data.

/// Which digests a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digests {
    /// HDGST: four bytes after each header.
    pub header: bool,
    /// DDGST: four bytes after each payload.
    pub data: bool,
}

impl Digests {
    /// No digest.
    pub const NONE: Self = Self {
        header: false,
        data: false,
    };
    /// Both digests.
    pub const BOTH: Self = Self {
        header: true,
        data: true,
    };

    /// From the DGST byte of ICReq or ICResp; reserved bits are ignored.
    pub fn from_bits(bits: u8) -> Self {
        Self {
            header: bits & 1 != 0,
            data: bits & 2 != 0,
        }
    }

    /// The DGST byte of ICReq or ICResp.
    pub fn bits(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    /// What both sides want: the controller's answer to a host's request.
    pub fn and(self, other: Self) -> Self {
        Self {
            header: self.header && other.header,
            data: self.data && other.data,
        }
    }
}

/// A data digest computed over a payload piece by piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataDigest(u32);

impl DataDigest {
    /// The digest of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece in.
    pub fn update(&mut self, piece: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, piece);
    }

    /// The four bytes that follow the payload.
    pub fn bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    /// The four bytes that follow `payload`.
    pub fn of(payload: &[u8]) -> [u8; 4] {
        header_digest(payload)
    }
}

/// The four bytes that follow a header.
pub(crate) fn header_digest(header: &[u8]) -> [u8; 4] {
    crc32c::crc32c(header).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_the_published_crc32c_little_endian() {
        // RFC 3720 appendix B.4: 32 bytes of zeroes give 8A9136AA as sent, low byte first.
        assert_eq!(DataDigest::of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        let mut pieces = DataDigest::new();
        pieces.update(&[0; 5]);
        pieces.update(&[0; 27]);
        assert_eq!(pieces.bytes(), DataDigest::of(&[0; 32]));
    }

    #[test]
    fn bits_round_trip_and_agree() {
        for bits in 0..4 {
            assert_eq!(Digests::from_bits(bits).bits(), bits);
            assert_eq!(Digests::BOTH.and(Digests::from_bits(bits)).bits(), bits);
        }
    }
}
