//! How the program ends when it does not measure: 2 usage, 3 the environment lacks something.

use std::fmt::Display;
use std::process::ExitCode;

/// Why nothing, or not everything, was measured.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The command line makes no sense.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self {
            code: 2,
            message: message.to_string(),
        }
    }

    /// Something outside the command line is missing or broken; the message names it.
    pub(crate) fn environment(message: impl Display) -> Self {
        Self {
            code: 3,
            message: message.to_string(),
        }
    }

    /// For `map_err`: what was being done, then what went wrong.
    pub(crate) fn doing<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::environment(format!("{what}: {error}"))
    }

    /// Prints the message and gives the code.
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("ashlar-bench: {}", self.message);
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
