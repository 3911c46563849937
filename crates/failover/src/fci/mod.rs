//! A failover cluster instance: two nodes, and a PostgreSQL as a service on a replicated volume. Where its nodes are, on
//! this machine or on given hosts, is its [`Ground`].

mod here;
mod listener;
mod service;
mod standing;
mod there;

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, OwnFolder, Progress};
use ashlar_node::client::Client;
use ashlar_node::model::{
    CreateService, CreateVolume, LayoutSpec, MoveService, ReplicationStatus, ServiceState,
    ServiceStatus, VolumeName,
};
use ashlar_oltp::database::Database;
use ashlar_oltp::faults::{Fault, System, Topology};
use ashlar_oltp::group::{InstanceNode, InstanceStatus};
use ashlar_oltp::server::DATABASE;
use ashlar_oltp::{Logic, Postgres};
use ashlar_testbed::nodes::{self, POOL};

pub use self::here::Here;
use self::service::SERVICE;
pub use self::standing::FciStatus;
use crate::all_in_sync;
use crate::copied::Copied;

/// Each of a node's two drives, which are sparse files, holds a copy of the volume, which is half as large, and the logs.
const DRIVE_BYTES: u64 = 8 << 30;
/// The longest path of an instance's directory: its nodes are below it.
pub(crate) const LONGEST_DIR: usize = nodes::LONGEST_DIR - "/n".len();
/// All is as it should be within so long, on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a node says of itself is said at once, or it does not answer.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// Where an instance's nodes are, how they are reached, and what is done to them there.
pub trait Ground: Sync {
    /// The nodes.
    fn names(&self) -> &[String];

    /// What it is, in words, for the report.
    fn told(&self) -> String;

    /// Where a node's API is.
    fn api(&self, node: &str) -> String;

    /// Network namespaces that were made for it.
    fn namespaces(&self) -> Vec<String> {
        Vec::new()
    }

    /// # Errors
    /// It cannot be made.
    fn client(&self, node: &str) -> Result<Client, LabError>;

    /// A database through the listener.
    fn url(&self, database: &str) -> String;

    /// A database on a node, past the listener.
    fn node_url(&self, node: &str, database: &str) -> String;

    /// The service on this volume, once there is all that it needs.
    ///
    /// # Errors
    /// It cannot be there.
    fn service(&self, volume: &VolumeName, set: &[String]) -> Result<CreateService, LabError>;

    /// # Errors
    /// The listener does not come up.
    fn start_listener(&self) -> Result<(), LabError>;

    /// Does it to a node, or to all of etcd.
    ///
    /// # Errors
    /// It cannot be done.
    fn inject(&self, fault: Fault, node: &str) -> Result<(), LabError>;

    /// # Errors
    /// It stays.
    fn mend(&self, fault: Fault, node: &str) -> Result<(), LabError>;

    /// Reads all blocks of a node's database; how many there are.
    ///
    /// # Errors
    /// One does not match its checksum.
    fn verify(&self, node: &str) -> Result<u64, LabError>;

    /// Ends the listener and the nodes.
    ///
    /// # Errors
    /// Something stays.
    fn end(&self) -> Result<(), LabError>;
}

/// Two nodes and a service.
pub struct FciSystem<G: Ground = Here> {
    ground: G,
    volume: VolumeName,
    /// A node that does not answer: it is not asked.
    silent: Mutex<Option<String>>,
    copied: Mutex<Copied>,
    has_ended: bool,
    /// Removed with what is below it, if it does not stay.
    _folder: Option<OwnFolder>,
}

/// What an instance is made of.
pub struct FciPlan<'a> {
    /// PostgreSQL's settings, `name=value`.
    pub set: &'a [String],
    /// Bytes of each of a node's two drives; the volume has half as many.
    drive_bytes: u64,
    /// Its drives can be made to fail, and cost a little more.
    pub has_switches: bool,
}

impl<'a> FciPlan<'a> {
    /// One with these settings, and drives of the usual size that do not fail.
    pub fn new(set: &'a [String]) -> Self {
        Self {
            set,
            drive_bytes: DRIVE_BYTES,
            has_switches: false,
        }
    }

    /// The same with drives of this size, if it is said.
    pub fn sized(set: &'a [String], drive_bytes: Option<u64>) -> Self {
        Self {
            drive_bytes: drive_bytes.unwrap_or(DRIVE_BYTES),
            ..Self::new(set)
        }
    }

