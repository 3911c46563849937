//! Makes a group's folders and starts its programs, all of them or one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ashlar_lab::{LabError, Progress, check_length};

use super::config::etcd_words;
use super::network::{Network, Program};
use super::node::{Member, NodeName};
use super::{Group, GroupPlan, LONGEST_DIR, LONGEST_PLACE, PLACES, home_in, needed};
use crate::namespaces::Namespaces;
use crate::processes::{self, Sign};
use crate::server::{DATABASE, Programs};

impl Group {
    /// Folders, network and the mark, and nothing that runs.
    pub(super) fn make(
        dir: &Path,
        plan: &GroupPlan,
        adopted: Vec<PathBuf>,
    ) -> Result<Self, LabError> {
        check_lengths(dir, [&plan.place_a, &plan.place_b])?;
        needed()?;
        let dir = claim(dir)?;
        for (place, node) in [(&plan.place_a, NodeName::A), (&plan.place_b, NodeName::B)] {
            place
                .as_deref()
                .map_or(Ok(()), |place| check_place(place, node))?;
        }
        let mut plan = plan.clone();
        let mut folders = vec![dir.clone()];
        for place in [&mut plan.place_a, &mut plan.place_b].into_iter().flatten() {
            *place = std::fs::canonicalize(&*place)
                .map_err(|error| LabError::caused(place.display(), error))?;
        }
        let is_root = rustix::process::getuid().is_root();
        let network = match is_root && !plan.loopback {
            true => Network::namespaces(Namespaces::prefix_of(&dir))?,
            false => Network::loopback()?,
        };
        let mut group = Self {
            dir,
            plan,
            network,
            folders: Vec::new(),
            adopted,
            door: None,
        };
        folders.extend([NodeName::A, NodeName::B].map(|node| group.home(node)));
        group.folders = folders;
        if group.adopted.is_empty()
            && let Err(error) = group.make_homes()
        {
            group.network.remove()?;
            return Err(error);
        }
        // So that what is made from here on is found again; what is named in it is ours to remove.
        group.keep()?;
        Ok(group)
    }

    /// All or none of them.
    fn make_homes(&self) -> Result<(), LabError> {
        let homes = [NodeName::A, NodeName::B].map(|node| self.home(node));
        for (at, home) in homes.iter().enumerate() {
            if let Err(error) = std::fs::create_dir(home) {
                for made in &homes[..at] {
                    // It is empty.
                    let _ = std::fs::remove_dir(made);
                }
                return Err(LabError::caused(home.display(), error));
            }
        }
        Ok(())
    }

    /// A new group, and the database of the load in it.
    pub(super) fn start_new(&self, progress: &Progress) -> Result<(), LabError> {
        self.start_members(progress)?;
        self.make_database()
    }

    pub(super) fn start_members(&self, progress: &Progress) -> Result<(), LabError> {
        let programs = Programs::find()?;
        self.make_folder(&self.dir.join("run"))?;
        progress.say("etcd is started, three members");
        for member in Member::ETCD {
            self.start_member(member)?;
        }
        progress.say("Patroni is started: a primary is made, and a standby from it");
        for node in [NodeName::A, NodeName::B] {
            let home = self.home(node);
            self.make_folder(&home)?;
            self.make_folder(&home.join("run"))?;
            let file = home.join("patroni.yml");
            // Durable: the place may be a drive that is to die.
            ashlar_lab::write_whole(&file, &self.patroni(node, &programs))?;
            self.start_member(Member::Patroni(node))?;
            if node == NodeName::A && !self.adopted.is_empty() {
                // Otherwise the standby could be the quicker one.
                self.await_primary(progress)?;
            }
        }
        self.start_member(Member::Listener)?;
        self.await_ready(progress)
    }

    fn make_database(&self) -> Result<(), LabError> {
        use crate::database::Database;
        let url = self.url("postgres");
        let database = crate::postgres::Postgres::new(&url, crate::postgres::Logic::Functions)?;
        database.execute(&format!("CREATE DATABASE {DATABASE}"))
    }

