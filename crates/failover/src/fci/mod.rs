//! A failover cluster instance on this machine: two nodes, and a PostgreSQL as a service on a replicated volume.
//!
//! Clients come in over the listener's unix socket, which knows no namespaces; past it, each node's server has one.

mod listener;
mod service;
mod standing;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, OwnFolder, Progress};
use ashlar_node::model::{
    CreateVolume, LayoutSpec, MoveService, ReplicationStatus, ServiceState, ServiceStatus,
    VolumeName,
};
use ashlar_oltp::database::Database;
use ashlar_oltp::faults::{Fault, System, Topology};

use ashlar_oltp::processes::Sign;
use ashlar_oltp::server::OWNER;
use ashlar_oltp::{Logic, Postgres};
use ashlar_testbed::nodes::{self, DRIVES, DriveTrouble, MOST_ETCD, Nodes, NodesPlan, POOL, Seat};
use rustix::process::{Pid, Signal, kill_process};

use self::listener::Listener;
use self::service::{PORT, SERVICE};
pub use self::standing::{FciNode, FciStatus};
use self::standing::{LISTENER, MOUNT, NODES, RUN};
use crate::all_in_sync;
use crate::copied::Copied;

/// Each of a node's two drives, which are sparse files, holds a copy of the volume, which is half as large, and the logs.
const DRIVE_BYTES: u64 = 8 << 30;
/// The longest path of an instance's directory: its nodes are below it.
pub(crate) const LONGEST_DIR: usize = nodes::LONGEST_DIR - "/n".len();
/// All is as it should be within so long, on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Two nodes and a service.
pub struct FciSystem {
    nodes: Nodes,
    volume: VolumeName,
    /// Where its sockets are.
    run: PathBuf,
    listener: Listener,
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
    pub drive_bytes: u64,
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
        check()?;
        let folder = OwnFolder::make(dir)?;
        let mut system = Self::below(folder.path(), plan, progress)?;
        system._folder = Some(folder);
        system.fill(plan, progress)?;
        Ok(system)
    }

    /// Its nodes, in a directory.
    fn below(dir: &Path, plan: &FciPlan<'_>, progress: &Progress) -> Result<Self, LabError> {
        let cluster = NodesPlan {
            nodes: 2,
            drives: DRIVES,
            drive_bytes: plan.drive_bytes,
            loopback: false,
            etcd: MOST_ETCD,
            has_switches: plan.has_switches,
        };
        Ok(Self {
            nodes: Nodes::up(&dir.join(NODES), &cluster, progress)?,
            volume: volume()?,
            run: dir.join(RUN),
            listener: Listener::at(&dir.join(LISTENER)),
            silent: Mutex::default(),
            copied: Mutex::default(),
            has_ended: false,
            _folder: None,
        })
    }

    fn fill(&self, plan: &FciPlan<'_>, progress: &Progress) -> Result<(), LabError> {
        let run = self.run.as_path();
        let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
        for name in self
            .nodes
            .names
            .iter()
            .map(String::as_str)
            .chain(["listener"])
        {
            let place = run.join(name);
            let made = std::fs::create_dir_all(&place);
            let made = made.and_then(|()| std::fs::set_permissions(&place, open.clone()));
            made.map_err(|error| LabError::caused(place.display(), error))?;
        }
        let client = self.nodes.client(&self.nodes.names[0])?;
        let volume = CreateVolume {
            replicas: 2,
            ..CreateVolume::new(
                &self.volume,
                plan.drive_bytes / 2,
                LayoutSpec::Mirror { copies: 2 },
            )
        };
        client.create_volume(&volume).map_err(wrong)?;
        let place = service::Place {
            volume: self.volume.to_string(),
            mount: self.run.with_file_name(MOUNT),
            run: self.run.clone(),
        };
        let service = service::postgres(&place, plan.set)?;
        client.create_service(&service).map_err(wrong)?;
        let socket = self.run.join("listener");
        self.listener.start(&self.nodes, &socket)?;
        self.await_ready(progress)
    }

    fn silent(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        // A single field.
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the service is on a node that answers.
    fn service_at(&self, node: &str) -> Option<ServiceStatus> {
        if self.silent().as_deref() == Some(node) {
            return None;
        }
        self.nodes.client(node).ok()?.service(SERVICE).ok()
    }

    /// The volume's copies, as a node knows them that answers.
    fn replication(&self) -> Option<ReplicationStatus> {
        let silent = self.silent().clone();
        let mut names = self.nodes.names.iter();
        let name = names.find(|name| Some(*name) != silent.as_ref());
        let client = name.and_then(|name| self.nodes.client(name).ok());
        client?.volume(&self.volume).ok()?.replication
    }

    fn are_in_sync(&self) -> bool {
        let known = self.replication();
        known.is_some_and(|known| !known.replicas.is_empty() && all_in_sync(&known.replicas))
    }

    fn is_whole(&self) -> bool {
        let statuses: Vec<_> = self
            .nodes
            .names
            .iter()
            .filter_map(|node| self.service_at(node))
            .collect();
        let runs = |state| statuses.iter().filter(|one| one.state == state).count();
        let runs_once = runs(ServiceState::Running) == 1 && runs(ServiceState::Elsewhere) == 1;
        runs_once && self.are_in_sync() && self.listens()
    }

    /// Whether the listener leads to a server.
    fn listens(&self) -> bool {
        let url = self.host("listener", "postgres") + "&connect_timeout=2";
        let ask = || {
            let database = Postgres::new(&url, Logic::Functions)?;
            database.watcher()?.number("select 1::bigint")
        };
        ask().is_ok()
    }

    fn kill_database(&self, node: &str) -> Result<(), LabError> {
        let file = self.run.join(node).join("pid");
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| LabError::caused(file.display(), error))?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        let pid =
            pid.ok_or_else(|| LabError::environment(format!("{}: {text:?}", file.display())))?;
        kill_process(pid, Signal::KILL).map_err(|error| LabError::caused("the database", error))
    }

    fn set_connected(&self, seats: &[Seat], connected: bool) -> Result<(), LabError> {
        let mut seats = seats.iter();
        seats.try_for_each(|seat| self.nodes.network.set_connected(seat, connected))
    }

    /// All that is lost with a node: its daemon, and the member of etcd beside it. The third member is the witness.
    fn seats(&self, node: &str) -> [Seat; 2] {
        let number = self.nodes.names.iter().position(|name| name == node);
        [Seat::node(node), Seat::Etcd(number.unwrap_or(0))]
    }

    fn host(&self, name: &str, database: &str) -> String {
        let run = self.run.join(name);
        format!(
            "postgres:///{database}?host={}&port={PORT}&user={OWNER}",
            run.display()
        )
    }
}

