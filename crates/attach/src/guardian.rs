//! The guardian: holds the connection to the kernel, so that a server may die.
//!
//! A FUSE file system lives as long as a process has its /dev/fuse open. The guardian opens it, mounts,
//! and gives it to the server, which it starts again whenever it dies; the kernel sends again what the
//! dead one has read and not answered. It does nothing else, so there is little in it that could fail.
//!
//! Where the volume's daemon serves it in process, there is no server: the daemon is given what a server
//! would be, and its next life after it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, setsid};
use signal_hook::consts::{SIGINT, SIGTERM};
use tracing::{error, info, warn};

use crate::error::AttachError;
use crate::fuse::exchange::MAX_TRANSFER;
use crate::local::{Connection, Heard, Over, Wish};
use crate::state::{Folder, Local, Processes, State};
use crate::system::mounts;
use crate::system::process::Process;

const FUSE: &str = "/dev/fuse";
/// What a server says when it reads requests, and a guardian when its server does.
const READY: &str = "ready";
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long a server that was told to end may take.
const GRACE: Duration = Duration::from_secs(2);
/// How often it is looked whether the server is ready, and once it is, whether this process is to end: a
/// signal wakes the guardian from its wait, but may come just before it.
const LOOK: Duration = Duration::from_millis(10);
const LOOK_LATER: Duration = Duration::from_secs(1);
/// When to try again to write down which processes there are.
const SAVE_PAUSE: Duration = Duration::from_secs(1);
/// How often it is looked whether a daemon is back. That costs a system call or two.
const DAEMON_PAUSE: Duration = Duration::from_millis(50);

/// Says on standard output that the process is ready. The process that started it need not read that.
pub fn announce() {
    use std::io::Write;
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
}

/// Mounts the attachment's FUSE file and keeps a server running until it is unmounted, or the process is
/// told to end. `server` makes the command that serves it, with /dev/fuse as its standard input; it
/// is told whether it takes over from another.
///
/// # Errors
/// Environment: no /dev/fuse, no mount, or no server that becomes ready in the attachment's time.
pub fn guard(folder: &Folder, server: impl Fn(bool) -> Command) -> Result<(), AttachError> {
    // Not the terminal's, and not its caller's when that is killed. It fails where it is so already.
    let _ = setsid();
    protect_from_memory_pressure();
    let state = folder.state()?;
    let limit = state.limit_seconds.map(Duration::from_secs);
    let fuse = OpenOptions::new().read(true).write(true).open(FUSE);
    let fuse = fuse.map_err(|error| AttachError::environment(format!("{FUSE}: {error}")))?;
    mounts::mount_fuse(&folder.file(), fuse.as_raw_fd(), MAX_TRANSFER)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        let registered = signal_hook::flag::register(signal, stop.clone());
        registered.map_err(|error| AttachError::environment(format!("signals: {error}")))?;
    }
    let guardian = Guardian {
        folder,
        fuse: fuse.into(),
        server,
        stop,
        limit,
    };
    let result = match &state.local {
        Some(local) => guardian.lend(&wish(&state, local), local),
        None => guardian.run(),
    };
    if result.is_err() {
        // I/O that waits for a server gets an error instead.
        let _ = mounts::unmount_fuse(&folder.file(), true);
    }
    result
}

/// A server that is killed because memory is short blocks the processes that could free some.
fn protect_from_memory_pressure() {
    // Only a wish: a container may forbid it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-900");
}

struct Guardian<'a, F> {
    folder: &'a Folder,
    fuse: OwnedFd,
    server: F,
    stop: Arc<AtomicBool>,
    limit: Option<Duration>,
}

/// What the daemon is asked for.
pub(crate) fn wish(state: &State, local: &Local) -> Wish {
    Wish {
        volume: state.volume.clone(),
        identity: state.identity.clone(),
        bytes: state.bytes,
        block_bytes: state.block_bytes,
        host: local.host.clone(),
        mount: state.mount.clone(),
        takes_over: false,
    }
}

/// How a server ended.
enum End {
    /// There is nothing to serve any more.
    Unmounted,
    Died,
    Stopped,
}

