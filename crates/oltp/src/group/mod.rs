//! An availability group of others on one machine: etcd with three members, Patroni with two PostgreSQL that
//! replicate synchronously, HAProxy as the listener. Everything is private: folders, ports, and as root a
//! network namespace for each node, so that a node can be cut off.
//!
//! A process of a group is known by its working directory, which is below one of the group's folders. So what a
//! starter that was killed has left is found, and ended, from the directory alone.

mod adopt;
mod config;
mod hosted;
mod http;
mod needed;
mod network;
mod node;
mod start;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_lab::{LONGEST_SOCKET, LabError, Progress};
use serde::{Deserialize, Serialize};

use crate::processes;
use crate::server::{Door, OWNER};
pub(crate) use adopt::Adopted;
pub use hosted::{
    GroupSeats, Held, HostStatus, HostedPlan, HostedStatus, HostedSystem, InstanceNode,
    InstanceStatus, Keys, OVER_AFTER_S, USER, check_faults, check_hosted, check_settings,
    end_hosted, hold, hold_hosted, hosted_status, is_hosted, make_user,
};
pub use needed::Needed;
use needed::needed;
pub use network::Network;
pub use node::{Member, NodeName};
pub use start::{check_lengths, check_place};

/// The directory of a group in a run's own folder.
pub const OWN: &str = "g";
/// In a group's directory, not its own: where volumes are mounted for it, if they are its places.
pub const PLACES: &str = "places";
/// Our mark: a directory with this is a group's.
const MARK: &str = "group.json";
/// The longest path of a group's directory: HAProxy binds a longer name than the listener's first, and renames it.
pub const LONGEST_DIR: usize = 70;
/// What is below a place: its database's socket.
const SOCKET: &str = "/node-a/run/.s.PGSQL.5432";
/// The longest path of a place of a group.
pub const LONGEST_PLACE: usize = LONGEST_SOCKET - SOCKET.len();
/// How long a group may take to be ready: a primary that stood still is rewound first, which takes a minute on a busy
/// machine.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// How often it is asked whether it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How fast a group notices, and what it does without its quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tuning {
    /// Patroni's own defaults: ttl 30 s, loop 10 s, no failsafe mode.
    #[default]
    Default,
    /// ttl 5 s, loop 1 s, failsafe mode: a primary whose standby still answers stays one without etcd.
    Fast,
}

impl Tuning {
    /// In words, for a report.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Default => "Patroni's defaults (ttl 30 s, loop 10 s)",
            Self::Fast => "ttl 5 s, loop 1 s, failsafe mode",
        }
    }
}

/// What a group is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// Where node `a` has its database; below the group's directory if it is not said.
    pub place_a: Option<PathBuf>,
    /// The same of node `b`.
    pub place_b: Option<PathBuf>,
    /// How fast it notices.
    pub tuning: Tuning,
    /// PostgreSQL's settings, `name=value`, besides those of every group.
    pub set: Vec<String>,
    /// Ports of 127.0.0.1 instead of network namespaces, even as root.
    pub loopback: bool,
}

/// A group, as it is kept in its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub dir: PathBuf,
    plan: GroupPlan,
    network: Network,
    /// Folders that its processes work in, the directory first.
    folders: Vec<PathBuf>,
    /// Where the databases are of a group that has adopted two: they stay there when it ends.
    #[serde(default)]
    adopted: Vec<PathBuf>,
    /// By which clients on other machines come in, besides those of the listener's socket.
    #[serde(default)]
    door: Option<Door>,
}

/// What a node's database says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows, and is what a commit waits for.
    SyncStandby,
    /// It follows.
    Standby,
    /// It does not answer.
    Silent,
}

/// What a group is at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupStatus {
    pub dir: PathBuf,
    /// What `--db` takes: the listener.
    pub url: String,
    /// `namespaces` or `loopback`.
    pub network: String,
    /// Network namespaces that were made for it.
    pub namespaces: Vec<String>,
    /// By node, in the order of their names.
    pub nodes: Vec<NodeStatus>,
    /// How many of the three members of etcd run.
    pub etcd_members: usize,
    /// Whether the listener runs.
    pub listener: bool,
}

