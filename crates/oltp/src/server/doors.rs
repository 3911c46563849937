//! By which ways clients come in to a private PostgreSQL: its socket, which is its folder's; and, if clients on other
//! machines are to reach it, an address, by which one role alone gets in from where those are, to the load's database,
//! with a password.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use super::{DATABASE, Room};
use crate::remote::ROLE;

/// By which clients on other machines come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Door {
    /// Where it listens besides its socket.
    pub(crate) at: SocketAddr,
    /// Who may come in: from these addresses.
    pub(crate) from: Vec<IpAddr>,
}

impl Door {
    /// For clients at these addresses. One on the server's machine may come from the address that it goes to.
    pub(crate) fn new(at: SocketAddr, clients: Vec<IpAddr>) -> Self {
        let mut from = clients;
        from.push(at.ip());
        from.sort_unstable();
        from.dedup();
        Self { at, from }
    }

    /// Open, in this process's network, for a program that may be in another: as its standard input.
    pub(crate) fn opened(&self) -> Result<Stdio, LabError> {
        let listener = TcpListener::bind(self.at);
        let listener = listener.map_err(|error| LabError::caused(self.at, error))?;
        Ok(OwnedFd::from(listener).into())
    }

    fn rules(&self) -> String {
        let mut rules = "local all all trust\nlocal replication all trust\n".to_owned();
        for ip in &self.from {
            let bits = if ip.is_ipv4() { 32 } else { 128 };
            rules.push_str(&format!(
                "host {DATABASE} {ROLE} {ip}/{bits} scram-sha-256\n"
            ));
        }
        rules
    }
}

/// PostgreSQL's own; a server that listens has one of its own, so that several can.
pub(super) const USUAL_PORT: u16 = 5432;

/// The port, of which a socket has the number as well.
pub(super) fn port(room: &Room) -> u16 {
    room.door.as_ref().map_or(USUAL_PORT, |door| door.at.port())
}

/// A client whose machine has gone holds its locks no longer than this.
const KEEP_ALIVE: &str =
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3";

/// What a server is started with.
pub(super) fn options(room: &Room) -> String {
    match &room.door {
        None => "-c listen_addresses=''".to_owned(),
        Some(door) => {
            let (ip, port) = (door.at.ip(), door.at.port());
            format!("-c listen_addresses='{ip}' -c port={port} {KEEP_ALIVE}")
        }
    }
}

/// Writes who gets in, if it listens: what was put back may say something else.
pub(super) fn open(room: &Room) -> Result<(), LabError> {
    let Some(door) = &room.door else {
        return Ok(());
    };
    let rules = room.data().join("pg_hba.conf");
    write(&rules, &door.rules())?;
    room.give(&rules)
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(|e| LabError::caused(path.display(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_an_address_one_role_comes_in_from_where_agents_are_with_a_password() {
        let at = "10.0.0.9:10001".parse().expect("an address");
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let door = Door::new(at, vec![ip("10.0.0.1"), ip("fd00::2"), ip("10.0.0.1")]);
        let rules = door.rules();
        let by_address: Vec<&str> = rules
            .lines()
            .filter(|line| !line.starts_with("local "))
            .collect();
        let wanted = ["10.0.0.1/32", "10.0.0.9/32", "fd00::2/128"];
        let wanted = wanted.map(|from| format!("host tpcc ashlar_client {from} scram-sha-256"));
        assert_eq!(by_address, wanted);
    }
}
