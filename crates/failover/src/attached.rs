//! Volumes that are attached for a while: what attaching remembers is in a folder of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ashlar_lab::LabError;
use ashlar_testbed::process::own_program;

/// All that was attached with one folder.
pub(crate) struct Attachments {
    state: PathBuf,
}

impl Attachments {
    pub(crate) fn at(state: PathBuf) -> Self {
        Self { state }
    }

    /// Mounts what `attach` takes; one that is empty gets XFS first.
    ///
    /// # Errors
    /// What `attach` complains about.
    pub(crate) fn attach(&self, volume: &str, mount: &Path) -> Result<(), LabError> {
        let there = self.attach_with(volume, mount, &[]);
        there.or_else(|why| {
            let made = self.attach_with(volume, mount, &["--fs", "xfs"]);
            // Why one that has a file system is not mounted is said by the first.
            made.map_err(|other| LabError::environment(format!("{why}; {other}")))
        })
    }

    /// The same of one that was made for this: that it is empty is known, and not read.
    ///
    /// # Errors
    /// What `attach` complains about.
    pub(crate) fn attach_new(&self, volume: &str, mount: &Path) -> Result<(), LabError> {
        self.attach_with(volume, mount, &["--fs", "xfs", "--destroy-data"])
    }

    /// The same of one that was let go by force, and has XFS. Processes of the group have mount namespaces of their own, in
    /// which what was let go stays mounted, without any access: its UUID is in use as long.
    ///
    /// # Errors
    /// What `attach` complains about.
    pub(crate) fn attach_again(&self, volume: &str, mount: &Path) -> Result<(), LabError> {
        self.attach_with(volume, mount, &["--options", "nouuid"])
    }

    fn attach_with(&self, volume: &str, mount: &Path, words: &[&str]) -> Result<(), LabError> {
        for folder in [&*self.state, mount] {
            std::fs::create_dir_all(folder)
                .map_err(|error| LabError::caused(folder.display(), error))?;
        }
        let mut command = self.ours()?;
        command.args(["attach", volume]).args(words);
        done(command.arg("--mount").arg(mount), volume)
    }

    /// Lets it go, whatever it and its file system are at. One that is not there is what is wanted.
    ///
    /// # Errors
    /// It stays.
    pub(crate) fn detach(&self, mount: &Path) -> Result<(), LabError> {
        if !is_mounted(mount)? {
            return Ok(());
        }
        let mut command = self.ours()?;
        command.arg("detach").arg(mount).arg("--force");
        done(&mut command, &mount.display().to_string())
    }

    fn ours(&self) -> Result<Command, LabError> {
        let mut command = Command::new(own_program()?);
        command.env("ASHLAR_ATTACH_STATE", &self.state);
        command.stdin(Stdio::null());
        Ok(command)
    }
}

fn is_mounted(place: &Path) -> Result<bool, LabError> {
    let mounts = std::fs::read_to_string("/proc/self/mounts");
    let mounts = mounts.map_err(|error| LabError::caused("/proc/self/mounts", error))?;
    Ok(is_among(&mounts, place))
}

/// The kernel writes some characters of a path as octal numbers.
fn is_among(mounts: &str, place: &Path) -> bool {
    let escapes = [
        ("\\", "\\134"),
        (" ", "\\040"),
        ("\t", "\\011"),
        ("\n", "\\012"),
    ];
    let mut written = place.display().to_string();
    for (plain, escaped) in escapes {
        written = written.replace(plain, escaped);
    }
    let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    places.any(|one| one == written)
}

fn done(command: &mut Command, what: &str) -> Result<(), LabError> {
    let output = command.output();
    let output = output.map_err(|error| LabError::caused(what, error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(LabError::environment(format!(
            "{what}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_whose_path_has_a_space_is_seen() {
        let mounts = "none /tmp/a\\040b\\134c/m tmpfs rw 0 0\n";
        assert!(is_among(mounts, Path::new("/tmp/a b\\c/m")));
        assert!(!is_among(mounts, Path::new("/tmp/a")));
    }
}
