//! Loop devices, by losetup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::connections::FuseConnection;
use super::tool;
use crate::error::AttachError;

const PACKAGE: &str = "util-linux";
const TOOL_TIMEOUT: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(5);

/// Makes a loop device over `file`: direct, so that nothing is cached twice and a flush is a flush.
///
/// # Errors
/// Environment.
pub(crate) fn attach(file: &Path, block_bytes: u32) -> Result<PathBuf, AttachError> {
    let mut command = Command::new(tool::find("losetup", PACKAGE)?);
    command.args(["--find", "--show", "--direct-io=on", "--sector-size"]);
    command.arg(block_bytes.to_string()).arg(file);
    let device = tool::succeed(&mut command, TOOL_TIMEOUT)?;
    Ok(PathBuf::from(device.trim()))
}

/// Lets a loop device go. One that is in use goes when it is not any more: see [`is_over`].
///
/// # Errors
/// Environment.
pub(crate) fn detach(device: &Path, limit: Duration) -> Result<(), AttachError> {
    let mut command = Command::new(tool::find("losetup", PACKAGE)?);
    tool::succeed(command.arg("-d").arg(device), limit).map(|_| ())
}

/// Whether the loop device is (still) one over `file`. Looks at the kernel's table only.
pub(crate) fn is_over(device: &Path, file: &Path) -> bool {
    backing(device).is_some_and(|backing| backing == file)
}

/// Whether it is over the FUSE file of `connection` in a mount namespace that is gone: no path leads there.
pub(crate) fn is_over_lost(device: &Path, connection: FuseConnection) -> bool {
    is_over(device, Path::new("/")) && backing_number(device) == Some(connection)
}

fn backing_number(device: &Path) -> Option<FuseConnection> {
    let mut command = Command::new(tool::find("losetup", PACKAGE).ok()?);
    command.args(["--list", "--noheadings", "--output", "BACK-MAJ:MIN"]);
    let text = tool::succeed(command.arg(device), SHORT).ok()?;
    FuseConnection::of_number(text.trim())
}

fn backing(device: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(attribute(device, "loop/backing_file")?).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// Whether it is over no file at all.
pub(crate) fn is_free(device: &Path) -> bool {
    backing(device).is_none()
}

/// The loop device over `file`, if there is one.
pub(crate) fn find(file: &Path) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/block").ok()?;
    let devices = devices
        .flatten()
        .map(|entry| Path::new("/dev").join(entry.file_name()));
    devices.into_iter().find(|device| is_over(device, file))
}

/// Whether flushes are sent to the device. It must be said each time, and again when the device is let go:
/// the kernel keeps it for the next user of the same device.
///
/// # Errors
/// Environment.
pub(crate) fn set_flushes(device: &Path, flushes: bool) -> Result<(), AttachError> {
    let failed = |why: &str| AttachError::environment(format!("{}: {why}", device.display()));
    let path = attribute(device, "queue/write_cache").ok_or_else(|| failed("is no device"))?;
    let word = if flushes {
        "write back"
    } else {
        "write through"
    };
    // In a process of its own, because the kernel waits for requests that are on their way.
    let mut command = Command::new(tool::find("sh", "dash")?);
    command
        .args(["-c", "echo \"$1\" > \"$0\""])
        .arg(path)
        .arg(word);
    tool::succeed(&mut command, SHORT).map(|_| ())
}

fn attribute(device: &Path, name: &str) -> Option<PathBuf> {
    Some(Path::new("/sys/block").join(device.file_name()?).join(name))
}
