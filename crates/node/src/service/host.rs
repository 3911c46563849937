//! What a service does to this machine: attaches, mounts, runs commands, and asks volumes whether they answer.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::address::Holder;
use super::group::Group;
use super::guard::{Guard, GuardPlan, take_down};
use super::probe::{PROBE, probe};
use crate::model::{ControlError, CreateService};

/// A service is ready within so long of its start, or has failed.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Processes that were told to end have so long.
const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// A command that asks whether it is ready.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Clients wait for the end of one that was told to end, which costs little to look for.
const GONE_LOOK: Duration = Duration::from_millis(5);
/// A command that was killed is gone after so long.
const ABANDONED_WITHIN: Duration = Duration::from_secs(10);
/// Of a log, so much is looked at for its last line.
const LAST_BYTES: usize = 4096;

/// A service on this machine.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) service: CreateService,
    pub(super) group: Group,
    /// Its address, if it has one.
    pub(super) address: Option<Holder>,
    /// This program: attaching is its command.
    program: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    /// Its volumes are replicated: they are reached through this node only, and a guard outlives the daemon.
    is_replicated: bool,
    attaching: Arc<Mutex<Attaching>>,
}

/// Volumes on their way to being mounted.
#[derive(Debug, Default)]
struct Attaching {
    under_way: bool,
    is_abandoned: bool,
    /// The command under way: leader of a group of its own.
    process: Option<Pid>,
}

impl Host {
    pub(super) fn new(
        service: CreateService,
        dir: &Path,
        is_replicated: bool,
    ) -> Result<Self, ControlError> {
        let program = std::env::current_exe();
        let program = program
            .map_err(|error| ControlError::environment(format!("/proc/self/exe: {error}")))?;
        Ok(Self {
            group: Group::make(dir, &service.name)?,
            address: service
                .address
                .clone()
                .map(|address| Holder::new(&service.name, address)),
            log: dir.join(format!("service-{}.log", service.name)),
            socket: dir.join("api.sock"),
            service,
            program,
            is_replicated,
            attaching: Arc::default(),
        })
    }

    /// Attaches and mounts all volumes, and gives each mounted file system to the service's user if it is new.
    pub(super) fn mount(&self) -> Result<(), String> {
        *self.attaching() = Attaching {
            under_way: true,
            ..Attaching::default()
        };
        let mounted = self.mount_all();
        self.attaching().under_way = false;
        mounted
    }

    fn attaching(&self) -> MutexGuard<'_, Attaching> {
        // Each change is of single fields.
        self.attaching
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn mount_all(&self) -> Result<(), String> {
        for (volume, mount) in self.service.volumes.iter().zip(&self.service.mounts) {
            if is_mounted(mount) {
                return Err(format!(
                    "mount point {} is in use: something is mounted there",
                    mount.display()
                ));
            }
            std::fs::create_dir_all(mount)
                .map_err(|error| format!("{}: {error}", mount.display()))?;
            self.attach(volume, mount)?;
            if let Some(user) = self.service.user.as_deref() {
                give(mount, user)?;
            }
        }
        Ok(())
    }

    /// What is there is mounted; a volume that is empty, and only that, gets a file system if one was said.
    fn attach(&self, volume: &str, mount: &Path) -> Result<(), String> {
        let attach = |more: &[&str]| {
            let mut command = self.ashlar(&["attach", volume, "--mount"]);
            command.arg(mount).args(more);
            if self.is_replicated {
                command.arg("--here");
            }
            self.attached(&mut command)
        };
        let Err(first) = attach(&[]) else {
            return Ok(());
        };
        match &self.service.file_system {
            Some(kind) => attach(&["--fs", kind]).map_err(|second| format!("{first}; {second}")),
            None => Err(first),
        }
    }

    /// Runs a command that attaches, unless it has been given up meanwhile.
    fn attached(&self, command: &mut Command) -> Result<(), String> {
        let child = {
            let mut attaching = self.attaching();
            if attaching.is_abandoned {
                return Err("its volumes went while they were being mounted".into());
            }
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            let child = command.spawn();
            let child = child.map_err(|error| format!("{}: {error}", self.program.display()))?;
            attaching.process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            child
        };
        let output = child.wait_with_output();
        self.attaching().process = None;
        told(&output.map_err(|error| format!("{}: {error}", self.program.display()))?)
    }

