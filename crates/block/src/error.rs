use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// What went wrong, as far as a program may act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The range leaves the device.
    OutOfRange,
    /// The request is malformed: no buffer, wrong length, too large.
    InvalidRequest,
    /// The medium could not deliver or take the data.
    Media,
    /// Data was read but is not what was written.
    Corrupt,
    /// No space left behind a thin device.
    NoSpace,
    /// The device takes no writes.
    ReadOnly,
    /// The device does not know the operation.
    Unsupported,
    /// An earlier flush failed; the device refuses to pretend otherwise.
    Latched,
    /// Nothing came back in time; the outcome is unknown.
    Timeout,
    /// The path to the device is gone; the outcome is unknown.
    Disconnected,
    /// The path is gone and the request was certainly not executed.
    NotSent,
    /// The data is being served elsewhere from now on, or will be: ask again, over another path if there
    /// is one. The outcome of what was begun is unknown.
    PathChanging,
    /// The data is not served here but elsewhere. The request was certainly not executed.
    PathInaccessible,
    /// The peer refused us.
    Denied,
    /// Another host has reserved the device: to try again is no use.
    Reserved,
    /// The request was aborted before it had an effect.
    Aborted,
    /// No memory or slots left for the request; try again.
    Exhausted,
    /// A defect in Ashlar.
    Internal,
}

impl ErrorKind {
    /// A short name, as logs and reports use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutOfRange => "out of range",
            Self::InvalidRequest => "invalid request",
            Self::Media => "media error",
            Self::Corrupt => "corrupt data",
            Self::NoSpace => "no space",
            Self::ReadOnly => "read only",
            Self::Unsupported => "unsupported",
            Self::Latched => "failed earlier",
            Self::Timeout => "timed out",
            Self::Disconnected => "disconnected",
            Self::NotSent => "not sent",
            Self::PathChanging => "the path is changing",
            Self::PathInaccessible => "not served on this path",
            Self::Denied => "denied",
            Self::Reserved => "reserved by another host",
            Self::Aborted => "aborted",
            Self::Exhausted => "out of resources",
            Self::Internal => "internal error",
        }
    }
}

/// The one error of the data path: kind, context, source. One word wide, so that the success it
/// shares a `Result` with stays cheap.
pub struct IoError(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    context: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl IoError {
    /// An error of `kind`; `context` names the thing (file, address, range) it happened to.
    pub fn new(kind: ErrorKind, context: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            context: context.into(),
            source: None,
        }))
    }

    /// The same with the error that caused it.
    pub fn with_source(
        kind: ErrorKind,
        context: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self(Box::new(Inner {
            kind,
            context: context.into(),
            source: Some(source.into()),
        }))
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What it happened to.
    pub fn context(&self) -> &str {
        &self.0.context
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.context, self.0.kind.name())?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoError({self})")
    }
}

impl Error for IoError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}
