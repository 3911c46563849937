//! Child processes that end with this one.
//!
//! Three ways, since no single one covers every end: [`Child`] ends its process when dropped, a
//! signal ends all ([`crate::signals`]), and each child asked the kernel to be killed with its
//! parent. The last needs a call in the child between fork and exec, so this binary starts itself as
//! `spawn`, which calls and becomes the program. The kernel counts the *thread* that forked as the
//! parent: children are started on the main thread only.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::args::Spawn;
use crate::cpu;
use crate::failure::Failure;
use crate::signals;

/// How long a process may take to end after it was asked.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Lines of a log that an error shows.
const LOG_TAIL: usize = 5;

/// A program to start.
pub(crate) struct Program {
    /// For messages and the log's name.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// The only core it may run on.
    pub(crate) core: Option<usize>,
    /// Where its standard error goes.
    pub(crate) log: PathBuf,
    /// Where its standard output goes; `None`: to this process.
    pub(crate) output: Option<PathBuf>,
}

/// A running program.
pub(crate) struct Child {
    process: std::process::Child,
    pid: Pid,
    name: String,
    log: PathBuf,
}

impl Program {
    /// Starts it. Must be called on the main thread.
    pub(crate) fn start(&self) -> Result<Child, Failure> {
        let here = std::env::current_exe().map_err(Failure::doing("this binary's path"))?;
        let log = File::create(&self.log).map_err(Failure::doing(self.log.display()))?;
        let mut command = Command::new(here);
        command.arg("spawn").arg("--parent");
        command.arg(std::process::id().to_string());
        if let Some(core) = self.core {
            command.arg("--core").arg(core.to_string());
        }
        command.arg("--").arg(&self.path).args(&self.args);
        command.stdin(Stdio::null()).stderr(log);
        match &self.output {
            None => command.stdout(Stdio::piped()),
            Some(path) => {
                command.stdout(File::create(path).map_err(Failure::doing(path.display()))?)
            }
        };
        let process = command.spawn().map_err(Failure::doing(&self.name))?;
        let pid = Pid::from_child(&process);
        signals::remember_child(pid);
        Ok(Child {
            process,
            pid,
            name: self.name.clone(),
            log: self.log.clone(),
        })
    }
}

impl Child {
    /// Its process number.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// The first line it prints.
    pub(crate) fn first_line(&mut self) -> Result<String, Failure> {
        let output: Option<ChildStdout> = self.process.stdout.take();
        let mut line = String::new();
        if let Some(output) = output {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(Failure::doing(&self.name))?;
        }
        if line.is_empty() {
            return Err(self.failed("ended without a word"));
        }
        Ok(line.trim_end().to_owned())
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let ended = self
            .process
            .try_wait()
            .map_err(Failure::doing(&self.name))?;
        if ended.is_some() {
            signals::forget_child(self.pid);
        }
        Ok(ended)
    }

    /// Waits for its end; anything but success is an error.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let status = self.process.wait().map_err(Failure::doing(&self.name))?;
        signals::forget_child(self.pid);
        if status.success() {
            return Ok(());
        }
        Err(self.failed(&format!("failed ({status})")))
    }

    /// Stops it until [`go_on`](Self::go_on).
    pub(crate) fn pause(&self) -> Result<(), Failure> {
        kill_process(self.pid, Signal::STOP).map_err(Failure::doing(&self.name))
    }

    /// Lets it run again.
    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        kill_process(self.pid, Signal::CONT).map_err(Failure::doing(&self.name))
    }

    /// An error about this program, with the end of its log.
    pub(crate) fn failed(&self, what: &str) -> Failure {
        Failure::environment(format!("{} {what}: {}", self.name, tail(&self.log)))
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_TAIL)..].join(" | ");
    match last.trim() {
        "" => format!("nothing in {}", log.display()),
        words => format!("{words} ({})", log.display()),
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        signals::forget_child(self.pid);
        if matches!(self.process.try_wait(), Ok(Some(_))) {
            return;
        }
        signals::ask_to_end(self.pid);
        let give_up = Instant::now() + END_TIMEOUT;
        while Instant::now() < give_up {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The `spawn` sub-command: does not return unless it fails.
pub(crate) fn become_program(spawn: &Spawn) -> Failure {
    let prepared = set_parent_process_death_signal(Some(Signal::KILL));
    if let Err(error) = prepared {
        return Failure::environment(format!("parent death signal: {error}"));
    }
    // The parent may have ended before the call above: then no signal ever comes.
    if getppid() != Pid::from_raw(spawn.parent) {
        return Failure::environment("the parent has ended");
    }
    if let Some(core) = spawn.core
        && let Err(failure) = cpu::pin_to(core)
    {
        return failure;
    }
    let Some((program, args)) = spawn.command.split_first() else {
        return Failure::usage("no program");
    };
    let error = Command::new(program).args(args).exec();
    Failure::environment(format!("{}: {error}", Path::new(program).display()))
}

/// Arguments from anything that is text.
pub(crate) fn words<T: AsRef<OsStr>>(words: impl IntoIterator<Item = T>) -> Vec<OsString> {
    words
        .into_iter()
        .map(|word| word.as_ref().to_owned())
        .collect()
}