    /// Starts one of its programs, which is not waited for.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_member(&self, member: Member) -> Result<(), LabError> {
        let programs = Programs::find()?;
        let folder = self.folder(member);
        self.make_folder(&folder)?;
        let (program, words) = match member {
            Member::Etcd(_) | Member::Witness => {
                let data = folder.join("data");
                (
                    Program::Plain("/usr/bin/etcd"),
                    etcd_words(member.seat(), &data, &self.address()),
                )
            }
            Member::Patroni(_) => {
                let file = folder.join("patroni.yml").display().to_string();
                // The system's own Python has its modules; another may be first on the path.
                (
                    Program::Keeper("/usr/bin/python3"),
                    vec!["/usr/bin/patroni".into(), file],
                )
            }
            Member::Listener => {
                let file = folder.join("haproxy.cfg");
                std::fs::write(&file, self.haproxy())
                    .map_err(|error| LabError::caused(file.display(), error))?;
                let words = ["-db", "-f"].map(str::to_owned).into_iter();
                let words = words.chain([file.display().to_string()]).collect();
                (Program::Plain("/usr/sbin/haproxy"), words)
            }
        };
        let log = self.log(member);
        let open = || File::options().create(true).append(true).open(&log);
        let caused = |error| LabError::caused(log.display(), error);
        let mut command = self
            .network
            .command(member.seat(), programs.user(), program);
        command.args(words).current_dir(&folder);
        command
            .stdout(open().map_err(caused)?)
            .stderr(open().map_err(caused)?);
        let stdin = match (&self.door, member) {
            (Some(door), Member::Listener) => door.opened()?,
            _ => Stdio::null(),
        };
        processes::start_with(&mut command, stdin)
            .map_err(|error| LabError::caused(format!("{member:?}"), error))
    }

    pub(super) fn folder(&self, member: Member) -> PathBuf {
        match member {
            Member::Etcd(node) => self.dir.join(format!("etcd-{node}")),
            Member::Witness => self.dir.join("etcd-w"),
            Member::Patroni(node) => self.home(node),
            Member::Listener => self.dir.join("haproxy"),
        }
    }

    /// What it says: never on a database's place, which may hang while its keeper has something to say.
    fn log(&self, member: Member) -> PathBuf {
        match member {
            Member::Patroni(node) => self.dir.join(format!("run/patroni-{node}.log")),
            other => self.folder(other).join("log"),
        }
    }

    /// A member's processes.
    pub fn processes(&self, member: Member) -> Vec<u32> {
        processes::working_in(&[self.folder(member)])
    }

    /// The processes of a node's PostgreSQL alone.
    pub fn database_processes(&self, node: NodeName) -> Vec<u32> {
        processes::working_in(&[self.home(node).join("data")])
    }

    /// Does something to all processes of these members.
    pub fn signal(&self, members: &[Member], sign: Sign) {
        let folders: Vec<PathBuf> = members.iter().map(|&member| self.folder(member)).collect();
        processes::signal(&folders, sign);
    }

    /// Kills all processes of a member, and waits until they are gone.
    ///
    /// # Errors
    /// One does not end.
    pub fn end_member(&self, member: Member) -> Result<(), LabError> {
        processes::end(&[self.folder(member)])
    }

    /// Kills a node's PostgreSQL, and leaves its keeper.
    pub fn kill_database(&self, node: NodeName) {
        processes::signal(&[self.home(node).join("data")], Sign::Kill);
    }

    /// Removes a node's database; its keeper copies the primary's when it starts.
    ///
    /// # Errors
    /// It stays.
    pub fn remove_database(&self, node: NodeName) -> Result<(), LabError> {
        let data = self.home(node).join("data");
        std::fs::remove_dir_all(&data).map_err(|error| LabError::caused(data.display(), error))
    }

    /// Cuts a node off from all others, or connects it again.
    ///
    /// # Errors
    /// There are no namespaces, or `ip` complains.
    pub fn set_connected(&self, node: NodeName, connected: bool) -> Result<(), LabError> {
        self.network.set_connected(node.into(), connected)
    }

    /// Whether a node can be cut off.
    pub fn can_be_cut(&self) -> bool {
        self.network.can_be_cut()
    }

    pub(super) fn is_frozen(&self, node: NodeName) -> bool {
        let stopped = |&pid: &u32| processes::state(pid) == Some('T');
        self.processes(Member::Patroni(node)).iter().any(stopped)
    }

    /// The last lines of what its programs said.
    pub(super) fn last_words(&self) -> String {
        let members = [
            Member::Patroni(NodeName::A),
            Member::Patroni(NodeName::B),
            Member::Witness,
            Member::Listener,
        ];
        let mut text = String::new();
        for member in members {
            let said = std::fs::read_to_string(self.log(member)).unwrap_or_default();
            // The database's own lines, in the same file, are of every client that was lost.
            let is_word = |line: &&str| {
                !line.trim().is_empty() && !line.contains("connection to client lost")
            };
            if let Some(last) = said.lines().rev().find(is_word) {
                text.push_str(&format!("; {member:?} said last: {last}"));
            }
        }
        text
    }

    fn make_folder(&self, folder: &Path) -> Result<(), LabError> {
        std::fs::create_dir_all(folder)
            .map_err(|error| LabError::caused(folder.display(), error))?;
        Programs::find()?.give(folder)
    }
}