impl<F: Fn(bool) -> Command> Guardian<'_, F> {
    fn run(&self) -> Result<(), AttachError> {
        let mut pause = Duration::ZERO;
        let mut without = Instant::now();
        for restarts in 0u64.. {
            std::thread::sleep(pause);
            let begun = Instant::now();
            let (end, was_ready) = match self.serve_once(restarts) {
                Ok(end) => end,
                Err(error) if restarts == 0 => return Err(error),
                // It may be possible in a moment: there was no memory, or no process to be had.
                Err(error) => {
                    error!("{error}");
                    (End::Died, false)
                }
            };
            match end {
                End::Unmounted | End::Stopped => return Ok(()),
                End::Died if restarts == 0 && !was_ready => {
                    let log = self.folder.log();
                    let why = format!("the server did not come up: see {}", log.display());
                    return Err(AttachError::environment(why));
                }
                End::Died if !sends_again() => {
                    let why = "the server died, and this kernel does not send again what it had \
                               read (Linux 6.9 does)";
                    return Err(AttachError::environment(why));
                }
                End::Died => {}
            }
            if was_ready {
                without = Instant::now();
            }
            // One that dies soon may do so each time, by what it is asked.
            pause = match was_ready && begun.elapsed() > LONGEST_PAUSE {
                true => Duration::ZERO,
                false => (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            };
            if self.is_over_limit(without) {
                let why = "no server came up within the attachment's time limit";
                return Err(AttachError::environment(why));
            }
            warn!("the server died; another takes over");
        }
        Ok(())
    }

    /// Has the volume's daemon serve it, and the next one when that has died.
    fn lend(&self, wish: &Wish, local: &Local) -> Result<(), AttachError> {
        let mut wish = wish.clone();
        let mut lent = 0;
        let mut without = Instant::now();
        loop {
            let why = match self.lend_once(&wish, local, lent, without)? {
                Lent::Ended => return Ok(()),
                Lent::Refused(why) if lent == 0 => return Err(AttachError::environment(why)),
                Lent::Refused(why) => why,
                Lent::Lost(why) => {
                    warn!("{why}; I/O waits");
                    (lent, without) = (lent + 1, Instant::now());
                    wish.takes_over = true;
                    why
                }
            };
            if self.is_over_limit(without) {
                let why = format!("no daemon within the attachment's time limit: {why}");
                return Err(AttachError::environment(why));
            }
            std::thread::sleep(DAEMON_PAUSE);
        }
    }

    fn is_over_limit(&self, without: Instant) -> bool {
        self.limit.is_some_and(|limit| without.elapsed() > limit)
    }

    /// Gives the attachment to the daemon that is there, the `lent`th after the first, and waits until it has
    /// it no longer.
    fn lend_once(
        &self,
        wish: &Wish,
        local: &Local,
        lent: u64,
        without: Instant,
    ) -> Result<Lent, AttachError> {
        let mut daemon = match Connection::give(&local.socket, wish, self.fuse.as_fd()) {
            Ok(daemon) => daemon,
            Err(error) => {
                return Ok(Lent::Refused(format!(
                    "{}: {error}",
                    local.socket.display()
                )));
            }
        };
        let mut serves = false;
        let mut told: Option<Told<'_>> = None;
        loop {
            if let Some(told) = &mut told {
                told.try_again();
            }
            if self.stop.load(Ordering::Acquire) {
                daemon.let_go(GRACE);
                return Ok(Lent::Ended);
            }
            let gone = || "the daemon is gone".to_owned();
            match (daemon.hear(if serves { LOOK_LATER } else { LOOK }), serves) {
                // One that is stopped may serve it yet: it is not asked twice.
                (Heard::Nothing, false) if self.is_over_limit(without) => {
                    let why = "the daemon has not answered within the attachment's time limit";
                    return Err(AttachError::environment(why));
                }
                (Heard::Nothing, _) => {}
                (Heard::Serves, _) => {
                    serves = true;
                    let mut said = self.told(None, daemon.daemon(), lent);
                    if lent == 0 {
                        said.save()?;
                        announce();
                    } else {
                        // It is only what is shown, and the kernel sees whether the daemon lives.
                        said.try_save();
                        info!("the daemon is back");
                    }
                    told = Some(said);
                }
                (Heard::Refuses(refusal), _) if refusal.may_change => {
                    return Ok(Lent::Refused(refusal.why));
                }
                (Heard::Refuses(refusal), _) => return Err(AttachError::environment(refusal.why)),
                (Heard::Over(Over::Unmounted), _) => return Ok(Lent::Ended),
                (Heard::Over(Over::ForNow(why)), _) => return Ok(Lent::Lost(why)),
                (Heard::Over(Over::ForGood(why)), _) => return Err(AttachError::environment(why)),
                (Heard::Gone, true) => return Ok(Lent::Lost(gone())),
                (Heard::Gone, false) => return Ok(Lent::Refused(gone())),
            }
        }
    }

    /// Starts a server and waits for its end; tells whether it was ready.
    fn serve_once(&self, restarts: u64) -> Result<(End, bool), AttachError> {
        let failed = |error: io::Error| AttachError::environment(format!("the server: {error}"));
        let mut command = (self.server)(restarts > 0);
        command
            .stdin(Stdio::from(self.fuse.try_clone().map_err(failed)?))
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let server = Process::of(child.id() as i32);
        let mut told = self.told(server, None, restarts);
        if restarts > 0 {
            // A full folder is no reason to let I/O fail that can be served.
            told.try_save();
        } else if let Err(error) = told.save() {
            end(&mut child);
            return Err(error);
        }
        let said = child.stdout.take().map(first_line);
        let mut was_ready = false;
        loop {
            told.try_again();
            if self.stop.load(Ordering::Acquire) {
                end(&mut child);
                return Ok((End::Stopped, was_ready));
            }
            if !was_ready && heard(said.as_ref()) {
                was_ready = true;
                if restarts == 0 {
                    announce();
                }
            }
            if let Some(status) = child.try_wait().map_err(failed)? {
                let end = match status.success() {
                    true => End::Unmounted,
                    false => End::Died,
                };
                return Ok((end, was_ready));
            }
            wait(&child, if was_ready { LOOK_LATER } else { LOOK });
        }
    }

    /// What is to be written down of the processes.
    fn told(&self, server: Option<Process>, daemon: Option<Process>, restarts: u64) -> Told<'_> {
        Told {
            folder: self.folder,
            server,
            daemon,
            restarts,
            failed: None,
        }
    }
}

