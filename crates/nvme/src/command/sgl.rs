//! SGL descriptors (Base 2.1, 4.3.2), as far as NVMe/TCP has them.

use crate::layout::layout;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Type 0h (data block), subtype 1h (offset): the data is in the capsule.
const IN_CAPSULE: u8 = 0x01;
/// Type 5h (transport data block), subtype Ah: the transport moves the data.
const TRANSPORT: u8 = 0x5a;

/// One SGL descriptor, 16 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address or, in a capsule, offset in bytes.
    pub address: U64,
    /// Bytes.
    pub length: U32,
    /// Reserved (part of the key in keyed descriptors).
    pub reserved: [u8; 3],
    /// Type (bits 7:4) and subtype (bits 3:0).
    pub identifier: u8,
}

layout!(SglDescriptor, 16, address @ 0, length @ 8, identifier @ 15);

/// What a command's data pointer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataPointer {
    /// The data follows in the command capsule, `offset` bytes behind where the capsule's data begins
    /// (ICDOFF is 0). One beyond the capsule's data: status SGL Offset Invalid (16h).
    InCapsule {
        /// Bytes from the start of the in-capsule data.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// The data comes by R2T and H2CData or goes by C2HData. A length of 0 is "no data".
    Transport {
        /// Bytes.
        length: u32,
    },
    /// A keyed descriptor (RDMA's): status SGL Descriptor Type Invalid (11h).
    Keyed,
    /// Any other: status SGL Descriptor Type Invalid (11h).
    Unsupported {
        /// The descriptor's type and subtype.
        identifier: u8,
    },
}

impl SglDescriptor {
    /// Data of `length` bytes at the start of the capsule's data (ICDOFF is 0).
    pub fn in_capsule(length: u32) -> Self {
        Self::new(length, IN_CAPSULE)
    }

    /// Data of `length` bytes that the transport moves; 0 for none.
    pub fn transport(length: u32) -> Self {
        Self::new(length, TRANSPORT)
    }

    fn new(length: u32, identifier: u8) -> Self {
        Self {
            address: U64::new(0),
            length: U32::new(length),
            reserved: [0; 3],
            identifier,
        }
    }

    /// What the descriptor says.
    pub fn pointer(&self) -> DataPointer {
        let length = self.length.get();
        match self.identifier {
            IN_CAPSULE => DataPointer::InCapsule {
                offset: self.address.get(),
                length,
            },
            TRANSPORT => DataPointer::Transport { length },
            keyed if keyed >> 4 == 0x4 => DataPointer::Keyed,
            identifier => DataPointer::Unsupported { identifier },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_round_trip_and_others_are_named() {
        let in_capsule = DataPointer::InCapsule {
            offset: 0,
            length: 8192,
        };
        assert_eq!(SglDescriptor::in_capsule(8192).pointer(), in_capsule);
        let transport = DataPointer::Transport { length: 5 };
        assert_eq!(SglDescriptor::transport(5).pointer(), transport);
        assert_eq!(SglDescriptor::new(5, 0x4f).pointer(), DataPointer::Keyed);
        let unsupported = DataPointer::Unsupported { identifier: 0x00 };
        assert_eq!(SglDescriptor::new(5, 0).pointer(), unsupported);
    }
}
