//! Where the API listens.

use std::fs::{Permissions, remove_file, rename, set_permissions, symlink_metadata};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_reactor::AFTERLIFE;

use crate::files::{PRIVATE, failed};
use crate::model::ControlError;

/// Between two looks whether a socket is free.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A unix socket that only its owner may use; its file goes when this is dropped.
#[derive(Debug)]
pub(crate) struct ApiSocket {
    path: PathBuf,
    inode: u64,
}

impl ApiSocket {
    /// Listens at `path`. What a daemon that is dead has left there is replaced.
    ///
    /// # Errors
    /// Conflict: another process listens there, or something else has the name. Environment: the rest.
    pub(crate) fn listen(path: &Path) -> Result<(Self, UnixListener), ControlError> {
        refuse_if_taken(path)?;
        let cannot = |error| failed(path, "cannot be listened on", &error);
        // Under another name until its mode is right: between `bind` and `chmod` every user could
        // connect.
        let beside = path.with_extension("new");
        match remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&beside).map_err(cannot)?;
        set_permissions(&beside, Permissions::from_mode(PRIVATE)).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        rename(&beside, path).map_err(cannot)?;
        let inode = symlink_metadata(path).map_err(cannot)?.ino();
        let path = path.to_owned();
        Ok((Self { path, inode }, listener))
    }
}

impl Drop for ApiSocket {
    fn drop(&mut self) {
        let ours = symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if ours {
            // Left behind, it would be replaced at the next start.
            let _ = remove_file(&self.path);
        }
    }
}

fn refuse_if_taken(path: &Path) -> Result<(), ControlError> {
    let found = match symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(path, "cannot be listened on", &error)),
        Ok(found) => found,
    };
    if !found.file_type().is_socket() {
        return Err(ControlError::conflict(format!(
            "{} is there and is no socket: move it away",
            path.display()
        )));
    }
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => return Err(failed(path, "cannot be listened on", &error)),
            // A daemon that is ending gives its directory free before its socket.
            Ok(_) if begun.elapsed() < AFTERLIFE => std::thread::sleep(LOOK_EVERY),
            Ok(_) => {
                return Err(ControlError::conflict(format!(
                    "{} is in use: another daemon listens there",
                    path.display()
                )));
            }
        }
    }
}

/// A TCP socket for the API.
#[derive(Debug)]
pub(crate) struct ApiTcp {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl ApiTcp {
    /// Listens; port 0 takes a free one.
    ///
    /// # Errors
    /// Environment: the address is not ours, or taken.
    pub(crate) fn listen(address: SocketAddr) -> Result<Self, ControlError> {
        let cannot = |error: String| ControlError::environment(format!("the API {error}"));
        let listening = ashlar_reactor::listen(address).map_err(|error| cannot(error.to_string()));
        let (socket, address) = listening?;
        let listener = TcpListener::from(socket);
        let nonblocking = listener.set_nonblocking(true);
        nonblocking
            .map_err(|error| cannot(format!("cannot use its socket at {address}: {error}")))?;
        Ok(Self { listener, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ErrorKind as Kind;

    #[test]
    fn a_socket_is_private_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("api.sock");
        let (socket, _listener) = ApiSocket::listen(&path).expect("free");
        let mode = symlink_metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o7777, 0o600);
        drop(socket);
        let left: Vec<_> = std::fs::read_dir(dir.path()).expect("directory").collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("api.sock");
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "a dead daemon leaves its file");
        let (_socket, _listener) = ApiSocket::listen(&path).expect("replaced");
        let error = ApiSocket::listen(&path).expect_err("alive");
        assert_eq!(error.kind, Kind::Conflict);
        UnixStream::connect(&path).expect("the first still listens");
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("api.sock");
        std::fs::write(&path, "precious").expect("file");
        assert_eq!(
            ApiSocket::listen(&path).expect_err("a file").kind,
            Kind::Conflict
        );
        assert_eq!(std::fs::read(&path).expect("kept"), b"precious");
    }

    #[test]
    fn a_path_that_is_too_long_is_an_error() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("x".repeat(200)).with_extension("sock");
        let error = ApiSocket::listen(&path).expect_err("too long");
        assert!(error.message.contains("xxx"), "{error}");
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let first = ApiTcp::listen("127.0.0.1:0".parse().expect("address")).expect("free");
        let error = ApiTcp::listen(first.address).expect_err("taken");
        assert!(
            error.message.contains(&first.address.to_string()),
            "{error}"
        );
    }
}
