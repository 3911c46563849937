//! The folder of what an agent runs for a coordinator has a mark, locked by the agent for as long as it is there: where it
//! is not, the next one ends what is there. The number of its process would be another's, or its own again, after a start
//! of the machine or of a container.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ashlar_lab::LabError;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cut::Cut;
use crate::processes;

/// The names of marks: of what a group has, and of what an instance has.
pub const GROUP: &str = "seat";
pub const INSTANCE: &str = "part";

/// Ends all that works in such a folder, and removes it.
pub type TakeAway = fn(&Path) -> Result<(), LabError>;

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

/// Ends what agents have left below `dir` that were killed, or could not end it, of a group and of an instance.
///
/// # Errors
/// Something stays.
pub fn end_left_behind(dir: &Path, take_away: TakeAway) -> Result<(), LabError> {
    let mut left = left_behind(dir).into_iter();
    left.try_for_each(|(folder, _lock)| {
        // A host that has no `nft` was not cut off; the kernel has ended it otherwise.
        let _ = Cut::of(&folder).end();
        take_away(&folder)
    })
}

/// Folders below `dir` with a mark whose agents are gone, each locked by us. One of another user's is none
/// of ours, whatever it is called: `dir` may be where all users can write.
fn left_behind(dir: &Path) -> Vec<(PathBuf, File)> {
    let locked = |folder: PathBuf| {
        let of = folder.symlink_metadata().ok()?;
        if !of.is_dir() || of.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let mut marks = [GROUP, INSTANCE].into_iter();
        let lock = marks.find_map(|name| File::open(folder.join(name)).ok())?;
        let is_left = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        is_left.then_some((folder, lock))
    };
    let folders = processes::own_folders(dir).into_iter();
    folders.filter_map(locked).collect()
}

/// What of all that an agent has started runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Seen {
    pub processes: usize,
    /// Programs that have ended, with what they said last.
    pub ended: Vec<String>,
}

impl Seen {
    /// What is wrong, if something is.
    pub fn trouble(&self) -> Option<String> {
        (!self.ended.is_empty()).then(|| self.ended.join("; "))
    }
}

/// A program that was started, and is known by where it works.
pub struct Watched {
    pub name: &'static str,
    pub folder: PathBuf,
    pub log: PathBuf,
}

impl Watched {
    /// What it said last, if it has ended.
    pub fn ended(&self) -> Option<String> {
        if !processes::working_in(std::slice::from_ref(&self.folder)).is_empty() {
            return None;
        }
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.unwrap_or("it said nothing");
        Some(format!("{} has ended: {last}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use ashlar_lab::OwnFolder;

    use super::*;

    #[test]
    fn a_program_that_has_ended_is_told_with_its_last_words() {
        let room = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let one = Watched {
            name: "etcd",
            folder: room.path().to_owned(),
            log: room.path().join("log"),
        };
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", "import time; time.sleep(600)"]);
        processes::start(command.current_dir(room.path())).expect("started");
        let begun = std::time::Instant::now();
        while one.ended().is_some() {
            assert!(begun.elapsed().as_secs() < 60, "it is called python then");
        }
        std::fs::write(&one.log, "first\nno space left\n\n").expect("written");
        processes::end(std::slice::from_ref(&one.folder)).expect("ended");
        let ended = vec![one.ended().expect("told")];
        let processes = 0;
        let trouble = Seen { processes, ended }.trouble();
        assert_eq!(trouble.as_deref(), Some("etcd has ended: no space left"));
    }
}
