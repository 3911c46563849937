//! Two processes that write one file without knowing of each other destroy it: a lock on the file,
//! and for a block device also the kernel's own claim (O_EXCL), which mounts respect.

use std::fs;
use std::os::fd::AsFd;
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

/// Takes the lock for the life of the open file, all its duplicates included. Waits for a process
/// that is gone already, whose last writes may still be on their way; never for one that lives.
pub(super) fn take(fd: impl AsFd, stat: &Stat, name: &str, share: bool) -> Result<(), OpenError> {
    let operation = if share {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let begun = Instant::now();
    loop {
        match flock(&fd, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {}
            // File systems without locks are rare and remote; refusing them would help nobody.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(()),
            Err(error) => {
                return Err(OpenError::environment(name, "cannot be locked").with_source(error));
            }
        }
        // None is seen when it has let go since.
        let holder = holder(stat);
        let lives = holder.is_some_and(|pid| !has_ended(pid));
        if lives || begun.elapsed() >= AFTERLIFE {
            let who = holder.map_or_else(|| "another process".into(), describe);
            let why = format!("is in use by {who} (if that is meant, both need share=on)");
            return Err(OpenError::environment(name, why));
        }
        sleep(PAUSE);
    }
}

/// Who holds a lock on the file, from /proc/locks: `1: FLOCK ADVISORY WRITE pid maj:min:inode 0 EOF`.
fn holder(stat: &Stat) -> Option<u32> {
    let file = format!(
        "{:02x}:{:02x}:{}",
        major(stat.st_dev),
        minor(stat.st_dev),
        stat.st_ino
    );
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&file.as_str()))
            .then(|| words[4].parse().ok())?
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
