//! The system's errors as the contract's.

use std::io;

use ashlar_block::ErrorKind;
use rustix::io::Errno;

/// What an error of a file operation means to the caller.
pub(super) fn kind(error: &io::Error) -> ErrorKind {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => ErrorKind::NoSpace,
        Some(Errno::ROFS | Errno::PERM | Errno::BADF) => ErrorKind::ReadOnly,
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => ErrorKind::Unsupported,
        Some(Errno::NOMEM | Errno::AGAIN | Errno::BUSY) => ErrorKind::Exhausted,
        Some(Errno::ILSEQ | Errno::BADMSG) => ErrorKind::Corrupt,
        Some(Errno::CANCELED | Errno::INTR) => ErrorKind::Aborted,
        Some(Errno::TIMEDOUT) => ErrorKind::Timeout,
        _ => ErrorKind::Media,
    }
}

/// Whether the operation was not done and the same again may succeed. A ring that cannot take more
/// says that it is busy.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AGAIN | Errno::INTR | Errno::BUSY)
    )
}

/// Whether the file system or device does not know the operation.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV)
    )
}
