//! Drives for a group's databases that die or hang while the kernel lives: each is a file behind a switch, served by a
//! process of ours and attached, with XFS on it. An instance's drives fail by the same switch.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, OwnFolder, Progress, remove_left};
use ashlar_oltp::faults::{Fault, GroupDrives, GroupSystem};
use ashlar_oltp::group::{Group, GroupPlan, NodeName};
use ashlar_oltp::processes;
use ashlar_testbed::process::own_program;

use crate::attached::Attachments;

/// Sparse.
const DRIVE_SIZE: &str = "8GiB";
const NODES: [NodeName; 2] = [NodeName::A, NodeName::B];
/// What is in the folder, besides two places and the folders of what serves them: what attaching remembers. It is
/// short, as the place is: a socket below has both in its path.
const ATTACHED: &str = "s";
/// A node's name is behind it.
const NQN: &str = "nqn.2026-11.org.ashlar.lab:drive-";
const SERVES_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn breaks_drives(faults: &[Fault]) -> bool {
    faults.iter().copied().any(Fault::breaks_drives)
}

/// # Errors
/// The standby was given a place, and drives are to fail.
pub(crate) fn check_standby(faults: &[Fault], place: Option<&Path>) -> Result<(), LabError> {
    match place {
        Some(_) if breaks_drives(faults) => Err(LabError::usage(
            "--standby: where drives are to fail, a group's databases are on drives of the lab's own, in --dir",
        )),
        _ => Ok(()),
    }
}

/// A group below `dir`, on drives of its own where they are to fail.
///
/// # Errors
/// As [`SwitchedDrives::make`] and [`GroupSystem::make`].
pub(crate) fn group_for(
    faults: &[Fault],
    dir: &Path,
    plan: &GroupPlan,
    progress: &Progress,
) -> Result<GroupSystem, LabError> {
    if !breaks_drives(faults) {
        return GroupSystem::make(dir, plan, progress);
    }
    let drives = SwitchedDrives::make(dir, progress)?;
    GroupSystem::on_drives(dir, plan, Box::new(drives), progress)
}

/// Two drives, mounted.
pub struct SwitchedDrives {
    /// Removed with what is below it.
    folder: Option<OwnFolder>,
}

/// Where the things of drives are: all of it is found from the folder alone.
struct Room<'a>(&'a Path);

impl SwitchedDrives {
    /// Makes them in a new folder below `dir`; what others have left there whose starters were killed is taken away.
    ///
    /// # Errors
    /// This is not root, a tool is missing, or something does not come up: what was made is taken away.
    pub fn make(dir: &Path, progress: &Progress) -> Result<Self, LabError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::environment(
                "drives that fail under a group: needs root, which attaches and mounts",
            ));
        }
        end_left_behind(dir)?;
        let folder = OwnFolder::make(dir)?;
        let drives = Self {
            folder: Some(folder),
        };
        progress.say("a drive for each database is made, served and attached");
        let room = drives.room()?;
        for node in NODES {
            room.serve(node)?;
            let (url, place) = (room.url(node)?, room.place(node));
            room.attachments().attach_new(&url, &place)?;
        }
        Ok(drives)
    }

    fn room(&self) -> Result<Room<'_>, LabError> {
        let folder = self.folder.as_ref();
        let folder = folder.ok_or_else(|| LabError::environment("the drives are gone"))?;
        Ok(Room(folder.path()))
    }

    fn take_away(&mut self) -> Result<(), LabError> {
        let ended = match self.folder.is_some() {
            true => self.room()?.end(),
            false => Ok(()),
        };
        self.folder = None;
        ended
    }
}

impl GroupDrives for SwitchedDrives {
    fn place(&self, node: NodeName) -> PathBuf {
        let room = self.folder.as_ref().map(|folder| Room(folder.path()));
        room.map(|room| room.place(node)).unwrap_or_default()
    }

    fn told(&self) -> String {
        "each database on a drive of its own behind a switch (a file, served and attached with XFS), etcd and Patroni's \
         log on none"
            .into()
    }

    fn fail(&self, node: NodeName, fault: Fault) -> Result<(), LabError> {
        let word = match fault {
            Fault::DriveHangs => "hung",
            _ => "dead",
        };
        ashlar_lab::write_whole(&self.room()?.switch(node), word)
    }

