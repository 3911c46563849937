//! The folder of what an agent runs for a coordinator has a mark, locked by the agent for as long as it is there: where it
//! is not, the next one ends what is there. The number of its process would be another's, or its own again, after a start
//! of the machine or of a container.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ashlar_lab::LabError;
use rustix::fs::{FlockOperation, flock};

use crate::processes;

/// Makes a mark, locked before it has its name: no other agent finds it free.
///
/// # Errors
/// It cannot be made.
pub fn mark(path: &Path, text: &str) -> Result<File, LabError> {
    let new = path.with_extension("new");
    let make = || {
        let mut lock = File::create_new(&new)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        lock.write_all(text.as_bytes())?;
        std::fs::rename(&new, path)?;
        Ok(lock)
    };
    make().map_err(|error: std::io::Error| LabError::caused(path.display(), error))
}

/// Folders below `dir` with a mark of this name whose agents are gone, each locked by us. One of another user's is none
/// of ours, whatever it is called: `dir` may be where all users can write.
pub fn left_behind(dir: &Path, name: &str) -> Vec<(PathBuf, File)> {
    let locked = |folder: PathBuf| {
        let of = folder.symlink_metadata().ok()?;
        if !of.is_dir() || of.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let lock = File::open(folder.join(name)).ok()?;
        let is_left = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        is_left.then_some((folder, lock))
    };
    let folders = processes::own_folders(dir).into_iter();
    folders.filter_map(locked).collect()
}