    /// One that all of these faults can be done to.
    pub fn of(faults: &[Fault], set: &'a [String]) -> Self {
        Self {
            has_switches: faults.iter().copied().any(Fault::breaks_drives),
            ..Self::new(set)
        }
    }
}

impl FciSystem {
    /// Makes one in a new folder below `dir`.
    ///
    /// # Errors
    /// A program is missing, this is not root, or it is not ready in time.
    pub fn make(dir: &Path, plan: &FciPlan<'_>, progress: &Progress) -> Result<Self, LabError> {
        here::check()?;
        let folder = OwnFolder::make(dir)?;
        let mut system = Self::on(Here::up(folder.path(), plan, progress)?)?;
        system._folder = Some(folder);
        system.fill(plan, progress)?;
        Ok(system)
    }
}

impl<G: Ground> FciSystem<G> {
    /// Nodes that are there, without a service.
    fn on(ground: G) -> Result<Self, LabError> {
        Ok(Self {
            ground,
            volume: format!("{POOL}/{SERVICE}").parse().map_err(wrong)?,
            silent: Mutex::default(),
            copied: Mutex::default(),
            has_ended: false,
            _folder: None,
        })
    }

    fn fill(&self, plan: &FciPlan<'_>, progress: &Progress) -> Result<(), LabError> {
        let client = self.ground.client(&self.ground.names()[0])?;
        let volume = CreateVolume {
            replicas: 2,
            ..CreateVolume::new(
                &self.volume,
                plan.drive_bytes / 2,
                LayoutSpec::Mirror { copies: 2 },
            )
        };
        client.create_volume(&volume).map_err(wrong)?;
        let service = self.ground.service(&self.volume, plan.set)?;
        client.create_service(&service).map_err(wrong)?;
        self.ground.start_listener()?;
        self.await_ready(progress)
    }

    fn silent(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        // A single field.
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that asks a node how it is.
    fn asked(&self, node: &str) -> Option<Client> {
        let client = self.ground.client(node).ok()?;
        Some(client.answered_within(TOLD_WITHIN))
    }

    /// How the service is on a node that answers.
    fn service_at(&self, node: &str) -> Option<ServiceStatus> {
        if self.silent().as_deref() == Some(node) {
            return None;
        }
        self.asked(node)?.service(SERVICE).ok()
    }

    /// What it is at; `each` is given what each node has said, if it has.
    fn instance(&self, mut each: impl FnMut(Option<ServiceStatus>)) -> InstanceStatus {
        let (mut nodes, mut primary) = (Vec::new(), None);
        for node in self.ground.names() {
            let service = self.service_at(node);
            let state = service.as_ref().map(|one| one.state);
            if state == Some(ServiceState::Running) {
                primary.get_or_insert_with(|| node.clone());
            }
            nodes.push(InstanceNode {
                node: node.clone(),
                service: state.map(|state| format!("{state:?}").to_lowercase()),
                url: with_timeout(self.ground.node_url(node, DATABASE), 1),
                api: self.ground.api(node),
            });
            each(service);
        }
        InstanceStatus {
            primary,
            in_sync: self.are_in_sync(),
            namespaces: self.ground.namespaces(),
            nodes,
        }
    }

    /// The volume's copies, as a node knows them that answers.
    fn replication(&self) -> Option<ReplicationStatus> {
        let silent = self.silent().clone();
        let mut names = self.ground.names().iter();
        let name = names.find(|name| Some(*name) != silent.as_ref());
        let client = name.and_then(|name| self.asked(name));
        client?.volume(&self.volume).ok()?.replication
    }

    fn are_in_sync(&self) -> bool {
        let known = self.replication();
        known.is_some_and(|known| !known.replicas.is_empty() && all_in_sync(&known.replicas))
    }

    fn is_whole(&self) -> bool {
        let names = self.ground.names().iter();
        let statuses: Vec<_> = names.filter_map(|node| self.service_at(node)).collect();
        let runs = |state| statuses.iter().filter(|one| one.state == state).count();
        let runs_once = runs(ServiceState::Running) == 1 && runs(ServiceState::Elsewhere) == 1;
        runs_once && self.are_in_sync() && self.listens()
    }

    /// Whether the listener leads to a server.
    fn listens(&self) -> bool {
        let url = self.url("postgres");
        let ask = || {
            let database = Postgres::new(&url, Logic::Functions)?;
            database.watcher()?.number("select 1::bigint")
        };
        ask().is_ok()
    }
}

fn wrong(error: impl std::fmt::Display) -> LabError {
    LabError::environment(format!("service {SERVICE}: {error}"))
}

/// A URL, which may have words already, with how long connecting may take.
fn with_timeout(url: String, seconds: u32) -> String {
    let before = if url.contains('?') { '&' } else { '?' };
    format!("{url}{before}connect_timeout={seconds}")
}

impl<G: Ground> System for FciSystem<G> {
    fn topology(&self) -> Topology {
        Topology::Fci
    }

