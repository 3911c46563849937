//! What a killed server leaves outside of its directory, or would leave.
//!
//! PostgreSQL's segments of shared memory in `/dev/shm` bear no mark of their server, and a killed one leaves
//! them there. So its servers here have them in their own directory, where the next start removes them, or the
//! removal of the directory; and room in their main memory for the usual ones, so that what is measured
//! is not their writing.

use std::path::Path;
use std::process::{Command, Stdio};

/// From this version on there can be room for segments in the main memory.
const ROOM_SINCE: u32 = 14;

/// Settings, `name=value`, for a server of a version.
pub(super) fn own_segments(version: u32) -> Vec<String> {
    let mut settings = vec!["dynamic_shared_memory_type=mmap".to_owned()];
    if version >= ROOM_SINCE {
        settings.push("min_dynamic_shared_memory=16MB".to_owned());
    }
    settings
}

/// A segment of System V, which a server holds to be the only one of its directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interlock {
    id: u64,
    process: u32,
}

impl Interlock {
    /// That of the server whose `postmaster.pid` has this text.
    pub(super) fn of(postmaster_pid: &str) -> Option<Self> {
        let mut lines = postmaster_pid.lines();
        let process = lines.next()?.trim().parse().ok()?;
        // Line 7: key and number.
        let id = lines.nth(5)?.split_whitespace().nth(1)?.parse().ok()?;
        Some(Self { id, process })
    }

    /// Removes it if it is still this server's, and used by no process.
    pub(super) fn remove(&self) {
        let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
        if !self.is_left_in(&all) {
            return;
        }
        let mut command = Command::new("ipcrm");
        command.args(["-m", &self.id.to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // 56 bytes that stay are no reason to fail.
        let _ = command.status();
    }

    /// Whether `/proc/sysvipc/shm` has it, made by this server's process, with no process attached.
    fn is_left_in(&self, all: &str) -> bool {
        let number = |words: &[&str], at: usize| words.get(at).and_then(|w| w.parse::<u64>().ok());
        all.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (id, maker, users) = (number(&words, 1), number(&words, 4), number(&words, 6));
            id == Some(self.id) && maker == Some(self.process.into()) && users == Some(0)
        })
    }
}

/// The interlock of the server in a data directory.
pub(super) fn interlock(data: &Path) -> Option<Interlock> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    Interlock::of(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "4711\n/d/data\n1795330529\n5432\n/d/run\n\n 10113852     65536\nready   \n";
    const HEAD: &str = "       key      shmid perms                  size  cpid  lpid nattch   uid";

    #[test]
    fn only_the_killed_server_s_own_segment_is_removed() {
        let of = Interlock::of(FILE).expect("line 7");
        assert_eq!(
            of,
            Interlock {
                id: 65536,
                process: 4711
            }
        );
        let all = |id, maker, users| {
            format!("{HEAD}\n  10113852 {id:>10}   600 56 {maker} 32377 {users} 101 104\n")
        };
        assert!(of.is_left_in(&all(65536, 4711, 0)));
        for (other, why) in [
            (all(65537, 4711, 0), "another segment"),
            (all(65536, 4712, 0), "another server's"),
            (all(65536, 4711, 1), "in use"),
            (String::new(), "nothing"),
        ] {
            assert!(!of.is_left_in(&other), "{why}");
        }
        assert_eq!(Interlock::of("4711\n/d/data\n"), None);
    }

    #[test]
    fn old_versions_are_not_told_what_they_do_not_know() {
        assert_eq!(own_segments(13).len(), 1);
        assert_eq!(own_segments(15).len(), 2);
    }
}
