//! The kernel's connections to FUSE servers, which it names by the minor number of their file systems.

use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use serde::{Deserialize, Serialize};

use super::mounts;
use crate::error::AttachError;

/// One connection. The number is used again when the file system is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FuseConnection(u32);

impl FuseConnection {
    /// That of the FUSE file mounted at `point`.
    pub(crate) fn at(point: &Path) -> Option<Self> {
        Self::of_number(&mounts::at(point)?.number)
    }

    /// From the kernel's `MAJOR:MINOR`; file systems without a device have major number 0.
    pub(crate) fn of_number(number: &str) -> Option<Self> {
        number.strip_prefix("0:")?.parse().ok().map(Self)
    }

    /// Ends it, so that all that waits for the server fails; nothing to do if it is gone. This needs no path
    /// to the file: a mount of fusectl that no other process sees is enough.
    ///
    /// # Errors
    /// Environment.
    pub(crate) fn abort(self) -> Result<(), AttachError> {
        match self.try_abort() {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(AttachError::environment(format!(
                "cannot end FUSE connection {}: {error}",
                self.0
            ))),
        }
    }

    fn try_abort(self) -> rustix::io::Result<()> {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let all = fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::empty(),
        )?;
        let name = format!("{}/abort", self.0);
        let abort = openat(&all, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&abort, b"1").map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_with_a_device_has_no_connection() {
        assert_eq!(FuseConnection::of_number("0:45"), Some(FuseConnection(45)));
        assert_eq!(FuseConnection::of_number("98:0"), None);
        assert_eq!(FuseConnection::of_number("0:x"), None);
    }
}
