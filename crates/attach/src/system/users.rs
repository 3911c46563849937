//! Who uses a mount, as /proc tells. Looks at the kernel's tables only, so a hung volume does not
//! hang it.

use std::fs;
use std::path::{Path, PathBuf};

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
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut users: Vec<User> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| {
            let what = what(pid, point)?;
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
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let inside = |link: PathBuf| fs::read_link(link).is_ok_and(|path| path.starts_with(point));
    if inside(folder.join("cwd")) {
        return Some("working directory");
    }
    if inside(folder.join("root")) || inside(folder.join("exe")) {
        return Some("program");
    }
    let files = fs::read_dir(folder.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    if files.into_iter().any(|entry| inside(entry.path())) {
        return Some("open file");
    }
    let maps = fs::read_to_string(folder.join("maps")).unwrap_or_default();
    let mut mapped = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    mapped
        .any(|path| Path::new(path).starts_with(point))
        .then_some("mapped file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_a_file_open_is_found() {
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
