//! Finds processes by where they work, and ends them: also those whose starter was killed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use rustix::process::{Pid, Signal, kill_process};

/// What the processes are called that the lab starts; a shell that merely stands in a folder is left alone.
const PROGRAMS: [&str; 10] = [
    "etcd", "haproxy", "python", "postgres", "pg_", "initdb", "nsenter", "setpriv", "unshare",
    "ashlar",
];
/// Words before a program: the kernel ends it when the thread is gone that has started it.
pub const TIED: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];
/// The same of all that it starts: it is the first process in a world of its own. What is unmounted outside is so there,
/// too, where `/` is shared, as systemd has it.
pub const ALONE: [&str; 8] = [
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "slave",
    "--",
];
/// A process that was killed is gone after so long.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Folders of [`OwnFolder`](ashlar_lab::OwnFolder) below `dir` whose makers are gone: their names hold the processes.
pub fn left_behind(dir: &Path) -> Vec<PathBuf> {
    let is_gone = |pid| state(pid).is_none_or(|state| state == 'Z');
    let mut folders = own_folders(dir);
    folders.retain(|folder| maker(folder).is_some_and(is_gone));
    folders
}

/// All of them, also those whose makers are there.
pub(crate) fn own_folders(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path());
    folders.filter(|folder| maker(folder).is_some()).collect()
}

fn maker(folder: &Path) -> Option<u32> {
    let name = folder.file_name()?.to_str()?;
    let (pid, _) = name.strip_prefix("ashlar-")?.split_once('-')?;
    pid.parse().ok()
}

/// What is done to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// They end at once.
    Kill,
    /// They stand still.
    Stop,
    /// They go on.
    Continue,
}

impl Sign {
    fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Continue => Signal::CONT,
        }
    }
}

/// Starts a program that outlives what starts it, and is found again by the folder in which it works.
///
/// # Errors
/// It cannot be started.
pub fn start(command: &mut Command) -> Result<(), LabError> {
    start_with(command, Stdio::null())
}

/// The same of a program that is given something as its standard input.
pub(crate) fn start_with(command: &mut Command, stdin: Stdio) -> Result<(), LabError> {
    // A terminal's Ctrl-C is for the starter, which ends this in order.
    command.stdin(stdin).process_group(0);
    let child = command
        .spawn()
        .map_err(|error| LabError::caused(command.get_program().display(), error))?;
    // Its end is looked for in /proc; here it is only buried.
    let bury = move || drop({ child }.wait());
    std::thread::Builder::new()
        .name("bury".into())
        .spawn(bury)
        .map(drop)
        .map_err(|error| LabError::caused("a thread", error))
}

/// Other processes that work in one of these folders or below.
pub fn working_in(folders: &[PathBuf]) -> Vec<u32> {
    others(|pid| is_in(pid, folders))
}

/// Other processes whose network is that of a namespace, whatever they are.
pub(crate) fn in_network(namespace: &Path) -> Vec<u32> {
    use std::os::unix::fs::MetadataExt;
    let number = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|file| (file.dev(), file.ino()))
    };
    let Some(wanted) = number(namespace) else {
        return Vec::new();
    };
    others(|pid| {
        let its = number(Path::new(&format!("/proc/{pid}/ns/net")));
        its == Some(wanted) && state(pid) != Some('Z')
    })
}

/// Whether a process is what has begun a world of its own ([`ALONE`]) and waits for its end.
pub fn has_begun_world(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    program.ends_with(ALONE[0])
}

/// Processes in worlds of their own ([`ALONE`]) that what works in one of these folders has begun, wherever they work.
pub fn in_worlds_of(folders: &[PathBuf]) -> Vec<u32> {
    let of = |pid: &str, what: &str| std::fs::read_link(format!("/proc/{pid}/ns/{what}")).ok();
    let own = of("self", "pid");
    let begun = working_in(folders).into_iter();
    let begun = begun.filter_map(|pid| of(&pid.to_string(), "pid_for_children"));
    let begun: Vec<PathBuf> = begun.filter(|one| own.as_ref() != Some(one)).collect();
    others(|pid| {
        let its = of(&pid.to_string(), "pid");
        its.is_some_and(|its| begun.contains(&its)) && state(pid) != Some('Z')
    })
}

fn others(is_one: impl Fn(u32) -> bool) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = std::process::id();
    numbers.filter(|&pid| pid != own && is_one(pid)).collect()
}

fn is_in(pid: u32, folders: &[PathBuf]) -> bool {
    let Ok(place) = std::fs::read_link(format!("/proc/{pid}/cwd")) else {
        return false;
    };
    // A folder that was removed under it has this behind its name.
    let text = place.to_string_lossy();
    let place = Path::new(text.trim_end_matches(" (deleted)"));
    folders.iter().any(|folder| place.starts_with(folder))
        && is_ours(pid)
        && state(pid) != Some('Z')
}

fn is_ours(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    is_one(&program, std::env::current_exe().ok().as_deref())
}

/// One of those, or this program, by whatever name it was installed.
fn is_one(program: &Path, own: Option<&Path>) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    own == Some(program) || PROGRAMS.iter().any(|ours| name.starts_with(ours))
}

/// Whether a process is a program in Python.
pub(crate) fn is_python(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("python")
}

/// The kernel's letter for what a process is at; none if there is no such process.
pub fn state(pid: u32) -> Option<char> {
    stat(pid, 0)?.chars().next()
}

/// A process's parent.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid, 1)?.parse().ok()
}

/// A word of what the kernel says of a process, behind its name.
fn stat(pid: u32, index: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, words) = stat.rsplit_once(')')?;
    words.split_whitespace().nth(index).map(str::to_owned)
}

/// Does it to all of them, and to those that they start meanwhile.
pub fn signal(folders: &[PathBuf], sign: Sign) {
    signal_all(&|| working_in(folders), sign);
}

fn signal_all(find: &dyn Fn() -> Vec<u32>, sign: Sign) {
    let mut seen = 0;
    // Twice the same number: none was started between.
    loop {
        let found = find();
        for &pid in &found {
            // One that has ended meanwhile is as good.
            let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, sign.signal()));
        }
        if found.len() == seen {
            return;
        }
        seen = found.len();
    }
}

/// Ends all of them, and waits until they are gone.
///
/// # Errors
/// One does not go.
pub fn end(folders: &[PathBuf]) -> Result<(), LabError> {
    end_all(&|| working_in(folders))
}

/// Ends all that are found, again and again, and waits until none is.
///
/// # Errors
/// One does not go.
pub fn end_all(find: &dyn Fn() -> Vec<u32>) -> Result<(), LabError> {
    let begun = Instant::now();
    loop {
        signal_all(find, Sign::Kill);
        let left = find();
        match left.first() {
            None => return Ok(()),
            Some(pid) if begun.elapsed() > GONE_WITHIN => {
                return Err(LabError::environment(format!("process {pid} does not end")));
            }
            Some(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_found_by_whatever_name() {
        let of = |program: &str, own: &str| is_one(Path::new(program), Some(Path::new(own)));
        assert!(of("/opt/storage-1.2", "/opt/storage-1.2"));
        assert!(of("/usr/bin/etcd", "/opt/storage-1.2"));
        assert!(!of("/bin/bash", "/opt/storage-1.2"));
    }
}
