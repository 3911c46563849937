//! What is done on a thread of its own, and its end, which comes however the thread ends.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::Instant;

use super::wake::Wake;

pub(super) type Done = Result<(), String>;

/// Something under way, whose end is waited for elsewhere.
pub(super) struct Errand<T> {
    name: String,
    told: Receiver<T>,
    begun: Instant,
    /// There was no thread to be had: why.
    failed: Option<String>,
}

/// Rings when it goes, also where a thread dies.
struct Ring(Arc<Wake>);

impl Drop for Ring {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl<T: Send + 'static> Errand<T> {
    /// Begins it; who waits wakes when it has ended.
    pub(super) fn begin(
        wake: &Arc<Wake>,
        name: &str,
        errand: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        Self::begin_on(Builder::new(), wake, name, errand)
    }

    fn begin_on(
        thread: Builder,
        wake: &Arc<Wake>,
        name: &str,
        errand: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        let (tell, told): (Sender<T>, Receiver<T>) = channel();
        let ring = Ring(Arc::clone(wake));
        let run = move || {
            // The sender is dropped before the ring: what the ring wakes finds the answer, or that there will be none.
            let (_ring, tell) = (ring, tell);
            // It may not be waited for any more.
            let _ = tell.send(errand());
        };
        let begun = thread.name(name.into()).spawn(run);
        Self {
            name: name.into(),
            told,
            begun: Instant::now(),
            failed: begun.err().map(|error| error.to_string()),
        }
    }

    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// What it has come to, if it has ended. An error: it never began, or has died.
    pub(super) fn ended(&self) -> Option<Result<T, String>> {
        match self.told.try_recv() {
            Ok(told) => Some(Ok(told)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(match &self.failed {
                Some(why) => format!("{}: no thread: {why}", self.name),
                None => format!("{}: its thread has died", self.name),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Waits for the ring, and then for the end.
    fn end_of(errand: &Errand<Done>, wake: &Wake) -> Result<Done, String> {
        let begun = Instant::now();
        wake.wait(Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(30), "no ring");
        errand.ended().expect("it has ended before it rang")
    }

    #[test]
    fn an_errand_ends_also_where_its_thread_dies_or_cannot_be_had() {
        let wake = Arc::new(Wake::default());
        let fine = Errand::begin(&wake, "fine", || Err("no".into()));
        assert_eq!(end_of(&fine, &wake), Ok(Err("no".into())));
        let dies = Errand::begin(&wake, "dies", || -> Done {
            // As a fault of the code would, without its words.
            std::panic::resume_unwind(Box::new(()))
        });
        assert_eq!(
            end_of(&dies, &wake),
            Err("dies: its thread has died".into())
        );
        // More stack than there are addresses.
        let greedy = Builder::new().stack_size(1 << 60);
        let never = Errand::begin_on(greedy, &wake, "never", || -> Done { Ok(()) });
        let why = end_of(&never, &wake).expect_err("no thread");
        assert!(why.starts_with("never: no thread: "), "{why}");
    }
}
