//! The processes of a service: a cgroup of its own, which all that it starts stays in. Of version 2 where one is mounted,
//! otherwise that of version 1 which counts processes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::mounts;
use crate::model::ControlError;

/// Processes that were killed are gone after so long; one that waits for a volume that hangs is not.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// What has no processes can be taken away after so long, or is kept by something else.
const FREE_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A service's cgroup.
#[derive(Clone, Debug)]
pub(super) struct Group {
    dir: PathBuf,
}

impl Group {
    /// That of a service of the daemon with this directory, which can be made. It is there from before the service's
    /// first mount until after its last: so it says whether a daemon that is gone has mounted what is there.
    pub(super) fn of_service(daemon: &Path, service: &str) -> Result<Self, ControlError> {
        let group = Self::of(daemon, service)?;
        if !group.is_there() {
            group.ensure().map_err(ControlError::environment)?;
            group.remove();
        }
        Ok(group)
    }

    pub(super) fn is_there(&self) -> bool {
        self.dir.exists()
    }

    fn of(daemon: &Path, service: &str) -> Result<Self, ControlError> {
        // Two daemons of one machine have two groups of one name.
        let name = format!("ashlar-{:08x}-{service}", number(daemon));
        let dir = root()?.join(name);
        Ok(Self { dir })
    }

