//! Submission queue entries, completions, opcodes.
//!
//! A [`Command`] is the 64 bytes as they are on the wire; its methods read and write the fields
//! that all commands share, the other files of this folder those of one command set.

mod admin;
mod completion;
mod io;
pub mod opcode;
mod sgl;

pub use admin::{FeatureSelect, GetLogPage, Identify};
pub use completion::Completion;
pub use io::{DSM_RANGES_MAX, DsmRange};
pub use sgl::{DataPointer, SglDescriptor};

use crate::layout::{layout, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The NSID that means every namespace.
pub const NSID_BROADCAST: u32 = 0xffff_ffff;

/// PSDT 01b in the flags byte: SGLs, metadata (if any) in one buffer. What this transport uses.
pub const PSDT_SGL: u8 = 0b01 << 6;

/// FUSE: how a command is fused with its neighbour (Base 2.1, 3.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fuse {
    /// On its own.
    Normal,
    /// The first of two.
    First,
    /// The second of two.
    Second,
    /// The reserved value.
    Reserved,
}

/// A submission queue entry (Base 2.1, 4.1).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Command {
    /// See [`opcode`].
    pub opcode: u8,
    /// FUSE (bits 1:0) and PSDT (bits 7:6).
    pub flags: u8,
    /// CID, unique among the queue's outstanding commands.
    pub cid: U16,
    /// NSID; in a Fabrics command its first byte is FCTYPE.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// Metadata pointer.
    pub mptr: U64,
    /// SGL entry 1, where the data is.
    pub sgl1: SglDescriptor,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}

wire!(Command);
layout!(Command, 64, opcode @ 0, flags @ 1, cid @ 2, nsid @ 4, mptr @ 16, sgl1 @ 24,
    cdw10 @ 40, cdw11 @ 44, cdw12 @ 48, cdw13 @ 52, cdw14 @ 56, cdw15 @ 60);

impl Command {
    /// A command without data: PSDT says SGL, as this transport wants, and the descriptor is an empty
    /// transport data block, as hosts send it. The queue sets `cid`; [`Self::with_data`] the data.
    pub fn new(opcode: u8, nsid: u32) -> Self {
        Self {
            opcode,
            flags: PSDT_SGL,
            nsid: U32::new(nsid),
            sgl1: SglDescriptor::transport(0),
            ..Self::default()
        }
    }

    /// The same command with this identifier.
    #[must_use]
    pub fn with_cid(mut self, cid: u16) -> Self {
        self.cid.set(cid);
        self
    }

    /// The same command with its data described by `sgl1`.
    #[must_use]
    pub fn with_data(mut self, sgl1: SglDescriptor) -> Self {
        self.sgl1 = sgl1;
        self
    }

    /// How it is fused.
    pub fn fuse(&self) -> Fuse {
        match self.flags & 0b11 {
            0 => Fuse::Normal,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// True if PSDT says what it must over fabrics, where there is no metadata of its own: the data pointer
    /// is an SGL, and MPTR a plain address (status Invalid Field otherwise).
    pub fn uses_sgl(&self) -> bool {
        self.flags >> 6 == 0b01
    }

    /// Where the data is, as this transport allows it.
    pub fn data(&self) -> DataPointer {
        self.sgl1.pointer()
    }

    /// True for opcode 7Fh.
    pub fn is_fabrics(&self) -> bool {
        self.opcode == opcode::FABRICS
    }

    /// FCTYPE of a Fabrics command: the byte where others have their NSID.
    pub fn fctype(&self) -> u8 {
        self.nsid.as_bytes()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_command_looks_like_one_of_a_host() {
        let command = Command::new(opcode::io::FLUSH, 1).with_cid(0x1234);
        let bytes = command.as_wire();
        assert_eq!(&bytes[..8], [0x00, 0x40, 0x34, 0x12, 1, 0, 0, 0]);
        assert_eq!(bytes[39], 0x5a);
        assert!(command.uses_sgl());
        assert_eq!(command.fuse(), Fuse::Normal);
        assert_eq!(Command::parse(bytes), Some(&command));
        assert_eq!(Command::parse(&bytes[..63]), None);
    }
}
