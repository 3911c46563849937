use std::error::Error;
use std::{fmt, io};

/// Whose fault a failed opening is, which decides a program's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// The text or its parameters are wrong.
    Usage,
    /// This machine cannot provide what was asked for.
    Environment,
}

/// Why a device could not be opened: the piece of the text or the path, and what is wrong with it.
#[derive(Debug)]
pub struct OpenError {
    kind: OpenErrorKind,
    what: String,
    why: String,
    source: Option<io::Error>,
    is_taken: bool,
}

impl OpenError {
    /// The text or its parameters are wrong: `what` is the offending piece.
    pub fn usage(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            kind: OpenErrorKind::Usage,
            what: what.into(),
            why: why.into(),
            source: None,
            is_taken: false,
        }
    }

    /// The machine cannot provide it: `what` is the path or device.
    pub fn environment(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            kind: OpenErrorKind::Environment,
            ..Self::usage(what, why)
        }
    }

    /// The same with the system's error.
    pub fn with_source(mut self, source: impl Into<io::Error>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Another process has it.
    pub(crate) fn by_another(mut self) -> Self {
        self.is_taken = true;
        self
    }

    /// Whether another process has it for itself that is not known to have ended: it may let go of it only to take it
    /// again, when it is started anew.
    pub fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Whose fault it is.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|s| s as &(dyn Error + 'static))
    }
}
