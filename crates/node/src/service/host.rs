//! What a service does to this machine: attaches, mounts, runs commands, and asks volumes whether they answer.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::address::Holder;
use super::fences::{Fences, Order};
use super::group::Group;
use super::guard::{Guard, GuardPlan, take_down};
use super::machine::Left;
use super::mounts;
use super::probe::{PROBE, probe};
use super::run::{self, Said};
use crate::model::{ControlError, CreateService};

#[cfg(test)]
mod tests;

/// A service is ready within so long of its start, or has failed.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// One that is not asked whether it is ready is, when it has lived for so long.
const LIVES_FOR: Duration = Duration::from_millis(200);
/// Processes that were told to end have so long.
const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// A command that asks whether it is ready.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Clients wait for the end of one that was told to end, which costs little to look for.
const GONE_LOOK: Duration = Duration::from_millis(5);
/// A command that was killed is gone after so long.
const ABANDONED_WITHIN: Duration = Duration::from_secs(10);
/// What takes an attachment away by force.
const DETACHED_WITHIN: Duration = Duration::from_secs(60);
/// What lists attachments, each of which is asked how it is.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
/// Of a log, so much is looked at for its last line.
const LAST_BYTES: u64 = 4096;

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
    /// All that makes a process for it has an order.
    pub(super) fences: Fences,
    /// Its volumes are on their way to being mounted.
    is_mounting: Arc<AtomicBool>,
}

