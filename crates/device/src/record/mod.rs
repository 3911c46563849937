//! A device whose every change is written down, and what a power cut may have left of it.
//!
//! `queue` forwards requests and tells the `recorder`, which appends to a trace in the `format` of
//! `docs/devices.md`; [`Trace`] reads one and counts; [`PowerCut`] says what drives may hold after the
//! power went at one moment, and writes it down as images. Nothing here is fast: it is an instrument.
//!
//! Devices of one process share one clock, strictly increasing, so that one moment cuts all of them.
//! What cannot be recorded is not done: a full or failing trace is the device's error from then on.

mod cut;
mod format;
mod image;
mod queue;
mod recorder;
#[cfg(test)]
mod tests;
mod trace;

use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use ashlar_block::{BlockDevice, Description, Geometry, IoError};
use ashlar_reactor::{Handle, Opener};

use crate::OpenError;
pub use cut::{Fate, PowerCut};
pub use format::{Entry, Kind, TraceHeader};
pub use image::{Image, write_image};
use recorder::Recorder;
pub use recorder::monotonic;
pub use trace::{Summary, Synced, Trace, Writes};

/// How large a trace may grow unless told otherwise.
pub const DEFAULT_RECORD_LIMIT: u64 = 4 << 30;

/// Where changes are written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The trace; a recording of the same device is continued.
    pub trace: PathBuf,
    /// Bytes that the trace may have. The change that would exceed them fails, and all after it.
    pub limit: u64,
    /// Reads are written down, too, without what they found. A trace of one kind is not continued as the other.
    pub reads: bool,
}

impl Recording {
    /// To `trace`, with the default limit.
    pub fn to(trace: impl Into<PathBuf>) -> Self {
        Self {
            trace: trace.into(),
            limit: DEFAULT_RECORD_LIMIT,
            reads: false,
        }
    }
}

/// Why a trace cannot be used.
#[derive(Debug)]
pub struct TraceError {
    what: String,
    source: Option<io::Error>,
}

impl TraceError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            source: None,
        }
    }

    pub(crate) fn caused(what: impl fmt::Display, source: io::Error) -> Self {
        Self {
            what: what.to_string(),
            source: Some(source),
        }
    }

    /// The same with the file's name in front.
    pub(crate) fn of(self, path: &std::path::Path) -> Self {
        Self {
            what: format!("{}: {}", path.display(), self.what),
            source: self.source,
        }
    }

    /// Whether the system failed, and not what was asked for or what the files hold.
    pub fn is_environment(&self) -> bool {
        self.source.is_some()
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|s| s as _)
    }
}

/// A device whose changes are written down.
pub struct Recorded {
    child: Arc<dyn Opener>,
    recorder: Arc<Recorder>,
}

impl Recorded {
    /// `child`, recorded.
    ///
    /// # Errors
    /// The trace cannot be written, is in use, or is of another device or boot.
    pub fn new(child: Arc<dyn Opener>, recording: &Recording) -> Result<Arc<Self>, OpenError> {
        let name = recording.trace.display().to_string();
        let recorder = Recorder::open(recording, &child.geometry()).map_err(|error| match error
            .is_environment()
        {
            true => OpenError::environment(format!("record={name}"), error.to_string()),
            false => OpenError::usage(format!("record={name}"), error.to_string()),
        })?;
        let recorder = Arc::new(recorder);
        Ok(Arc::new(Self { child, recorder }))
    }
}

impl Opener for Recorded {
    fn geometry(&self) -> Geometry {
        self.child.geometry()
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        let child = self.child.open(reactor)?;
        Ok(Box::new(queue::RecordQueue::new(
            child,
            self.recorder.clone(),
        )))
    }

    fn describe(&self) -> Description {
        Description::over(self.recorder.title(), vec![self.child.describe()])
    }

    fn names(&self) -> Vec<String> {
        self.child.names()
    }
}
