use std::time::Duration;
use std::{fmt, io};

/// How a reactor is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries of the submission queue; the completion queue is eight times as long.
    pub entries: u32,
    /// Most memory the buffer pool may take, in bytes.
    pub pool_bytes: usize,
    /// Longest time to spin for the next event before sleeping, while spinning pays. Zero never
    /// spins.
    pub spin: Duration,
    /// Most files that are registered with the ring; the rest work unregistered.
    pub files: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            entries: 512,
            pool_bytes: 256 << 20,
            spin: Duration::from_micros(200),
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
