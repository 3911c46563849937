//! What a fault is done to.

use std::path::{Path, PathBuf};

use ashlar_lab::{LabError, OwnFolder, Progress, remove_left};

use super::kinds::{Fault, Topology};
use crate::group::{Group, GroupPlan, Member, NodeName, OWN, Tuning};
use crate::processes::{self, Sign};
use crate::server::{Server, Settings};

/// A database that is kept up, in one of the ways that there are.
pub trait System: Sync {
    /// Which way.
    fn topology(&self) -> Topology;

    /// What it is, in words, for the report.
    fn told(&self) -> String;

    /// A database through the listener.
    fn url(&self, database: &str) -> String;

    /// Nodes, and a database on each past the listener.
    fn servers(&self, database: &str) -> Vec<(String, String)>;

    /// The node that takes writes now, if one does.
    fn primary(&self) -> Option<String>;

    /// Does it to the primary, which is this node.
    ///
    /// # Errors
    /// It cannot be done.
    fn inject(&self, fault: Fault, primary: &str) -> Result<(), LabError>;

    /// Mends what [`Self::inject`] broke.
    ///
    /// # Errors
    /// It cannot be done.
    fn mend(&self, fault: Fault, broken: &str) -> Result<(), LabError>;

    /// Waits until all of it is as it should be.
    ///
    /// # Errors
    /// It does not come to be in time.
    fn await_ready(&self, progress: &Progress) -> Result<(), LabError>;

    /// Whether another node could take over now: a fault before that would be a second one.
    fn is_redundant(&self) -> bool {
        true
    }

    /// Bytes that copies of the volume were given again so far, as owners count them; nothing where there are no copies.
    /// An owner is asked while it is one, so this is to be called again and again.
    fn resynced_bytes(&self) -> Option<u64> {
        None
    }

    /// Reads all blocks of the database and compares them with their checksums: how many there are; nothing if it
    /// is not done.
    ///
    /// # Errors
    /// One does not match.
    fn verify(&self) -> Result<Option<u64>, LabError> {
        Ok(None)
    }

    /// Ends all of it, and leaves nothing.
    ///
    /// # Errors
    /// Something stays.
    fn end(self: Box<Self>) -> Result<(), LabError>;
}

/// One server, which is started again at once where it is, as a service manager would.
pub struct StandaloneSystem {
    server: Server,
    _folder: OwnFolder,
}

impl StandaloneSystem {
    /// Makes one in a new folder below `place`.
    ///
    /// # Errors
    /// There is no PostgreSQL, or it does not start.
    pub fn make(place: &Path, set: &[String]) -> Result<Self, LabError> {
        let folder = OwnFolder::make(place)?;
        let server = Server::at(&folder.path().join("a"))?;
        let settings = Settings {
            memory_bytes: None,
            set: set.to_vec(),
        };
        server.start(Some(settings))?;
        Ok(Self {
            server,
            _folder: folder,
        })
    }
}

impl StandaloneSystem {
    /// Ends what runs have left below `place` whose starters are gone.
    ///
    /// # Errors
    /// Something of it stays.
    pub fn end_left_behind(place: &Path) -> Result<(), LabError> {
        for folder in processes::left_behind(place) {
            if Server::is_one(&folder.join("a")) {
                Server::at(&folder.join("a"))?.kill()?;
                remove_left(&[folder])?;
            }
        }
        Ok(())
    }
}

impl System for StandaloneSystem {
    fn topology(&self) -> Topology {
        Topology::Standalone
    }

    fn told(&self) -> String {
        "one server, started again at once where it is; clients reach it directly".into()
    }

    fn url(&self, database: &str) -> String {
        self.server.url(database) + "&connect_timeout=2"
    }

    fn servers(&self, database: &str) -> Vec<(String, String)> {
        vec![("a".into(), self.url(database))]
    }

    fn primary(&self) -> Option<String> {
        let runs = self
            .server
            .status()
            .is_ok_and(|status| status.pid.is_some());
        runs.then(|| "a".into())
    }

    fn inject(&self, fault: Fault, _: &str) -> Result<(), LabError> {
        self.topology().check(&[fault])?;
        self.server.kill()?;
        self.server.start(None).map(drop)
    }

    fn mend(&self, _: Fault, _: &str) -> Result<(), LabError> {
        Ok(())
    }

    fn await_ready(&self, _: &Progress) -> Result<(), LabError> {
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<(), LabError> {
        self.server.stop().map(drop)
    }
}

impl Drop for StandaloneSystem {
    fn drop(&mut self) {
        // Ended in order before; otherwise its folder would be removed under it.
        let _ = self.server.kill();
    }
}

/// Drives under a group's databases that can be made to fail while the kernel above them lives.
pub trait GroupDrives: Send + Sync {
    /// Where a node's drive is mounted.
    fn place(&self, node: NodeName) -> PathBuf;

    /// What they are, in words, for the report.
    fn told(&self) -> String;

    /// A node's drive fails so.
    ///
    /// # Errors
    /// It cannot be made to.
    fn fail(&self, node: NodeName, fault: Fault) -> Result<(), LabError>;

    /// It does what it is asked again; what waited is done.
    ///
    /// # Errors
    /// It stays as it is.
    fn mend(&self, node: NodeName) -> Result<(), LabError>;

    /// Mounts it anew, as its file system gave up. Nothing uses it.
    ///
    /// # Errors
    /// It cannot be mounted.
    fn remount(&self, node: NodeName) -> Result<(), LabError>;

