//! An instance that stays when the command that has made it ends, and is found again from its directory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ashlar_lab::{LabError, Progress, check_length, remove_left};
use ashlar_node::model::MoveService;
use ashlar_oltp::faults::System;
use ashlar_oltp::group::InstanceStatus;
use ashlar_oltp::processes;
use ashlar_oltp::server::DATABASE;
use ashlar_testbed::nodes::Nodes;
use serde::Serialize;

use super::here::check;
use super::service::SERVICE;
use super::{FciPlan, FciSystem, Ground, Here, LONGEST_DIR, LOOK_EVERY, READY_WITHIN, wrong};

/// What a status is of.
pub(super) const FCI: &str = "fci";
/// Our mark: a directory with this is an instance's.
const MARK: &str = "fci.json";
/// What is in it: its nodes, sockets, the listener, and where the volume is mounted.
pub(super) const NODES: &str = "n";
pub(super) const RUN: &str = "run";
pub(super) const LISTENER: &str = "listener";
pub(super) const MOUNT: &str = "mnt";

/// What an instance is at.
#[derive(Debug, Serialize)]
pub struct FciStatus {
    /// `fci`, where others are `nodes` or none.
    kind: &'static str,
    dir: PathBuf,
    /// What `--db` takes: the listener.
    pub url: String,
    /// What its nodes are at.
    #[serde(flatten)]
    pub instance: InstanceStatus,
}

impl fmt::Display for FciStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, instance, .. } = self;
        writeln!(f, "listener: {url}\ncopies: {}", instance.copies())?;
        let mut nodes = instance.nodes.iter();
        nodes.try_for_each(|node| writeln!(f, "{}: {}", node.node, instance.told(node)))
    }
}

impl FciSystem {
    /// Makes one in an empty directory, in which it stays.
    ///
    /// # Errors
    /// As [`FciSystem::make`]'s; a directory that holds other things. What was made is taken away.
    pub fn up(dir: &Path, plan: &FciPlan<'_>, progress: &Progress) -> Result<Self, LabError> {
        check_length(dir, LONGEST_DIR)?;
        check()?;
        let dir = claim(dir)?;
        let mark = dir.join(MARK);
        // First, so that what is made from here on is found again.
        ashlar_lab::write_whole(&mark, "{}\n")?;
        let made = Here::up(&dir, plan, progress).and_then(Self::on);
        let filled = made.and_then(|system| match system.fill(plan, progress) {
            Ok(()) => Ok(system),
            Err(error) => {
                drop(system);
                Err(error)
            }
        });
        match filled {
            Ok(mut system) => {
                system.has_ended = true;
                Ok(system)
            }
            Err(error) => Err(give_up(&dir, error)),
        }
    }

    /// The one that is kept in a directory.
    ///
    /// # Errors
    /// There is none, or its nodes are gone.
    pub fn at(dir: &Path) -> Result<Self, LabError> {
        if !Self::is_in(dir) {
            let dir = dir.display();
            return Err(LabError::usage(format!(
                "{dir}: there is no instance of ours in it: `ashlar lab cluster fci --dir {dir}` makes one"
            )));
        }
        Self::open(dir)
    }

    /// The same, be it kept or a run's own, which has no mark.
    fn open(dir: &Path) -> Result<Self, LabError> {
        let dir =
            std::fs::canonicalize(dir).map_err(|error| LabError::caused(dir.display(), error))?;
        let mut system = Self::on(Here::of(&dir, Nodes::at(&dir.join(NODES))?))?;
        system.has_ended = true;
        Ok(system)
    }

