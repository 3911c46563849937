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
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        // This process names the directory of the run, and none in its folder.
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        words.contains(&own) && is_one(&program, std::env::current_exe().ok().as_deref())
    })
}

/// This program, by whatever name it was installed, or another version of it.
fn is_one(program: &Path, own: Option<&Path>) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    own == Some(program) || name.starts_with("ashlar")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_ours_is_known_by_whatever_name() {
        let own = Some(Path::new("/opt/storage/lab-2"));
        for (program, expected) in [
            ("/opt/storage/lab-2", true),
            ("/usr/bin/ashlar", true),
            ("/usr/bin/ashlar (deleted)", true),
            ("/usr/bin/vim", false),
        ] {
            assert_eq!(is_one(Path::new(program), own), expected, "{program}");
        }
    }
}
