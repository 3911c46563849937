//! The one place where a device's error becomes an NVMe status.

use ashlar_block::ErrorKind;
use ashlar_nvme::Status;

/// The status for a failed request. `write` tells a media error's direction.
///
/// Errors that another try may overcome carry no Do Not Retry.
pub(crate) fn from_error(kind: ErrorKind, write: bool) -> Status {
    match kind {
        ErrorKind::OutOfRange => Status::LBA_OUT_OF_RANGE.with_dnr(),
        ErrorKind::InvalidRequest => Status::INVALID_FIELD.with_dnr(),
        ErrorKind::Media | ErrorKind::Latched if write => Status::WRITE_FAULT,
        ErrorKind::Media | ErrorKind::Corrupt | ErrorKind::Latched => {
            Status::UNRECOVERED_READ_ERROR
        }
        ErrorKind::NoSpace => Status::CAPACITY_EXCEEDED,
        ErrorKind::ReadOnly => Status::WRITE_PROTECTED.with_dnr(),
        ErrorKind::Unsupported => Status::INVALID_OPCODE.with_dnr(),
        ErrorKind::Timeout | ErrorKind::Disconnected | ErrorKind::NotSent => {
            Status::INTERNAL_PATH_ERROR
        }
        ErrorKind::PathChanging => Status::ANA_TRANSITION,
        ErrorKind::PathInaccessible => Status::ANA_INACCESSIBLE,
        ErrorKind::Reserved => Status::RESERVATION_CONFLICT.with_dnr(),
        ErrorKind::Denied => Status::ACCESS_DENIED.with_dnr(),
        ErrorKind::Aborted => Status::ABORT_REQUESTED,
        ErrorKind::Exhausted => Status::COMMAND_INTERRUPTED,
        _ => Status::INTERNAL_ERROR,
    }
}
