//! What tells a device or file from another under the same path.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{major, minor};

/// Where a disk's directory in sysfs has what names it in all the world, and how that is called: the best first.
const NAMES: [(&str, &str); 6] = [
    ("wwid", "WWN"),
    ("device/wwid", "WWN"),
    ("dm/uuid", "UUID"),
    ("md/uuid", "UUID"),
    ("serial", "serial number"),
    ("device/serial", "serial number"),
];

/// What tells a block device, or a file, from another under the same path, for people and to be compared. Of a file that
/// is its inode and when it was made: numbers of the file system's device change when a machine starts. `None` when nothing
/// says it.
pub fn identity_of(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    match found.file_type().is_block_device() {
        true => {
            let device = found.rdev();
            let numbers = format!("/sys/dev/block/{}:{}", major(device), minor(device));
            of_disk(&fs::canonicalize(numbers).ok()?)
        }
        false => of_file(&found),
    }
}

fn of_file(found: &Metadata) -> Option<String> {
    let inode = found.is_file().then(|| found.ino())?;
    let made = found.created().ok();
    let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    Some(match made {
        Some(made) => format!(
            "inode {inode} made at {}.{:09}",
            made.as_secs(),
            made.subsec_nanos()
        ),
        None => format!("inode {inode}"),
    })
}

/// By a device's directory in sysfs; a partition's lies in that of its disk.
fn of_disk(directory: &Path) -> Option<String> {
    let start = read(directory.join("start")).filter(|_| directory.join("partition").exists());
    let disk = match &start {
        Some(_) => directory.parent()?,
        None => directory,
    };
    let named = NAMES.iter().find_map(|(file, what)| {
        let name = read(disk.join(file))?;
        Some(format!("{what} {name}"))
    })?;
    Some(match start {
        Some(start) => format!("{named}, from sector {start}"),
        None => named,
    })
}

/// A line of a file, if it says something.
fn read(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_known_by_its_best_name_and_a_partition_by_where_it_begins() {
        let room = tempfile::tempdir().expect("a directory");
        let disk = room.path().join("sdx");
        let partition = disk.join("sdx1");
        fs::create_dir_all(disk.join("device")).expect("made");
        fs::create_dir_all(&partition).expect("made");
        assert_eq!(of_disk(&disk), None);
        fs::write(disk.join("device/serial"), "  S1   a \n").expect("written");
        assert_eq!(of_disk(&disk).as_deref(), Some("serial number S1 a"));
        fs::write(disk.join("wwid"), "\n").expect("written");
        fs::write(disk.join("device/wwid"), "naa.5\n").expect("written");
        assert_eq!(of_disk(&disk).as_deref(), Some("WWN naa.5"));
        fs::write(partition.join("partition"), "1\n").expect("written");
        fs::write(partition.join("start"), "2048\n").expect("written");
        let known = of_disk(&partition);
        assert_eq!(known.as_deref(), Some("WWN naa.5, from sector 2048"));
    }

    #[test]
    fn a_file_is_known_by_another_name_and_another_file_is_not() {
        let room = tempfile::tempdir().expect("a directory");
        let [old, moved] = ["old", "moved"].map(|name| room.path().join(name));
        assert_eq!(identity_of(&old), None);
        fs::write(&old, "1").expect("written");
        let known = identity_of(&old).expect("known");
        fs::rename(&old, &moved).expect("renamed");
        fs::write(&old, "1").expect("written");
        assert_eq!(identity_of(&moved), Some(known.clone()));
        fs::write(&moved, "2").expect("written");
        assert_eq!(identity_of(&moved), Some(known.clone()));
        assert_ne!(identity_of(&old), Some(known));
        assert_eq!(identity_of(room.path()), None);
    }
}
