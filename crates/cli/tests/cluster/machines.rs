//! Machines of a cluster as an operator makes them: directories on addresses of loopback.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{
    Running, TEST_TIMEOUT, ashlar, ended, eventually_within, is_there, ok, open_folder,
};

/// Two nodes and a witness.
pub struct Machines {
    pub room: tempfile::TempDir,
    /// What is added to their addresses: those of another test are others.
    apart: u8,
}

impl Machines {
    pub fn new(apart: u8) -> Self {
        let room = open_folder();
        Self { room, apart }
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    /// An address of this test alone, with all ports.
    pub fn address(&self, name: &str) -> String {
        self.address_at(name, 0)
    }

    /// So many further.
    pub fn address_at(&self, name: &str, further: u8) -> String {
        let pid = std::process::id();
        let last = name.as_bytes()[0] + self.apart + further;
        format!("127.{}.{}.{last}", 1 + pid % 250, pid / 250 % 256)
    }

    /// A command about a machine's own place.
    pub fn place(&self, words: &[&str], name: &str) -> Command {
        let mut command = ashlar(words);
        command.arg("--dir").arg(self.dir(name));
        command.args(["--name", name, "--address", &self.address(name)]);
        command
    }

    /// Something that stays, working in a folder of its own: so its processes are found.
    pub fn run(&self, name: &str, command: &mut Command) -> Running {
        let log = std::fs::File::create(self.room.path().join(format!("{name}.log")));
        std::fs::create_dir_all(self.dir(name)).expect("a folder");
        command
            .current_dir(self.dir(name))
            .stderr(log.expect("a log"));
        Running::start(command)
    }

    pub fn node(&self, name: &str) -> Running {
        let mut command = ashlar(["node", "--dir"]);
        let mut node = self.run(name, command.arg(self.dir(name)));
        node.ready();
        node
    }

    /// A command to a node's daemon.
    pub fn to(&self, name: &str, words: &[&str]) -> Command {
        let mut command = ashlar(words);
        command.env("ASHLAR_API", self.dir(name).join("api.sock"));
        command
    }

    pub fn token(&self) -> String {
        ok(&mut self.to("a", &["cluster", "token"]))
            .trim()
            .to_owned()
    }

    pub fn json(&self, name: &str, words: &[&str]) -> Value {
        let said = ended(self.to(name, words).arg("--json"));
        serde_json::from_str(&said.out).unwrap_or_default()
    }

    /// What the members of etcd do, by their names.
    pub fn quorum(&self) -> Vec<String> {
        self.quorum_of("a")
    }

    pub fn quorum_of(&self, asked: &str) -> Vec<String> {
        let status = self.json(asked, &["cluster", "status"]);
        let members = status["quorum"]["members"].as_array();
        let members = members.into_iter().flatten();
        let words = members.map(|one| format!("{} {}", one["name"], one["role"]).replace('"', ""));
        words.collect()
    }

    pub fn pool(&self, name: &str) {
        let drive = format!(
            "file:{}?size=256MiB",
            self.dir(name).join("drive").display()
        );
        ok(&mut self.to(name, &["pool", "create", "tank", "--drive", &drive]));
    }

    /// A witness that joins; three vote when it has.
    pub fn witness(&self, token: &str) -> Running {
        let mut witness = self.place(&["witness", "--join", token], "w");
        let witness = self.run("w", &mut witness);
        eventually_within(2 * TEST_TIMEOUT, "three vote", || {
            let quorum = self.quorum();
            let votes = quorum
                .iter()
                .filter(|one| !one.ends_with("learner") && !one.ends_with("unreachable"));
            votes.count() == 3
        });
        witness
    }

    /// A volume with a copy on each node.
    pub fn volume(&self) {
        self.pool("a");
        self.pool("b");
        let words = "volume create tank/db --size 16MiB --layout mirror:1 --replicas 2";
        let words: Vec<&str> = words.split(' ').collect();
        ok(&mut self.to("a", &words));
    }

    /// The owner of `tank/db`, if all copies are in sync.
    pub fn owner(&self, asked: &str) -> Option<String> {
        let volume = self.json(asked, &["volume", "show", "tank/db"]);
        let copies = volume["replicas"].as_array()?;
        let in_sync = copies.iter().all(|copy| copy["state"] == "in_sync");
        let owner = volume["owner"].as_str()?.to_owned();
        in_sync.then_some(owner)
    }
}

pub fn can_join() -> bool {
    ["/usr/bin/etcd", "/usr/bin/setpriv"]
        .iter()
        .all(|path| is_there(path, Path::new(path).exists()))
}
