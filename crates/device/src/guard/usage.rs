//! Who uses a device or file, as /proc and /sys tell.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, stat};

use super::{Finding, FindingKind};

/// Anything that uses the block device, its partitions included.
pub(super) fn of_device(device: u64) -> Option<Finding> {
    let directory = PathBuf::from(format!("/sys/dev/block/{}", number(device)));
    let partitions = partitions(&directory);
    used(device, &directory, "")
        .or_else(|| {
            partitions.iter().find_map(|partition| {
                let device = fs::read_to_string(partition.join("dev")).ok()?;
                let device = parse_number(device.trim())?;
                let name = partition.file_name()?.to_string_lossy().into_owned();
                used(device, partition, &format!("its partition {name} "))
            })
        })
        .or_else(|| {
            let names: Vec<_> = partitions
                .iter()
                .filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned()))
                .collect();
            let text = format!("has partitions: {}", names.join(", "));
            (!names.is_empty()).then(|| Finding::new(FindingKind::Partitions, text))
        })
}

/// Anything that uses the file as a device.
pub(super) fn of_file(path: &Path) -> Option<Finding> {
    let path = fs::canonicalize(path).ok()?;
    if swaps().contains(&path) {
        return Some(Finding::new(FindingKind::Swap, "is used as swap"));
    }
    attached(&path)
}

fn used(device: u64, directory: &Path, whose: &str) -> Option<Finding> {
    mounted(device, whose)
        .or_else(|| {
            let swap = swaps()
                .iter()
                .any(|path| stat(path).is_ok_and(|s| s.st_rdev == device));
            swap.then(|| Finding::new(FindingKind::Swap, format!("{whose}is used as swap")))
        })
        .or_else(|| {
            let holder = fs::read_dir(directory.join("holders"))
                .ok()?
                .flatten()
                .next()?;
            let name = holder.file_name();
            let text = format!("{whose}is part of /dev/{}", name.to_string_lossy());
            Some(Finding::new(FindingKind::InUse, text))
        })
        .or_else(|| {
            let name = fs::canonicalize(directory).ok()?;
            attached(&Path::new("/dev").join(name.file_name()?))
        })
}

/// The loop device that the file or device is attached to, and where that is mounted.
fn attached(path: &Path) -> Option<Finding> {
    let devices = fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        if Path::new(backing.trim_end_matches('\n')) != path {
            return None;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let device = fs::read_to_string(entry.path().join("dev")).ok();
        let device = device.and_then(|text| parse_number(text.trim()));
        let whose = format!("is attached as /dev/{name}, which ");
        let further = device.and_then(|device| mounted(device, &whose));
        let text = format!("is attached as /dev/{name}");
        Some(further.unwrap_or_else(|| Finding::new(FindingKind::InUse, text)))
    })
}

/// Where a file system on the device is mounted: by device number, or by name for those (btrfs)
/// that mount under a number of their own.
fn mounted(device: u64, whose: &str) -> Option<Finding> {
    // Names in it are bytes, which any user who may mount something chooses.
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let mounts = String::from_utf8_lossy(&mounts);
    let number = number(device);
    let point = mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let words: Vec<&str> = mount.split(' ').collect();
        let source = source.split(' ').nth(1).unwrap_or("");
        let by_name =
            || source.starts_with("/dev/") && stat(source).is_ok_and(|s| s.st_rdev == device);
        (words.get(2) == Some(&number.as_str()) || by_name())
            .then(|| words.get(4).map(|point| unescape(point)))?
    })?;
    let text = format!("{whose}is mounted on {point}");
    Some(Finding::new(FindingKind::Mounted, text))
}

/// Undoes the kernel's octal escapes for blanks.
fn unescape(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

fn swaps() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let lines = text.lines().skip(1);
    lines
        .filter_map(|line| line.split_whitespace().next())
        .map(|path| PathBuf::from(unescape(path)))
        .collect()
}

fn partitions(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.join("partition").exists())
        .collect();
    all.sort();
    all
}

fn number(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}
