//! What an overwrite would destroy: looked for before anything is written, in every place where a
//! device or file may be in use or hold something.
//!
//! `usage` asks the kernel who uses it, `content` looks at what is in it.

mod content;
#[cfg(test)]
mod tests;
mod usage;

use std::fmt;
use std::fs::{File, Metadata, metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FileType;

use crate::OpenError;

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// A file system on it is mounted.
    Mounted,
    /// The kernel swaps to it.
    Swap,
    /// Another device (LVM, md, a loop device) is built on it.
    InUse,
    /// It has partitions.
    Partitions,
    /// A label is on it: a file system, a partition table, a member of something.
    Signature,
    /// It is not all zeroes.
    Data,
    /// It is neither a file nor a block device.
    NotStorage,
}

/// What would be destroyed, in words that follow the path: `is mounted on /srv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    /// What was found, naming it.
    pub text: String,
}

impl Finding {
    fn new(kind: FindingKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Looks for anything that overwriting `path` would destroy. `None`: nothing is there, or nothing
/// but zeroes.
///
/// Files are read wherever they have data. Block devices are sampled (64 KiB at 4,096 places and
/// both ends) after their labels were looked for.
///
/// # Errors
/// The path cannot be examined; then nothing is known about it.
pub fn inspect(path: &Path) -> Result<Option<Finding>, OpenError> {
    let Some(metadata) = examined(path)? else {
        return Ok(None);
    };
    let used = used(path, &metadata);
    if used.is_some() {
        return Ok(used);
    }
    if let Some(found) = content::signature(path) {
        return Ok(Some(found));
    }
    let file = File::open(path).map_err(|error| unknown(path, error))?;
    content::data(&file, metadata.is_file()).map_err(|error| unknown(path, error))
}

/// Looks only for what uses `path`, or makes it unfit to be used as a whole: not for what is on it. `None`:
/// nothing does, or nothing is there.
///
/// # Errors
/// The path cannot be examined; then nothing is known about it.
pub fn find_use(path: &Path) -> Result<Option<Finding>, OpenError> {
    Ok(examined(path)?.and_then(|metadata| used(path, &metadata)))
}

fn unknown(path: &Path, error: io::Error) -> OpenError {
    OpenError::environment(path.display().to_string(), "cannot be examined").with_source(error)
}

fn examined(path: &Path) -> Result<Option<Metadata>, OpenError> {
    match metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unknown(path, error)),
    }
}

fn used(path: &Path, metadata: &Metadata) -> Option<Finding> {
    match FileType::from_raw_mode(metadata.mode()) {
        FileType::BlockDevice => usage::of_device(metadata.rdev()),
        FileType::RegularFile => usage::of_file(path),
        FileType::Directory => Some(Finding::new(FindingKind::NotStorage, "is a directory")),
        _ => Some(Finding::new(
            FindingKind::NotStorage,
            "is neither a file nor a block device",
        )),
    }
}