/// What a node is at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// `a` or `b`.
    pub node: NodeName,
    /// What its database says of itself.
    pub role: Role,
    /// How many of its processes there are.
    pub processes: usize,
    /// Its database past the listener.
    pub url: String,
}

impl fmt::Display for GroupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "listener: {}\nnetwork: {}", self.url, self.network)?;
        for NodeStatus {
            node,
            role,
            processes,
            ..
        } in &self.nodes
        {
            writeln!(f, "{node}: {role:?}, {processes} processes")?;
        }
        let listener = if self.listener {
            "runs"
        } else {
            "does not run"
        };
        writeln!(f, "etcd: {} of 3\nhaproxy: {listener}", self.etcd_members)
    }
}

impl Group {
    /// Makes and starts a group in an empty directory.
    ///
    /// # Errors
    /// A program that is missing (named), a directory that holds other things, a group that is not ready in time: what
    /// was started is ended again.
    pub fn start(dir: &Path, plan: &GroupPlan, progress: &Progress) -> Result<Self, LabError> {
        let group = Self::make(dir, plan, Vec::new())?;
        let started = group.start_new(progress);
        if let Err(error) = started {
            group.stop()?;
            return Err(error);
        }
        Ok(group)
    }

    /// The group that is kept in a directory.
    ///
    /// # Errors
    /// There is none.
    pub fn at(dir: &Path) -> Result<Self, LabError> {
        if is_hosted(dir) {
            return Err(LabError::usage(format!(
                "{}: a group on given hosts is looked at and ended, and not moved yet",
                dir.display()
            )));
        }
        let mark = dir.join(MARK);
        let text = std::fs::read_to_string(&mark).map_err(|_| {
            LabError::usage(format!(
                "{}: there is no group of ours in it: `ashlar lab cluster start --dir {}` makes one",
                dir.display(),
                dir.display()
            ))
        })?;
        serde_json::from_str(&text).map_err(|error| LabError::caused(mark.display(), error))
    }

    /// Ends what is left below `dir` of groups in folders of their own whose starters were killed.
    ///
    /// # Errors
    /// Something of it stays.
    pub fn end_left_behind(dir: &Path) -> Result<(), LabError> {
        for folder in processes::left_behind(dir) {
            if let Ok(group) = Self::at(&folder.join(OWN)) {
                group.stop()?;
                remove_folder(&folder)?;
            }
        }
        Ok(())
    }

    /// Ends all of it, and removes what was made: processes, namespaces, folders, the directory itself if nothing else
    /// is in it.
    ///
    /// # Errors
    /// A process that does not end, a folder that cannot be removed.
    pub fn stop(&self) -> Result<(), LabError> {
        processes::end(&self.folders)?;
        self.network.remove()?;
        for name in [NodeName::A, NodeName::B] {
            if self.adopted.is_empty() {
                remove_folder(&self.home(name))?;
            }
        }
        for folder in ["etcd-a", "etcd-b", "etcd-w", "haproxy", "run"] {
            remove_folder(&self.dir.join(folder))?;
        }
        let mark = self.dir.join(MARK);
        std::fs::remove_file(&mark).map_err(|error| LabError::caused(mark.display(), error))?;
        // It stays if other things are in it.
        let _ = std::fs::remove_dir(&self.dir);
        Ok(())
    }

    /// What `--db` takes: a database through the listener.
    pub fn url(&self, database: &str) -> String {
        let run = self.dir.join("run");
        format!("postgres:///{database}?host={}&user={OWNER}", run.display())
    }

    /// The same of a node's own server, past the listener.
    pub fn node_url(&self, node: NodeName, database: &str) -> String {
        let run = self.home(node).join("run");
        format!(
            "postgres:///{database}?host={}&user={OWNER}&connect_timeout=1",
            run.display()
        )
    }

