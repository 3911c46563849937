//! What a database is kept up by, for `lab failover`: made here, or on the hosts of agents.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ashlar_lab::{Agents, LabError, Progress};
use ashlar_oltp::faults::{Fault, Make, StandaloneSystem, System, Topology};
use ashlar_oltp::group::{GroupPlan, HostedPlan};
use ashlar_testbed::hosts::GroupHosts;

use crate::drives::{check_standby, group_for};
use crate::fci::{FciPlan, FciSystem};
use crate::length::check_lengths;

/// What systems are made of.
pub struct Systems {
    /// Where what is made here has its folders.
    pub dir: PathBuf,
    /// Where a group made here has its standby, if not there.
    pub standby: Option<PathBuf>,
    /// PostgreSQL's settings, `name=value`.
    pub set: Vec<String>,
    /// What is to be done to them.
    pub faults: Vec<Fault>,
    /// How long some of that lasts.
    pub hold: Duration,
    /// Whose hosts a group is on; this machine if there are none.
    pub hosts: Agents,
}

impl Systems {
    fn is_hosted(&self) -> bool {
        !self.hosts.addresses.is_empty()
    }

    /// # Errors
    /// A usage error: these topologies cannot be made of it. No host has been asked.
    pub fn check(&self, topologies: &[Topology]) -> Result<(), LabError> {
        let standby = self.standby.as_deref();
        if !self.is_hosted() {
            check_standby(&self.faults, standby)?;
            return check_lengths(topologies, &self.dir, standby);
        }
        let is_group = |one: &&Topology| !matches!(one, Topology::Group | Topology::GroupFast);
        if let Some(other) = topologies.iter().find(is_group) {
            return Err(LabError::usage(format!(
                "--host: --topology {other} is made on this machine; only a group is made on given hosts"
            )));
        }
        match standby {
            None => Ok(()),
            Some(_) => Err(LabError::usage(
                "--standby: each agent has its own place (`lab agent --dir`)",
            )),
        }
    }

    /// One for each topology.
    ///
    /// # Errors
    /// The hosts cannot be reached, or could not do what is to be done to them.
    pub fn of<'a>(
        &'a self,
        topologies: &[Topology],
        progress: &'a Progress,
    ) -> Result<Vec<(Topology, Make<'a>)>, LabError> {
        let hosts = match self.is_hosted() {
            true => Some(Rc::new(GroupHosts::greet(&self.hosts)?)),
            false => None,
        };
        let each = topologies.iter().map(|&topology| {
            let say = move || progress.say(&format!("{topology} is made"));
            let make: Make<'a> = match &hosts {
                Some(hosts) => {
                    let (hosts, plan) = (Rc::clone(hosts), self.hosted(topology));
                    hosts.check((&plan, &self.faults), self.hold)?;
                    Box::new(move || {
                        say();
                        Ok(Box::new(hosts.system(&plan, progress)?))
                    })
                }
                None => Box::new(move || {
                    say();
                    self.make(topology, progress)
                }),
            };
            Ok((topology, make))
        });
        each.collect()
    }

    fn hosted(&self, topology: Topology) -> HostedPlan {
        HostedPlan {
            tuning: topology.tuning(),
            set: self.set.clone(),
        }
    }

    fn make(&self, topology: Topology, progress: &Progress) -> Result<Box<dyn System>, LabError> {
        Ok(match topology {
            Topology::Standalone => Box::new(StandaloneSystem::make(&self.dir, &self.set)?),
            Topology::Group | Topology::GroupFast => {
                let plan = GroupPlan {
                    place_a: None,
                    place_b: self.standby.clone(),
                    tuning: topology.tuning(),
                    set: self.set.clone(),
                    loopback: false,
                };
                Box::new(group_for(&self.faults, (&self.dir, &plan), progress)?)
            }
            Topology::Fci => {
                let plan = FciPlan::of(&self.faults, &self.set);
                Box::new(FciSystem::make(&self.dir, &plan, progress)?)
            }
        })
    }
}
