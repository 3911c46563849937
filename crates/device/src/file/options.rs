use std::path::PathBuf;

/// Which file or block device, and how to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    pub path: PathBuf,
    /// The size in bytes that it must have; a file that is missing or empty gets it.
    pub size: Option<u64>,
    /// Bypass the page cache (O_DIRECT).
    pub direct: bool,
    /// Let other processes that also share open it at the same time.
    pub share: bool,
    /// Take no lock at all: for measuring a file while another process serves it.
    pub unlocked: bool,
    /// Allocate the whole size at opening, so that no write can find the disk full. Matters only
    /// together with a size.
    pub allocate: bool,
    /// It is there already: one that is missing is never made, and none is given a size.
    pub known: bool,
}

impl FileOptions {
    /// `path` as it is: direct, exclusive, allocated.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            size: None,
            direct: true,
            share: false,
            unlocked: false,
            allocate: true,
            known: false,
        }
    }
}
