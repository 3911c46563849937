//! What is kept of a group on given hosts in the coordinator's directory: who holds it, and what it was at last.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, Pid, Signal, fcntl_getlk, kill_process};

use super::HostedStatus;

/// Locked by the process that holds the group. The kernel says which one that is, from the first moment on: a number in
/// the file would come after the lock, and until then there would be none, or that of one that is gone. This process
/// opens it once: its lock would go with any other file that it opens of it and closes.
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
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        match lock(&dir, &options).map_err(caused)? {
            Lock::Own(lock) => {
                // What the one before was at is not what this one is at.
                gone(std::fs::remove_file(dir.join(STATUS))).map_err(caused)?;
                Ok(Self { dir, _lock: lock })
            }
            Lock::Others(_) => {
                let dir = dir.display();
                Err(LabError::usage(format!(
                    "{dir}: a group is held there already: `ashlar lab cluster stop --dir {dir}` ends it"
                )))
            }
        }
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

/// Whose a directory is.
enum Lock {
    Own(File),
    /// Another process's; none that is seen from here, if it has no number.
    Others(Option<Pid>),
}

/// Takes a directory, if no process has it.
fn lock(dir: &Path, options: &OpenOptions) -> std::io::Result<Lock> {
    let path = dir.join(HOLDER);
    loop {
        let file = options.open(&path)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path)? => return Ok(Lock::Own(file)),
            // The one that held it has removed it meanwhile.
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
                if let Some(lock) = locked(&file)? {
                    return Ok(Lock::Others(lock.pid));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The lock that another process has on it.
fn locked(file: &File) -> std::io::Result<Option<Flock>> {
    Ok(fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?)
}

fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let own = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
        Err(error) => gone(Err(error)).map(|()| false),
    }
}

/// What is not there is as it should be.
fn gone(done: std::io::Result<()>) -> std::io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn is_held(dir: &Path) -> std::io::Result<bool> {
    match File::open(dir.join(HOLDER)) {
        Ok(file) => Ok(locked(&file)?.is_some()),
        Err(error) => gone(Err(error)).map(|()| false),
    }
}

/// What the group of a directory was at a second ago.
///
/// # Errors
/// The process that held it is gone, and so the group; it is not ready yet.
pub fn hosted_status(dir: &Path) -> Result<HostedStatus, LabError> {
    let caused = |error: Error| LabError::caused(dir.display(), error);
    if !is_held(dir).map_err(caused)? {
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
    let caused = |error: Error| LabError::caused(dir.display(), error);
    let begun = Instant::now();
    let mut told = None;
    loop {
        let holder = match lock(dir, File::options().write(true)) {
            Ok(Lock::Own(lock)) => {
                let dir = dir.to_owned();
                drop(Kept { dir, _lock: lock });
                return Ok(());
            }
            Ok(Lock::Others(holder)) => holder,
            Err(error) => return gone(Err(error)).map_err(caused),
        };
        match (told, holder) {
            (None, Some(pid)) => {
                // One that has ended meanwhile is what is wanted.
                let _ = kill_process(pid, Signal::TERM);
                told = holder;
            }
            // The next one's, which was not there when this was asked for.
            (Some(_), Some(_)) if told != holder => return Ok(()),
            _ => {}
        }
        if begun.elapsed() > ENDS_WITHIN || holder.is_none() {
            let who = holder.map_or(
                "a process of another machine or container".to_owned(),
                |pid| format!("process {}", pid.as_raw_nonzero()),
            );
            return Err(LabError::environment(format!(
                "{}: {who} holds the group, and does not end",
                dir.display()
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::process::{Child, Command, Stdio};

    use ashlar_lab::OwnFolder;

    use super::*;

    /// Another process that has locked it, and has written nothing: as `start` is for a moment.
    fn holder(dir: &Path) -> Child {
        let mut command = Command::new("/usr/bin/python3");
        let held = "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); \
                    print('held', flush=True); time.sleep(600)";
        command.args(["-c", held]).arg(dir.join(HOLDER));
        let mut holder = command.stdout(Stdio::piped()).spawn().expect("started");
        let said = holder.stdout.take().expect("piped");
        let mut line = String::new();
        std::io::BufReader::new(said)
            .read_line(&mut line)
            .expect("said");
        assert_eq!(line, "held\n");
        holder
    }

    fn left_behind(dir: &Path) {
        std::fs::create_dir(dir).expect("made");
        for name in [HOLDER, STATUS, NEW] {
            std::fs::write(dir.join(name), "1").expect("written");
        }
    }

    #[test]
    fn a_directory_is_taken_if_it_is_empty_or_its_holder_is_gone() {
        let room = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let dir = room.path().join("g");
        drop(Kept::claim(&dir).expect("empty"));
        assert!(!dir.exists());
        left_behind(&dir);
        let kept = Kept::claim(&dir).expect("its holder is gone");
        assert!(!dir.join(STATUS).exists(), "it is the other's");
        drop(kept);
        assert!(!dir.exists());
        std::fs::create_dir(&dir).expect("made");
        std::fs::write(dir.join("other"), "").expect("written");
        let refused = Kept::claim(&dir).err().expect("refused");
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains("(other)"), "{refused}");
    }

    #[test]
    fn a_holder_is_one_from_the_moment_that_it_locks() {
        let room = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let dir = room.path().join("g");
        left_behind(&dir);
        let mut holder = holder(&dir);
        let refused = Kept::claim(&dir).err().expect("refused").to_string();
        assert!(refused.contains("held there already"), "{refused}");
        assert!(is_held(&dir).expect("asked"));
        end_hosted(&dir).expect("ended");
        assert!(!dir.exists() && !is_held(&dir).expect("asked"));
        assert!(!holder.wait().expect("a child").success());
        end_hosted(&dir).expect("there is none");
    }
}
