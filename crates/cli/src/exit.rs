//! How the program ends: 0 done, 1 a check failed, 2 usage, 3 environment.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use ashlar_device::{OpenError, OpenErrorKind};
use ashlar_lab::LabError;

/// A check failed: corruption, inconsistency, a missed promise.
pub(crate) const CHECK: u8 = 1;
/// The command line makes no sense.
pub(crate) const USAGE: u8 = 2;
/// Something outside the command line is missing or broken; the message names it.
pub(crate) const ENVIRONMENT: u8 = 3;

/// Why the program ends without success.
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn check(message: impl Display) -> Self {
        Self {
            code: CHECK,
            message: message.to_string(),
        }
    }

    pub(crate) fn usage(message: impl Display) -> Self {
        Self {
            code: USAGE,
            message: message.to_string(),
        }
    }

    pub(crate) fn environment(message: impl Display) -> Self {
        Self {
            code: ENVIRONMENT,
            message: message.to_string(),
        }
    }

    /// A process that this one stands for has ended so, and has said why.
    pub(crate) fn passed_on(code: u8) -> Self {
        Self {
            code,
            message: String::new(),
        }
    }

    /// Whether something outside the command line is to blame.
    pub(crate) fn is_environment(&self) -> bool {
        self.code == ENVIRONMENT
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// What is said of it.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prints the message and gives the code.
    pub(crate) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            // Not `eprintln`: the code must be right even if why cannot be told.
            let _ = writeln!(std::io::stderr(), "ashlar: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error.kind() {
            OpenErrorKind::Usage => Self::usage(error),
            OpenErrorKind::Environment => Self::environment(error),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Check(_) => Self::check(error),
            LabError::Usage(_) => Self::usage(error),
            LabError::Environment(_) => Self::environment(error),
        }
    }
}
