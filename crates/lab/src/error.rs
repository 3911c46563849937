use std::fmt;

use ashlar_block::IoError;

/// Why the lab stopped, by what a script does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabError {
    /// A check failed: corruption, inconsistency, a missed promise. Exit code 1.
    Check(String),
    /// The request makes no sense or would destroy data. Exit code 2.
    Usage(String),
    /// The machine or the storage is not as needed; the text names the thing. Exit code 3.
    Environment(String),
}

impl LabError {
    /// A failed check.
    pub fn check(what: impl Into<String>) -> Self {
        Self::Check(what.into())
    }

    /// A mistake in the request.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Usage(what.into())
    }

    /// An obstacle outside the lab.
    pub fn environment(what: impl Into<String>) -> Self {
        Self::Environment(what.into())
    }

    /// An environment error with the thing it happened to and the error that caused it.
    pub fn caused(thing: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self::Environment(format!("{thing}: {cause}"))
    }

    /// The same with more lines.
    pub(crate) fn and(self, more: &[String]) -> Self {
        let with = |text: String| std::iter::once(text).chain(more.iter().cloned());
        let with = |text| with(text).collect::<Vec<_>>().join("\n");
        match self {
            Self::Check(text) => Self::Check(with(text)),
            Self::Usage(text) => Self::Usage(with(text)),
            Self::Environment(text) => Self::Environment(with(text)),
        }
    }

    /// The process's exit code for this error: 1, 2 or 3.
    pub const fn exit_code(&self) -> i32 {
        match self {
            Self::Check(_) => 1,
            Self::Usage(_) => 2,
            Self::Environment(_) => 3,
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(text) | Self::Usage(text) | Self::Environment(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LabError {}

impl From<IoError> for LabError {
    fn from(error: IoError) -> Self {
        Self::Environment(error.to_string())
    }
}
