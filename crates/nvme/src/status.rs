//! Status codes (Base 2.1, 4.2.3): what became of a command, with the specification's names.

use std::fmt;

/// DNR: the same command sent again to the same controller will fail again.
const DNR: u16 = 1 << 14;
/// M: the Error Information log page has more.
const MORE: u16 = 1 << 13;
/// SCT and SC.
const CODE: u16 = 0x7ff;

/// The 15 bits of a completion's status: SC (7:0), SCT (10:8), CRD (12:11), M (13), DNR (14).
/// The phase tag is not among them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u16);

impl Status {
    /// From status code type and status code.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 0x7) << 8 | sc as u16)
    }

    /// From a completion's status field, phase tag ignored.
    pub const fn from_wire(field: u16) -> Self {
        Self(field >> 1)
    }

    /// A completion's status field, phase tag 0.
    pub const fn to_wire(self) -> u16 {
        self.0 << 1
    }

    /// SCT and SC as one number: 0x0002 is Invalid Field, 0x0302 ANA Inaccessible.
    pub const fn code(self) -> u16 {
        self.0 & CODE
    }

    /// SCT: 0 generic, 1 command specific, 2 media and data integrity, 3 path, 7 vendor.
    pub const fn sct(self) -> u8 {
        (self.code() >> 8) as u8
    }

    /// SC.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// True for Successful Completion.
    pub const fn is_success(self) -> bool {
        self.code() == 0
    }

    /// True for a path related status: another path may do better.
    pub const fn is_path_related(self) -> bool {
        self.sct() == 3
    }

    /// CRD: which of the controller's retry delays (Identify Controller CRDT) to wait, 0 for none.
    pub const fn retry_delay(self) -> u8 {
        (self.0 >> 11 & 0b11) as u8
    }

    /// True if a retry is pointless.
    pub const fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// True if the Error Information log page has more.
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// The same status with Do Not Retry. Not for path related errors: Linux gives the path up.
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | DNR)
    }

    /// The same status with More.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }

    /// The same outcome, whatever the other bits say.
    pub const fn is(self, other: Self) -> bool {
        self.code() == other.code()
    }
}

/// Declares the named statuses and their names.
macro_rules! statuses {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = concat!($text, " (", stringify!($code), ").")]
            pub const $name: Self = Self($code);)*

            /// The specification's name; `None` for a code that is not listed here.
            ///
            /// Command specific codes depend on the command: 180h to 184h are named as Connect's.
            pub const fn name(self) -> Option<&'static str> {
                match self.code() {
                    $($code => Some($text),)*
                    _ => None,
                }
            }

            /// Every status named here.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

statuses! {
    SUCCESS = 0x000, "Successful Completion";
    INVALID_OPCODE = 0x001, "Invalid Command Opcode";
    INVALID_FIELD = 0x002, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0x003, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    ABORTED_POWER_LOSS = 0x005, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0x006, "Internal Error";
    ABORT_REQUESTED = 0x007, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0x008, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0x009, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0x00a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = 0x00b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0x00c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0x00d, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = 0x00e, "Invalid Number of SGL Descriptors";
    SGL_LENGTH_INVALID = 0x00f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = 0x010, "Metadata SGL Length Invalid";
    SGL_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0x014, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = 0x015, "Operation Denied";
    SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0x018, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0x019, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0x01a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = 0x01b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0x01c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0x01d, "Sanitize In Progress";
    SGL_GRANULARITY_INVALID = 0x01e, "SGL Data Block Granularity Invalid";
    WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0x021, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0x022, "Transient Transport Error";
    PROHIBITED_BY_LOCKDOWN = 0x023, "Command Prohibited by Command and Feature Lockdown";
    MEDIA_NOT_READY = 0x024, "Admin Command Media Not Ready";
    LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
    FORMAT_IN_PROGRESS = 0x084, "Format In Progress";

    COMPLETION_QUEUE_INVALID = 0x100, "Completion Queue Invalid";
    INVALID_QUEUE_ID = 0x101, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 0x102, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = 0x103, "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = 0x106, "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = 0x107, "Invalid Firmware Image";
    INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
    INVALID_FORMAT = 0x10a, "Invalid Format";
    FEATURE_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f, "Feature Not Namespace Specific";
    OVERLAPPING_RANGE = 0x114, "Overlapping Range";
    INVALID_CONTROLLER_ID = 0x11f, "Invalid Controller Identifier";
    ANA_GROUP_ID_INVALID = 0x124, "ANA Group Identifier Invalid";
    COMMAND_SET_NOT_SUPPORTED = 0x129, "I/O Command Set Not Supported";

    CONNECT_INCOMPATIBLE_FORMAT = 0x180, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 0x181, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 0x182, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 0x183, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 0x184, "Connect Invalid Host";
    INVALID_QUEUE_TYPE = 0x185, "Invalid Queue Type";
    DISCOVER_RESTART = 0x190, "Discover Restart";
    AUTHENTICATION_REQUIRED = 0x191, "Authentication Required";

    WRITE_FAULT = 0x280, "Write Fault";
    UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 0x282, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 0x283, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 0x284, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 0x285, "Compare Failure";
    ACCESS_DENIED = 0x286, "Access Denied";
    UNWRITTEN_BLOCK = 0x287, "Deallocated or Unwritten Logical Block";

    INTERNAL_PATH_ERROR = 0x300, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 0x301, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 0x302, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 0x303, "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = 0x360, "Controller Pathing Error";
    HOST_PATHING_ERROR = 0x370, "Host Pathing Error";
    ABORTED_BY_HOST = 0x371, "Command Aborted By Host";
}

impl Status {
    /// SC 180h of commands on the NVM command set, where Connect has Incompatible Format.
    pub const CONFLICTING_ATTRIBUTES: Self = Self(0x180);
    /// SC 182h of commands on the NVM command set, where Connect has Invalid Parameters.
    pub const WRITE_TO_READ_ONLY_RANGE: Self = Self(0x182);
    /// SC 183h of commands on the NVM command set, where Connect has Restart Discovery.
    pub const COMMAND_SIZE_LIMIT_EXCEEDED: Self = Self(0x183);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:03x}h)", self.code())?,
            None => write!(f, "status {:03x}h", self.code())?,
        }
        f.write_str(if self.dnr() { ", do not retry" } else { "" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_bits_do_not_change_them() {
        for (index, status) in Status::ALL.iter().enumerate() {
            let named = status.name().unwrap();
            assert!(Status::ALL[..index].iter().all(|s| s.name() != Some(named)));
            let marked = status.with_dnr().with_more();
            assert!(marked.is(*status) && marked.dnr() && marked.more());
            assert_eq!(Status::from_wire(marked.to_wire() | 1), marked);
            assert_eq!(Status::new(status.sct(), status.sc()), *status);
        }
    }

    #[test]
    fn displays_for_people() {
        let shown = Status::INVALID_FIELD.with_dnr().to_string();
        assert_eq!(shown, "Invalid Field in Command (002h), do not retry");
        assert_eq!(Status::new(7, 1).to_string(), "status 701h");
        assert!(Status::ANA_TRANSITION.is_path_related());
    }
}