    /// What it is at.
    pub fn status(&self) -> GroupStatus {
        let nodes = [NodeName::A, NodeName::B].map(|node| NodeStatus {
            node,
            role: self.role(node),
            processes: self.processes(Member::Patroni(node)).len(),
            url: self.node_url(node, crate::server::DATABASE),
        });
        let runs = |member: &Member| !self.processes(*member).is_empty();
        GroupStatus {
            dir: self.dir.clone(),
            url: self.url(crate::server::DATABASE),
            network: self.network.word().into(),
            namespaces: self.network.names(),
            nodes: nodes.into(),
            etcd_members: Member::ETCD.iter().filter(|member| runs(member)).count(),
            listener: runs(&Member::Listener),
        }
    }

    /// The node that is the primary, if there is one.
    pub fn primary(&self) -> Option<NodeName> {
        [NodeName::A, NodeName::B]
            .into_iter()
            .find(|&node| self.role(node) == Role::Primary)
    }

    /// Waits until there is a primary with a synchronous standby, and the listener leads to it.
    ///
    /// # Errors
    /// It does not come to be in time; what each node says is in the text.
    pub fn await_ready(&self, progress: &Progress) -> Result<(), LabError> {
        let begun = Instant::now();
        loop {
            progress.go_on()?;
            let roles = [NodeName::A, NodeName::B].map(|node| self.role(node));
            let has = |role| roles.contains(&role);
            if has(Role::Primary) && has(Role::SyncStandby) && self.listens() {
                return Ok(());
            }
            if begun.elapsed() > READY_WITHIN {
                let listener = if self.listens() {
                    "leads to a primary"
                } else {
                    "leads nowhere"
                };
                return Err(LabError::environment(format!(
                    "the group is not ready after {} s: a is {:?}, b is {:?}, the listener {listener}{}",
                    READY_WITHIN.as_secs(),
                    roles[0],
                    roles[1],
                    self.last_words(),
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn listens(&self) -> bool {
        let sql = "select (not pg_is_in_recovery())::int::bigint";
        ask(&self.url("postgres"), sql) == Some(1)
    }

    fn role(&self, node: NodeName) -> Role {
        // A server that stands still would keep us waiting.
        if self.is_frozen(node) {
            return Role::Silent;
        }
        let sql = "select (not pg_is_in_recovery())::int::bigint";
        match ask(&self.node_url(node, "postgres"), sql) {
            Some(1) => Role::Primary,
            Some(_) if self.is_sync_standby(node) => Role::SyncStandby,
            Some(_) => Role::Standby,
            None => Role::Silent,
        }
    }

    /// Where a node's database and its keeper live.
    pub fn home(&self, node: NodeName) -> PathBuf {
        let (place, at) = match node {
            NodeName::A => (&self.plan.place_a, 0),
            NodeName::B => (&self.plan.place_b, 1),
        };
        if let Some(adopted) = self.adopted.get(at) {
            return adopted.clone();
        }
        home_in(place.as_ref().unwrap_or(&self.dir), node)
    }

    /// `namespaces` or `loopback`.
    pub fn network_word(&self) -> &'static str {
        self.network.word()
    }

    /// A socket of the listener that leads to a node's keeper.
    fn keeper_socket(&self, node: NodeName) -> PathBuf {
        self.dir.join(format!("run/keeper-{node}"))
    }

    fn keep(&self) -> Result<(), LabError> {
        let mark = self.dir.join(MARK);
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| LabError::caused(mark.display(), error))?;
        ashlar_lab::write_whole(&mark, &text)
    }
}

fn home_in(place: &Path, node: NodeName) -> PathBuf {
    place.join(format!("node-{node}"))
}

/// The number that a query gives, if it is answered.
fn ask(url: &str, sql: &str) -> Option<i64> {
    use crate::database::Database;
    let database = crate::postgres::Postgres::new(url, crate::postgres::Logic::Functions).ok()?;
    // No answer is as good as none: a server that hangs is given up after its login's limit.
    database.watcher().ok()?.number(sql).ok()
}

fn remove_folder(folder: &Path) -> Result<(), LabError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::caused(folder.display(), error))
        }
        _ => Ok(()),
    }
}
