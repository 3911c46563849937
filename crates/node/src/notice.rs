use std::fmt::Display;
use std::io::Write;

/// Tells whoever runs the daemon something, in a line of stderr. Where that leads may be full, or gone (a
/// pipe whose reader has ended): the daemon, and a core that serves hosts, must not end with it as
/// `eprintln` would have them.
pub(crate) fn notice(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "ashlar: {what}");
}
