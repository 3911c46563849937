//! One step: users log in, the ramp begins with the last of them, then it counts.

use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};

use super::plan::{Mode, RunPlan};
use super::users::Users;
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
    let mut all_users = Users::log_in(database, (plan, setting), ledger, progress)?;
    let time = match plan.mode {
        // Counted from the first transaction on.
        Mode::Fixed(_) => Duration::MAX,
        Mode::Timed | Mode::Rate(_) | Mode::Streams(..) | Mode::Thinkers(_) => {
            all_users.ramp(plan.ramp);
            plan.measure
        }
    };
    let window = all_users.measure(time)?;
    let stuck = all_users.stop();
    let mut step = window.step();
    step.users = setting.users;
    if let Some((users, problem)) = stuck {
        step.lost_users += users;
        step.problems.push(problem);
        step.partial = true;
    }
    Ok(step)
}
