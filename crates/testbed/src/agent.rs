//! An agent: makes load for a run of another machine, and runs the programs of a group or an instance for it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// An agent that listens.
pub struct Agent {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
    /// Where what it runs for a coordinator has its folder.
    dir: PathBuf,
    is_busy: AtomicBool,
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
                        scope.spawn(move || self.attend(stream, from, run));
                    }
                    // No connection, or one that has gone already.
                    Err(_) => std::thread::sleep(LOOK_EVERY),
                }
            }
        });
    }

    fn attend(&self, stream: TcpStream, from: SocketAddr, run: Run<'_>) {
        if let Err(error) = self.serve(stream, from, run) {
            run.progress.say(&format!("{from}: {error}"));
        }
    }

    fn serve(&self, stream: TcpStream, from: SocketAddr, run: Run<'_>) -> Result<(), LabError> {
        stream
            .set_nonblocking(false)
            .map_err(|error| LabError::caused("connection", error))?;
        let own = stream.local_addr();
        let own = own.map_err(|error| LabError::caused("connection", error))?;
        let mut link = TcpLink::new(stream)?;
        let busy = link.let_in(&self.token, || self.claim())?;
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
