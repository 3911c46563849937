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
pub(super) struct Cgroup {
    dir: PathBuf,
    /// Where this process is now.
    outside: PathBuf,
}

/// This process is in a cgroup, and leaves it when this is dropped: what it has started stays in.
pub(super) struct Inside<'a>(&'a Cgroup);

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
    pub(super) fn make(server: &Path, bytes: u64) -> Result<Self, LabError> {
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
    pub(super) fn lift(server: &Path) -> Result<(), LabError> {
        let Some((root, limit)) = hierarchy() else {
            return Ok(());
        };
        let file = group_of(&root, server).join(limit);
        let none = if limit == "memory.max" { "max" } else { "-1" };
        std::fs::write(&file, none).map_err(|e| LabError::caused(file.display(), e))
    }

    /// Puts this process in; what it starts from now on is in, too.
    pub(super) fn enter(&self) -> Result<Inside<'_>, LabError> {
        join(&self.dir).map_err(|e| LabError::caused(self.dir.display(), e))?;
        Ok(Inside(self))
    }

    /// Removes a server's, if it has one and nobody is in it.
    pub(super) fn remove(server: &Path) {
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
