//! `lab failover --topology … --fault …`, as it is asked for and goes on.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ashlar_lab::{Agents, Journal, LabError, Progress, ResultFile};
use ashlar_oltp::faults::{
    FaultsPlan, FaultsResult, Make, Means, StandaloneSystem, System, Topology, Wanted, faults,
};
use ashlar_oltp::group::{GroupPlan, HostedPlan, NodeName, check_place};
use ashlar_testbed::hosts::GroupHosts;
use serde::{Deserialize, Serialize};

use crate::drives::{self, check_standby, group_for};
use crate::fci::{FciPlan, FciSystem};
use crate::length::check_lengths;

/// Which systems, and what is done to each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultsRun {
    /// In this order.
    pub topologies: Vec<Topology>,
    /// Where they are made.
    pub dir: PathBuf,
    /// Where a group's second database is; if it does not say, where all is.
    pub standby: Option<PathBuf>,
    /// PostgreSQL's settings, `name=value`.
    pub set: Vec<String>,
    /// What is done.
    pub plan: FaultsPlan,
    /// Whose hosts a group or an instance is on; this machine if there are none.
    #[serde(default)]
    pub hosts: Agents,
}

/// A run that makes sense, and the hosts that it needs.
pub struct ReadyRun<'a> {
    asked: &'a FaultsRun,
    hosts: Option<Rc<GroupHosts>>,
}

impl FaultsRun {
    /// # Errors
    /// A usage error for what makes no sense; given hosts cannot be reached, or could not do what is to be done to them.
    pub fn ready(&self) -> Result<ReadyRun<'_>, LabError> {
        self.plan.check(&self.topologies)?;
        let hosts = match self.hosts.addresses.is_empty() {
            true => {
                let standby = self.standby.as_deref();
                check_standby(&self.plan.faults, standby)?;
                check_lengths(&self.topologies, &self.dir, standby)?;
                None
            }
            false => Some(Rc::new(self.greet()?)),
        };
        Ok(ReadyRun { asked: self, hosts })
    }

    fn greet(&self) -> Result<GroupHosts, LabError> {
        if self.topologies.contains(&Topology::Standalone) {
            return Err(LabError::usage(
                "--host: --topology standalone is made on this machine; a group or an instance is made on given hosts",
            ));
        }
        if self.standby.is_some() {
            return Err(LabError::usage(
                "--standby: each agent has its own place (`lab agent --dir`)",
            ));
        }
        let hosts = GroupHosts::greet(&self.hosts)?;
        for &topology in &self.topologies {
            let (faults, hold) = (&self.plan.faults, self.plan.hold);
            match topology {
                Topology::Fci => hosts.check_instance(&self.set, faults, hold)?,
                _ => hosts.check((&self.hosted(topology), faults), hold)?,
            }
        }
        Ok(hosts)
    }

    fn hosted(&self, topology: Topology) -> HostedPlan {
        HostedPlan {
            tuning: topology.tuning(),
            set: self.set.clone(),
        }
    }

    fn make(&self, topology: Topology, progress: &Progress) -> Result<Box<dyn System>, LabError> {
        let (dir, faults) = (&self.dir, &self.plan.faults);
        Ok(match topology {
            Topology::Standalone => Box::new(StandaloneSystem::make(dir, &self.set)?),
            Topology::Group | Topology::GroupFast => {
                let plan = GroupPlan {
                    place_a: None,
                    place_b: self.standby.clone(),
                    tuning: topology.tuning(),
                    set: self.set.clone(),
                    loopback: false,
                };
                Box::new(group_for(faults, dir, &plan, progress)?)
            }
            Topology::Fci => {
                let plan = FciPlan::of(faults, &self.set);
                Box::new(FciSystem::make(dir, &plan, progress)?)
            }
        })
    }
}

/// Ends what runs have left below `dir` whose starters are gone.
fn end_left_behind(dir: &Path) -> Result<(), LabError> {
    // Of groups, too, also if none is made any more.
    drives::end_left_behind(dir)?;
    FciSystem::end_left_behind(dir)?;
    StandaloneSystem::end_left_behind(dir)
}