/// # Errors
/// A usage error: there is no room for the paths of sockets in that of a group's directory, or of a place of it.
pub fn check_lengths(dir: &Path, places: [&Option<PathBuf>; 2]) -> Result<(), LabError> {
    check_length(dir, LONGEST_DIR)?;
    let mut places = places.into_iter().flatten();
    places.try_for_each(|place| check_length(place, LONGEST_PLACE))
}

/// # Errors
/// A usage error: something is where a node's database would be made, and would be gone when its group ends.
pub fn check_place(place: &Path, node: NodeName) -> Result<(), LabError> {
    let home = home_in(place, node);
    match home.symlink_metadata() {
        Ok(_) => Err(LabError::usage(format!(
            "{}: is there already; a group makes this folder for its database, and removes it in the end",
            home.display()
        ))),
        Err(_) => Ok(()),
    }
}

/// An empty directory becomes a group's; what a group has left there whose programs are all gone is cleared away first.
fn claim(dir: &Path) -> Result<PathBuf, LabError> {
    let caused = |error| LabError::caused(dir.display(), error);
    std::fs::create_dir_all(dir).map_err(caused)?;
    let dir = std::fs::canonicalize(dir).map_err(caused)?;
    if let Ok(group) = Group::at(&dir) {
        if !processes::working_in(&group.folders).is_empty() {
            let dir = dir.display();
            return Err(LabError::usage(format!(
                "{dir}: a group runs there already: `ashlar lab cluster stop --dir {dir}` ends it"
            )));
        }
        group.stop()?;
        std::fs::create_dir_all(&dir).map_err(caused)?;
    }
    for other in std::fs::read_dir(&dir).map_err(caused)? {
        let other = other.map_err(caused)?.file_name();
        if other == PLACES {
            continue;
        }
        return Err(LabError::usage(format!(
            "{} holds other things ({}): a group takes an empty directory",
            dir.display(),
            other.display()
        )));
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_a_group_did_not_make_is_not_taken() {
        let base = ashlar_lab::OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let place = base.path().join("p");
        let file = place.join("node-b/file");
        std::fs::create_dir_all(place.join("node-b")).expect("made");
        std::fs::write(&file, "a user's").expect("written");
        let why = check_place(&place, NodeName::B).expect_err("refused");
        assert!(why.exit_code() == 2 && why.to_string().contains("p/node-b"));
        assert_eq!(check_place(&place, NodeName::A), Ok(()));
        let plan = GroupPlan {
            place_a: None,
            place_b: Some(place.clone()),
            tuning: super::super::Tuning::Fast,
            set: Vec::new(),
            loopback: true,
        };
        // Where there are no programs, that is said first.
        let dir = base.path().join("g");
        let refused = Group::start(&dir, &plan, &Progress::silent()).expect_err("refused");
        assert!(needed().is_err() || refused.exit_code() == 2, "{refused}");
        assert!(file.exists() && !place.join("node-a").exists());
    }

    #[test]
    fn homes_are_made_anew_or_not_at_all() {
        let base = ashlar_lab::OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let mark = serde_json::json!({
            "dir": base.path(), "folders": [],
            "plan": {"place_a": null, "place_b": null, "tuning": "fast", "set": [], "loopback": true},
            "network": Network::loopback().expect("ports"),
        });
        let group: Group = serde_json::from_value(mark).expect("a group");
        let [a, b] = [NodeName::A, NodeName::B].map(|node| group.home(node));
        std::fs::create_dir(&b).expect("made");
        group.make_homes().expect_err("one is there");
        assert!(!a.exists() && b.exists());
        std::fs::remove_dir(&b).expect("empty");
        group.make_homes().expect("made");
        assert!(a.exists() && b.exists());
    }
}
