//! Files that are replaced as a whole.

use std::fs::{File, OpenOptions, rename};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::model::ControlError;

/// Only the daemon's user may read and write it.
pub(crate) const PRIVATE: u32 = 0o600;

/// Replaces a file so that, whatever happens, either the old or the new content is there: a file
/// beside it, synced, renamed over it, and the folder synced.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), ControlError> {
    write_and_rename(path, content).map_err(|error| failed(path, "cannot be written", &error))
}

fn write_and_rename(path: &Path, content: &[u8]) -> Result<(), Error> {
    let no_name = || Error::new(ErrorKind::InvalidInput, "it has no name or no folder");
    let name = path.file_name().ok_or_else(no_name)?;
    let folder = path.parent().ok_or_else(no_name)?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(".new");
    let beside = folder.join(beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

/// An error about a file.
pub(crate) fn failed(path: &Path, what: &str, error: &Error) -> ControlError {
    ControlError::environment(format!("{} {what}: {error}", path.display()))
}

/// A text file, or `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, ControlError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, "cannot be read", &error)),
    }
}

/// What is wrong with a file of settings, with its line.
pub(crate) fn bad_toml(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map(|span| span.start);
    ashlar_plain::at_line(text, at, error.message())
}
