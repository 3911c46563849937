//! Directories below which sockets would have too long paths are refused before anything is started.

use std::path::Path;

use ashlar_lab::{LONGEST_SOCKET, LabError, OwnFolder, check_length};
use ashlar_oltp::faults::Topology;
use ashlar_oltp::group::{self, OWN};

use crate::fci;

/// Where a server that is alone has its socket, in a folder of the lab's own.
const SOCKET: &str = "/a/run/.s.PGSQL.5432";

/// # Errors
/// The path of `--dir` is too long for what one of these makes below it, or that of `--standby` for a group's database.
pub(crate) fn check_lengths(
    topologies: &[Topology],
    dir: &Path,
    standby: Option<&Path>,
) -> Result<(), LabError> {
    let named = |option: &str, error: LabError| LabError::usage(format!("{option} {error}"));
    for topology in topologies {
        let most = match topology {
            Topology::Standalone => LONGEST_SOCKET - SOCKET.len(),
            Topology::Group | Topology::GroupFast => group::LONGEST_DIR - OWN.len() - 1,
            Topology::Fci => fci::LONGEST_DIR,
        };
        let most = most - OwnFolder::LONGEST_NAME - 1;
        check_length(dir, most).map_err(|error| named("--dir", error))?;
    }
    let is_group = |one: &Topology| matches!(one, Topology::Group | Topology::GroupFast);
    match standby.filter(|_| topologies.iter().any(is_group)) {
        None => Ok(()),
        Some(place) => {
            check_length(place, group::LONGEST_PLACE).map_err(|error| named("--standby", error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_of_what_is_asked_for_counts() {
        let long = |bytes: usize| Path::new("/").join("x".repeat(bytes - 1));
        let check = |all: &[Topology], bytes| check_lengths(all, &long(bytes), None);
        let (alone, group, fci) = (Topology::Standalone, Topology::GroupFast, Topology::Fci);
        assert_eq!(check(&[alone], 68), Ok(()));
        assert!(check(&[alone], 69).is_err());
        for other in [group, fci] {
            assert_eq!(check(&[other], 49), Ok(()));
            let why = check(&[alone, other], 50)
                .expect_err("too long")
                .to_string();
            assert!(
                why.starts_with("--dir /xx") && why.contains("may have 49"),
                "{why}"
            );
        }
        let dir = Path::new("/");
        assert_eq!(check_lengths(&[group], dir, Some(&long(82))), Ok(()));
        let why = check_lengths(&[group], dir, Some(&long(83))).expect_err("too long");
        assert!(why.to_string().starts_with("--standby /xx"), "{why}");
        assert_eq!(check_lengths(&[fci], dir, Some(&long(83))), Ok(()));
    }
}
