//! The one place where a device's error becomes what the kernel is told.

use ashlar_block::ErrorKind;

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;

/// A full device is told from a broken one: file systems wait for space and stop at errors.
pub(super) fn of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::OutOfRange | ErrorKind::InvalidRequest => EINVAL,
        ErrorKind::NoSpace => ENOSPC,
        ErrorKind::ReadOnly => EROFS,
        ErrorKind::Unsupported => EOPNOTSUPP,
        ErrorKind::Timeout => ETIMEDOUT,
        ErrorKind::Exhausted => ENOMEM,
        _ => EIO,
    }
}
