//! Two processes that write one file without knowing of each other destroy it: a lock on the file,
//! and for a block device also the kernel's own claim (O_EXCL), which mounts respect.

use std::fs;
use std::os::fd::AsFd;

use rustix::fs::{FlockOperation, Stat, flock, major, minor};
use rustix::io::Errno;

use crate::OpenError;

/// Takes the lock for the life of the open file, all its duplicates included.
pub(super) fn take(fd: impl AsFd, stat: &Stat, name: &str, share: bool) -> Result<(), OpenError> {
    let operation = if share {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    match flock(fd, operation) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let who = holder(stat).unwrap_or_else(|| "another process".into());
            let why = format!("is in use by {who} (if that is meant, both need share=on)");
            Err(OpenError::environment(name, why))
        }
        // File systems without locks are rare and remote; refusing them would help nobody.
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(error) => Err(OpenError::environment(name, "cannot be locked").with_source(error)),
    }
}

/// Who holds a lock on the file, from /proc/locks: `1: FLOCK ADVISORY WRITE pid maj:min:inode 0 EOF`.
fn holder(stat: &Stat) -> Option<String> {
    let file = format!(
        "{:02x}:{:02x}:{}",
        major(stat.st_dev),
        minor(stat.st_dev),
        stat.st_ino
    );
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&file.as_str()))
            .then(|| words[4].parse::<u32>().ok())?
    })?;
    if pid == std::process::id() {
        return Some("this process already".into());
    }
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(match command.trim() {
        "" => format!("process {pid}"),
        command => format!("process {pid} ({command})"),
    })
}
