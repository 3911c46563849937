//! A cluster of Ashlar's own nodes on this machine: etcd, and daemons in network namespaces or on ports of 127.0.0.1; or
//! what one of three hosts has of such a cluster.
//!
//! Its processes outlive the command that starts them. They are known by where they work, below the cluster's
//! directory: what a starter that was killed has left is found, and ended, from the directory alone.

mod files;
mod images;
mod network;
mod program;
mod programs;
mod status;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_lab::agent::ORDER_TAKES;
use ashlar_lab::{LabError, Progress};
use ashlar_node::client::{Client, Endpoint};
use ashlar_node::model::{CreatePool, ReserveSpec};
use ashlar_oltp::processes::{self, Sign};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

pub(crate) use files::{MOUNTS, Part};
pub(crate) use network::ON_HOSTS;
pub use network::{MOST_ETCD, Network, OWN_MOUNTS, Port, Ports, Seat, Site};
pub use status::{EtcdStatus, NodeLine, NodesStatus};

/// The pool that a node with drives has.
pub const POOL: &str = "tank";
/// What a node's processes find in their environment: its name.
pub const NODE: &str = "ASHLAR_LAB_NODE";
/// The same, on a host: where a service listens.
pub const DOOR_IP: &str = "ASHLAR_LAB_IP";
pub const DOOR_PORT: &str = "ASHLAR_LAB_PORT";
/// Drives of each node, unless a plan says otherwise.
pub const DRIVES: u32 = 2;
/// How many members an etcd may have.
pub const ETCD_MEMBERS: [usize; 2] = [1, MOST_ETCD];
/// Most nodes: they have letters for names, and `h` is the hub.
pub const MOST_NODES: usize = 7;
/// Our mark: a directory with this is a cluster's.
const MARK: &str = "nodes.json";
/// The longest path of the directory: a daemon's socket is below it, and its path is short.
pub const LONGEST_DIR: usize = 70;
/// How long a node may take until it is ready, or has made its pool, on a busy machine; no longer than what an agent is
/// ordered.
const READY_WITHIN: Duration = ORDER_TAKES;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a cluster is to be.
#[derive(Clone, Debug)]
pub struct NodesPlan {
    /// How many.
    pub nodes: usize,
    /// Drives of each node's pool; without any it has none.
    pub drives: u32,
    /// Bytes of each drive; the files are sparse.
    pub drive_bytes: u64,
    /// Ports of 127.0.0.1, even as root.
    pub loopback: bool,
    /// Members of etcd.
    pub etcd: usize,
    /// Drives can be made to fail, and cost a little more.
    pub has_switches: bool,
}

impl NodesPlan {
    /// # Errors
    /// A usage error that names the option.
    pub fn check(&self) -> Result<(), LabError> {
        let Self { nodes, etcd, .. } = self;
        if !(1..=MOST_NODES).contains(nodes) {
            return Err(LabError::usage(format!(
                "--nodes {nodes}: 1 to {MOST_NODES}"
            )));
        }
        if !ETCD_MEMBERS.contains(etcd) {
            return Err(LabError::usage(format!("--etcd {etcd}: 1 or 3")));
        }
        Ok(())
    }
}

/// A cluster, as it is kept in its directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nodes {
    pub dir: PathBuf,
    /// Of its nodes.
    pub names: Vec<String>,
    /// Where they meet.
    pub network: Network,
    drives: u32,
    drive_bytes: u64,
    #[serde(default = "one")]
    etcd: usize,
    #[serde(default)]
    has_switches: bool,
}

/// What was made before there were more.
const fn one() -> usize {
    1
}

/// What is wrong with drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveTrouble {
    /// Everything is a media error.
    Dead,
    /// Nothing is done or answered.
    Hung,
}

impl Nodes {
    /// Makes a cluster in an empty directory, and waits until all nodes serve.
    ///
    /// # Errors
    /// A program that is missing, a directory that holds other things, a node that is not ready in time: what was
    /// started is ended again.
    pub fn up(dir: &Path, plan: &NodesPlan, progress: &Progress) -> Result<Self, LabError> {
        let nodes = Self::make(dir, plan)?;
        if let Err(error) = nodes.start(progress) {
            nodes.down()?;
            return Err(error);
        }
        Ok(nodes)
    }

    /// The cluster that is kept in a directory.
    ///
    /// # Errors
    /// There is none.
    pub fn at(dir: &Path) -> Result<Self, LabError> {
        let mark = dir.join(MARK);
        let text = std::fs::read_to_string(&mark).map_err(|_| {
            let dir = dir.display();
            LabError::usage(format!(
                "{dir}: there is no cluster of ours in it: `ashlar lab cluster up --dir {dir}` makes one"
            ))
        })?;
        serde_json::from_str(&text).map_err(|error| LabError::caused(mark.display(), error))
    }

