//! A process beside a replicated service, which outlives the daemon: where that is gone or stands still, another node
//! may have the volumes, and what runs here must end without it.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ashlar_replica::{GRANT, GRANT_EVERY};

use super::address;
use super::group::Group;
use super::host::detach_by_force;
use crate::model::ServiceAddress;

/// Killing takes so long, and taking the address away.
const TAKES: Duration = Duration::from_millis(100);
/// What is killed has so long to be gone before its mounts are taken away.
const DYING: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A daemon that has said nothing for so long stands still, or will be too late: it says something ten times a second.
/// Another node may serve the volumes when its promise has lapsed, that is [`GRANT`] after this node has last asked for
/// it, which was up to [`GRANT_EVERY`] before it stood still. Until then reads of the volumes are this node's, and so is
/// the address. A daemon that goes on before finds its promises valid, and its service running.
const SILENT_AFTER: Duration = GRANT.saturating_sub(GRANT_EVERY).saturating_sub(TAKES);

/// What a guard takes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardPlan {
    /// The service's cgroup.
    pub group: PathBuf,
    /// Where its volumes are mounted.
    pub mounts: Vec<PathBuf>,
    /// Its address, if it has one.
    pub address: Option<ServiceAddress>,
}

/// Guards until the daemon says that all is down, which is a `Q` on standard input, or is gone or silent.
///
/// # Errors
/// Something does not go.
pub fn guard(plan: &GuardPlan) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let (heard, hear) = channel();
    std::thread::spawn(move || {
        let mut words = [0; 64];
        let mut input = std::io::stdin();
        loop {
            let count = match input.read(&mut words) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // An error is as good as the end.
                Err(_) | Ok(0) => return,
                Ok(count) => count,
            };
            if heard.send(words[..count].contains(&QUIT)).is_err() {
                return;
            }
        }
    });
    loop {
        match hear.recv_timeout(SILENT_AFTER) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    take_down(&program, plan)
}

/// Kills, and takes the address and the mounts away whatever hangs: what waits for a volume ends only when that fails.
pub(super) fn take_down(program: &Path, plan: &GuardPlan) -> Result<(), String> {
    let group = Group::at(&plan.group);
    group.signal_kill();
    let mut failed = None;
    if let Some(address) = &plan.address
        && let Err(why) = address::release(address)
    {
        failed = Some(why);
    }
    // What is killed and not gone yet could write below a mount point, where nothing is mounted again then. What waits
    // for a volume that hangs is not waited for.
    let killed = Instant::now();
    while group.is_alive() && killed.elapsed() < DYING {
        std::thread::sleep(LOOK_EVERY);
    }
    for mount in plan.mounts.iter().rev() {
        if let Err(why) = detach_by_force(program, mount) {
            failed = Some(why);
        }
    }
    group.end()?;
    failed.map_or(Ok(()), Err)
}

const BEAT: u8 = b'.';
const QUIT: u8 = b'Q';

/// A daemon's end of a guard.
pub(super) struct Guard {
    child: Child,
    words: ChildStdin,
}

impl Guard {
    /// Starts one.
    pub(super) fn start(program: &Path, plan: &GuardPlan) -> Result<Self, String> {
        use std::os::unix::process::CommandExt;
        let failed = |error: std::io::Error| format!("a guard: {error}");
        let mut command = Command::new(program);
        command.arg("service-guard").arg(&plan.group);
        if let Some(address) = &plan.address {
            command.arg("--address").arg(address.to_string());
        }
        command.args(&plan.mounts).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.current_dir("/");
        let mut child = command.spawn().map_err(failed)?;
        let words = child.stdin.take().ok_or("a guard: it does not listen")?;
        Ok(Self { child, words })
    }

    /// The daemon is there. False: the guard is not.
    pub(super) fn beat(&mut self) -> bool {
        use std::io::Write;
        // It reads at once: the pipe is never full.
        self.words.write_all(&[BEAT]).is_ok() && matches!(self.child.try_wait(), Ok(None))
    }

    /// All is down.
    pub(super) fn dismiss(mut self) {
        use std::io::Write;
        // One that has ended is as good.
        let _ = self.words.write_all(&[QUIT]);
        drop(self.words);
        let _ = self.child.wait();
    }
}
