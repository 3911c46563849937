//! Error information, health, firmware, supported commands and pages, changed namespaces.

use crate::identify::namespace_list;
use crate::layout::{layout, wire};
use crate::status::Status;
use crate::text;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One entry of Error Information (01h), the newest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ErrorInformation {
    /// Which error this is; 0 for an unused entry.
    pub error_count: U64,
    /// Submission queue.
    pub sqid: U16,
    pub cid: U16,
    /// Its status field, as in the completion.
    pub status_field: U16,
    /// Byte (7:0) and bit (10:8) of the parameter in error; FFFFh for none.
    pub parameter_location: U16,
    /// First block in error.
    pub lba: U64,
    pub nsid: U32,
    /// Vendor specific log page, 0 for none.
    pub vendor: u8,
    /// Transport type.
    pub trtype: u8,
    /// I/O command set.
    pub csi: u8,
    pub opcode: u8,
    /// Command specific information.
    pub command_specific: U64,
    /// Transport specific information.
    pub transport_specific: U16,
    reserved42: [u8; 21],
    /// 1 if `csi` and `opcode` are valid.
    pub log_page_version: u8,
}

wire!(ErrorInformation);
layout!(ErrorInformation, 64, error_count @ 0, sqid @ 8, cid @ 10, status_field @ 12,
    parameter_location @ 14, lba @ 16, nsid @ 24, trtype @ 29, csi @ 30, opcode @ 31,
    command_specific @ 32, transport_specific @ 40, log_page_version @ 63);

impl ErrorInformation {
    /// The status of the command in error.
    pub fn status(&self) -> Status {
        Status::from_wire(self.status_field.get())
    }
}

/// SMART / Health Information (02h). 128-bit counters are little-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SmartHealth {
    /// Bit 0 spare, 1 temperature, 2 reliability, 3 read only, 4 volatile memory backup.
    pub critical_warning: u8,
    /// Composite temperature in Kelvin.
    pub temperature: U16,
    /// Available spare in percent.
    pub available_spare: u8,
    /// Threshold of it in percent.
    pub spare_threshold: u8,
    /// Estimated life used, in percent.
    pub percentage_used: u8,
    /// Endurance groups' critical warnings.
    pub endurance_warnings: u8,
    reserved7: [u8; 25],
    /// Thousands of 512-byte units read, rounded up.
    pub data_units_read: [u8; 16],
    /// Thousands of 512-byte units written, rounded up.
    pub data_units_written: [u8; 16],
    /// Read commands.
    pub host_reads: [u8; 16],
    /// Write commands.
    pub host_writes: [u8; 16],
    /// Minutes busy.
    pub controller_busy: [u8; 16],
    /// Power cycles.
    pub power_cycles: [u8; 16],
    /// Hours on.
    pub power_on_hours: [u8; 16],
    /// Unsafe shutdowns.
    pub unsafe_shutdowns: [u8; 16],
    /// Media and data integrity errors.
    pub media_errors: [u8; 16],
    /// Error Information entries over the controller's life.
    pub error_entries: [u8; 16],
    /// Minutes above the warning temperature.
    pub warning_temperature_minutes: U32,
    /// Minutes above the critical temperature.
    pub critical_temperature_minutes: U32,
    /// Temperature sensors in Kelvin, 0 for none.
    pub sensors: [U16; 8],
    /// Thermal management counters.
    pub thermal: [U32; 4],
    reserved232: [u8; 280],
}

wire!(SmartHealth);
layout!(SmartHealth, 512, temperature @ 1, available_spare @ 3, percentage_used @ 5,
    data_units_read @ 32, data_units_written @ 48, host_reads @ 64, host_writes @ 80,
    controller_busy @ 96, power_cycles @ 112, power_on_hours @ 128, unsafe_shutdowns @ 144,
    media_errors @ 160, error_entries @ 176, warning_temperature_minutes @ 192, sensors @ 200,
    thermal @ 216);

/// Firmware Slot Information (03h).
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FirmwareSlots {
    /// Active slot (2:0), slot at the next reset (6:4).
    pub active: u8,
    reserved1: [u8; 7],
    /// Revisions of slots 1 to 7.
    pub revisions: [[u8; 8]; 7],
    reserved64: [u8; 448],
}

wire!(FirmwareSlots);
layout!(FirmwareSlots, 512, active @ 0, revisions @ 8);

impl FirmwareSlots {
    /// One slot, active, with this revision.
    pub fn single(revision: &str) -> Self {
        let mut page = Self {
            active: 1,
            ..Self::default()
        };
        text::set_padded(&mut page.revisions[0], revision);
        page
    }
}

/// Bits of an entry of Commands Supported and Effects.
pub mod effects {
    /// CSUPP: supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// LBCC: changes logical blocks.
    pub const CHANGES_BLOCKS: u32 = 1 << 1;
    /// NCC: changes a namespace's capabilities.
    pub const CHANGES_NAMESPACE: u32 = 1 << 2;
    /// CCC: changes the controller's capabilities.
    pub const CHANGES_CONTROLLER: u32 = 1 << 4;
}

/// Commands Supported and Effects (05h).
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CommandsSupported {
    /// Admin commands by opcode, see [`effects`].
    pub admin: [U32; 256],
    /// I/O commands by opcode, see [`effects`].
    pub io: [U32; 256],
    reserved2048: [u8; 2048],
}

wire!(CommandsSupported);
layout!(CommandsSupported, 4096, admin @ 0, io @ 1024);

/// Supported Log Pages (00h).
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SupportedLogPages {
    /// By LID: bit 0 supported, bit 1 index offset supported.
    pub pages: [U32; 256],
}

wire!(SupportedLogPages);
layout!(SupportedLogPages, 1024, pages @ 0);

impl SupportedLogPages {
    /// A page that lists `lids`, without index offsets.
    pub fn of(lids: &[u8]) -> Self {
        let mut page = Self::default();
        for &lid in lids {
            page.pages[usize::from(lid)].set(1);
        }
        page
    }

    /// True if the page with this identifier is supported.
    pub fn supports(&self, lid: u8) -> bool {
        self.pages[usize::from(lid)].get() & 1 != 0
    }
}

/// Changed Attached Namespace List (04h), 4096 bytes; more than 1024 become "too many" (FFFFFFFFh).
/// Read it with [`crate::identify::parse_namespace_list`].
pub fn changed_namespaces(ids: &[u32]) -> Vec<u8> {
    if ids.len() > 1024 {
        return namespace_list([u32::MAX], 0);
    }
    namespace_list(ids.iter().copied(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identify::parse_namespace_list;

    #[test]
    fn simple_pages_say_what_was_put_in() {
        let slots = FirmwareSlots::single("0.1.0");
        assert_eq!(&slots.as_wire()[8..16], b"0.1.0   ");
        let supported = SupportedLogPages::of(&[0, 0x70]);
        assert!(supported.supports(0x70) && !supported.supports(1));
        let many: Vec<u32> = (1..=1025).collect();
        let collect = |page: &[u8]| parse_namespace_list(page).collect::<Vec<_>>();
        assert_eq!(collect(&changed_namespaces(&many)), [u32::MAX]);
        assert_eq!(collect(&changed_namespaces(&[1, 9])), [1, 9]);
    }
}
