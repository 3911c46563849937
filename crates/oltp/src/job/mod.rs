//! What `ashlar lab oltp` has done to one database: it is put back, built, driven in steps, checked; what there is is
//! kept after every step.

mod before;
mod open;
mod saved;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, LatencyLog, Progress, ResultFile};

pub use open::open;
pub use saved::Saved;

use self::before::Before;
use self::saved::WOULD_REPLACE;
use crate::check::{Consistency, check};
use crate::database::Database;
use crate::schema::State;
use crate::{
    Around, BuildPlan, Logic, OltpResult, Restore, RunPlan, begin, build, built, run_with,
};

/// A part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The tables are made and filled.
    Build,
    /// What is built is driven.
    Run,
    /// The consistency conditions are asked.
    Check,
}

/// What is to be done.
pub struct Job {
    /// The database's URL.
    pub db: String,
    /// Only this; without it, it is built if nothing is there, then driven.
    pub part: Option<Part>,
    /// Where the logic of a transaction runs.
    pub logic: Logic,
    /// How long a database may take to start up.
    pub wait: Duration,
    pub plan: RunPlan,
    /// What is built.
    pub build: BuildPlan,
    /// What it must be built with, if that was said.
    pub warehouses: Option<i32>,
    /// What is put back before every step.
    pub saved: Option<Saved>,
    /// Steps are added to the run that is in `out`.
    pub append: bool,
    /// Where the result goes.
    pub out: Option<PathBuf>,
}

/// What came of it.
pub enum Done {
    Checked(Consistency),
    /// A result, and the directory that it was written to.
    Measured(Box<OltpResult>, Option<PathBuf>),
}

impl Job {
    /// Whether something is driven.
    pub fn runs(&self) -> bool {
        matches!(self.part, None | Some(Part::Run))
    }

    /// Does it. Each result is `told` before it is kept.
    ///
    /// # Errors
    /// A usage error before anything is put back or built over; what the database says; a run that was broken off, of
    /// which what there is was kept.
    pub fn carry_out(
        &self,
        progress: &Progress,
        told: &dyn Fn(&OltpResult),
    ) -> Result<Done, LabError> {
        let database = open(&self.db, self.logic, progress)?;
        database.await_ready(self.wait, progress)?;
        if self.part == Some(Part::Check) {
            return examine(database.as_ref(), progress).map(Done::Checked);
        }
        let saved = self.saved.as_ref().filter(|_| self.runs());
        let earlier = match self.runs() {
            true => self.earlier()?,
            false => None,
        };
        let before = Before {
            job: self,
            saved,
            earlier: earlier.as_ref(),
        };
        before.check(database.as_ref())?;
        let destroys = self.build.destroy_data && self.part.is_none();
        let is_fresh = match saved {
            Some(saved) => saved.put_back_first(database.as_ref(), destroys)?,
            None => false,
        };
        let must_build = match self.part {
            Some(Part::Build) => true,
            None => destroys || database.state()? == State::Empty,
            _ => false,
        };
        if must_build && is_fresh {
            return Err(LabError::usage(WOULD_REPLACE));
        }
        let build = must_build
            .then(|| build(database.as_ref(), &self.build, progress))
            .transpose()?;
        self.has_its_warehouses(database.as_ref())?;
        let mut result = begin(database.as_ref(), &self.plan)?;
        result.build = build;
        if self.runs() {
            let run = Run {
                job: self,
                database: &database,
                saved,
                is_fresh,
                earlier,
                progress,
                told,
            };
            return run.measure(result);
        }
        if let Some(dir) = &self.out {
            result.write(dir)?;
        }
        Ok(Done::Measured(Box::new(result), self.out.clone()))
    }

    /// The run to which this one is added.
    fn earlier(&self) -> Result<Option<OltpResult>, LabError> {
        let dir = self.out.as_deref().filter(|_| self.append);
        let dir = dir.filter(|dir| dir.join("result.json").exists());
        dir.map(OltpResult::load).transpose()
    }

