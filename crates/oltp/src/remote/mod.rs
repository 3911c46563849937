//! Users on other machines: `lab run SCENARIO --client ADDR …` of a scenario of databases.
//!
//! ```text
//! coordinator: servers, the database's own counts     agents: users, each number at one of them
//!   listens at --serve-on for one role ───────────────▶ log in, say ready
//!   says when to begin ───────────────────────────────▶ ramp, measure, stop, by the plan
//!   adds up histograms ◀─────────────────────────────── what their users saw, whole
//! ```
//!
//! Which user is where changes nothing of what it does: its transactions follow from its number. A server that agents
//! reach lets in one role, which may read and write the rows of the load's tables and nothing else, and only with a
//! password: it is made of the agents' token and of what a run draws, so it never travels.

mod load;
mod words;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use ashlar_lab::agent::Clients;
use ashlar_lab::result::{Check, ClientNote};
use ashlar_lab::{LabError, Progress};

pub use load::UserLoad;
pub(crate) use words::{HomeWords, ServerWords, ShareWords, read, text};

use crate::database::Database;
use crate::postgres::Logic;

/// Who agents log in as.
pub(crate) const ROLE: &str = "ashlar_client";

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
    /// Not told to anyone but the servers.
    pub password: String,
}

/// Agents, and how they reach the servers of a run.
pub struct RemoteUsers<'a> {
    clients: &'a Clients,
    serve_on: IpAddr,
    secret: Secret,
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
        })
    }

    /// Where another server can listen.
    pub(crate) fn free_address(&self) -> Result<SocketAddr, LabError> {
        let bound = TcpListener::bind((self.serve_on, 0)).and_then(|found| found.local_addr());
        bound.map_err(|error| {
            let serve_on = self.serve_on;
            LabError::usage(format!(
                "--serve-on {serve_on}: {error}: must be an address of this machine"
            ))
        })
    }

    /// Lets agents in to an empty database whose server listens there, and has each see whether it gets in.
    pub(crate) fn admit(
        &self,
        database: &dyn Database,
        address: SocketAddr,
        progress: &Progress,
    ) -> Result<(), LabError> {
        let password = &self.secret.password;
        // Of tables that are made later, too.
        database.execute(&format!(
            "SET password_encryption = 'scram-sha-256'; CREATE ROLE {ROLE} LOGIN PASSWORD '{password}'; \
             ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {ROLE}"
        ))?;
        progress.say(&format!("agents are asked whether they reach {address}"));
        let looked = self
            .clients
            .look(&text(&self.server(address, Logic::Functions))?);
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

    pub(crate) fn server(&self, address: SocketAddr, logic: Logic) -> ServerWords {
        ServerWords {
            address,
            drawn: self.secret.drawn.clone(),
            is_client_sql: logic == Logic::Client,
        }
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
