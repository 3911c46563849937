//! What goes into an attachment's log, or into the daemon's.

use std::fmt::Display;
use std::io::Write;

/// Writes a line to stderr. Where that leads may be full, which must not end whoever serves the attachment,
/// as `eprintln` would.
pub(crate) fn notice(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "ashlar attach: {what}");
}