    /// One that has been made.
    pub(super) fn at(dir: &Path) -> Self {
        Self { dir: dir.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    /// It is there: one that was emptied is taken away.
    pub(super) fn ensure(&self) -> Result<(), String> {
        match std::fs::create_dir(&self.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(format!("{} cannot be made: {error}", self.dir.display()))
            }
            _ => Ok(()),
        }
    }

    /// What a process writes its number into to be in it.
    pub(super) fn entrance(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Puts a process into it.
    pub(super) fn enter(&self, pid: u32) -> Result<(), String> {
        let entrance = self.entrance();
        let entered = std::fs::write(&entrance, pid.to_string());
        entered.map_err(|error| format!("{}: {error}", entrance.display()))
    }

    fn processes(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.entrance()).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    }

    /// Whether it has processes: one that has ended, and that its parent has not asked for, is none.
    pub(super) fn is_alive(&self) -> bool {
        self.processes().into_iter().any(|pid| !is_ended(pid))
    }

    /// Tells all of them to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills all of them, as often as `kill` does, and waits until they are gone.
    ///
    /// # Errors
    /// One does not go, or what `kill` says.
    pub(super) fn kill_by(&self, kill: impl Fn() -> Result<(), String>) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            kill()?;
            if !self.is_alive() {
                return Ok(());
            }
            if begun.elapsed() > GONE_WITHIN {
                return Err(self.stays());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn stays(&self) -> String {
        let left = self.processes();
        let first = left.first().unwrap_or(&0);
        format!("process {first} was killed and does not end")
    }

    /// Kills all of them, and takes it away. What enters meanwhile is killed, too; what comes later finds nothing to
    /// enter.
    ///
    /// # Errors
    /// A process does not go.
    pub(super) fn end(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            self.signal_kill();
            if self.remove() {
                return Ok(());
            }
            let is_alive = self.is_alive();
            let patience = if is_alive { GONE_WITHIN } else { FREE_WITHIN };
            if begun.elapsed() > patience {
                return if is_alive { Err(self.stays()) } else { Ok(()) };
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Kills all of them, and waits for none: what waits for a volume that hangs is not gone yet.
    pub(super) fn signal_kill(&self) {
        // All at once, where the kernel can; otherwise those that are there now.
        if std::fs::write(self.dir.join("cgroup.kill"), "1").is_err() {
            self.signal(Signal::KILL);
        }
    }

    fn signal(&self, signal: Signal) {
        for pid in self.processes() {
            // One that has ended meanwhile is as good.
            let _ = i32::try_from(pid)
                .ok()
                .and_then(Pid::from_raw)
                .map(|pid| kill_process(pid, signal));
        }
    }

    /// Takes an empty one away; whether it is gone.
    pub(super) fn remove(&self) -> bool {
        let _ = std::fs::remove_dir(&self.dir);
        !self.dir.exists()
    }
}

/// Ends what a service has left of a daemon that is gone, which had this directory.
///
/// # Errors
/// A process does not go.
pub fn end_left_behind(daemon: &Path, service: &str) -> Result<(), ControlError> {
    // Where none can be made, none is left.
    match Group::of(daemon, service) {
        Ok(group) if group.dir.exists() => group.end().map_err(ControlError::environment),
        _ => Ok(()),
    }
}

fn is_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| is_end(&stat))
}

/// Whether a process of which the kernel says this has ended, with all its threads: the state is that of the first,
/// and another one may still wait for a write.
fn is_end(stat: &str) -> bool {
    // Fields 3, the state, and 20, the number of threads; the second is a name, and may have anything in it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = rest.split_whitespace();
    let (state, threads) = (fields.next(), fields.nth(16));
    let threads = threads.and_then(|threads| threads.parse().ok());
    matches!(state, Some("Z" | "X")) && threads.unwrap_or(0) <= 1
}

fn number(of: &Path) -> u32 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() as u32
}

/// Where cgroups are made.
fn root() -> Result<PathBuf, ControlError> {
    let mounts = mounts::table().map_err(ControlError::environment)?;
    let second = mounts.iter().find(|one| one.kind == "cgroup2");
    let first = || {
        mounts
            .iter()
            .find(|one| one.kind == "cgroup" && one.has("pids"))
    };
    let found = second.or_else(first).map(|one| one.place.clone());
    found.ok_or_else(|| {
        ControlError::environment("there is no cgroup of version 2, nor one of version 1 with `pids`: none can hold a service")
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_has_ended_when_all_its_threads_have() {
        let stat = |state: &str, threads: u32| {
            format!("5 (a) Z b) {state} 1 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 99 0 0")
        };
        for (state, threads, has_ended) in [
            ("S", 1, false),
            ("D", 4, false),
            ("Z", 1, true),
            ("Z", 2, false),
            ("X", 0, true),
        ] {
            assert_eq!(
                is_end(&stat(state, threads)),
                has_ended,
                "{state} {threads}"
            );
        }
        // As the kernel says it, of a process and of one that has ended.
        let own = std::fs::read_to_string("/proc/self/stat").expect("readable");
        assert!(!is_end(&own) && !is_ended(std::process::id()));
        let mut child = Command::new("true").spawn().expect("true");
        let begun = Instant::now();
        while !is_ended(child.id()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().expect("ours");
        assert!(is_ended(child.id()));
    }

    const ENTER: &str = "echo $$ > \"$0\" &&";

    fn made(daemon: &Path, service: &str) -> Group {
        let group = Group::of_service(daemon, service).expect("a cgroup");
        assert!(!group.is_there(), "nothing is mounted");
        group.ensure().expect("made");
        group
    }

    #[test]
    fn all_that_a_command_has_started_is_killed_with_it() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let group = made(dir.path(), "test");
        assert!(!group.is_alive());
        let line = format!(
            "echo $$ > {}; sleep 100 & sleep 101 & wait",
            group.entrance().display()
        );
        let mut shell = Command::new("sh").args(["-c", &line]).spawn().expect("sh");
        let begun = Instant::now();
        while group.processes().len() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(20), "three processes");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(group.is_alive());
        group.signal_kill();
        group.kill_by(|| Ok(())).expect("killed");
        assert!(!group.is_alive());
        shell.wait().expect("ours");
        for _ in 0..2 {
            end_left_behind(dir.path(), "test").expect("taken away");
            assert!(!group.dir.exists());
        }
    }

    #[test]
    fn what_enters_while_it_is_taken_away_is_killed_and_what_comes_later_does_nothing() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("ran");
        let line = format!(
            "sleep 0.03; {ENTER} {{ touch {}; sleep 60; }}",
            file.display()
        );
        for round in 0..20 {
            let group = made(dir.path(), "late");
            let mut early = Command::new("sleep").arg("60").spawn().expect("sleep");
            group.enter(early.id()).expect("it is there");
            let begin = || {
                let mut command = Command::new("sh");
                command.args(["-c", &line]).arg(group.entrance());
                command.stderr(std::process::Stdio::null());
                command.spawn().expect("sh")
            };
            let mut late = begin();
            std::thread::sleep(Duration::from_millis(25 + round % 5 * 3));
            group.end().expect("taken away");
            assert!(!group.dir.exists());
            assert!(early.wait().is_ok_and(|status| !status.success()));
            // It came before, and was killed, or it came too late, and has said so.
            let ended = late.wait().expect("ours");
            assert!(!ended.success());
            let _ = std::fs::remove_file(&file);
            assert!(begin().wait().is_ok_and(|status| !status.success()));
            assert!(!file.exists(), "it ran outside");
        }
    }
}
