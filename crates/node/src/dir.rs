use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::files::{PRIVATE, failed};
use crate::model::ControlError;

/// Beside the API's socket, for whoever knows that one.
pub const ATTACH_SOCKET: &str = "attach.sock";

/// A daemon's directory, locked: no other daemon uses it until this is dropped.
#[derive(Debug)]
pub struct NodeDir {
    path: PathBuf,
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
        let path = std::path::absolute(path).map_err(|e| failed(path, "is no directory", &e))?;
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
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(&path, &mut lock)),
            Err(error) => return Err(cannot(error.into())),
        }
        let pid = format!("{}\n", std::process::id());
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| lock.write_all(pid.as_bytes()))
            .map_err(cannot)?;
        Ok(Self { path, _lock: lock })
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

fn in_use(path: &Path, lock: &mut File) -> ControlError {
    let mut pid = String::new();
    // Without it the message is less helpful, and as true.
    let _ = lock.take(32).read_to_string(&mut pid);
    let by = match pid.trim() {
        pid if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("process {pid}")
        }
        _ => "another process".to_owned(),
    };
    ControlError::conflict(format!(
        "{} is in use by {by}: one daemon a directory",
        path.display()
    ))
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
    fn a_directory_that_cannot_be_made_is_named() {
        let base = tempfile::tempdir().expect("directory");
        let file = base.path().join("file");
        std::fs::write(&file, "").expect("file");
        let error = NodeDir::lock(&file.join("dir")).expect_err("below a file");
        assert_eq!(error.kind, ErrorKind::Environment);
        assert!(error.message.contains("file/dir"), "{error}");
    }
}