    /// What is being mounted is given up.
    fn abandon(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let mut attaching = self.attaching();
            attaching.is_abandoned = true;
            if !attaching.under_way {
                return Ok(());
            }
            if let Some(process) = attaching.process {
                // One that has ended meanwhile is as good.
                let _ = kill_process_group(process, Signal::KILL);
            }
            drop(attaching);
            if begun.elapsed() > ABANDONED_WITHIN {
                return Err("what attaches its volumes was killed and does not end".into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Kills it and takes its volumes away, whatever hangs: they are another node's, or of no use.
    pub(super) fn fence(&self) -> Result<(), String> {
        if let Some(address) = &self.address {
            address.forget();
        }
        self.abandon()?;
        take_down(&self.program, &self.plan())?;
        match self.service.mounts.iter().find(|mount| is_mounted(mount)) {
            Some(left) => Err(format!("{} is still mounted", left.display())),
            None => Ok(()),
        }
    }

    /// Whether another node can have its volumes.
    pub(super) fn is_replicated(&self) -> bool {
        self.is_replicated
    }

    /// What ends it when the daemon does not.
    pub(super) fn guard(&self) -> Result<Option<Guard>, String> {
        if !self.is_replicated {
            return Ok(None);
        }
        Guard::start(&self.program, &self.plan()).map(Some)
    }

    fn plan(&self) -> GuardPlan {
        GuardPlan {
            group: self.group.path().into(),
            mounts: self.service.mounts.clone(),
            address: self.service.address.clone(),
        }
    }

    /// Takes its address away, and cuts the connections of clients that its end has left.
    pub(super) fn release(&self) -> Result<(), String> {
        self.address.as_ref().map_or(Ok(()), Holder::let_go)
    }

    /// Takes its address away, then unmounts and detaches what is mounted, the last first.
    pub(super) fn unmount(&self) -> Result<(), String> {
        self.release()?;
        for mount in self.service.mounts.iter().rev() {
            let mut command = self.ashlar(&["detach"]);
            command.arg(mount);
            // One that was unmounted by hand is still attached; of one that is not attached it is only said so.
            if let Err(why) = finished(&mut command)
                && is_mounted(mount)
            {
                return Err(why);
            }
        }
        self.group.remove();
        Ok(())
    }

    /// Whether all of its volumes are mounted.
    pub(super) fn are_mounted(&self) -> bool {
        self.service.mounts.iter().all(|mount| is_mounted(mount))
    }

    /// Adds its address, gives the start command, and waits until the service is ready.
    pub(super) fn start(&self) -> Result<(), String> {
        self.address.as_ref().map_or(Ok(()), Holder::hold)?;
        // What is left of an earlier life, one process of many for instance, would be in the way.
        self.group.kill()?;
        self.group.ensure()?;
        let mut child = self.command(&self.service.start, true)?;
        let begun = Instant::now();
        let mut ended = None;
        loop {
            if ended.is_none() {
                ended = child
                    .try_wait()
                    .map_err(|error| format!("the start command: {error}"))?;
            }
            if let Some(status) = ended
                && !(status.success() && self.group.is_alive())
            {
                let how = if status.success() {
                    "left no process behind".into()
                } else {
                    format!("{status}")
                };
                return Err(format!("the start command: {how}{}", self.last_line()));
            }
            if self.is_ready() {
                break;
            }
            if begun.elapsed() > READY_WITHIN {
                return Err(format!(
                    "not ready within {} s of its start{}",
                    READY_WITHIN.as_secs(),
                    self.last_line()
                ));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if ended.is_none() {
            // It stays; it is buried when it ends.
            let bury = move || drop(child.wait());
            let thread = std::thread::Builder::new().name("bury".into()).spawn(bury);
            drop(thread.map_err(|error| format!("a thread: {error}"))?);
        }
        Ok(())
    }

    /// Gives the command that makes a stop short, if there is one.
    pub(super) fn drain(&self) -> Result<(), String> {
        let Some(drain) = &self.service.drain else {
            return Ok(());
        };
        match within(self.command(drain, false)?, STOPS_WITHIN) {
            true => Ok(()),
            false => Err("the drain command has failed".into()),
        }
    }

    /// Gives the stop command, or tells the processes to end, and waits until they have.
    pub(super) fn stop(&self) -> Result<(), String> {
        let begun = Instant::now();
        if let Some(stop) = &self.service.stop {
            let child = self.command(stop, false)?;
            // What it leaves is killed.
            let _ = within(child, STOPS_WITHIN);
        } else {
            self.group.terminate();
        }
        while self.group.is_alive() && begun.elapsed() < STOPS_WITHIN {
            std::thread::sleep(GONE_LOOK);
        }
        Ok(())
    }

    /// Whether it says that it is ready.
    pub(super) fn is_ready(&self) -> bool {
        let Some(ready) = &self.service.ready else {
            return self.group.is_alive();
        };
        let asked = self.command(ready, false);
        asked.is_ok_and(|child| within(child, ANSWERS_WITHIN))
    }

    /// Writes to each volume, durably; waits for as long as they make it wait.
    pub(super) fn probe(&self) -> Result<(), String> {
        for (volume, mount) in self.service.volumes.iter().zip(&self.service.mounts) {
            probe(volume, mount)?;
        }
        Ok(())
    }

    /// Its address is still here. Where another node can have it, one that cannot be had here is a reason to leave.
    pub(super) fn keep_address(&self) -> Result<(), String> {
        let Some(address) = &self.address else {
            return Ok(());
        };
        let kept = address.keep(|| self.group.is_alive());
        if let (Err(why), false) = (&kept, self.is_replicated) {
            tracing::warn!(service = %self.service.name, "{why}");
            return Ok(());
        }
        kept
    }

    /// Whether the daemon can be asked.
    pub(super) fn is_api_up(&self) -> bool {
        std::os::unix::net::UnixStream::connect(&self.socket).is_ok()
    }

    fn ashlar(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env("ASHLAR_API", &self.socket);
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// A command of the service's, as its user; in its cgroup if it is to stay.
    fn command(&self, line: &str, stays: bool) -> Result<Child, String> {
        let mut command = Command::new("sh");
        // The shell enters before it becomes anything else, so that nothing of it is ever outside.
        let enter = match stays {
            true => "echo $$ > \"$0\" && exec \"$@\"",
            false => "exec \"$@\"",
        };
        command.args(["-c", enter]).arg(self.group.entrance());
        if let Some(user) = self.service.user.as_deref() {
            let (uid, gid) = ids(user)?;
            command.args([
                "setpriv",
                &format!("--reuid={uid}"),
                &format!("--regid={gid}"),
                "--init-groups",
                "--",
            ]);
        }
        command
            .args(["sh", "-c", line])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null());
        let log = || File::options().create(true).append(true).open(&self.log);
        let failed = |error: std::io::Error| format!("{}: {error}", self.log.display());
        // A question that is asked every second would fill it.
        let is_question = self.service.ready.as_deref() == Some(line);
        let out = || {
            if is_question {
                Ok(Stdio::null())
            } else {
                log().map(Stdio::from)
            }
        };
        command
            .stdout(out().map_err(failed)?)
            .stderr(out().map_err(failed)?);
        command.spawn().map_err(|error| format!("sh: {error}"))
    }

    fn last_line(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let tail =
            String::from_utf8_lossy(&text[text.len().saturating_sub(LAST_BYTES)..]).into_owned();
        let last = tail
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        let log = self.log.display();
        if last.is_empty() {
            String::new()
        } else {
            format!("; {log} says last: {}", last.trim())
        }
    }
}

/// Whether it ends with 0 in time; killed otherwise.
pub(super) fn within(mut child: Child, limit: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(_) => return false,
        }
    }
    // It may have ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
    false
}

pub(super) fn finished(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    told(&output)
}

/// What a command of this program has said in the end, if it failed.
fn told(output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it says nothing");
    Err(last.trim().trim_start_matches("ashlar: ").to_owned())
}

/// Takes an attachment away whatever state it is in; one that is not there is none.
pub(super) fn detach_by_force(program: &Path, mount: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg("detach").arg(mount).arg("--force");
    command.stdin(Stdio::null()).process_group(0);
    match finished(&mut command) {
        Err(why) if is_mounted(mount) => Err(why),
        _ => Ok(()),
    }
}

/// Whether something is mounted exactly there.
pub(super) fn is_mounted(mount: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let wanted = mount.display().to_string();
    // Spaces are written as octal numbers.
    let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    places.any(|place| place.replace("\\040", " ") == wanted)
}

/// Numbers of a user and its group.
pub(super) fn ids(user: &str) -> Result<(u32, u32), String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(user));
    let numbers = line.and_then(|line| {
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    numbers.ok_or_else(|| format!("user {user}: this machine has none of this name"))
}

/// A file system that holds nothing yet becomes its user's.
fn give(mount: &Path, user: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", mount.display());
    let holds = std::fs::read_dir(mount)
        .map_err(failed)?
        .flatten()
        .any(|entry| {
            let name = entry.file_name();
            name != "lost+found" && name != PROBE
        });
    if holds {
        return Ok(());
    }
    let (uid, gid) = ids(user)?;
    std::os::unix::fs::chown(mount, Some(uid), Some(gid)).map_err(failed)
}
