//! Ctrl-C, and its like: what runs ends in order, with its servers, and keeps what was measured.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ashlar_lab::{LabError, Progress};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Progress that hears of a first SIGINT or SIGTERM; a second one ends this process at once.
///
/// # Errors
/// Signals cannot be heard.
pub(super) fn interruptible() -> Result<Progress, LabError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let shared = Arc::clone(&stop);
        let registered = flag::register_conditional_default(signal, Arc::clone(&shared))
            .and_then(|_| flag::register(signal, shared));
        registered.map_err(|error| LabError::caused("signals", error))?;
    }
    Ok(Progress::auto().until(stop))
}
