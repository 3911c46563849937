//! Files that are made or replaced as a whole.

use std::fs::{File, OpenOptions, hard_link, remove_file, rename};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::model::ControlError;

/// Only the daemon's user may read and write it.
pub(crate) const PRIVATE: u32 = 0o600;

/// Replaces a file so that, whatever happens, either the old or the new content is there: a file
/// beside it, synced, renamed over it, and the folder synced.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), ControlError> {
    write_and_rename(path, content).map_err(|error| failed(path, "cannot be written", &error))
}

fn write_and_rename(path: &Path, content: &[u8]) -> Result<(), Error> {
    let beside = write_beside(path, "new", content)?;
    rename(&beside, path)?;
    sync_folder(path)
}

/// Makes a file, as a whole or not at all. One that another process has made meanwhile is kept.
pub(crate) fn make(path: &Path, content: &[u8]) -> Result<(), ControlError> {
    write_and_link(path, content).map_err(|error| failed(path, "cannot be made", &error))
}

fn write_and_link(path: &Path, content: &[u8]) -> Result<(), Error> {
    let beside = write_beside(path, &Uuid::new_v4().simple().to_string(), content)?;
    match hard_link(&beside, path) {
        Ok(()) => remove_file(&beside)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return remove_file(&beside),
        // A file system without links: what another makes at the same moment is replaced.
        Err(_) => rename(&beside, path)?,
    }
    sync_folder(path)
}

/// A file beside, synced. Its name.
fn write_beside(path: &Path, ending: &str, content: &[u8]) -> Result<PathBuf, Error> {
    let no_name = || Error::new(ErrorKind::InvalidInput, "it has no name");
    let name = path.file_name().ok_or_else(no_name)?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{ending}"));
    let beside = path.with_file_name(beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    Ok(beside)
}

fn sync_folder(path: &Path) -> Result<(), Error> {
    let no_folder = || Error::new(ErrorKind::InvalidInput, "it has no folder");
    File::open(path.parent().ok_or_else(no_folder)?)?.sync_all()
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
