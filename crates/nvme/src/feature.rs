//! Feature identifiers and values (Base 2.1, 5.1.25).

/// Feature identifiers.
pub mod fid {
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Interrupt Coalescing.
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    /// Interrupt Vector Configuration.
    pub const INTERRUPT_VECTOR: u8 = 0x09;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIGURATION: u8 = 0x0b;
    pub const TIMESTAMP: u8 = 0x0e;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// Host Behavior Support.
    pub const HOST_BEHAVIOR: u8 = 0x16;
    /// I/O Command Set Profile.
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
    /// Host Identifier.
    pub const HOST_ID: u8 = 0x81;
    /// Reservation Notification Mask.
    pub const RESERVATION_NOTIFICATION_MASK: u8 = 0x82;
    /// Reservation Persistence.
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
    /// Namespace Write Protection Config.
    pub const WRITE_PROTECTION: u8 = 0x84;
    /// Vendor specific, Ashlar's: what comes by this controller is done by its node, or refused: not handed on to another.
    pub const HERE_ONLY: u8 = 0xc0;

    /// The specification's name, `"?"` for what is not listed here.
    pub fn name(fid: u8) -> &'static str {
        match fid {
            ARBITRATION => "Arbitration",
            POWER_MANAGEMENT => "Power Management",
            TEMPERATURE_THRESHOLD => "Temperature Threshold",
            ERROR_RECOVERY => "Error Recovery",
            VOLATILE_WRITE_CACHE => "Volatile Write Cache",
            NUMBER_OF_QUEUES => "Number of Queues",
            INTERRUPT_COALESCING => "Interrupt Coalescing",
            INTERRUPT_VECTOR => "Interrupt Vector Configuration",
            WRITE_ATOMICITY => "Write Atomicity Normal",
            ASYNC_EVENT_CONFIGURATION => "Asynchronous Event Configuration",
            TIMESTAMP => "Timestamp",
            KEEP_ALIVE_TIMER => "Keep Alive Timer",
            HOST_BEHAVIOR => "Host Behavior Support",
            COMMAND_SET_PROFILE => "I/O Command Set Profile",
            HOST_ID => "Host Identifier",
            RESERVATION_NOTIFICATION_MASK => "Reservation Notification Mask",
            RESERVATION_PERSISTENCE => "Reservation Persistence",
            WRITE_PROTECTION => "Namespace Write Protection Config",
            HERE_ONLY => "Here Only (vendor specific)",
            _ => "?",
        }
    }
}

/// What Get Features with SEL = supported capabilities answers in dword 0.
pub mod capability {
    /// The value can be saved.
    pub const SAVEABLE: u32 = 1 << 0;
    /// The value is a namespace's, not the controller's.
    pub const NAMESPACE_SPECIFIC: u32 = 1 << 1;
    /// The value can be changed.
    pub const CHANGEABLE: u32 = 1 << 2;
}

/// Bit 0 of Volatile Write Cache: the cache is enabled.
pub const WRITE_CACHE_ENABLE: u32 = 1 << 0;
/// Bit 0 of Here Only: nothing is handed on.
pub const HANDS_NOTHING_ON: u32 = 1 << 0;
/// Bit 0 of Write Atomicity Normal, DN: only AWUPF counts, not AWUN.
pub const DISABLE_NORMAL: u32 = 1 << 0;
/// Bit 0 of Host Identifier's dword 11, EXHID: 16 bytes; over fabrics always.
pub const EXTENDED_HOST_ID: u32 = 1 << 0;

/// Number of Queues: I/O queues asked for or allocated, as counts (on the wire minus one).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NumberOfQueues {
    /// Submission queues, 1..=65535.
    pub submission: u32,
    /// Completion queues, 1..=65535.
    pub completion: u32,
}

impl NumberOfQueues {
    /// The same number of both.
    pub fn pairs(count: u32) -> Self {
        Self {
            submission: count,
            completion: count,
        }
    }

    /// From dword 11 or the result. `None` if a count is the reserved 65536: status Invalid Field.
    pub fn parse(dword: u32) -> Option<Self> {
        let (submission, completion) = ((dword & 0xffff) + 1, (dword >> 16) + 1);
        (submission <= 0xffff && completion <= 0xffff).then_some(Self {
            submission,
            completion,
        })
    }

    /// Dword 11 or the result; counts are clamped to 1..=65535.
    pub fn dword(self) -> u32 {
        let field = |count: u32| count.clamp(1, 0xffff) - 1;
        field(self.submission) | field(self.completion) << 16
    }

    /// Queue pairs that can be made of them.
    pub fn usable_pairs(self) -> u32 {
        self.submission.min(self.completion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_counts_are_zeroes_based() {
        let four = NumberOfQueues::pairs(4);
        assert_eq!(four.dword(), 0x0003_0003);
        assert_eq!(NumberOfQueues::parse(0x0003_0003), Some(four));
        assert_eq!(NumberOfQueues::parse(0x0003_ffff), None);
        assert_eq!(NumberOfQueues::pairs(0).dword(), 0);
        assert_eq!(
            NumberOfQueues::parse(0x0001_0007).map(NumberOfQueues::usable_pairs),
            Some(2)
        );
    }
}