    fn mend(&self, node: NodeName) -> Result<(), LabError> {
        self.room()?.mend(node)
    }

    fn remount(&self, node: NodeName) -> Result<(), LabError> {
        let room = self.room()?;
        room.detach(node)?;
        let (url, place) = (room.url(node)?, room.place(node));
        room.attachments().attach_again(&url, &place)
    }

    fn end(&mut self) -> Result<(), LabError> {
        self.take_away()
    }
}

impl Drop for SwitchedDrives {
    fn drop(&mut self) {
        // Ended in order before; this is for an error on the way.
        let _ = self.take_away();
    }
}

impl Room<'_> {
    fn place(&self, node: NodeName) -> PathBuf {
        self.0.join(node.to_string())
    }

    /// Where its server works.
    fn server(&self, node: NodeName) -> PathBuf {
        self.0.join(format!("drive-{node}"))
    }

    fn switch(&self, node: NodeName) -> PathBuf {
        self.server(node).join("switch")
    }

    fn attachments(&self) -> Attachments {
        Attachments::at(self.0.join(ATTACHED))
    }

    fn serve(&self, node: NodeName) -> Result<(), LabError> {
        let folder = self.server(node);
        let caused = |error| LabError::caused(folder.display(), error);
        for made in [&folder, &self.place(node)] {
            std::fs::create_dir(made).map_err(caused)?;
        }
        let switch = self.switch(node);
        let image = folder.join("image");
        let device = format!(
            "faulty:switch={},file:{}?size={DRIVE_SIZE}",
            switch.display(),
            image.display()
        );
        let file = |name: &str| File::create(folder.join(name)).map_err(caused);
        let mut command = Command::new(own_program()?);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--allow-any-host"])
            .args(["--nqn", &format!("{NQN}{node}"), "--device", &device])
            .current_dir(&folder)
            .stdout(file("ready")?)
            .stderr(file("log")?);
        processes::start(&mut command)
    }

    /// What is served, once it is. A server that has ended says why in its log.
    fn url(&self, node: NodeName) -> Result<String, LabError> {
        let folder = self.server(node);
        let begun = Instant::now();
        while begun.elapsed() < SERVES_WITHIN {
            let said = std::fs::read_to_string(folder.join("ready")).unwrap_or_default();
            let words: Vec<&str> = said.split_whitespace().collect();
            if let (true, ["ready", address, nqn]) = (said.ends_with('\n'), &*words) {
                return Ok(format!("nvme-tcp://{address}/{nqn}?ns=1"));
            }
            std::thread::sleep(LOOK_EVERY);
            if processes::working_in(std::slice::from_ref(&folder)).is_empty() {
                break;
            }
        }
        let said = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        let last = said.lines().last().unwrap_or("it is not ready");
        Err(LabError::environment(format!(
            "drive of node {node}: {last}"
        )))
    }

    /// Whatever its drive and its file system are at.
    fn detach(&self, node: NodeName) -> Result<(), LabError> {
        self.attachments().detach(&self.place(node))
    }

    fn mend(&self, node: NodeName) -> Result<(), LabError> {
        let switch = self.switch(node);
        match std::fs::remove_file(&switch) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LabError::caused(switch.display(), error))
            }
            _ => Ok(()),
        }
    }

    /// Takes all of it away but the folder; what is not there is as it should be.
    fn end(&self) -> Result<(), LabError> {
        let mut ended = Ok(());
        for node in NODES {
            ended = ended.and(self.mend(node));
        }
        for node in NODES {
            ended = ended.and(self.detach(node));
        }
        ended.and(processes::end(&NODES.map(|node| self.server(node))))
    }
}

/// What runs have left below `dir` whose starters are gone: groups first, which lie on the drives.
pub(crate) fn end_left_behind(dir: &Path) -> Result<(), LabError> {
    let mut left = processes::left_behind(dir);
    left.retain(|folder| Room(folder).server(NodeName::A).is_dir());
    for folder in &left {
        // A process that waits for its drive could not be ended.
        let room = Room(folder);
        NODES.into_iter().try_for_each(|node| room.mend(node))?;
    }
    Group::end_left_behind(dir)?;
    for folder in &left {
        Room(folder).end()?;
    }
    remove_left(&left)
}
