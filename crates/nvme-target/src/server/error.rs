use std::fmt;

use ashlar_block::IoError;
use ashlar_reactor::{NetError, SetupError};

use crate::target::ConfigError;

/// Why a server did not start, ended, or did not do what it was told.
#[derive(Debug)]
pub enum ServeError {
    /// The configuration makes no sense.
    Config(ConfigError),
    /// The address cannot be listened on.
    Net(NetError),
    /// A core's reactor cannot be made.
    Setup(SetupError),
    /// A device cannot be opened.
    Device(IoError),
    /// A resident cannot be made.
    Resident(IoError),
    /// Devices of this subsystem have not given commands back in time. Hosts cannot reach it any
    /// more; each device closes when the last of its commands is back.
    Stuck(String),
    /// Commands of hosts are still in devices, or hosts do not take the answers.
    Unanswered,
    /// A core has died: a defect, or the kernel refused to go on.
    Core(usize, String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Net(error) => error.fmt(f),
            Self::Setup(error) => error.fmt(f),
            Self::Device(error) | Self::Resident(error) => error.fmt(f),
            Self::Stuck(nqn) => write!(
                f,
                "subsystem {nqn:?}: its devices still have commands; they close when those are done"
            ),
            Self::Unanswered => f.write_str("not every command of a host was answered in time"),
            Self::Core(core, why) => write!(f, "the thread of core {core} has died: {why}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<ConfigError> for ServeError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}
