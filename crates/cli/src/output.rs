use std::io::Write;

use crate::exit::Failure;

/// Prints to standard output; a closed pipe is an error of the environment, not a panic.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::environment(format!("standard output: {error}")))
}
