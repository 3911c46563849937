//! NVM command set (NVM Command Set 1.1, chapter 3): fields and builders.

use super::{Command, SglDescriptor, opcode};
use crate::layout::{layout, wire};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Dword 12: force unit access.
const FUA: u32 = 1 << 30;
/// Dword 12: limited retry.
const LIMITED_RETRY: u32 = 1 << 31;
/// Dword 12 of Write Zeroes: deallocate.
const DEAC: u32 = 1 << 25;
/// Dword 12 of a write: DTYPE, the type of a directive.
const DTYPE: u32 = 0xf << 20;
/// Dword 12: PRINFO, protection information.
const PRINFO: u32 = 0xf << 26;
/// Dword 11 of Dataset Management: attribute deallocate.
const DSM_DEALLOCATE: u32 = 1 << 2;

/// The most ranges of one Dataset Management command (NR is one byte, 0's based).
pub const DSM_RANGES_MAX: usize = 256;

impl Command {
    /// Read of `blocks` blocks (1..=65536; other counts are clamped) from `slba` into `sgl1`.
    pub fn read(nsid: u32, slba: u64, blocks: u32, sgl1: SglDescriptor) -> Self {
        Self::on_range(opcode::io::READ, nsid, slba, blocks).with_data(sgl1)
    }

    /// Write of `blocks` blocks (1..=65536; other counts are clamped) to `slba` from `sgl1`.
    pub fn write(nsid: u32, slba: u64, blocks: u32, sgl1: SglDescriptor) -> Self {
        Self::on_range(opcode::io::WRITE, nsid, slba, blocks).with_data(sgl1)
    }

    /// Compare of `blocks` blocks (1..=65536; other counts are clamped) with `sgl1`.
    pub fn compare(nsid: u32, slba: u64, blocks: u32, sgl1: SglDescriptor) -> Self {
        Self::on_range(opcode::io::COMPARE, nsid, slba, blocks).with_data(sgl1)
    }

    /// Write Zeroes over `blocks` blocks (1..=65536; other counts are clamped); with `deallocate`
    /// the controller may deallocate them, as long as they read as zeroes.
    pub fn write_zeroes(nsid: u32, slba: u64, blocks: u32, deallocate: bool) -> Self {
        let mut command = Self::on_range(opcode::io::WRITE_ZEROES, nsid, slba, blocks);
        if deallocate {
            command.cdw12 |= DEAC;
        }
        command
    }

    /// Verify of `blocks` blocks (1..=65536; other counts are clamped).
    pub fn verify(nsid: u32, slba: u64, blocks: u32) -> Self {
        Self::on_range(opcode::io::VERIFY, nsid, slba, blocks)
    }

    /// Flush of one namespace, or of all with [`NSID_BROADCAST`](super::NSID_BROADCAST).
    pub fn flush(nsid: u32) -> Self {
        Self::new(opcode::io::FLUSH, nsid)
    }

    /// Dataset Management, deallocate: `ranges` (1..=256; clamped) [`DsmRange`]s are in `sgl1`.
    pub fn deallocate(nsid: u32, ranges: u32, sgl1: SglDescriptor) -> Self {
        let mut command = Self::new(opcode::io::DATASET_MANAGEMENT, nsid).with_data(sgl1);
        command
            .cdw10
            .set(ranges.clamp(1, DSM_RANGES_MAX as u32) - 1);
        command.cdw11.set(DSM_DEALLOCATE);
        command
    }

    /// The same command with force unit access: not complete before the data is durable.
    #[must_use]
    pub fn with_fua(mut self) -> Self {
        self.cdw12 |= FUA;
        self
    }

    fn on_range(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Self {
        let mut command = Self::new(opcode, nsid);
        command.cdw10.set(slba as u32);
        command.cdw11.set((slba >> 32) as u32);
        command.cdw12.set(blocks.clamp(1, 1 << 16) - 1);
        command
    }

    /// SLBA: the first block.
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw10.get()) | u64::from(self.cdw11.get()) << 32
    }

    /// NLB as a count, 1..=65536 (on the wire it is one less).
    pub fn blocks(&self) -> u32 {
        (self.cdw12.get() & 0xffff) + 1
    }

    /// FUA of a read, write, compare, write zeroes or verify.
    pub fn fua(&self) -> bool {
        self.cdw12.get() & FUA != 0
    }

    /// LR: give up early rather than retry.
    pub fn limited_retry(&self) -> bool {
        self.cdw12.get() & LIMITED_RETRY != 0
    }

    /// PRINFO; our namespaces have no protection information, so it must be 0.
    pub fn prinfo(&self) -> u8 {
        ((self.cdw12.get() & PRINFO) >> 26) as u8
    }

    /// DTYPE of a write; 0 for no directive, and our controllers have none.
    pub fn directive_type(&self) -> u8 {
        ((self.cdw12.get() & DTYPE) >> 20) as u8
    }

    /// DEAC of Write Zeroes.
    pub fn deac(&self) -> bool {
        self.cdw12.get() & DEAC != 0
    }

    /// DSM of a read or write: access frequency, latency, sequential and incompressible hints.
    pub fn dsm_hints(&self) -> u8 {
        self.cdw13.get() as u8
    }

    /// NR of Dataset Management as a count, 1..=256.
    pub fn dsm_ranges(&self) -> usize {
        usize::from(self.cdw10.get() as u8) + 1
    }

    /// AD of Dataset Management. Without it the command is a hint that may be ignored.
    pub fn dsm_deallocate(&self) -> bool {
        self.cdw11.get() & DSM_DEALLOCATE != 0
    }
}

/// One range of Dataset Management.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes, hints.
    pub attributes: U32,
    /// Length in blocks; not 0's based.
    pub blocks: U32,
    /// First block.
    pub slba: U64,
}

wire!(DsmRange);
layout!(DsmRange, 16, attributes @ 0, blocks @ 4, slba @ 8);

impl DsmRange {
    /// A range without hints.
    pub fn new(slba: u64, blocks: u32) -> Self {
        Self {
            attributes: U32::new(0),
            blocks: U32::new(blocks),
            slba: U64::new(slba),
        }
    }

    /// The first `count` ranges in a command's data; `None` if it is too short for them.
    pub fn list(data: &[u8], count: usize) -> Option<&[Self]> {
        let (ranges, _) = <[Self]>::ref_from_prefix_with_elems(data, count).ok()?;
        Some(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_bits_round_trip() {
        let write = Command::write(1, 0x1_0000_0002, 8, SglDescriptor::in_capsule(4096)).with_fua();
        assert_eq!((write.slba(), write.blocks()), (0x1_0000_0002, 8));
        assert!(write.fua() && !write.deac() && !write.limited_retry());
        assert_eq!(write.prinfo(), 0);
        assert!(Command::write_zeroes(1, 0, 65_536, true).deac());
        assert_eq!(Command::write_zeroes(1, 0, 65_536, true).blocks(), 65_536);
        assert_eq!(Command::verify(1, 0, 0).blocks(), 1);
    }

    #[test]
    fn dataset_management_carries_a_list() {
        let command = Command::deallocate(1, 2, SglDescriptor::in_capsule(32));
        assert!(command.dsm_deallocate());
        assert_eq!(command.dsm_ranges(), 2);
        let mut data = Vec::new();
        for range in [DsmRange::new(8, 16), DsmRange::new(64, 1)] {
            data.extend_from_slice(range.as_wire());
        }
        let ranges = DsmRange::list(&data, command.dsm_ranges()).unwrap();
        assert_eq!(ranges[1], DsmRange::new(64, 1));
        assert!(DsmRange::list(&data, 3).is_none());
    }
}
