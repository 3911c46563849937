//! The Discovery log page (70h): a header and one entry a path to a subsystem.

use crate::fabrics::{AddressFamily, TransportType};
use crate::layout::{layout, wire};
use crate::text;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// LSP bit 1 of Get Log Page (PLEO): only entries of the port that was asked.
pub const PORT_LOCAL: u8 = 1 << 1;
/// TREQ: nothing is said about secure channels. With "not required" nvme-cli 2.3 asks for TLS.
pub const TREQ_SECURE_CHANNEL_NOT_SPECIFIED: u8 = 0;

/// The page's first 1024 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// GENCTR: changes when the page does. A host reads it again after the entries.
    pub genctr: U64,
    /// NUMREC: entries that follow.
    pub numrec: U64,
    /// RECFMT, 0.
    pub recfmt: U16,
    /// Which LSP filters were applied (NVMe 2.1).
    pub dlpf: u8,
    reserved19: u8,
    /// TDLPL: bytes of the whole page (NVMe 2.1), 0 if not reported.
    pub tdlpl: U32,
    reserved24: [u8; 1000],
}

wire!(DiscoveryHeader);
layout!(DiscoveryHeader, 1024, genctr @ 0, numrec @ 8, recfmt @ 16, tdlpl @ 20);

impl DiscoveryHeader {
    /// The header of a page with `records` entries.
    pub fn new(generation: u64, records: u64) -> Self {
        let mut header = Self::default();
        header.genctr.set(generation);
        header.numrec.set(records);
        header
    }
}

/// SUBTYPE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SubsystemType {
    /// Another discovery service.
    Referral = 1,
    /// A subsystem with namespaces.
    Nvm = 2,
    /// The discovery service that was asked.
    CurrentDiscovery = 3,
}

/// One entry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// TRTYPE.
    pub trtype: u8,
    /// ADRFAM.
    pub adrfam: u8,
    /// SUBTYPE, see [`SubsystemType`].
    pub subtype: u8,
    /// TREQ, see [`TREQ_SECURE_CHANNEL_NOT_SPECIFIED`].
    pub treq: u8,
    /// PORTID.
    pub portid: U16,
    /// CNTLID: FFFFh for the dynamic model.
    pub cntlid: U16,
    /// ASQSZ: largest admin queue in entries, at least 32.
    pub asqsz: U16,
    /// EFLAGS: bit 0 duplicate information, bit 1 persistent connections to discovery.
    pub eflags: U16,
    reserved12: [u8; 20],
    /// TRSVCID: the TCP port in decimal, space padded.
    pub trsvcid: [u8; 32],
    reserved64: [u8; 192],
    /// SUBNQN, NUL padded.
    pub subnqn: [u8; 256],
    /// TRADDR, space padded.
    pub traddr: [u8; 256],
    /// TSAS: for TCP byte 0 is SECTYPE, 0 for none.
    pub tsas: [u8; 256],
}

wire!(DiscoveryEntry);
layout!(DiscoveryEntry, 1024, trtype @ 0, adrfam @ 1, subtype @ 2, treq @ 3, portid @ 4,
    cntlid @ 6, asqsz @ 8, eflags @ 10, trsvcid @ 32, subnqn @ 256, traddr @ 512, tsas @ 768);

impl DiscoveryEntry {
    /// An entry for a subsystem of dynamic controllers at a TCP address, without secure channel.
    pub fn tcp(
        subtype: SubsystemType,
        family: AddressFamily,
        address: &str,
        port: u16,
        subnqn: &str,
    ) -> Self {
        let mut entry = Self {
            trtype: TransportType::Tcp as u8,
            adrfam: family as u8,
            subtype: subtype as u8,
            treq: TREQ_SECURE_CHANNEL_NOT_SPECIFIED,
            cntlid: U16::new(crate::fabrics::CNTLID_DYNAMIC),
            asqsz: U16::new(32),
            ..Self::default()
        };
        text::set_padded(&mut entry.traddr, address);
        text::set_padded(&mut entry.trsvcid, &port.to_string());
        text::set_terminated(&mut entry.subnqn, subnqn);
        entry
    }

    /// TRADDR as text.
    pub fn traddr(&self) -> String {
        text::get(&self.traddr)
    }

    /// TRSVCID as text.
    pub fn trsvcid(&self) -> String {
        text::get(&self.trsvcid)
    }

    /// SUBNQN as text.
    pub fn subnqn(&self) -> String {
        text::get(&self.subnqn)
    }

    /// The entries in what follows the header, at most `count`; a cut-off one is left out.
    pub fn list(bytes: &[u8], count: u64) -> &[Self] {
        let whole = bytes.len() / Self::BYTES;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(whole);
        <[Self]>::ref_from_prefix_with_elems(bytes, count).map_or(&[], |(entries, _)| entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let nqn = "nqn.2024-01.com.example:a";
        let entry = DiscoveryEntry::tcp(SubsystemType::Nvm, AddressFamily::Ipv6, "::1", 4420, nqn);
        let mut page = entry.as_wire().to_vec();
        page.extend_from_slice(&[0; 1000]);
        let entries = DiscoveryEntry::list(&page, u64::MAX);
        assert_eq!(entries, [entry]);
        assert_eq!(entries[0].traddr(), "::1");
        assert_eq!(entries[0].trsvcid(), "4420");
        assert_eq!(entries[0].subnqn(), nqn);
        assert!(DiscoveryEntry::list(&page, 0).is_empty());
        let header = DiscoveryHeader::new(7, 1);
        assert_eq!(header.as_wire()[..9], [7, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
