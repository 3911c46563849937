//! A limit of memory, page cache included: PostgreSQL reads through the page cache, and a database that
//! fits into memory measures no storage. Memory cgroups of version 1, or 2 where they have the
//! controller.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_lab::LabError;

const ROOT: &str = "/sys/fs/cgroup";
/// A process that was killed leaves its cgroup when it has ended.
const TRIES: u32 = 100;
const TRY_EVERY: Duration = Duration::from_millis(10);

/// The cgroup of one server.
pub struct Cgroup {
    dir: PathBuf,
    /// Where this process is now.
    outside: PathBuf,
}

/// This process is in a cgroup, and leaves it when this is dropped: what it has started stays in.
pub(crate) struct Inside<'a>(&'a Cgroup);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Where it cannot leave, it is only short of memory.
        let _ = join(&self.0.outside);
    }
}

/// The hierarchy with the memory controller, and the name of the limit in it.
fn hierarchy() -> Option<(PathBuf, &'static str)> {
    let one = Path::new(ROOT).join("memory");
    if one.join("memory.limit_in_bytes").exists() {
        return Some((one, "memory.limit_in_bytes"));
    }
    let controllers = std::fs::read_to_string(Path::new(ROOT).join("cgroup.controllers"));
    let has_memory = controllers.is_ok_and(|text| text.split_whitespace().any(|c| c == "memory"));
    has_memory.then(|| (PathBuf::from(ROOT), "memory.max"))
}

/// Whether a server's memory can be limited here.
///
/// # Errors
/// Why not, in words.
pub fn can_limit_memory() -> Result<(), String> {
    if hierarchy().is_none() {
        return Err(format!("there is no memory cgroup in {ROOT}"));
    }
    if !rustix::process::getuid().is_root() {
        return Err("only root can make a memory cgroup".to_owned());
    }
    Ok(())
}

fn group_of(root: &Path, server: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    server.hash(&mut hasher);
    root.join(format!("ashlar-{:016x}", hasher.finish()))
}

fn join(group: &Path) -> std::io::Result<()> {
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// The cgroup that this process is in, below the hierarchy.
fn own(root: &Path, limit: &str) -> PathBuf {
    let all = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let is_ours = |line: &&str| {
        let controllers = line.split(':').nth(1).unwrap_or_default();
        match limit {
            "memory.max" => controllers.is_empty(),
            _ => controllers.split(',').any(|c| c == "memory"),
        }
    };
    let path = all
        .lines()
        .find(is_ours)
        .and_then(|line| line.splitn(3, ':').nth(2));
    let found = root.join(path.unwrap_or("/").trim_start_matches('/'));
    // In a container the path may be the host's.
    if found.exists() {
        found
    } else {
        root.to_owned()
    }
}

impl Cgroup {
    /// Makes it, with a limit.
    pub(crate) fn make(server: &Path, bytes: u64) -> Result<Self, LabError> {
        let Some((root, limit)) = hierarchy() else {
            return Err(LabError::environment(format!(
                "--memory: there is no memory cgroup in {ROOT}"
            )));
        };
        let dir = group_of(&root, server);
        let failed = |what: &Path, e: std::io::Error| {
            LabError::caused(format!("--memory: {}", what.display()), e)
        };
        if limit == "memory.max" {
            let switch = root.join("cgroup.subtree_control");
            std::fs::write(&switch, "+memory").map_err(|e| failed(&switch, e))?;
        }
        if !dir.exists() {
            std::fs::create_dir(&dir).map_err(|e| failed(&dir, e))?;
        }
        let file = dir.join(limit);
        std::fs::write(&file, bytes.to_string()).map_err(|e| failed(&file, e))?;
        let outside = own(&root, limit);
        Ok(Self { dir, outside })
    }

    /// Takes the limit of a server's away.
    pub(crate) fn lift(server: &Path) -> Result<(), LabError> {
        let Some((root, limit)) = hierarchy() else {
            return Ok(());
        };
        let file = group_of(&root, server).join(limit);
        let none = if limit == "memory.max" { "max" } else { "-1" };
        std::fs::write(&file, none).map_err(|e| LabError::caused(file.display(), e))
    }

    /// Puts this process in; what it starts from now on is in, too.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, LabError> {
        join(&self.dir).map_err(|e| LabError::caused(self.dir.display(), e))?;
        Ok(Inside(self))
    }

    /// Puts processes in; what they start from now on is in, too.
    pub(crate) fn take(&self, processes: &[u32]) -> Result<(), LabError> {
        let entrance = self.dir.join("cgroup.procs");
        for pid in processes {
            match std::fs::write(&entrance, pid.to_string()) {
                // One that has ended meanwhile.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                written => written.map_err(|e| LabError::caused(entrance.display(), e))?,
            }
        }
        Ok(())
    }

    /// Removes a server's, if it has one and no process is in it.
    pub(crate) fn remove(server: &Path) {
        let Some((root, _)) = hierarchy() else {
            return;
        };
        let group = group_of(&root, server);
        for _ in 0..TRIES {
            // It stays while a process ends; the next start takes one that is left as it is.
            match std::fs::remove_dir(&group) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(TRY_EVERY);
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Waits for a word, and uses 64 MiB then.
    fn started_in(group: &Cgroup) -> Child {
        let _inside = group.enter().expect("entered");
        Command::new("sh")
            .args([
                "-c",
                "read go; exec dd if=/dev/zero of=/dev/null bs=64M count=1",
            ])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell")
    }

    fn goes(mut child: Child) -> bool {
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"go\n").expect("it waits");
        child.wait().expect("our child").success()
    }

    /// Here of the version that there is; `tests/guest` has a kernel with version 2 run it, too (scenario
    /// `memory`).
    #[test]
    fn a_limit_holds_for_what_was_started_in_it_until_it_is_lifted() {
        if let Err(why) = can_limit_memory() {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let (_, limit) = hierarchy().expect("a hierarchy");
        eprintln!("limited by {limit}");
        let server = tempfile::tempdir().expect("a folder");
        let group = Cgroup::make(server.path(), 32 * MIB).expect("made");
        let told = |name: &str| {
            let text = std::fs::read_to_string(group.dir.join(name)).expect(name);
            text.trim().to_owned()
        };
        let peak = || -> u64 {
            let name = match limit {
                "memory.max" => "memory.peak",
                _ => "memory.max_usage_in_bytes",
            };
            told(name).parse().expect("a number")
        };
        assert_eq!(told(limit), (32 * MIB).to_string());
        let child = started_in(&group);
        // The child alone: the thread that started it is out again.
        assert_eq!(told("cgroup.procs"), child.id().to_string());
        goes(child);
        // It was killed, or swapped. Cores charge pages in advance.
        assert!((16 * MIB..33 * MIB).contains(&peak()), "{}", peak());
        let child = started_in(&group);
        Cgroup::lift(server.path()).expect("lifted");
        assert_ne!(told(limit), (32 * MIB).to_string());
        assert!(goes(child) && peak() >= 64 * MIB, "{}", peak());
        Cgroup::remove(server.path());
        assert!(!group.dir.exists());
        // Lifting and removing what is not there.
        assert!(Cgroup::lift(server.path()).is_err());
        Cgroup::remove(server.path());
    }
}
