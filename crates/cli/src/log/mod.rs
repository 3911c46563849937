//! Where the tree's trace events become lines on standard error.
//!
//! ```text
//! tracing::info!(…) in any room ─▶ level and part (LogFilter) ─▶ limit of its kind ─▶ line ─▶ stderr
//! ```
//!
//! A fault that repeats must not fill the disk, and a reader of the log that stands still must not stop a
//! core that serves hosts: lines are left out then, and counted.

mod filter;
mod limit;
mod limited;
mod line;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{LogFormat, LogOptions};
use limit::Limiter;
use limited::Limited;
use line::Lines;

pub(crate) use filter::LogFilter;

/// How often it is said how many lines were left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The target of those reports; they are not limited themselves.
const REPORTS: &str = "ashlar::log";

/// The log, until it is dropped: then it is said what was left out.
pub(crate) struct Log {
    stop: Option<Sender<()>>,
    reporter: Option<JoinHandle<()>>,
}

/// Begins to log what `options` want to see.
pub(crate) fn begin(options: &LogOptions) -> Log {
    let limiter = Arc::new(Limiter::default());
    let lines = Lines::default();
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(lines.clone());
    let layer = match options.format {
        LogFormat::Plain => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let filter = options.filter.clone().into_targets();
    let layer = Limited::new(layer, limiter.clone()).with_filter(filter);
    let log = tracing_subscriber::registry().with(layer);
    if log.try_init().is_err() {
        // Something logs already: a second beginning in this process changes nothing.
        return Log::none();
    }
    let (stop, stopped) = channel();
    let report = move || {
        loop {
            let ended = stopped.recv_timeout(REPORT_INTERVAL) != Err(RecvTimeoutError::Timeout);
            report(&limiter, &lines);
            if ended {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("log".into());
    Log {
        stop: Some(stop),
        // Without the thread lines are logged and limited all the same; only the reports are missing.
        reporter: thread.spawn(report).ok(),
    }
}

/// What prints every trace event of this thread on standard output: for a world that is replayed, so without the
/// time of day.
pub(crate) fn tracer() -> impl Subscriber + Send + Sync {
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .log_internal_errors(false)
        .without_time()
        .with_level(false)
        .with_writer(std::io::stdout);
    tracing_subscriber::registry().with(layer)
}

fn report(limiter: &Limiter, lines: &Lines) {
    for left_out in limiter.take_left_out() {
        tracing::warn!(
            target: REPORTS,
            left_out = left_out.count,
            "{} lines were left out, of which the first was: {}",
            left_out.count,
            left_out.first
        );
    }
    match lines.take_lost() {
        0 => {}
        lost => tracing::warn!(
            target: REPORTS,
            left_out = lost,
            "{lost} lines were left out because standard error took no more"
        ),
    }
}

impl Log {
    /// Of a command that logs nothing.
    pub(crate) fn none() -> Self {
        Self {
            stop: None,
            reporter: None,
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(reporter) = self.reporter.take() {
            // A reporter that panicked has told so itself.
            let _ = reporter.join();
        }
    }
}
