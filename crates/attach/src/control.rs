//! What a server can be asked: its counts and paths, through a socket in the attachment's folder.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::counters::{Counters, Tallies};
use crate::error::AttachError;
use crate::paths::{PathStatus, Paths};

const SOCKET: &str = "server.sock";
/// The wait for a status is short: a stopped server does not answer.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);
/// Longer than any answer.
const LONGEST: u64 = 64 << 10;

/// What a server says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(flatten)]
    pub(crate) tallies: Tallies,
    #[serde(default)]
    pub(crate) paths: Vec<PathStatus>,
    /// Why all I/O fails, if another host has taken the volume over.
    #[serde(default)]
    pub(crate) fenced: Option<String>,
}

/// Answers from now on, in a thread of its own.
pub(crate) fn answer(
    dir: &Path,
    counters: Counters,
    paths: Option<Arc<dyn Paths>>,
) -> Result<(), AttachError> {
    let path = dir.join(SOCKET);
    let failed = |what: &str, error: std::io::Error| {
        AttachError::environment(format!("{what} {}: {error}", path.display()))
    };
    // An earlier server's.
    let _ = std::fs::remove_file(&path);
    let listener = File::open(dir).and_then(|dir| UnixListener::bind(through(&dir)));
    let listener = listener.map_err(|error| failed("socket", error))?;
    let wait = move || {
        for stream in listener.incoming().flatten() {
            let answer = Answer {
                tallies: counters.tallies(),
                paths: paths.as_ref().map_or_else(Vec::new, |paths| paths.paths()),
                fenced: paths.as_ref().and_then(|paths| paths.fenced()),
            };
            tell(stream, &answer);
        }
    };
    let thread = std::thread::Builder::new()
        .name("control".into())
        .spawn(wait);
    thread
        .map(|_| ())
        .map_err(|error| failed("a thread for", error))
}

/// The socket by a short path. An attachment's folder has the whole path of its mount point for a name, and a socket's
/// path has at most 107 bytes.
fn through(dir: &File) -> PathBuf {
    format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd()).into()
}

fn tell(mut stream: UnixStream, answer: &Answer) {
    // The client that asked may be gone.
    let _ = stream.set_write_timeout(Some(STATUS_TIMEOUT));
    if let Ok(text) = serde_json::to_vec(answer) {
        let _ = stream.write_all(&text);
    }
}

/// What has arrived at the server in `dir`; nothing if it does not answer.
pub(crate) fn ask(dir: &Path) -> Option<Answer> {
    let dir = File::open(dir).ok()?;
    let stream = UnixStream::connect(through(&dir)).ok()?;
    stream.set_read_timeout(Some(STATUS_TIMEOUT)).ok()?;
    let mut text = Vec::new();
    stream.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_folder_has_a_long_path_can_be_asked() {
        let room = tempfile::tempdir().expect("a folder");
        let dir = room.path().join("x".repeat(200));
        std::fs::create_dir(&dir).expect("made");
        assert!(ask(&dir).is_none(), "no server");
        answer(&dir, Counters::default(), None).expect("it listens");
        assert!(dir.join(SOCKET).exists() && ask(&dir).is_some());
    }
}
