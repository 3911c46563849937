//! Asynchronous events (Base 2.1, 5.1.2): which are enabled, and how a completion names one.

use crate::log::lid;

/// Bits of OAES (Identify Controller: can be sent) and of the Asynchronous Event Configuration
/// feature (shall be sent). Linux asks only for what OAES has.
pub mod notices {
    /// SMART / health critical warnings, only in the feature.
    pub const SMART_WARNINGS: u32 = 0xff;
    /// Attached Namespace Attribute Notices.
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Firmware Activation Notices.
    pub const FIRMWARE_ACTIVATION: u32 = 1 << 9;
    /// Asymmetric Namespace Access Change Notices.
    pub const ANA_CHANGE: u32 = 1 << 11;
    /// Discovery Log Page Change Notification; only of discovery controllers.
    pub const DISCOVERY_LOG_CHANGE: u32 = 1 << 31;
}

/// An event a controller reports. Each stays masked until the host reads its log page without RAE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AsyncEvent {
    /// Error: persistent internal error.
    PersistentInternalError,
    /// Error: transient internal error.
    TransientInternalError,
    /// SMART / health: NVM subsystem reliability is degraded.
    SubsystemReliability,
    /// SMART / health: available spare fell below its threshold.
    SpareBelowThreshold,
    /// Notice: a namespace came, went or changed.
    NamespaceAttributeChanged,
    /// Notice: an ANA state changed.
    AnaChange,
    /// Notice: the discovery log page changed.
    DiscoveryLogChange,
    /// I/O command set: reservation notifications are available.
    ReservationLogAvailable,
    /// Any other: type, information and log page as sent.
    Other {
        /// Event type, 3 bits.
        kind: u8,
        /// Event information.
        information: u8,
        /// The log page that tells more.
        log: u8,
    },
}

/// The named events: type, information, log page.
const NAMED: [(AsyncEvent, u8, u8, u8); 8] = [
    (
        AsyncEvent::PersistentInternalError,
        0,
        3,
        lid::ERROR_INFORMATION,
    ),
    (
        AsyncEvent::TransientInternalError,
        0,
        4,
        lid::ERROR_INFORMATION,
    ),
    (AsyncEvent::SubsystemReliability, 1, 0, lid::SMART_HEALTH),
    (AsyncEvent::SpareBelowThreshold, 1, 2, lid::SMART_HEALTH),
    (
        AsyncEvent::NamespaceAttributeChanged,
        2,
        0x00,
        lid::CHANGED_NAMESPACES,
    ),
    (AsyncEvent::AnaChange, 2, 0x03, lid::ANA),
    (AsyncEvent::DiscoveryLogChange, 2, 0xf0, lid::DISCOVERY),
    (
        AsyncEvent::ReservationLogAvailable,
        6,
        0x00,
        lid::RESERVATION_NOTIFICATION,
    ),
];

impl AsyncEvent {
    /// Dword 0 of the completion that reports the event.
    pub fn dw0(self) -> u32 {
        let (kind, information, log) = self.parts();
        u32::from(kind & 0b111) | u32::from(information) << 8 | u32::from(log) << 16
    }

    /// The event that dword 0 of a completion reports.
    pub fn from_dw0(dw0: u32) -> Self {
        let (kind, information, log) = (dw0 as u8 & 0b111, (dw0 >> 8) as u8, (dw0 >> 16) as u8);
        NAMED
            .iter()
            .find(|named| (named.1, named.2, named.3) == (kind, information, log))
            .map_or(
                Self::Other {
                    kind,
                    information,
                    log,
                },
                |named| named.0,
            )
    }

    /// The log page whose reading re-arms the event.
    pub fn log_page(self) -> u8 {
        self.parts().2
    }

    /// The bit of [`notices`] that enables it; `None` if it cannot be disabled that way.
    pub fn enabled_by(self) -> Option<u32> {
        match self {
            Self::NamespaceAttributeChanged => Some(notices::NAMESPACE_ATTRIBUTE),
            Self::AnaChange => Some(notices::ANA_CHANGE),
            Self::DiscoveryLogChange => Some(notices::DISCOVERY_LOG_CHANGE),
            Self::SubsystemReliability => Some(1 << 2),
            Self::SpareBelowThreshold => Some(1 << 0),
            _ => None,
        }
    }

    fn parts(self) -> (u8, u8, u8) {
        if let Self::Other {
            kind,
            information,
            log,
        } = self
        {
            return (kind, information, log);
        }
        NAMED
            .iter()
            .find(|named| named.0 == self)
            .map_or((0, 0, 0), |named| (named.1, named.2, named.3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        for (event, ..) in NAMED {
            assert_eq!(AsyncEvent::from_dw0(event.dw0()), event);
        }
        assert_eq!(AsyncEvent::NamespaceAttributeChanged.dw0(), 0x0004_0002);
        assert_eq!(AsyncEvent::DiscoveryLogChange.dw0(), 0x0070_f002);
        assert_eq!(AsyncEvent::AnaChange.dw0(), 0x000c_0302);
        let other = AsyncEvent::from_dw0(0x0011_2207);
        assert_eq!(other.dw0(), 0x0011_2207);
    }
}
