//! By which URLs the group's databases are reached, and as whom.

use std::net::SocketAddr;

use ashlar_lab::LabError;
use postgres_protocol::password::scram_sha_256;

use super::words::Sites;
use crate::database::Database;
use crate::group::node::{NodeName, Seat};
use crate::postgres::{Logic, Postgres};
use crate::remote::Secret;
use crate::server::{DATABASE, OWNER};

/// Whose the group's database is. It may do there what it likes, and nothing to the servers and their machines.
pub const USER: &str = "app";

/// What opens a group.
#[derive(Clone)]
pub struct Keys {
    /// Of what keeps it, and of the databases' superuser.
    pub keepers: Secret,
    /// The password of the database's owner.
    pub user: String,
}

/// The ways in.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) sites: &'a Sites,
    pub(super) keys: &'a Keys,
}

impl Entry<'_> {
    /// The group's database, as its owner; without what not every driver knows.
    pub(super) fn user_url(&self) -> String {
        self.as_user(self.sites.of(Seat::Hub).listener)
    }

    /// The same past the listener.
    pub(super) fn user_node_url(&self, node: NodeName) -> String {
        self.as_user(self.sites.of(node.into()).database)
    }

    fn as_user(&self, at: SocketAddr) -> String {
        format!("postgres://{USER}:{}@{at}/{DATABASE}", self.keys.user)
    }

    /// The same as the superuser, through the listener.
    pub(super) fn superuser_url(&self) -> String {
        self.as_superuser(self.sites.of(Seat::Hub).listener, DATABASE)
    }

    /// A database through the listener, as the superuser, for ourselves.
    pub(super) fn url(&self, database: &str) -> String {
        let at = self.sites.of(Seat::Hub).listener;
        format!("{}?connect_timeout=2", self.as_superuser(at, database))
    }

    /// The same past the listener.
    pub(super) fn node_url(&self, node: NodeName, database: &str) -> String {
        let at = self.sites.of(node.into()).database;
        format!("{}?connect_timeout=1", self.as_superuser(at, database))
    }

    fn as_superuser(&self, at: SocketAddr, database: &str) -> String {
        let password = &self.keys.keepers.password;
        format!("postgres://{OWNER}:{password}@{at}/{database}")
    }

    /// Makes the group's database and its owner.
    pub(super) fn make_database(&self) -> Result<(), LabError> {
        let postgres = Postgres::new(&self.url("postgres"), Logic::Functions)?;
        make_user(&postgres, &self.keys.user)?;
        postgres.execute(&format!("CREATE DATABASE {DATABASE} OWNER {USER}"))
    }
}

/// Makes [`USER`], who may nothing yet.
///
/// # Errors
/// The server refuses.
pub fn make_user(postgres: &Postgres, password: &str) -> Result<(), LabError> {
    // A statement may be in the server's log.
    let verifier = scram_sha_256(password.as_bytes());
    postgres.execute(&format!("CREATE ROLE {USER} LOGIN PASSWORD '{verifier}'"))
}