/// Which processes there are, as it is written down: what is not is tried again, or what is there would
/// name a dead one for as long as its follower lives.
struct Told<'a> {
    folder: &'a Folder,
    server: Option<Process>,
    daemon: Option<Process>,
    restarts: u64,
    /// When it could not be written.
    failed: Option<Instant>,
}

impl Told<'_> {
    fn save(&mut self) -> Result<(), AttachError> {
        let saved = self.write();
        self.failed = saved.is_err().then(Instant::now);
        saved
    }

    fn write(&self) -> Result<(), AttachError> {
        let this = Process::of(std::process::id() as i32);
        let this = this.ok_or_else(|| AttachError::environment("/proc is not mounted"))?;
        self.folder.save_processes(&Processes {
            guardian: this,
            server: self.server,
            daemon: self.daemon,
            restarts: self.restarts,
        })
    }

    /// The same where that is no reason to stop; says so the first time.
    fn try_save(&mut self) {
        let is_first = self.failed.is_none();
        if let Err(error) = self.save()
            && is_first
        {
            warn!("{error}");
        }
    }

    /// Does it now if it has failed, and some time ago.
    fn try_again(&mut self) {
        if self.failed.is_some_and(|at| at.elapsed() >= SAVE_PAUSE) {
            self.try_save();
        }
    }
}

/// How it went with a daemon.
enum Lent {
    /// There is nothing to serve any more.
    Ended,
    /// It did not take it, for now.
    Refused(String),
    /// It had it.
    Lost(String),
}

