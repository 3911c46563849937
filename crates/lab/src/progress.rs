//! What a person sees while a run goes on: a bar on a terminal, plain lines otherwise. And the way back:
//! that the person wants it to end.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::LabError;
use crate::live::{Board, Tempo};

/// Plain lines come at most this often, besides the ones that matter.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Until something is done it is not known how long the rest takes.
const NO_END_YET: &str = "{elapsed_precise} [{bar:30}] {pos}/{len}: {prefix}{msg}";
const WITH_END: &str = "{elapsed_precise} [{bar:30}] {pos}/{len}, {eta} left: {prefix}{msg}";

fn look(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

/// What a load does at the moment is a plain line at most this often.
const TEMPO_EVERY: Duration = Duration::from_secs(30);

/// Where progress goes.
pub struct Progress {
    shown: Shown,
    /// What the load does at the moment.
    board: Mutex<Board>,
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
    /// When the last line said what the load does at the moment.
    tempo: Instant,
    /// When it began, and how much there was by then.
    since: (Instant, u64),
}

impl Progress {
    /// A bar if standard error is a terminal, otherwise plain lines there.
    pub fn auto() -> Self {
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(0);
            look(&bar, NO_END_YET);
            return Self::shown(Shown::Bar(bar));
        }
        Self::lines(Box::new(std::io::stderr()))
    }

    pub const fn silent() -> Self {
        Self::shown(Shown::Silent)
    }

    const fn shown(shown: Shown) -> Self {
        Self {
            shown,
            board: Mutex::new(Board::new()),
            stop: None,
        }
    }

    /// Plain lines to `out`.
    pub fn lines(out: Box<dyn Write + Send>) -> Self {
        Self::shown(Shown::Lines(Mutex::new(Lines {
            out,
            total: 0,
            done: 0,
            last: None,
            tempo: Instant::now(),
            since: (Instant::now(), 0),
        })))
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
            stop: self.stop.clone(),
            ..Self::silent()
        }
    }

    /// Asked by whatever may take long, between things that belong together.
    ///
    /// # Errors
    /// It was interrupted.
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
                look(bar, NO_END_YET);
            }
            Shown::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                (lines.total, lines.done) = (steps, 0);
                lines.since = (Instant::now(), 0);
            }
        }
    }

    /// So many steps were done by a run that goes on now.
    pub fn have(&self, steps: u64) {
        match &self.shown {
            Shown::Silent => {}
            Shown::Bar(bar) => {
                bar.set_position(steps);
                bar.reset_eta();
            }
            Shown::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                lines.done = steps;
                lines.since = (Instant::now(), steps);
                let total = lines.total;
                let _ = writeln!(lines.out, "{steps} of {total} were measured before");
            }
        }
    }

    /// What tells that it is to end, for those that look more often than they can ask.
    pub fn stopper(&self) -> Option<Arc<AtomicBool>> {
        self.stop.clone()
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
        self.clear();
        if let Shown::Bar(bar) = &self.shown {
            bar.set_prefix(text.to_owned());
        }
    }

    /// Whether what a load does at the moment is shown.
    pub const fn shows_tempo(&self) -> bool {
        !matches!(self.shown, Shown::Silent)
    }

    /// What a part of the load does at the moment: a client's, or a database's on a node. Both names may be empty.
    pub fn tempo(&self, group: &str, member: &str, tempo: Tempo) {
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        board.put(group, member, tempo);
        match &self.shown {
            Shown::Silent => {}
            Shown::Bar(bar) => bar.set_message(format!(": {}", board.lines().join("\n    "))),
            Shown::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.tempo.elapsed() >= TEMPO_EVERY {
                    lines.tempo = Instant::now();
                    let _ = writeln!(lines.out, "now {}", board.lines().join("; "));
                }
            }
        }
    }

    fn clear(&self) {
        self.board
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        if let Shown::Bar(bar) = &self.shown {
            bar.set_message("");
        }
    }

    /// A step is done, with this outcome.
    pub fn step(&self, text: &str) {
        self.clear();
        match &self.shown {
            Shown::Silent => {}
            Shown::Bar(bar) => {
                bar.inc(1);
                look(bar, WITH_END);
                bar.println(text);
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
            let (done, total, left) = (self.done, self.total, self.left());
            let _ = writeln!(self.out, "[{done}/{total}] {text}{left}");
        }
    }

    /// How long the rest will take, if it takes as long as what was done.
    fn left(&self) -> String {
        let (since, had) = self.since;
        let (done, left) = (self.done - had, self.total.saturating_sub(self.done));
        let seconds = since.elapsed().as_secs_f64() * left as f64 / done.max(1) as f64;
        match seconds as u64 {
            0..60 => String::new(),
            s @ 60..3600 => format!(" ({} min left)", s.div_ceil(60)),
            s => format!(" ({:.1} h left)", s as f64 / 3600.0),
        }
    }
}
