use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Tells the daemon that one of its parts has died. What runs a part holds a copy.
#[derive(Clone, Debug)]
pub struct Alarm(UnboundedSender<String>);

impl Alarm {
    /// An alarm, and where it is heard.
    pub(crate) fn new() -> (Self, UnboundedReceiver<String>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Says what has died, and why. The daemon ends, in order, with exit code 1.
    pub fn raise(&self, what: impl Into<String>) {
        // The receiver is gone only when the daemon ends already.
        let _ = self.0.send(what.into());
    }

    /// Starts a thread whose failure or panic raises the alarm; its success is its ordinary end.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(
        &self,
        name: &str,
        run: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<JoinHandle<()>, std::io::Error> {
        let alarm = self.clone();
        let title = name.to_owned();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(run));
                let result = result.unwrap_or_else(|panic| Err(panic_text(panic.as_ref())));
                if let Err(why) = result {
                    alarm.raise(format!("{title} has died: {why}"));
                }
            })
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_thread_is_heard() {
        let (alarm, mut heard) = Alarm::new();
        type Run = fn() -> Result<(), String>;
        let runs: [(Run, &str); 2] = [
            (|| panic!("nothing left"), "nothing left"),
            (|| Err("no drive".into()), "no drive"),
        ];
        for (run, word) in runs {
            let thread = alarm.spawn("worker", run).expect("thread");
            thread.join().expect("caught");
            let text = heard.try_recv().expect("raised");
            assert!(text.contains("worker") && text.contains(word), "{text}");
        }
        alarm
            .spawn("worker", || Ok(()))
            .expect("thread")
            .join()
            .expect("ended");
        assert!(heard.try_recv().is_err(), "an ordinary end is no alarm");
    }
}
