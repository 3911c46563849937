use std::fmt;

/// Whose fault it is that something was not done: decides a program's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachErrorKind {
    /// The request makes no sense, or would destroy something and did not say that this is meant.
    Usage,
    /// Something of this machine is missing, broken or in use.
    Environment,
}

/// Why something was not done. The message names the thing and says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachError {
    kind: AttachErrorKind,
    message: String,
}

impl AttachError {
    /// The request makes no sense, or would destroy something.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            kind: AttachErrorKind::Usage,
            message: message.into(),
        }
    }

    /// Something of this machine is missing, broken or in use.
    pub fn environment(message: impl Into<String>) -> Self {
        Self {
            kind: AttachErrorKind::Environment,
            message: message.into(),
        }
    }

    /// Whose fault it is.
    pub fn kind(&self) -> AttachErrorKind {
        self.kind
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AttachError {}
