//! File systems: which one a volume holds, and making one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::error::AttachError;
use crate::system::tool;

const LOOK: Duration = Duration::from_secs(60);
/// What is read of each place, and how many places, before anything else: what holds something mostly has
/// something there.
const PLACE_BYTES: usize = 4096;
const PLACES: u64 = 256;
/// What is read at both ends, where labels are; and at a time of all the rest.
const END_BYTES: usize = 1 << 20;
/// How long reading all of a device may take, and after how long its pace tells.
const READ_ALL: Duration = Duration::from_secs(240);
const PACE_TELLS: Duration = Duration::from_secs(10);
const MAKE: Duration = Duration::from_secs(600);

/// A file system that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// XFS.
    Xfs,
    Ext4,
}

impl FileSystem {
    fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
        }
    }

    fn tool(self) -> (&'static str, &'static str) {
        match self {
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
        }
    }

    /// Whether it can be made here.
    pub(crate) fn check(self) -> Result<(), AttachError> {
        let (name, package) = self.tool();
        tool::find(name, package).map(|_| ())
    }
}

/// What becomes of what a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// It may be destroyed.
    Destroyed,
    /// It is kept: nothing is formatted that is not empty.
    Kept {
        /// Bytes of it that its owner knows of; without one, all of it is read.
        used: Option<u64>,
    },
}

/// Makes a file system on an empty device; on another only if what it holds may be destroyed.
///
/// # Errors
/// Usage: it holds something. Environment: it cannot be looked at, or mkfs fails.
pub(crate) fn make(
    device: &Path,
    volume: &str,
    wanted: FileSystem,
    content: Content,
) -> Result<String, AttachError> {
    let destroy_data = content == Content::Destroyed;
    if let Content::Kept { used } = content
        && let Some(found) = holds(device, used)?
    {
        return Err(AttachError::usage(format!(
            "{volume} is not formatted: it holds {found}; leave --fs out to mount what is there, or \
             say --destroy-data"
        )));
    }
    let (name, package) = wanted.tool();
    let mut command = Command::new(tool::find(name, package)?);
    // What is empty reads as zeroes and need not be discarded; what is not is overwritten.
    match (wanted, destroy_data) {
        (FileSystem::Xfs, false) => command.args(["-q", "-K"]),
        (FileSystem::Xfs, true) => command.args(["-q", "-f"]),
        (FileSystem::Ext4, false) => command.args(["-q", "-F", "-E", "nodiscard"]),
        (FileSystem::Ext4, true) => command.args(["-q", "-F"]),
    };
    tool::succeed(command.arg(device), MAKE)?;
    Ok(wanted.name().into())
}

/// What blkid knows a device's content by.
struct Label {
    kind: String,
    is_file_system: bool,
}

/// Asks blkid.
///
/// # Errors
/// Environment: it cannot look, or finds several labels that contradict each other.
fn label(device: &Path) -> Result<Option<Label>, AttachError> {
    let mut command = Command::new(tool::find("blkid", "util-linux")?);
    command.args(["-p", "-o", "export"]);
    let ended = tool::run(command.arg(device), LOOK)?;
    let value = |key: &str| {
        let mut lines = ended.out.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.map(str::to_owned)
    };
    let failed = |why: &str| AttachError::environment(format!("{}: {why}", device.display()));
    match ended.code {
        Some(0) => {
            let table = || value("PTTYPE").map(|table| format!("a partition table ({table})"));
            let is_file_system = value("USAGE").is_some_and(|usage| usage == "filesystem");
            Ok(value("TYPE").or_else(table).map(|kind| Label {
                kind,
                is_file_system,
            }))
        }
        Some(2) => Ok(None),
        Some(8) => Err(failed("it holds several labels at once")),
        _ => Err(failed(&format!("blkid: {}", ended.complaint))),
    }
}

/// What is on the device, if it is not empty: as far as can be seen without reading all of it and as its owner
/// knows, or by reading all of it.
fn holds(device: &Path, used: Option<u64>) -> Result<Option<String>, AttachError> {
    if let Some(label) = label(device)? {
        return Ok(Some(label.kind));
    }
    let failed = |error: io::Error| {
        AttachError::environment(format!("cannot look at {}: {error}", device.display()))
    };
    let data = match first_data(device).map_err(failed)? {
        None if used.is_none() => return all_of(device).map_err(failed),
        data => data,
    };
    let known = used.filter(|&used| used > 0);
    let known = known.map(|used| format!("{used} bytes"));
    Ok(data.map(not_zero).or(known))
}

fn not_zero(at: u64) -> String {
    format!("data: byte {at} is not zero")
}

