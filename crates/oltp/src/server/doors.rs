//! By which ways clients come in to a private PostgreSQL: its socket, which is its folder's; and, if clients on other
//! machines are to reach it, an address, by which one role alone gets in, to the load's database, with a password.

use std::path::Path;

use ashlar_lab::LabError;

use super::{DATABASE, Room};
use crate::remote::ROLE;

/// PostgreSQL's own; a server that listens has one of its own, so that several can.
pub(super) const USUAL_PORT: u16 = 5432;

/// The port, of which a socket has the number as well.
pub(super) fn port(room: &Room) -> u16 {
    room.listens.map_or(USUAL_PORT, |at| at.port())
}

/// A client whose machine has gone holds its locks no longer than this.
const KEEP_ALIVE: &str =
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3";

/// What a server is started with.
pub(super) fn options(room: &Room) -> String {
    match room.listens {
        None => "-c listen_addresses=''".to_owned(),
        Some(at) => {
            let (ip, port) = (at.ip(), at.port());
            format!("-c listen_addresses='{ip}' -c port={port} {KEEP_ALIVE}")
        }
    }
}

/// Writes who gets in, if it listens: what was put back may say something else.
pub(super) fn open(room: &Room) -> Result<(), LabError> {
    let Some(at) = room.listens else {
        return Ok(());
    };
    let rules = room.data().join("pg_hba.conf");
    write(&rules, &rules_of(at.is_ipv4()))?;
    room.give(&rules)
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(|e| LabError::caused(path.display(), e))
}

fn rules_of(is_ipv4: bool) -> String {
    let all = if is_ipv4 { "0.0.0.0/0" } else { "::/0" };
    format!(
        "local all all trust\nlocal replication all trust\nhost {DATABASE} {ROLE} {all} scram-sha-256\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_an_address_one_role_comes_in_with_a_password() {
        for is_ipv4 in [true, false] {
            let rules = rules_of(is_ipv4);
            let by_address = rules.lines().filter(|line| !line.starts_with("local "));
            let by_address: Vec<&str> = by_address.collect();
            let [rule] = by_address[..] else {
                panic!("{rules}");
            };
            assert!(rule.starts_with("host tpcc ashlar_client "), "{rule}");
            assert!(rule.ends_with(" scram-sha-256"), "{rule}");
        }
    }
}
