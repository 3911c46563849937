//! Ctrl-C, and its like: what runs ends in order, with its servers, and keeps what was measured.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

/// Progress that a first SIGINT or SIGTERM interrupts; a second one ends this process at once.
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

/// Work on files in this process ends in this time after a first signal. In order it takes less, if its storage
/// answers: 1 s for counts, 3 s for an answer, 5 s for users.
const LEAVE_AFTER: Duration = Duration::from_secs(12);
/// Last words may need storage that does not answer, too.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Whether it is to end is asked so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// As much as a first thread has.
const STACK: usize = 8 << 20;

/// What is done with why it ended, when work is left that did not end itself.
#[derive(Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Option<Said>>>);

type Said = Box<dyn FnOnce(&str) + Send>;

impl LastWords {
    /// These, instead of those before.
    pub(super) fn are(&self, words: impl FnOnce(&str) + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(words));
    }

    fn say(&self, why: &str) {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(words) = words {
            words(why);
        }
    }
}

/// Work on a database; if that is a file, on a thread of its own. Storage that does not answer keeps such a
/// thread, and the kernel gives signals to the first one, which must therefore never wait for storage. After a
/// signal that does not end the work in order it is left, which is right for what leaves nothing but files behind.
///
/// # Errors
/// The work's own; or that it was left.
pub(super) fn attended(
    db: &str,
    work: impl FnOnce(&Progress, &LastWords) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (progress, last_words) = (interruptible()?, LastWords::default());
    if !db.starts_with("sqlite:") {
        let done = work(&progress, &last_words);
        return done.map_err(|why| after_interrupt(&progress, why));
    }
    let ends = progress.quiet();
    let why = format!(
        "interrupted, and {db} did not answer within {LEAVE_AFTER:?}: a thread still waits for its storage"
    );
    // Now: a thread that waits for storage may keep others from being made, and from memory.
    let says = ready(last_words.clone(), why.clone())?;
    let (tell, told) = channel();
    // The run may not be waiting any more.
    thread("work", move || {
        drop(tell.send(work(&progress, &last_words)))
    })?;
    let mut end: Option<Instant> = None;
    loop {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::environment(format!("{db}: the work was lost")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if ends.go_on().is_err() && now >= *end.get_or_insert(now + LEAVE_AFTER) {
            says();
            return Err(Failure::environment(why));
        }
    }
}

/// A connection that was given up for an interrupt is reported as closed: the message says why.
fn after_interrupt(progress: &Progress, why: Failure) -> Failure {
    if progress.go_on().is_ok() || !why.is_environment() || why.message().contains("interrupted") {
        return why;
    }
    Failure::environment(format!("interrupted; {}", why.message()))
}

/// A thread that is ready to say last words, and what has it do so.
fn ready(last_words: LastWords, why: String) -> Result<impl FnOnce(), LabError> {
    let (ask, asked) = channel();
    let (tell, told) = channel();
    thread("last words", move || {
        if asked.recv().is_ok() {
            last_words.say(&why);
            // The run may not be waiting any more.
            let _ = tell.send(());
        }
    })?;
    Ok(move || {
        if ask.send(()).is_ok() {
            let _ = told.recv_timeout(LAST_WORDS);
        }
    })
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), LabError> {
    let built = std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK);
    built
        .spawn(work)
        .map(drop)
        .map_err(|error| LabError::caused(format!("thread {name}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_after_an_interrupt_says_so() {
        let stop = Arc::new(AtomicBool::new(false));
        let progress = Progress::silent().until(Arc::clone(&stop));
        let told = |why: Failure| after_interrupt(&progress, why).message().to_owned();
        assert_eq!(
            told(Failure::environment("connection closed")),
            "connection closed"
        );
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(
            told(Failure::environment("connection closed")),
            "interrupted; connection closed"
        );
        assert_eq!(told(Failure::environment("interrupted")), "interrupted");
        assert_eq!(told(Failure::check("an order is lost")), "an order is lost");
    }
}
