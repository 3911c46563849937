//! What is shown of a cluster.

use std::path::PathBuf;

use serde::Serialize;

use super::network::{Network, Port, Seat};
use super::{MARK, Nodes};
use crate::exit::Failure;
use crate::output::print;

/// What a cluster is at.
#[derive(Debug, Serialize)]
pub(super) struct NodesStatus {
    /// `nodes`: of Ashlar itself, where a group's is none.
    kind: &'static str,
    dir: PathBuf,
    /// What `ashlar node --cluster` was told.
    cluster: PathBuf,
    /// `namespaces` or `loopback`.
    network: &'static str,
    namespaces: Vec<String>,
    /// What a command begins with that is to reach the portals; empty on loopback.
    enter: String,
    etcd: EtcdStatus,
    nodes: Vec<NodeLine>,
}

#[derive(Debug, Serialize)]
struct EtcdStatus {
    endpoint: String,
    pids: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct NodeLine {
    name: String,
    portal: String,
    replication: String,
    api: PathBuf,
    pids: Vec<u32>,
    ready: bool,
}

impl Nodes {
    fn status(&self) -> NodesStatus {
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

/// Prints what a cluster is at.
pub(in crate::lab) fn show(nodes: &Nodes, json: bool) -> Result<(), Failure> {
    let status = nodes.status();
    if json {
        let text = serde_json::to_string_pretty(&status).map_err(Failure::environment)?;
        return print(&format!("{text}\n"));
    }
    let pids = |pids: &[u32]| match pids {
        [] => "does not run".to_owned(),
        all => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            format!("pid {}", all.join(" "))
        }
    };
    let mut text = format!(
        "cluster: {}\nnetwork: {}\netcd: {}, {}\n",
        status.cluster.display(),
        status.network,
        status.etcd.endpoint,
        pids(&status.etcd.pids)
    );
    for node in &status.nodes {
        text.push_str(&format!(
            "{}: portal {}, api {}, {}\n",
            node.name,
            node.portal,
            node.api.display(),
            pids(&node.pids)
        ));
    }
    if !status.enter.is_empty() {
        text.push_str(&format!("clients: {} ashlar …\n", status.enter));
    }
    print(&text)
}
