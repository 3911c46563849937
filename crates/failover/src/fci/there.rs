//! An instance on given hosts: agents start, break and end its nodes, whose APIs are reached by TCP.

use std::path::Path;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};
use ashlar_node::client::Client;
use ashlar_node::model::{CreateService, ServiceStatus, VolumeName};
use ashlar_oltp::faults::Fault;
use ashlar_oltp::group::{Held, HostStatus, HostedStatus, hold};
use ashlar_oltp::server::DATABASE;
use ashlar_testbed::hosts::GroupHosts;
use ashlar_testbed::instance::{HostedNodes, HostedNodesPlan, RUN, SERVICE, SeenHost};
use ashlar_testbed::nodes::{DOOR_IP, DOOR_PORT, OWN_MOUNTS};

use super::service::{Place, postgres, verify};
use super::standing::FCI;
use super::{FciPlan, FciSystem, Ground};

/// On the hosts of agents.
pub struct There(HostedNodes);

impl FciSystem<There> {
    /// Makes one on the hosts of three agents.
    ///
    /// # Errors
    /// An agent refuses, or it is not ready in time: what was started is ended again.
    pub fn make_there(
        hosts: &GroupHosts,
        plan: &FciPlan<'_>,
        progress: &Progress,
    ) -> Result<Self, LabError> {
        let nodes = HostedNodesPlan {
            drive_bytes: plan.drive_bytes,
            has_switches: plan.has_switches,
        };
        let system = Self::on(There(hosts.nodes(nodes, progress)?))?;
        system.fill(plan, progress)?;
        Ok(system)
    }
}

impl FciSystem<There> {
    /// Has one on the hosts of three agents until this is to end; its database has an owner of its own.
    ///
    /// # Errors
    /// The directory is taken, an agent refuses, it is not ready in time, or something stays.
    pub fn hold_there(
        hosts: &GroupHosts,
        dir: &Path,
        plan: &FciPlan<'_>,
        progress: &Progress,
        tell: &mut dyn FnMut(&HostedStatus) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        hosts.check_instance(plan.set, &[], Duration::ZERO)?;
        let start = || -> Result<Box<dyn Held>, LabError> {
            let system = Self::make_there(hosts, plan, progress)?;
            system.ground.0.make_owner()?;
            Ok(Box::new(system))
        };
        hold(dir, &start, progress, tell)
    }
}

impl Held for FciSystem<There> {
    fn status(&self, dir: &Path) -> HostedStatus {
        let nodes = &self.ground.0;
        let mut reasons = Vec::new();
        let reason = |service: Option<ServiceStatus>| service.and_then(|one| one.reason);
        let mut instance = self.instance(|service| reasons.push(reason(service)));
        let [a, b, witness] = nodes.seen();
        for (node, seen) in instance.nodes.iter_mut().zip([&a, &b]) {
            // As the database's owner, where others are not for all who may read it.
            node.url.clone_from(&seen.url);
        }
        let url = witness.url.clone();
        let mut parts = instance.nodes.iter().zip(reasons);
        let host = |(host, SeenHost { seen, url }): (String, SeenHost)| {
            let (node, reason) = parts.next().unzip();
            HostStatus {
                host,
                seat: node.map_or("w", |node| node.node.as_str()).to_owned(),
                role: None,
                processes: seen.as_ref().map_or(0, |seen| seen.processes),
                url: node.map(|_| url),
                trouble: match seen {
                    Ok(seen) => seen.trouble().or(reason.flatten()),
                    Err(error) => Some(error.to_string()),
                },
            }
        };
        let hosts = nodes
            .hosts()
            .into_iter()
            .zip([a, b, witness])
            .map(host)
            .collect();
        HostedStatus {
            kind: FCI.into(),
            dir: dir.to_owned(),
            url,
            superuser_url: nodes.url(DATABASE),
            instance: Some(instance),
            hosts,
        }
    }

    fn end(mut self: Box<Self>) -> Result<(), LabError> {
        self.finish()
    }
}

impl Ground for There {
    fn names(&self) -> &[String] {
        &self.0.names
    }

    fn told(&self) -> String {
        format!(
            "PostgreSQL as a service on a replicated volume, two nodes with a member of etcd each, and a witness, etcd's \
             third, with HAProxy as the listener, which asks each node's daemon, on the hosts of agents, which break what \
             they have started ({}). stop-node stops etcd, the daemon and what is between it and the file system, not the \
             database and its guard",
            self.0.hosts().join(", ")
        )
    }

    fn api(&self, node: &str) -> String {
        self.0.api(node).to_string()
    }

    fn client(&self, node: &str) -> Result<Client, LabError> {
        self.0.client(node)
    }

    fn url(&self, database: &str) -> String {
        self.0.url(database)
    }

    fn node_url(&self, node: &str, database: &str) -> String {
        self.0.node_url(node, database)
    }

    fn service(&self, volume: &VolumeName, set: &[String]) -> Result<CreateService, LabError> {
        let mounts = Path::new(OWN_MOUNTS);
        let place = Place {
            programs: self.0.programs.clone(),
            mount: mounts.join(SERVICE),
            run: mounts.join(RUN),
            listen: format!("${DOOR_IP}"),
            port: format!("${DOOR_PORT}"),
            password: Some(HostedNodes::password_file()),
        };
        Ok(postgres(&place, &volume.to_string(), set))
    }

    fn start_listener(&self) -> Result<(), LabError> {
        self.0.start_listener()
    }

    fn inject(&self, fault: Fault, node: &str) -> Result<(), LabError> {
        self.0.break_it(fault, node)
    }

    fn mend(&self, fault: Fault, node: &str) -> Result<(), LabError> {
        self.0.mend(fault, node)
    }

    fn verify(&self, node: &str) -> Result<u64, LabError> {
        verify(&self.0.bare_url(node, "postgres"), Some(self.0.password()))
    }

    fn end(&self) -> Result<(), LabError> {
        self.0.end()
    }
}
