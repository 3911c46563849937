//! How the program ends: 0 done, 1 a check failed, 2 usage, 3 environment.

use std::fmt::Display;
use std::process::ExitCode;

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

    /// Prints the message and gives the code.
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("ashlar: {}", self.message);
        ExitCode::from(self.code)
    }
}