    /// Takes all of them away.
    ///
    /// # Errors
    /// Something stays.
    fn end(&mut self) -> Result<(), LabError>;
}

/// An availability group under Patroni.
pub struct GroupSystem {
    group: Group,
    tuning: Tuning,
    /// Where the databases are, if the places are to fail.
    drives: Option<Box<dyn GroupDrives>>,
    /// Removed with what is below it.
    _folder: OwnFolder,
}

impl GroupSystem {
    /// Makes one in a new folder below `dir`.
    ///
    /// # Errors
    /// A program is missing, or it is not ready in time.
    pub fn make(dir: &Path, plan: &GroupPlan, progress: &Progress) -> Result<Self, LabError> {
        Group::end_left_behind(dir)?;
        let folder = OwnFolder::make(dir)?;
        let group = Group::start(&folder.path().join(OWN), plan, progress)?;
        Ok(Self {
            group,
            tuning: plan.tuning,
            drives: None,
            _folder: folder,
        })
    }

    /// Makes one whose databases are on these drives.
    ///
    /// # Errors
    /// As [`Self::make`]'s.
    pub fn on_drives(
        dir: &Path,
        plan: &GroupPlan,
        drives: Box<dyn GroupDrives>,
        progress: &Progress,
    ) -> Result<Self, LabError> {
        let plan = GroupPlan {
            place_a: Some(drives.place(NodeName::A)),
            place_b: Some(drives.place(NodeName::B)),
            ..plan.clone()
        };
        let mut system = Self::make(dir, &plan, progress)?;
        system.drives = Some(drives);
        Ok(system)
    }

    fn drives(&self) -> Result<&dyn GroupDrives, LabError> {
        let drives = self.drives.as_deref();
        drives.ok_or_else(|| {
            LabError::environment(
                "the group's places are directories, whose drives are not ours to break",
            )
        })
    }

    /// A file system that was told of errors takes nothing any more until it is mounted again. What a drive that died has
    /// kept is not relied on: Patroni does not start on its own files if they are torn.
    fn remount(&self, node: NodeName) -> Result<(), LabError> {
        let drives = self.drives()?;
        let member = Member::Patroni(node);
        self.group.end_member(member)?;
        drives.mend(node)?;
        drives.remount(node)?;
        self.group.remove_database(node)?;
        self.group.start_member(member)
    }
}

impl System for GroupSystem {
    fn topology(&self) -> Topology {
        Topology::of(self.tuning)
    }

    fn told(&self) -> String {
        let mut told = format!(
            "Patroni with two PostgreSQL, synchronous; three members of etcd, HAProxy as the listener ({}); {}",
            self.group.network_word(),
            self.tuning.told()
        );
        if let Some(drives) = &self.drives {
            told.push_str(&format!("; {}", drives.told()));
        }
        told
    }

    fn url(&self, database: &str) -> String {
        self.group.url(database) + "&connect_timeout=2"
    }

    fn servers(&self, database: &str) -> Vec<(String, String)> {
        let of = |node: NodeName| (node.to_string(), self.group.node_url(node, database));
        vec![of(NodeName::A), of(NodeName::B)]
    }

    fn primary(&self) -> Option<String> {
        self.group.primary().map(|node| node.to_string())
    }

    fn inject(&self, fault: Fault, primary: &str) -> Result<(), LabError> {
        self.topology().check(&[fault])?;
        let node: NodeName = primary.parse()?;
        match fault {
            Fault::KillDatabase => self.group.kill_database(node),
            Fault::KillNode => self.group.signal(&Member::of_node(node), Sign::Kill),
            Fault::StopNode => self.group.signal(&Member::of_node(node), Sign::Stop),
            Fault::CutNetwork => self.group.set_connected(node, false)?,
            Fault::EtcdDown => self.group.signal(&Member::ETCD, Sign::Kill),
            Fault::Move => self.group.switch_over_from(node)?,
            Fault::DriveDies | Fault::DriveHangs => self.drives()?.fail(node, fault)?,
            Fault::KillDaemon => {}
        }
        Ok(())
    }

    fn mend(&self, fault: Fault, broken: &str) -> Result<(), LabError> {
        let node: NodeName = broken.parse()?;
        match fault {
            Fault::KillNode => {
                for member in Member::of_node(node) {
                    self.group.start_member(member)?;
                }
            }
            Fault::StopNode => self.group.signal(&Member::of_node(node), Sign::Continue),
            Fault::CutNetwork => self.group.set_connected(node, true)?,
            Fault::EtcdDown => {
                for member in Member::ETCD {
                    self.group.start_member(member)?;
                }
            }
            Fault::DriveDies => self.remount(node)?,
            Fault::DriveHangs => self.drives()?.mend(node)?,
            Fault::KillDatabase | Fault::KillDaemon | Fault::Move => {}
        }
        Ok(())
    }

    fn await_ready(&self, progress: &Progress) -> Result<(), LabError> {
        self.group.await_ready(progress)
    }

    fn end(mut self: Box<Self>) -> Result<(), LabError> {
        let stopped = self.group.stop();
        match self.drives.take() {
            Some(mut drives) => stopped.and(drives.end()),
            None => stopped,
        }
    }
}

impl Drop for GroupSystem {
    fn drop(&mut self) {
        // Ended in order before; this is for a panic on the way.
        if let Some(drives) = &self.drives {
            // A process that waits for its drive could not be ended.
            let _ = [NodeName::A, NodeName::B].map(|node| drives.mend(node));
        }
        if Group::at(&self.group.dir).is_ok() {
            let _ = self.group.stop();
        }
    }
}
