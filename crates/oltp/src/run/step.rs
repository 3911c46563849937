//! One step: users log in, the ramp begins with the last of them, then it counts.

use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};

use super::crowd::Crowd;
use super::plan::{Mode, RunPlan};
use crate::database::Database;
use crate::ledger::Ledger;
use crate::result::StepResult;
use crate::terminal::TerminalSetting;

/// Runs one step.
///
/// # Errors
/// If not all users can log in; later trouble is told in the result.
pub(super) fn step(
    database: &Arc<dyn Database>,
    (plan, setting): (&RunPlan, &TerminalSetting),
    ledger: Option<Arc<Ledger>>,
    progress: &Progress,
) -> Result<StepResult, LabError> {
    let mut crowd = Crowd::log_in(database, (plan, setting), ledger, progress)?;
    let time = match plan.mode {
        // Counted from the first transaction on.
        Mode::Fixed(_) => Duration::MAX,
        Mode::Timed | Mode::Rate(_) | Mode::Streams(..) | Mode::Thinkers(_) => {
            crowd.ramp(plan.ramp);
            plan.measure
        }
    };
    let window = crowd.measure(time)?;
    let stuck = crowd.stop();
    let mut step = window.step();
    step.users = setting.users;
    if let Some((users, problem)) = stuck {
        step.lost_users += users;
        step.problems.push(problem);
        step.partial = true;
    }
    Ok(step)
}
