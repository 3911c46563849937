//! A file system on an image: a loop device, and what is mounted of it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;

use super::process::tool;

/// How long a mount may be in use by processes that are about to end.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A mounted image; it is unmounted when it is dropped.
pub struct LoopMount {
    device: String,
    mount: PathBuf,
    is_there: bool,
}

impl LoopMount {
    /// Mounts an image that has a file system, in 4 KiB blocks.
    ///
    /// # Errors
    /// A tool complains: nothing stays.
    pub fn new(image: &Path, mount: &Path) -> Result<Self, LabError> {
        Self::with(image, mount, &[])
    }

    /// The same; what is written does not pass the page cache of the image's own file system.
    ///
    /// # Errors
    /// A tool complains: nothing stays.
    pub fn direct(image: &Path, mount: &Path) -> Result<Self, LabError> {
        Self::with(image, mount, &["--direct-io=on"])
    }

    fn with(image: &Path, mount: &Path, options: &[&str]) -> Result<Self, LabError> {
        std::fs::create_dir_all(mount).map_err(|error| LabError::caused(mount.display(), error))?;
        let file = image.display().to_string();
        let mut words = vec!["--find", "--show"];
        words.extend(options);
        words.extend(["--sector-size", "4096", &file]);
        let device = tool("losetup", &words)?;
        let this = Self {
            device,
            mount: mount.to_owned(),
            is_there: true,
        };
        tool("mount", &[&this.device, &mount.display().to_string()])?;
        Ok(this)
    }

    /// The block device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// Takes it away.
    ///
    /// # Errors
    /// Something stays.
    pub fn end(mut self) -> Result<(), LabError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), LabError> {
        self.is_there = false;
        let unmounted = unmount(&self.mount);
        let detached = tool("losetup", &["--detach", &self.device]).map(drop);
        unmounted.and(detached)
    }
}

/// Takes an image away that a process has mounted which was killed; where it is not mounted, its loop devices alone.
///
/// # Errors
/// Something stays.
pub fn detach_all(image: &Path, mount: &Path) -> Result<(), LabError> {
    unmount(mount)?;
    let image = image.display().to_string();
    let words = ["--noheadings", "--output", "NAME", "--associated", &image];
    for device in tool("losetup", &words)?.lines() {
        tool("losetup", &["--detach", device.trim()])?;
    }
    Ok(())
}

/// Unmounts what may be mounted. A server that was killed is gone before the last of its processes is: until then the
/// mount is busy.
fn unmount(mount: &Path) -> Result<(), LabError> {
    let begun = Instant::now();
    while is_mounted(mount)? {
        match tool("umount", &[&mount.display().to_string()]) {
            Err(error) if begun.elapsed() > UNMOUNT_TIMEOUT => return Err(error),
            Err(_) => std::thread::sleep(LOOK_EVERY),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn is_mounted(mount: &Path) -> Result<bool, LabError> {
    let mounts = std::fs::read_to_string("/proc/self/mounts");
    let mounts = mounts.map_err(|error| LabError::caused("/proc/self/mounts", error))?;
    let place = mount.display().to_string();
    Ok(mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&place)))
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if self.is_there {
            // Fails only where it is so already, or in use, and then the image shows it.
            let _ = self.take_away();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_mount_that_is_in_use_for_a_moment_goes_when_it_is_not() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI is root");
            eprintln!("SKIPPED: this needs root");
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let (image, mount) = (dir.path().join("image"), dir.path().join("mnt"));
        let file = std::fs::File::create(&image).expect("a file");
        file.set_len(320 << 20).expect("room");
        let words = ["-q", "-s", "size=4096", &image.display().to_string()];
        tool("mkfs.xfs", &words).expect("a file system");
        let mounted = LoopMount::new(&image, &mount).expect("mounted");
        let mut user = Command::new("sleep");
        let user = user.arg("0.5").current_dir(&mount).stdin(Stdio::null());
        let mut user = user.spawn().expect("a process");
        mounted.end().expect("it goes");
        assert!(!is_mounted(&mount).expect("a table"));
        assert!(user.wait().expect("it was there").success());
    }
}
