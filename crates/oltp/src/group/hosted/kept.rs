//! What is kept of a group on given hosts in the coordinator's directory: who holds it, and what it was at last.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use super::HostedStatus;

/// Locked by the process that holds the group, whose number is in it.
const HOLDER: &str = "holder";
const STATUS: &str = "hosted.json";
/// The next one, before it takes that name.
const NEW: &str = "hosted.new";
/// A group has ended so long after it was told to: more than three agents that do not answer are waited for, one after
/// the other.
const ENDS_WITHIN: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A directory, while its group is held. Removed with what is in it.
pub(super) struct Kept {
    dir: PathBuf,
    _lock: File,
}

impl Kept {
    /// Takes an empty directory, or one whose holder is gone.
    pub(super) fn claim(dir: &Path) -> Result<Self, LabError> {
        let caused = |error| LabError::caused(dir.display(), error);
        std::fs::create_dir_all(dir).map_err(caused)?;
        let dir = std::fs::canonicalize(dir).map_err(caused)?;
        for other in std::fs::read_dir(&dir).map_err(caused)? {
            let other = other.map_err(caused)?.file_name();
            if [HOLDER, STATUS, NEW].iter().all(|&ours| other != ours) {
                return Err(LabError::usage(format!(
                    "{} holds other things ({}): a group takes an empty directory",
                    dir.display(),
                    other.display()
                )));
            }
        }
        let path = dir.join(HOLDER);
        let mut options = File::options();
        let open = options
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path);
        let lock = open.map_err(|error| LabError::caused(path.display(), error))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let dir = dir.display();
            return Err(LabError::usage(format!(
                "{dir}: a group is held there already: `ashlar lab cluster stop --dir {dir}` ends it"
            )));
        }
        let own = std::process::id().to_string();
        std::fs::write(&path, own).map_err(|error| LabError::caused(path.display(), error))?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it is at. Only this user may read it: it has the password.
    pub(super) fn keep(&self, status: &HostedStatus) -> Result<(), LabError> {
        let path = self.dir.join(STATUS);
        let new = self.dir.join(NEW);
        let put = || {
            let text = serde_json::to_string_pretty(status)?;
            let mut options = File::options();
            options.create(true).truncate(true).write(true).mode(0o600);
            options.open(&new)?.write_all(text.as_bytes())?;
            std::fs::rename(&new, &path)
        };
        put().map_err(|error| LabError::caused(path.display(), error))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

fn remove(dir: &Path) {
    // What is not there is as it should be; the directory stays if other things are in it.
    for name in [NEW, STATUS, HOLDER] {
        let _ = std::fs::remove_file(dir.join(name));
    }
    let _ = std::fs::remove_dir(dir);
}

/// Whether a directory has a group on given hosts.
pub fn is_hosted(dir: &Path) -> bool {
    dir.join(HOLDER).exists()
}

/// The process that holds the group of a directory; none if it is gone.
fn holder(dir: &Path) -> Result<Option<Pid>, LabError> {
    let path = dir.join(HOLDER);
    let lock = match File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LabError::caused(path.display(), error)),
    };
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    Ok(text.trim().parse().ok().and_then(Pid::from_raw))
}

/// What the group of a directory was at a second ago.
///
/// # Errors
/// The process that held it is gone, and so the group; it is not ready yet.
pub fn hosted_status(dir: &Path) -> Result<HostedStatus, LabError> {
    if holder(dir)?.is_none() {
        let dir = dir.display();
        return Err(LabError::environment(format!(
            "{dir}: the command that held the group is gone: its hosts have ended it"
        )));
    }
    let path = dir.join(STATUS);
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|_| {
        LabError::environment(format!("{}: the group is not ready yet", dir.display()))
    })?;
    serde_json::from_str(&text).map_err(|error| LabError::caused(path.display(), error))
}

/// Has the command that holds the group of a directory end it, and waits until it has.
///
/// # Errors
/// It does not end.
pub fn end_hosted(dir: &Path) -> Result<(), LabError> {
    let begun = Instant::now();
    let mut told = None;
    while let Some(pid) = holder(dir)? {
        if told.is_none() {
            // One that has ended meanwhile is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
            told = Some(pid);
        }
        if begun.elapsed() > ENDS_WITHIN {
            return Err(LabError::environment(format!(
                "{}: process {} holds the group, and does not end",
                dir.display(),
                pid.as_raw_nonzero()
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    remove(dir);
    Ok(())
}

#[cfg(test)]
mod tests {
    use ashlar_lab::OwnFolder;

    use super::*;

    #[test]
    fn a_directory_is_held_once_and_what_a_killed_holder_left_is_taken() {
        let room = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let dir = room.path().join("g");
        let refusal = |dir: &Path| {
            let refused = Kept::claim(dir).err().expect("refused");
            assert_eq!(refused.exit_code(), 2);
            refused.to_string()
        };
        let kept = Kept::claim(&dir).expect("empty");
        assert!(refusal(&dir).contains("held there already"));
        drop(kept);
        assert!(!dir.exists());
        std::fs::create_dir(&dir).expect("made");
        for name in [HOLDER, STATUS, NEW] {
            std::fs::write(dir.join(name), "1").expect("written");
        }
        drop(Kept::claim(&dir).expect("its holder is gone"));
        assert!(!dir.exists());
        std::fs::create_dir(&dir).expect("made");
        std::fs::write(dir.join("other"), "").expect("written");
        assert!(refusal(&dir).contains("(other)"));
    }
}