/// Whether one can be made here.
fn check() -> Result<(), LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::environment(
            "an instance on a replicated volume: needs root, which attaches and mounts",
        ));
    }
    Listener::check()
}

fn volume() -> Result<VolumeName, LabError> {
    format!("{POOL}/{SERVICE}").parse().map_err(wrong)
}

fn wrong(error: impl std::fmt::Display) -> LabError {
    LabError::environment(format!("service {SERVICE}: {error}"))
}

impl System for FciSystem {
    fn topology(&self) -> Topology {
        Topology::Fci
    }

    fn told(&self) -> String {
        "PostgreSQL as a service on a replicated volume, two nodes with a member of etcd each, and a witness, etcd's third; \
         HAProxy as the listener, which asks each node's daemon. kill-node kills all that runs on the node, and etcd; \
         stop-node stops etcd, the daemon and what is between it and the file system, not the database and its guard"
            .into()
    }

    fn url(&self, database: &str) -> String {
        self.host("listener", database) + "&connect_timeout=2"
    }

    fn servers(&self, database: &str) -> Vec<(String, String)> {
        let names = self.nodes.names.iter();
        let of = |name: &String| {
            (
                name.clone(),
                self.host(name, database) + "&connect_timeout=1",
            )
        };
        names.map(of).collect()
    }

    fn primary(&self) -> Option<String> {
        let runs = |node: &&String| {
            let status = self.service_at(node);
            status.is_some_and(|status| status.state == ServiceState::Running)
        };
        self.nodes.names.iter().find(runs).cloned()
    }