/// What a device holds whose owner cannot be asked.
fn all_of(device: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(device)?;
    let size = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    let began = Instant::now();
    let mut buffer = vec![0; END_BYTES];
    let mut at = 0;
    loop {
        let length = file.read_at(&mut buffer, at)?;
        if length == 0 {
            return Ok(None);
        }
        let takes = takes(began.elapsed(), at, size);
        if takes > READ_ALL {
            return Ok(Some(format!(
                "something unknown: nothing was found in its first {at} bytes, and to read all of it would take {} s",
                takes.as_secs()
            )));
        }
        if let Some(inside) = buffer[..length].iter().position(|&byte| byte != 0) {
            return Ok(Some(not_zero(at + inside as u64)));
        }
        at += length as u64;
    }
}

/// How long reading all of a device takes at the pace of what was read; as long as it has, while that does not tell.
fn takes(spent: Duration, read: u64, size: u64) -> Duration {
    let factor = size.max(read) as f64 / read.max(1) as f64;
    match spent < PACE_TELLS {
        true => spent,
        false => Duration::try_from_secs_f64(spent.as_secs_f64() * factor).unwrap_or(Duration::MAX),
    }
}

/// A byte that is not zero: at the ends, or at one of many places between them.
fn first_data(device: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(device)?;
    let end = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    let ends = [0, end.saturating_sub(END_BYTES as u64)].map(|at| (at, END_BYTES));
    let stride = (end / PLACES).next_multiple_of(PLACE_BYTES as u64).max(1);
    let places = (0..end)
        .step_by(stride as usize)
        .map(|at| (at, PLACE_BYTES));
    let mut buffer = vec![0; END_BYTES];
    for (at, length) in ends.into_iter().chain(places) {
        let length = length.min(usize::try_from(end - at).unwrap_or(length));
        file.read_exact_at(&mut buffer[..length], at)?;
        if let Some(inside) = buffer[..length].iter().position(|&byte| byte != 0) {
            return Ok(Some(at + inside as u64));
        }
    }
    Ok(None)
}

/// The file system on a device.
///
/// # Errors
/// Usage: there is none. Environment: it cannot be looked at.
pub(crate) fn find(device: &Path, volume: &str) -> Result<String, AttachError> {
    match label(device)? {
        Some(label) if label.is_file_system => Ok(label.kind),
        Some(label) => Err(AttachError::usage(format!(
            "{volume} holds {}, which is no file system",
            label.kind
        ))),
        None => Err(AttachError::usage(format!(
            "{volume} holds no file system; say --fs xfs or --fs ext4 to make one"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_anywhere_at_the_ends_is_seen() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("device");
        let file = File::create(&path).expect("a file");
        let size = 64 << 20;
        file.set_len(size).expect("a sparse file");
        assert_eq!(first_data(&path).expect("read"), None);
        for at in [1, 777_777, size / 2, size - 700_000, size - 1] {
            file.write_all_at(b"x", at).expect("written");
            assert_eq!(first_data(&path).expect("read"), Some(at));
            file.write_all_at(b"\0", at).expect("written");
        }
    }

    #[test]
    fn what_only_its_owner_knows_of_is_not_formatted() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("device");
        let file = File::create(&path).expect("a file");
        file.set_len(64 << 20).expect("a sparse file");
        assert_eq!(holds(&path, Some(0)).expect("looked at"), None);
        let error = make(
            &path,
            "tank/db",
            FileSystem::Ext4,
            Content::Kept { used: Some(65536) },
        );
        let error = error.expect_err("it holds something").to_string();
        assert!(
            error.contains("tank/db") && error.contains("65536 bytes"),
            "{error}"
        );
    }

    #[test]
    fn without_an_owner_to_ask_all_of_it_is_looked_at() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("device");
        let file = File::create(&path).expect("a file");
        file.set_len(64 << 20).expect("a sparse file");
        assert_eq!(holds(&path, None).expect("looked at"), None);
        // Between the places that are looked at first.
        let at = (32 << 20) + 5_000;
        file.write_all_at(b"x", at).expect("written");
        assert_eq!(first_data(&path).expect("read"), None);
        let found = holds(&path, None).expect("looked at");
        assert_eq!(found, Some(not_zero(at)));
    }

    #[test]
    fn a_device_is_read_as_a_whole_if_its_pace_allows() {
        let after = |seconds, read| takes(Duration::from_secs(seconds), read, 1 << 30);
        assert!(after(9, 1 << 20) < READ_ALL);
        assert!(after(10, 1 << 20) > READ_ALL);
        assert!(after(11, 0) > READ_ALL);
        assert_eq!(after(60, 1 << 29), Duration::from_secs(120));
        assert!(after(241, 1 << 30) > READ_ALL, "one that grows");
    }
}
