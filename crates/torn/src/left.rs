//! What a run that was killed has left: a mounted volume with a database's server, and what serves it.

use std::path::Path;

use ashlar_lab::LabError;
use ashlar_oltp::processes;
use ashlar_testbed::process::ashlar;
use rustix::process::{Pid, Signal, kill_process};

use super::{MOUNTS, remove};
use crate::setting::MOUNT;

/// Ends all of it and, unless it is to be kept, removes the folder; what is not there is as it should be.
///
/// # Errors
/// Something of it stays.
pub(super) fn end(folder: &Path, keeps: bool) -> Result<(), LabError> {
    if !folder.is_dir() {
        return Ok(());
    }
    let mount = folder.join(MOUNT);
    processes::end(std::slice::from_ref(&mount))?;
    // It may be on its way to be attached, and so not mounted yet. Where it was not, there is nothing to detach; what is
    // mounted all the same keeps the folder.
    let _ = ashlar(&["detach", &mount.display().to_string(), "--force"]);
    for pid in serving(folder).filter_map(Pid::from_raw) {
        // One that has ended meanwhile is what is wanted.
        let _ = kill_process(pid, Signal::KILL);
    }
    match keeps {
        true => Ok(()),
        false => remove(folder, MOUNTS),
    }
}

/// Servers of ours whose words name something in a folder.
fn serving(folder: &Path) -> impl Iterator<Item = i32> {
    let own = format!("{}/", folder.display());
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(move |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        // This process names the directory of the run, and none in its folder.
        name.trim() == "ashlar" && words.contains(&own)
    })
}
