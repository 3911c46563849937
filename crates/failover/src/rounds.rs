//! `lab failover --topology … --fault …`, as it is asked for and goes on.

use std::path::{Path, PathBuf};

use ashlar_lab::{Journal, LabError, Progress, ResultFile};
use ashlar_oltp::faults::{
    Fault, FaultsPlan, FaultsResult, Make, Means, StandaloneSystem, System, Topology, Wanted,
    faults,
};
use ashlar_oltp::group::GroupPlan;
use serde::{Deserialize, Serialize};

use crate::fci::{FciPlan, FciSystem};
use crate::{check_lengths, check_standby, group_for};

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
}

impl FaultsRun {
    /// # Errors
    /// A usage error for what makes no sense.
    pub fn check(&self) -> Result<(), LabError> {
        let standby = self.standby.as_deref();
        check_standby(&self.plan.faults, standby)?;
        self.plan.check(&self.topologies)?;
        check_lengths(&self.topologies, &self.dir, standby)
    }

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
        FciSystem::end_left_behind(&self.dir)?;
        StandaloneSystem::end_left_behind(&self.dir)?;
        let of = |&topology: &Topology| Wanted {
            topology,
            make: self.make(topology, progress),
        };
        let systems: Vec<Wanted<'_>> = self.topologies.iter().map(of).collect();
        let means = Means {
            progress,
            journal,
            keep: &|result| result.write(out),
        };
        faults(&self.plan, &systems, means)
    }

    fn faults(&self) -> &[Fault] {
        &self.plan.faults
    }

    fn make<'a>(&'a self, topology: Topology, progress: &'a Progress) -> Make<'a> {
        let dir = &self.dir;
        Box::new(move || -> Result<Box<dyn System>, LabError> {
            progress.say(&format!("{topology} is made"));
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
                    Box::new(group_for(self.faults(), dir, &plan, progress)?)
                }
                Topology::Fci => {
                    let plan = FciPlan::of(self.faults(), &self.set);
                    Box::new(FciSystem::make(dir, &plan, progress)?)
                }
            })
        })
    }
}
