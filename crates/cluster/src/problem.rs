use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of failure it is; the names are those of the API's kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What was asked makes no sense, whatever the state of the cluster.
    Usage,
    /// What is named is not there.
    NotFound,
    /// It contradicts what is there.
    Conflict,
    /// It would destroy data, and did not say that this is meant.
    Refused,
    /// The caller may not.
    Unauthorized,
    /// Something outside is missing or broken: a file, the quorum, an address.
    Environment,
    /// A defect of Ashlar.
    Internal,
}

/// Why something was not done. The message names the thing and says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub kind: Kind,
    /// One sentence for people; its words may change.
    pub message: String,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// What was asked makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// It contradicts what is there.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, message)
    }

    /// Something outside is missing or broken.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(Kind::Environment, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// Why an order to a peer has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The peer was not reached, or has not answered in time: it may have carried out the order.
    Unreachable(String),
    /// The peer says no.
    Refused {
        /// What kind of failure it is.
        kind: Kind,
        /// One sentence for people.
        message: String,
    },
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Refused { message: why, .. } => f.write_str(why),
        }
    }
}

impl std::error::Error for OrderError {}

impl From<Problem> for OrderError {
    fn from(problem: Problem) -> Self {
        Self::Refused {
            kind: problem.kind,
            message: problem.message,
        }
    }
}
