use std::net::SocketAddr;
use std::path::Path;

use ashlar_replica::NodeId;
use uuid::Uuid;

use super::document::EtcdPlace;
use super::home::{File, FileEtcd, FileNode, LIES_IN};
use crate::config::{NodeConfig, check_name, endpoints};
use crate::problem::Problem;
use crate::remembered::Remembered;
use crate::trust::{Authority, Place, Subject, identity_file, key_pair, write_private};

/// A cluster that is to begin, with its first node.
#[derive(Clone, Debug)]
pub struct Founding {
    /// The cluster's name.
    pub cluster: String,
    /// The first node's.
    pub node: String,
    /// Where it listens for its peers.
    pub replication: SocketAddr,
    /// Where hosts connect.
    pub portal: SocketAddr,
    /// The client addresses of an etcd that is there; `None`: nodes bring its members with them.
    pub quorum: Option<Vec<String>>,
    /// Where the own member of etcd listens for clients; for its peers a port higher.
    pub etcd: SocketAddr,
}

pub(super) fn etcd_place(clients: SocketAddr) -> Result<EtcdPlace, Problem> {
    let port = clients.port().checked_add(1).filter(|port| *port > 1);
    let port = port.ok_or_else(|| Problem::usage(format!("etcd at {clients}: no such port")))?;
    Ok(EtcdPlace {
        clients,
        peers: SocketAddr::new(clients.ip(), port),
    })
}

/// Begins a cluster, in a node's directory: nothing is started.
///
/// # Errors
/// Usage: a name or an address makes no sense. Conflict: the directory has a cluster already.
pub fn found(dir: &Path, plan: &Founding) -> Result<Uuid, Problem> {
    check_name("cluster", &plan.cluster).map_err(Problem::usage)?;
    check_name("node", &plan.node).map_err(Problem::usage)?;
    check_addresses(&[plan.replication, plan.portal, plan.etcd])?;
    let folder = fresh(dir)?;
    let etcd = match plan.quorum {
        Some(_) => None,
        None => Some(etcd_place(plan.etcd)?),
    };
    let quorum = match (&plan.quorum, etcd) {
        (Some(texts), _) => {
            let endpoints = endpoints(texts).map_err(Problem::usage)?;
            endpoints.iter().map(ToString::to_string).collect()
        }
        (None, Some(place)) => vec![format!("https://{}", place.clients)],
        (None, None) => Vec::new(),
    };
    let id = Uuid::new_v4();
    let node = NodeConfig {
        id: NodeId(1),
        name: plan.node.clone(),
        replication: plan.replication,
        portal: Some(plan.portal),
    };
    let subject = Subject {
        cluster: id,
        node: node.id,
        name: node.name.clone(),
    };
    let authority = Authority::new(id)?;
    let key = key_pair()?;
    let place = Place::of(&[plan.replication.ip(), plan.etcd.ip()]);
    let certificate = authority.sign(&subject, &place, &key)?;
    let write = |name: &str, text: &str| write_private(&folder.join(name), text);
    write(identity_file::AUTHORITY, authority.certificate())?;
    write(identity_file::AUTHORITY_KEY, authority.key())?;
    write(identity_file::CERTIFICATE, &certificate)?;
    write(identity_file::KEY, &key.serialize_pem())?;
    let file = File {
        name: plan.cluster.clone(),
        id,
        this: plan.node.clone(),
        is_witness: false,
        quorum,
        etcd: etcd.map(|place| FileEtcd {
            clients: place.clients,
            peers: place.peers,
            first: format!("{}=https://{}", plan.node, place.peers),
            is_first: true,
        }),
        nodes: vec![FileNode::from(&node)],
    };
    // Last: without it there is no cluster.
    file.write(&folder)?;
    Ok(id)
}

pub(super) fn check_addresses(addresses: &[SocketAddr]) -> Result<(), Problem> {
    for (at, address) in addresses.iter().enumerate() {
        if address.ip().is_unspecified() || address.port() == 0 {
            return Err(Problem::usage(format!(
                "{address}: others cannot connect there; name an address of this machine and a port"
            )));
        }
        if addresses[..at].contains(address) {
            return Err(Problem::usage(format!(
                "{address} is named for two purposes"
            )));
        }
    }
    Ok(())
}

/// The folder of a directory that belongs to no cluster yet.
pub(super) fn fresh(dir: &Path) -> Result<std::path::PathBuf, Problem> {
    let dir = std::path::absolute(dir)
        .map_err(|error| Problem::environment(format!("{}: {error}", dir.display())))?;
    let folder = dir.join(LIES_IN);
    if File::path(&folder).exists() {
        let file = File::read(&folder)?;
        return Err(Problem::conflict(format!(
            "{} is node {} of cluster {} already: `ashlar cluster leave` first, or take another directory",
            dir.display(),
            file.this,
            file.name
        )));
    }
    match Remembered::read(&dir)?.cluster {
        Some(cluster) => Err(another(&dir, cluster)),
        None => Ok(folder),
    }
}

/// The folder of a directory that is this node's already, or belongs to no cluster yet.
pub(super) fn own(dir: &Path, cluster: Uuid, name: &str) -> Result<std::path::PathBuf, Problem> {
    let dir = std::path::absolute(dir)
        .map_err(|error| Problem::environment(format!("{}: {error}", dir.display())))?;
    let folder = dir.join(LIES_IN);
    if File::path(&folder).exists() {
        let file = File::read(&folder)?;
        if file.id != cluster || file.this != name {
            return Err(Problem::conflict(format!(
                "{} is {} of cluster {}, not {name}: take its own directory, or a new one",
                dir.display(),
                file.this,
                file.name
            )));
        }
    }
    match Remembered::read(&dir)?.cluster {
        Some(other) if other != cluster => Err(another(&dir, other)),
        _ => Ok(folder),
    }
}

fn another(dir: &Path, cluster: Uuid) -> Problem {
    Problem::conflict(format!(
        "{} was a node of cluster {cluster}, and its pools may hold copies of that cluster's volumes: start it there, \
         or take another directory",
        dir.display()
    ))
}
