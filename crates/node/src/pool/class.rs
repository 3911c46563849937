//! The class of a drive whose class was not given.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use ashlar_device::Spec;
use ashlar_store::format::DriveClass;

/// The class of a drive, as far as the kernel tells.
pub(super) fn guess_class(spec: &Spec) -> DriveClass {
    match spec {
        // What injures or writes down what it passes on is of the class of its medium.
        Spec::Recorded(_, medium) | Spec::Faulty(_, medium) => guess_class(medium),
        Spec::Stripe(_, children) => children.first().map_or(DriveClass::Nvme, guess_class),
        Spec::Disk(..) | Spec::Array(..) => DriveClass::Hdd,
        Spec::File(file) => class_at(&file.path),
        _ => DriveClass::Nvme,
    }
}

/// The class of the block device at a path, or of the one that a file's file system is on; SSD if it cannot be
/// told, as of a file in memory.
fn class_at(path: &Path) -> DriveClass {
    // A file that is not there yet will be where its directory is.
    let there = std::fs::metadata(path).or_else(|_| path.parent().unwrap_or(path).metadata());
    let Ok(there) = there else {
        return DriveClass::Ssd;
    };
    let device = match there.file_type().is_block_device() {
        true => there.rdev(),
        false => there.dev(),
    };
    let number = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    class_in(&Path::new("/sys/dev/block").join(number))
}

/// The class of the block device that a directory of sysfs describes. A partition's queue is its disk's.
fn class_in(directory: &Path) -> DriveClass {
    let Ok(real) = directory.canonicalize() else {
        return DriveClass::Ssd;
    };
    let name = real.file_name().and_then(|name| name.to_str());
    if name.is_some_and(|name| name.starts_with("nvme")) {
        return DriveClass::Nvme;
    }
    let queues = [
        real.join("queue/rotational"),
        real.join("../queue/rotational"),
    ];
    let mut found = queues
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok());
    match found.next().as_deref().map(str::trim) {
        Some("1") => DriveClass::Hdd,
        _ => DriveClass::Ssd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_s_class_is_read_from_sysfs() {
        let root = tempfile::tempdir().expect("a directory");
        let disk = |name: &str, rotates: &str| {
            let queue = root.path().join(name).join("queue");
            std::fs::create_dir_all(&queue).expect("a queue");
            std::fs::write(queue.join("rotational"), rotates).expect("a file");
            root.path().join(name)
        };
        let part = disk("sdb", "1\n").join("sdb1");
        std::fs::create_dir(&part).expect("a partition");
        for (directory, class) in [
            (disk("nvme0n1", "0\n"), DriveClass::Nvme),
            (disk("sda", "0\n"), DriveClass::Ssd),
            (disk("sdb", "1\n"), DriveClass::Hdd),
            (part, DriveClass::Hdd),
            (root.path().join("none"), DriveClass::Ssd),
        ] {
            assert_eq!(class_in(&directory), class, "{}", directory.display());
        }
    }
}
