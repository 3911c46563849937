//! What is mounted where.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::tool;
use crate::error::AttachError;

/// The tool that writes back.
pub(crate) const WRITE_BACK: &str = "sync";

/// A line of the kernel's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    /// The file system's kind.
    pub(crate) kind: String,
    /// What is mounted: a device's path.
    pub(crate) source: String,
    /// `MAJOR:MINOR` of what is mounted.
    pub(crate) number: String,
}

/// All mounts of this process's namespace, in their order.
pub(crate) fn all() -> Vec<Mount> {
    parse(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// Those of a process's namespace.
pub(crate) fn of_process(pid: i32) -> impl Iterator<Item = Mount> {
    let table = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    parse(&table).into_iter()
}

/// Names in it are bytes, which any user who may mount something chooses.
fn parse(table: &[u8]) -> Vec<Mount> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(line)
        .collect()
}

fn line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let number = text(words.nth(2)?);
    let point = PathBuf::from(OsString::from_vec(unescape(words.nth(1)?)));
    let mut what = words.skip_while(|word| *word != b"-").skip(1);
    Some(Mount {
        point,
        number,
        kind: text(what.next()?),
        source: text(&unescape(what.next()?)),
    })
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// What separates words and lines stands there as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::new(), word);
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.split_at_checked(3).filter(|_| first == b'\\');
        let byte = octal.and_then(|(digits, after)| {
            let digits = str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 8).ok()?, after))
        });
        let (byte, after) = byte.unwrap_or((first, after));
        plain.push(byte);
        rest = after;
    }
    plain
}

/// The mount at exactly this place; the uppermost, if several lie over one another.
pub(crate) fn at(point: &Path) -> Option<Mount> {
    all().into_iter().rev().find(|mount| mount.point == point)
}

/// The mounts below this place, by its real path.
pub fn below(point: &Path) -> Vec<PathBuf> {
    let points = all().into_iter().map(|mount| mount.point);
    points
        .filter(|other| other != point && other.starts_with(point))
        .collect()
}

/// Mounts a FUSE file system whose root is a regular file over the file `point`; `fuse` is the number
/// of the open /dev/fuse.
///
/// # Errors
/// Environment.
pub(crate) fn mount_fuse(point: &Path, fuse: i32, max_read: usize) -> Result<(), AttachError> {
    let data = format!("fd={fuse},rootmode=100000,user_id=0,group_id=0,max_read={max_read}\0");
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).ok();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    mount("ashlar", point, "fuse.ashlar", flags, data).map_err(|error| {
        AttachError::environment(format!("cannot mount FUSE at {}: {error}", point.display()))
    })
}

/// Mounts the file system on `device`.
///
/// # Errors
/// Environment.
pub(crate) fn mount_device(
    device: &Path,
    point: &Path,
    kind: &str,
    options: Option<&str>,
    limit: Duration,
) -> Result<(), AttachError> {
    let mut command = Command::new(tool::find("mount", "mount")?);
    command.args(["-t", kind]);
    if let Some(options) = options {
        command.args(["-o", options]);
    }
    tool::succeed(command.arg(device).arg(point), limit).map(|_| ())
}

/// Unmounts, in a process of its own: writing back what is cached may take long, or for ever.
///
/// # Errors
/// Environment: busy, or not done in time.
pub(crate) fn unmount_in_time(point: &Path, limit: Duration) -> Result<(), AttachError> {
    unmount_watched(point, limit, || Ok(()))
}

/// As [`unmount_in_time`], and `watch` is asked now and then whether to wait on.
///
/// # Errors
/// Environment: as for [`unmount_in_time`], and what `watch` says.
pub(crate) fn unmount_watched(
    point: &Path,
    limit: Duration,
    watch: impl FnMut() -> Result<(), AttachError>,
) -> Result<(), AttachError> {
    let mut command = Command::new(tool::find("umount", "mount")?);
    tool::succeed_watched(command.arg(point), limit, watch).map(|_| ())
}

/// Writes back what is cached, in a process of its own, and `watch` is asked now and then whether to wait on. An unmount
/// that is given up is no more in the tree of mounts, whatever it has yet to write; this leaves everything as it was.
///
/// # Errors
/// Environment: it cannot be started, is not done within `limit`, or what `watch` says.
pub(crate) fn write_back_watched(
    point: &Path,
    limit: Duration,
    watch: impl FnMut() -> Result<(), AttachError>,
) -> Result<(), AttachError> {
    let mut command = Command::new(tool::find(WRITE_BACK, "coreutils")?);
    // Of what it complains, the unmount does, too.
    tool::run_watched(command.arg("-f").arg(point), limit, watch).map(|_| ())
}

/// Takes a mount out of the tree without waiting for anything.
pub(crate) fn unmount_lazily(point: &Path) -> rustix::io::Result<()> {
    unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Unmounts a FUSE file; `force` first ends its connection, so that what waits for it gets errors.
pub(crate) fn unmount_fuse(point: &Path, force: bool) -> rustix::io::Result<()> {
    let flags = match force {
        true => UnmountFlags::FORCE | UnmountFlags::NOFOLLOW,
        false => UnmountFlags::NOFOLLOW,
    };
    unmount(point, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_table() {
        let line =
            "36 35 98:0 /x /mnt/a\\040b rw,noatime shared:1 - xfs /dev/loop7 rw,errors=continue";
        let mount = Mount {
            point: "/mnt/a b".into(),
            kind: "xfs".into(),
            source: "/dev/loop7".into(),
            number: "98:0".into(),
        };
        let other = b"35 1 0:50 / /home/u/\xff rw - fuse u\xff rw\n".to_vec();
        let table = [other, line.as_bytes().to_vec()].concat();
        assert_eq!(parse(&table).pop(), Some(mount));
        assert_eq!(parse(&table).len(), 2);
        assert_eq!(parse(b"36 35 98:0"), []);
        assert!(at(Path::new("/proc")).is_some_and(|mount| mount.kind == "proc"));
    }
}