impl ReadyRun<'_> {
    /// Does all of it, or what the journal does not have. What a run has left below the directory that was killed is taken
    /// away first.
    ///
    /// # Errors
    /// What is left stays, or what is kept cannot be written.
    pub fn carry_out(
        &self,
        out: &Path,
        progress: &Progress,
        journal: &mut Journal,
    ) -> Result<FaultsResult, LabError> {
        let asked = self.asked;
        end_left_behind(&asked.dir)?;
        if let Some(place) = &asked.standby {
            check_place(place, NodeName::B)?;
        }
        let of = |&topology: &Topology| Wanted {
            topology,
            make: self.make(topology, progress),
        };
        let systems: Vec<Wanted<'_>> = asked.topologies.iter().map(of).collect();
        let means = Means {
            progress,
            journal,
            keep: &|result| result.write(out),
        };
        faults(&asked.plan, &systems, means)
    }

    fn make<'a>(&'a self, topology: Topology, progress: &'a Progress) -> Make<'a> {
        Box::new(move || {
            progress.say(&format!("{topology} is made"));
            match &self.hosts {
                Some(hosts) if topology == Topology::Fci => {
                    let plan = FciPlan::of(&self.asked.plan.faults, &self.asked.set);
                    Ok(Box::new(FciSystem::make_there(hosts, &plan, progress)?))
                }
                Some(hosts) => {
                    let plan = self.asked.hosted(topology);
                    Ok(Box::new(hosts.system(&plan, progress)?))
                }
                None => self.asked.make(topology, progress),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::{Command, Origin, OwnFolder};

    use super::*;

    fn run(base: &Path, standby: Option<PathBuf>) -> FaultsRun {
        let plan = serde_json::json!({
            "faults": ["kill-node"], "rounds": 1, "shape": {"warehouses": 1, "items": 1000, "customers": 100}, "users": 1, "rate": 10.0,
            "before": {"secs": 0, "nanos": 0}, "hold": {"secs": 0, "nanos": 0},
            "after": {"secs": 0, "nanos": 0}, "limits": [], "logic": "functions", "seed": 1
        });
        FaultsRun {
            topologies: vec![Topology::Group],
            dir: base.join("d"),
            standby,
            set: Vec::new(),
            plan: serde_json::from_value(plan).expect("a plan"),
            hosts: Agents::default(),
        }
    }

    #[test]
    fn a_folder_that_is_in_the_standbys_place_is_left_alone() {
        let base = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let file = base.path().join("p/node-b/file");
        std::fs::create_dir_all(base.path().join("p/node-b")).expect("made");
        std::fs::write(&file, "a user's").expect("written");
        let asked = run(base.path(), Some(base.path().join("p")));
        let out = base.path().join("out");
        let origin = Origin::asked(Command::Failover, &asked).expect("kept");
        let mut journal = Journal::begin(&out, &origin).expect("begun");
        let ready = asked.ready().expect("it makes sense");
        let refused = ready.carry_out(&out, &Progress::silent(), &mut journal);
        assert_eq!(refused.expect_err("refused").exit_code(), 2);
        assert!(file.exists());
    }

    #[test]
    fn a_group_that_was_left_ends_though_no_round_of_one_is_left() {
        let base = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        // No process has this number.
        let left = base.path().join("ashlar-4194304-0");
        let group = left.join("g");
        std::fs::create_dir_all(group.join("node-a")).expect("made");
        let mark = serde_json::json!({
            "dir": group, "folders": [group], "network": {"kind": "loopback", "ports": {}},
            "plan": {"place_a": null, "place_b": null, "tuning": "fast", "set": [], "loopback": true},
        });
        std::fs::write(group.join("group.json"), mark.to_string()).expect("written");
        end_left_behind(base.path()).expect("ended");
        assert!(!left.exists());
    }
}
