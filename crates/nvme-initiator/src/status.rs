//! From an NVMe status to what the block contract calls it. The target has the reverse; a kind that
//! goes out as a status there comes back as the same kind here.

use ashlar_block::{ErrorKind, Operation};
use ashlar_nvme::Status;
use ashlar_nvme::log::AnaState;

/// What to do about a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same command may succeed in a moment; if it never does, it failed with this.
    Retry(ErrorKind),
    /// This path is not usable now, or this one at all; another may be. The command has ended here.
    OtherPath(ErrorKind, AnaState),
    /// It failed.
    Fail(ErrorKind),
}

/// Judges a status of an I/O command.
///
/// An internal path error says that something behind the controller was lost, with the outcome
/// unknown. Only a read may then simply be tried again: a flush that failed there must not succeed
/// at the second try, nor a write land once more behind a newer one.
pub(crate) fn judge(op: Operation, status: Status) -> Verdict {
    let kind = kind(status);
    if let (Some(state), false) = (path_state(status), status.dnr()) {
        return Verdict::OtherPath(kind, state);
    }
    let unknown = status.is(Status::INTERNAL_PATH_ERROR);
    let passing = status.is(Status::COMMAND_INTERRUPTED)
        || status.is(Status::TRANSIENT_TRANSPORT_ERROR)
        || status.is(Status::NAMESPACE_NOT_READY)
        || (status.is_path_related() && (!unknown || op == Operation::Read));
    if passing && !status.dnr() {
        Verdict::Retry(kind)
    } else {
        Verdict::Fail(kind)
    }
}

/// What a refusal says of the path.
fn path_state(status: Status) -> Option<AnaState> {
    const STATES: [(Status, AnaState); 3] = [
        (Status::ANA_TRANSITION, AnaState::Change),
        (Status::ANA_INACCESSIBLE, AnaState::Inaccessible),
        (Status::ANA_PERSISTENT_LOSS, AnaState::PersistentLoss),
    ];
    let known = STATES.iter().find(|(known, _)| status.is(*known));
    known.map(|(_, state)| *state)
}

/// The kind of error that a status stands for.
pub(crate) fn kind(status: Status) -> ErrorKind {
    const KINDS: &[(Status, ErrorKind)] = &[
        (Status::LBA_OUT_OF_RANGE, ErrorKind::OutOfRange),
        (Status::CAPACITY_EXCEEDED, ErrorKind::NoSpace),
        (Status::INVALID_FIELD, ErrorKind::InvalidRequest),
        (Status::INVALID_NAMESPACE, ErrorKind::InvalidRequest),
        (Status::SGL_LENGTH_INVALID, ErrorKind::InvalidRequest),
        (Status::INVALID_OPCODE, ErrorKind::Unsupported),
        (Status::WRITE_FAULT, ErrorKind::Media),
        (Status::UNRECOVERED_READ_ERROR, ErrorKind::Media),
        (Status::GUARD_CHECK_ERROR, ErrorKind::Corrupt),
        (Status::APPLICATION_TAG_CHECK_ERROR, ErrorKind::Corrupt),
        (Status::REFERENCE_TAG_CHECK_ERROR, ErrorKind::Corrupt),
        (Status::WRITE_PROTECTED, ErrorKind::ReadOnly),
        (Status::WRITE_TO_READ_ONLY_RANGE, ErrorKind::ReadOnly),
        (Status::ACCESS_DENIED, ErrorKind::Denied),
        (Status::OPERATION_DENIED, ErrorKind::Denied),
        (Status::RESERVATION_CONFLICT, ErrorKind::Denied),
        (Status::ANA_TRANSITION, ErrorKind::PathChanging),
        (Status::ANA_INACCESSIBLE, ErrorKind::PathInaccessible),
        (Status::ABORT_REQUESTED, ErrorKind::Aborted),
        (Status::ABORTED_BY_HOST, ErrorKind::Aborted),
        (Status::ABORTED_SQ_DELETION, ErrorKind::Disconnected),
        (Status::TRANSIENT_TRANSPORT_ERROR, ErrorKind::Disconnected),
        (Status::COMMAND_INTERRUPTED, ErrorKind::Exhausted),
        (Status::NAMESPACE_NOT_READY, ErrorKind::Exhausted),
        (Status::INTERNAL_ERROR, ErrorKind::Internal),
    ];
    let known = KINDS.iter().find(|(known, _)| status.is(*known));
    let other = match status.is_path_related() {
        true => ErrorKind::Disconnected,
        false => ErrorKind::Internal,
    };
    known.map_or(other, |(_, kind)| *kind)
}

/// The kind of error that a refused Connect, or another failed bring-up command, stands for.
pub(crate) fn connect_kind(status: Status) -> ErrorKind {
    if status.is(Status::CONNECT_INVALID_HOST) || status.is(Status::AUTHENTICATION_REQUIRED) {
        ErrorKind::Denied
    } else {
        ErrorKind::NotSent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_retried() {
        let flush = |status| judge(Operation::Flush, status);
        let retry = |status| matches!(flush(status), Verdict::Retry(_));
        assert!(retry(Status::TRANSIENT_TRANSPORT_ERROR));
        let changing = Verdict::OtherPath(ErrorKind::PathChanging, AnaState::Change);
        assert_eq!(flush(Status::ANA_TRANSITION), changing);
        assert!(!retry(Status::ANA_TRANSITION.with_dnr()));
        assert!(!retry(Status::LBA_OUT_OF_RANGE) && !retry(Status::INTERNAL_ERROR));
        assert_eq!(
            flush(Status::WRITE_FAULT.with_dnr()),
            Verdict::Fail(ErrorKind::Media)
        );
        assert_eq!(
            flush(Status::INTERNAL_PATH_ERROR),
            Verdict::Fail(ErrorKind::Disconnected)
        );
        let read = judge(Operation::Read, Status::INTERNAL_PATH_ERROR);
        assert_eq!(read, Verdict::Retry(ErrorKind::Disconnected));
        assert_eq!(kind(Status::new(7, 0xff)), ErrorKind::Internal);
        assert_eq!(
            connect_kind(Status::CONNECT_INVALID_HOST.with_dnr()),
            ErrorKind::Denied
        );
    }
}
