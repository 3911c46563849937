//! An instance against a group: storage of this machine, made for both sides, and taken away again. What is run on it
//! is [`run_versus`].

mod ground;
mod left;

use ashlar_lab::{Journal, LabError, Scale};
use ashlar_oltp::versus::{VersusFile, VersusResult, VersusRun, run_versus};

use self::ground::Ground;

/// Makes the storage, runs all parts on it, or what the journals do not have of them, and takes it away. What breaks it
/// off is in the result.
///
/// # Errors
/// The storage cannot be made, or what the run left when it was killed stays.
pub fn versus(
    file: &VersusFile,
    run: &VersusRun<'_>,
    journal: &mut Journal,
) -> Result<VersusResult, LabError> {
    journal
        .folders()
        .iter()
        .try_for_each(|folder| left::end(folder))?;
    let scale = run.scale.parse::<Scale>()?.factor();
    let ground = Ground::make(run, file, journal)?;
    let told = ground.told();
    let mut result = VersusResult::begun(file, scale, told, run.changed.to_vec());
    let measured = run_versus(run, &ground, &mut result, journal);
    if let Err(error) = measured {
        result.head.broke_off(error.to_string());
    }
    if let Err(error) = ground.end() {
        result.head.problems.push(error.to_string());
    }
    run.progress.finish();
    Ok(result)
}