    /// Whether a directory has one.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(MARK).exists()
    }

    /// Ends what is in a directory, also what a starter that was killed has left, and removes what was made.
    ///
    /// # Errors
    /// Something of it stays.
    pub fn down(dir: &Path) -> Result<(), LabError> {
        let has_nodes = Nodes::is_in(&dir.join(NODES));
        if has_nodes || !Self::is_in(dir) {
            Self::at(dir)?.finish()?;
        }
        remove(dir)
    }

    /// Ends what runs have left below `dir` whose starters are gone.
    ///
    /// # Errors
    /// Something of it stays.
    pub(crate) fn end_left_behind(dir: &Path) -> Result<(), LabError> {
        for folder in processes::left_behind(dir) {
            if Nodes::is_in(&folder.join(NODES)) && folder.join(RUN).is_dir() {
                Self::open(&folder)?.finish()?;
                remove_left(&[folder])?;
            }
        }
        Ok(())
    }

    /// Has the other node run it, in order.
    ///
    /// # Errors
    /// No node runs it, or it is refused.
    pub fn switch_over(&self) -> Result<(), LabError> {
        let primary = self.primary().ok_or_else(|| wrong("no node runs it"))?;
        let client = self.ground.client(&primary)?;
        let moved = client.move_service(SERVICE, &MoveService::default());
        moved.map_err(wrong)?;
        // It is ordered, and not done yet.
        let begun = Instant::now();
        while self.primary().is_none_or(|now| now == primary) {
            if begun.elapsed() > READY_WITHIN {
                return Err(wrong(format!("it has not left node {primary}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.await_ready(&Progress::silent())
    }

    /// What it is at.
    pub fn status(&self) -> FciStatus {
        FciStatus {
            kind: FCI,
            dir: self
                .ground
                .run
                .parent()
                .map(Path::to_owned)
                .unwrap_or_default(),
            url: self.url(DATABASE),
            instance: self.instance(drop),
        }
    }
}

/// An empty directory becomes an instance's.
fn claim(dir: &Path) -> Result<PathBuf, LabError> {
    let caused = |error| LabError::caused(dir.display(), error);
    std::fs::create_dir_all(dir).map_err(caused)?;
    let dir = std::fs::canonicalize(dir).map_err(caused)?;
    if let Some(other) = std::fs::read_dir(&dir).map_err(caused)?.next() {
        let other = other.map_err(caused)?.file_name();
        return Err(LabError::usage(format!(
            "{} holds other things ({}): an instance takes an empty directory",
            dir.display(),
            other.display()
        )));
    }
    // The database's server is not root's.
    let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(&dir, open).map_err(caused)?;
    Ok(dir)
}

/// What an instance that did not come up has left is removed, unless something of it runs still: then it can be ended.
fn give_up(dir: &Path, why: LabError) -> LabError {
    // Nodes take their mark away when all of them have ended, and the listener ends before them.
    let left = match Nodes::is_in(&dir.join(NODES)) {
        true => "something of it runs still".to_owned(),
        false => match remove(dir) {
            Ok(()) => return why,
            Err(error) => error.to_string(),
        },
    };
    let dir = dir.display();
    LabError::environment(format!(
        "{why}; {left}: `ashlar lab cluster stop --dir {dir}` ends it"
    ))
}

/// What it has made besides its nodes, the mark last.
fn remove(dir: &Path) -> Result<(), LabError> {
    let absent = |result: std::io::Result<()>, path: &Path| match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::caused(path.display(), error))
        }
        _ => Ok(()),
    };
    for name in [RUN, LISTENER, MOUNT] {
        let path = dir.join(name);
        absent(std::fs::remove_dir_all(&path), &path)?;
    }
    let mark = dir.join(MARK);
    absent(std::fs::remove_file(&mark), &mark)?;
    // It stays if other things are in it.
    let _ = std::fs::remove_dir(dir);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_still_is_found_by_its_mark() {
        let name = format!("ashlar-standing-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let nodes = dir.join(NODES);
        std::fs::create_dir_all(&nodes).expect("a directory");
        std::fs::write(dir.join(MARK), "{}").expect("a mark");
        let mark = nodes.join("nodes.json");
        std::fs::write(&mark, "{}").expect("a mark");
        let why = give_up(&dir, wrong("it is not ready")).to_string();
        assert!(why.contains("not ready") && why.contains("lab cluster stop"));
        assert!(FciSystem::is_in(&dir), "it can be ended");
        std::fs::remove_dir_all(&nodes).expect("ended");
        let why = give_up(&dir, wrong("it is not ready")).to_string();
        assert!(!why.contains("lab cluster stop"), "{why}");
        assert!(!dir.exists());
    }
}
