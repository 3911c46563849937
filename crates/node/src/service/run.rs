//! Commands that are run to their end, with a limit, and what they have said.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A command that was killed is gone after so long, or waits in the kernel for something that hangs.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// A command under way, the leader of a process group of its own.
#[derive(Debug)]
pub(super) struct Run(Arc<Mutex<Child>>);

/// What kills a command, wherever it is waited for.
#[derive(Debug)]
pub(super) struct Killer(Weak<Mutex<Child>>);

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    // A child is asked and waited for, and never half of it.
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills it with all of its group. Under the lock, as long as it is not waited for: its number is its own.
fn kill(child: &Mutex<Child>) {
    let mut child = lock(child);
    if matches!(child.try_wait(), Ok(None)) {
        // One that has ended meanwhile is as good.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
}

impl Killer {
    pub(super) fn kill(&self) {
        if let Some(child) = self.0.upgrade() {
            kill(&child);
        }
    }

    /// Whether it is not waited for any more.
    pub(super) fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Run {
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        let child = command.process_group(0).spawn();
        let program = command.get_program().display();
        let child = child.map_err(|error| format!("{program}: {error}"))?;
        Ok(Self(Arc::new(Mutex::new(child))))
    }

    pub(super) fn killer(&self) -> Killer {
        Killer(Arc::downgrade(&self.0))
    }

    /// How it has ended. One that is not over in time is killed, and none.
    pub(super) fn ended(self, limit: Option<Duration>) -> Option<ExitStatus> {
        let begun = Instant::now();
        while limit.is_none_or(|limit| begun.elapsed() < limit) {
            match lock(&self.0).try_wait() {
                Ok(None) => {}
                ended => return ended.ok().flatten(),
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.end();
        None
    }

    fn end(self) {
        kill(&self.0);
        let begun = Instant::now();
        while matches!(lock(&self.0).try_wait(), Ok(None)) {
            if begun.elapsed() > GONE_WITHIN {
                tracing::warn!("a command was killed and does not end");
                let bury = move || while_it_is_there(&self.0);
                // Without a thread it stays a zombie until this process ends.
                let _ = std::thread::Builder::new().name("bury".into()).spawn(bury);
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn while_it_is_there(child: &Mutex<Child>) {
    while matches!(lock(child).try_wait(), Ok(None)) {
        std::thread::sleep(GONE_WITHIN);
    }
}

/// Runs it and waits, at most so long.
pub(super) fn ended(command: &mut Command, limit: Duration) -> Result<ExitStatus, String> {
    let ended = Run::start(command)?.ended(Some(limit));
    ended.ok_or_else(|| late(command, limit))
}

fn late(command: &Command, limit: Duration) -> String {
    let program = command.get_program().display();
    format!("{program} has not ended within {} s", limit.as_secs_f64())
}

/// What a command says, in memory: a pipe that is full would hold it up.
#[derive(Debug)]
pub(super) struct Said(File);

impl Said {
    pub(super) fn new() -> Result<Self, String> {
        let file = memfd_create("said", MemfdFlags::CLOEXEC);
        let file = file.map_err(|errno| format!("a file in memory: {errno}"))?;
        Ok(Self(File::from(file)))
    }

    /// For a command to say it to.
    pub(super) fn ear(&self) -> Result<Stdio, String> {
        let file = self.0.try_clone();
        let file = file.map_err(|error| format!("a file in memory: {error}"))?;
        Ok(Stdio::from(file))
    }

    pub(super) fn bytes(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = self.0.seek(SeekFrom::Start(0));
        // It is in memory. What cannot be read was not said.
        let _ = read.and_then(|_| self.0.read_to_end(&mut bytes));
        bytes
    }

    /// As an error of a command that ended so.
    pub(super) fn judge(self, status: ExitStatus) -> Result<(), String> {
        if status.success() {
            return Ok(());
        }
        let bytes = self.bytes();
        let said = String::from_utf8_lossy(&bytes);
        let last = last_line(&said).unwrap_or("it says nothing");
        Err(last.trim_start_matches("ashlar: ").to_owned())
    }
}

/// The last line that says something.
pub(super) fn last_line(text: &str) -> Option<&str> {
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty())
}

/// Runs it, at most so long; what it says when it fails.
pub(super) fn finished(command: &mut Command, limit: Duration) -> Result<(), String> {
    let said = Said::new()?;
    let status = ended(command.stdout(Stdio::null()).stderr(said.ear()?), limit)?;
    said.judge(status)
}

/// Runs it, at most so long; what it prints.
pub(super) fn printed(command: &mut Command, limit: Duration) -> Result<Vec<u8>, String> {
    let (said, failed) = (Said::new()?, Said::new()?);
    command.stdout(said.ear()?).stderr(failed.ear()?);
    let status = ended(command, limit)?;
    failed.judge(status)?;
    Ok(said.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null());
        command
    }

    #[test]
    fn one_that_hangs_is_killed_with_all_that_it_has_started() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("pid");
        // The shell has a child, which does the hanging.
        let line = format!("sh -c 'echo $$ > {}; exec sleep 60'; true", file.display());
        let begun = Instant::now();
        let why = finished(&mut sh(&line), Duration::from_millis(500)).expect_err("it hangs");
        assert!(why.contains("sh has not ended within 0.5 s"), "{why}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        let pid = std::fs::read_to_string(&file).expect("it had begun");
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        let is_gone = || state().map_or(true, |stat| stat.contains(") Z"));
        while !is_gone() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it is there");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn what_is_printed_is_all_there_however_much_and_a_failure_says_its_last_line() {
        let limit = Duration::from_secs(60);
        let much = printed(&mut sh("head -c 1000000 /dev/zero"), limit);
        assert_eq!(much.map(|bytes| bytes.len()), Ok(1_000_000));
        let failed = finished(
            &mut sh("echo one >&2; echo two >&2; echo >&2; exit 3"),
            limit,
        );
        assert_eq!(failed, Err("two".into()));
        assert_eq!(
            finished(&mut sh("exit 3"), limit),
            Err("it says nothing".into())
        );
        let none = finished(&mut Command::new("/no/such"), limit).expect_err("there is none");
        assert!(none.starts_with("/no/such: "), "{none}");
    }
}
