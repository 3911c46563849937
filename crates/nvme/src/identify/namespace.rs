//! Identify Namespace of the NVM command set (CNS 00h).

use crate::layout::{layout, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// NSFEAT bits.
pub mod nsfeat {
    /// Thin provisioning.
    pub const THIN: u8 = 1 << 0;
    /// NAWUN, NAWUPF and NACWU are this namespace's. Linux takes NAWUPF only with it.
    pub const NAMESPACE_ATOMIC: u8 = 1 << 1;
    /// Deallocated blocks can be reported as errors.
    pub const DEALLOCATED_ERROR: u8 = 1 << 2;
    /// NPWG, NPWA, NPDG, NPDA and NOWS are defined (OPTPERF, first bit).
    pub const OPTIMAL_PERFORMANCE: u8 = 1 << 4;
}

/// DLFEAT values.
pub mod dlfeat {
    /// Deallocated blocks read as zeroes.
    pub const READS_ZEROES: u8 = 0b001;
    /// Write Zeroes takes DEAC.
    pub const WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
}

/// One LBA format.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata bytes a block.
    pub ms: U16,
    /// LBADS: block size as a power of two.
    pub lbads: u8,
    /// Relative performance, 0 is best.
    pub rp: u8,
}

wire!(LbaFormat);
layout!(LbaFormat, 4, ms @ 0, lbads @ 2, rp @ 3);

/// Identify Namespace.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Size in blocks.
    pub nsze: U64,
    /// Capacity in blocks.
    pub ncap: U64,
    /// Blocks in use.
    pub nuse: U64,
    /// See [`nsfeat`].
    pub nsfeat: u8,
    /// LBA formats, minus one.
    pub nlbaf: u8,
    /// Format in use: low index (3:0), high index (6:5).
    pub flbas: u8,
    pub mc: u8,
    pub dpc: u8,
    pub dps: u8,
    /// Bit 0: shared between controllers.
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    /// See [`dlfeat`].
    pub dlfeat: u8,
    /// Atomic write in blocks, minus one.
    pub nawun: U16,
    /// Atomic write across a power failure in blocks, minus one.
    pub nawupf: U16,
    pub nacwu: U16,
    /// Atomic boundary in blocks, minus one; 0 for none.
    pub nabsn: U16,
    /// First block of the first atomic boundary; 0 or Linux ignores atomicity.
    pub nabo: U16,
    /// Atomic boundary across a power failure in blocks, minus one; 0 for none.
    pub nabspf: U16,
    /// Optimal I/O boundary in blocks, 0 for none.
    pub noiob: U16,
    /// Capacity in bytes, 128 bits little-endian.
    pub nvmcap: [u8; 16],
    /// Preferred write granularity in blocks, minus one.
    pub npwg: U16,
    /// Preferred write alignment in blocks, minus one.
    pub npwa: U16,
    /// Preferred deallocate granularity in blocks, minus one.
    pub npdg: U16,
    /// Preferred deallocate alignment in blocks, minus one.
    pub npda: U16,
    /// Optimal write size in blocks, minus one.
    pub nows: U16,
    pub mssrl: U16,
    pub mcl: U32,
    pub msrc: u8,
    pub kpios: u8,
    pub nulbaf: u8,
    reserved83: u8,
    pub kpiodaag: U32,
    reserved88: [u8; 4],
    pub anagrpid: U32,
    reserved96: [u8; 3],
    /// Bit 0: write protected.
    pub nsattr: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
    pub lbaf: [LbaFormat; 64],
    pub vs: [u8; 3712],
}

wire!(IdentifyNamespace);
layout!(IdentifyNamespace, 4096, nsze @ 0, ncap @ 8, nuse @ 16, nsfeat @ 24, nlbaf @ 25,
    flbas @ 26, mc @ 27, dpc @ 28, dps @ 29, nmic @ 30, rescap @ 31, fpi @ 32, dlfeat @ 33,
    nawun @ 34, nawupf @ 36, nacwu @ 38, nabsn @ 40, nabo @ 42, nabspf @ 44, noiob @ 46,
    nvmcap @ 48, npwg @ 64, npwa @ 66, npdg @ 68, npda @ 70, nows @ 72, mssrl @ 74, mcl @ 76,
    msrc @ 80, anagrpid @ 92, nsattr @ 99, nvmsetid @ 100, endgid @ 102, nguid @ 104,
    eui64 @ 120, lbaf @ 128, vs @ 384);

impl IdentifyNamespace {
    /// A namespace of `blocks` blocks of `2^lbads` bytes, with that one format and no metadata.
    pub fn of_blocks(blocks: u64, lbads: u8) -> Self {
        let mut id = Self::default();
        id.nsze.set(blocks);
        id.ncap.set(blocks);
        id.nuse.set(blocks);
        id.lbaf[0].lbads = lbads;
        let bytes = u128::from(blocks)
            .checked_shl(u32::from(lbads))
            .unwrap_or(0);
        id.nvmcap = bytes.to_le_bytes();
        id
    }

    /// The format in use; 16 formats and more need both halves of the index.
    pub fn format(&self) -> LbaFormat {
        let mut index = usize::from(self.flbas & 0xf);
        if self.nlbaf >= 16 {
            index |= usize::from(self.flbas >> 5 & 0b11) << 4;
        }
        self.lbaf[index]
    }

    /// Bytes a block; `None` for a format below 512 bytes or above 2^31, which no namespace has.
    pub fn block_bytes(&self) -> Option<u32> {
        let lbads = self.format().lbads;
        (9..32).contains(&lbads).then(|| 1 << lbads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_in_use_is_found_by_both_index_halves() {
        let mut id = IdentifyNamespace::of_blocks(1000, 12);
        assert_eq!(id.block_bytes(), Some(4096));
        assert_eq!(u128::from_le_bytes(id.nvmcap), 4_096_000);
        id.nlbaf = 63;
        id.flbas = 0x61;
        id.lbaf[0x31].lbads = 9;
        let back = IdentifyNamespace::parse(id.as_wire()).unwrap();
        assert_eq!(back.block_bytes(), Some(512));
        id.lbaf[0x31].lbads = 200;
        assert_eq!(id.block_bytes(), None);
    }
}
