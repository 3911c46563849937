//! Log pages (Base 2.1, 5.1.12).

mod ana;
mod discovery;
mod pages;

pub use ana::{ANA_HEADER_BYTES, AnaGroup, AnaLog, AnaState};
pub use discovery::{
    DiscoveryEntry, DiscoveryHeader, PORT_LOCAL, SubsystemType, TREQ_SECURE_CHANNEL_NOT_SPECIFIED,
};
pub use pages::{
    CommandsSupported, ErrorInformation, FirmwareSlots, SmartHealth, SupportedLogPages,
    changed_namespaces, effects,
};

use crate::command::GetLogPage;

/// Log page identifiers.
pub mod lid {
    /// Supported Log Pages.
    pub const SUPPORTED_LOG_PAGES: u8 = 0x00;
    /// Error Information.
    pub const ERROR_INFORMATION: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART_HEALTH: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Attached Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const COMMANDS_SUPPORTED: u8 = 0x05;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0c;
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation Notification.
    pub const RESERVATION_NOTIFICATION: u8 = 0x80;

    /// The specification's name, `"?"` for what is not listed here.
    pub fn name(lid: u8) -> &'static str {
        match lid {
            SUPPORTED_LOG_PAGES => "Supported Log Pages",
            ERROR_INFORMATION => "Error Information",
            SMART_HEALTH => "SMART / Health Information",
            FIRMWARE_SLOT => "Firmware Slot Information",
            CHANGED_NAMESPACES => "Changed Attached Namespace List",
            COMMANDS_SUPPORTED => "Commands Supported and Effects",
            ANA => "Asymmetric Namespace Access",
            DISCOVERY => "Discovery",
            RESERVATION_NOTIFICATION => "Reservation Notification",
            _ => "?",
        }
    }
}

/// The part of a log page that a Get Log Page asks for, no longer than the page: what lies behind its
/// end is for the controller to leave zero. `None` if the offset is beyond the end or not a multiple
/// of 4, or counts entries (which none of these pages supports): status Invalid Field.
pub fn window(page: &[u8], wanted: GetLogPage) -> Option<&[u8]> {
    let from = usize::try_from(wanted.offset).ok()?;
    if wanted.offset_type || !from.is_multiple_of(4) {
        return None;
    }
    let rest = page.get(from..)?;
    let bytes = usize::try_from(wanted.bytes).unwrap_or(usize::MAX);
    Some(&rest[..rest.len().min(bytes)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_keeps_within_the_page() {
        let page = [7; 1024];
        let ask = |offset, bytes| GetLogPage {
            lid: 0,
            lsp: 0,
            retain_event: false,
            bytes,
            offset,
            offset_type: false,
        };
        assert_eq!(window(&page, ask(0, 16)).map(<[u8]>::len), Some(16));
        assert_eq!(window(&page, ask(1000, 4096)).map(<[u8]>::len), Some(24));
        assert_eq!(window(&page, ask(1024, 4)).map(<[u8]>::len), Some(0));
        assert_eq!(window(&page, ask(1028, 4)), None);
        assert_eq!(window(&page, ask(2, 4)), None);
        assert_eq!(window(&page, ask(u64::MAX - 3, u64::MAX)), None);
    }
}