    fn has_its_warehouses(&self, database: &dyn Database) -> Result<(), LabError> {
        let found = built(database)?.shape.warehouses;
        self.have_warehouses(found, &database.target(), "--destroy-data builds it again")
    }

    fn have_warehouses(&self, found: i32, of: &str, remedy: &str) -> Result<(), LabError> {
        match self.warehouses {
            Some(wanted) if wanted != found => Err(LabError::usage(format!(
                "--warehouses {wanted}: {of} is built with {found}; {remedy}"
            ))),
            _ => Ok(()),
        }
    }
}

fn examine(database: &dyn Database, progress: &Progress) -> Result<Consistency, LabError> {
    let marker = built(database)?;
    let mut watcher = database.watcher()?;
    let found = check(watcher.as_mut(), &marker.shape, progress)?;
    progress.finish();
    Ok(found)
}

/// A run that has begun.
struct Run<'a> {
    job: &'a Job,
    database: &'a Arc<dyn Database>,
    saved: Option<&'a Saved>,
    /// What was saved was put back just now.
    is_fresh: bool,
    earlier: Option<OltpResult>,
    progress: &'a Progress,
    told: &'a dyn Fn(&OltpResult),
}

impl Run<'_> {
    /// Drives it; what there is is kept after every step.
    fn measure(&self, mut result: OltpResult) -> Result<Done, LabError> {
        result.method.restored = self.saved.is_some();
        if let Some(earlier) = &self.earlier {
            earlier.check_alike(&result)?;
        }
        // Kept even if the run cannot begin.
        self.keep(&result.so_far())?;
        let ran = self.drive(&mut result);
        if let Err(error) = &ran {
            result.head.broke_off(error.to_string());
        }
        if self.adds_nothing(&result) {
            ran?;
            return Ok(Done::Measured(Box::new(result), None));
        }
        let result = self.all(&result)?;
        if let Some(dir) = self.out() {
            result.write(dir)?;
            result.write_report(dir)?;
        }
        ran?;
        Ok(Done::Measured(Box::new(result), self.job.out.clone()))
    }

    fn drive(&self, result: &mut OltpResult) -> Result<(), LabError> {
        let mut is_fresh = self.is_fresh;
        let mut restore = || match self.saved {
            Some(_) if std::mem::take(&mut is_fresh) => Ok(()),
            Some(saved) => saved.ready(self.progress),
            None => Ok(()),
        };
        let restore: Restore<'_> = &mut restore;
        let mut keep = |result: &OltpResult| self.keep(result);
        let around = Around {
            restore: self.saved.is_some().then_some(restore),
            keep: Some(&mut keep),
            ledger: None,
            repeats_before: self.earlier.as_ref().map_or(0, OltpResult::repeats),
            log: match self.out() {
                Some(dir) => LatencyLog::of(dir, self.earlier.is_some())?,
                None => LatencyLog::none(),
            },
        };
        run_with(self.database, &self.job.plan, result, self.progress, around)
    }

    fn out(&self) -> Option<&Path> {
        self.job.out.as_deref()
    }

    /// With the run to which it is added. One that has no step has nothing to add, and takes nothing from the one that
    /// is there.
    fn all(&self, later: &OltpResult) -> Result<OltpResult, LabError> {
        match self.earlier.clone() {
            Some(all) if later.steps.is_empty() => Ok(all),
            Some(mut all) => all.append(later.clone()).map(|()| all),
            None => Ok(later.clone()),
        }
    }

    fn adds_nothing(&self, later: &OltpResult) -> bool {
        self.earlier.is_some() && later.steps.is_empty()
    }

    fn keep(&self, result: &OltpResult) -> Result<(), LabError> {
        match self.out() {
            Some(_) if self.adds_nothing(result) => Ok(()),
            Some(dir) => {
                let so_far = self.all(result)?;
                (self.told)(&so_far);
                so_far.write(dir)
            }
            None => Ok(()),
        }
    }
}
