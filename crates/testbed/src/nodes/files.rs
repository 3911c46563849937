//! What a cluster's directory holds before anything runs.

use std::fs::{DirBuilder, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ashlar_lab::{LabError, check_length};
use ashlar_oltp::group::Needed;
use ashlar_oltp::namespaces::Namespaces;
use ashlar_oltp::processes;
use uuid::Uuid;

use super::network::{MOST_ETCD, Network, ON_HOSTS, Port, Seat, Site};
use super::{DRIVES, LONGEST_DIR, MARK, Nodes, NodesPlan};

/// In the directory of a part: what its node finds at [`OWN_MOUNTS`](super::OWN_MOUNTS).
pub(crate) const MOUNTS: &str = "mounts";

/// What a host has of nodes over three of them.
pub(crate) struct Part<'a> {
    pub(crate) here: usize,
    pub(crate) sites: [Site; 3],
    pub(crate) drive_bytes: u64,
    pub(crate) has_switches: bool,
    pub(crate) secret: &'a str,
}

impl Nodes {
    pub(super) fn make(dir: &Path, plan: &NodesPlan) -> Result<Self, LabError> {
        check_length(dir, LONGEST_DIR)?;
        Needed::ETCD.check()?;
        let dir = claim(dir)?;
        let letters = ('a'..).take(plan.nodes);
        let names: Vec<String> = letters.map(String::from).collect();
        let is_root = rustix::process::getuid().is_root();
        let network = match is_root && !plan.loopback {
            true => Network::namespaces(Namespaces::prefix_of(&dir), &names, plan.etcd),
            false => Network::loopback(&names, plan.etcd)?,
        };
        let nodes = Self {
            dir,
            names,
            network,
            drives: plan.drives,
            drive_bytes: plan.drive_bytes,
            etcd: plan.etcd,
            has_switches: plan.has_switches,
        };
        // One token for all: a load balancer asks each node with the same.
        let (key, token) = (secret(), secret());
        let made = nodes.keep_and_bring();
        let made = made.and_then(|()| nodes.fill(&key, &token));
        if let Err(error) = made {
            nodes.down()?;
            return Err(error);
        }
        Ok(nodes)
    }

    /// Of nodes over three hosts, what one of these has, in a new directory. Who has the secret is a peer and an operator.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn part(dir: &Path, part: &Part<'_>) -> Result<Self, LabError> {
        let Part { here, sites, .. } = *part;
        let mounts = dir.join(MOUNTS);
        let nodes = Self {
            dir: dir.to_owned(),
            names: ON_HOSTS.map(str::to_owned).into(),
            network: Network::Hosts {
                here,
                sites: Box::new(sites),
                mounts,
            },
            drives: DRIVES,
            drive_bytes: part.drive_bytes,
            etcd: MOST_ETCD,
            has_switches: part.has_switches,
        };
        nodes.fill(part.secret, part.secret)?;
        Ok(nodes)
    }

    /// Names of its nodes that are on this machine.
    pub(crate) fn names_here(&self) -> impl Iterator<Item = &String> {
        let is_here = |name: &&String| self.network.has(&Seat::node(name));
        self.names.iter().filter(is_here)
    }

    /// The mark first, so that what is made from here on is found again.
    fn keep_and_bring(&self) -> Result<(), LabError> {
        self.keep()?;
        self.network.bring()
    }

    fn keep(&self) -> Result<(), LabError> {
        let mark = self.dir.join(MARK);
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| LabError::caused(mark.display(), error))?;
        ashlar_lab::write_whole(&mark, &text)
    }

    /// With the key of peers, and the token of callers.
    fn fill(&self, key: &str, token: &str) -> Result<(), LabError> {
        for folder in self.folders() {
            std::fs::create_dir_all(&folder)
                .map_err(|error| LabError::caused(folder.display(), error))?;
            // etcd asks for it.
            std::fs::set_permissions(&folder, Permissions::from_mode(0o700))
                .map_err(|error| LabError::caused(folder.display(), error))?;
        }
        for name in self.names_here() {
            for number in 0..self.drives {
                let path = self.drive(name, number);
                let made = File::create_new(&path).and_then(|file| file.set_len(self.drive_bytes));
                made.map_err(|error| LabError::caused(path.display(), error))?;
            }
        }
        write_secret(&self.key_file(), key)?;
        for name in self.names_here() {
            let state = self.state(name);
            let made = DirBuilder::new().mode(0o700).create(&state);
            made.map_err(|error| LabError::caused(state.display(), error))?;
            write_secret(&self.token(name), token)?;
        }
        ashlar_lab::write_whole(&self.cluster_file(), &self.cluster_text())
    }

    /// What a caller of a node's API over TCP needs.
    pub fn token(&self, name: &str) -> PathBuf {
        self.state(name).join("api.token")
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.dir.join("key")
    }

    /// What all nodes are told.
    pub fn cluster_file(&self) -> PathBuf {
        self.dir.join("cluster.toml")
    }

    fn cluster_text(&self) -> String {
        let member = |seat: &Seat| {
            let address = self.network.address(seat, Port::Clients);
            format!("\"http://{address}\"")
        };
        let members: Vec<String> = self.etcd_seats().iter().map(member).collect();
        let quorum = members.join(", ");
        let mut text = format!("name = \"lab\"\nkey_file = \"key\"\nquorum = [{quorum}]\n");
        for name in &self.names {
            let seat = Seat::node(name);
            let peers = self.network.address(&seat, Port::Peers);
            let portal = self.network.address(&seat, Port::Clients);
            text.push_str(&format!(
                "\n[[node]]\nname = \"{name}\"\nreplication = \"{peers}\"\nportal = \"{portal}\"\n"
            ));
        }
        text
    }
}