/// Something is not under way any more, however it has ended.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
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
            group: Group::of_service(dir, &service.name)?,
            address: service
                .address
                .clone()
                .map(|address| Holder::new(&service.name, address)),
            log: dir.join(format!("service-{}.log", service.name)),
            socket: dir.join("api.sock"),
            service,
            program,
            is_replicated,
            fences: Fences::default(),
            is_mounting: Arc::default(),
        })
    }

    /// Attaches and mounts all volumes, and gives each mounted file system to the service's user if it is new.
    pub(super) fn mount(&self, order: Order) -> Result<(), String> {
        // A fence that comes before finds the order void, one that comes after waits until this is over.
        self.fences.obey(order, || {
            self.is_mounting.store(true, Ordering::SeqCst);
            self.group.ensure()
        })?;
        let _over = Over(&self.is_mounting);
        self.mount_all(order)
    }

    fn mount_all(&self, order: Order) -> Result<(), String> {
        for (volume, mount) in self.service.volumes.iter().zip(&self.service.mounts) {
            is_no_link(mount)?;
            if is_mounted(mount)? {
                return Err(format!(
                    "mount point {} is in use: something is mounted there",
                    mount.display()
                ));
            }
            std::fs::create_dir_all(mount)
                .map_err(|error| format!("{}: {error}", mount.display()))?;
            self.attach(order, volume, mount)?;
            if let Some(user) = self.service.user.as_deref() {
                give(mount, user)?;
            }
        }
        Ok(())
    }

    /// What is there is mounted; a volume that is empty, and only that, gets a file system if one was said.
    fn attach(&self, order: Order, volume: &str, mount: &Path) -> Result<(), String> {
        let attach = |more: &[&str]| {
            let mut command = self.ashlar(&["attach", volume, "--mount"]);
            command.arg(mount).args(more);
            if self.is_replicated {
                command.arg("--here");
            }
            self.finished(order, &mut command)
        };
        let Err(first) = attach(&[]) else {
            return Ok(());
        };
        match &self.service.file_system {
            Some(kind) => attach(&["--fs", kind]).map_err(|second| format!("{first}; {second}")),
            None => Err(first),
        }
    }

    /// Runs a command of this program, unless it is taken down meanwhile; what it says when it fails.
    fn finished(&self, order: Order, command: &mut Command) -> Result<(), String> {
        let said = Said::new()?;
        command.stdout(Stdio::null()).stderr(said.ear()?);
        match self.fences.run(order, command, None)? {
            Some(status) => said.judge(status),
            None => Err(format!("{}: it was lost", self.program.display())),
        }
    }

    /// What is being mounted has been given up; waits until it has ended.
    fn abandon(&self) -> Result<(), String> {
        let begun = Instant::now();
        while self.is_mounting.load(Ordering::SeqCst) {
            if begun.elapsed() > ABANDONED_WITHIN {
                return Err("what attaches its volumes was killed and does not end".into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Kills it and all that is being done for it, at once; what was ordered before makes no process any more.
    pub(super) fn strike(&self) {
        self.fences.fence(|| self.group.signal_kill());
        if let Some(address) = &self.address {
            address.unwant();
        }
    }

    /// Kills it and takes its volumes away, whatever hangs: they are another node's, or of no use.
    pub(super) fn fence(&self) -> Result<(), String> {
        self.strike();
        let abandoned = self.abandon();
        let taken = take_down(&self.program, &self.plan());
        // What was adding its address meanwhile has ended now.
        let released = self.release();
        taken.and(abandoned).and(released)?;
        for mount in &self.service.mounts {
            if is_mounted(mount)? {
                return Err(format!("{} is still mounted", mount.display()));
            }
        }
        Ok(())
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

    /// Kills all its processes, and waits until they are gone.
    pub(super) fn kill(&self, order: Order) -> Result<(), String> {
        // What comes late must not kill what was started since.
        let signal = || {
            self.group.signal_kill();
            Ok(())
        };
        self.group.kill_by(|| self.fences.obey(order, signal))
    }

    /// Takes its address away, then unmounts and detaches what is mounted, the last first.
    pub(super) fn unmount(&self, order: Order) -> Result<(), String> {
        self.fences.check(order)?;
        self.release()?;
        for mount in self.service.mounts.iter().rev() {
            let mut command = self.ashlar(&["detach"]);
            command.arg(mount);
            // One that was unmounted, by hand or half way, is still attached, and what it has to write may come yet; of
            // one that is not attached it is only said so.
            if let Err(why) = self.finished(order, &mut command) {
                if is_mounted(mount)? || self.is_one_attached(&[mount]) {
                    return Err(why);
                }
                tracing::warn!(service = %self.service.name, "{}: {why}", mount.display());
            }
        }
        self.group.remove();
        Ok(())
    }

    /// What a daemon before this one has left of it.
    pub(super) fn left(&self) -> Left {
        let all = &self.service.mounts;
        // What cannot be told counts as left: it is looked at, or taken down.
        let is_there = |mount: &&PathBuf| is_mounted(mount).unwrap_or(true);
        let mounted: Vec<&PathBuf> = all.iter().filter(is_there).collect();
        match self.group.is_alive() {
            true if mounted.len() == all.len() => Left::Whole,
            true => Left::Parts,
            // Of one that was stopped in order, nothing was left: what is mounted there is not its own.
            false if self.group.is_there() && self.is_one_attached(&mounted) => Left::Parts,
            false => {
                self.group.remove();
                Left::Nothing
            }
        }
    }

    /// Whether one of them is mounted by `attach`: since it was killed, something else may have been mounted there. If
    /// that cannot be told, it is.
    fn is_one_attached(&self, mounts: &[&PathBuf]) -> bool {
        #[derive(Deserialize)]
        struct Attached {
            mount: PathBuf,
        }
        if mounts.is_empty() {
            return false;
        }
        let listed = run::printed(
            &mut self.ashlar(&["attach", "--list", "--json"]),
            LISTED_WITHIN,
        );
        let listed = listed.map(|text| serde_json::from_slice::<Vec<Attached>>(&text));
        let Ok(Ok(attached)) = listed else {
            return true;
        };
        attached.iter().any(|one| mounts.contains(&&one.mount))
    }

    /// Adds its address, gives the start command, and waits until the service is ready. The command is told the epoch since
    /// which its volumes are this node's.
    pub(super) fn start(&self, order: Order, epoch: u64) -> Result<(), String> {
        self.fences.check(order)?;
        self.address.as_ref().map_or(Ok(()), Holder::hold)?;
        // What is left of an earlier life, one process of many for instance, would be in the way.
        self.kill(order)?;
        self.group.ensure()?;
        for mount in &self.service.mounts {
            if !is_mounted(mount)? {
                return Err(format!(
                    "nothing is mounted on {} any more",
                    mount.display()
                ));
            }
        }
        let mut command = self.command(&self.service.start, true)?;
        command.env("ASHLAR_EPOCH", epoch.to_string());
        // Its shell enters by itself, too; but it may come to that late, when what was there was killed.
        let enter = |pid| self.group.enter(pid);
        let mut child = self.fences.start(order, &mut command, enter)?;
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
            let has_lived = self.service.ready.is_some() || begun.elapsed() >= LIVES_FOR;
            if has_lived && self.is_ready(order) {
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
    pub(super) fn drain(&self, order: Order) -> Result<(), String> {
        let Some(drain) = &self.service.drain else {
            return Ok(());
        };
        match self.within(order, drain, STOPS_WITHIN)? {
            true => Ok(()),
            false => Err("the drain command has failed".into()),
        }
    }

    /// Gives the stop command, or tells the processes to end, and waits until they have.
    pub(super) fn stop(&self, order: Order) -> Result<(), String> {
        let begun = Instant::now();
        if let Some(stop) = &self.service.stop {
            // What it leaves is killed.
            self.within(order, stop, STOPS_WITHIN)?;
        } else {
            self.fences.obey(order, || {
                self.group.terminate();
                Ok(())
            })?;
        }
        while self.group.is_alive() && begun.elapsed() < STOPS_WITHIN {
            self.fences.check(order)?;
            std::thread::sleep(GONE_LOOK);
        }
        Ok(())
    }

    /// Whether it says that it is ready.
    pub(super) fn is_ready(&self, order: Order) -> bool {
        let Some(ready) = &self.service.ready else {
            return self.group.is_alive();
        };
        let asked = self.within(order, ready, ANSWERS_WITHIN);
        asked == Ok(true)
    }

    /// Whether a command of the service ends with 0 in time. It is killed where the service is.
    fn within(&self, order: Order, line: &str, limit: Duration) -> Result<bool, String> {
        let mut command = self.command(line, false)?;
        let ended = self.fences.run(order, &mut command, Some(limit))?;
        Ok(ended.is_some_and(|status| status.success()))
    }

    /// Writes to each volume, durably; waits for as long as they make it wait. What an operator should know of them.
    pub(super) fn probe(&self) -> Result<Vec<String>, String> {
        let volumes = self.service.volumes.iter().zip(&self.service.mounts);
        let probed = volumes.map(|(volume, mount)| probe(volume, mount));
        probed.filter_map(Result::transpose).collect()
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
    fn command(&self, line: &str, stays: bool) -> Result<Command, String> {
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
        Ok(command)
    }

    fn last_line(&self) -> String {
        // A log that cannot be read says nothing.
        let tail = tail(&self.log).unwrap_or_default();
        let last = run::last_line(&tail);
        last.map_or_else(String::new, |last| {
            format!("; {} says last: {last}", self.log.display())
        })
    }
}

/// The end of a file, which may have grown for years.
fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
    let mut tail = Vec::new();
    file.take(LAST_BYTES).read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

/// Takes an attachment away whatever state it is in; one that is not there is none.
pub(super) fn detach_by_force(program: &Path, mount: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg("detach").arg(mount).arg("--force");
    command.stdin(Stdio::null());
    match run::finished(&mut command, DETACHED_WITHIN) {
        Err(why) if is_mounted(mount)? => Err(why),
        _ => Ok(()),
    }
}

/// The part of a path that is a symbolic link, if one is. Nothing that is mounted there is asked.
fn link_in(path: &Path) -> Option<&Path> {
    path.ancestors().find(|part| part.read_link().is_ok())
}

/// Refuses a mount point by another name than the kernel's: what is mounted there would not be found again.
pub(super) fn is_no_link(mount: &Path) -> Result<(), String> {
    let Some(link) = link_in(mount) else {
        return Ok(());
    };
    let (mount, shown) = (mount.canonicalize(), mount.display());
    let say = mount.map_or_else(
        |_| "say its path without".into(),
        |real| format!("say {}", real.display()),
    );
    let link = link.display();
    Err(format!(
        "mount point {shown}: {link} is a symbolic link; {say}"
    ))
}

/// Whether something is mounted exactly there.
pub(super) fn is_mounted(mount: &Path) -> Result<bool, String> {
    let real = link_in(mount).and_then(|_| mount.canonicalize().ok());
    mounts::is_mounted(mount, real.as_deref())
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