    /// Whether a directory has one.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(MARK).exists()
    }

    fn start(&self, progress: &Progress) -> Result<(), LabError> {
        progress.say("etcd is started");
        self.start_etcd()?;
        progress.say(&format!("{} nodes are started", self.names.len()));
        for name in &self.names {
            self.start_node(name)?;
        }
        for name in &self.names {
            self.await_ready(name, progress)?;
            if self.drives > 0 {
                self.make_pool(name)?;
            }
        }
        Ok(())
    }

    pub(crate) fn make_pool(&self, name: &str) -> Result<(), LabError> {
        let spec = |number| {
            let file = format!("file:{}", self.drive(name, number).display());
            match self.has_switches {
                true => format!("faulty:switch={},{file}", self.switch(name).display()),
                false => file,
            }
        };
        let drives = (0..self.drives).map(spec);
        let request = CreatePool {
            name: POOL.into(),
            drives: drives.collect(),
            destroy_data: false,
            reserve: ReserveSpec::None,
        };
        let client = self.client(name)?.answered_within(READY_WITHIN);
        let made = client.create_pool(&request);
        made.map(drop)
            .map_err(|error| LabError::caused(format!("node {name}"), error))
    }

    /// Waits until a node that was started says that it is ready.
    ///
    /// # Errors
    /// It has ended, with what it said last; it is not ready in time.
    pub fn await_ready(&self, name: &str, progress: &Progress) -> Result<(), LabError> {
        let begun = Instant::now();
        while !self.is_ready(name) {
            progress.go_on()?;
            let is_there = !self.processes(&Seat::node(name)).is_empty();
            if !is_there || begun.elapsed() > READY_WITHIN {
                let what = if is_there {
                    "is not ready"
                } else {
                    "has ended"
                };
                return Err(LabError::environment(format!(
                    "node {name} {what}; it said last: {}",
                    self.last_words(name)
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Ends all of it, and removes what was made: processes, namespaces, files, the directory itself if nothing else
    /// is in it.
    ///
    /// # Errors
    /// A process that does not end, a file that cannot be removed.
    pub fn down(&self) -> Result<(), LabError> {
        processes::end(&self.folders())?;
        self.network.remove()?;
        for folder in self.folders() {
            remove(std::fs::remove_dir_all(&folder), &folder)?;
        }
        // The mark last: until then it can be tried again.
        for file in [self.key_file(), self.cluster_file(), self.dir.join(MARK)] {
            remove(std::fs::remove_file(&file), &file)?;
        }
        // It stays if other things are in it.
        let _ = std::fs::remove_dir(&self.dir);
        Ok(())
    }

    fn folders(&self) -> Vec<PathBuf> {
        let nodes = self.names.iter().map(|name| Seat::node(name));
        let seats = self.etcd_seats().into_iter().chain(nodes);
        let here = seats.filter(|seat| self.network.has(seat));
        here.map(|seat| self.folder(&seat)).collect()
    }

    /// Where etcd's members are.
    pub fn etcd_seats(&self) -> Vec<Seat> {
        (0..self.etcd).map(Seat::Etcd).collect()
    }

    /// A file that says what is wrong with a node's drives while it is there.
    fn switch(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("switch")
    }

    /// All of a node's drives fail at once, or are well again. Only drives with switches can.
    ///
    /// # Errors
    /// The switch cannot be thrown.
    pub fn set_drives(&self, name: &str, trouble: Option<DriveTrouble>) -> Result<(), LabError> {
        let switch = self.switch(name);
        match trouble {
            Some(DriveTrouble::Dead) => ashlar_lab::write_whole(&switch, "dead"),
            Some(DriveTrouble::Hung) => ashlar_lab::write_whole(&switch, "hung"),
            None => remove(std::fs::remove_file(&switch), &switch),
        }
    }

    /// Where something of it works.
    pub fn folder(&self, seat: &Seat) -> PathBuf {
        self.dir.join(seat.name())
    }

    /// What of it runs.
    pub fn processes(&self, seat: &Seat) -> Vec<u32> {
        processes::working_in(&[self.folder(seat)])
    }

    /// Does something to all processes of a seat.
    pub fn signal(&self, seat: &Seat, sign: Sign) {
        processes::signal(&[self.folder(seat)], sign);
    }

    /// Ends what runs there at once.
    ///
    /// # Errors
    /// A process does not end.
    pub fn kill(&self, seat: &Seat) -> Result<(), LabError> {
        processes::end(&[self.folder(seat)])
    }

    /// Ends all that runs at these seats at once, as where their power is lost: also what a daemon has started that works
    /// elsewhere, its services and their guards. On ports of 127.0.0.1 that is not found.
    ///
    /// # Errors
    /// A process does not end.
    pub fn cut_power(&self, seats: &[Seat]) -> Result<(), LabError> {
        let at = |seat: &Seat| {
            let mut all = self.processes(seat);
            all.extend(self.network.processes(seat));
            all
        };
        processes::end_all(&|| seats.iter().flat_map(at).collect())
    }

    /// Ends all that runs at once, nodes and etcd.
    ///
    /// # Errors
    /// A process does not end.
    pub fn kill_all(&self) -> Result<(), LabError> {
        processes::end(&self.folders())
    }

    /// Kills a node's daemon with -9, and waits until its parent, which buries it, has told the others and ended.
    ///
    /// # Errors
    /// It does not end.
    pub fn kill_daemon(&self, name: &str) -> Result<(), LabError> {
        let seat = Seat::node(name);
        let all = self.processes(&seat);
        // An attachment's server has a parent here, too: the daemon and its own were told the same.
        let words = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_daemon = |&pid: &u32| {
            let parent = processes::parent(pid).filter(|parent| all.contains(parent));
            parent.is_some_and(|parent| words(parent) == words(pid))
        };
        let Some(daemon) = all.iter().copied().find(is_daemon) else {
            return self.kill(&seat);
        };
        let daemon = i32::try_from(daemon).ok().and_then(Pid::from_raw);
        // One that has ended already is what is wanted.
        let _ = daemon.map(|pid| kill_process(pid, Signal::KILL));
        self.await_end(name)
    }

    /// Has a node's daemon hand over and end in order.
    ///
    /// # Errors
    /// It does not end.
    pub fn end_daemon(&self, name: &str) -> Result<(), LabError> {
        self.tell_to_end(name);
        self.await_end(name)
    }

    pub(crate) fn tell_to_end(&self, name: &str) {
        // The parent passes it on; a daemon that is told twice ends at once.
        let all = self.processes(&Seat::node(name));
        let is_child = |pid: u32| processes::parent(pid).is_some_and(|pid| all.contains(&pid));
        // What has begun a world of its own ends with that.
        let parents = all.iter().copied();
        let parents = parents.filter(|&pid| !is_child(pid) && !processes::has_begun_world(pid));
        for pid in parents.filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // One that has ended already is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    fn await_end(&self, name: &str) -> Result<(), LabError> {
        let begun = Instant::now();
        while !self.processes(&Seat::node(name)).is_empty() {
            if begun.elapsed() > READY_WITHIN {
                return Err(LabError::environment(format!(
                    "node {name}: it was told to end, and something of it runs on"
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// A node's API: a socket, which knows no namespaces.
    pub fn api(&self, name: &str) -> PathBuf {
        self.state(name).join("api.sock")
    }

    /// A client of a node's API.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn client(&self, name: &str) -> Result<Client, LabError> {
        Client::new(Endpoint::Socket(self.api(name)), None)
            .map_err(|error| LabError::caused(format!("node {name}"), error))
    }

    /// Where a daemon keeps its state.
    pub fn state(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("state")
    }

    fn drive(&self, name: &str, number: u32) -> PathBuf {
        self.dir.join(name).join(format!("drive-{number}"))
    }
}

/// What is not there any more is as it should be.
fn remove(result: std::io::Result<()>, path: &Path) -> Result<(), LabError> {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::caused(path.display(), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use ashlar_oltp::namespaces::Namespaces;

    use super::*;

    /// What a daemon has started is not below its folder, as a database on a volume or a guard.
    #[test]
    fn where_the_power_is_cut_nothing_runs_any_more_wherever_it_works() {
        if !rustix::process::geteuid().is_root() {
            let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!is_ci, "it is not root");
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let names = ["a".to_owned(), "b".to_owned()];
        let prefix = Namespaces::prefix_of(dir.path());
        let nodes = Nodes {
            dir: dir.path().to_owned(),
            network: Network::namespaces(prefix, &names, 1),
            names: names.into(),
            drives: 0,
            drive_bytes: 0,
            etcd: 1,
            has_switches: false,
        };
        nodes.network.bring().expect("namespaces");
        let sleeper = |name: &str| {
            let words = nodes.network.entered(&Seat::node(name));
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).args(["sleep", "100"]);
            command.current_dir("/").spawn().expect("sleep")
        };
        let (mut killed, mut other) = (sleeper("a"), sleeper("b"));
        let begun = Instant::now();
        let is_up = |name: &str| !nodes.network.processes(&Seat::node(name)).is_empty();
        while !(is_up("a") && is_up("b")) {
            assert!(begun.elapsed() < READY_WITHIN, "both are there");
            std::thread::sleep(LOOK_EVERY);
        }
        let cut = nodes.cut_power(&[Seat::node("a"), Seat::Etcd(0)]);
        let ended = killed.try_wait().expect("ours");
        let stays = other.try_wait().expect("ours").is_none();
        for child in [&mut killed, &mut other] {
            let _ = child.kill();
            child.wait().expect("ours");
        }
        nodes.network.remove().expect("removed");
        cut.expect("cut");
        assert!(ended.is_some(), "it runs on");
        assert!(stays, "it is another node's");
    }
}