    fn told(&self) -> String {
        self.ground.told()
    }

    fn url(&self, database: &str) -> String {
        with_timeout(self.ground.url(database), 2)
    }

    fn servers(&self, database: &str) -> Vec<(String, String)> {
        let of = |node: &String| {
            let url = self.ground.node_url(node, database);
            (node.clone(), with_timeout(url, 1))
        };
        self.ground.names().iter().map(of).collect()
    }

    fn primary(&self) -> Option<String> {
        let runs = |node: &&String| {
            let status = self.service_at(node);
            status.is_some_and(|status| status.state == ServiceState::Running)
        };
        self.ground.names().iter().find(runs).cloned()
    }

    fn inject(&self, fault: Fault, primary: &str) -> Result<(), LabError> {
        if matches!(fault, Fault::KillDaemon | Fault::KillNode | Fault::StopNode) {
            *self.silent() = Some(primary.to_owned());
        }
        if fault != Fault::Move {
            return self.ground.inject(fault, primary);
        }
        let client = self.ground.client(primary)?;
        let moved = client.move_service(SERVICE, &MoveService::default());
        moved.map(drop).map_err(wrong)
    }

    fn mend(&self, fault: Fault, broken: &str) -> Result<(), LabError> {
        if fault != Fault::Move {
            self.ground.mend(fault, broken)?;
        }
        // Each is a fault of its own: a database that dies three times in a minute is given up.
        if fault == Fault::KillDatabase {
            let forgiven = self.ground.client(broken)?.start_service(SERVICE);
            forgiven.map(drop).map_err(wrong)?;
        }
        *self.silent() = None;
        Ok(())
    }

    fn await_ready(&self, progress: &Progress) -> Result<(), LabError> {
        let begun = Instant::now();
        while !self.is_whole() {
            progress.go_on()?;
            if begun.elapsed() > READY_WITHIN {
                let told = self.ground.names().iter().map(|node| {
                    let status = self.service_at(node);
                    let told = status.map(|one| (one.state, one.reason));
                    format!("node {node}: {told:?}")
                });
                let told: Vec<String> = told.collect();
                return Err(LabError::environment(format!(
                    "the service is not as it should be within {} s: {}",
                    READY_WITHIN.as_secs(),
                    told.join("; ")
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn is_redundant(&self) -> bool {
        self.are_in_sync()
    }

    fn resynced_bytes(&self) -> Option<u64> {
        let known = self.replication();
        // What is counted is whole after each step.
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known {
            copied.look(&known);
        }
        Some(copied.total())
    }

    fn verify(&self) -> Result<Option<u64>, LabError> {
        let Some(primary) = self.primary() else {
            return Err(wrong("no node runs it in the end"));
        };
        self.ground.verify(&primary).map(Some)
    }

    fn end(mut self: Box<Self>) -> Result<(), LabError> {
        self.finish()
    }
}

impl<G: Ground> FciSystem<G> {
    /// In order: the service first, which unmounts.
    fn finish(&mut self) -> Result<(), LabError> {
        self.has_ended = true;
        let names = self.ground.names();
        let stopped = self.ground.client(&names[0])?.stop_service(SERVICE);
        let begun = Instant::now();
        let is_left = |node: &String| {
            // One that was given up is unmounted already.
            let ended = [ServiceState::Stopped, ServiceState::Failed];
            self.service_at(node)
                .is_some_and(|one| !ended.contains(&one.state))
        };
        while stopped.is_ok() && names.iter().any(is_left) && begun.elapsed() < READY_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
        self.ground.end()
    }
}

impl<G: Ground> Drop for FciSystem<G> {
    fn drop(&mut self) {
        // Ended in order before; this is for an error on the way.
        if !self.has_ended {
            let _ = self.finish();
        }
    }
}
