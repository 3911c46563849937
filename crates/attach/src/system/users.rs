//! Who uses a mount, as /proc tells. Looks at the kernel's tables only, so a hung volume does not
//! hang it.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, major, open, stat};

use super::mounts;

/// A process that uses the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// What it has there.
    pub(crate) what: &'static str,
}

/// Most users that are named.
const NAMED: usize = 5;

/// The processes that use something at or below `point`.
pub(crate) fn of(point: &Path) -> Vec<User> {
    all(|pid| what(pid, point))
}

/// The processes that use something of a disk's file system that was taken out of the tree of mounts while it was
/// in use: the kernel keeps it mounted until they end.
pub(crate) fn of_torn() -> Vec<User> {
    all(torn)
}

/// The processes that have a block device open, or mounted where this process does not see it.
fn of_device(device: &Path) -> Vec<User> {
    let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let own = space("self");
    all(|pid| {
        let mut files = entries(&PathBuf::from(format!("/proc/{pid}/fd")));
        if files.any(|file| fs::read_link(file).is_ok_and(|path| path == device)) {
            return Some("open device");
        }
        let elsewhere = space(&pid.to_string()) != own;
        (elsewhere && mounts::of_process(pid).any(|mount| Path::new(&mount.source) == device))
            .then_some("mounted where it runs")
    })
}

/// Who keeps a block device from going, as a sentence's end; none if that is not seen.
pub(crate) fn holders(device: &Path) -> Option<String> {
    let mounts = mounts::all().into_iter();
    let mounts = mounts.filter(|mount| Path::new(&mount.source) == device);
    let mut holders: Vec<String> = mounts
        .map(|mount| format!("its mount at {}", mount.point.display()))
        .collect();
    let users = of_device(device);
    if !users.is_empty() {
        holders.push(named(&users));
    }
    (!holders.is_empty()).then(|| holders.join(", "))
}

fn all(what: impl Fn(i32) -> Option<&'static str>) -> Vec<User> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut users: Vec<User> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| {
            let what = what(pid)?;
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            Some(User {
                pid,
                name: name.trim().to_owned(),
                what,
            })
        })
        .collect();
    users.sort_by_key(|user| user.pid);
    users
}

/// As a sentence's end: `postgres (pid 7, working directory), …`.
pub(crate) fn named(users: &[User]) -> String {
    let mut names: Vec<String> = users
        .iter()
        .take(NAMED)
        .map(|user| format!("{} (pid {}, {})", user.name, user.pid, user.what))
        .collect();
    if users.len() > NAMED {
        names.push(format!("{} more", users.len() - NAMED));
    }
    names.join(", ")
}

fn what(pid: i32, point: &Path) -> Option<&'static str> {
    let inside = |link: &Path| fs::read_link(link).is_ok_and(|path| path.starts_with(point));
    if let Some(what) = held(pid, inside) {
        return Some(what);
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut mapped = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    mapped
        .any(|path| Path::new(path).starts_with(point))
        .then_some(MAPPED)
}

const MAPPED: &str = "mapped file";

/// What of a process is a link to something of interest.
fn held(pid: i32, is_it: impl Fn(&Path) -> bool) -> Option<&'static str> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    if is_it(&folder.join("cwd")) {
        return Some("working directory");
    }
    if is_it(&folder.join("root")) || is_it(&folder.join("exe")) {
        return Some("program");
    }
    let mut files = entries(&folder.join("fd"));
    files.any(|file| is_it(&file)).then_some("open file")
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

fn torn(pid: i32) -> Option<&'static str> {
    // Names in it are bytes.
    let mounts = fs::read(format!("/proc/{pid}/mountinfo")).ok()?;
    let mounts = String::from_utf8_lossy(&mounts);
    let number = |line: &str| line.split(' ').next()?.parse().ok();
    let mounted: HashSet<u64> = mounts.lines().filter_map(number).collect();
    let is_torn = |link: &Path| {
        // Only of what is in no tree is anything asked that a file system answers: it is cut off from its volume.
        mount_of(link).is_some_and(|mount| !mounted.contains(&mount)) && is_on_a_disk(link)
    };
    held(pid, is_torn).or_else(|| {
        let mut mapped = entries(Path::new(&format!("/proc/{pid}/map_files")));
        mapped.any(|file| is_torn(&file)).then_some(MAPPED)
    })
}

/// The number of the mount that a link leads into; the file is not opened.
fn mount_of(link: &Path) -> Option<u64> {
    let there = open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", there.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

/// Whether a file is one of a block device; pipes, sockets and memory are of the kernel's own, which have no number.
fn is_on_a_disk(link: &Path) -> bool {
    stat(link).is_ok_and(|file| major(file.st_dev) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_open_file_is_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let point = dir.path().canonicalize().expect("it is there");
        assert_eq!(of(&point), []);
        let file = fs::File::create(point.join("x")).expect("a file");
        let users = of(&point);
        assert_eq!(users.len(), 1);
        assert_eq!(users[0].pid, std::process::id() as i32);
        assert!(named(&users).contains("open file"));
        drop(file);
        assert_eq!(of(&point), []);
    }
}
