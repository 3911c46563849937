//! Identify Controller (CNS 01h).

use crate::layout::{layout, wire};
use crate::text;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// CMIC bits.
pub mod cmic {
    /// Several ports.
    pub const MULTIPLE_PORTS: u8 = 1 << 0;
    /// Several controllers; Linux refuses a second one without it.
    pub const MULTIPLE_CONTROLLERS: u8 = 1 << 1;
    /// ANA reporting.
    pub const ANA_REPORTING: u8 = 1 << 3;
}

/// OACS bits.
pub mod oacs {
    /// Format NVM.
    pub const FORMAT: u16 = 1 << 1;
    /// Namespace Management and Attachment.
    pub const NAMESPACE_MANAGEMENT: u16 = 1 << 3;
}

/// CTRATT bits.
pub mod ctratt {
    /// 128-bit host identifier.
    pub const HOST_ID_128: u32 = 1 << 0;
    /// Traffic based keep alive.
    pub const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
}

/// LPA bits.
pub mod lpa {
    /// SMART per namespace.
    pub const SMART_PER_NAMESPACE: u8 = 1 << 0;
    /// Commands Supported and Effects.
    pub const COMMANDS_SUPPORTED: u8 = 1 << 1;
    /// Extended data: 32-bit NUMD and LPO of Get Log Page.
    pub const EXTENDED_DATA: u8 = 1 << 2;
    /// Supported Log Pages, among others.
    pub const MISCELLANEOUS: u8 = 1 << 5;
}

/// ONCS bits.
pub mod oncs {
    pub const COMPARE: u16 = 1 << 0;
    /// Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save and Select of features.
    pub const SAVE_SELECT: u16 = 1 << 4;
    pub const RESERVATIONS: u16 = 1 << 5;
    pub const TIMESTAMP: u16 = 1 << 6;
    pub const VERIFY: u16 = 1 << 7;
    pub const COPY: u16 = 1 << 8;
}

/// SGLS bits.
pub mod sgls {
    /// SGLs without alignment requirement; bits 1:0 must not be 0 over fabrics.
    pub const SUPPORTED: u32 = 1 << 0;
    /// Address as offset: in-capsule data.
    pub const OFFSET: u32 = 1 << 20;
    /// Transport SGL data block.
    pub const TRANSPORT: u32 = 1 << 21;
}

/// ANACAP bits.
pub mod anacap {
    /// Reports state optimized.
    pub const OPTIMIZED: u8 = 1 << 0;
    /// Reports state non-optimized.
    pub const NON_OPTIMIZED: u8 = 1 << 1;
    /// Reports state inaccessible.
    pub const INACCESSIBLE: u8 = 1 << 2;
    /// Reports state persistent loss.
    pub const PERSISTENT_LOSS: u8 = 1 << 3;
    /// Reports state change.
    pub const CHANGE: u8 = 1 << 4;
    /// A namespace's ANAGRPID does not change while it is attached.
    pub const GROUP_FIXED: u8 = 1 << 6;
}

