//! Two processes that write one file without knowing of each other destroy it: a lock on the file,
//! and for a block device also the kernel's own claim (O_EXCL), which mounts respect.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ashlar_reactor::has_ended;
use rustix::fs::{FlockOperation, Stat, flock, major, minor};
use rustix::io::Errno;

use crate::OpenError;

/// How long a process that has ended may still hold its files: the kernel lets go of those of an
/// io_uring behind its back, after the last I/O on them.
const AFTERLIFE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// The kernel lists no lock of a process that has no number here, nor, within a container, of one that has ended.
const UNSEEN: &str = "a process that is not seen from here (in another container or outside of this one, or one that \
                      has ended and whose last I/O goes on)";

/// Takes the lock for the life of the open file, all its duplicates included. Waits for a process
/// that is gone already, whose last writes may still be on their way; never for one that lives.
pub(super) fn take(fd: impl AsFd, stat: &Stat, name: &str, share: bool) -> Result<(), OpenError> {
    let operation = if share {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    take_within(AFTERLIFE, || flock(&fd, operation), stat, name)
}

fn take_within(
    patience: Duration,
    lock: impl Fn() -> Result<(), Errno>,
    stat: &Stat,
    name: &str,
) -> Result<(), OpenError> {
    let begun = Instant::now();
    loop {
        match lock() {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {}
            // File systems without locks are rare and remote; refusing them would protect nothing.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(()),
            Err(error) => {
                return Err(OpenError::environment(name, "cannot be locked").with_source(error));
            }
        }
        // None is seen when it has let go since.
        let holder = holder(stat);
        if holder.is_some_and(|holder| holder.lives) || begun.elapsed() >= patience {
            let who = holder.map_or_else(|| UNSEEN.into(), |holder| describe(holder.pid));
            let why = format!("is in use by {who} (if that is meant, both need share=on)");
            let error = OpenError::environment(name, why);
            return Err(match is_other(holder) {
                true => error.by_another(),
                false => error,
            });
        }
        sleep(PAUSE);
    }
}

/// A process with a lock on a file.
#[derive(Clone, Copy)]
struct Holder {
    pid: u32,
    lives: bool,
    /// Others may have it, too: udev looks at new devices so, for a moment.
    shares: bool,
}

/// Whether a file is another's that may live. One in another container is not seen.
fn is_other(holder: Option<Holder>) -> bool {
    holder.is_none_or(|holder| {
        let Holder { pid, lives, shares } = holder;
        lives && !shares && pid != std::process::id()
    })
}

/// Whether a device that the kernel does not give away is another's that may live: it has a lock then, too. The
/// kernel's own claims have none, and some tools' of a moment.
pub(super) fn is_taken(path: &Path) -> bool {
    let Ok(stat) = rustix::fs::stat(path) else {
        return false;
    };
    match holder(&stat) {
        None => has_unseen_lock(path),
        holder => is_other(holder),
    }
}

/// Whether a process that is not seen from here has a file locked.
fn has_unseen_lock(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

/// Who holds a lock on the file, from /proc/locks: `1: FLOCK ADVISORY WRITE pid maj:min:inode 0 EOF`.
fn holder(stat: &Stat) -> Option<Holder> {
    let file = format!(
        "{:02x}:{:02x}:{}",
        major(stat.st_dev),
        minor(stat.st_dev),
        stat.st_ino
    );
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&file.as_str());
        let pid = words.get(4).filter(|_| is_it)?.parse().ok()?;
        Some(Holder {
            pid,
            lives: !has_ended(pid),
            shares: words.get(3) == Some(&"READ"),
        })
    })
}

fn describe(pid: u32) -> String {
    if pid == std::process::id() {
        return "this process already".into();
    }
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match command.trim() {
        "" => format!("process {pid}"),
        command => format!("process {pid} ({command})"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that locks the file, which it has as its standard input, and then goes on so.
    fn locked_by(file: &File, how: &str, then: &str) -> Child {
        let script = format!(
            "import fcntl, time; fcntl.flock(0, fcntl.{how}); print(1, flush=True); {then}"
        );
        let mut command = Command::new("python3");
        command.args(["-c", &script]).stdout(Stdio::piped());
        command.stdin(file.try_clone().expect("a file"));
        let mut child = command.spawn().expect("python3");
        let mut said = [0; 2];
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut said).expect("it has the lock");
        child
    }

    /// Whether the file is another's, after a lock that was refused.
    fn is_taken(path: &Path) -> bool {
        let file = File::open(path).expect("a file");
        let stat = rustix::fs::fstat(&file).expect("its state");
        let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
        let refused = take_within(Duration::from_millis(200), lock, &stat, "it");
        refused.expect_err("it is locked").is_taken()
    }

    #[test]
    fn a_holder_that_the_kernel_does_not_list_is_another_that_may_live() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = File::create(dir.path().join("drive")).expect("a file");
        let stat = rustix::fs::fstat(&file).expect("its state");
        let refused = take_within(PAUSE, || Err(Errno::WOULDBLOCK), &stat, "it");
        let refused = refused.expect_err("it is locked");
        assert!(refused.is_taken());
        let said = refused.to_string();
        assert!(
            said.contains("not seen from here (in another container"),
            "{said}"
        );
    }

    #[test]
    fn what_a_living_process_has_is_told_from_what_a_dead_one_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("drive");
        for (how, then, taken) in [
            ("LOCK_EX", "time.sleep(99)", true),
            ("LOCK_SH", "time.sleep(99)", false),
            // What it has locked is still open here, as the kernel has it open for a ring of a killed process.
            ("LOCK_EX", "", false),
        ] {
            let file = File::create(&path).expect("a file");
            let mut child = locked_by(&file, how, then);
            while then.is_empty() && !has_ended(child.id()) {
                sleep(PAUSE);
            }
            assert_eq!(is_taken(&path), taken, "{how} {then}");
            child.kill().expect("it has not been waited for");
            child.wait().expect("ended");
        }
        let own = File::open(&path).expect("a file");
        own.try_lock().expect("free");
        assert!(!is_taken(&path), "it is this process's");
    }
}
