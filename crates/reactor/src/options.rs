use std::str::FromStr;
use std::time::Duration;
use std::{fmt, io};

/// When a reactor waits for the next event without sleeping. One that is idle sleeps, whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    Off,
    /// Where a sleep would cost more than it saves, as measured while running.
    #[default]
    Auto,
    /// After every event, for at most this long, while events come that soon: for a core that has nothing else to do.
    For(Duration),
}

impl FromStr for Spin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" | "0" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            micros => {
                let micros: u32 = micros.parse().map_err(|_| {
                    format!("{text:?} is not auto, off or a number of microseconds")
                })?;
                Ok(Self::For(Duration::from_micros(micros.into())))
            }
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::For(time) => write!(f, "{}", time.as_micros()),
        }
    }
}

/// How a reactor is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries of the submission queue; the completion queue is eight times as long.
    pub entries: u32,
    /// Most memory the buffer pool may take, in bytes.
    pub pool_bytes: usize,
    /// When to spin.
    pub spin: Spin,
    /// Most files that are registered with the ring; the rest work unregistered.
    pub files: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            entries: 512,
            pool_bytes: 256 << 20,
            spin: Spin::Auto,
            files: 4096,
        }
    }
}

/// Why no reactor could be made.
#[derive(Debug)]
pub struct SetupError {
    what: &'static str,
    source: io::Error,
}

impl SetupError {
    pub(crate) fn new(what: &'static str, source: io::Error) -> Self {
        Self { what, source }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)?;
        let hint = match self.source.raw_os_error() {
            Some(libc::ENOSYS) => "this kernel has no io_uring; Linux 6.1 or newer is needed",
            Some(libc::EPERM) => {
                "io_uring is disabled here (see sysctl kernel.io_uring_disabled, or the container's seccomp profile)"
            }
            Some(libc::EINVAL) => "this kernel's io_uring is too old; Linux 6.1 or newer is needed",
            Some(libc::ENOMEM) => "raise the locked-memory limit (ulimit -l)",
            _ => return Ok(()),
        };
        write!(f, " ({hint})")
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_to_spin_is_read_as_it_is_written() {
        for text in ["off", "auto", "2000"] {
            assert_eq!(text.parse::<Spin>().unwrap().to_string(), text);
        }
        assert_eq!("0".parse(), Ok(Spin::Off));
        for text in ["", "-1", "2ms", "99999999999"] {
            assert!(
                text.parse::<Spin>().unwrap_err().contains("auto, off"),
                "{text}"
            );
        }
    }
}
