//! A file system on an image: a loop device, and what is mounted of it.

use std::path::{Path, PathBuf};

use ashlar_lab::LabError;

use super::process::tool;

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
        // Of one that is not mounted it is only said so.
        let unmounted = tool("umount", &[&self.mount.display().to_string()]).map(drop);
        let detached = tool("losetup", &["--detach", &self.device]).map(drop);
        unmounted.and(detached)
    }
}

/// Takes an image away that a process has mounted which was killed; where it is not mounted, its loop devices alone.
///
/// # Errors
/// Something stays.
pub fn detach_all(image: &Path, mount: &Path) -> Result<(), LabError> {
    let (image, mount) = (image.display().to_string(), mount.display().to_string());
    let mounts = std::fs::read_to_string("/proc/self/mounts");
    let mounts = mounts.map_err(|error| LabError::caused("/proc/self/mounts", error))?;
    let is_there = |line: &str| line.split(' ').nth(1) == Some(&mount);
    if mounts.lines().any(is_there) {
        tool("umount", &[&mount])?;
    }
    let words = ["--noheadings", "--output", "NAME", "--associated", &image];
    for device in tool("losetup", &words)?.lines() {
        tool("losetup", &["--detach", device.trim()])?;
    }
    Ok(())
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if self.is_there {
            // Fails only where it is so already, or in use, and then the image shows it.
            let _ = self.take_away();
        }
    }
}
