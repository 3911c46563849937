use std::fmt;
use std::time::Duration;

use ashlar_nvme::Status;
use ashlar_nvme::pdu::{Fatal, TermReq};

/// Why a connection or an association ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer closed the connection.
    Closed,
    /// The network failed: what the system said.
    Network(String),
    /// The controller broke the protocol; it was told so by a terminate request.
    Protocol {
        /// What a terminate request says.
        fatal: Fatal,
        /// What the controller did.
        what: &'static str,
    },
    /// The controller ended the connection with a terminate request.
    Terminated(TermReq),
    /// Something took longer than it may.
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// A command that the association needs failed.
    Command { what: &'static str, status: Status },
    /// The controller or namespace is not one that can be used; trying again will not help.
    Unusable(String),
    /// We ended it.
    Shutdown,
}

impl Failure {
    /// Whether another attempt may go better.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unusable(_) | Self::Shutdown => false,
            Self::Command { status, .. } => !status.dnr(),
            _ => true,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection was closed by the peer"),
            Self::Network(error) => f.write_str(error),
            Self::Protocol { fatal, what } => write!(f, "protocol violation: {what} ({fatal})"),
            Self::Terminated(request) => {
                write!(f, "the controller terminated the connection: {request}")
            }
            Self::Timeout { what, after } => {
                write!(f, "no answer to {what} within {} ms", after.as_millis())
            }
            Self::Command { what, status } => write!(f, "{what} failed: {status}"),
            Self::Unusable(why) => f.write_str(why),
            Self::Shutdown => f.write_str("shut down"),
        }
    }
}

impl std::error::Error for Failure {}
