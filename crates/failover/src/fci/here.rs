//! An instance on this machine: each node in a network namespace.
//!
//! Clients come in over the listener's unix socket, which knows no namespaces; past it, each node's server has one.

use std::path::{Path, PathBuf};

use ashlar_lab::{LabError, Progress};
use ashlar_node::client::Client;
use ashlar_node::model::{CreateService, VolumeName};
use ashlar_oltp::faults::Fault;
use ashlar_oltp::group::Needed;
use ashlar_oltp::processes::Sign;
use ashlar_oltp::server::OWNER;
use ashlar_testbed::nodes::{DRIVES, DriveTrouble, MOST_ETCD, Nodes, NodesPlan, Seat};
use rustix::process::{Pid, Signal, kill_process};

use super::listener::Listener;
use super::service::{PORT, Place, postgres, programs, verify};
use super::standing::{LISTENER, MOUNT, NODES, RUN};
use super::{FciPlan, Ground};

/// Below a directory.
pub struct Here {
    pub(super) nodes: Nodes,
    /// Where its sockets are.
    pub(super) run: PathBuf,
    listener: Listener,
}

/// Whether one can be made here.
pub(super) fn check() -> Result<(), LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::environment(
            "an instance on a replicated volume: needs root, which attaches and mounts",
        ));
    }
    Needed::HAPROXY.check()
}

impl Here {
    /// Its nodes, in a directory.
    pub(super) fn up(
        dir: &Path,
        plan: &FciPlan<'_>,
        progress: &Progress,
    ) -> Result<Self, LabError> {
        let cluster = NodesPlan {
            nodes: 2,
            drives: DRIVES,
            drive_bytes: plan.drive_bytes,
            loopback: false,
            etcd: MOST_ETCD,
            has_switches: plan.has_switches,
        };
        let nodes = Nodes::up(&dir.join(NODES), &cluster, progress)?;
        Ok(Self::of(dir, nodes))
    }

    /// That which is in a directory.
    pub(super) fn of(dir: &Path, nodes: Nodes) -> Self {
        Self {
            nodes,
            run: dir.join(RUN),
            listener: Listener::at(&dir.join(LISTENER)),
        }
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

    fn signal(&self, node: &str, sign: Sign) {
        for seat in self.seats(node) {
            self.nodes.signal(&seat, sign);
        }
    }
}

impl Ground for Here {
    fn names(&self) -> &[String] {
        &self.nodes.names
    }

    fn told(&self) -> String {
        "PostgreSQL as a service on a replicated volume, two nodes with a member of etcd each, and a witness, etcd's third; \
         HAProxy as the listener, which asks each node's daemon. kill-node kills all that runs on the node, and etcd; \
         stop-node stops etcd, the daemon and what is between it and the file system, not the database and its guard"
            .into()
    }

    fn api(&self, node: &str) -> String {
        self.nodes.api(node).display().to_string()
    }

    fn namespaces(&self) -> Vec<String> {
        self.nodes.network.names()
    }

    fn client(&self, node: &str) -> Result<Client, LabError> {
        self.nodes.client(node)
    }

    fn url(&self, database: &str) -> String {
        self.node_url("listener", database)
    }

    fn node_url(&self, node: &str, database: &str) -> String {
        let run = self.run.join(node);
        let run = run.display();
        format!("postgres:///{database}?host={run}&port={PORT}&user={OWNER}")
    }

    fn service(&self, volume: &VolumeName, set: &[String]) -> Result<CreateService, LabError> {
        let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
        let names = self.nodes.names.iter().map(String::as_str);
        for name in names.chain(["listener"]) {
            let place = self.run.join(name);
            let made = std::fs::create_dir_all(&place);
            let made = made.and_then(|()| std::fs::set_permissions(&place, open.clone()));
            made.map_err(|error| LabError::caused(place.display(), error))?;
        }
        let place = Place {
            programs: programs()?,
            mount: self.run.with_file_name(MOUNT),
            run: self.run.clone(),
            listen: "*".into(),
            port: PORT.to_string(),
            password: None,
        };
        Ok(postgres(&place, &volume.to_string(), set))
    }

    fn start_listener(&self) -> Result<(), LabError> {
        self.listener.start(&self.nodes, &self.run.join("listener"))
    }

    fn inject(&self, fault: Fault, node: &str) -> Result<(), LabError> {
        match fault {
            Fault::KillDatabase => self.kill_database(node),
            Fault::KillDaemon => self.nodes.kill_daemon(node),
            Fault::KillNode => self.nodes.cut_power(&self.seats(node)),
            Fault::StopNode => {
                self.signal(node, Sign::Stop);
                Ok(())
            }
            Fault::CutNetwork => self.set_connected(&self.seats(node), false),
            Fault::EtcdDown => {
                let mut all = self.nodes.etcd_seats().into_iter();
                all.try_for_each(|seat| self.nodes.kill(&seat))
            }
            Fault::DriveDies => self.nodes.set_drives(node, Some(DriveTrouble::Dead)),
            Fault::DriveHangs => self.nodes.set_drives(node, Some(DriveTrouble::Hung)),
            Fault::Move => Ok(()),
        }
    }

    fn mend(&self, fault: Fault, node: &str) -> Result<(), LabError> {
        match fault {
            Fault::KillDaemon | Fault::KillNode => {
                self.nodes.kill(&Seat::node(node))?;
                self.nodes.start_etcd()?;
                self.nodes.start_node(node)
            }
            Fault::StopNode => {
                self.signal(node, Sign::Continue);
                Ok(())
            }
            Fault::CutNetwork => self.set_connected(&self.seats(node), true),
            Fault::EtcdDown => self.nodes.start_etcd(),
            Fault::DriveDies => {
                // A pool that has failed comes back with its daemon.
                self.nodes.set_drives(node, None)?;
                self.nodes.end_daemon(node)?;
                self.nodes.start_node(node)
            }
            Fault::DriveHangs => self.nodes.set_drives(node, None),
            Fault::KillDatabase | Fault::Move => Ok(()),
        }
    }

    fn verify(&self, node: &str) -> Result<u64, LabError> {
        verify(&self.node_url(node, "postgres"), None)
    }

    fn end(&self) -> Result<(), LabError> {
        self.listener.end()?;
        self.nodes.down()
    }
}
