//! The smaller Identify structures of NVMe 2.x: CNS 05h, 06h (NVM command set) and 08h.

use crate::layout::{layout, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// NSTAT bit 0: the namespace is ready.
pub const NSTAT_READY: u8 = 1 << 0;

/// I/O Command Set Independent Identify Namespace (CNS 08h).
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IndependentNamespace {
    pub nsfeat: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    pub anagrpid: U32,
    pub nsattr: u8,
    reserved9: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    /// See [`NSTAT_READY`].
    pub nstat: u8,
    pub kpios: u8,
    pub maxkt: U16,
    reserved18: [u8; 2],
    pub rgrpid: U32,
    reserved24: [u8; 4072],
}

wire!(IndependentNamespace);
layout!(IndependentNamespace, 4096, nsfeat @ 0, nmic @ 1, rescap @ 2, fpi @ 3, anagrpid @ 4,
    nsattr @ 8, nvmsetid @ 10, endgid @ 12, nstat @ 14, rgrpid @ 20);

/// Identify Controller of the NVM command set (CNS 06h, CSI 0): size limits as powers of two of
/// CAP.MPSMIN pages, 0 for none. Linux asks for it and uses WZSL and DMRSL.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NvmController {
    /// Verify size limit.
    pub vsl: u8,
    /// Write Zeroes size limit.
    pub wzsl: u8,
    /// Write Uncorrectable size limit.
    pub wusl: u8,
    /// Dataset Management: most ranges a command.
    pub dmrl: u8,
    /// Dataset Management: most blocks a range.
    pub dmrsl: U32,
    /// Dataset Management: most blocks a command.
    pub dmsl: U64,
    reserved16: [u8; 4080],
}

wire!(NvmController);
layout!(NvmController, 4096, vsl @ 0, wzsl @ 1, wusl @ 2, dmrl @ 3, dmrsl @ 4, dmsl @ 8);

/// Identify Namespace of the NVM command set's second page (CNS 05h, CSI 0).
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NvmNamespace {
    /// Logical block storage tag mask.
    pub lbstm: U64,
    /// Protection information capabilities.
    pub pic: u8,
    reserved9: [u8; 3],
    /// Extended LBA formats: storage tag size and protection information format.
    pub elbaf: [U32; 64],
    reserved268: [u8; 3828],
}

wire!(NvmNamespace);
layout!(NvmNamespace, 4096, lbstm @ 0, pic @ 8, elbaf @ 12);
