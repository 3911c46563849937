//! Asking what may never answer: storage that hangs keeps the thread that reads it, and nothing can call that
//! thread back. So another thread asks, and is left where it is when the run is interrupted.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};

/// How long an answer is waited for once the run is interrupted.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// How often it is looked whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits for up to `limit` until there is no `reason` any more why a database does not take clients. Other troubles are
/// told by what meets them.
///
/// # Errors
/// It is not ready in time, or the run is interrupted.
pub(crate) fn until_ready(
    target: &str,
    limit: Duration,
    progress: &Progress,
    reason: impl Fn() -> Option<String>,
) -> Result<(), LabError> {
    let start = Instant::now();
    let mut said = false;
    while let Some(reason) = reason() {
        if start.elapsed() >= limit {
            return Err(LabError::environment(format!(
                "{target}: {reason}; not ready after {limit:?} (--wait)"
            )));
        }
        progress.go_on()?;
        if !said {
            progress.say(&format!("{target}: {reason}; waiting for up to {limit:?}"));
            said = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    progress.go_on()
}

/// The answer of `who` to a question, which a thread of its own puts.
///
/// # Errors
/// The run is interrupted, and there was no answer for [`GRACE`] since: that thread still waits. Or the thread
/// cannot be started.
pub(crate) fn ask<T: Send + 'static>(
    who: &str,
    progress: &Progress,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LabError> {
    let (tell, told) = channel();
    std::thread::Builder::new()
        .name("aside".to_owned())
        // The caller may have given up.
        .spawn(move || drop(tell.send(question())))
        .map_err(|error| LabError::caused(format!("a thread to ask {who}"), error))?;
    let mut ends: Option<Instant> = None;
    loop {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(LabError::environment(format!("{who}: asking it failed")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(end) = progress.go_on() {
            let now = Instant::now();
            if now >= *ends.get_or_insert(now + GRACE) {
                return Err(LabError::environment(format!(
                    "{end}, and {who} did not answer within {GRACE:?}: a thread still waits for it or its storage"
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn who_does_not_answer_is_waited_for_until_the_run_is_interrupted() {
        let slow = || {
            std::thread::sleep(Duration::from_millis(300));
            7
        };
        assert_eq!(ask("it", &Progress::silent(), slow).expect("an answer"), 7);
        let ended = Progress::silent().until(Arc::new(AtomicBool::new(true)));
        assert_eq!(ask("it", &ended, slow).expect("in time"), 7);
        let begun = Instant::now();
        let never = || std::thread::sleep(Duration::from_secs(600));
        let text = ask("it", &ended, never).expect_err("never").to_string();
        assert!(
            text.contains("interrupted") && text.contains("still waits"),
            "{text}"
        );
        assert!((GRACE..2 * GRACE).contains(&begun.elapsed()));
    }
}
