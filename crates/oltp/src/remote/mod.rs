//! Users on other machines: `lab run SCENARIO --client ADDR …` of a scenario of databases, or of a
//! fleet. Readers of a scan are dealt out the same way.
//!
//! ```text
//! coordinator: servers, the database's own counts     agents: users, each number at one of them
//!   listens at --serve-on for one role ───────────────▶ log in, say ready
//!   says when to begin ───────────────────────────────▶ ramp, measure, stop, by the plan
//!   adds up histograms ◀─────────────────────────────── what their users saw, whole
//! ```
//!
//! Which user is where changes nothing of what it does: its transactions follow from its number. A server that agents
//! reach lets in one role, from where agents are, which may read and write the rows of the load's tables and make nothing
//! of its own. Its password is made of the agents' token and of what a run draws. The server has what is enough to check
//! it, and a server that asks for SCRAM does not learn it; one that took the server's place could ask for it in plain text.

mod held;
mod load;
pub(crate) mod ports;
mod role;
mod words;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ashlar_lab::agent::Clients;
use ashlar_lab::result::{Check, ClientNote};
use ashlar_lab::{LabError, Progress};

pub use load::UserLoad;
pub(crate) use words::{
    Dialect, HomeWords, LoadWords, ReadWords, ReaderWords, ServerWords, ShareWords, TurnWords,
    read, text,
};

use crate::database::Database;
use crate::run::Part;
use crate::server::Door;
use ports::Ports;
pub(crate) use role::ROLE;

/// Users are asked to have the database count what they did when measuring begins and when it ends, and it is asked so
/// much later, both times.
pub(crate) const COUNTED: Duration = Duration::from_millis(50);
/// Users go on for so long when measuring has ended: at least until the database was asked, which takes a while.
pub(crate) const GO_ON: Duration = COUNTED.saturating_mul(5);

/// What a run draws, and the password that follows from it and the agents' token.
#[derive(Clone)]
pub struct Secret {
    /// Told to agents.
    pub drawn: String,
    /// Not sent to the other side.
    pub password: String,
}

/// Which agents have a database's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// All, in turn.
    All,
    /// The one of this number, from 0.
    One(usize),
}

impl At {
    /// The users of an agent by its number, of so many; none if it has none by this.
    pub(crate) fn part(self, index: usize, of: usize) -> Option<Part> {
        match self {
            Self::All => Some(Part { index, of }),
            Self::One(own) => (own == index).then_some(Part::ALL),
        }
    }
}

/// Where a server lets agents in, and which of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrance {
    pub(crate) address: SocketAddr,
    pub(crate) speaks: Dialect,
    pub(crate) at: At,
}

/// Agents, and how they reach the servers of a run.
pub struct RemoteUsers<'a> {
    clients: &'a Clients,
    serve_on: IpAddr,
    secret: Secret,
    ports: Mutex<Ports>,
}

impl std::fmt::Debug for RemoteUsers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteUsers")
            .field("serve_on", &self.serve_on)
            .finish_non_exhaustive()
    }
}

impl<'a> RemoteUsers<'a> {
    /// Users of servers that listen at this address of this machine.
    ///
    /// # Errors
    /// A usage error: agents cannot reach that.
    pub fn new(clients: &'a Clients, serve_on: IpAddr, secret: Secret) -> Result<Self, LabError> {
        if serve_on.is_unspecified() || serve_on.is_multicast() {
            return Err(LabError::usage(format!(
                "--serve-on {serve_on}: must be the one address of this machine at which agents reach its servers"
            )));
        }
        Ok(Self {
            clients,
            serve_on,
            secret,
            ports: Mutex::default(),
        })
    }

    /// By which way agents come in to another server: at a port that no other of this run has.
    pub(crate) fn door(&self) -> Result<Door, LabError> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ports.draw(self.serve_on).map_err(|error| {
            let serve_on = self.serve_on;
            LabError::usage(format!(
                "--serve-on {serve_on}: {error}: must be an address of this machine"
            ))
        })?;
        Ok(Door::new(at, self.clients.peers()))
    }

    /// Lets agents in to an empty database, and has those that load it see whether they get in.
    pub(crate) fn admit(
        &self,
        database: &dyn Database,
        entrance: Entrance,
        progress: &Progress,
    ) -> Result<(), LabError> {
        let Entrance {
            address,
            speaks,
            at,
        } = entrance;
        let from = Door::new(address, self.clients.peers()).from;
        for statement in role::sql(speaks, &self.secret.password, &from) {
            database.execute(&statement)?;
        }
        progress.say(&format!("agents are asked whether they reach {address}"));
        let words = text(&self.server(address, speaks))?;
        let count = self.clients.count();
        let words = (0..count).map(|index| at.part(index, count).map(|_| words.clone()));
        let looked = self.clients.look(&words.collect::<Vec<_>>());
        looked.map_err(|error| {
            LabError::caused(
                format!(
                    "--serve-on {}, where agents reach this machine's servers",
                    self.serve_on
                ),
                error,
            )
        })
    }

    pub(crate) fn server(&self, address: SocketAddr, speaks: impl Into<Dialect>) -> ServerWords {
        ServerWords {
            address,
            drawn: self.secret.drawn.clone(),
            speaks: speaks.into(),
        }
    }

    /// Who has the streams of a fleet's database, by its number from 0.
    pub(crate) fn of_database(&self, number: usize) -> At {
        At::One(number % self.clients.count().max(1))
    }

    pub(crate) fn clients(&self) -> &Clients {
        self.clients
    }

    /// What is told of the agents.
    pub(crate) fn told(&self) -> Vec<ClientNote> {
        self.clients.told()
    }

    /// Whether all have reached the end.
    pub(crate) fn check(&self) -> Check {
        let died = self.clients.died();
        Check {
            name: "clients".to_owned(),
            passed: died.is_empty(),
            text: match died.is_empty() {
                true => format!("all {} reached the end", self.clients.count()),
                false => died.join("; "),
            },
        }
    }
}
