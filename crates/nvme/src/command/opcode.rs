//! Opcodes and their names.

/// Fabrics commands, on admin and I/O queues alike; FCTYPE tells which, see [`fabrics`].
pub const FABRICS: u8 = 0x7f;

/// Declares opcode constants and the function that names them.
macro_rules! opcodes {
    ($(#[$doc:meta])* $module:ident { $($(#[$item:meta])* $name:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        pub mod $module {
            $($(#[$item])* #[doc = concat!($text, ".")] pub const $name: u8 = $code;)*

            /// The specification's name, `"?"` for what is not listed here.
            pub fn name(code: u8) -> &'static str {
                match code {
                    $($name => $text,)*
                    _ => "?",
                }
            }
        }
    };
}

opcodes! {
    /// Admin command set (Base 2.1, figure "Opcodes for Admin Commands").
    admin {
        DELETE_IO_SQ = 0x00, "Delete I/O Submission Queue";
        CREATE_IO_SQ = 0x01, "Create I/O Submission Queue";
        GET_LOG_PAGE = 0x02, "Get Log Page";
        DELETE_IO_CQ = 0x04, "Delete I/O Completion Queue";
        CREATE_IO_CQ = 0x05, "Create I/O Completion Queue";
        IDENTIFY = 0x06, "Identify";
        ABORT = 0x08, "Abort";
        SET_FEATURES = 0x09, "Set Features";
        GET_FEATURES = 0x0a, "Get Features";
        ASYNC_EVENT_REQUEST = 0x0c, "Asynchronous Event Request";
        NAMESPACE_MANAGEMENT = 0x0d, "Namespace Management";
        FIRMWARE_COMMIT = 0x10, "Firmware Commit";
        FIRMWARE_DOWNLOAD = 0x11, "Firmware Image Download";
        DEVICE_SELF_TEST = 0x14, "Device Self-test";
        NAMESPACE_ATTACHMENT = 0x15, "Namespace Attachment";
        KEEP_ALIVE = 0x18, "Keep Alive";
        DIRECTIVE_SEND = 0x19, "Directive Send";
        DIRECTIVE_RECEIVE = 0x1a, "Directive Receive";
        FORMAT_NVM = 0x80, "Format NVM";
        SECURITY_SEND = 0x81, "Security Send";
        SECURITY_RECEIVE = 0x82, "Security Receive";
        SANITIZE = 0x84, "Sanitize";
    }
}

opcodes! {
    /// NVM command set, and the I/O commands common to all sets.
    io {
        FLUSH = 0x00, "Flush";
        WRITE = 0x01, "Write";
        READ = 0x02, "Read";
        WRITE_UNCORRECTABLE = 0x04, "Write Uncorrectable";
        COMPARE = 0x05, "Compare";
        WRITE_ZEROES = 0x08, "Write Zeroes";
        DATASET_MANAGEMENT = 0x09, "Dataset Management";
        VERIFY = 0x0c, "Verify";
        RESERVATION_REGISTER = 0x0d, "Reservation Register";
        RESERVATION_REPORT = 0x0e, "Reservation Report";
        RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
        RESERVATION_RELEASE = 0x15, "Reservation Release";
        CANCEL = 0x18, "Cancel";
        COPY = 0x19, "Copy";
    }
}

opcodes! {
    /// FCTYPE of Fabrics commands.
    fabrics {
        PROPERTY_SET = 0x00, "Property Set";
        CONNECT = 0x01, "Connect";
        PROPERTY_GET = 0x04, "Property Get";
        AUTHENTICATION_SEND = 0x05, "Authentication Send";
        AUTHENTICATION_RECEIVE = 0x06, "Authentication Receive";
        DISCONNECT = 0x08, "Disconnect";
    }
}

/// Which way a command's data goes: the low two bits of every opcode and FCTYPE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// No data.
    None,
    /// Host to controller.
    ToController,
    /// Controller to host.
    ToHost,
    /// Both ways; no command here has it.
    Both,
}

/// The direction that an opcode or FCTYPE implies.
pub fn direction(code: u8) -> Direction {
    match code & 0b11 {
        0b00 => Direction::None,
        0b01 => Direction::ToController,
        0b10 => Direction::ToHost,
        _ => Direction::Both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direction_comes_from_the_opcode() {
        assert_eq!(direction(io::WRITE), Direction::ToController);
        assert_eq!(direction(io::COMPARE), Direction::ToController);
        assert_eq!(direction(io::WRITE_ZEROES), Direction::None);
        assert_eq!(direction(admin::IDENTIFY), Direction::ToHost);
        assert_eq!(direction(fabrics::CONNECT), Direction::ToController);
        assert_eq!(direction(fabrics::PROPERTY_GET), Direction::None);
        assert_eq!(io::name(io::DATASET_MANAGEMENT), "Dataset Management");
        assert_eq!(admin::name(0xff), "?");
    }
}
