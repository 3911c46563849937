//! Hosts of agents that have a group of databases, or the nodes of an instance.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::agent::Clients;
use ashlar_lab::{Agents, LabError, Progress};
use ashlar_oltp::faults::Fault;
use ashlar_oltp::group::{HostedPlan, HostedStatus, HostedSystem, Keys, check_hosted, hold_hosted};
use uuid::Uuid;

use super::instance::{self, HostedNodes, HostedNodesPlan};
use super::link::{draw_secret, greet_as};

/// Hosts whose agents have let us in.
pub struct GroupHosts {
    agents: Agents,
    clients: Arc<Clients>,
}

impl GroupHosts {
    /// Connects to the agents.
    ///
    /// # Errors
    /// One cannot be reached, does not let us in, or is busy.
    pub fn greet(agents: &Agents) -> Result<Self, LabError> {
        Ok(Self {
            agents: agents.clone(),
            clients: Arc::new(greet_as("host", agents)?),
        })
    }

    /// Whether a group could be had there, and these faults done to it.
    ///
    /// # Errors
    /// As [`check_hosted`]'s.
    pub fn check(
        &self,
        (plan, faults): (&HostedPlan, &[Fault]),
        hold: Duration,
    ) -> Result<(), LabError> {
        check_hosted(&self.clients, (plan, faults), hold)
    }

    /// A group that is to be broken.
    ///
    /// # Errors
    /// As [`HostedSystem::make`]'s.
    pub fn system(&self, plan: &HostedPlan, progress: &Progress) -> Result<HostedSystem, LabError> {
        HostedSystem::make(&self.clients, (plan, &self.draw_keys()?), progress)
    }

    /// Whether an instance could be had there, and these faults done to it.
    ///
    /// # Errors
    /// A usage error, or that of a host that cannot.
    pub fn check_instance(
        &self,
        set: &[String],
        faults: &[Fault],
        hold: Duration,
    ) -> Result<(), LabError> {
        instance::check(&self.clients, set, faults, hold)
    }

    /// The nodes of an instance.
    ///
    /// # Errors
    /// A host refuses, or does not get it done: what was started is ended again.
    pub fn nodes(
        &self,
        plan: HostedNodesPlan,
        progress: &Progress,
    ) -> Result<HostedNodes, LabError> {
        let secret = draw_secret(&self.agents)?;
        HostedNodes::start(&self.clients, plan, secret, progress)
    }

    /// Has a group, until this is to end.
    ///
    /// # Errors
    /// As [`hold_hosted`]'s.
    pub fn hold(
        &self,
        (dir, plan): (&Path, &HostedPlan),
        progress: &Progress,
        tell: &mut dyn FnMut(&HostedStatus) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let keys = self.draw_keys()?;
        hold_hosted(&self.clients, (dir, plan, &keys), progress, tell)
    }

    fn draw_keys(&self) -> Result<Keys, LabError> {
        Ok(Keys {
            keepers: draw_secret(&self.agents)?,
            user: Uuid::new_v4().simple().to_string(),
        })
    }
}
