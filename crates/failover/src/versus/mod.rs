//! An instance against a group: storage of this machine, made for both sides, and taken away again. What is run on it
//! is [`run_versus`].

mod ground;

use ashlar_lab::{LabError, Progress};
use ashlar_oltp::versus::{VersusFile, VersusResult, VersusRun, run_versus};

use self::ground::Ground;

/// Makes the storage, runs all parts on it, and takes it away. What breaks it off is in the result.
///
/// # Errors
/// The storage cannot be made.
pub fn versus(
    file: &VersusFile,
    run: &VersusRun<'_>,
    scale: f64,
    progress: &Progress,
) -> Result<VersusResult, LabError> {
    let ground = Ground::make(run.dir, file, progress)?;
    let told = ground.told();
    let mut result = VersusResult::begun(file, scale, told, run.changed.to_vec());
    let measured = run_versus(run, &ground, &mut result, progress);
    if let Err(error) = measured {
        result.head.broke_off(error.to_string());
    }
    if let Err(error) = ground.end() {
        result.head.problems.push(error.to_string());
    }
    progress.finish();
    Ok(result)
}
