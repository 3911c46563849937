//! Controller properties (Base 2.1, 3.1.4), what PCIe calls registers: offsets and bit fields.

/// Controller Capabilities, 8 bytes, read only.
pub const CAP: u32 = 0x00;
/// Version, 4 bytes, read only.
pub const VS: u32 = 0x08;
/// Controller Configuration, 4 bytes.
pub const CC: u32 = 0x14;
/// Controller Status, 4 bytes, read only.
pub const CSTS: u32 = 0x1c;
/// NVM Subsystem Reset, 4 bytes.
pub const NSSR: u32 = 0x20;
/// Controller Ready Timeouts, 4 bytes, read only.
pub const CRTO: u32 = 0x68;

/// VS of a controller of version `major.minor.tertiary`.
pub const fn version(major: u16, minor: u8, tertiary: u8) -> u32 {
    (major as u32) << 16 | (minor as u32) << 8 | tertiary as u32
}

/// CAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cap(pub u64);

impl Cap {
    /// CSS bit 0 (bit 37): the NVM command set.
    const CSS_NVM: u64 = 1 << 37;
    /// CQR: queues must be physically contiguous; always set over fabrics.
    const CQR: u64 = 1 << 16;

    /// A controller with the NVM command set, 4 KiB host pages and these limits.
    ///
    /// `entries` is the largest queue in entries (2..=65536; clamped), `ready_timeout` how long a
    /// change of CC.EN may take, in units of 500 ms.
    pub fn new(entries: u32, ready_timeout: u8) -> Self {
        let mqes = u64::from(entries.clamp(2, 1 << 16) - 1);
        Self(mqes | Self::CQR | u64::from(ready_timeout) << 24 | Self::CSS_NVM)
    }

    /// MQES as a count of entries.
    pub fn max_queue_entries(self) -> u32 {
        (self.0 as u32 & 0xffff) + 1
    }

    /// TO in units of 500 ms.
    pub fn ready_timeout(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// CSS: bit 0 NVM, bit 6 I/O command sets by Identify, bit 7 admin only.
    pub fn command_sets(self) -> u8 {
        (self.0 >> 37) as u8
    }

    /// The smallest host page in bytes (MPSMIN).
    pub fn min_page_bytes(self) -> u64 {
        4096 << (self.0 >> 48 & 0xf)
    }

    /// The largest host page in bytes (MPSMAX).
    pub fn max_page_bytes(self) -> u64 {
        4096 << (self.0 >> 52 & 0xf)
    }
}

/// What CC.SHN asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shutdown {
    None,
    /// A normal shutdown.
    Normal,
    /// An abrupt shutdown.
    Abrupt,
    /// The reserved value.
    Reserved,
}

/// CC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cc(pub u32);

impl Cc {
    /// Enabled, NVM command set, 4 KiB pages, 64-byte and 16-byte queue entries.
    pub const ENABLED: Self = Self(1 | 6 << 16 | 4 << 20);

    /// EN.
    pub fn enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS: 0 NVM, 6 all supported command sets, 7 admin only.
    pub fn command_set(self) -> u8 {
        (self.0 >> 4 & 0b111) as u8
    }

    /// MPS: the host's page is `4096 << mps` bytes.
    pub fn mps(self) -> u8 {
        (self.0 >> 7 & 0xf) as u8
    }

    /// AMS: arbitration, 0 round robin.
    pub fn arbitration(self) -> u8 {
        (self.0 >> 11 & 0b111) as u8
    }

    /// SHN.
    pub fn shutdown(self) -> Shutdown {
        match self.0 >> 14 & 0b11 {
            0 => Shutdown::None,
            1 => Shutdown::Normal,
            2 => Shutdown::Abrupt,
            _ => Shutdown::Reserved,
        }
    }

    /// The same configuration that asks for a normal shutdown.
    #[must_use]
    pub fn with_normal_shutdown(self) -> Self {
        Self(self.0 & !(0b11 << 14) | 1 << 14)
    }

    /// IOSQES: a submission queue entry has `2^n` bytes; 6.
    pub fn iosqes(self) -> u8 {
        (self.0 >> 16 & 0xf) as u8
    }

    /// IOCQES: a completion queue entry has `2^n` bytes; 4.
    pub fn iocqes(self) -> u8 {
        (self.0 >> 20 & 0xf) as u8
    }
}

/// CSTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Csts(pub u32);

impl Csts {
    /// RDY: the controller takes commands.
    pub const READY: u32 = 1 << 0;
    /// CFS: fatal; only a reset helps.
    pub const FATAL: u32 = 1 << 1;
    /// SHST: shutdown is under way.
    pub const SHUTDOWN_OCCURRING: u32 = 1 << 2;
    /// SHST: shutdown is complete.
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;

    /// RDY.
    pub fn ready(self) -> bool {
        self.0 & Self::READY != 0
    }

    /// CFS.
    pub fn fatal(self) -> bool {
        self.0 & Self::FATAL != 0
    }

    /// True if SHST says that shutdown is complete.
    pub fn shutdown_complete(self) -> bool {
        self.0 & 0b11 << 2 == Self::SHUTDOWN_COMPLETE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let cap = Cap::new(128, 30);
        assert_eq!(cap.0, 0x0000_0020_1e01_007f);
        assert_eq!((cap.max_queue_entries(), cap.ready_timeout()), (128, 30));
        assert_eq!((cap.command_sets(), cap.min_page_bytes()), (1, 4096));
        assert_eq!(Cc::ENABLED.0, 0x0046_0001);
        assert_eq!((Cc::ENABLED.iosqes(), Cc::ENABLED.iocqes()), (6, 4));
        let down = Cc::ENABLED.with_normal_shutdown();
        assert_eq!((down.0, down.shutdown()), (0x0046_4001, Shutdown::Normal));
        assert!(Csts(0b1001).ready() && Csts(0b1001).shutdown_complete());
        assert_eq!(version(2, 1, 0), 0x0002_0100);
    }
}
