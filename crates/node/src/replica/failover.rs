//! How a node came to serve a volume, for people.

use std::time::Duration;

/// How a node came to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failover {
    pub(crate) cause: Cause,
    /// From the last that was heard of the owner before to the moment when this one serves.
    pub(crate) gap: Option<Duration>,
}

/// Why ownership has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No owner was heard by this process.
    #[default]
    Start,
    /// The owner handed over.
    Move,
    /// The owner's process was certified dead.
    Death,
    /// The owner was silent.
    Silence,
}

impl std::fmt::Display for Failover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.cause.name())?;
        match self.gap {
            Some(gap) => write!(f, ", {} ms after its owner was heard last", gap.as_millis()),
            None => Ok(()),
        }
    }
}

impl Cause {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Move => "move",
            Self::Death => "death",
            Self::Silence => "silence",
        }
    }
}
