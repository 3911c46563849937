//! NVMe/TCP PDUs (TCP Transport, section 3.6): headers, flags, digests, and the functions that
//! write them. Reading them is [`crate::stream`]'s.

mod connection;
mod digest;
mod encode;
mod framing;
mod terminate;
mod transfer;

pub use connection::{IcReq, IcResp, MAXH2CDATA_MIN, PDA_MAX};
pub use digest::{DataDigest, Digests};
pub use encode::{c2h_data, capsule_cmd, capsule_resp, h2c_data, h2c_data_of, r2t, term_req};
pub use framing::Framing;
pub use terminate::{Fatal, FatalStatus, TERM_REQ_DATA_MAX, TermReq};
pub use transfer::{C2hData, H2cData, R2t};

pub(crate) use transfer::TransferWire;

use crate::layout::{layout, wire};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Which end of a connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The target's side.
    Controller,
    /// The initiator's side.
    Host,
}

/// PDU types (TCP Transport, figure "PDU Types").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PduType {
    /// Initialize Connection Request, host to controller.
    IcReq = 0x00,
    /// Initialize Connection Response, controller to host.
    IcResp = 0x01,
    /// Host to Controller Terminate Connection Request.
    H2cTermReq = 0x02,
    /// Controller to Host Terminate Connection Request.
    C2hTermReq = 0x03,
    /// Command capsule, host to controller.
    CapsuleCmd = 0x04,
    /// Response capsule, controller to host.
    CapsuleResp = 0x05,
    /// Data of a write, host to controller.
    H2cData = 0x06,
    /// Data of a read, controller to host.
    C2hData = 0x07,
    /// Ready to Transfer, controller to host.
    R2t = 0x09,
}

impl PduType {
    /// The type a first header byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::IcReq,
            0x01 => Self::IcResp,
            0x02 => Self::H2cTermReq,
            0x03 => Self::C2hTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2cData,
            0x07 => Self::C2hData,
            0x09 => Self::R2t,
            _ => return None,
        })
    }

    /// Who sends this type.
    pub fn sender(self) -> Role {
        match self {
            Self::IcReq | Self::H2cTermReq | Self::CapsuleCmd | Self::H2cData => Role::Host,
            Self::IcResp | Self::C2hTermReq | Self::CapsuleResp | Self::C2hData | Self::R2t => {
                Role::Controller
            }
        }
    }

    /// HLEN in bytes: the header without its digest.
    pub fn header_bytes(self) -> u8 {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            Self::H2cTermReq
            | Self::C2hTermReq
            | Self::CapsuleResp
            | Self::H2cData
            | Self::C2hData
            | Self::R2t => 24,
        }
    }

    /// True for ICReq and ICResp.
    pub fn is_initialize(self) -> bool {
        matches!(self, Self::IcReq | Self::IcResp)
    }

    /// True for both terminate requests.
    pub fn is_terminate(self) -> bool {
        matches!(self, Self::H2cTermReq | Self::C2hTermReq)
    }

    /// True for the types that carry digests when these are negotiated.
    pub fn has_digests(self) -> bool {
        !self.is_initialize() && !self.is_terminate()
    }
}

/// Bits of the FLAGS byte of the common header.
pub mod flags {
    /// HDGSTF: a header digest follows the header.
    pub const HDGST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DDGST: u8 = 1 << 1;
    /// LAST_PDU: the last data PDU of this transfer (H2CData: of this R2T).
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS, only with [`LAST`] in C2HData: the command succeeded, no response capsule follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// The eight bytes that open every PDU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CommonHeader {
    /// See [`PduType`].
    pub pdu_type: u8,
    /// See [`flags`].
    pub flags: u8,
    /// Header bytes without digest and padding.
    pub hlen: u8,
    /// Bytes from the start of the PDU to its data; not defined where there is no data.
    pub pdo: u8,
    /// Bytes of the whole PDU, digests and padding included.
    pub plen: U32,
}

wire!(CommonHeader);
layout!(CommonHeader, 8, pdu_type @ 0, flags @ 1, hlen @ 2, pdo @ 3, plen @ 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_keep_their_numbers_and_directions() {
        for byte in 0..=u8::MAX {
            if let Some(kind) = PduType::from_byte(byte) {
                assert_eq!(kind as u8, byte);
                // 00, 02, 04 and 06 come from hosts, odd types from controllers.
                assert_eq!(kind.sender() == Role::Host, byte % 2 == 0);
            }
        }
        assert_eq!(PduType::from_byte(0x08), None);
    }
}