    fn inject(&self, fault: Fault, primary: &str) -> Result<(), LabError> {
        if matches!(fault, Fault::KillDaemon | Fault::KillNode | Fault::StopNode) {
            *self.silent() = Some(primary.to_owned());
        }
        let seats = self.seats(primary);
        match fault {
            Fault::KillDatabase => self.kill_database(primary),
            Fault::KillDaemon => self.nodes.kill_daemon(primary),
            Fault::KillNode => self.nodes.cut_power(&seats),
            Fault::StopNode => {
                seats
                    .iter()
                    .for_each(|seat| self.nodes.signal(seat, Sign::Stop));
                Ok(())
            }
            Fault::CutNetwork => self.set_connected(&seats, false),
            Fault::EtcdDown => {
                let mut all = self.nodes.etcd_seats().into_iter();
                all.try_for_each(|seat| self.nodes.kill(&seat))
            }
            Fault::Move => {
                let moved = self.nodes.client(primary)?;
                let moved = moved.move_service(SERVICE, &MoveService::default());
                moved.map(drop).map_err(wrong)
            }
            Fault::DriveDies => self.nodes.set_drives(primary, Some(DriveTrouble::Dead)),
            Fault::DriveHangs => self.nodes.set_drives(primary, Some(DriveTrouble::Hung)),
        }
    }

    fn mend(&self, fault: Fault, broken: &str) -> Result<(), LabError> {
        let seat = Seat::node(broken);
        match fault {
            Fault::KillDaemon | Fault::KillNode => {
                self.nodes.kill(&seat)?;
                self.nodes.start_etcd()?;
                self.nodes.start_node(broken)?;
            }
            Fault::StopNode => {
                let seats = self.seats(broken);
                seats
                    .iter()
                    .for_each(|seat| self.nodes.signal(seat, Sign::Continue));
            }
            Fault::CutNetwork => self.set_connected(&self.seats(broken), true)?,
            Fault::EtcdDown => self.nodes.start_etcd()?,
            Fault::DriveDies => {
                // A pool that has failed comes back with its daemon.
                self.nodes.set_drives(broken, None)?;
                self.nodes.end_daemon(broken)?;
                self.nodes.start_node(broken)?;
            }
            Fault::DriveHangs => self.nodes.set_drives(broken, None)?,
            // Each is a fault of its own: a database that dies three times in a minute is given up.
            Fault::KillDatabase => {
                let forgiven = self.nodes.client(broken)?.start_service(SERVICE);
                forgiven.map(drop).map_err(wrong)?;
            }
            Fault::Move => {}
        }
        *self.silent() = None;
        Ok(())
    }

    fn await_ready(&self, progress: &Progress) -> Result<(), LabError> {
        let begun = Instant::now();
        while !self.is_whole() {
            progress.go_on()?;
            if begun.elapsed() > READY_WITHIN {
                let told = self.nodes.names.iter().map(|node| {
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
        service::verify(&self.run.join(primary)).map(Some)
    }

    fn end(mut self: Box<Self>) -> Result<(), LabError> {
        self.finish()
    }
}

impl FciSystem {
    /// In order: the service first, which unmounts.
    fn finish(&mut self) -> Result<(), LabError> {
        self.has_ended = true;
        self.listener.end()?;
        let stopped = self
            .nodes
            .client(&self.nodes.names[0])?
            .stop_service(SERVICE);
        let begun = Instant::now();
        let is_left = |node: &String| {
            // One that was given up is unmounted already.
            let ended = [ServiceState::Stopped, ServiceState::Failed];
            self.service_at(node)
                .is_some_and(|one| !ended.contains(&one.state))
        };
        while stopped.is_ok()
            && self.nodes.names.iter().any(is_left)
            && begun.elapsed() < READY_WITHIN
        {
            std::thread::sleep(LOOK_EVERY);
        }
        self.nodes.down()
    }
}

impl Drop for FciSystem {
    fn drop(&mut self) {
        // Ended in order before; this is for an error on the way.
        if !self.has_ended {
            let _ = self.finish();
        }
    }
}
