//! What a run that was killed has left: servers, a mounted volume, mounted drives, nodes and their network, a folder.

use std::path::Path;
use std::process::{Command, Stdio};

use ashlar_lab::{LabError, remove_left};
use ashlar_oltp::group::Group;
use ashlar_oltp::processes;
use ashlar_oltp::scenario::end_servers;
use ashlar_testbed::image::detach_all;
use ashlar_testbed::nodes::Nodes;
use ashlar_testbed::process::own_program;

use super::ground::{ATTACHED, DRIVES, GROUP, NODES, VOLUME, image_of};

/// Takes away all that runs have left below `dir` whose starters are gone.
///
/// # Errors
/// Something of it stays.
pub(super) fn end_all(dir: &Path) -> Result<(), LabError> {
    for folder in processes::left_behind(dir) {
        // Nodes alone are those of something else.
        if folder.join(VOLUME).is_dir() {
            end(&folder)?;
        }
    }
    Ok(())
}

/// Takes away all that a run has left in its folder; what is not there is as it should be.
///
/// # Errors
/// Something of it stays.
pub(super) fn end(folder: &Path) -> Result<(), LabError> {
    if !folder.is_dir() {
        return Ok(());
    }
    // From the top: what is mounted goes when no server uses it, and the volume before the nodes that serve it.
    if let Ok(group) = Group::at(&folder.join(GROUP)) {
        group.stop()?;
    }
    let places = [VOLUME].into_iter().chain(DRIVES);
    let places: Vec<_> = places.map(|name| folder.join(name)).collect();
    for place in &places {
        for own in std::fs::read_dir(place).into_iter().flatten().flatten() {
            end_servers(&own.path())?;
        }
    }
    processes::end(&places)?;
    for mount in DRIVES.map(|name| folder.join(name)) {
        detach_all(&image_of(&mount), &mount)?;
    }
    detach(folder)?;
    if let Ok(nodes) = Nodes::at(&folder.join(NODES)) {
        nodes.down()?;
    }
    remove_left(&[folder.to_owned()])
}

/// The volume, if it was attached, or about to be.
fn detach(folder: &Path) -> Result<(), LabError> {
    let state = folder.join(ATTACHED);
    let is_empty = std::fs::read_dir(&state).map_or(true, |mut all| all.next().is_none());
    if is_empty {
        return Ok(());
    }
    let program = own_program()?;
    let mut command = Command::new(&program);
    command
        .arg("detach")
        .arg(folder.join(VOLUME))
        .arg("--force")
        .env("ASHLAR_ATTACH_STATE", &state)
        .stdin(Stdio::null());
    let output = command.output();
    let output = output.map_err(|error| LabError::caused(program.display(), error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(LabError::environment(format!(
            "what a run has left: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
