use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;

use super::words::{Answer, Ask, Lines, say};
use super::{Over, Refusal, Wish};
use crate::counters::Tallies;
use crate::system::process::Process;

/// For an answer that only informs. A stopped daemon does not answer.
const TALLY_TIMEOUT: Duration = Duration::from_millis(500);
/// For an answer on which a decision depends.
const DECISION_TIMEOUT: Duration = Duration::from_secs(10);

/// A daemon that was given an attachment to serve.
pub(crate) struct Connection {
    stream: UnixStream,
    lines: Lines,
}

/// What has come from a daemon.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Nothing yet.
    Nothing,
    /// It serves the attachment.
    Serves,
    /// It does not.
    Refuses(Refusal),
    /// It does no longer.
    Over(Over),
    /// It has died, or speaks otherwise.
    Gone,
}

fn connect(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

impl Connection {
    /// Gives the daemon that listens at `socket` the attachment to serve. Its answer is yet to come.
    ///
    /// # Errors
    /// No daemon listens there.
    pub(crate) fn give(socket: &Path, wish: &Wish, fuse: BorrowedFd<'_>) -> io::Result<Self> {
        let mut stream = connect(socket, DECISION_TIMEOUT)?;
        say(&mut stream, &Ask::Serve(wish.clone()), Some(fuse))?;
        Ok(Self {
            stream,
            lines: Lines::default(),
        })
    }

    /// The daemon's process.
    pub(crate) fn daemon(&self) -> Option<Process> {
        let peer = socket_peercred(&self.stream).ok()?;
        Process::of(peer.pid.as_raw_nonzero().get())
    }

    /// Waits for what it says, for at most `limit`; a signal ends the wait, too.
    pub(crate) fn hear(&mut self, limit: Duration) -> Heard {
        let limit = Timespec::try_from(limit).ok();
        let stream = self.stream.as_fd();
        match poll(&mut [PollFd::new(&stream, PollFlags::IN)], limit.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Heard::Nothing,
            _ => {}
        }
        match self.lines.next(&self.stream) {
            Ok(Some(Answer::Yes)) => Heard::Serves,
            Ok(Some(Answer::No(refusal))) => Heard::Refuses(refusal),
            Ok(Some(Answer::Over(over))) => Heard::Over(over),
            _ => Heard::Gone,
        }
    }

    /// Has it let go of the attachment, and waits a moment until it has.
    pub(crate) fn let_go(mut self, patience: Duration) {
        // One that is dead has.
        if say(&mut self.stream, &Ask::LetGo, None).is_ok() {
            let _ = self.hear(patience);
        }
    }
}

/// Asks whether the daemon that listens at `socket` would serve the attachment.
///
/// # Errors
/// Why not, in words.
pub(crate) fn may(socket: &Path, wish: &Wish) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", socket.display());
    let mut stream = connect(socket, DECISION_TIMEOUT).map_err(failed)?;
    say(&mut stream, &Ask::May(wish.clone()), None).map_err(failed)?;
    match Lines::default().next(&stream).map_err(failed)? {
        Some(Answer::Yes) => Ok(()),
        Some(Answer::No(refusal)) => Err(refusal.why),
        _ => Err(format!("{}: no answer", socket.display())),
    }
}

/// What has arrived at the attachment of a volume; nothing if the daemon does not answer.
pub(crate) fn count(socket: &Path, identity: &str) -> Option<Tallies> {
    let mut stream = connect(socket, TALLY_TIMEOUT).ok()?;
    say(&mut stream, &Ask::Count(identity.to_owned()), None).ok()?;
    match Lines::default().next(&stream).ok()? {
        Some(Answer::Counts(tallies)) => tallies,
        _ => None,
    }
}
