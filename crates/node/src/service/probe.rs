//! Whether a mounted volume takes writes.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};

/// A file in each mounted volume, written to see whether it takes writes.
pub(super) const PROBE: &str = ".ashlar-service";

/// Writes durably to what is mounted there; waits for as long as it makes it wait.
pub(super) fn probe(volume: &str, mount: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("volume {volume} takes no writes: {error}");
    match root_of(mount).map_err(failed)? {
        Some(root) => write_to(&root).map_err(failed),
        None => Err(format!(
            "volume {volume} is not mounted on {} any more",
            mount.display()
        )),
    }
}

/// The root of the file system that is mounted there, if one is.
fn root_of(mount: &Path) -> std::io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(mount, flags, Mode::empty())?;
    let stat = rustix::fs::statx(&root, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    let is_root = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(is_root.then_some(root))
}

/// By the root, not by the path: a file that lands in the bare directory after an unmount would forbid the next mount.
fn write_to(root: &OwnedFd) -> std::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(root, PROBE, flags, Mode::from(0o644))?);
    file.write_all(b"written by ashlar, to see whether this volume takes writes\n")?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::{PROBE, probe, root_of, write_to};

    /// False, and said so, without the right to mount.
    fn can_mount(at: &std::path::Path) -> bool {
        let mounted = mount("none", at, "tmpfs", MountFlags::empty(), None);
        let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(mounted.is_ok() || !is_ci, "no mount: {mounted:?}");
        if let Err(error) = mounted {
            eprintln!("SKIPPED: this test mounts a tmpfs: {error}");
        }
        mounted.is_ok()
    }

    #[test]
    fn a_volume_that_is_unmounted_under_a_probe_leaves_its_directory_empty() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path();
        let is_empty = || std::fs::read_dir(at).expect("readable").next().is_none();
        assert!(probe("tank/v", at).is_err_and(|why| why.contains("not mounted")));
        if !can_mount(at) {
            return;
        }
        probe("tank/v", at).expect("it takes writes");
        assert!(at.join(PROBE).exists());
        let root = root_of(at).expect("readable").expect("mounted");
        unmount(at, UnmountFlags::DETACH).expect("detached");
        write_to(&root).expect("the file system is still there");
        assert!(is_empty(), "the bare directory has a file");
    }
}
