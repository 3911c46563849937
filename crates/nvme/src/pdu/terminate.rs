//! Fatal transport errors and the PDUs that report them (TCP Transport 3.6.2.4, 3.6.2.5).

use crate::layout::layout;
use std::fmt;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The most payload bytes of a terminate request: the header of the PDU in error.
pub const TERM_REQ_DATA_MAX: usize = 128;

/// Fatal Error Status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FatalStatus {
    /// Invalid PDU Header Field; the information is the field's offset.
    InvalidHeaderField = 0x01,
    /// PDU Sequence Error.
    PduSequenceError = 0x02,
    /// Header Digest Error.
    HeaderDigestError = 0x03,
    /// Data Transfer Out of Range.
    DataTransferOutOfRange = 0x04,
    /// Data Transfer Limit Exceeded; to a host also: R2T Limit Exceeded.
    DataTransferLimitExceeded = 0x05,
    /// Unsupported Parameter; the information is the field's offset.
    UnsupportedParameter = 0x06,
}

impl FatalStatus {
    /// The status a FES field stands for.
    pub fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            0x01 => Self::InvalidHeaderField,
            0x02 => Self::PduSequenceError,
            0x03 => Self::HeaderDigestError,
            0x04 => Self::DataTransferOutOfRange,
            0x05 => Self::DataTransferLimitExceeded,
            0x06 => Self::UnsupportedParameter,
            _ => return None,
        })
    }

    /// The specification's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidHeaderField => "Invalid PDU Header Field",
            Self::PduSequenceError => "PDU Sequence Error",
            Self::HeaderDigestError => "Header Digest Error",
            Self::DataTransferOutOfRange => "Data Transfer Out of Range",
            Self::DataTransferLimitExceeded => "Data Transfer Limit Exceeded",
            Self::UnsupportedParameter => "Unsupported Parameter",
        }
    }
}

/// A transport error after which the connection cannot go on: what a terminate request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fatal {
    /// FES.
    pub status: FatalStatus,
    /// FEI: for an invalid field or unsupported parameter the field's offset in the PDU, else 0.
    pub information: u32,
}

impl Fatal {
    /// An error without further information.
    pub const fn new(status: FatalStatus) -> Self {
        Self::at(status, 0)
    }

    /// An error in the header field at `offset` bytes from the start of the PDU.
    pub const fn at(status: FatalStatus, offset: u32) -> Self {
        Self {
            status,
            information: offset,
        }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status.name())?;
        match self.status {
            FatalStatus::InvalidHeaderField | FatalStatus::UnsupportedParameter => {
                write!(f, " at byte {}", self.information)
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Fatal {}

/// A terminate request as received; the header it complains about follows as payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermReq {
    /// FES, unknown values included.
    pub code: u16,
    /// FEI.
    pub information: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TermReqWire {
    fes: U16,
    fei: U32,
    reserved: [u8; 10],
}

layout!(TermReqWire, 16, fes @ 0, fei @ 2);

impl TermReqWire {
    pub(super) fn new(fatal: Fatal) -> Self {
        Self {
            fes: U16::new(fatal.status as u16),
            fei: U32::new(fatal.information),
            reserved: [0; 10],
        }
    }
}

impl TermReq {
    /// Parses what follows the common header; `None` if there are fewer than 16 bytes.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (wire, _) = TermReqWire::ref_from_prefix(body).ok()?;
        Some(Self {
            code: wire.fes.get(),
            information: wire.fei.get(),
        })
    }

    /// The status, if it is one we know.
    pub fn status(&self) -> Option<FatalStatus> {
        FatalStatus::from_code(self.code)
    }
}

impl fmt::Display for TermReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status() {
            Some(status) => Fatal::at(status, self.information).fmt(f),
            None => write!(f, "fatal error status {:#06x}", self.code),
        }
    }
}