fn secret() -> String {
    let parts = [Uuid::new_v4(), Uuid::new_v4()].map(|part| part.simple().to_string());
    parts.concat()
}

fn write_secret(path: &Path, secret: &str) -> Result<(), LabError> {
    let open = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let written = open.and_then(|mut file| writeln!(file, "{secret}"));
    written.map_err(|error| LabError::caused(path.display(), error))
}

/// An empty directory becomes a cluster's; what a cluster has left there whose programs are all gone is cleared away
/// first.
fn claim(dir: &Path) -> Result<PathBuf, LabError> {
    let caused = |error| LabError::caused(dir.display(), error);
    std::fs::create_dir_all(dir).map_err(caused)?;
    let dir = std::fs::canonicalize(dir).map_err(caused)?;
    if let Ok(nodes) = Nodes::at(&dir) {
        if !processes::working_in(&nodes.folders()).is_empty() {
            let dir = dir.display();
            return Err(LabError::usage(format!(
                "{dir}: a cluster runs there already: `ashlar lab cluster down --dir {dir}` ends it"
            )));
        }
        nodes.down()?;
        std::fs::create_dir_all(&dir).map_err(caused)?;
    }
    if let Some(other) = std::fs::read_dir(&dir).map_err(caused)?.next() {
        let other = other.map_err(caused)?.file_name();
        return Err(LabError::usage(format!(
            "{} holds other things ({}): a cluster takes an empty directory",
            dir.display(),
            other.display()
        )));
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is killed while it makes a network leaves what `down` finds.
    #[test]
    fn a_network_is_known_from_the_directory_before_it_is_made() {
        let id = Uuid::new_v4().simple().to_string();
        let dir = std::env::temp_dir().join(format!("ashlar-nodes-{id}"));
        std::fs::create_dir(&dir).expect("a directory");
        let names = ["a".to_owned()];
        let nodes = Nodes {
            network: Network::namespaces(Namespaces::prefix_of(&dir), &names, 1),
            dir: dir.clone(),
            names: names.into(),
            drives: 0,
            drive_bytes: 0,
            etcd: 1,
            has_switches: false,
        };
        assert!(nodes.network.names().is_empty(), "nothing before the mark");
        let brought = nodes.keep_and_bring();
        let found = Nodes::at(&dir).expect("a mark");
        if rustix::process::getuid().is_root() {
            brought.expect("namespaces");
            assert_eq!(found.network.names().len(), 3, "a, etcd, and the hub");
        }
        found.down().expect("all goes");
        assert!(nodes.network.names().is_empty() && !dir.exists());
    }
}
