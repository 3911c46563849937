use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashlar_reactor::{AFTERLIFE, has_ended};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::files::{PRIVATE, failed};
use crate::model::ControlError;

/// Beside the API's socket: a program that knows that one finds this one.
pub const ATTACH_SOCKET: &str = "attach.sock";

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A daemon's directory, locked: no other daemon uses it until this is dropped.
#[derive(Debug)]
pub struct NodeDir {
    path: PathBuf,
    /// Folders that were made for it, the innermost first: they go again unless the daemon comes up.
    made: Vec<PathBuf>,
    /// The daemon has come up.
    is_used: AtomicBool,
    /// The lock ends with the descriptor, whatever ends the process.
    _lock: File,
}

impl NodeDir {
    /// Makes the directory if there is none (for its owner only), and locks it.
    ///
    /// # Errors
    /// Conflict: another daemon has it, named by its process. Environment: it cannot be made or
    /// used.
    pub fn lock(path: &Path) -> Result<Self, ControlError> {
        Self::lock_within(AFTERLIFE, path)
    }

    fn lock_within(patience: Duration, path: &Path) -> Result<Self, ControlError> {
        let path = std::path::absolute(path).map_err(|e| failed(path, "is no directory", &e))?;
        let above = path.ancestors();
        let made = above.take_while(|folder| !folder.exists());
        let made: Vec<PathBuf> = made.map(Path::to_owned).collect();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|e| failed(&path, "cannot be made", &e))?;
        let file = path.join("lock");
        let cannot = |error| failed(&file, "cannot be locked", &error);
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE)
            .open(&file)
            .map_err(cannot)?;
        let begun = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {
                    let holder = holder(&mut lock);
                    if !holder.is_some_and(has_ended) || begun.elapsed() >= patience {
                        return Err(in_use(&path, holder));
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(error) => return Err(cannot(error.into())),
            }
        }
        // The daemon that had it may have taken it away, with its folder, since the file was opened.
        let is_it = match (lock.metadata(), file.metadata()) {
            (Ok(ours), Ok(there)) => ours.ino() == there.ino() && ours.dev() == there.dev(),
            _ => false,
        };
        if !is_it {
            return Err(ControlError::conflict(format!(
                "{} went as it was locked: another daemon that did not come up; try again",
                path.display()
            )));
        }
        let pid = format!("{}\n", std::process::id());
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| lock.write_all(pid.as_bytes()))
            .map_err(cannot)?;
        Ok(Self {
            path,
            made,
            is_used: AtomicBool::new(false),
            _lock: lock,
        })
    }

    /// The daemon has come up: the directory stays.
    pub(crate) fn keep(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket of the API.
    pub fn socket(&self) -> PathBuf {
        self.path.join("api.sock")
    }

    /// The socket where attachments are taken to be served in process.
    pub fn attach_socket(&self) -> PathBuf {
        self.path.join(ATTACH_SOCKET)
    }

    /// The token of the API over TCP.
    pub fn token(&self) -> PathBuf {
        self.path.join("api.token")
    }

    /// What is remembered.
    pub fn state(&self) -> PathBuf {
        self.path.join("state.toml")
    }
}

impl Drop for NodeDir {
    /// What was made for a daemon that did not come up goes again. A folder in which anything else is stays.
    fn drop(&mut self) {
        if self.made.is_empty() || self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let ours = [self.socket(), self.attach_socket(), self.token()];
        for file in ours.into_iter().chain([self.path.join("lock")]) {
            // Most are not there.
            let _ = std::fs::remove_file(file);
        }
        for folder in &self.made {
            if std::fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }
}

/// Who has the lock, as it says there.
fn holder(lock: &mut File) -> Option<u32> {
    let mut pid = String::new();
    lock.rewind().ok()?;
    lock.take(32).read_to_string(&mut pid).ok()?;
    pid.trim().parse().ok()
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn in_use(path: &Path, pid: Option<u32>) -> ControlError {
    let path = path.display();
    if let Some(pid) = pid.filter(|pid| is_there(*pid) && has_ended(*pid)) {
        return ControlError::environment(format!(
            "{path} is in use by process {pid}, which was killed and cannot end: the kernel still waits for a drive \
             on its behalf, and its drives are not free before. It ends when that drive answers, or is taken away \
             (`dmesg` names it; for a SCSI drive: echo 1 > /sys/block/NAME/device/delete); then start the daemon again"
        ));
    }
    let by = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
    ControlError::conflict(format!("{path} is in use by {by}: one daemon a directory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ErrorKind;

    #[test]
    fn a_second_daemon_is_refused_and_the_first_named() {
        let base = tempfile::tempdir().expect("directory");
        let path = base.path().join("a/b");
        let first = NodeDir::lock(&path).expect("free");
        let error = NodeDir::lock(&path).expect_err("taken");
        assert_eq!(error.kind, ErrorKind::Conflict);
        let pid = format!("process {}:", std::process::id());
        assert!(error.message.contains(&pid), "{error}");
        drop(first);
        NodeDir::lock(&path).expect("free again");
    }

    #[test]
    fn a_daemon_that_was_killed_and_cannot_end_is_told_from_one_that_runs() {
        let base = tempfile::tempdir().expect("directory");
        let first = NodeDir::lock(base.path()).expect("free");
        let mut child = std::process::Command::new("true").spawn().expect("true");
        // It is not waited for, so it stays as a zombie; the lock is the first daemon's.
        let pid = child.id();
        while !has_ended(pid) {
            std::thread::yield_now();
        }
        std::fs::write(base.path().join("lock"), format!("{pid}\n")).expect("written");
        let error = NodeDir::lock_within(Duration::ZERO, base.path()).expect_err("taken");
        child.wait().expect("ended");
        assert_eq!(error.kind, ErrorKind::Environment);
        let says = [
            format!("process {pid}, which was killed"),
            "waits for a drive".into(),
        ];
        assert!(
            says.iter().all(|text| error.message.contains(text)),
            "{error}"
        );
        drop(first);
    }

    #[test]
    fn what_was_made_for_a_daemon_that_did_not_come_up_goes_again() {
        let base = tempfile::tempdir().expect("directory");
        let path = base.path().join("a/b");
        let dir = NodeDir::lock(&path).expect("free");
        std::fs::write(dir.token(), "made at the start").expect("file");
        drop(dir);
        assert!(!base.path().join("a").exists());
        let dir = NodeDir::lock(&path).expect("free");
        std::fs::write(path.join("notes"), "of the operator").expect("file");
        drop(dir);
        assert!(path.join("notes").exists(), "what is not ours stays");
        drop(NodeDir::lock(&path).expect("free"));
        assert!(path.join("lock").exists(), "it was there before");
        let used = base.path().join("c");
        let dir = NodeDir::lock(&used).expect("free");
        dir.keep();
        drop(dir);
        assert!(used.join("lock").exists());
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let base = tempfile::tempdir().expect("directory");
        let file = base.path().join("file");
        std::fs::write(&file, "").expect("file");
        let error = NodeDir::lock(&file.join("dir")).expect_err("below a file");
        assert_eq!(error.kind, ErrorKind::Environment);
        assert!(error.message.contains("file/dir"), "{error}");
    }
}
