//! `ashlar lab agent`: makes load for a run of another machine.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashlar_lab::agent::serve;
use ashlar_lab::{LabError, Progress};
use ashlar_node::Token;
use ashlar_testbed::link::TcpLink;
use ashlar_testbed::stacks::LocalStacks;

use super::interrupt::interruptible;
use crate::args::AgentArguments;
use crate::exit::Failure;
use crate::output::print;
use crate::stack;

/// Whether it is to end is asked so often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Serves one coordinator after the other, until a signal ends it.
pub(super) fn run(arguments: &AgentArguments) -> Result<(), Failure> {
    let listen = arguments.listen;
    // Where it is made, a folder is needed by name.
    let path = std::path::absolute(&arguments.token_file).map_err(Failure::environment)?;
    let token = Token::open(&path)
        .map_err(|error| Failure::environment(format!("--token-file: {error}")))?;
    let failed = |error| Failure::environment(format!("--listen {listen}: {error}"));
    let listener = TcpListener::bind(listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let progress = interruptible()?;
    print(&format!("ready {address}\n"))?;
    let agent = Agent {
        token,
        progress,
        is_busy: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        while agent.progress.go_on().is_ok() {
            match listener.accept() {
                Ok((stream, from)) => {
                    let agent = &agent;
                    scope.spawn(move || agent.attend(stream, from));
                }
                // Nobody, or one that has gone already.
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    });
    Ok(())
}

struct Agent {
    token: Token,
    progress: Progress,
    is_busy: AtomicBool,
}

impl Agent {
    fn attend(&self, stream: TcpStream, from: SocketAddr) {
        if let Err(error) = self.serve(stream, from) {
            self.progress.say(&format!("{from}: {error}"));
        }
    }

    fn serve(&self, stream: TcpStream, from: SocketAddr) -> Result<(), LabError> {
        stream
            .set_nonblocking(false)
            .map_err(|error| LabError::caused("connection", error))?;
        let mut link = TcpLink::new(stream)?;
        let busy = link.let_in(&self.token, || self.claim())?;
        self.progress.say(&format!("{from}: a run begins"));
        let ended = serve(&mut link, &LocalStacks::new(stack::open), &self.progress);
        drop(busy);
        self.progress
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

/// Busy until it is dropped.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
