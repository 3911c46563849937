//! Where load comes from: threads of this process, or agents on other machines.

use super::setup::Fill;
use super::threads::{Outcome, Threads};
use crate::agent::{Clients, Load};
use crate::result::{Check, ClientNote};
use crate::workload::Job;
use crate::{LabError, PrepareOptions, Prepared, Progress, Stacks, SweepPlan};

pub(super) struct Generator<'a> {
    stacks: &'a dyn Stacks,
    clients: Option<&'a Clients>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(stacks: &'a dyn Stacks, clients: Option<&'a Clients>) -> Self {
        Self { stacks, clients }
    }

    /// Refuses what clients cannot do.
    pub(super) fn check(&self, plan: &SweepPlan) -> Result<(), LabError> {
        match self.clients {
            Some(_) if plan.verify => Err(LabError::usage(
                "--verify with --client: what a block must hold is known to one process only; verify without clients",
            )),
            _ => Ok(()),
        }
    }

    /// Whether this process makes the load.
    pub(super) const fn is_here(&self) -> bool {
        self.clients.is_none()
    }

    /// This process's own.
    pub(super) fn stacks(&self) -> &'a dyn Stacks {
        self.stacks
    }

    pub(super) fn prepare(
        &self,
        spec: &str,
        options: &PrepareOptions,
    ) -> Result<Prepared, LabError> {
        match self.clients {
            Some(clients) => clients.prepare(spec, options),
            None => self.stacks.prepare(spec, options),
        }
    }

    pub(super) fn fill(&self, what: &Fill, progress: &Progress) -> Result<(), LabError> {
        match self.clients {
            Some(clients) => clients.fill(what, progress),
            None => what.carry_out(self.stacks, progress),
        }
    }

    /// A turn's load: by the threads, or, of what it is about, by the clients.
    pub(super) fn run(
        &self,
        threads: &Threads<'_>,
        jobs: &[Job],
        progress: &Progress,
    ) -> Result<Outcome, LabError> {
        let Some(clients) = self.clients else {
            return threads.run(jobs);
        };
        let load = Load {
            spec: threads.spec,
            size: threads.size,
            pin: !threads.cpus.is_empty(),
            jobs,
        };
        clients.run(&load, progress)
    }

    /// Clients that died, and how.
    pub(super) fn dead(&self) -> Vec<String> {
        self.clients.map_or_else(Vec::new, Clients::dead)
    }

    pub(super) fn notes(&self) -> Vec<ClientNote> {
        self.clients.map_or_else(Vec::new, Clients::notes)
    }

    /// Whether all clients have reached the end.
    pub(super) fn check_of_clients(&self) -> Option<Check> {
        let many = self.clients?.count();
        let dead = self.dead();
        Some(Check {
            name: "clients".to_owned(),
            passed: dead.is_empty(),
            text: match dead.is_empty() {
                true => format!("all {many} reached the end"),
                false => dead.join("; "),
            },
        })
    }
}