/// Identify Controller.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI vendor ID; 0 over fabrics.
    pub vid: U16,
    pub ssvid: U16,
    /// Serial number; use [`IdentifyController::set_identity`].
    pub sn: [u8; 20],
    /// Model number.
    pub mn: [u8; 40],
    /// Firmware revision.
    pub fr: [u8; 8],
    pub rab: u8,
    pub ieee: [u8; 3],
    /// See [`cmic`].
    pub cmic: u8,
    /// Largest transfer: `2^mdts` pages of CAP.MPSMIN; 0 for no limit.
    pub mdts: u8,
    /// Must be what Connect answered.
    pub cntlid: U16,
    pub ver: U32,
    pub rtd3r: U32,
    pub rtd3e: U32,
    /// See [`crate::event::notices`].
    pub oaes: U32,
    /// See [`ctratt`].
    pub ctratt: U32,
    pub rrls: U16,
    pub bpcap: u8,
    reserved103: u8,
    pub nssl: U32,
    reserved108: [u8; 2],
    pub plsi: u8,
    /// 1 I/O, 2 discovery, 3 administrative.
    pub cntrltype: u8,
    pub fguid: [u8; 16],
    /// Command retry delays 1 to 3 in units of 100 ms.
    pub crdt: [U16; 3],
    pub crcap: u8,
    reserved135: [u8; 118],
    pub nvmsr: u8,
    pub vwci: u8,
    pub mec: u8,
    /// See [`oacs`].
    pub oacs: U16,
    /// Concurrent Abort commands, minus one.
    pub acl: u8,
    /// Outstanding Asynchronous Event Requests, minus one.
    pub aerl: u8,
    pub frmw: u8,
    /// See [`lpa`].
    pub lpa: u8,
    /// Error Information entries, minus one.
    pub elpe: u8,
    /// Power states, minus one.
    pub npss: u8,
    pub avscc: u8,
    pub apsta: u8,
    /// Warning temperature in Kelvin.
    pub wctemp: U16,
    /// Critical temperature in Kelvin.
    pub cctemp: U16,
    pub mtfa: U16,
    pub hmpre: U32,
    pub hmmin: U32,
    /// Total capacity in bytes, 128 bits little-endian.
    pub tnvmcap: [u8; 16],
    /// Unallocated capacity in bytes, 128 bits little-endian.
    pub unvmcap: [u8; 16],
    pub rpmbs: U32,
    pub edstt: U16,
    pub dsto: u8,
    pub fwug: u8,
    /// Keep alive granularity in units of 100 ms; not 0.
    pub kas: U16,
    pub hctma: U16,
    pub mntmt: U16,
    pub mxtmt: U16,
    pub sanicap: U32,
    pub hmminds: U32,
    pub hmmaxd: U16,
    pub nsetidmax: U16,
    pub endgidmax: U16,
    /// Longest ANA transition in seconds; not 0 with ANA.
    pub anatt: u8,
    /// See [`anacap`].
    pub anacap: u8,
    pub anagrpmax: U32,
    pub nanagrpid: U32,
    pub pels: U32,
    pub domainid: U16,
    pub kpioc: u8,
    reserved359: u8,
    pub mptfawr: U16,
    reserved362: [u8; 6],
    pub megcap: [u8; 16],
    pub tmpthha: u8,
    reserved385: u8,
    pub cqt: U16,
    reserved388: [u8; 124],
    /// Submission entry sizes as powers of two: required (3:0), maximum (7:4); 66h.
    pub sqes: u8,
    /// Completion entry sizes as powers of two: required (3:0), maximum (7:4); 44h.
    pub cqes: u8,
    /// Outstanding commands a queue.
    pub maxcmd: U16,
    /// Highest NSID.
    pub nn: U32,
    /// See [`oncs`].
    pub oncs: U16,
    /// Bit 0: fused compare and write.
    pub fuses: U16,
    pub fna: u8,
    /// Bit 0: volatile write cache; bits 2:1: 3 if Flush takes the broadcast NSID, 2 if not.
    pub vwc: u8,
    /// Atomic write in blocks, minus one.
    pub awun: U16,
    /// Atomic write across a power failure in blocks, minus one.
    pub awupf: U16,
    pub icsvscc: u8,
    pub nwpc: u8,
    pub acwu: U16,
    pub ocfs: U16,
    /// See [`sgls`].
    pub sgls: U32,
    /// Most allowed namespaces; not 0 with ANA.
    pub mnan: U32,
    pub maxdna: [u8; 16],
    pub maxcna: U32,
    reserved564: [u8; 204],
    /// Subsystem NQN, NUL padded.
    pub subnqn: [u8; 256],
    reserved1024: [u8; 768],
    /// I/O command capsule in units of 16 bytes: entry and in-capsule data.
    pub ioccsz: U32,
    /// I/O response capsule in units of 16 bytes: 1.
    pub iorcsz: U32,
    /// In-capsule data offset in units of 16 bytes behind the entry: 0.
    pub icdoff: U16,
    /// Bit 0: static controller model (0: dynamic).
    pub fcatt: u8,
    /// Most SGL data blocks a capsule; 1.
    pub msdbd: u8,
    /// Bit 0: Disconnect.
    pub ofcs: U16,
    pub dctype: u8,
    reserved1807: [u8; 241],
    pub psd: [PowerState; 32],
    pub vs: [u8; 1024],
}

