use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fs::{FileType, fstat, makedev};

use super::words::{Answer, Ask, Lines, say};
use super::{Over, Refusal, Session, Wish};
use crate::counters::Tallies;
use crate::system::memory;

/// How long a client may take to send its request, and to take the answer.
const TALK_TIMEOUT: Duration = Duration::from_secs(10);
/// Most connections at a time.
const CONNECTIONS: usize = 256;
/// How long the listener rests after an error such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// What has volumes, and cores to serve them on. Called from several threads, never from a core's.
pub trait Owner: Send + Sync + 'static {
    /// Whether a wish would be met.
    ///
    /// # Errors
    /// Why not.
    fn may(&self, wish: &Wish) -> Result<(), Refusal>;

    /// Settles a [`LocalSession`](super::LocalSession) of this session on the volume's core.
    ///
    /// # Errors
    /// Why not; then nothing is served.
    fn serve(&self, wish: &Wish, fuse: OwnedFd, session: Arc<Session>) -> Result<(), Refusal>;

    /// The session that serves the volume of this identity.
    fn session(&self, identity: &str) -> Option<Arc<Session>>;

    /// A session has ended by itself: what is left of it may go.
    fn ended(&self, wish: &Wish, session: &Arc<Session>);
}

/// Where guardians come to have attachments served.
pub struct Listener {
    owner: Arc<dyn Owner>,
}

impl Listener {
    /// Before an owner.
    pub fn new(owner: Arc<dyn Owner>) -> Self {
        Self { owner }
    }

    /// Serves each connection to `socket` in a thread of its own. Only processes that may attach can open
    /// the socket. Does not return.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn run(self, socket: &UnixListener) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        let connections = Arc::new(AtomicUsize::new(0));
        loop {
            let Ok((stream, _)) = socket.accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            if connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS {
                connections.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let (owner, count) = (self.owner.clone(), connections.clone());
            let thread = std::thread::Builder::new().name("attach".into());
            let seat = Seat(count);
            let spawned = thread.spawn(move || {
                let _seat = seat;
                // What goes wrong on a connection is its other end's affair.
                let _ = talk(stream, owner.as_ref());
            });
            if spawned.is_err() {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn talk(mut stream: UnixStream, owner: &dyn Owner) -> io::Result<()> {
    stream.set_read_timeout(Some(TALK_TIMEOUT))?;
    stream.set_write_timeout(Some(TALK_TIMEOUT))?;
    let mut lines = Lines::default();
    let answer = match lines.next(&stream)? {
        Some(Ask::May(wish)) => match owner.may(&wish) {
            Ok(()) => Answer::Yes,
            Err(refusal) => Answer::No(refusal),
        },
        Some(Ask::Count(identity)) => Answer::Counts(counts(owner, &identity)),
        Some(Ask::Serve(wish)) => return serve(stream, lines, &wish, owner),
        Some(Ask::LetGo) | None => return Ok(()),
    };
    say(&mut stream, &answer, None)
}

fn counts(owner: &dyn Owner, identity: &str) -> Option<Tallies> {
    let session = owner.session(identity)?;
    Some(session.counters().tallies())
}

fn serve(
    mut stream: UnixStream,
    mut lines: Lines,
    wish: &Wish,
    owner: &dyn Owner,
) -> io::Result<()> {
    let Some(fuse) = lines.take_gift().filter(is_fuse) else {
        let refusal = Refusal {
            why: "no /dev/fuse came along".into(),
            may_change: false,
        };
        return say(&mut stream, &Answer::No(refusal), None);
    };
    memory::stay();
    let session = Arc::new(Session::new(stream.try_clone()?));
    if let Err(refusal) = owner.serve(wish, fuse, session.clone()) {
        return say(&mut stream, &Answer::No(refusal), None);
    }
    stream.set_read_timeout(None)?;
    // A guardian that is gone changes nothing for the users of the volume.
    let _ = say(&mut stream, &Answer::Yes, None);
    while session.over().is_none() {
        match lines.next(&stream) {
            Ok(Some(Ask::LetGo)) => session.end(Over::ForNow("its guardian was ended".into())),
            Ok(Some(_)) => {}
            // Its end, or the session's.
            Ok(None) | Err(_) => break,
        }
    }
    let over = session.wait();
    owner.ended(wish, &session);
    say(&mut stream, &Answer::Over(over), None)
}

/// Whether it is /dev/fuse: anything else might never say that there is nothing more to read.
fn is_fuse(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|file| {
        FileType::from_raw_mode(file.st_mode).is_char_device() && file.st_rdev == makedev(10, 229)
    })
}
