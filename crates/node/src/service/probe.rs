//! Whether a mounted volume takes writes.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};

/// A file in each mounted volume, written to see whether it takes writes.
pub(super) const PROBE: &str = ".ashlar-service";

/// Whether a volume that takes writes has room for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Left,
    /// Its file system is full: a matter of those who write to it, and as full on any other node.
    None,
}

/// Writes durably to what is mounted there; waits for as long as it makes it wait. What an operator should know of it.
pub(super) fn probe(volume: &str, mount: &Path) -> Result<Option<String>, String> {
    let failed = |error: std::io::Error| format!("volume {volume} takes no writes: {error}");
    let root = root_of(mount).map_err(failed)?;
    let mount = mount.display();
    let Some(root) = root else {
        return Err(format!(
            "volume {volume} is not mounted on {mount} any more"
        ));
    };
    Ok(match write_to(&root).map_err(failed)? {
        Room::Left => None,
        Room::None => Some(format!(
            "the file system on {mount} (volume {volume}) is full"
        )),
    })
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
fn write_to(root: &OwnedFd) -> std::io::Result<Room> {
    // In place: where it is once, it needs no more room.
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, PROBE, flags, Mode::from(0o644));
    let written = file.map_err(std::io::Error::from).and_then(|file| {
        let file = File::from(file);
        let words = b"written by ashlar, to see whether this volume takes writes\n";
        file.write_all_at(words, 0).map(|()| file)
    });
    match written {
        // What was taken, and finds no room on its way to the volume, is lost: that is an error.
        Ok(file) => file.sync_data().map(|()| Room::Left),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded
            ) =>
        {
            Ok(Room::None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::{PROBE, probe, root_of, write_to};

    /// False, and said so, without the right to mount.
    fn can_mount(at: &std::path::Path) -> bool {
        let mounted = mount("none", at, "tmpfs", MountFlags::empty(), c"size=64k");
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

    #[test]
    fn a_full_file_system_is_no_fault_of_its_volume_and_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path();
        if !can_mount(at) {
            return;
        }
        let fill = || std::fs::write(at.join("all"), vec![1; 1 << 20]);
        assert!(fill().is_err(), "it is smaller");
        let told = probe("tank/v", at).expect("it takes no less than before");
        assert!(told.is_some_and(|told| told.contains("(volume tank/v) is full")));
        std::fs::remove_file(at.join("all")).expect("removed");
        assert_eq!(probe("tank/v", at), Ok(None));
        std::fs::write(at.join(PROBE), [0; 4096]).expect("there is room");
        assert!(fill().is_err());
        assert_eq!(probe("tank/v", at), Ok(None));
        let length = at.join(PROBE).metadata().map(|file| file.len());
        assert!(
            length.is_ok_and(|length| length == 4096),
            "written in place"
        );
        unmount(at, UnmountFlags::DETACH).expect("detached");
    }
}
