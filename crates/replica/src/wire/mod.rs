//! Messages as bytes: a header of 48 bytes that says lengths and checksums, a body, and a record's or copy's data.
//!
//! Data is never copied here: what is sent is a head and the data, what is received is a slice of what came.

mod decode;
mod encode;
mod forward;
mod heads;
mod layout;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;

use crate::member::MAX_RANGES;
use crate::message::Envelope;

pub use layout::{HAS_HEADS, HEADER_BYTES, WIRE_VERSION};

/// Largest data of a message, in bytes.
pub const MAX_DATA_BYTES: usize = 32 << 20;
/// Largest body: ATTACH with as many ranges as one says.
const MAX_BODY_BYTES: usize = 32 + 16 * MAX_RANGES + 8 + 72;

/// How messages of a volume become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    /// Bytes of a granule: 4096 in a pool.
    pub granule_bytes: u32,
    /// The version that both ends of the connection speak ([`WIRE_VERSION`], or one beside it): what later ones have
    /// added is neither sent nor understood.
    pub version: u8,
}

/// A message as it is sent: first the head, then the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Header and body.
    pub head: Vec<u8>,
    /// The data; empty without.
    pub data: Bytes,
}

/// What bytes begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message that is not whole yet: so many bytes at least are needed from its beginning on.
    Partial {
        /// So many.
        needs: usize,
    },
    Whole {
        envelope: Envelope,
        /// How many bytes it took.
        bytes: usize,
    },
}

/// Why bytes are not a message. The connection they came by is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Not this protocol.
    Magic,
    /// Another version than the connection's.
    Version {
        /// What the message says.
        said: u8,
        /// The connection's.
        agreed: u8,
    },
    /// A checksum does not match: of the header, the body or the data.
    Checksum(&'static str),
    /// A kind that this version does not have.
    Kind(u8),
    /// A length that the kind cannot have.
    Length {
        /// Of what.
        what: &'static str,
        /// How long it says it is.
        bytes: u32,
    },
    /// A field that cannot have this value.
    Field(&'static str),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(f, "not a replica's message"),
            Self::Version { said, agreed } => write!(
                f,
                "the peer speaks version {said}, where both have agreed on {agreed}"
            ),
            Self::Checksum(what) => write!(f, "the checksum of the {what} does not match"),
            Self::Kind(kind) => write!(f, "messages of kind {kind} are not known"),
            Self::Length { what, bytes } => write!(f, "{what} of {bytes} bytes cannot be"),
            Self::Field(what) => write!(f, "{what} cannot have this value"),
        }
    }
}

impl std::error::Error for WireError {}
