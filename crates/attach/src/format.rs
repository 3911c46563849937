//! File systems: which one a volume holds, and making one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ashlar_device::inspect;

use crate::error::AttachError;
use crate::system::tool;

const LOOK: Duration = Duration::from_secs(60);
const MAKE: Duration = Duration::from_secs(600);

/// A file system that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// XFS.
    Xfs,
    /// ext4.
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

/// Makes a file system on an empty device; on another only if what it holds may be destroyed.
///
/// # Errors
/// Usage: it holds something. Environment: it cannot be looked at, or mkfs fails.
pub(crate) fn make(
    (device, volume): (&Path, &str),
    wanted: FileSystem,
    destroy_data: bool,
) -> Result<String, AttachError> {
    if !destroy_data {
        let found = inspect(device).map_err(|error| AttachError::environment(error.to_string()))?;
        if let Some(finding) = found {
            return Err(AttachError::usage(format!(
                "{volume} is not formatted: it {}; leave --fs out to mount what is there, or say \
                 --destroy-data",
                finding.text
            )));
        }
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

/// The file system on a device.
///
/// # Errors
/// Usage: there is none. Environment: it cannot be looked at.
pub(crate) fn find((device, volume): (&Path, &str)) -> Result<String, AttachError> {
    let mut command = Command::new(tool::find("blkid", "util-linux")?);
    command.args(["-p", "-s", "TYPE", "-s", "USAGE", "-o", "export"]);
    let ended = tool::run(command.arg(device), LOOK)?;
    let value = |key: &str| {
        let mut lines = ended.out.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    match (ended.code, value("TYPE"), value("USAGE")) {
        (Some(0), Some(kind), Some("filesystem")) => Ok(kind.to_owned()),
        (Some(0), Some(kind), _) => Err(AttachError::usage(format!(
            "{volume} holds {kind}, which is no file system"
        ))),
        (Some(0 | 2), ..) => Err(AttachError::usage(format!(
            "{volume} holds no file system; say --fs xfs or --fs ext4 to make one"
        ))),
        (Some(8), ..) => Err(AttachError::environment(format!(
            "{volume} holds several file systems' labels at once"
        ))),
        _ => Err(AttachError::environment(format!(
            "blkid {}: {}",
            device.display(),
            ended.complaint
        ))),
    }
}
