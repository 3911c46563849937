//! PostgreSQL's programs, and whose they are.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ashlar_lab::LabError;

/// Where Debian keeps its versions.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The programs of one version.
#[derive(Debug)]
pub struct Programs {
    dir: PathBuf,
    version: u32,
    /// As whom they run, if we are root: numbers of user and group.
    user: Option<(u32, u32)>,
}

impl Programs {
    /// The newest version's.
    ///
    /// # Errors
    /// There is none.
    pub fn find() -> Result<Self, LabError> {
        let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
        let number = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            name.parse::<u32>().ok()
        };
        let newest = versions
            .map(|entry| entry.path())
            .filter(|path| path.join("bin/initdb").exists())
            .filter_map(|path| Some((number(&path)?, path)))
            .max();
        let Some((version, newest)) = newest else {
            return Err(LabError::environment(format!(
                "there is no PostgreSQL server in {VERSIONS}: install one (Debian: postgresql)"
            )));
        };
        let is_root = rustix::process::getuid().is_root();
        Ok(Self {
            dir: newest.join("bin"),
            version,
            user: is_root.then(|| numbers_of(&["postgres", "nobody"])),
        })
    }

    /// Where they are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// As whom they run, if we are root.
    pub(crate) fn user(&self) -> Option<(u32, u32)> {
        self.user
    }

    /// Which version it is: 15, …
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Makes a file or directory theirs.
    ///
    /// # Errors
    /// It cannot be.
    pub fn give(&self, path: &Path) -> Result<(), LabError> {
        give(path, self.user)
    }

    /// The first folder on the way to a path that they may not enter, as its mode says.
    pub(super) fn closed_to_them<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let (user, group) = self.user?;
        let is_closed = |folder: &&Path| {
            std::fs::metadata(folder).is_ok_and(|meta| {
                let bit = match (meta.uid() == user, meta.gid() == group) {
                    (true, _) => 0o100,
                    (_, true) => 0o010,
                    _ => 0o001,
                };
                meta.mode() & bit == 0
            })
        };
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.into_iter().rev().find(is_closed)
    }

    /// Runs one to its end and gives what it prints; what it complains about is the error.
    pub(super) fn run(&self, program: &str, words: &[&str]) -> Result<String, LabError> {
        let mut command = Command::new(self.dir.join(program));
        command.args(words).current_dir("/").stdin(Stdio::null());
        // What a terminal tells us (Ctrl-C) is not for them: half of a start would leave a server behind.
        command.process_group(0);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        // A server that it starts would keep our pipes open.
        let said = if program == "pg_ctl" {
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
                .status()
                .map(|status| (status, String::new(), String::new()))
        } else {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            let output = command.output();
            output.map(|out| (out.status, text(&out.stdout), text(&out.stderr)))
        };
        let (status, printed, complaint) = said.map_err(|e| LabError::caused(program, e))?;
        if status.success() {
            return Ok(printed);
        }
        let what = words.last().unwrap_or(&"");
        Err(LabError::environment(format!(
            "{program} … {what}: {status} {complaint}"
        )))
    }
}

/// Makes a file or directory a user's and a group's, if we are to run something as these.
pub(super) fn give(path: &Path, owner: Option<(u32, u32)>) -> Result<(), LabError> {
    let Some((user, group)) = owner else {
        return Ok(());
    };
    chown(path, Some(user), Some(group)).map_err(|e| LabError::caused(path.display(), e))
}

/// The numbers of the first of these users that this machine has, and of its group.
pub(crate) fn numbers_of(names: &[&str]) -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let numbers = |name: &&str| {
        let mut lines = users.lines();
        let line = lines.find(|line| line.split(':').next() == Some(*name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    names.iter().find_map(numbers).unwrap_or((65_534, 65_534))
}

/// Whether a process is there, and not only waited for.
pub(crate) fn is_alive(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != 'Z')
}

/// Whether a process has ended, and its parent has not asked how.
pub(super) fn is_unburied(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state == 'Z')
}

/// A process and its children.
pub(super) fn family(pid: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |&other: &u32| state_and_parent(other).is_some_and(|(_, p)| p == pid);
    std::iter::once(pid)
        .chain(numbers.filter(is_child))
        .collect()
}

fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}
