//! What a cluster is at.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::network::{Network, Port, Seat};
use super::{MARK, Nodes};

/// What a cluster is at.
#[derive(Debug, Serialize)]
pub struct NodesStatus {
    /// `nodes`: of Ashlar itself, where a group's is none.
    kind: &'static str,
    dir: PathBuf,
    /// What `ashlar node --cluster` was told.
    pub cluster: PathBuf,
    /// `namespaces` or `loopback`.
    pub network: &'static str,
    namespaces: Vec<String>,
    /// What a command begins with that is to reach the portals; empty on loopback.
    pub enter: String,
    pub etcd: EtcdStatus,
    /// Each node.
    pub nodes: Vec<NodeLine>,
}

/// What its etcd is at.
#[derive(Debug, Serialize)]
pub struct EtcdStatus {
    /// Of the first member.
    pub endpoint: String,
    /// Of all that run.
    pub pids: Vec<u32>,
}

/// What a node is at.
#[derive(Debug, Serialize)]
pub struct NodeLine {
    /// What it is called.
    pub name: String,
    /// Where hosts connect.
    pub portal: String,
    replication: String,
    /// The socket of its API.
    pub api: PathBuf,
    /// Of all that runs of it.
    pub pids: Vec<u32>,
    ready: bool,
}

impl fmt::Display for NodesStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pids = |pids: &[u32]| match pids {
            [] => "does not run".to_owned(),
            all => {
                let all: Vec<String> = all.iter().map(u32::to_string).collect();
                format!("pid {}", all.join(" "))
            }
        };
        let (cluster, network) = (self.cluster.display(), self.network);
        writeln!(f, "cluster: {cluster}\nnetwork: {network}")?;
        let EtcdStatus { endpoint, pids: of } = &self.etcd;
        writeln!(f, "etcd: {endpoint}, {}", pids(of))?;
        for node in &self.nodes {
            let (name, portal, api) = (&node.name, &node.portal, node.api.display());
            let runs = pids(&node.pids);
            writeln!(f, "{name}: portal {portal}, api {api}, {runs}")?;
        }
        match &*self.enter {
            "" => Ok(()),
            enter => writeln!(f, "clients: {enter} ashlar …"),
        }
    }
}

impl Nodes {
    /// What it is at.
    pub fn status(&self) -> NodesStatus {
        let (namespaces, enter) = match &self.network {
            Network::Namespaces { namespaces, .. } => {
                let hub = namespaces.hub();
                let enter = format!("nsenter --net={} --", hub.display());
                (namespaces.names(), enter)
            }
            Network::Loopback { .. } | Network::Hosts { .. } => (Vec::new(), String::new()),
        };
        let seats = self.etcd_seats();
        let etcd = self.network.address(&Seat::Etcd(0), Port::Clients);
        NodesStatus {
            kind: MARK.trim_end_matches(".json"),
            dir: self.dir.clone(),
            cluster: self.cluster_file(),
            network: self.network.word(),
            namespaces,
            enter,
            etcd: EtcdStatus {
                endpoint: format!("http://{etcd}"),
                pids: seats.iter().flat_map(|seat| self.processes(seat)).collect(),
            },
            nodes: self.names.iter().map(|name| self.line(name)).collect(),
        }
    }

    fn line(&self, name: &str) -> NodeLine {
        let seat = Seat::node(name);
        let pids = self.processes(&seat);
        NodeLine {
            name: name.into(),
            portal: self.network.address(&seat, Port::Clients).to_string(),
            replication: self.network.address(&seat, Port::Peers).to_string(),
            api: self.api(name),
            ready: !pids.is_empty() && self.is_ready(name),
            pids,
        }
    }
}
