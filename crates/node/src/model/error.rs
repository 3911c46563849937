use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What kind of failure it is: decides the HTTP status and the exit code of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request makes no sense, whatever the state of the node.
    Usage,
    /// What the request names is not there.
    NotFound,
    /// It contradicts what is there: a name is taken, a drive is in use, work is under way.
    Conflict,
    /// It would destroy data or cut off hosts, and did not say that this is meant.
    Refused,
    /// The caller may not: no token, or not the right one.
    Unauthorized,
    /// Something outside is missing or broken: a drive, a file, memory, the daemon itself.
    Environment,
    /// A defect of Ashlar.
    Internal,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Usage,
        Self::NotFound,
        Self::Conflict,
        Self::Refused,
        Self::Unauthorized,
        Self::Environment,
        Self::Internal,
    ];

    /// The HTTP status that carries it.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Usage => 400,
            Self::Unauthorized => 401,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Refused => 412,
            Self::Internal => 500,
            Self::Environment => 503,
        }
    }

    /// The exit code of a command that ends with it: 1 a check failed, 2 usage, 3 environment.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Usage | Self::Refused => 2,
            Self::NotFound | Self::Conflict | Self::Unauthorized | Self::Environment => 3,
        }
    }
}

/// Why a request was not done. The message names the thing and says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControlError {
    /// Its kind.
    pub kind: ErrorKind,
    /// One sentence for people; its words may change.
    pub message: String,
}

impl ControlError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// The request makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// What the request names is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// It contradicts what is there.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// It would destroy something, and did not say that this is meant.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// Something outside is missing or broken.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Environment, message)
    }

    /// A defect.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ControlError {}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ControlError,
}