/// Whether the kernel has FUSE_NOTIFY_RESEND: since Linux 6.9.
pub(crate) fn sends_again() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    // What has no version is taken to be new.
    let version = number().and_then(|major| Some((major, number()?)));
    version.is_none_or(|version| version >= (6, 9))
}

/// Waits until a child ends, a signal comes, or `limit` has passed.
fn wait(child: &Child, limit: Duration) {
    let limit = Timespec::try_from(limit).ok();
    match pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        Ok(end) => {
            // Whatever the reason for its return, the caller looks again.
            let _ = poll(&mut [PollFd::new(&end, PollFlags::IN)], limit.as_ref());
        }
        Err(_) => std::thread::sleep(LOOK),
    }
}

/// Ends a server; one that is stopped or hangs, too.
fn end(child: &mut Child) {
    if let Some(process) = Process::of(child.id() as i32) {
        process.signal(Signal::TERM);
        if !process.ends_within(GRACE) {
            process.signal(Signal::KILL);
        }
    }
    let _ = child.wait();
}

/// The first line of what a child says, when it says it.
fn first_line(from: impl io::Read + Send + 'static) -> Receiver<String> {
    let (say, said) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if BufReader::new(from).read_line(&mut line).is_ok() {
            // The waiting thread may have given up.
            let _ = say.send(line);
        }
    });
    said
}

fn heard(said: Option<&Receiver<String>>) -> bool {
    said.and_then(|said| said.try_recv().ok())
        .is_some_and(|line| line.trim() == READY)
}

/// Starts a guardian and waits until its server is ready, for at most `limit`.
///
/// # Errors
/// Environment: with what it wrote into its log.
pub(crate) fn start(
    folder: &Folder,
    mut command: Command,
    limit: Duration,
) -> Result<(), AttachError> {
    let log = folder.log();
    let failed = |why: String| AttachError::environment(format!("{}: {why}", log.display()));
    let file = File::options().create(true).append(true).open(&log);
    let file = file.map_err(|error| failed(error.to_string()))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(file));
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let Some(out) = child.stdout.take() else {
        return Err(failed("no pipe to the guardian".into()));
    };
    match first_line(out).recv_timeout(limit) {
        Ok(line) if line.trim() == READY => Ok(()),
        Err(RecvTimeoutError::Timeout) => {
            if let Some(process) = Process::of(child.id() as i32) {
                process.signal(Signal::KILL);
            }
            let seconds = limit.as_secs();
            let why = format!("no server within {seconds} s");
            Err(AttachError::environment(why))
        }
        _ => {
            let _ = child.wait();
            Err(AttachError::environment(complaint(&log)))
        }
    }
}

/// What a log's last line says.
fn complaint(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut lines = text.lines().rev().filter(|line| !line.contains("see /"));
    let last = lines.clone().next();
    // Why a process has ended is no line of its log, and may be followed by one.
    let why = lines.find_map(|line| line.strip_prefix("ashlar: "));
    why.or(last)
        .unwrap_or("the guardian ended without a word")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_server_is_written_down_as_soon_as_that_is_possible() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(dir.path());
        // In the way of the new file, also for root.
        let blocked = dir.path().join("processes.json.new");
        std::fs::create_dir(&blocked).expect("made");
        let guardian = Guardian {
            folder: &folder,
            fuse: File::open("/dev/null").expect("open").into(),
            server: |_| {
                let mut command = Command::new("sh");
                command.args(["-c", "echo ready; exec sleep 60"]);
                command
            },
            stop: Arc::default(),
            limit: None,
        };
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| guardian.serve_once(3));
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(folder.processes(), None);
            std::fs::remove_dir(&blocked).expect("removed");
            while folder.processes().is_none() && begun.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let found = folder.processes();
            guardian.stop.store(true, Ordering::Release);
            assert!(matches!(served.join(), Ok(Ok((End::Stopped, true)))));
            let found = found.expect("written down");
            assert_eq!(found.restarts, 3);
            assert!(found.server.is_some());
        });
    }
}
