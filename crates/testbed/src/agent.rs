//! An agent: makes load for a run of another machine, and runs the programs of a group or an instance for it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Duration;

use ashlar_lab::agent::{Makes, serve};
use ashlar_lab::{LabError, Progress};
use ashlar_node::Token;
use ashlar_oltp::UserLoad;
use ashlar_oltp::group::GroupSeats;

use super::instance::AllSeats;
use super::link::{TcpLink, database_password};
use super::stacks::{LocalStacks, Open};

/// Whether it is to end is asked so often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Connections that have not shown yet that they know the token, at most: each is a thread.
const STRANGERS: usize = 64;

/// An agent that listens.
pub struct Agent {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
    /// Where what it runs for a coordinator has its folder.
    dir: PathBuf,
    is_busy: AtomicBool,
    strangers: AtomicUsize,
}

impl Agent {
    /// Listens there; the token is made if its file is not there. Programs of a coordinator's have a folder below `dir`.
    ///
    /// # Errors
    /// The token cannot be made or read; the address cannot be listened at.
    pub fn listen(listen: SocketAddr, token_file: &Path, dir: &Path) -> Result<Self, LabError> {
        // Where it is made, a folder is needed by name.
        let path = std::path::absolute(token_file)
            .map_err(|error| LabError::environment(error.to_string()))?;
        let token = Token::open(&path)
            .map_err(|error| LabError::environment(format!("--token-file: {error}")))?;
        let failed = |error| LabError::environment(format!("--listen {listen}: {error}"));
        let listener = TcpListener::bind(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            listener,
            address,
            token,
            dir: dir.to_owned(),
            is_busy: AtomicBool::new(false),
            strangers: AtomicUsize::new(0),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves one coordinator after the other, until it is to end; `open` is how it opens what it loads.
    pub fn run(&self, open: Open, progress: &Progress) {
        let run = Run { open, progress };
        std::thread::scope(|scope| {
            while progress.go_on().is_ok() {
                match self.listener.accept() {
                    Ok((stream, from)) => {
                        // One too many is closed, and so is one for which there is no thread.
                        if let Some(seat) = Seat::take(&self.strangers) {
                            let visitor = Visitor { stream, from, seat };
                            let attend = move || self.attend(visitor, run);
                            let _ = Builder::new().spawn_scoped(scope, attend);
                        }
                    }
                    // No connection, or one that has gone already.
                    Err(_) => std::thread::sleep(LOOK_EVERY),
                }
            }
        });
    }

    fn attend(&self, visitor: Visitor<'_>, run: Run<'_>) {
        let from = visitor.from;
        if let Err(error) = self.serve(visitor, run) {
            run.progress.say(&format!("{from}: {error}"));
        }
    }

    fn serve(&self, visitor: Visitor<'_>, run: Run<'_>) -> Result<(), LabError> {
        let Visitor { stream, from, seat } = visitor;
        stream
            .set_nonblocking(false)
            .map_err(|error| LabError::caused("connection", error))?;
        let own = stream.local_addr();
        let own = own.map_err(|error| LabError::caused("connection", error))?;
        let mut link = TcpLink::new(stream)?;
        let busy = link.let_in(&self.token, || self.claim())?;
        drop(seat);
        run.progress.say(&format!("{from}: a run begins"));
        let password = |drawn: &str| database_password(&self.token, drawn);
        let group = GroupSeats::new(&self.dir, own.ip().to_canonical(), &password);
        let seats = AllSeats::new(group);
        let users = UserLoad::new(&password);
        let makes = Makes {
            stacks: &LocalStacks::new(run.open),
            other: &users,
            seats: &seats,
        };
        let ended = serve(&mut link, makes, run.progress);
        // What it ran has ended, and its users have logged out, before another comes.
        drop(users);
        if let Err(error) = seats.end() {
            run.progress.say(&format!("{from}: {error}"));
        }
        drop(busy);
        run.progress
            .say(&format!("{from}: {ended:?}").to_lowercase());
        Ok(())
    }

    /// Two loads on one machine would measure each other.
    fn claim(&self) -> Result<Busy<'_>, &'static str> {
        match self.is_busy.swap(true, Ordering::SeqCst) {
            true => Err("busy with another run"),
            false => Ok(Busy(&self.is_busy)),
        }
    }
}

/// What it serves with.
#[derive(Clone, Copy)]
struct Run<'a> {
    open: Open,
    progress: &'a Progress,
}

/// Busy until it is dropped.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Who has come, and need not have the token.
struct Visitor<'a> {
    stream: TcpStream,
    from: SocketAddr,
    seat: Seat<'a>,
}

/// A stranger, counted until it is dropped.
struct Seat<'a>(&'a AtomicUsize);

impl<'a> Seat<'a> {
    fn take(taken: &'a AtomicUsize) -> Option<Self> {
        let more = |taken| (taken < STRANGERS).then_some(taken + 1);
        let took = taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        took.ok().map(|_| Self(taken))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use ashlar_device::OpenError;
    use ashlar_lab::Agents;

    use super::super::link::greet;
    use super::*;

    #[test]
    fn strangers_beyond_the_most_are_closed_and_the_next_is_let_in_when_they_are_gone() {
        let dir = tempfile::tempdir().expect("a folder");
        let token_file = dir.path().join("token");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let agent = Agent::listen(listen, &token_file, dir.path()).expect("listens");
        let address = agent.address();
        let stop = Arc::new(AtomicBool::new(false));
        let progress = Progress::silent().until(Arc::clone(&stop));
        let running = std::thread::spawn(move || {
            let none: Open = |_, _| Err(OpenError::usage("none", "none"));
            agent.run(none, &progress);
        });
        let hears = |stream: &mut TcpStream| stream.read(&mut [0; 64]).unwrap_or_default() > 0;
        let come = || TcpStream::connect(address).expect("listens");
        let mut strangers: Vec<_> = (0..STRANGERS).map(|_| come()).collect();
        assert!(strangers.iter_mut().all(hears));
        assert!(!hears(&mut come()));
        drop(strangers);
        let agents = Agents {
            addresses: vec![address.to_string()],
            token_file,
            ..Agents::default()
        };
        let is_in = (0..100).any(|_| {
            std::thread::sleep(LOOK_EVERY);
            greet(&agents).is_ok()
        });
        assert!(is_in);
        stop.store(true, Ordering::SeqCst);
        running.join().expect("ends");
    }
}