wire!(IdentifyController);
layout!(IdentifyController, 4096, vid @ 0, sn @ 4, mn @ 24, fr @ 64, rab @ 72, ieee @ 73,
    cmic @ 76, mdts @ 77, cntlid @ 78, ver @ 80, rtd3r @ 84, rtd3e @ 88, oaes @ 92, ctratt @ 96,
    rrls @ 100, nssl @ 104, cntrltype @ 111, fguid @ 112, crdt @ 128, nvmsr @ 253, oacs @ 256,
    acl @ 258, aerl @ 259, frmw @ 260, lpa @ 261, elpe @ 262, npss @ 263, wctemp @ 266,
    cctemp @ 268, mtfa @ 270, tnvmcap @ 280, unvmcap @ 296, rpmbs @ 312, kas @ 320,
    sanicap @ 328, hmminds @ 332, nsetidmax @ 338, anatt @ 342, anacap @ 343, anagrpmax @ 344,
    nanagrpid @ 348, pels @ 352, domainid @ 356, megcap @ 368, cqt @ 386, sqes @ 512, cqes @ 513,
    maxcmd @ 514, nn @ 516, oncs @ 520, fuses @ 522, fna @ 524, vwc @ 525, awun @ 526,
    awupf @ 528, nwpc @ 531, acwu @ 532, ocfs @ 534, sgls @ 536, mnan @ 540, maxdna @ 544,
    maxcna @ 560, subnqn @ 768, ioccsz @ 1792, iorcsz @ 1796, icdoff @ 1800, fcatt @ 1802,
    msdbd @ 1803, ofcs @ 1804, dctype @ 1806, psd @ 2048, vs @ 3072);

/// A power state descriptor.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PowerState {
    /// Maximum power, in units of 10 mW unless `flags` bit 0 says 0.1 mW.
    pub mp: U16,
    reserved2: u8,
    /// Bit 0: scale of `mp`; bit 1: non-operational.
    pub flags: u8,
    /// Entry latency in microseconds.
    pub enlat: U32,
    /// Exit latency in microseconds.
    pub exlat: U32,
    /// Relative performance and power, not reported by us.
    pub rest: [u8; 20],
}

wire!(PowerState);
layout!(PowerState, 32, mp @ 0, flags @ 3, enlat @ 4, exlat @ 8);

impl IdentifyController {
    /// Sets serial number, model number and firmware revision, space padded.
    pub fn set_identity(&mut self, serial: &str, model: &str, firmware: &str) {
        text::set_padded(&mut self.sn, serial);
        text::set_padded(&mut self.mn, model);
        text::set_padded(&mut self.fr, firmware);
    }

    /// Sets the subsystem's NQN.
    pub fn set_subnqn(&mut self, nqn: &str) {
        text::set_terminated(&mut self.subnqn, nqn);
    }

    /// Sets IOCCSZ for `bytes` (rounded down to 16) of in-capsule data on I/O queues.
    pub fn set_in_capsule_bytes(&mut self, bytes: u32) {
        self.ioccsz.set(4 + bytes / 16);
    }

    /// Bytes of in-capsule data that IOCCSZ leaves for I/O queues.
    pub fn in_capsule_bytes(&self) -> u64 {
        u64::from(self.ioccsz.get().saturating_sub(4)) * 16
    }

    /// Largest transfer in bytes for a controller whose CAP.MPSMIN page has `page` bytes; `None` for no
    /// limit (or one that 64 bits cannot hold).
    pub fn max_transfer_bytes(&self, page: u64) -> Option<u64> {
        if self.mdts == 0 {
            return None;
        }
        page.checked_mul(1u64.checked_shl(u32::from(self.mdts))?)
    }

    /// Serial number.
    pub fn serial(&self) -> String {
        text::get(&self.sn)
    }

    /// Model number.
    pub fn model(&self) -> String {
        text::get(&self.mn)
    }

    /// Firmware revision.
    pub fn firmware(&self) -> String {
        text::get(&self.fr)
    }

    /// Subsystem NQN.
    pub fn subnqn(&self) -> String {
        text::get(&self.subnqn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_sizes_round_trip() {
        let mut id = IdentifyController::default();
        id.set_identity("SN1", "Ashlar", "0.1.0");
        id.set_subnqn("nqn.2024-01.com.example:a");
        id.set_in_capsule_bytes(16 << 10);
        id.mdts = 8;
        let back = IdentifyController::parse(id.as_wire()).unwrap();
        assert_eq!(&back.as_wire()[4..8], b"SN1 ");
        assert_eq!(back.ioccsz.get(), 1028);
        assert_eq!(back.in_capsule_bytes(), 16 << 10);
        assert_eq!(back.max_transfer_bytes(4096), Some(1 << 20));
        assert_eq!(
            (back.serial(), back.model()),
            ("SN1".into(), "Ashlar".into())
        );
        assert_eq!(back.subnqn(), "nqn.2024-01.com.example:a");
    }

    #[test]
    fn odd_limits_do_not_overflow() {
        let mut id = IdentifyController::default();
        assert_eq!(id.max_transfer_bytes(4096), None);
        assert_eq!(id.in_capsule_bytes(), 0);
        id.mdts = 255;
        assert_eq!(id.max_transfer_bytes(4096), None);
        id.mdts = 60;
        assert_eq!(id.max_transfer_bytes(4096), None);
    }
}
