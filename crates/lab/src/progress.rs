//! What a person sees while a run goes on: a bar on a terminal, plain lines otherwise. And the way back:
//! that the person wants it to end.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::LabError;

/// Plain lines come at most this often, besides the ones that matter.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Where progress goes.
pub struct Progress {
    shown: Shown,
    stop: Option<Arc<AtomicBool>>,
}

enum Shown {
    Silent,
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
}

struct Lines {
    out: Box<dyn Write + Send>,
    total: u64,
    done: u64,
    last: Option<Instant>,
}

impl Progress {
    /// A bar if standard error is a terminal, otherwise plain lines there.
    pub fn auto() -> Self {
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(0);
            let template = "{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            return Self {
                shown: Shown::Bar(bar),
                stop: None,
            };
        }
        Self::lines(Box::new(std::io::stderr()))
    }

    /// Nothing.
    pub const fn silent() -> Self {
        Self {
            shown: Shown::Silent,
            stop: None,
        }
    }

    /// Plain lines to `out`.
    pub fn lines(out: Box<dyn Write + Send>) -> Self {
        Self {
            shown: Shown::Lines(Mutex::new(Lines {
                out,
                total: 0,
                done: 0,
                last: None,
            })),
            stop: None,
        }
    }

    /// The same; when `stop` is set, what goes on is to end in order and keep what there is.
    pub fn until(self, stop: Arc<AtomicBool>) -> Self {
        Self {
            stop: Some(stop),
            ..self
        }
    }

    /// Says nothing, and ends when this is to end.
    pub fn quiet(&self) -> Self {
        Self {
            shown: Shown::Silent,
            stop: self.stop.clone(),
        }
    }

    /// Asked by whatever may take long, between things that belong together.
    ///
    /// # Errors
    /// Somebody wants it to end.
    pub fn go_on(&self) -> Result<(), LabError> {
        let stop = self.stop.as_ref();
        if stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
            return Err(LabError::environment("interrupted"));
        }
        Ok(())
    }

    /// Something of `steps` steps begins.
    pub fn start(&self, steps: u64) {
        match &self.shown {
            Shown::Silent => {}
            Shown::Bar(bar) => {
                bar.reset();
                bar.set_length(steps);
            }
            Shown::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                (lines.total, lines.done) = (steps, 0);
            }
        }
    }

    /// Something a person wants to know now.
    pub fn say(&self, text: &str) {
        match &self.shown {
            Shown::Silent => {}
            Shown::Bar(bar) => bar.println(text),
            Shown::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = writeln!(lines.out, "{text}");
            }
        }
    }

    /// What is being done now.
    pub fn doing(&self, text: &str) {
        if let Shown::Bar(bar) = &self.shown {
            bar.set_message(text.to_owned());
        }
    }

    /// A step is done, with this outcome.
    pub fn step(&self, text: &str) {
        match &self.shown {
            Shown::Silent => {}
            Shown::Bar(bar) => {
                bar.inc(1);
                bar.set_message(text.to_owned());
            }
            Shown::Lines(lines) => lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .step(text),
        }
    }

    /// All is done.
    pub fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

impl Lines {
    fn step(&mut self, text: &str) {
        self.done += 1;
        let due = self.last.is_none_or(|last| last.elapsed() >= LINE_EVERY);
        if due || self.done == self.total {
            self.last = Some(Instant::now());
            let _ = writeln!(self.out, "[{}/{}] {text}", self.done, self.total);
        }
    }
}
