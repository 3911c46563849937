//! R2T, H2CData and C2HData: the data phase of a command (TCP Transport 3.6.2.8 to 3.6.2.10).

use crate::layout::layout;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// H2CData: a piece of a write's data, asked for by an R2T.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct H2cData {
    /// CCCID: the command's identifier.
    pub cid: u16,
    /// TTAG of the R2T that asked.
    pub ttag: u16,
    /// DATAO: bytes from the start of the command's data.
    pub offset: u32,
    /// DATAL: bytes in this PDU.
    pub length: u32,
    /// LAST_PDU: the last one for this R2T.
    pub last: bool,
}

/// C2HData: a piece of a read's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct C2hData {
    /// CCCID: the command's identifier.
    pub cid: u16,
    /// DATAO: bytes from the start of the command's data.
    pub offset: u32,
    /// DATAL: bytes in this PDU.
    pub length: u32,
    /// LAST_PDU: no more data for this command.
    pub last: bool,
    /// SUCCESS, only with `last`: stands for a response capsule with status success.
    pub success: bool,
}

/// R2T: the controller asks for a piece of a write's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct R2t {
    /// CCCID: the command's identifier.
    pub cid: u16,
    /// TTAG: the controller's own tag, returned in every H2CData.
    pub ttag: u16,
    /// R2TO: bytes from the start of the command's data.
    pub offset: u32,
    /// R2TL: bytes wanted; not 0.
    pub length: u32,
}

/// The body all three share on the wire.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct TransferWire {
    pub cccid: U16,
    pub ttag: U16,
    pub offset: U32,
    pub length: U32,
    reserved: [u8; 4],
}

layout!(TransferWire, 16, cccid @ 0, ttag @ 2, offset @ 4, length @ 8);

impl TransferWire {
    pub(crate) fn new(cid: u16, ttag: u16, offset: u32, length: u32) -> Self {
        Self {
            cccid: U16::new(cid),
            ttag: U16::new(ttag),
            offset: U32::new(offset),
            length: U32::new(length),
            reserved: [0; 4],
        }
    }
}
