//! What a cluster is at.

use std::path::PathBuf;

use serde::Serialize;

use super::network::{Network, Port, Seat};
use super::{MARK, Nodes};

/// What a cluster is at.
#[derive(Debug, Serialize)]
pub(in crate::lab) struct NodesStatus {
    /// `nodes`: of Ashlar itself, where a group's is none.
    kind: &'static str,
    dir: PathBuf,
    /// What `ashlar node --cluster` was told.
    pub(in crate::lab) cluster: PathBuf,
    /// `namespaces` or `loopback`.
    pub(in crate::lab) network: &'static str,
    namespaces: Vec<String>,
    /// What a command begins with that is to reach the portals; empty on loopback.
    pub(in crate::lab) enter: String,
    pub(in crate::lab) etcd: EtcdStatus,
    pub(in crate::lab) nodes: Vec<NodeLine>,
}

#[derive(Debug, Serialize)]
pub(in crate::lab) struct EtcdStatus {
    pub(in crate::lab) endpoint: String,
    pub(in crate::lab) pids: Vec<u32>,
}

#[derive(Debug, Serialize)]
pub(in crate::lab) struct NodeLine {
    pub(in crate::lab) name: String,
    pub(in crate::lab) portal: String,
    replication: String,
    pub(in crate::lab) api: PathBuf,
    pub(in crate::lab) pids: Vec<u32>,
    ready: bool,
}

impl Nodes {
    /// What it is at.
    pub(in crate::lab) fn status(&self) -> NodesStatus {
        let (namespaces, enter) = match &self.network {
            Network::Namespaces { namespaces, .. } => {
                let hub = namespaces.hub();
                let enter = format!("nsenter --net={} --", hub.display());
                (namespaces.names(), enter)
            }
            Network::Loopback { .. } => (Vec::new(), String::new()),
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
